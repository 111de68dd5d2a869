"""Reading dataclasses from JSON: what is wrong is said in one short line."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from monomoe_gen.errors import DatabaseError
from monomoe_gen.strict import read_json


@dataclass(frozen=True)
class Inner:
    number: float


@dataclass(frozen=True)
class Outer:
    name: str
    inner: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([{"a": 1}] * 5000, "must be an object, found "),
        ({"name": [1] * 5000}, "name: must be str, found "),
        ({"name": "x", "inner": "y" * 5000}, "inner: must be a list, found "),
        ({"name": "x", "inner": [[2] * 5000]}, "inner[0]: must be an object, found "),
        ({"name": "x", "inner": [{"number": "1" * 5000}]}, "inner[0].number: must be float, "),
    ],
)
def test_a_long_value_is_shortened(value: object, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value))
    with pytest.raises(DatabaseError) as caught:
        read_json(Outer, path)
    assert words in caught.value.reason and caught.value.reason.endswith("…")
    assert len(caught.value.reason) < 130


def test_a_short_value_is_shown_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"name": ["a", "b"]}')
    with pytest.raises(DatabaseError, match=r"must be str, found \['a', 'b'\]$"):
        read_json(Outer, path)


def test_a_number_of_too_many_digits_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"name": ' + "1" * 5000 + "}")
    with pytest.raises(DatabaseError):
        read_json(Outer, path)
