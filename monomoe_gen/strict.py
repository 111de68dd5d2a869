"""Frozen dataclasses from JSON with exactly their fields and types, without a library."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from monomoe_gen.errors import DatabaseError, MonomoeError, OlderFormat

_T = TypeVar("_T")
_SHOWN = 80
"""Most characters of a value in a message."""


def read_json(kind: type[_T], path: Path) -> _T:
    """Reads the file `path` as one object of the dataclass `kind`.

    Fields may be text, numbers, booleans, tuples, optional values and other dataclasses; one with
    a ``from_dict`` of its own is made by that. What has a default may be missing.

    Raises:
        DatabaseError: no such file, no JSON, or a field that is unknown, missing or of another
            type. The line is 0 where the field's name alone does not tell it.
    """
    return _read(kind, path, lambda raw: None)


def read_versioned(kind: type[_T], path: Path, version: int, remedy: str = "make it anew") -> _T:
    """Reads the file `path` as one `kind`, whose ``format`` has to be `version`.

    `remedy` is what to do about an older format, for its message.

    Raises:
        OlderFormat: the format is an older one.
        DatabaseError: as `read_json`, or a newer format.
    """

    def check(raw: Any) -> None:
        found = raw.get("format") if isinstance(raw, dict) else None
        if type(found) is not int or found == version:
            return
        problem = f"has format {found}, this program reads format {version}; "
        if found > version:
            raise DatabaseError(path, 0, f"{problem}upgrade monomoe-gen")
        raise OlderFormat(path, 0, problem + remedy)

    return _read(kind, path, check)


def _read(kind: type[_T], path: Path, check: Callable[[Any], None]) -> _T:
    """The file as one `kind`, once `check` has let its content pass."""
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text)
        check(raw)
        return typing.cast(_T, _value(kind, raw, ""))
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatabaseError(path, 0, f"is not UTF-8 text: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise DatabaseError(path, error.lineno, f"is not JSON: {error.msg}") from None
    except ValueError as error:
        raise DatabaseError(path, 0, f"holds a number that cannot be read: {error}") from None
    except RecursionError:
        raise DatabaseError(path, 0, "is nested too deeply") from None
    except _Problem as problem:
        raise DatabaseError(path, problem.line(text), str(problem)) from None


def shortened(value: object) -> str:
    """A value as a message shows it: the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


class _Problem(Exception):
    """What is wrong at `where`, a path such as ``entries[3].tuned_at``."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.field = where.rpartition(".")[2]

    def line(self, text: str) -> int:
        """The line of the field if only one has that name, as an unknown field has."""
        found = [m.start() for m in re.finditer(rf'"{re.escape(self.field)}"\s*:', text)]
        return text.count("\n", 0, found[0]) + 1 if len(found) == 1 else 0


def _value(kind: Any, raw: Any, where: str) -> Any:
    if isinstance(kind, types.UnionType):
        if raw is None and type(None) in kind.__args__:
            return None
        (kind,) = (k for k in kind.__args__ if k is not type(None))
    if typing.get_origin(kind) is tuple:
        if not isinstance(raw, list):
            raise _Problem(where, f"must be a list, found {shortened(raw)}")
        item = typing.get_args(kind)[0]
        return tuple(_value(item, value, f"{where}[{i}]") for i, value in enumerate(raw))
    if dataclasses.is_dataclass(kind):
        return _object(kind, raw, where)
    if typing.get_origin(kind) is typing.Literal:
        if raw not in (values := typing.get_args(kind)):
            raise _Problem(where, f"must be one of {', '.join(values)}, found {shortened(raw)}")
        return raw
    if type(raw) is not kind and not (kind is float and type(raw) is int):
        raise _Problem(where, f"must be {kind.__name__}, found {shortened(raw)}")
    return raw


def _object(kind: Any, raw: Any, where: str) -> Any:
    if not isinstance(raw, dict):
        raise _Problem(where, f"must be an object, found {shortened(raw)}")
    if hasattr(kind, "from_dict"):
        try:
            return kind.from_dict(raw)
        except MonomoeError as error:
            raise _Problem(where, str(error)) from None
    hints = typing.get_type_hints(kind)
    dot = f"{where}." if where else ""
    for name in raw:
        if name not in hints:
            raise _Problem(dot + name, "unknown field")
    for field in dataclasses.fields(kind):
        if field.name not in raw and field.default is dataclasses.MISSING:
            raise _Problem(dot + field.name, "missing")
    return kind(**{name: _value(hints[name], value, dot + name) for name, value in raw.items()})
