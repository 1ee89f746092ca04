"""Real Flink gives every subtask of an export the operator state that it gives it of the original.

The jobs are `operator` (lists and a broadcast state, each in an operator of its own) and `mixed`
(both beside keyed state). What Flink deals out at a parallelism when it restores its own savepoint
is compared with what it deals out of an export that was written for that parallelism.

Flink merges the files of old subtasks in the order of a hash map whose keys are their paths, so
which old subtask comes first changes with the place of the savepoint. The export settles it: the
order of subtasks. So lists are the same up to that, and exactly those that the export holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.covering import pairs, values
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(2, by=values)]

PARALLELISMS = (1, 2, 3, 5, 7)
KEYS = 120
WRITTEN_AT = 3
SPLIT, UNION = ("split", "offsets", "lone"), ("union", "rare")
GOLDEN = golden_cases("operator", form="canonical")


at_each = pytest.mark.parametrize("parallelism", PARALLELISMS)


def exported(savepoint: Path, to: Path, **options: Any) -> Path:
    """A savepoint through a lake, as another."""
    lake = Catalog(to / "lake")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", to / "savepoint", engine="local", **options)
    return to / "savepoint"


@pytest.fixture(scope="module")
def mixed(flink: FlinkOracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint of keyed, broadcast, split and union state in one operator, at 3, compressed."""
    return flink.generate(
        "mixed", tmp_path_factory.mktemp("mixed"), keys=KEYS, parallelism=WRITTEN_AT,
        compression="true", backend="rocksdb",
    )  # fmt: skip


def assert_same(found: list[Any], wanted: list[Any], made: Path, parallelism: int) -> None:
    """What Flink sees in an export, what it sees in the original, and what the export holds."""
    assert sorted_lines(map(settled, found)) == sorted_lines(map(settled, wanted))
    lists = [{line["subtask"]: line for line in lines if "split" in line}
             for lines in (found, wanted)]  # fmt: skip
    assert set(lists[0]) == set(lists[1]) == set(range(parallelism))
    stored = elements(made)
    for name in (*SPLIT, *UNION):
        by_subtask = [[line[name] for _, line in sorted(list_.items())] for list_ in lists]
        if name in UNION:
            united = [value for subtask in range(parallelism) for value in stored[name][subtask]]
            alone = len(stored[name]) == 1  # else Flink merges, in an order of its own
            assert all(list_ == united for list_ in by_subtask[0] if alone)
            assert all(sorted(list_) == sorted(united) for lists in by_subtask for list_ in lists)
            continue
        assert by_subtask[0] == [stored[name][subtask] for subtask in range(parallelism)]
        assert [len(list_) for list_ in by_subtask[0]] == [len(list_) for list_ in by_subtask[1]]
        everything = [sorted(value for list_ in lines for value in list_) for lines in by_subtask]
        assert everything[0] == everything[1]


def assert_alike(found: list[Any], wanted: list[Any], parallelism: int) -> None:
    """The same, where Flink itself may have dealt out the lists in another order."""
    assert sorted_lines(map(settled, found)) == sorted_lines(map(settled, wanted))
    lists = [{line["subtask"]: line for line in lines if "split" in line}
             for lines in (found, wanted)]  # fmt: skip
    assert set(lists[0]) == set(lists[1]) == set(range(parallelism))
    for name in UNION:
        assert (
            len({json.dumps(sorted(line[name])) for list_ in lists for line in list_.values()}) == 1
        )
    for name in SPLIT:
        counts = [[len(list_[subtask][name]) for subtask in range(parallelism)] for list_ in lists]
        assert max(counts[0]) - min(counts[0]) <= 1
        # at its own parallelism, the original's subtasks keep what they had
        assert counts[0] == counts[1] or parallelism == WRITTEN_AT
        everything = [sorted(value for line in list_.values() for value in line[name])
                      for list_ in lists]  # fmt: skip
        assert everything[0] == everything[1]


def settled(line: Any) -> Any:
    """A line without the lists, whose order is not settled."""
    return {name: value for name, value in line.items() if not isinstance(value, list)}


def elements(savepoint: Path) -> dict[str, dict[int, list[Any]]]:
    """The lists of a savepoint, by name and subtask, in their order."""
    by_name: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for operator in open_snapshot(savepoint).operators:
        for state in operator.operator_states:
            for row in [] if state.broadcast else state.to_arrow().to_pylist():
                value = row["value"]
                plain = list(value.values()) if isinstance(value, dict) else value
                by_name[state.name][row["subtask"]].append(plain)
    return by_name


@pytest.mark.thinned(2, by=pairs)
@at_each
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda case: case.name)
def test_lists_and_broadcasts(
    golden: GoldenCase, parallelism: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Of golden savepoints, also those that Flink 1.20 wrote."""
    savepoint = exported(golden.snapshot, tmp_path, parallelism=parallelism)
    options = {"parallelism": parallelism, "keys": KEYS}
    expected = flink.restore("operator", golden.snapshot, **options)
    assert any(line.get("split") for line in expected)
    assert_same(flink.restore("operator", savepoint, **options), expected, savepoint, parallelism)


@at_each
def test_beside_keyed_state(
    mixed: Path, parallelism: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Keyed, broadcast and list state move together; union lists were of unequal lengths."""
    savepoint = exported(mixed, tmp_path, parallelism=parallelism)
    options = {"parallelism": parallelism, "keys": KEYS}
    expected = flink.restore("mixed", mixed, **options)
    assert len([line for line in expected if line.get("length")]) == KEYS
    assert {len(line["union"]) for line in expected if "union" in line} == {1 + 4 + 7}
    assert {len(line["rare"]) for line in expected if "rare" in line} == {2}
    assert sum(len(line["lone"]) for line in expected if "lone" in line) == 5
    lines = flink.restore("mixed", savepoint, **options, backend="hashmap")
    assert_same(lines, expected, savepoint, parallelism)


@at_each
def test_an_export_is_rescaled_by_flink(
    mixed: Path, parallelism: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Written for 5 subtasks, an export restores at any parallelism, as the original does."""
    savepoint = exported(mixed, tmp_path, parallelism=5)
    options = {"parallelism": parallelism, "keys": KEYS}
    expected = flink.restore("mixed", mixed, **options)
    assert_alike(flink.restore("mixed", savepoint, **options), expected, parallelism)


@at_each
def test_rescaled_again_and_again(
    mixed: Path, parallelism: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Exports of exports, for more and for fewer subtasks: no copy, and no element, is lost."""
    savepoint = mixed
    for step, subtasks in enumerate((7, 1, 5, parallelism)):
        savepoint = exported(savepoint, tmp_path / str(step), parallelism=subtasks)
    options = {"parallelism": parallelism, "keys": KEYS}
    expected = flink.restore("mixed", mixed, **options)
    lines = flink.restore("mixed", savepoint, **options)
    assert_alike(lines, expected, parallelism)
    rules = [line["rules"] for line in lines if "rules" in line]
    assert len(rules) == parallelism
    assert all(len(rule) == 28 and rule == rules[0] for rule in rules)


@at_each
def test_an_older_flink_and_version_5(
    mixed: Path, parallelism: int, flink: FlinkOracle, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Version 5 of operator state, which Flink before 1.18 wrote, restores in 1.20 and 2.3."""
    savepoint = exported(
        mixed, tmp_path, parallelism=parallelism, operator_state_version=5, metadata_version=3,
        compression="snappy",
    )  # fmt: skip
    (operator,) = (op for op in open_snapshot(savepoint).operators if op.keyed_states)
    assert operator.operator_state_version == 5
    options = {"parallelism": parallelism, "keys": KEYS}
    expected = flink.restore("mixed", mixed, **options)
    for oracle in (flink, old_flink):
        assert_same(oracle.restore("mixed", savepoint, **options), expected, savepoint, parallelism)
