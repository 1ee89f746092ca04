"""A savepoint of a Flink SQL job, for a changed query: what is in it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.change.sql_operators import Identity
from statelake.pipelines.lake.change.sql_rows import COUNTS, Bits, NewColumn
from statelake.pipelines.lake.change.sql_upgrading import (
    OperatorUpgrade,
    SqlUpgradePlan,
    StateUpgrade,
)
from statelake.state_core.errors import (
    ConflictError,
    DeclarationError,
    EncodeError,
    IncompatibleError,
    MissingFileError,
    NotFoundError,
    StateError,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.plans.matches import OperatorMatch
from statelake.state_core.plans.plan import read_plan
from statelake.state_core.plans.states import ValuePlace
from statelake.state_core.plans.topology import Shape, operator_ids_of, uid_name
from tests.support.command import run
from tests.support.savepoints.sql_jobs import (
    unpack_sql_job,
    unpack_sql_plans,
    unpack_sql_views,
)
from tests.support.steps import do_at


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A savepoint, its plan, and the plan of the changed job."""
    return (unpack_sql_job("shop", tmp_path / "shop"), *unpack_sql_plans(tmp_path))


def changed(plan: Path, change: Callable[[Any], None]) -> Path:
    """A plan of which something is changed."""
    content = json.loads(plan.read_text())
    change(content)
    to = plan.with_name(f"changed-{plan.name}")
    to.write_text(json.dumps(content))
    return to


def rows(savepoint: Path, operator: str, state: str) -> list[dict[str, Any]]:
    """The rows of a state, with what a user sees."""
    table = sl.open_snapshot(savepoint)[operator][state].to_arrow()
    names = [name for name in ("key", "user_key", "value") if name in table.schema.names]
    return list(table.select(names).to_pylist())


def test_accumulators_move_with_their_aggregates(
    job: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """Old ones keep their values in their new places; a new one is as before the first row."""
    savepoint, old, new = job
    made = sl.sql_upgrade(savepoint, tmp_path / "made", old, new, accept="partly")
    assert made.made == str(tmp_path / "made")
    before = rows(savepoint, "4_group-aggregate", "accState")
    after = rows(tmp_path / "made", "4_group-aggregate", "accState")
    assert [each["key"] for each in after] == [each["key"] for each in before]
    for was, now in zip(before, after, strict=True):
        count, total = was["value"].values()
        assert list(now["value"].values()) == [total, count, None]


def test_rows_of_a_join_get_a_column_of_nulls(job: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Of one side; the other side's state stays, both under the operator's new uid."""
    savepoint, old, new = job
    sl.sql_upgrade(savepoint, tmp_path / "made", old, new, accept="partly")
    for state in ("left-records", "right-records"):
        before = rows(savepoint, "11_join", state)
        after = rows(tmp_path / "made", "10_join", state)
        assert [each["value"] for each in after] == [each["value"] for each in before]
        added = [None] if state == "right-records" else []
        assert [list(each["user_key"].values()) for each in after] == [
            [*each["user_key"].values(), *added] for each in before
        ]


def test_types_are_those_of_a_savepoint_that_the_new_job_took(
    job: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """To the byte, by the plan alone and with `--like`; sources keep their state."""
    savepoint, old, new = job
    empty = unpack_sql_job("shop-new-empty", tmp_path / "empty")
    for name, like in (("made", None), ("made-like", empty)):
        sl.sql_upgrade(savepoint, tmp_path / name, old, new, accept="partly", like=like)
        made, wanted = sl.open_snapshot(tmp_path / name), sl.open_snapshot(empty)
        states = {
            (operator.uid, state.name): state.meta_info
            for operator in wanted.operators
            for state in operator.keyed_states
        }
        held = {
            (operator.uid, state.name): state.meta_info
            for operator in made.operators
            for state in operator.keyed_states
        }
        assert held == states
        sources = [operator.uid for operator in made.operators if operator.operator_states]
        assert sorted(sources) == ["1_numbers", "8_numbers"]


def test_in_a_lake_it_is_a_new_snapshot(job: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """With the old one as its parent; a dry run and a refused one make none."""
    savepoint, old, new = job
    shop = sl.Lake(tmp_path / "lake").job("shop", engine="local")
    shop.import_snapshot(savepoint, "monday")
    assert not shop["monday"].check_sql(old, new).made
    refused = shop["monday"].sql_upgrade(old, new)
    assert refused.refused
    assert not refused.made
    made = shop["monday"].sql_upgrade(old, new, accept=["partly"], note="a city more")
    assert made.made == "monday-sql"
    assert [each.snapshot_id for each in shop.snapshots()] == ["monday", "monday-sql"]
    assert shop["monday-sql"].record.parent == "monday"
    again = shop["monday"].sql_upgrade(old, new, accept=["partly"])
    assert (again.made, again.before) == ("monday-sql", True)
    assert "(upgraded before)" in str(again)
    for accept in ([], ["partly", "lost=Join[11]"]):  # another upgrade of that name
        with pytest.raises(ConflictError, match="not what this upgrade makes"):
            shop["monday"].sql_upgrade(old, old if not accept else new, accept=accept)


def test_one_that_another_makes_meanwhile_was_made_before(
    job: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have upgraded it, and there is one."""
    savepoint, old, new = job
    shop = sl.Lake(tmp_path / "lake").job("shop", engine="local")
    monday = shop.import_snapshot(savepoint, "monday").record.snapshot_id

    def upgraded() -> bool:
        return shop[monday].sql_upgrade(old, new, accept=["partly"]).before

    inside: list[bool] = []
    do_at(monkeypatch, (Attempt, "commit", "before", 1), lambda: inside.append(upgraded()))
    assert (upgraded(), inside) == (True, [False])
    assert [each.snapshot_id for each in shop.snapshots()] == ["monday", "monday-sql"]


def test_keys_of_another_type_of_the_same_bytes_stay(
    job: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """They get its serializer, and the operator's entries stay as they are, byte for byte."""
    savepoint, old, _ = job
    new = old.with_name("not-null.json")
    new.write_text(old.read_text().replace("`shop` VARCHAR(2147483647)", "`shop` CHAR(9) NOT NULL"))
    assert "lost" in {each.fate for each in sl.check_sql(savepoint, old, new).operators}
    new.write_text(old.read_text().replace("`shop` VARCHAR(2147483647)", "`shop` VARCHAR NOT NULL"))
    done = sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    assert {each.fate for each in done.operators} == {"keeps"}
    snapshots = [sl.open_snapshot(each) for each in (savepoint, done.made)]
    was, now = (each["4_group-aggregate"]["accState"].to_arrow() for each in snapshots)
    assert now.equals(was)
    (described,) = (each for each in snapshots[1].describe().operators
                    if each.label == "4_group-aggregate")  # fmt: skip
    keys = {described.key_type, *(state.key_type for state in described.keyed_states)}
    assert keys == {"RowData<VARCHAR(1) NOT NULL>"}  # its timers', too


def test_the_same_plan_changes_no_state(job: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """It goes on as it is."""
    savepoint, old, _ = job
    done = sl.sql_upgrade(savepoint, tmp_path / "made", old, old)
    assert done.right
    assert not done.refused
    assert rows(tmp_path / "made", "4_group-aggregate", "accState") == rows(
        savepoint, "4_group-aggregate", "accState"
    )


def test_what_is_lost_is_left_out_when_that_is_accepted(
    job: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """By the operator's name, and only then; a name that is not there is an error."""
    savepoint, old, new = job

    def by_item(plan: Any) -> None:
        (calc,) = (node for node in plan["nodes"] if node["id"] == 2)
        calc["projection"][0]["inputIndex"] = 4  # GROUP BY item

    other = changed(new, by_item)
    verdict = sl.check_sql(savepoint, old, other)
    assert not verdict.keeps
    (lost,) = (each for each in verdict.operators if each.fate == "lost")
    assert lost.operator == "GroupAggregate[4]"
    words = ["partly", "lost=GroupAggregate[4]"]
    assert sl.sql_upgrade(savepoint, tmp_path / "made", old, other, accept="partly").refused
    assert not (tmp_path / "made").exists()
    made = sl.sql_upgrade(savepoint, tmp_path / "made", old, other, accept=words)
    assert made.made
    uids = [operator.uid for operator in sl.open_snapshot(tmp_path / "made").operators]
    assert sorted(uids) == ["10_join", "1_numbers", "8_numbers"]
    with pytest.raises(NotFoundError, match="GroupAggregate\\[44\\]"):
        sl.sql_upgrade(savepoint, tmp_path / "no", old, other, accept="lost=GroupAggregate[44]")


def test_a_plan_of_another_job_is_refused(job: tuple[Path, Path, Path]) -> None:
    """Its numbers, or its types, are not the savepoint's."""
    savepoint, old, new = job
    with pytest.raises(IncompatibleError, match="no operator of the old plan"):
        sl.check_sql(savepoint, changed(old, lambda plan: _numbered(plan, 100)), new)

    def sum_of_text(plan: Any) -> None:
        for node in plan["nodes"]:
            if node["id"] == 4:
                node["aggCalls"][1]["type"] = "DOUBLE"

    verdict = sl.check_sql(savepoint, changed(old, sum_of_text), new)
    (each,) = (each for each in verdict.operators if each.operator == "GroupAggregate[4]")
    assert each.fate in ("unknown", "lost")


@pytest.mark.parametrize("uids", [True, False])
@pytest.mark.parametrize("by", [0, 7, -1, 1200])
@pytest.mark.full
def test_a_plan_compiled_of_the_same_sql_gets_the_numbers_of_the_job(
    job: tuple[Path, Path, Path], uids: bool, by: int
) -> None:
    """Of uids, and of their hashes in a savepoint of Flink 1; a file has the job's own numbers."""
    savepoint, old, new = job
    if not uids:
        written = sl.open_snapshot(savepoint).metadata
        operators = [replace(each, uid="", name="") for each in written.operators]
        hashed = replace(written, version=4, operators=operators)
        (savepoint / "_metadata").write_bytes(write_metadata(hashed))
    words: Any = {} if uids else {"uids": ["1_numbers", "8_numbers"]}
    wanted = sl.check_sql(savepoint, old, new, **words)
    plan = read_plan(old).shifted(by)
    assert sl.check_sql(savepoint, replace(plan, numbered=False), new, **words) == wanted
    if by:
        with pytest.raises(IncompatibleError, match="of the old plan"):
            sl.check_sql(savepoint, plan, new, **words)


def test_a_plan_compiled_of_other_sql_is_refused(job: tuple[Path, Path, Path]) -> None:
    """It fits by no numbers, or by several."""
    savepoint, old, new = job
    other = read_plan(old)
    fewer = {number: node for number, node in other.nodes.items() if number < 6}
    calc = {2: other.nodes[2]}
    for nodes, says in ((fewer, "no operator of the old plan"), (calc, "several of the savepoint")):
        with pytest.raises(IncompatibleError, match=says):
            sl.check_sql(savepoint, replace(other, nodes=nodes, numbered=False), new)


@pytest.fixture
def plain(job: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    """The savepoint as the same job takes it without a compiled plan."""
    savepoint, old, _ = job
    ids = operator_ids_of(read_plan(old), Shape({
        (kind, "halves"): 2 for kind in ("table-source-scan", "sink")
    }))  # fmt: skip
    metadata = read_metadata((savepoint / "_metadata").read_bytes())
    operators = []
    for each in metadata.operators:
        number, _, name = each.uid.partition("_")
        name = {"numbers": "source-0", "rows": "source-1", "lines": "sink-0"}.get(name, name)
        at = int(number), name
        operators.append(replace(each, operator_id=ids.get(at, each.operator_id), uid=""))
    to = tmp_path / "plain"
    to.mkdir()
    (to / "_metadata").write_bytes(write_metadata(replace(metadata, operators=operators)))
    return to


def test_a_job_without_a_plan_goes_on_in_one_that_has_it(
    job: tuple[Path, Path, Path], plain: Path, tmp_path: Path
) -> None:
    """Under the uids of the plan, with all that a job has whose state had them before."""
    savepoint, old, new = job
    empty = unpack_sql_job("shop-new-empty", tmp_path / "empty")
    done = sl.sql_upgrade(plain, tmp_path / "made", old, new, accept="partly", no_uids="old",
                          like=empty)  # fmt: skip
    assert not done.refused
    assert {each.flink for each in done.operators} == {
        "refuses: cannot map it; with --allowNonRestoredState begins empty"
    }
    sl.sql_upgrade(savepoint, tmp_path / "as-before", old, new, accept="partly")
    made, wanted = (sl.open_snapshot(tmp_path / name) for name in ("made", "as-before"))
    for snapshot in (made, wanted):
        held = [each for each in snapshot.operators if each.keyed_states or each.operator_states]
        assert {each.operator_id for each in held} == {
            operator_id_of_uid(uid) for uid in ("1_numbers", "4_group-aggregate", "8_numbers",
                                                "10_join")
        }  # fmt: skip
    for uid, state in (("4_group-aggregate", "accState"), ("10_join", "left-records"),
                       ("10_join", "right-records")):  # fmt: skip
        one, other = (
            next(each for each in snapshot.operators if each.operator_id == operator_id_of_uid(uid))
            for snapshot in (made, wanted)
        )
        assert one[state].to_arrow().equals(other[state].to_arrow())


def test_uids_that_only_a_connector_knows_are_asked_for(
    job: tuple[Path, Path, Path], plain: Path
) -> None:
    """Those of a source of several operators; all others keep, also of the same query."""
    _, old, _ = job
    verdict = sl.check_sql(plain, old, old, no_uids="old")
    fates = {each.operator: each.fate for each in verdict.operators}
    assert fates == {"TableSourceScan[1]": "unknown", "TableSourceScan[8]": "unknown",
                     "GroupAggregate[4]": "keeps", "Join[11]": "keeps"}  # fmt: skip
    assert "--like" in verdict.operators[0].why[0]
    done = run("check", "sql", plain, "--old-plan", old, "--new-plan", old, "--no-old-uids",
               "--json")  # fmt: skip
    assert done.code == 1
    assert {each["operator"]: each["fate"] for each in done.json["operators"]} == fates
    one = old.with_name("kafka.json")
    one.write_text(old.read_text().replace('"halves"', '"kafka"'))
    ids = Shape({("table-source-scan", "kafka"): 1})
    assert uid_name(read_plan(one), 1, "source-0", ids) == "kafka"
    with pytest.raises(EncodeError, match="use True for both jobs, or 'old'"):
        sl.check_sql(plain, old, old, no_uids="new")  # type: ignore[arg-type]


def _numbered(plan: Any, more: int) -> None:
    for node in plan["nodes"]:
        node["id"] += more
    for edge in plan["edges"]:
        edge["source"] += more
        edge["target"] += more


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda plan: plan.pop("nodes"), "no `nodes`"),
        (lambda plan: plan.update(flinkVersion=None), "not a plan of Flink SQL"),
        (lambda plan: plan["nodes"].append(plan["nodes"][0]), "two nodes have the number"),
        (lambda plan: plan["edges"].append({"source": 4, "target": 3}), "form a cycle"),
        (lambda plan: plan["edges"].append({"source": 77, "target": 3}), "which is missing"),
        (lambda plan: plan["nodes"][0].update(type="batch-exec-sink_1"), "batch-exec"),
        (lambda plan: plan["nodes"][0].update(outputType="BIGINT"), "output of node"),
        (lambda plan: plan["nodes"][1].pop("projection"), "Calc\\[2\\]"),
        (lambda plan: plan["nodes"][1]["projection"][0].update(inputIndex=99), "Calc\\[2\\]"),
        (lambda plan: plan["nodes"][3].update(grouping=[9]), "GroupAggregate\\[4\\]"),
        (lambda plan: plan["nodes"][3]["aggCalls"][0].update(argList=[7]), "GroupAggregate"),
        (lambda plan: plan["nodes"][3].update(aggCallNeedRetractions=[True]), "GroupAggregate"),
    ],
)
def test_a_broken_plan_is_named_with_its_place(
    break_it: Callable[[Any], None], says: str, job: tuple[Path, Path, Path]
) -> None:
    """And so is what is no JSON, or not there."""
    savepoint, old, new = job
    broken = changed(old, break_it)
    with pytest.raises(DeclarationError, match=says) as caught:
        sl.check_sql(savepoint, broken, new)
    assert str(broken) in str(caught.value)


def test_a_file_that_is_no_plan_is_named(job: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Not there, no JSON, nested without end, or SQL."""
    savepoint, old, new = job
    with pytest.raises(MissingFileError):
        sl.check_sql(savepoint, tmp_path / "none.json", new)
    for text in ("", "SELECT 1", "[" * 100_000, '{"nodes": 7, "flinkVersion": "2.3"}', "7"):
        old.write_text(text)
        with pytest.raises(DeclarationError) as caught:
            sl.check_sql(savepoint, old, new)
        assert str(old) in str(caught.value)


def test_expressions_that_repeat_what_they_read_do_not_explode(
    job: tuple[Path, Path, Path],
) -> None:
    """Each calc has what it reads twice: written out, it would have a thousand million letters."""
    savepoint, old, new = job
    wanted = sl.check_sql(savepoint, old, new)
    content = json.loads(old.read_text())
    nodes, edges = content["nodes"], content["edges"]
    (calc,) = (node for node in nodes if node["id"] == 2)
    fields = [
        {"kind": "INPUT_REF", "inputIndex": index, "type": "STRING"}
        for index in range(len(calc["projection"]))
    ]
    twice = {"kind": "CALL", "internalName": "$||$1", "operands": fields[:1] * 2, "type": "STRING"}
    last = 2
    for number in range(100, 140):
        nodes.append({**calc, "id": number, "projection": [twice, *fields[1:]]})
        edges.append({"source": last, "target": number})
        last = number
    old.write_text(json.dumps(content))
    assert sl.check_sql(savepoint, old, new) == wanted


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"accept": "all"}, EncodeError),
        ({"map": "4"}, EncodeError),
        ({"map": "4=x"}, EncodeError),
        ({"map": "99=4"}, NotFoundError),
        ({"map": "4=99"}, NotFoundError),
        ({"map": ["4=4", "11=4"]}, DeclarationError),
        ({"map": ["4=4", "4=10"]}, EncodeError),
    ],
)
def test_words_that_are_not_known_are_refused(
    words: dict[str, Any], error: type[StateError], job: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """Before anything is read or written."""
    savepoint, old, new = job
    with pytest.raises(error):
        sl.sql_upgrade(savepoint, tmp_path / "made", old, new, **words)
    assert not (tmp_path / "made").exists()


def test_a_pair_that_is_said_is_used(job: tuple[Path, Path, Path]) -> None:
    """It is judged as any other."""
    savepoint, old, new = job
    assert sl.check_sql(savepoint, old, new, map="11=10").keeps
    wrong = sl.check_sql(savepoint, old, new, map=["11=4"])
    assert not wrong.keeps


def test_the_command_answers_by_its_exit_code(job: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """`check sql` if nothing is lost or wrong; `sql-upgrade` if nothing stands in the way."""
    savepoint, old, new = job
    plans = ("--old-plan", old, "--new-plan", new)
    checked = run("check", "sql", savepoint, *plans, "--json")
    assert (checked.code, checked.json["refused"][0]) == (
        0, "GroupAggregate[4]: starts now; --accept partly",
    )  # fmt: skip
    assert run("sql-upgrade", savepoint, *plans).code == 1
    made = run("sql-upgrade", savepoint, *plans, "--accept", "partly", "--to", tmp_path / "made")
    assert made.code == 0
    assert (tmp_path / "made" / "_metadata").exists()
    again = run("sql-upgrade", savepoint, *plans, "--accept", "partly", "--to", tmp_path / "made")
    assert again.code not in (0, 1)
    assert "made" in again.err


@pytest.mark.parametrize(
    ("calls", "name", "held"),
    [([0, 1, 2, 3], "distinctAcc_1", 0b10), ([0, 2, 1, 3], "distinctAcc_1", 0b01),
     ([0, 2, 3], "distinctAcc_1", 0b1), ([2, 0, 3], "distinctAcc_0", 0b1),
     ([0, 1, 3], "distinctAcc_1", 0b10)],
)  # fmt: skip
@pytest.mark.full
def test_each_call_of_a_set_of_distinct_values_keeps_its_bit(
    calls: list[int], name: str, held: int, tmp_path: Path
) -> None:
    """Of SUM that a filter lets count nothing, and COUNT: the set goes on under its new name."""
    savepoint, old = unpack_sql_views("2.3.0", tmp_path)
    types = ["BIGINT NOT NULL", "BIGINT", "BIGINT NOT NULL", "MULTISET<INT> NOT NULL"]

    def chosen(plan: Any) -> None:
        (node,) = (each for each in plan["nodes"] if each["id"] == 6)
        for key in ("aggCalls", "aggCallNeedRetractions"):
            node[key] = [node[key][each] for each in calls]
        results = "".join(f", `x{each}` {types[each]}" for each in calls)
        node["outputType"] = f"ROW<`a` INT{results}>"

    new = changed(old, chosen)
    made = sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    assert {each.fate for each in made.operators} == {"keeps"}
    before = rows(savepoint, "6_group-aggregate", "distinctAcc_1")
    after = rows(tmp_path / "made", "6_group-aggregate", name)
    assert [each["user_key"] for each in after] == [each["user_key"] for each in before]
    assert ({each["value"] for each in before}, {each["value"] for each in after}) == (
        {0b10}, {held},
    )  # fmt: skip


def test_digests_stay() -> None:
    """A lake keeps them: an upgrade that was made before is known by its own."""
    row = NewColumn(1), NewColumn(initial=0), NewColumn(0, "x", filled=True, counted=2)
    states = [
        StateUpgrade("s", "t é", b"\1\2", parts, merged, ttl)
        for parts, merged, ttl in (
            ({ValuePlace.VALUE: row}, None, None),
            ({ValuePlace.USER_KEY: (NewColumn(0),)}, COUNTS, True),
            ({ValuePlace.USER_KEY: (NewColumn(0),), ValuePlace.VALUE: ()}, None, None),
            ({ValuePlace.VALUE: Bits(((0,), (1, 0)))}, None, None),
            ({ValuePlace.VALUE: NewColumn(initial=True)}, None, False),
        )
    ]
    identities, keys = {"ab": Identity("cd", "u")}, {"ab": b"k"}
    upgrade = OperatorUpgrade(OperatorMatch(None, None), identities, tuple(states), keys)
    plan = SqlUpgradePlan(None, (upgrade,))  # type: ignore[arg-type] # the plans are in no digest
    assert plan.digest() == "61fa444aabcdea537c91b5a6e005ebc7837c1a15f242fe4e692dbe5d2089f33e"
