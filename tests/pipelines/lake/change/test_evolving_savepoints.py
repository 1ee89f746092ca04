"""Types that evolve, in savepoints of real Flink: read, judged and migrated as Flink itself does.

The savepoints are those of `EvolvingJobs.java`; what is compared with is what Flink printed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from statelake import NewOperatorState, open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot, value_type
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.verify.compatibility import check_against
from statelake.state_core.errors import IncompatibleError, UnsupportedFormatError
from statelake.state_core.formats.layout.state_compatibility import StateVerdict
from statelake.state_core.formats.metadata.state_files import HeaderCache
from statelake.state_core.formats.operator_state.operator_reader import open_non_keyed
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.lakes import entries, import_as
from tests.support.savepoints.evolving_savepoints import (
    BACKENDS,
    GENERIC,
    KEPT_BY_NAME,
    LETTER,
    MIGRATED,
    NEW_TYPES,
    REFUSED_TYPES,
    STATES,
    UNKNOWN,
    VERDICTS,
    evolving_savepoint,
    lines_of,
    migrated,
    old_lines,
    plain,
)
from tests.support.savepoints.expected_contents import same_lines
from tests.support.savepoints.subclasses import without_subclasses, without_unregistered

every_backend = pytest.mark.parametrize("backend", BACKENDS)
ENGINE = LocalEngine()
JOB = "shop"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the old job's savepoints, each called as its backend."""
    root = tmp_path_factory.mktemp("prepared")
    for backend in BACKENDS:
        savepoint = evolving_savepoint(f"old-{backend}", root / f"old-{backend}")
        lake = Catalog(root / "lake")
        import_snapshot(lake, str(savepoint), JOB, snapshot_id=backend, engine=ENGINE)
    return root / "lake"


@pytest.fixture
def lake(prepared: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    return Catalog(shutil.copytree(prepared, tmp_path / "lake"))


def change(state: str, types: dict[str, Any]) -> ValueChange:
    """What is to become of a state, as `statelake migrate --to` reads it."""
    return ValueChange("evolving", state, parse_type(types[state]), {}, types[state])


def judged(lake: Catalog, snapshot: str, against: Path) -> dict[str, StateVerdict]:
    """`statelake check compatibility --against`, by state."""
    found = check_against(lake.snapshot(JOB, snapshot), str(against), allow_missing=True)
    return {verdict.state: verdict for verdict in found if verdict.operator == "evolving"}


def verdicts(found: dict[str, StateVerdict]) -> dict[str, str]:
    """Those of them that Flink was asked for, as it calls them."""
    return {state: found[state].result.verdict.name.lower() for state in VERDICTS["new"]}


def spec(types: dict[str, Any], to: Path) -> Path:
    """A file that says what states become."""
    said = {f"evolving/{state}": {"type": type_} for state, type_ in types.items()}
    to.write_text(json.dumps({"states": said}), "utf-8")
    return to


def exported(lake: Catalog, snapshot: str, to: Path) -> list[dict[str, Any]]:
    """The lines of what is exported."""
    export_snapshot(lake, JOB, snapshot, to, engine=ENGINE)
    return lines_of(open_snapshot(to))


def test_a_savepoint_of_rocksdb_holds_what_flink_printed(tmp_path: Path) -> None:
    """Every field of every value, of subclasses and of Avro too."""
    found = lines_of(open_snapshot(evolving_savepoint("old-rocksdb", tmp_path / "sp")))
    same_lines(found, [plain(line) for line in old_lines()])
    assert json.dumps(found).count(LETTER) > 3


def test_a_savepoint_of_the_heap_holds_the_same_but_for_unregistered_subclasses(
    tmp_path: Path,
) -> None:
    """Its snapshot was written before any was met: such values stay bytes, and are so called."""
    found = lines_of(open_snapshot(evolving_savepoint("old-hashmap", tmp_path / "sp")))
    expected = {line["key"]: plain(line) for line in old_lines()}
    assert {line["key"] for line in found} == set(expected)
    unknown = sum(
        differing(line[state], expected[line["key"]][state])
        for line in found
        for state in (*STATES, GENERIC)
    )
    assert unknown > 3


def differing(found: Any, expected: Any) -> int:
    """How many values are unknown, each of which Flink printed as one with a letter."""
    if found == UNKNOWN:
        assert LETTER in json.dumps(expected)
        return 1
    if isinstance(found, dict) and UNKNOWN in found.values():
        assert set(found) == set(expected)
        return sum(differing(found[key], expected[key]) for key in found)
    assert found == expected
    return 0


def test_rows_are_not_taken_over_from_a_snapshot_that_understood_less(
    lake: Catalog, tmp_path: Path
) -> None:
    """Both savepoints have the same bytes, but one knows a class that the other does not."""
    found = exported(lake, "rocksdb", tmp_path / "out")
    same_lines(found, [plain(line) for line in old_lines()])


@every_backend
def test_a_savepoint_of_the_new_job_is_judged_as_flink_does(
    backend: str, lake: Catalog, tmp_path: Path
) -> None:
    """Against what the new job itself has written."""
    new = evolving_savepoint("new-hashmap", tmp_path / "new")
    assert verdicts(judged(lake, backend, new)) == VERDICTS["new"]


@every_backend
@pytest.mark.parametrize(("name", "types"), [("new", NEW_TYPES), ("refused", REFUSED_TYPES)])
def test_a_spec_is_judged_as_flink_judges_the_classes(
    backend: str, name: str, types: dict[str, Any], lake: Catalog, tmp_path: Path
) -> None:
    """Written down by hand: what Flink migrates, reconfigures, and refuses."""
    found = judged(lake, backend, spec(types, tmp_path / "spec.json"))
    assert verdicts(found) == VERDICTS[name]


def test_what_is_refused_is_said_with_its_place(lake: Catalog, tmp_path: Path) -> None:
    """The field of the POJO, of its subclass, and of the record."""
    found = judged(lake, "rocksdb", spec(REFUSED_TYPES, tmp_path / "spec.json"))
    paths = {state: [reason.path for reason in found[state].result.reasons] for state in STATES}
    assert any(path.endswith("address.zip") for path in paths["order"])
    assert any("Shop$Email.address.zip" in path for path in paths["contact"])
    assert any(path.endswith("text") for path in paths["labels"])
    assert any(path.endswith("count") for path in paths["event"])
    with pytest.raises(IncompatibleError, match=r"address\.zip"):
        migrate_snapshot(
            ChildSnapshot(lake, JOB, "rocksdb", "m", engine=ENGINE), change("order", REFUSED_TYPES)
        )


def test_a_generic_record_is_said_to_need_a_migration_here(lake: Catalog, tmp_path: Path) -> None:
    """Flink calls it compatible, but puts its fields in their places by position."""
    found = judged(lake, "rocksdb", spec(NEW_TYPES, tmp_path / "spec.json"))
    (reason,) = found[GENERIC].result.reasons
    assert "by position" in reason.rule
    (reason,) = found["event"].result.reasons
    assert "by position" not in reason.rule


@pytest.mark.full
def test_migrated_rows_are_those_of_flinks_own_migration(lake: Catalog, tmp_path: Path) -> None:
    """Every state of RocksDB's savepoint; and of generic records, which Flink can't migrate."""
    last = migrated(lake, JOB, "rocksdb", NEW_TYPES, ENGINE)
    expected = [plain({**line, GENERIC: line["event"]}) for line in MIGRATED]
    same_lines(exported(lake, last, tmp_path / "out"), expected)
    new = evolving_savepoint("new-hashmap", tmp_path / "new")
    again = verdicts(judged(lake, last, new))
    assert set(again.values()) <= {"compatible_as_is", "compatible_with_reconfigured_serializer"}


@pytest.mark.full
def test_the_heaps_rows_are_too_but_for_unregistered_subclasses(
    lake: Catalog, tmp_path: Path
) -> None:
    """Where the snapshot does not say how a class was written, the migration says which."""
    for state in KEPT_BY_NAME:
        with pytest.raises(UnsupportedFormatError, match="says nothing"):
            migrate_snapshot(
                ChildSnapshot(lake, JOB, "hashmap", "m", engine=ENGINE), change(state, NEW_TYPES)
            )
    others = {state: type_ for state, type_ in NEW_TYPES.items() if state not in KEPT_BY_NAME}
    last = migrated(lake, JOB, "hashmap", others, ENGINE)
    found = [
        {name: value for name, value in line.items() if name not in KEPT_BY_NAME}
        for line in exported(lake, last, tmp_path / "out")
    ]
    expected = [
        plain({name: value for name, value in line.items() if name not in KEPT_BY_NAME})
        | {GENERIC: plain(line["event"])}
        for line in MIGRATED
    ]
    same_lines(found, expected)


def test_a_subclass_that_the_new_type_leaves_out_is_asked_for(lake: Catalog) -> None:
    """No value is lost: the migration names the class, and where to give it."""
    types = {"contact": {**NEW_TYPES["contact"], "non_registered": {}}}
    with pytest.raises(IncompatibleError, match=r"Letter.*non_registered"):
        migrate_snapshot(
            ChildSnapshot(lake, JOB, "rocksdb", "m", engine=ENGINE), change("contact", types)
        )
    assert len(lake.summaries(JOB)) == len(BACKENDS)


@pytest.mark.parametrize("subtask", [0, 1])
def test_values_of_a_subclass_that_one_subtask_alone_knows_are_kept(
    subtask: int, tmp_path: Path
) -> None:
    """Subtasks know those that they have seen: no value is taken for one that was edited."""
    known = evolving_savepoint("old-rocksdb", tmp_path / "known")
    source = without_subclasses(known, tmp_path / "source", "contact", subtask)
    assert entries(source) == entries(known)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, source, "one", JOB)
    export_snapshot(lake, JOB, "one", tmp_path / "out", engine=ENGINE)
    assert entries(tmp_path / "out") == entries(source)


@pytest.mark.parametrize("knowing", [0, 1])
def test_elements_of_lists_are_decoded_by_one_serializer(knowing: int, tmp_path: Path) -> None:
    """That of the first subtask, whose meta info is the state's, also if others know less."""
    known = evolving_savepoint("old-rocksdb", tmp_path / "known")
    contact = open_snapshot(known).operator("evolving").state("contact")
    types = [without_unregistered(value_type(contact.meta_info)), value_type(contact.meta_info)]
    files = {}
    for subtask, value in enumerate(types[:: 1 if knowing else -1]):
        state = NewOperatorState("parts", pa.table({"value": []}), "split", value).meta_info()
        held = SimpleNamespace(mode=DistributionMode.SPLIT_DISTRIBUTE)
        handle = SimpleNamespace(states={"parts": held})
        files[subtask] = SimpleNamespace(header=subtask, states=(state,), handle=handle)
    (parts,) = open_non_keyed(cast("Any", files), HeaderCache())
    assert len({id(cast("Any", part).layout) for part in parts.parts}) == 1
