"""Names as paths: every name is one segment of its own, which no file system reads otherwise."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.tables.names import (
    areas_of,
    default_snapshot_id,
    keyed_table,
    path_segment,
    queue_table,
    timers_table,
)

NAMES = st.one_of(
    st.text(),
    st.text("ab日", min_size=30, max_size=300),
    st.text("ab._-~ /\\%=\0äÄ日😀", max_size=6),
    st.sampled_from(["snapshots", "~73napshots", "_statelake", "_delta_log", ".", "..", "key=1"]),
)
SAFE = re.compile(r"[A-Za-z0-9.~-][A-Za-z0-9_.~-]*")


@given(NAMES)
def test_a_segment_is_taken_literally(name: str) -> None:
    """Only characters without meaning, and not hidden; never a directory above."""
    segment = path_segment(name)
    assert SAFE.fullmatch(segment)
    assert not segment.startswith((".", "_"))
    assert len(f"{segment}~{segment}~key_group_bucket") < 256
    assert posixpath.normpath(f"lake/{segment}") == f"lake/{segment}"


@given(NAMES, NAMES)
def test_segments_differ_where_names_do(name: str, other: str) -> None:
    """Two names never share a directory."""
    assert (path_segment(name) == path_segment(other)) == (name == other)


names = st.tuples(NAMES, NAMES, NAMES)


@given(names, names)
def test_no_table_lies_in_another(first: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """A VACUUM of one table never sees the files of another, nor of the catalog."""
    tables = {
        kind: {path(*names)}
        for kind, path, names in (
            ("one keyed", keyed_table, first),
            ("other keyed", keyed_table, other),
            ("one queue", queue_table, first),
            ("other queue", queue_table, other),
            ("one timers", timers_table, first[:2]),
            ("other timers", timers_table, other[:2]),
        )
    }
    if first == other:
        tables = {kind: path for kind, path in tables.items() if kind.startswith("one")}
    elif first[:2] == other[:2]:
        del tables["other timers"]
    paths = [path for held in tables.values() for path in held] + ["snapshots", "_statelake"]
    assert len(set(paths)) == len(paths)
    assert not any(a != b and f"{a}/".startswith(f"{b}/") for a in paths for b in paths)
    for job in (first[0], other[0]):
        assert sum(path.startswith(f"{area}/") for area in areas_of(job) for path in paths) >= 3


def test_long_names_are_cut() -> None:
    """What is cut is told apart by a digest, and its beginning stays readable."""
    one, other = path_segment("a" * 300), path_segment("a" * 299 + "b")
    assert len(one) == len(other) == 110
    assert one.startswith("a" * 92 + "~~")
    assert one != other
    assert path_segment("a" * 110) == "a" * 110


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("orders-2_b.c", "orders-2_b.c"),
        ("", "~"),
        ("a/b", "a~2Fb"),
        ("..", "~2E."),
        ("_x", "~5Fx"),
        ("ü", "~C3~BC"),
        ("~", "~7E"),
    ],
)
def test_examples(name: str, segment: str) -> None:
    """Plain names stay readable."""
    assert path_segment(name) == segment


def test_default_ids() -> None:
    """Flink's name for a savepoint is kept; what is not unique gets digits of the digest."""
    digest = "0123456789abcdef" * 4
    assert default_snapshot_id("/x/savepoint-5f1e2c-0a1b2c3d4e5f/", digest, 7) == (
        "savepoint-5f1e2c-0a1b2c3d4e5f"
    )
    assert default_snapshot_id("s/chk-21", digest, 21) == "chk-21-01234567"
    assert default_snapshot_id("savepoint", digest, 7) == "sp-7-01234567"
    assert default_snapshot_id("savepoint-of-monday", digest, 7) == "sp-7-01234567"
