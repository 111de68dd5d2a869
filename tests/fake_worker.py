"""A stand-in for the GPU worker: ``python fake_worker.py`` speaks the protocol without a GPU.

What it does with a request is written in the name of the kernel. With `SECONDS` as its argument it
is a card of a cluster: a request takes so long, and the name of the kernel gives its times. The
card that removes the file `FUSE` kills its parent.
"""

import contextlib
import os
import signal
import sys
import time
import zlib
from pathlib import Path

from monomoe_gen.protocol import (
    Cell,
    Done,
    Event,
    Failed,
    Floor,
    Measure,
    Ready,
    Stage,
    Trace,
    Traced,
    decode_request,
    encode,
)

UUID = os.environ.get("FAKE_UUID", "GPU-fake")
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else None
FUSE = Path(sys.argv[2]) if len(sys.argv) > 2 else None


def say(event: Event) -> None:
    sys.stdout.write(encode(event))
    sys.stdout.flush()


def cell(tokens: int, us: float = 10.0) -> Cell:
    return Cell(tokens=tokens, status="ok", samples=(us, us, us), floor=Floor(8.0, 0.5))


def serve_as_card(seconds: float) -> None:
    """Answers for ever; a kernel's times depend on its name."""
    uuid = f"GPU-{os.environ['CUDA_VISIBLE_DEVICES']}"
    say(Ready({"gpu": "NVIDIA H200", "uuid": uuid, "sms": 132}))
    for line in sys.stdin:
        request = decode_request(line)
        assert isinstance(request, Measure)
        time.sleep(seconds)
        if FUSE:
            with contextlib.suppress(FileNotFoundError):
                FUSE.unlink()
                os.kill(os.getppid(), signal.SIGKILL)
                return
        for tokens in request.tokens:
            us = 10.0 * tokens + zlib.crc32(request.kernel.name.encode()) % 1000 / 100
            say(cell(tokens, us) if request.timed else Cell(tokens=tokens, status="ok"))
        say(Done())


def main() -> None:
    if SECONDS is not None:
        serve_as_card(SECONDS)
        return
    say(Ready({"gpu": "fake", "uuid": UUID, "sms": 132}))
    for line in sys.stdin:
        request = decode_request(line)
        act = request.kernel.name
        say(Stage("load the kernel"))
        if act == "crash":
            sys.stderr.write("something terrible\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        if isinstance(request, Trace):
            for i in range(request.launches - (act == "too_few")):
                say(Traced(bytes([i, 255]), {"launch": i}))
            say(Done())
            continue
        for tokens in request.tokens:
            if act == "slow_stage":
                say(Stage("compute the answers", limit_s=20))
                time.sleep(1.5)
            say(Stage(f"time {tokens} tokens"))
            if act == "hang" or (act == "hang_at_4" and tokens == 4):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(1000)
            if act == "exit":
                sys.exit(3)
            if act == "gibberish":
                print("the kernel prints here")
            if act == "wrong":
                say(Cell(tokens=tokens, status="wrong", message="as asked"))
                continue
            if act != "no_cells":
                say(cell(tokens) if act != "no_times" else Cell(tokens=tokens, status="ok"))
            if act == "twice":
                say(cell(tokens))
            if act == "other_tokens":
                say(cell(tokens + 1))
        if act == "ready_again":
            say(Ready({}))
        if act.startswith("fail_"):
            _, fault, fatal = act.split("_")
            say(Failed(fault, "as asked", fatal=fatal == "fatal"))  # type: ignore[arg-type]
            if fatal == "fatal":
                sys.exit(1)
            continue
        say(Done())


if __name__ == "__main__":
    main()
