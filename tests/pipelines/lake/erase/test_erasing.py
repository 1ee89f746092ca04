"""Erasure: what was asked is in no file of the lake, and all else is as before."""

from __future__ import annotations

import itertools
import json
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.catalog.holds import hold_snapshot, release_snapshot
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.erase.audit_records import audit_records, broken_record
from statelake.pipelines.lake.erase.erasing import (
    STEPS,
    Erasure,
    ErasureResult,
    erase,
    plan_erasure,
)
from statelake.pipelines.lake.erase.parquet_pages import pages_of
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.query.table_names import TableNames
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.state_core.errors import (
    ConflictError,
    EncodeError,
    HeldError,
    LakeError,
    NoMatchError,
    NotFoundError,
    StateError,
)
from statelake.state_core.files.confinement import ConfinedTree
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.engines import Repeating
from tests.support.lakes import (
    DEMO,
    LOCAL,
    Contents,
    assert_whole,
    edit,
    exported,
    files_of,
    import_as,
    kept_files,
    raw_savepoint,
    unit_paths,
)
from tests.support.people import ALICE, BESIDE_KEYS, NEW_PROFILE, files_with, people_savepoint
from tests.support.steps import EndError, Step, do_at, stop

pytestmark = pytest.mark.thinned(5)

UIDS = ("users", "places")
RENAMED = {"clients/friends": BESIDE_KEYS["users/friends"]}
EVERYWHERE = BESIDE_KEYS | RENAMED
REQUEST = ErasureRequest("gdpr-4711", [ALICE], EVERYWHERE)
SMALL = ErasureRequest("gdpr-4711", [ALICE], BESIDE_KEYS)
KEYED = ErasureRequest("gdpr-4712", [ALICE])


@pytest.fixture(scope="module")
def savepoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint of each of four days."""
    root = tmp_path_factory.mktemp("days")
    for day in range(4):
        people_savepoint(root / f"day-{day}", day)
    return root


@pytest.fixture(scope="module")
def prepared(savepoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two jobs with all that can happen to snapshots: each holds her."""
    lake = Catalog(tmp_path_factory.mktemp("prepared") / "lake")
    for day in range(3):
        import_as(lake, savepoints / f"day-{day}", f"day-{day}", uids=UIDS)
    edit(lake, "orders/keyed/users/visits").update(
        {"value": "value + 1"}, predicate=f"key = '{ALICE}'"
    )
    commit_snapshot(ChildSnapshot(lake, "orders", "day-2", "committed", engine=LOCAL))
    statement = f"DELETE FROM users.visits WHERE key = '{ALICE}'"
    edit_by_sql(
        ChildSnapshot(lake, "orders", "day-1", "edited", note=f"asked by {ALICE}"), [statement]
    )
    value = parse_type(NEW_PROFILE)
    change = ValueChange("users", "profile", value, {}, NEW_PROFILE)
    migrate_snapshot(ChildSnapshot(lake, "orders", "day-0", "migrated", engine=LOCAL), change)
    import_as(lake, savepoints / "day-3", "other", "audit", uids=UIDS)
    without = SnapshotEdit(drop_operator=["places"], rename_uid={"users": "clients"})
    edit_snapshot(ChildSnapshot(lake, "audit", "other", "clients", engine=LOCAL), without)
    merged = SnapshotEdit(merge=[("audit", "clients")], drop_operator=["users"])
    edit_snapshot(ChildSnapshot(lake, "orders", "edited", "merged", engine=LOCAL), merged)
    import_as(lake, savepoints / "day-3", "day-3", uids=UIDS)
    drop_snapshots(lake, "orders", snapshot_ids=["day-1"])
    return Path(lake.directory.root)


@pytest.fixture
def lake(prepared: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    shutil.copytree(prepared, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


@pytest.fixture(scope="module")
def two_days(savepoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two snapshots, of which one was edited, with a note that names her."""
    lake = Catalog(tmp_path_factory.mktemp("two-days") / "lake")
    import_as(lake, savepoints / "day-0", "day-0", uids=UIDS)
    statement = f"UPDATE users.visits SET value = 7 WHERE key = '{ALICE}'"
    edit_by_sql(ChildSnapshot(lake, "orders", "day-0", "edited", note=statement), [statement])
    return Path(lake.directory.root)


@pytest.fixture
def small(two_days: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    shutil.copytree(two_days, tmp_path / "small")
    return Catalog(tmp_path / "small")


def snapshots(lake: Catalog) -> list[tuple[str, str]]:
    """Job and id of all snapshots."""
    return [(summary.job, summary.snapshot_id) for summary in lake.summaries()]


def contents(lake: Catalog, to: Path) -> dict[tuple[str, str], Contents]:
    """What each snapshot exports."""
    return {
        (job, name): exported(lake, name, to / job / name, job) for job, name in snapshots(lake)
    }


def without_alice(held: Contents) -> Contents:
    """Entries of keyed state of which neither key nor value names her."""
    word = ALICE.encode()
    return {
        state: [entry for entry in entries if word not in entry[1] and word not in entry[2]]
        for state, entries in held.items()
    }


def run(lake: Catalog, request: ErasureRequest = REQUEST) -> ErasureResult:
    """Erase, whatever a predicate is true of."""
    return erase(lake, request, all_rows=True)


def test_she_is_in_every_snapshot_before_and_in_no_file_afterwards(
    lake: Catalog, tmp_path: Path
) -> None:
    """Found by a program that shares no code with statelake, in edits, migrations and merges."""
    root = Path(lake.directory.root)
    holding = set(files_with(root, ALICE))
    for job, name in snapshots(lake):
        assert unit_paths(lake.snapshot(job, name)) & holding
    assert any(path.startswith("snapshots/") for path in holding)  # in the note of an edit
    before = contents(lake, tmp_path / "before")
    names = snapshots(lake)
    done = run(lake)
    assert files_with(root, ALICE) == []
    assert snapshots(lake) == names
    after = contents(lake, tmp_path / "after")
    for name, held in before.items():
        lists = {state for state in held if state[1] == "members"}
        expected = without_alice({k: v for k, v in held.items() if k not in lists})
        assert {k: v for k, v in after[name].items() if k not in lists} == expected
        for state in lists:
            assert len(after[name][state]) == len(held[state])
    assert files_with(tmp_path / "after", ALICE) == []
    assert_whole(lake)
    for job, name in names:
        assert list(stored_faults(lake, lake.snapshot(job, name))) == []
        assert lake.snapshot(job, name).erased == ["gdpr-4711"]
    assert done.content["snapshots_erased_from"] == [list(name) for name in sorted(names)]


@pytest.mark.full
def test_tasks_that_run_more_than_once(small: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without: she is in no file, and no file is there that nothing names."""
    engine = Repeating(monkeypatch)
    erase(small, SMALL, all_rows=True, engine=engine)
    assert engine.lost
    assert files_with(Path(small.directory.root), ALICE) == []
    assert_whole(small)


@pytest.mark.full
def test_every_version_that_a_snapshot_has_shows_its_rows_without_hers(lake: Catalog) -> None:
    """As any Delta engine sees it, and SQL."""
    run(lake)
    for job, name in snapshots(lake):
        record = lake.snapshot(job, name)
        with Session(lake, TableNames(lake, as_of=name, job=job)) as session:
            for operator in record.operators:
                for state in operator.states:
                    if state.kind == "timers":
                        continue
                    query = f'SELECT count(*) n FROM "{operator.label}"."{state.name}"'
                    (batch,) = session.query(query).batches
                    assert batch.column("n").to_pylist() == [state.entries]


@pytest.mark.full
def test_what_follows_is_as_it_would_have_been(lake: Catalog, savepoints: Path) -> None:
    """Imports share files with what was erased from, edits and drops work."""
    run(lake, KEYED)
    made = import_as(lake, savepoints / "day-3", "again", uids=UIDS)
    shared = unit_paths(made) & unit_paths(lake.snapshot("orders", "day-3"))
    assert shared
    edit_by_sql(
        ChildSnapshot(lake, "orders", "again", "less"),
        ["DELETE FROM users.visits WHERE key_group < 9"],
    )
    drop_snapshots(lake, "orders", keep=1)
    assert [name for job, name in snapshots(lake) if job == "orders"] == ["less"]
    assert_whole(lake)


@pytest.mark.full
def test_files_stay_shared_and_what_has_no_row_of_hers_is_not_written(lake: Catalog) -> None:
    """As many files as before, and those that she was in are the only new ones."""
    before = {name: unit_paths(lake.snapshot(*name)) for name in snapshots(lake)}
    holding = set(files_with(Path(lake.directory.root), ALICE))
    request = ErasureRequest("r", [ALICE])
    run(lake, request)
    after = {name: unit_paths(lake.snapshot(*name)) for name in snapshots(lake)}
    everything = set().union(*before.values()), set().union(*after.values())
    assert len(everything[1]) <= len(everything[0])
    assert everything[0] - everything[1] <= holding
    for name, paths in before.items():
        for other, others in before.items():
            assert len(after[name] & after[other]) == len(paths & others)


def test_a_plan_writes_nothing_and_says_what_is_found_where(lake: Catalog) -> None:
    """By job, operator and state; what the lake came from is named."""
    files = files_of(Path(lake.directory.root))
    plan = plan_erasure(lake, REQUEST)
    assert files_of(Path(lake.directory.root)) == files
    states = {(state.job, state.operator, state.state): state for state in plan.states}
    assert states["audit", "users", "profile"].rows == 1
    assert states["orders", "places", "members"].files == 4
    assert plan.rows == sum(state.rows for state in plan.states)
    assert plan.notes == [("orders", "edited")]
    assert plan.emptied_states == ["users/friends", "clients/friends"]
    assert sum("if it still exists" in place for place in plan.elsewhere) == 4


@pytest.mark.parametrize("request_id", [ALICE, f"gdpr_{ALICE.upper()}"])
def test_an_id_that_tells_it_is_refused(small: Catalog, request_id: str) -> None:
    """It would be in the records for good."""
    before = files_of(Path(small.directory.root))
    with pytest.raises(EncodeError, match="the request's id contains a key or a value"):
        run(small, ErasureRequest(request_id, [ALICE]))
    assert files_of(Path(small.directory.root)) == before


@pytest.mark.full
def test_one_job_alone(lake: Catalog) -> None:
    """The other one's files stay as they are."""
    root = Path(lake.directory.root)
    before = files_of(root / "audit")
    erase(lake, REQUEST, ["orders"], all_rows=True)
    assert files_of(root / "audit") == before
    assert all(
        path.startswith(("audit/", "snapshots/job=audit")) for path in files_with(root, ALICE)
    )


@pytest.mark.full
def test_a_key_of_another_type_of_hash(tmp_path: Path) -> None:
    """A number as a key: the demo's savepoints, whose sources' coordinators can't be searched."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, DEMO / "monday", "monday")
    import_as(lake, DEMO / "tuesday", "tuesday")
    asked = ErasureRequest("r", ["-783633772217"])
    with pytest.raises(EncodeError, match="--carried drop"):
        erase(lake, asked)
    assert lake.version().claims == Claims()
    done = erase(lake, ErasureRequest("r", ["-783633772217"], carried="keep"))
    assert done.content["rows"] == 22
    with pytest.raises(NoMatchError):
        erase(lake, ErasureRequest("again", ["-783633772217"], carried="keep"))
    with pytest.raises(EncodeError, match="keys are of type Long"):
        erase(lake, ErasureRequest("r", ["alice"]))


def test_carried_bytes_go_where_that_is_asked(tmp_path: Path) -> None:
    """Neither their files nor a handle to them is left, and the snapshot is exported."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, raw_savepoint(tmp_path / "raw"), "raw")
    assert files_with(tmp_path / "lake", "only the job can read this")
    record = lake.snapshot("orders", "raw")
    state = record.operators[0].operator_states[0]
    where = {f"{record.operators[0].label}/{state.name}": "false"}
    erase(lake, ErasureRequest("r", where=where, carried="drop"))
    assert files_with(tmp_path / "lake", "only the job can read this") == []
    exported(lake, "raw", tmp_path / "out")
    assert lake.snapshot("orders", "raw").carried == []


@pytest.mark.full
def test_what_stands_against_it_is_said_before_anything_is_written(lake: Catalog) -> None:
    """Unknown keys and states, a predicate of all rows, writers, edits without a commit."""
    files = kept_files(lake)
    with pytest.raises(NoMatchError, match="no such key or row is in 9 snapshots"):
        erase(lake, ErasureRequest("r", ["nobody-at-all"]))
    with pytest.raises(NotFoundError, match="nowhere"):
        erase(lake, ErasureRequest("r", where={"users/nowhere": "true"}))
    with pytest.raises(EncodeError, match="--all"):
        erase(lake, ErasureRequest("r", where={"users/visits": "key IS NOT NULL"}))
    with pytest.raises(StateError, match=r"neither true nor false but .*; compare it"):
        erase(lake, ErasureRequest("r", where={"users/visits": "length(key)"}))
    with pytest.raises(LakeError, match="is not a valid request id"):
        erase(lake, ErasureRequest("../r", [ALICE]))
    with (
        Attempt(lake, "orders", "new", []),
        pytest.raises(ConflictError, match="being written to, for snapshot 'new'"),
    ):
        run(lake)
    assert kept_files(lake) == files
    edit(lake, "orders/keyed/users/visits").update({"value": "value + 1"})
    with pytest.raises(ConflictError, match="edits without a commit"):
        run(lake)


@pytest.mark.full
def test_a_hold_stands_against_it_until_it_ends(small: Catalog) -> None:
    """Nothing is written while somebody holds a snapshot that has her rows, and all of it after."""
    hold_snapshot(small, "orders", "day-0", "case 4711")
    held = kept_files(small)
    with pytest.raises(HeldError, match=r"'day-0'.*case 4711"):
        run(small, SMALL)
    assert kept_files(small) == held
    release_snapshot(small, "orders", "day-0")
    run(small, SMALL)
    assert files_with(Path(small.directory.root), ALICE) == []


@pytest.mark.full
def test_others_keep_away_until_it_has_ended(lake: Catalog, savepoints: Path) -> None:
    """An import is refused as long as the claim is there, and names the request."""
    patch = pytest.MonkeyPatch()
    do_at(patch, (Erasure, "rewrite_logs", "before", 1), stop)
    with pytest.raises(EndError):
        run(lake)
    patch.undo()
    with pytest.raises(ConflictError, match="gdpr-4711"):
        import_as(lake, savepoints / "day-3", "more", uids=UIDS)
    with pytest.raises(ConflictError, match="gdpr-4711"):
        drop_snapshots(lake, "orders", keep=1)
    with pytest.raises(ConflictError, match="gdpr-4711"), Attempt(lake, "orders", "x", []):
        pass
    assert run(lake).resumed
    import_as(lake, savepoints / "day-3", "more", uids=UIDS)


class DiesError(BaseException):
    """What no code catches: the process is gone."""


def die() -> None:
    """Be gone."""
    raise DiesError


CRASHES = [(Erasure, step, when, 1) for step in STEPS for when in ("before", "after")]


@pytest.mark.parametrize("step", CRASHES, ids=lambda step: f"{step[2]}-{step[1]}")
@pytest.mark.full
def test_a_crash_at_each_step_is_gone_on_from(step: Step, small: Catalog, tmp_path: Path) -> None:
    """Each snapshot is before or after, and the same request ends where it would have ended."""
    before = contents(small, tmp_path / "before")
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, step, die)
        with pytest.raises(DiesError):
            run(small, KEYED)
    between = contents(small, tmp_path / "between")
    try:
        run(small, KEYED)
    except NoMatchError:  # all of it was done
        assert step[1:3] == ("close", "after")
    after = contents(small, tmp_path / "after")
    assert between in (before, after)
    assert before != after
    assert_whole(small)
    assert small.version().claims == Claims()
    assert [record.kind for record in audit_records(small)] == ["erase"]
    assert broken_record(audit_records(small)) is None


OTHER = "person-007"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.full
def test_who_goes_on_for_somebody_else_has_both_erased(step: str, small: Catalog) -> None:
    """The claim names no key: what was begun ends, and who is asked for now goes as well."""
    root = Path(small.directory.root)
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, step, "after", 1), die)
        with pytest.raises(DiesError):
            run(small, SMALL)
    switched = STEPS.index(step) >= STEPS.index("switch")
    resumed = switched and step != "close"
    done = run(small, ErasureRequest(SMALL.request, [OTHER]))
    assert (done.resumed, done.begun is not None) == (resumed, resumed)
    assert done.content["rows"] == (2 if switched else 3)  # her erasure took what others say of her
    assert files_with(root, OTHER) == []
    assert (files_with(root, ALICE) == []) == switched
    records = [json.loads(record.said)["rows"] for record in audit_records(small)]
    assert records == ([71, 2] if switched else [3])
    assert_whole(small, orphans=not switched)


@pytest.mark.parametrize("step", ["find", "rewrite_logs"])
@pytest.mark.full
def test_who_goes_on_with_other_jobs_has_these_erased(
    step: str, small: Catalog, savepoints: Path
) -> None:
    """Before the switch and behind it."""
    import_as(small, savepoints / "day-0", "other", "audit", uids=UIDS)
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, step, "before", 1), die)
        with pytest.raises(DiesError):
            erase(small, KEYED, ["orders"])
    erase(small, KEYED, ["audit"])
    left = {state.job for state in plan_erasure(small, KEYED).states}
    assert left == ({"orders"} if step == "find" else set())


@pytest.mark.full
def test_that_who_is_asked_for_now_is_left_is_an_error(small: Catalog) -> None:
    """What was begun is done, and the reason and the remedy are told."""
    root = Path(small.directory.root)
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, "rewrite_logs", "before", 1), die)
        with pytest.raises(DiesError):
            run(small, SMALL)
    hold_snapshot(small, "orders", "day-0", "case 4711")
    other = ErasureRequest(SMALL.request, [OTHER])
    with pytest.raises(HeldError, match=r"asked for now is not erased: .*give the same request"):
        run(small, other)
    assert files_with(root, ALICE) == []
    release_snapshot(small, "orders", "day-0")
    assert not run(small, other).resumed
    assert files_with(root, OTHER) == []


@pytest.mark.full
def test_a_crash_at_each_file_that_is_written_or_deleted(two_days: Path, tmp_path: Path) -> None:
    """Not the steps but what they do to the disk: the same end, whichever was the last."""
    shutil.copytree(two_days, tmp_path / "whole")
    run(Catalog(tmp_path / "whole"), SMALL)
    expected = contents(Catalog(tmp_path / "whole"), tmp_path / "expected")
    for name, step in (("write", 11), ("remove", 9)):
        for nth in itertools.count(1, step):
            root = tmp_path / f"{name}-{nth}"
            shutil.copytree(two_days, root)
            with pytest.MonkeyPatch.context() as patch:
                do_at(patch, (ConfinedTree, name, "before", nth), die)
                try:
                    run(Catalog(root), SMALL)
                except DiesError:
                    pass
                else:  # there are no more of them
                    assert nth > 20
                    break
            run(Catalog(root), SMALL)
            assert files_with(root, ALICE) == []
            assert_whole(Catalog(root))
            assert contents(Catalog(root), tmp_path / f"{name}-{nth}-out") == expected


@pytest.mark.full
def test_an_error_leaves_nothing_behind(small: Catalog) -> None:
    """As of a disk that is full: what was written is deleted, and others may write again."""
    files = kept_files(small)
    for step in STEPS[: STEPS.index("switch") + 1]:
        with pytest.MonkeyPatch.context() as patch:
            do_at(patch, (Erasure, step, "before", 1), stop)
            with pytest.raises(EndError):
                run(small, SMALL)
        if step != "switch":
            assert kept_files(small) == files


@pytest.mark.full
def test_each_erasure_of_a_request_has_a_record(small: Catalog, savepoints: Path) -> None:
    """What comes later is erased by the same request, too."""
    for _ in range(2):
        run(small, SMALL)
        import_as(small, savepoints / "day-1", f"more-{len(audit_records(small))}", uids=UIDS)
    assert [record.request for record in audit_records(small)] == ["gdpr-4711"] * 2


@pytest.mark.full
def test_records_are_a_chain(lake: Catalog) -> None:
    """One that is changed shows; what was erased is not in it, but for a keyed hash."""
    erase(lake, KEYED, secret=b"s3cret", requested_by="ops@example.com")
    run(lake)
    records = audit_records(lake)
    assert [record.request for record in records] == ["gdpr-4712", "gdpr-4711"]
    assert records[0].requested_by == "ops@example.com"
    assert len(records[0].to_json()["said"]["asked"]) == 64
    assert records[1].to_json()["said"]["asked"] == ""
    assert broken_record(records) is None
    folder = Path(lake.directory.root) / "_statelake" / "erasure_records"
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        if table.column("number").to_pylist() == [0]:
            at = table.schema.get_field_index("requested_by")
            pq.write_table(table.set_column(at, "requested_by", [["mallory"]]), path)
    found = broken_record(audit_records(lake))
    assert found is not None
    assert found.number == 0


def test_numbers_are_in_no_page_and_no_statistics(tmp_path: Path) -> None:
    """Key and values, Long and Double: in bytes, pages, footers, rows, and the tables' logs."""
    key, long, double = 7777000111222333, -918273645546372819, 3.14159265358979e77
    keys = pa.array([*range(500), key])
    states = (
        NewKeyedState(
            "long", pa.table({"key": keys, "value": pa.array([*range(500), long])}), value="Long"
        ),
        NewKeyedState(
            "double",
            pa.table({"key": keys, "value": pa.array([*map(float, range(500)), double])}),
            value="Double",
        ),
    )
    write_snapshot(tmp_path / "savepoint", [NewOperator("u", "Long", states, max_parallelism=8)])
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "savepoint", "s")
    words = [struct.pack(f"{order}q", number) for number in (key, long) for order in "<>"]
    words += [struct.pack(f"{order}d", double) for order in "<>"]
    words += [str(number).encode() for number in (key, long, double)]

    def found() -> set[bytes]:
        texts = []
        for path in (tmp_path / "lake").rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            texts.append(data)
            if path.suffix == ".parquet":
                file = pq.ParquetFile(path)
                shown = [file.metadata.to_dict(), file.read().to_pylist()]
                texts += [repr(shown).encode(), *(page for _, page in pages_of(pa.py_buffer(data)))]
        return {word for word in words for text in texts if word in bytes(text)}

    assert len(found()) >= 6
    erase(lake, ErasureRequest("gdpr-1", [str(key)]))
    assert found() == set()
