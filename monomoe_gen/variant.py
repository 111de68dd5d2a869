"""What sets a kernel apart from the usual one of its schedule, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from monomoe_gen.errors import MonomoeError
from monomoe_gen.schedule import (
    ROUTERS,
    KernelSpec,
    Layout,
    Router,
    Schedule,
    require_layout,
    variant_names,
)
from monomoe_gen.shapes import Shape


class Varied(Protocol):
    """A kernel, an entry of a table or a record."""

    @property
    def layout(self) -> Layout: ...
    @property
    def router(self) -> Router: ...
    @property
    def pdl(self) -> bool: ...


@dataclass(frozen=True, order=True)
class Variant:
    """The fields of `KernelSpec` that are asked for; the default is the usual kernel.

    Raises `MonomoeError` for a word that is none.
    """

    layout: Layout = "packed"
    router: Router = "logits"
    pdl: bool = False

    def __post_init__(self) -> None:
        require_layout(self.layout)
        if self.router not in ROUTERS:
            raise MonomoeError(f"a router is one of {', '.join(ROUTERS)}, found {self.router!r}")
        if type(self.pdl) is not bool:
            raise MonomoeError(f"pdl is True or False, found {self.pdl!r}")

    @classmethod
    def of(cls, varied: Varied) -> Variant:
        """That of anything with the three fields."""
        return cls(varied.layout, varied.router, varied.pdl)

    def spec(self, shape: Shape, schedule: Schedule, token_tile: int) -> KernelSpec:
        """The kernel of a schedule."""
        return KernelSpec(shape, schedule, token_tile, self.layout, self.router, self.pdl)

    @property
    def names(self) -> tuple[str, ...]:
        """What names of files say, as `KernelSpec.variants`; nothing for the usual one."""
        return variant_names(self.layout, self.router, self.pdl)

    @property
    def options(self) -> str:
        """What a command line has to say, each option after a space; nothing for the usual one."""
        text = "" if self.layout == "packed" else f" --layout {self.layout}"
        text += "" if self.router == "logits" else f" --router {self.router}"
        return text + (" --pdl" if self.pdl else "")

    def __str__(self) -> str:
        text = f"{self.layout} weights"
        text += "" if self.router == "logits" else ", router inside"
        return text + (", programmatic dependent launch" if self.pdl else "")


USUAL = Variant()
