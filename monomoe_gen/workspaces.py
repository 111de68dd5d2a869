"""The workspaces of a process: who launches on which stream may use which."""

from __future__ import annotations

import threading

import torch

from monomoe_gen.errors import LaunchError
from monomoe_gen.kernel import Workspace
from monomoe_gen.partition import stream_owner, stream_sms

Stream = tuple[int, int, int]
"""A device's number, a raw stream handle, and what tells streams of that handle apart."""


class Workspaces:
    """One workspace for each (device, stream), kept for the life of the process.

    A workspace that is too small is replaced but never freed, since a captured graph may use it.
    Memory that a graph capture allocates belongs to the graph and is zeroed only when it replays,
    so a stream that is first seen while it captures takes a workspace that was set aside before.
    A stream is asked once for its SMs, since it stays in its green context, or in none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_stream: dict[Stream, Workspace] = {}
        self._spare: dict[int, Workspace] = {}
        self._retired: list[Workspace] = []
        self._sms: dict[Stream, int] = {}

    def reserve(self, device: torch.device, half_bytes: int) -> None:
        """Makes sure that the next new stream may start with a capture."""
        index = device_index(device)
        with self._lock:
            spare = self._spare.get(index)
            if spare is None or spare.half_bytes < half_bytes:
                self._spare[index] = Workspace.allocate(half_bytes, device)
                torch.cuda.synchronize(device)  # zeroed, whichever stream takes it

    def get(self, stream: Stream, device: torch.device, half_bytes: int) -> Workspace:
        """The workspace of ``stream``, the current one of ``device``, the current device.

        Raises:
            LaunchError: this stream is new, it is being captured, and nothing was set aside.
        """
        index = stream[0]
        found = self._by_stream.get(stream)
        if found is not None and found.half_bytes >= half_bytes and index in self._spare:
            return found
        capturing = torch.cuda.is_current_stream_capturing()
        if found is not None and found.half_bytes >= half_bytes:
            if not capturing:
                self.reserve(device, half_bytes)
            return found
        with self._lock:
            if found is not None:
                self._retired.append(found)
            if capturing:
                new = self._spare.pop(index, None)
                if new is None or new.half_bytes < half_bytes:
                    raise LaunchError(
                        "the first launch on this stream happens in a graph capture and no "
                        "workspace is left for it: call the layer once on another stream first"
                    )
            else:
                new = Workspace.allocate(half_bytes, device)
            self._by_stream[stream] = new
        if not capturing:
            self.reserve(device, half_bytes)
        return new

    def discard(self, stream: Stream) -> None:
        """Takes the stream's workspace out of use, after a launch on it failed.

        Nobody knows how far a failed launch came, so the next one gets a zeroed workspace.
        """
        with self._lock:
            found = self._by_stream.pop(stream, None)
            if found is not None:
                self._retired.append(found)

    def sms(self, stream: Stream) -> int:
        """SMs that launches on ``stream``, the current one of the current device, may use."""
        if stream not in self._sms:
            index, handle, _ = stream
            every = torch.cuda.get_device_properties(index).multi_processor_count
            if torch.cuda.is_current_stream_capturing():  # then it may not be asked
                return stream_sms(None, every)
            self._sms[stream] = stream_sms(handle, every)
        return self._sms[stream]


def current_stream(device: torch.device) -> Stream:
    """torch's current stream on ``device``, the current device."""
    index = device_index(device)
    handle = torch.cuda.current_stream(index).cuda_stream
    return index, handle, stream_owner(handle)


def device_index(device: torch.device) -> int:
    """The number of a CUDA device; a bare ``cuda`` is the current one."""
    return torch.cuda.current_device() if device.index is None else device.index
