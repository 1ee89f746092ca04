"""Export: the entries that Flink wrote come back, at any parallelism and in any key groups."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export import cutting
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.tables import data_files as unit_writer
from statelake.pipelines.lake.tables import file_spans as units
from statelake.state_core.errors import (
    KeyGroupError,
    LakeError,
    NotFoundError,
    SnapshotError,
    UnsupportedFormatError,
)
from statelake.state_core.formats.reader import Snapshot
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WINDOWS,
    WORDS,
    entries,
    exported,
    files_of,
    golden,
    import_as,
    raw_savepoint,
    sorted_rows,
    unit_paths,
)
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases

pytestmark = pytest.mark.thinned(4)

CANONICAL = golden_cases("wordcount", "kinds", "windows", form="canonical")
OTHERS = [
    golden_case
    for golden_case in golden_cases("wordcount", "kinds", "churn")
    if golden_case.facts["format"] != "canonical"
]
PARALLELISMS = [1, 2, 3, 5, 128]


def cases(found: list[GoldenCase]) -> Any:
    """A test of each case."""
    return pytest.mark.parametrize("case", found, ids=[golden.name for golden in found])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with every case as snapshot `s` of a job of its name."""
    lake = Catalog(tmp_path_factory.mktemp("exporting") / "lake")
    for case in CANONICAL + OTHERS:
        import_as(lake, case.snapshot, "s", case.name)
    return lake


def facts(snapshot: Snapshot) -> list[tuple[object, ...]]:
    """What is known of operators beside their keyed state."""
    return [
        (
            operator.operator_id, operator.uid, operator.name,
            operator.parallelism, operator.max_parallelism, operator.coordinator_bytes,
            operator.operator_states, operator.finished, operator.subtask_states,
            [(s.name, s.kind, s.key_type, s.value_type, s.with_ttl) for s in operator.keyed_states],
        )
        for operator in snapshot.operators
    ]  # fmt: skip


@cases(CANONICAL)
@pytest.mark.full
def test_without_change(case: GoldenCase, lake: Catalog, tmp_path: Path) -> None:
    """Entry for entry the bytes that Flink wrote, and all else that it said of the job."""
    assert exported(lake, "s", tmp_path / "out", case.name) == entries(case.snapshot)
    before, after = open_snapshot(case.snapshot), open_snapshot(tmp_path / "out")
    assert facts(after) == facts(before)
    assert (after.checkpoint_id, after.metadata_version, after.compression) == (
        before.checkpoint_id,
        before.metadata_version,
        before.compression,
    )
    assert (after.format, after.kind) == ("canonical", before.kind)


@cases(
    [golden for golden in CANONICAL if golden.facts["case"] != "kinds" or golden.snapshot == KINDS]
)
@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.full
def test_other_parallelisms(
    case: GoldenCase, parallelism: int, lake: Catalog, tmp_path: Path
) -> None:
    """The same entries, each key group in the file of the subtask that Flink's formula names."""
    to = tmp_path / "out"
    assert exported(lake, "s", to, case.name, parallelism=parallelism) == entries(case.snapshot)
    for operator in open_snapshot(to).operators:
        if not operator.keyed_states:
            continue
        assert operator.parallelism == len(operator.keyed_files) == parallelism
        firsts = [file.key_groups.first for file in operator.keyed_files]
        lasts = [file.key_groups.last for file in operator.keyed_files]
        groups = operator.max_parallelism
        assert firsts == [-(-subtask * groups // parallelism) for subtask in range(parallelism)]
        assert lasts[-1] == groups - 1
        assert all(last + 1 == first for last, first in zip(lasts, firsts[1:], strict=False))
        for file in operator.keyed_files:
            for batch in file.entries():
                held = batch.group_of.tolist()
                assert all(file.key_groups.first <= g <= file.key_groups.last for g in held)
                assert all(a <= b for a, b in pairwise(held))


def java_hash(key: str | int) -> int:
    """`hashCode` of a `String` or `Long`, written down anew, without its sign."""
    if isinstance(key, int):
        bits = key % 2**64
        return (bits ^ bits >> 32) % 2**32
    units = key.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return code


def murmur(code: int) -> int:
    """`MathUtils.murmurHash`, written down anew."""
    code = code * 0xCC9E2D51 % 2**32
    code = (code << 15 | code >> 17) % 2**32 * 0x1B873593 % 2**32
    code = ((code << 13 | code >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32 ^ 4
    code = (code ^ code >> 16) * 0x85EBCA6B % 2**32
    code = (code ^ code >> 13) * 0xC2B2AE35 % 2**32
    code ^= code >> 16
    signed = code - 2**32 if code >= 2**31 else code
    return abs(signed) if signed != -(2**31) else 0


def test_the_formula_is_flinks() -> None:
    """What these tests compute is what Flink's own classes computed."""
    vectors = json.loads((GOLDEN / "vectors" / "keygroups.json").read_text("utf-8"))
    plain = [vector for vector in vectors if vector["type"] == "Long"]
    assert len(plain) > 5
    for vector in plain:
        assert murmur(java_hash(int(vector["key"]))) == vector["murmur"]
        assert vector["murmur"] % 100 == vector["kg100"]


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism"), [(256, 3), (1000, 5), (127, 1), (129, 128), (32768, 2)]
)
@pytest.mark.parametrize("source", [WORDS, KINDS, WINDOWS], ids=["words", "kinds", "windows"])
@pytest.mark.full
def test_other_max_parallelisms(
    source: Path, max_parallelism: int, parallelism: int, lake: Catalog, tmp_path: Path
) -> None:
    """Every key is in the key group that its hash says; back again it is the first savepoint."""
    job, wide = source.parent.name, tmp_path / "wide"
    exported(lake, "s", wide, job, max_parallelism=max_parallelism, parallelism=parallelism)
    before = open_snapshot(source)
    for operator in open_snapshot(wide).operators:
        assert operator.max_parallelism == max_parallelism
        for state in operator.keyed_states:
            found = state.to_arrow()
            wanted = before.operator(operator.operator_id).state(state.name).to_arrow()
            names = [name for name in found.schema.names if name != "key_group"]
            assert sorted_rows(found, names) == sorted_rows(wanted, names)
            groups = found.column("key_group").to_pylist()
            keys = found.column("key").to_pylist()
            assert groups == [murmur(java_hash(key)) % max_parallelism for key in keys]
    back = Catalog(tmp_path / "lake")
    import_as(back, wide, "wide")
    again = exported(back, "wide", tmp_path / "back", max_parallelism=128, parallelism=2)
    assert again == entries(source)


@cases(OTHERS)
@pytest.mark.full
def test_canonical_from_any_format(case: GoldenCase, lake: Catalog, tmp_path: Path) -> None:
    """A native savepoint or a checkpoint becomes a canonical savepoint with the same rows."""
    to = tmp_path / "out"
    exported(lake, "s", to, case.name, parallelism=3)
    before, after = open_snapshot(case.snapshot), open_snapshot(to)
    assert (after.format, after.kind) == ("canonical", "savepoint")
    for operator in before.operators:
        for state in operator.keyed_states:
            found = after.operator(operator.operator_id).state(state.name).to_arrow()
            names = found.schema.names
            assert sorted_rows(found, names) == sorted_rows(state.to_arrow(), names)


@pytest.mark.parametrize("source", [WORDS, WINDOWS], ids=["words", "windows"])
@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize("max_parallelism", [None, 200])
def test_compression(
    source: Path, compression: str, max_parallelism: int | None, lake: Catalog, tmp_path: Path
) -> None:
    """On or off, as asked for; the entries are the same."""
    job = source.parent.name
    options = {"max_parallelism": max_parallelism}
    found = exported(lake, "s", tmp_path / "out", job, compression=compression, **options)
    assert found == exported(lake, "s", tmp_path / "as it was", job, **options)
    assert open_snapshot(tmp_path / "out").compression == compression


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_metadata_versions(version: int, lake: Catalog, tmp_path: Path) -> None:
    """Uids and names are there from version 5 on; the entries are there in any."""
    job = WINDOWS.parent.name
    found = exported(lake, "s", tmp_path / "out", job, metadata_version=version)
    assert found == entries(WINDOWS)
    snapshot, source = open_snapshot(tmp_path / "out"), open_snapshot(WINDOWS)
    assert snapshot.metadata_version == version
    assert snapshot.kind == "savepoint"
    named = [(operator.uid, operator.name) for operator in snapshot.operators]
    assert ("tumbling" in {uid for uid, _ in named}) == (version >= 5)
    assert (named == [(operator.uid, operator.name) for operator in source.operators]) == (
        version >= 5
    )
    assert [operator.operator_id for operator in snapshot.operators] == [
        operator.operator_id for operator in source.operators
    ]


def test_a_savepoint_can_be_moved(lake: Catalog, tmp_path: Path) -> None:
    """Its handles are relative."""
    exported(lake, "s", tmp_path / "out", WORDS.parent.name)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    assert entries(tmp_path / "moved") == entries(WORDS)


def test_state_that_is_not_keyed(tmp_path: Path) -> None:
    """Operator state comes back with the bytes that it had."""
    case = golden("operator-hashmap-canonical-p2-m128-flink2.3.0")
    lake = Catalog(tmp_path / "lake")
    import_as(lake, case.snapshot, "s")
    exported(lake, "s", tmp_path / "out")
    assert facts(open_snapshot(tmp_path / "out")) == facts(open_snapshot(case.snapshot))
    written = {d for name, d in files_of(tmp_path / "out").items() if name != "_metadata"}
    assert written == {d for name, d in files_of(case.snapshot).items() if name != "_metadata"}


def test_raw_state_is_carried(lake: Catalog, tmp_path: Path) -> None:
    """State that only the job can read comes back file by file, where nothing is rescaled."""
    source = raw_savepoint(tmp_path / "raw")
    import_as(lake, source, "raw", "carrier")
    exported(lake, "raw", tmp_path / "out", "carrier")
    before, after = open_snapshot(source).metadata, open_snapshot(tmp_path / "out").metadata
    wanted = {file.name: file.read_bytes() for file in source.iterdir() if file.name == "opaque"}
    handles = [
        subtask.raw_operator.stream
        for operator in after.operators
        for subtask in (operator.subtasks or {}).values()
        if subtask.raw_operator is not None
    ]
    assert len(handles) == len(before.operators[0].subtasks)
    for handle in handles:
        assert (tmp_path / "out" / handle.path).read_bytes() == wanted["opaque"]
    with pytest.raises(UnsupportedFormatError, match="raw operator state, which only Flink"):
        exported(lake, "raw", tmp_path / "other", "carrier", parallelism=5)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("max_parallelism", [None, 300])
@pytest.mark.parametrize("size", [1, 700, 5000])
@pytest.mark.full
def test_in_many_pieces(
    size: int, max_parallelism: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices, chunks and row groups of any size make the same tables and the same savepoint."""
    options = {"max_parallelism": max_parallelism}
    whole = Catalog(tmp_path / "whole")
    import_as(whole, WINDOWS, "s")
    wanted = exported(whole, "s", tmp_path / "wanted", **options)
    for name in ("SLICE_BYTES", "SMALL_SLICE_BYTES", "FILE_BYTES"):
        monkeypatch.setattr(units, name, size)
    monkeypatch.setattr(unit_writer, "ROW_GROUP_BYTES", size)
    monkeypatch.setattr(cutting, "SLICE_BYTES", size)
    monkeypatch.setattr(cutting, "CHUNK_BYTES", size // 2)
    pieces = Catalog(tmp_path / "pieces")
    import_as(pieces, WINDOWS, "s")
    assert exported(pieces, "s", tmp_path / "found", **options) == wanted
    a, b = (lake.snapshot("orders", "s").operators for lake in (whole, pieces))
    assert [operator.states for operator in a] == [operator.states for operator in b]


def test_progress_is_told(lake: Catalog, tmp_path: Path) -> None:
    """In bytes, of every operator to the end: five slices each."""
    told: list[tuple[int, int]] = []
    export_snapshot(
        lake, WINDOWS.parent.name, "s", tmp_path / "out", parallelism=5, engine=LOCAL,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    totals = [told[4][1], told[9][1]]
    assert [total for _, total in told] == [total for total in totals for _ in range(5)]
    for start, total in zip((0, 5), totals, strict=True):
        reached = [done for done, _ in told[start : start + 5]]
        assert reached == sorted(set(reached))
        assert reached[-1] == total > 1_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"parallelism": 129}, "parallelism 129 is not between 1 and the max parallelism 128"),
        ({"max_parallelism": 1, "parallelism": 1}, "raise the max parallelism"),
        ({"max_parallelism": 32769}, "max parallelism 32769 is not between 1 and 32768"),
    ],
)
def test_what_flink_would_refuse(
    options: dict[str, int], problem: str, lake: Catalog, tmp_path: Path
) -> None:
    """A parallelism out of range is an error, and nothing is written."""
    with pytest.raises(KeyGroupError, match=problem):
        exported(lake, "s", tmp_path / "out", WORDS.parent.name, **options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there(lake: Catalog, tmp_path: Path) -> None:
    """An unknown snapshot or job is named, and nothing is written."""
    with pytest.raises(NotFoundError, match="no snapshot 'x'; its latest are: s"):
        exported(lake, "x", tmp_path / "out", WORDS.parent.name)
    with pytest.raises(NotFoundError, match="no job 'x' in the lake"):
        exported(lake, "s", tmp_path / "out", "x")
    assert list(tmp_path.iterdir()) == []


def test_a_savepoint_is_never_written_over(lake: Catalog, tmp_path: Path) -> None:
    """A directory with anything in it is refused and left alone; an empty one is taken."""
    to = tmp_path / "out"
    to.mkdir()
    exported(lake, "s", to, WORDS.parent.name)
    before = files_of(tmp_path)
    with pytest.raises(SnapshotError, match="not empty; choose another"):
        exported(lake, "s", to, WORDS.parent.name)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
@pytest.mark.parametrize("max_parallelism", [None, 256])
def test_a_damaged_lake(damage: str, max_parallelism: int | None, tmp_path: Path) -> None:
    """A file of the lake that is gone or broken is named, and no savepoint comes of it."""
    lake = Catalog(tmp_path / "lake")
    path = sorted(unit_paths(import_as(lake, WORDS, "s", partitions=8)))[2]
    file = tmp_path / "lake" / path
    data = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(data[: len(data) // 2] if damage == "cut" else b"PAR1" + bytes(900))
    with pytest.raises(LakeError, match=r"can't be read.*backup of the lake") as raised:
        exported(lake, "s", tmp_path / "out", max_parallelism=max_parallelism)
    assert path in raised.value.place
    assert {left.name for left in tmp_path.iterdir()} == {"lake"}
