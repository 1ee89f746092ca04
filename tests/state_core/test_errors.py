"""Errors are one sentence: the place, the problem, the remedy; and they travel."""

from __future__ import annotations

import pickle

import pytest

from statelake.state_core import errors
from statelake.state_core.errors import CorruptSnapshotError, MissingFileError, StateError

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, StateError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_place_problem_remedy(kind: type[StateError]) -> None:
    """In this order, and nothing that is empty leaves a mark."""
    assert str(kind("p", place="file, offset 3", remedy="do it")) == "file, offset 3: p; do it"
    assert str(kind("p", remedy="do it")) == "p; do it"
    assert issubclass(kind, StateError)


@pytest.mark.parametrize("kind", [CorruptSnapshotError, MissingFileError])
def test_some_have_a_usual_remedy(kind: type[StateError]) -> None:
    """A file that is damaged or missing is to be fetched again, whoever finds it."""
    assert kind("p").remedy
    assert kind("p", remedy="other").remedy == "other"


@pytest.mark.parametrize("kind", KINDS)
def test_they_travel_between_processes(kind: type[StateError]) -> None:
    """Pickled and back, with every field."""
    error = kind("problem", place="place", remedy="remedy")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert (again.problem, again.place, again.remedy) == ("problem", "place", "remedy")


def test_a_refusal_keeps_the_number_of_its_rows() -> None:
    """In another process, and seen from further out."""
    error = errors.InexactError.of(1200, "key", place="state 's'", remedy="r").within("operator o")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (again.count, again.what, str(again)) == (1200, "key", str(error))
    assert str(error).startswith("operator o, state 's': 1,200 rows have a key that")


def test_seen_from_further_out() -> None:
    """The outer place goes before the inner one."""
    error = CorruptSnapshotError("bad", place="file, offset 7").within("operator x")
    assert type(error) is CorruptSnapshotError
    assert str(error).startswith("operator x, file, offset 7: bad; ")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\nb", "a\\nb"), ("\x1b[31mred", "\\x1b[31mred"), ("\ud800", "\\ud800"), ("größe", "größe")],
)
def test_names_from_files_do_no_harm(name: str, shown: str) -> None:
    """No second line, no order to a terminal, nothing that can't be printed."""
    text = str(CorruptSnapshotError("bad", place=f"state {name}"))
    assert text.startswith(f"state {shown}: bad; ")
    assert text.encode()


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.MissingFileError, FileNotFoundError),
        (errors.NotASnapshotError, FileNotFoundError),
        (errors.NotALakeError, FileNotFoundError),
        (errors.NotFoundError, LookupError),
        (errors.CorruptSnapshotError, ValueError),
        (errors.TruncatedError, ValueError),
        (errors.UnsafePathError, ValueError),
        (errors.DeclarationError, ValueError),
        (errors.EncodeError, ValueError),
        (errors.KeyGroupError, ValueError),
        (errors.IncompatibleError, ValueError),
        (errors.UnreachableClusterError, ConnectionError),
    ],
)
def test_pythons_own_kinds_catch_them(kind: type[StateError], also: type[Exception]) -> None:
    """Who expects Python's error gets it, with our message."""
    with pytest.raises(also, match="place: problem; remedy"):
        raise kind("problem", place="place", remedy="remedy")
