"""Compiled programs on disk, addressed by everything that decides their bytes.

One file an entry, written under a temporary name and renamed, so readers and several writers need
no lock. A damaged entry counts as absent. ``MONOMOE_CACHE`` overrides the folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from monomoe_gen.files import write_atomically

FOLDER_VARIABLE = "MONOMOE_CACHE"


def folder() -> Path:
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("monomoe-gen")) / "cubin"


def key(sources_hash: str, options: Sequence[str], compiler: str) -> str:
    """The name of the entry for these sources, compiled with these options by this compiler."""
    return hashlib.sha256(json.dumps([sources_hash, *options, compiler]).encode()).hexdigest()


def get(entry: str) -> tuple[bytes, str] | None:
    """The cubin and the compiler's log of an entry, or None."""
    try:
        stored = json.loads((folder() / f"{entry}.json").read_text(encoding="utf-8"))
        cubin = base64.b64decode(stored["cubin"], validate=True)
        if hashlib.sha256(cubin).hexdigest() == stored["sha256"]:
            return cubin, str(stored["log"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def put(entry: str, cubin: bytes, log: str) -> None:
    """Stores an entry. A folder that cannot be written costs time, not the result: warns."""
    stored = {
        "sha256": hashlib.sha256(cubin).hexdigest(),
        "log": log,
        "cubin": base64.b64encode(cubin).decode(),
    }
    try:
        folder().mkdir(parents=True, exist_ok=True)
        write_atomically(folder() / f"{entry}.json", json.dumps(stored).encode())
    except OSError as error:
        warnings.warn(
            f"compiled kernels are not kept: {folder()} cannot be written ({error.strerror}); "
            f"set {FOLDER_VARIABLE} to a folder that can",
            stacklevel=2,
        )
