"""The lake, its jobs and their snapshots as Python programs use them."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyarrow import fs

import statelake as sl
from statelake.pipelines import api
from statelake.pipelines.api import SnapshotEditor
from statelake.pipelines.lake.query.statements import check_statements
from statelake.state_core.errors import DeclarationError, HeldError, NotFoundError, ReadOnlyError
from tests.support.lakes import DEMO, KINDS, LOCAL, edit, entries, golden

KEY = -783633772217
TOTALS = 120  # rows of `kinds/total` on monday
FLINK_COMPRESSION = "execution.checkpointing.snapshot-compression"
MOST_MODULES = 60  # to open a snapshot, of all there are
LOCAL_FILES = fs.LocalFileSystem()
LIKE_THE_SAVEPOINTS = {
    "kinds": KINDS,
    "operator state": golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> sl.Job:
    """A job with both snapshots of the demo; nobody changes them."""
    job = sl.Lake(tmp_path_factory.mktemp("api") / "lake").job("demo", engine=LOCAL)
    for name in ("monday", "tuesday"):
        job.import_snapshot(DEMO / name, name=name)
    return job


def test_a_snapshot_goes_in_is_edited_compared_exported_and_dropped(tmp_path: Path) -> None:
    """Each step by one method, with the results of the functions behind it."""
    lake = sl.Lake(tmp_path / "lake")
    demo = lake.job("demo", engine=LOCAL)
    assert (lake.jobs(), lake.snapshots(), demo.snapshots()) == ([], [], [])
    imported = demo.import_snapshot(DEMO / "monday", name="monday", note="first")
    assert (imported.new, imported.record.note, lake.jobs()) == (True, "first", ["demo"])
    edit(lake.catalog, "demo/keyed/kinds/total").delete("value = 14280")
    demo.commit("erased", "monday")
    assert [record.snapshot_id for record in demo.snapshots()] == ["monday", "erased"]
    differences = demo["monday"].diff("erased")
    assert (differences.same, str(differences).startswith("monday → erased\n")) == (False, True)
    differing = [state for state in differences if state.status != "same"]
    assert [(state.state, state.removed) for state in differing] == [("total", 1)]
    demo["monday"].export(tmp_path / "out", parallelism=3)
    assert entries(tmp_path / "out") == entries(DEMO / "monday")
    assert demo.plan_drop(keep=1).going == ["monday"]
    assert demo.drop(keep=1).dropped == ["monday"]
    assert [record.snapshot_id for record in lake.snapshots()] == ["erased"]


def test_storage_options_of_a_local_lake_are_refused(tmp_path: Path) -> None:
    """An option that can't be obeyed is an error, not a silence."""
    with pytest.raises(sl.StateError, match="storage options are for s3"):
        sl.Lake(tmp_path, storage_options={"AWS_REGION": "x"})


@pytest.mark.parametrize("savepoint", LIKE_THE_SAVEPOINTS.values(), ids=LIKE_THE_SAVEPOINTS)
def test_states_of_a_lake_are_read_as_those_of_the_savepoint(
    savepoint: Path, tmp_path: Path
) -> None:
    """The same columns, types and rows: of all, of some key groups, of some columns, of a key."""
    job = sl.Lake(tmp_path / "lake").job("orders", engine=LOCAL)
    job.import_snapshot(savepoint, name="s")
    for operator in sl.open_snapshot(savepoint).operators:
        for state in operator.keyed_states:
            stored = job["s"][operator.label][state.name]
            assert isinstance(stored, sl.KeyedState)
            whole = state.to_arrow()
            assert (repr(stored), stored.to_arrow().schema) == (repr(state), whole.schema)
            assert _sorted(stored) == _sorted(state)
            some = {"key_groups": range(20, 90), "columns": ["key"]}
            assert _sorted(stored, **some) == _sorted(state, **some)
            reader = stored.to_batch_reader(columns=["key"], key_groups=3)
            assert reader.read_all().num_rows == state.to_arrow(3).num_rows
            if len(whole):
                key = whole.column("key")[0]
                assert _rows(stored.get(key)) == _rows(state.get(key))
                assert _rows(stored.get(key.as_py())) == _rows(state.get(key))
        for other in operator.operator_states:
            stored_state = job["s"].operator(operator.label).operator_state(other.name)
            assert stored_state.to_arrow().to_pylist() == other.to_arrow().to_pylist()
            assert stored_state.elements == len(other.to_arrow())
            assert stored_state.disagreeing() == other.disagreeing()


def _sorted(state: sl.KeyedState, **options: object) -> list[str]:
    return _rows(state.to_arrow(**options))  # type: ignore[arg-type]


def _rows(table: object) -> list[str]:
    return sorted(map(str, table.to_pylist()))  # type: ignore[attr-defined]


def test_a_snapshot_is_named_as_on_the_command_line(made: sl.Job) -> None:
    """By its id, `latest`, one before, and how its id begins."""
    names = ("monday", "latest", "latest~1", "tue")
    assert [made[name].name for name in names] == ["monday", "tuesday", "monday", "tuesday"]


def test_a_name_that_is_not_there_is_an_error_that_says_which_is(made: sl.Job) -> None:
    """Of jobs, snapshots, operators, states and columns."""
    monday = made["monday"]
    asked = {
        "demo": lambda: made.lake.job("dema")["monday"],
        "monday": lambda: made["mondey"],
        "kinds": lambda: monday["kindz"],
        "total": lambda: monday["kinds"]["totl"],
        "value": lambda: monday["kinds"]["total"].to_arrow(columns=["valeu"]),
    }
    for meant, ask in asked.items():
        with pytest.raises(NotFoundError, match=f"did you mean '{meant}'"):
            ask()
    assert not hasattr(made.lake, "table")


def test_all_of_a_key_is_found_in_a_savepoint_and_in_a_lake_alike(made: sl.Job) -> None:
    """By its value, as columns have it."""
    savepoint = sl.open_snapshot(DEMO / "monday")
    found, stored = savepoint.get(KEY), made["monday"].get(KEY)
    assert list(found) == ["kinds"]
    assert set(found["kinds"]) > {"total", "scores"}
    assert list(stored["kinds"]) == list(found["kinds"])
    for name, table in found["kinds"].items():
        assert _rows(stored["kinds"][name]) == _rows(table)
    assert (savepoint.get(1), made["monday"].get(1)) == ({}, {})
    for snapshot in (savepoint, made["monday"]):
        of_one = snapshot.get(KEY, operator="kinds", state="total")
        assert [list(states) for states in of_one.values()] == [["total"]]
        with pytest.raises(NotFoundError, match="did you mean 'total'"):
            snapshot.get(KEY, state="totl")
    of_text = made["monday"].key_rows(str(KEY), state="total")
    of_value = made["monday"].key_rows(KEY, state="total")
    assert [each.key for each in of_text] == [each.key for each in of_value] == [KEY]
    for snapshot in (savepoint, made["monday"]):
        with pytest.raises(sl.StateError):
            snapshot.get("alice")
    assert [each.entries for each in made.history(KEY).snapshots] == [11, 11]
    assert made.history(str(KEY)) == made.history(KEY)
    assert str(made.history(KEY, state="total")).startswith(
        f"{KEY} in 2 snapshots\nsnapshot  taken"
    )


def test_a_savepoint_and_a_lakes_snapshot_are_shown_alike(made: sl.Job, tmp_path: Path) -> None:
    """Their heaviest keys are the same, and each is written as a page."""
    savepoint, stored = sl.open_snapshot(DEMO / "monday"), made["monday"]
    for state, weights in savepoint.top(2)["kinds"].items():
        assert weights.heaviest() == stored.top(2)["kinds"][state].heaviest()
    assert (savepoint.taken_at, made.newest().name) == (stored.taken_at, "tuesday")
    counts = [
        {state.name: (state.entries, state.size, state.schema) for state in operator.keyed_states}
        for each in (savepoint, stored)
        for operator in each.describe(schema=True).operators
        if operator.label == "kinds"
    ]
    assert counts[0] == counts[1]
    (keyed, *_) = savepoint.describe(keys=True).operators
    assert keyed.heaviest_key is not None
    for write in (stored.report, partial(sl.report, DEMO / "monday")):
        done = write(tmp_path / "page.html", check=True, overwrite=True)
        assert (done.faults, done.bytes) == (0, (tmp_path / "page.html").stat().st_size)
        with pytest.raises(sl.StateError, match="the file is there"):
            write(tmp_path / "page.html")


ONLY_OF_A_LAKE = {
    "edit": "makes another snapshot there",
    "edit_sql": "the same",
    "migrate": "the same",
    "canary": "tries what a lake exports; `drill` is for savepoints",
    "erase": "what is erased is in every snapshot",
    "hold": "a savepoint is nobody's to drop",
    "release": "the same",
    "job": "it has none",
    "record": "the same",
    "requested": "the same",
}


def test_an_open_savepoint_has_the_methods_of_a_lakes_snapshot(made: sl.Job) -> None:
    """But for those of a lake; and they do the same, by themselves or in a temporary lake."""
    savepoint, stored = sl.open_snapshot(DEMO / "monday"), made["monday"]
    names = {name for name in dir(stored) if not name.startswith("_")}
    assert {name for name in names if not hasattr(savepoint, name)} == ONLY_OF_A_LAKE.keys()
    assert names - {*dir(savepoint)} == ONLY_OF_A_LAKE.keys()
    assert savepoint.plan_rescale(5) == stored.plan_rescale(5)
    for method in ("key_rows", "check_compatibility", "check_legality"):
        assert getattr(savepoint, method).__doc__ == getattr(stored, method).__doc__
    assert [each.key for each in savepoint.key_rows(KEY, state="total")] == [KEY]
    assert savepoint.check_integrity().sound
    with pytest.raises(AttributeError, match="'nothing'"):
        savepoint.nothing  # type: ignore[attr-defined]  # noqa: B018
    of_others = sl.open_snapshot("monday", filesystem=fs.SubTreeFileSystem(str(DEMO), LOCAL_FILES))
    with pytest.raises(DeclarationError, match="open it by its path"):
        of_others.plan_rescale(5)


def test_rows_go_to_other_libraries(made: sl.Job) -> None:
    """By Arrow's interface, and as a data frame."""
    import polars as pl  # noqa: PLC0415 - only here

    total = made["monday"]["kinds"]["total"]
    assert pl.DataFrame(total).height == 120
    assert len(total.to_pandas()) == 120
    rows = made.sql("SELECT key FROM kinds.total ORDER BY value DESC LIMIT 1", as_of="monday")
    assert rows.read_all().num_rows == 1
    counted = "SELECT count(*) AS n FROM demo.kinds.total"
    assert made.lake.sql(counted).read_all().to_pylist() == [{"n": 128}]
    assert made.sql("SELECT key FROM kinds.total", limit=3).read_all().num_rows == 3
    with pytest.raises(ReadOnlyError, match=r"DELETE.*edit_sql"):
        made.sql("DELETE FROM kinds.total")
    with made.lake.session(as_of="monday", job="demo") as session:
        assert {"demo.kinds.total", "statelake.snapshots"} < set(session.tables())
        check_statements(session, ["DELETE FROM kinds.total"])
        assert session.query("SELECT count(*) AS n FROM kinds.total").schema.names == ["n"]
    assert made.lake.jobs("monday") == ["demo"]
    with pytest.raises(NotFoundError):
        made.lake.jobs("mondey")


def test_changes_are_collected_and_made_at_once(made: sl.Job) -> None:
    """Each method adds one; `save` makes a snapshot, and the old one stays."""
    editor = made["monday"].edit("smaller").drop_state("kinds/avg")
    assert isinstance(editor, SnapshotEditor)
    editor.expire("kinds/session", timedelta(days=365)).rename_uid("kinds", "kind")
    done = editor.save(note="no avg")
    assert (done.record.parent, done.record.note) == ("monday", "no avg")
    smaller = made["smaller"]
    assert "avg" not in [state.name for state in smaller["kind"].keyed_states]
    assert smaller["kind"]["total"].to_arrow().num_rows == 120
    with pytest.raises(DeclarationError, match="names kinds twice"):
        made["monday"].edit("x").rename_uid("kinds", "a").rename_uid("kinds", "b")
    by_sql = made["monday"].edit_sql("fewer", "DELETE FROM kinds.total WHERE value > 0")
    assert by_sql.record.parent == "monday"
    made.drop("smaller", "fewer")


def test_what_is_held_stays(made: sl.Job) -> None:
    """Until it is released."""
    assert [hold.reason for hold in made["monday"].hold("case 4711")] == ["case 4711"]
    with pytest.raises(HeldError):
        made.drop("monday")
    assert made["monday"].release() == ["case 4711"]
    assert made.plan_retain("1 all").dropped_ids == ["monday"]
    for given in ({}, {"keep": 1}):
        with pytest.raises(DeclarationError, match="either snapshots"):
            made.drop(*(["monday"] if given else []), **given)


def test_a_snapshot_is_checked(made: sl.Job) -> None:
    """Against itself, and against what it was imported from."""
    monday = made["monday"]
    assert monday.check_integrity(sl.open_snapshot(DEMO / "monday")) == []
    verdicts = monday.check_compatibility(str(DEMO / "tuesday"))
    assert [verdict for verdict in verdicts if verdict.fault] == []
    assert {plan.operator for plan in monday.plan_rescale(5)} == {"kinds"}
    (heaviest,) = monday.top(1, state="total")["kinds"]["total"].heaviest()
    assert len(monday.get(heaviest.key)["kinds"]["total"]) == 1
    assert (monday.sources(), monday.sinks(), monday.channels()) == ([], [], [])


def test_a_savepoint_is_checked_shared_and_compressed_without_a_lake_of_its_own(
    tmp_path: Path,
) -> None:
    """By the words of the command, and each result prints what the command prints."""
    source, names = DEMO / "monday", ("salvaged", "sample", "small")
    salvaged, sample, small = (str(tmp_path / name) for name in names)
    report = sl.check_integrity(source)
    assert (report.sound, str(report).partition(":")[0]) == (True, "sound")
    assert str(sl.salvage(source, salvaged)).endswith("; nothing is lost")
    with sl.in_temporary_lake(source) as snapshot:
        directory = Path(snapshot.job.lake.catalog.location)
        assert snapshot.export(sample, sample=0.5).path == sample
    assert not directory.exists()
    assert 0 < len(sl.open_snapshot(sample)["kinds"]["total"].to_arrow()) < TOTALS
    compressed = sl.compress(source, small, conf={FLINK_COMPRESSION: "true"})
    assert str(compressed).startswith(f"wrote {small}, compression snappy")
    opened = sl.open_snapshot(source)
    assert (opened.sources(), opened.sinks(), opened.channels()) == ([], [], [])
    assert list(opened.read_channels()) == []
    with pytest.raises(sl.StateError, match="give either a type, or a state"):
        opened.record_serializer(type="Long", like="kinds/total")


@pytest.mark.full
def test_an_erasure_is_planned_executed_and_audited(tmp_path: Path) -> None:
    """One object says what goes, so that what is audited is what was erased."""
    lake = sl.Lake(tmp_path / "lake")
    demo = lake.job("demo", engine=LOCAL)
    demo.import_snapshot(DEMO / "monday", name="monday")
    demo.import_snapshot(DEMO / "tuesday", name="tuesday")
    erasure = lake.erase("gdpr-4711", keys=[KEY], carried="keep")
    assert (erasure.plan().rows > 0, str(KEY) in repr(erasure)) == (True, False)
    erasure.execute()
    assert erasure.audit().clean
    assert [record.kind for record in lake.audit_records()] == ["erase", "audit"]
    assert lake.broken_record() is None
    assert demo["monday"].get(KEY) == {}
    assert demo["monday"].record.erased == ["gdpr-4711"]
    assert lake.plan_clean().files == 0


def test_an_erasure_without_a_choice_is_one_that_refuses(made: sl.Job) -> None:
    """An empty text is no choice, in a lake as of a snapshot."""
    for erasure in (made.lake.erase("r", keys=[1], carried=""),  # type: ignore[arg-type]
                    made["monday"].erase("r", keys=[1])):  # fmt: skip
        assert erasure.request.carried == ""
    with pytest.raises(DeclarationError, match="must be one of drop, keep"):
        made.lake.erase("r", keys=[1], carried="lose")  # type: ignore[arg-type]


def test_what_is_shown_of_each_is_short(made: sl.Job) -> None:
    """A line: a record of a snapshot names thousands of files."""
    monday = made["monday"]
    shown = {
        "<Lake": made.lake, "<Job demo of": made, "<LakeSnapshot demo/monday": monday,
        "<SnapshotRecord demo/monday": monday.record, "<Operator kinds": monday["kinds"],
        "<KeyedState total": monday["kinds"]["total"], "<SnapshotEditor x": monday.edit("x"),
        "<Erasure r": monday.erase("r", keys=[1]),
    }  # fmt: skip
    for begin, value in shown.items():
        assert repr(value).startswith(begin)
        assert len(repr(value)) < 300
    assert len(repr(monday.record.operators)) < 1000


def test_the_package_has_every_name_of_the_door() -> None:
    """Each is imported when it is first used."""
    assert [name for name in sl.__all__ if not hasattr(sl, name)] == []


def test_functions_are_names_of_the_interface_as_well() -> None:
    """They are those of the package, by attribute and by import."""
    from statelake.pipelines.api import scan  # noqa: PLC0415 - by name, when it is used

    assert scan is sl.scan
    functions = ("check_integrity", "compress", "copy_snapshot", "diff", "drill", "salvage")
    assert [name for name in functions if getattr(api, name) is not getattr(sl, name)] == []
    with pytest.raises(AttributeError, match="'nothing'"):
        api.nothing  # noqa: B018


def test_who_opens_a_snapshot_loads_neither_the_lake_nor_the_runtime() -> None:
    """Nor any face; and few modules of the library."""
    program = (
        "import sys, statelake\n"
        f"statelake.open_snapshot({str(DEMO / 'monday')!r})['kinds']['total'].schema\n"
        "print(*(name for name in sys.modules if name.split('.')[0] == 'statelake'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = ran.stdout.split()
    assert len(modules) <= MOST_MODULES
    above = ("pipelines", "backends", "process", "commit", "declarations", "checks")
    assert [name for name in modules if set(name.split(".")) & set(above)] == []
