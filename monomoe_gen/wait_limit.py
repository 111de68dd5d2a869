"""How long a wait inside a kernel may last before it ends in a trap."""

from __future__ import annotations

import os
from functools import cache

from monomoe_gen.errors import MonomoeError

VARIABLE = "MONOMOE_WAIT_LIMIT_MS"
DEFAULT_MS = 2000  # kWaitLimitNs of templates/device/trap.cuh
MOST_MS = 3_600_000


@cache
def wait_limit_ms() -> int:
    """The limit in milliseconds that ``MONOMOE_WAIT_LIMIT_MS`` asks for; it is read once.

    Raises:
        MonomoeError: the variable is not a whole number of milliseconds from 1 to one hour.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return DEFAULT_MS
    digits = text.isascii() and text.isdigit() and len(text) <= 12
    if not (digits and 1 <= int(text) <= MOST_MS):
        raise MonomoeError(
            f"{VARIABLE} must be a whole number of milliseconds from 1 to {MOST_MS}, "
            f"found {text!r}; unset it for {DEFAULT_MS}"
        )
    return int(text)
