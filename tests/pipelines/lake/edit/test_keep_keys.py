"""`--keep-keys`: of all keyed states and timers of an operator just the listed keys' rows stay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.edit_results import EditResult
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.shown import plain
from statelake.state_core.errors import EncodeError, NoMatchError, NotFoundError
from statelake.state_core.model.key_groups import key_groups_of_hashes
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.text import StringSerializer
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WIDE,
    WORDS,
    assert_shown,
    assert_whole,
    edit,
    exported,
    golden,
    import_as,
    import_golden,
    kept_files,
    raw_savepoint,
    unit_paths,
)
from tests.support.savepoints.keyed_types import KEYS, keyed_savepoint
from tests.support.serializers.serializer_columns import write

OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return Catalog(tmp_path / "lake")


def kept(
    lake: Catalog, operator: str, lines: Sequence[str], *, to: str = "kept", **changes: Any
) -> EditResult:
    """The job's snapshot `s` with just these keys of an operator."""
    path = Path(lake.location).with_name("keys.txt")
    path.write_text("\n".join(lines), "utf-8", newline="")
    wanted = SnapshotEdit(keep_keys={operator: str(path)}, **changes)
    return edit_snapshot(ChildSnapshot(lake, "orders", "s", to, engine=LOCAL), wanted)


def keys_of(savepoint: Path, operator: str) -> dict[str, list[Any]]:
    """The keys of every row, by state."""
    return {
        state.name: state.to_arrow().column("key").to_pylist()
        for state in open_snapshot(savepoint).operator(operator).keyed_states
    }


def test_all_states_and_timers_keep_just_these_keys(lake: Catalog, tmp_path: Path) -> None:
    """Entry for entry as they were; the catalog counts what a new import of the export counts."""
    import_golden(lake, ("s", KINDS))
    before = keys_of(KINDS, "kinds")
    listed = sorted({key for keys in before.values() for key in keys})[::7]
    done = kept(lake, "kinds", [str(key) for key in listed])
    exported(lake, "kept", tmp_path / "out")
    source, result = (open_snapshot(path).operator("kinds") for path in (KINDS, tmp_path / "out"))
    assert any(state.kind is StateKind.TIMERS for state in source.keyed_states)
    for state in source.keyed_states:
        wanted = [row for row in state.to_arrow().to_pylist() if row["key"] in listed]
        found = result.state(state.name).to_arrow().to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, wanted))
    assert {change.state for change in done.changes} == {
        name for name, keys in before.items() if keys
    }
    again = import_as(Catalog(tmp_path / "other"), tmp_path / "out", "again")
    for mine, theirs in zip(done.record.operators, again.operators, strict=True):
        assert [state.key_groups for state in mine.states] == [
            state.key_groups for state in theirs.states
        ]
        assert [state.entries for state in mine.states] == [
            state.entries for state in theirs.states
        ]
    assert_whole(lake)


@pytest.mark.parametrize("source", [WORDS, WIDE], ids=["a file a key group", "buckets"])
def test_files_that_can_hold_no_listed_key_are_not_read(
    source: Path, lake: Catalog, tmp_path: Path
) -> None:
    """They may be damaged, and are left out; those that are read keep what is listed."""
    record = import_as(lake, source, "s")
    word = min(keys_of(source, "counter")["count"])
    (operator,) = (operator for operator in record.operators if operator.uid == "counter")
    (row,) = (
        value
        for value in open_snapshot(source).operator("counter").state("count").to_arrow().to_pylist()
        if value["key"] == word
    )
    (table,) = (table for table in operator.tables if table.path.endswith("count"))
    for file in table.units:
        if not file.first <= row["key_group"] <= file.last:
            Path(lake.location, table.path, file.path).write_bytes(b"damaged")
    kept(lake, "counter", [word])
    exported(lake, "kept", tmp_path / "out")
    assert keys_of(tmp_path / "out", "counter")["count"] == [word]


def test_other_operators_and_operator_state_stay(lake: Catalog, tmp_path: Path) -> None:
    """A list of keys says nothing of them."""
    import_as(lake, raw_savepoint(tmp_path / "raw"), "rules")
    import_as(lake, WORDS, "words", "other")
    merged = SnapshotEdit(merge=[("other", "words")])
    record = edit_snapshot(ChildSnapshot(lake, "orders", "rules", "s", engine=LOCAL), merged).record
    word = min(keys_of(WORDS, "counter")["count"])
    made = kept(lake, "counter", [word]).record
    for before, after in zip(record.operators, made.operators, strict=True):
        assert (before == after) == (before.uid != "counter")
    assert made.carried == record.carried
    exported(lake, "kept", tmp_path / "out")
    assert keys_of(tmp_path / "out", "counter")["count"] == [word]


def test_all_that_is_asked_for_is_done_in_one_go(lake: Catalog, tmp_path: Path) -> None:
    """Keys, what has expired, a queue of timers: no file of a step in between is left."""
    import_golden(lake, ("s", KINDS))
    rows = open_snapshot(KINDS).operator("kinds").state("session").to_arrow().to_pylist()
    times = sorted(_millis(row["ttl"]) for row in rows)
    middle = times[len(times) // 2]
    at = datetime.fromtimestamp(middle / 1000, timezone.utc)
    keys = sorted({row["key"] for row in rows})[::2]
    queues = [name for name in keys_of(KINDS, "kinds") if name.startswith("_timer_state/")]
    kept(
        lake, "kinds", [str(key) for key in keys], at=at,
        expire={"kinds/session": timedelta(0)}, drop_state=[f"kinds/{queues[0]}"],
    )  # fmt: skip
    exported(lake, "kept", tmp_path / "out")
    wanted = [row["key"] for row in rows if row["key"] in keys and _millis(row["ttl"]) > middle]
    found = keys_of(tmp_path / "out", "kinds")
    assert sorted(found["session"]) == sorted(wanted)
    assert 0 < len(wanted) < len(keys)
    assert queues[0] not in found
    assert set(found[queues[1]]) <= set(keys)
    assert_whole(lake)


def _millis(value: Any) -> int:
    return value if isinstance(value, int) else round(value.timestamp() * 1000)


def test_both_queues_may_go_one_after_the_other(lake: Catalog, tmp_path: Path) -> None:
    """Then so does the table that they share, which is not written first."""
    import_golden(lake, ("s", KINDS))
    queues = [name for name in keys_of(KINDS, "kinds") if name.startswith("_timer_state/")]
    wanted = SnapshotEdit(drop_state=[f"kinds/{name}" for name in queues])
    done = edit_snapshot(ChildSnapshot(lake, "orders", "s", "none", engine=LOCAL), wanted)
    assert done.record.written_bytes == 0
    exported(lake, "none", tmp_path / "out")
    assert not set(queues) & set(keys_of(tmp_path / "out", "kinds"))


def test_a_list_of_all_keys_changes_no_file(lake: Catalog) -> None:
    """The tables' files are shared, their versions the same."""
    import_golden(lake, ("s", WORDS))
    words = keys_of(WORDS, "counter")["count"]
    done = kept(lake, "counter", words)
    assert done.changes == []
    assert done.record.operators == lake.snapshot("orders", "s").operators
    assert done.record.written_bytes == 0


# --------------------------------------------------------------------- how keys are written down


def keyed(lake: Catalog, spec: Any, keys: Sequence[Any]) -> pa.DataType:
    """Import a snapshot `s` whose operator `op` has a value, a map and a timer of each key."""
    path = Path(lake.location).with_name("made")
    kind = keyed_savepoint(path, spec, keys)
    import_as(lake, path, "s")
    return kind


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.full
def test_a_key_is_listed_as_it_is_dumped(name: str, lake: Catalog, tmp_path: Path) -> None:
    """As JSON, whatever its type; each one alone stays, in every kind of state."""
    spec, keys = KEYS[name]
    kind = keyed(lake, spec, keys)
    for index, key in enumerate(keys):
        kept(lake, "op", [json.dumps(plain(key, kind))], to=f"kept-{index}")
        exported(lake, f"kept-{index}", tmp_path / f"out-{index}")
        found = keys_of(tmp_path / f"out-{index}", "op")
        assert len(found) == 3
        assert all(held == [key] for held in found.values())
    every = kept(lake, "op", [json.dumps(plain(key, kind)) for key in keys], to="all").record
    assert unit_paths(every) == unit_paths(lake.snapshot("orders", "s"))
    assert every.written_bytes == 0


def test_text_may_stand_as_it_is(lake: Catalog, tmp_path: Path) -> None:
    """With blanks around it; lines end as any editor ends them, and blank ones say nothing."""
    keyed(lake, "String", ["a", " a ", "a\tb", '{"x": 1}', "42", "b", '"', ""])
    kept(lake, "op", ["a", " a \r", "", "\r", "a\tb", '{"x": 1}', "  ", "42", '"\\""', ""])
    exported(lake, "kept", tmp_path / "out")
    found = keys_of(tmp_path / "out", "op")["count"]
    assert sorted(found) == sorted(["a", " a ", "a\tb", '{"x": 1}', "42", '"'])


def test_a_key_that_only_bytes_hold_is_not_the_one_that_is_shown(
    lake: Catalog, tmp_path: Path
) -> None:
    """Half a character is shown as a sign of its own, and is another key than that sign."""
    keyed(lake, "String", ["x\ufffd", "y"])
    table = lake.table("orders/keyed/op/count")
    rows = edit(lake, "orders/keyed/op/count").to_pyarrow_table()
    odd = write(StringSerializer(), "x\ud800")
    group = key_groups_of_hashes(np.array([31 * ord("x") + 0xD800], np.int32), 128)
    row = rows.slice(0, 1).to_pylist()[0] | {
        "key": "x\ufffd", "raw_key": odd + b"\0", "key_group": int(group[0]),
    }  # fmt: skip
    write_deltalake(edit(lake, table.path), pa.Table.from_pylist([row], rows.schema), mode="append")
    commit_snapshot(ChildSnapshot(lake, "orders", "s", "odd", engine=LOCAL))
    path = tmp_path / "keys.txt"
    path.write_text("x\ufffd\n", "utf-8")
    edit_snapshot(
        ChildSnapshot(lake, "orders", "odd", "kept", engine=LOCAL),
        SnapshotEdit(keep_keys={"op": str(path)}),
    )
    exported(lake, "kept", tmp_path / "out")
    left = open_snapshot(tmp_path / "out").operator("op").state("count").to_arrow()
    assert left.column("key").to_pylist() == ["x\ufffd"]
    assert left.column("raw_key").null_count == 1


# --------------------------------------------------------------------- what is refused


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("spec", "lines", "said"),
    [
        ("Long", ["1", '"2"'], r"keys.txt:2: \"2\" is not a key of type Long"),
        ("Long", ["1", "", "1.5"], r"keys.txt:3: 1.5 is not a key of type Long"),
        ("Long", ["9" * 99], r"keys.txt:1: 9{60}\.\.\. is not a key of type Long"),
        ("Long", ["{"], r"keys.txt:1: { is not a key of type Long"),
        ("Long", ["null"], r"keys.txt:1: null is not a key of type Long .*never null"),
        ("Long", ["[" * 100_000], r"keys.txt:1: .* is not a key of type Long"),
        ("String", ["a", '"b'], r"keys.txt:2: \"b is not a key of type String"),
        ("String", ["5", '"\\ud800"'], r"keys.txt:2: .* is not a key of type String"),
        ("Tuple2<String, Long>", ['{"f0": "a"}'], r"keys.txt:1: .*Tuple2<String, Long>"),
        ("Tuple2<String, Long>", ['{"f0": "a", "f1": 1, "f2": 2}'], r"keys.txt:1: "),
        ("Tuple2<String, Long>", ['{"f0": "a", "f1": null}'], r"keys.txt:1"),
        ("Long", ["", " "], r"keys.txt: no key is listed"),
    ],
)
def test_lines_that_are_no_keys(spec: str, lines: list[str], said: str, lake: Catalog) -> None:
    """They are told by file and line, and no snapshot is made."""
    keyed(lake, spec, KEYS["text" if spec == "String" else "numbers"][1] if "<" not in spec
          else KEYS["tuples"][1])  # fmt: skip
    before = kept_files(lake)
    with pytest.raises(EncodeError, match=said):
        kept(lake, "op", lines)
    assert kept_files(lake) == before


def test_none_of_the_keys(lake: Catalog) -> None:
    """A list of other keys would leave nothing: no snapshot is made of it."""
    import_golden(lake, ("s", WORDS))
    with pytest.raises(NoMatchError, match=r"counter has none of the keys that .*keys.txt lists"):
        kept(lake, "counter", ["nobody", "no one"])
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]
    assert_shown(lake, "s")
    assert_whole(lake)


@pytest.mark.parametrize(
    ("operator", "said"),
    [("nobody", "no operator 'nobody'"), ("rules", "rules has no keyed state")],
)
def test_operators_without_keys(operator: str, said: str, lake: Catalog) -> None:
    """One that is not there, and one that has operator state alone."""
    import_golden(lake, ("s", OPERATOR))
    with pytest.raises(NotFoundError, match=said):
        kept(lake, operator, ["1"])


def test_a_file_that_is_not_there(lake: Catalog) -> None:
    """Or that is no text."""
    import_golden(lake, ("s", WORDS))
    for content in (None, b"\xff\xfe"):
        path = Path(lake.location).with_name("odd.txt")
        if content is not None:
            path.write_bytes(content)
        wanted = SnapshotEdit(keep_keys={"counter": str(path)})
        with pytest.raises(EncodeError, match=r"odd\.txt: it can't be read"):
            edit_snapshot(ChildSnapshot(lake, "orders", "s", "kept", engine=LOCAL), wanted)
