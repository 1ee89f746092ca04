"""Edits over values that columns don't hold in full: refused with a count, never by a null."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import statelake as sl
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.sql_rows import NewColumn, Select
from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.rewriting import layout_of, pieces_of
from statelake.pipelines.lake.edit.sql_editing import session_over
from statelake.pipelines.lake.query.session import QueryError
from statelake.pipelines.lake.query.statements import columns_used, parse_statement
from statelake.state_core.errors import InexactError, NoMatchError
from statelake.state_core.plans.states import ValuePlace
from tests.support.command import run
from tests.support.lakes import assert_whole, exported, golden, import_golden, kept_files
from tests.support.savepoints.golden_cases import GOLDEN

EDGE = GOLDEN / "edge" / "values-1"
QUERIES = golden("queries-hashmap-canonical-inline-p2-m128-flink2.3.0").snapshot
LAST, FINE = "de4b10a9d0d1fd1d5f93a2dac4f71156", "f15fc7d4c60bf6d64da93457bd598ead"
# of 40 keys: all integers, instants and times have more digits; of dates and texts those beyond
INEXACT = {"str": 16, "date": 16, "ldt": 24, "ld": 32, "big": 40, "ins": 40, "ts": 40}
TYPES = {
    "str": "String", "date": "Date", "ldt": "LocalDateTime", "ld": "LocalDate",
    "big": "BigInteger", "ins": "Instant", "ts": "Timestamp",
}  # fmt: skip
NEW = {"str": "'x'", "big": "1", "ld": "DATE '2026-01-01'"}
TIME = "TIMESTAMPTZ '2026-01-01 00:00:00+00'"
Values = dict[str, dict[bytes, bytes]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a savepoint of real Flink, whose values are at the edge of columns."""
    lake = tmp_path_factory.mktemp("edge") / "lake"
    sl.Lake(str(lake)).job("edge").import_snapshot(str(EDGE), "one")
    return lake


@pytest.fixture
def one(imported: Path, tmp_path: Path) -> sl.LakeSnapshot:
    """The snapshot, in a copy of that lake."""
    shutil.copytree(imported, tmp_path / "lake")
    return sl.Lake(str(tmp_path / "lake")).job("edge")["one"]


def values(snapshot: sl.LakeSnapshot, name: str, to: Path) -> Values:
    """The bytes of each value in an export of a snapshot, by state and key."""
    held = exported(snapshot.job.lake.catalog, name, to / name, job="edge")
    return {state: {key: value for _, key, value in rows} for (_, state), rows in held.items()}


def refusals(state: str) -> dict[str, str]:
    """Statements that decide by what a column does not hold, by what they are."""
    table, new = f"edge.{state}", NEW.get(state, TIME)
    return {
        "deletes nulls": f"DELETE FROM {table} WHERE value IS NULL",
        "deletes others": f"DELETE FROM {table} WHERE value = {new}",
        "keeps some": f'DELETE FROM {table} AS t WHERE NOT ("VALUE" <= {new} OR t.`value` > {new})',
        "replaces nulls": f"UPDATE {table} SET value = {new} WHERE value IS NULL",
        "computes": f"UPDATE {table} SET value = coalesce(value, {new})",
        "copies": f"INSERT INTO {table} (key_group, key, value)"
        f" SELECT key_group, key || 'x', value FROM {table}",
        "asks elsewhere": f"DELETE FROM edge.dbl WHERE key IN (SELECT key FROM {table}"
        " WHERE value IS NULL)",
    }


@pytest.mark.parametrize("state", INEXACT)
@pytest.mark.full
def test_every_edit_refuses_them_with_their_number(
    state: str, one: sl.LakeSnapshot, tmp_path: Path
) -> None:
    """SQL, purges, expressions, masks and bootstraps; and the lake is as it was."""
    before = kept_files(one.job.lake.catalog)
    rows = rf": {INEXACT[state]} rows have a value that the column does not hold in full"
    statements = refusals(state)
    for statement in statements.values() if state == "big" else list(statements.values())[::4]:
        with pytest.raises(InexactError, match=f"{rows}.* raw_value .*--inexact"):
            one.edit_sql("two", statement)
    with pytest.raises(InexactError, match=rows):
        one.edit("two").purge(f"edge/{state}", "value IS NULL").save()
    same = f"edge/{state}=old"
    with pytest.raises(InexactError, match=rows):
        one.migrate(change=f"edge/{state}={TYPES[state]}", expression=same)
    mask = tmp_path / "mask.yaml"
    said = {"keys": {"edge": "keep"}, "states": {f"edge/{state}": {"constant": None}}}
    mask.write_text(yaml.safe_dump({"secret": {"env": "PATH"}, "others": "keep", **said}))
    with pytest.raises(InexactError, match=r"rows? ha.* a value that the column does not hold"):
        one.export(tmp_path / "masked", mask=mask)
    lake = one.job.lake.catalog.location
    source = {"lake": lake, "job": "edge", "snapshot": "one", "state": f"edge/{state}"}
    made = {"type": TYPES[state], "source": source, "key": "key", "value": "value"}
    spec = {"operators": {"op": {"key_type": "String", "states": {"s": made}}}}
    with pytest.raises(InexactError, match=r"rows? ha.* a value that the column does not hold"):
        bootstrap(None, spec, tmp_path / "made", engine="local")
    assert kept_files(one.job.lake.catalog) == before


@pytest.mark.thinned(3)
@pytest.mark.parametrize("state", INEXACT)
@pytest.mark.full
def test_what_is_meant_can_be_said(state: str, one: sl.LakeSnapshot, tmp_path: Path) -> None:
    """By the exact bytes, by the key, or by --inexact; all other rows are the same bytes."""
    before, count = values(one, "one", tmp_path), INEXACT[state]
    nulls = f"DELETE FROM edge.{state} WHERE value IS NULL"
    by_bytes = f"DELETE FROM edge.{state} WHERE raw_value IS NOT NULL"
    (change,) = one.edit_sql("by-bytes", by_bytes).changes
    assert change.entries == (40, 40 - count)
    for none in ("raw_value IS NULL", "is_exact"):
        with pytest.raises(NoMatchError):
            one.edit_sql("none", f"{nulls} AND {none}")
    if state == "big":
        (same,) = one.edit_sql("exact", f"DELETE FROM edge.{state} WHERE NOT is_exact").changes
        assert same == change
        with pytest.raises(NoMatchError):
            one.edit("none").purge(f"edge/{state}", "value IS NULL AND IS_EXACT").save()
        with pytest.raises(QueryError, match="is_exact only says which rows"):
            one.edit_sql("none", f"UPDATE edge.{state} SET is_exact = true")
    new = NEW.get(state, TIME)
    one.edit_sql("by-key", f"UPDATE edge.{state} SET value = {new} WHERE key = 'k1'")
    after = values(one, "by-key", tmp_path)
    changed = [key for key, data in before[state].items() if after[state][key] != data]
    assert [key[:3] for key in changed] == [b"\x03k1"]
    assert {**after, state: 0} == {**before, state: 0}
    shown = one.job["by-key"]["edge"].state(state).to_arrow()
    assert shown["raw_value"][shown["key"].to_pylist().index("k1")].as_py() is None
    shown = f"UPDATE edge.{state} SET value = coalesce(value, {new}) WHERE key <> 'k1'"
    assert one.edit_sql("shown", shown, inexact=True).changes
    left = values(one, "by-bytes", tmp_path)[state]
    assert left.items() <= before[state].items()
    assert_whole(one.job.lake.catalog)


def test_values_that_an_edit_does_not_touch_are_written_as_they_were(
    one: sl.LakeSnapshot, tmp_path: Path
) -> None:
    """Of all states, also where a row of the same file is deleted, or set to itself."""
    before = values(one, "one", tmp_path)
    one.edit_sql("less", *(f"DELETE FROM edge.{state} WHERE key = 'k7'" for state in INEXACT))
    after = values(one, "less", tmp_path)
    for state, data in before.items():
        gone = data.keys() - after[state].keys()
        assert len(gone) == (state in INEXACT)
        assert after[state] == {key: data[key] for key in data.keys() - gone}
    one.edit_sql("same", *(f"UPDATE edge.{state} SET value = value" for state in INEXACT))
    assert values(one, "same", tmp_path) == before


def test_expiry_goes_by_times_of_last_access_alone(one: sl.LakeSnapshot, tmp_path: Path) -> None:
    """They are exact, so that values need not be; what lives on keeps its bytes."""
    one.job.migrate(snapshots="one", ttl="edge/ins=on", suffix="-timed")
    timed = one.job["one-timed"]
    before = values(timed, "one-timed", tmp_path)
    with pytest.raises(NoMatchError):
        timed.edit("gone").expire("edge/ins", timedelta(days=9999)).save()
    with pytest.raises(InexactError, match=": 39 rows have a value"):
        timed.edit_sql("gone", "UPDATE edge.ins SET ttl = 5 WHERE key <> 'k1'")
    timed.edit_sql("gone", "DELETE FROM edge.ins WHERE ttl > 5 AND key = 'k2'")
    after = values(timed, "gone", tmp_path)
    assert len(after["ins"]) == 39
    assert after["ins"].items() <= before["ins"].items()


@pytest.mark.full
def test_the_commands_have_the_word_for_it(one: sl.LakeSnapshot) -> None:
    """`--inexact` of sql --edit, edit and migrate; without it they answer no, with the number."""
    lake = ("--lake", one.job.lake.catalog.location, "--job", "edge")
    nulls = "DELETE FROM edge.big WHERE value IS NULL"
    for number, words in enumerate([
        ("sql", *lake, "--edit", "one", "--as", "sql", nulls),
        ("edit", *lake, "--parent", "one", "--snapshot", "purged", "--purge", "edge/big",
         "value IS NULL"),
        ("migrate", *lake, "--snapshot", "one", "--suffix", "-m", "--change",
         "edge/big=BigInteger", "--expression", "edge/big=coalesce(old, 7)"),
    ]):  # fmt: skip
        ran = run(*words)
        assert ran.code in (1, 3), number
        assert "40 rows have a value that the column does not hold in full" in ran.err
        assert run(*words, "--inexact").code == 0
    names = {record.snapshot_id for record in one.job.snapshots()}
    assert names == {"one", "sql", "purged", "one-m"}
    assert run("sql", *lake, "SELECT 1", "--inexact").code == 2


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(each, marks=() if each in ("big", "str") else pytest.mark.nightly)
        for each in INEXACT
    ],
)
def test_masks_and_bootstraps_go_by_columns_if_that_is_said(
    state: str, one: sl.LakeSnapshot, tmp_path: Path
) -> None:
    """Without their bytes, which they would otherwise show; all other states are as they were."""
    mask = tmp_path / "mask.yaml"
    said = {"keys": {"edge": "keep"}, "states": {f"edge/{state}": {"constant": None}}}
    mask.write_text(yaml.safe_dump({"secret": {"env": "PATH"}, "others": "keep", **said}))
    place = ("--lake", one.job.lake.catalog.location, "--job", "edge", "--snapshot", "one")
    words = ("export", *place, "--to", tmp_path / "masked", "--mask", mask)
    refused = run(*words)
    assert (refused.code, "--inexact" in refused.err) == (1, True)
    assert run(*words, "--inexact").code == 0
    before = values(one, "one", tmp_path)
    again = sl.Lake(str(tmp_path / "again")).job("edge")
    again.import_snapshot(str(tmp_path / "masked"), "one")
    after = values(again["one"], "one", tmp_path / "again")
    assert len(set(after[state].values())) == 1
    assert after[state].keys() == before[state].keys()
    assert {**after, state: 0} == {**before, state: 0}

    held = one["edge"].state(state).to_arrow()
    source = {"lake": place[1], "job": "edge", "snapshot": "one", "state": f"edge/{state}"}
    made = {"type": TYPES[state], "source": source, "key": "key", "value": "value"}
    spec = {"operators": {"op": {"key_type": "String", "states": {"s": made}}}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    words = ("bootstrap", tmp_path / "spec.yaml", "--to", tmp_path / "made", "--engine", "local")
    refused = run(*words)
    assert (refused.code, "take what the column shows: --inexact" in refused.err) == (1, True)
    taken = run(*words, "--inexact")
    if held["value"].null_count:  # which no state has, whatever is said
        assert (taken.code, "there is no value; leave such rows out" in taken.err) == (3, True)
        return
    shown = sl.open_snapshot(tmp_path / "made", uids=["op"])["op"].state("s").to_arrow()
    columns = [each.select(["key", "value"]).to_pydict().values() for each in (shown, held)]
    assert dict(zip(*columns[0], strict=True)) == dict(zip(*columns[1], strict=True))


def test_keys_that_columns_do_not_hold(tmp_path: Path) -> None:
    """A condition over keys is refused as one over values is, unless it names their bytes."""
    half = bytes([2, 0x80, 0xB0, 0x03, 0])  # and no namespace
    rows = [{"key": "a", "value": 1, "raw_key": None}, {"key": "�", "value": 2, "raw_key": half}]
    schema = pa.schema({"key": pa.string(), "value": pa.int64(), "raw_key": pa.binary()})
    state = sl.NewKeyedState("s", pa.Table.from_pylist(rows, schema), value="Long")
    sl.write_snapshot(tmp_path / "sp", [sl.NewOperator("op", "String", (state,))])
    job = sl.Lake(str(tmp_path / "lake")).job("j")
    job.import_snapshot(str(tmp_path / "sp"), "one", uids=["op"])
    with pytest.raises(InexactError, match=r"1 row has a key .* as raw_key does"):
        job["one"].edit_sql("two", "DELETE FROM op.s WHERE key = 'a'")
    job["one"].edit_sql("two", "DELETE FROM op.s WHERE key = 'a' AND raw_key IS NULL")
    job["one"].edit_sql("three", "DELETE FROM op.s WHERE value = 2")
    assert job["three"]["op"].state("s").to_arrow()["key"].to_pylist() == ["a"]


def test_elements_of_lists_that_columns_do_not_hold(tmp_path: Path) -> None:
    """They neither go by a predicate nor expire out of their list, unless that is said."""
    half, late = bytes([2, 0x80, 0xB0, 0x03]), 10**15
    timed = (1).to_bytes(8, "big") + half + b"," + late.to_bytes(8, "big") + bytes([2, 0x78])
    rows = pa.table({
        "key": [1, 2], "value": [["a"], ["\ufffd", "x"]], "ttl": [[late], [1, late]],
        "raw_value": [None, timed],
    })  # fmt: skip
    state = sl.NewKeyedState("s", rows, value="String", kind="list", with_ttl=True)
    sl.write_snapshot(tmp_path / "sp", [sl.NewOperator("op", "Long", (state,))])
    job = sl.Lake(str(tmp_path / "lake")).job("j")
    job.import_snapshot(str(tmp_path / "sp"), "one", uids=["op"])
    one, refused = job["one"], "1 row has a value that the column does not hold"
    with pytest.raises(InexactError, match=refused):
        one.edit("two").purge("op/s", "element = 'x'").save()
    with pytest.raises(InexactError, match=refused):
        one.edit("two").expire("op/s", timedelta(days=1)).save()
    one.edit("two").purge("op/s", "element = 'a' AND raw_value IS NULL").save()
    one.edit("three").expire("op/s", timedelta(days=1)).inexact().save()
    held = {name: job[name]["op"].state("s").to_arrow().to_pydict() for name in ("two", "three")}
    assert (held["two"]["value"], held["two"]["raw_value"]) == ([["\ufffd", "x"]], [timed])
    assert sorted(held["three"]["value"]) == [["a"], ["x"]]


@pytest.mark.full
def test_rows_of_flink_sql_are_held_in_full_whatever_their_kind_of_change(tmp_path: Path) -> None:
    """An update decides as an insert does; a time of nine digits is refused, by an upgrade too."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", QUERIES))
    job = sl.Lake(lake.location).job("orders")
    table = f'{LAST}."deduplicate-state"'
    (kinds,) = job.sql(f"SELECT count(raw_value) FROM {table}").read_all()[0].to_pylist()
    job["s"].edit_sql("t", f"DELETE FROM {table} WHERE value.f0 = 1")
    assert (kinds, job["t"][LAST]["deduplicate-state"].to_arrow().num_rows) == (5, 4)
    with pytest.raises(InexactError, match=": 2 rows have a value"):
        job["s"].edit_sql("u", f'DELETE FROM {FINE}."accState" WHERE value.f0 IS NULL')
    record = lake.snapshot("orders", "s")
    (operator,) = (each for each in record.operators if each.operator_id == FINE)
    (state,) = (each for each in operator.states if each.name == "accState")
    layout = layout_of(lake, operator, operator.table_of(state))
    assert isinstance(layout, KeyGroupLayout)
    fields = layout.schema.field("value").type.num_fields
    same = {ValuePlace.VALUE: tuple(map(NewColumn, range(fields)))}
    upgrade, refused = Select(layout, same), 0
    for piece in pieces_of(operator.table_of(state)):
        for rows in layout.read(piece):
            try:
                upgrade.apply(rows)
            except InexactError as error:  # noqa: PERF203 - each has its count
                refused += error.count
    assert refused == 2
    shown = Select(layout, same, inexact=True)
    for piece in pieces_of(operator.table_of(state)):
        for rows in layout.read(piece):
            made = shown.apply(rows)
            assert made.batch.column("value").equals(rows.batch.column("value"))
            assert made.batch.column("raw_value").null_count == len(rows.batch)


C, S = "condition", "computed"
USES: dict[str, dict[str, set[str]]] = {
    "DELETE FROM edge.big WHERE key = 'value' -- raw_value": {C: {"where", "key"}},
    'DELETE FROM edge.big AS t WHERE t."Value" > 1': {C: {"where", "t", "value", "as"}},
    "DELETE FROM edge.big WHERE key IN (FROM edge.ins)": {C: {"where", "key", "in", "from"}},
    "UPDATE edge.big SET value = 1, key = upper(key) WHERE key_group IN (SELECT 2, 3 WHERE true)": {
        "assigned": {"value", "key"}, S: {"upper", "key"},
        C: {"where", "key_group", "in", "select", "true"},
    },
    "UPDATE edge.big AS t SET value = (SELECT max(x) FROM edge.dbl), key = key": {
        "assigned": {"value"}, S: {"select", "max", "x", "from"}, C: set(),
    },
    "INSERT INTO edge.big (key_group, key, value) VALUES (1, 'value', 2)": {S: {"values"}},
    "INSERT INTO edge.big SELECT * FROM edge.big": {S: {"select", "from"}},
}  # fmt: skip


@pytest.mark.parametrize("text", USES)
def test_the_names_that_a_statement_reads(text: str, imported: Path) -> None:
    """Neither texts nor comments nor tables are among them, nor is what only gets a value."""
    lake = Catalog(imported)
    with session_over(lake, lake.snapshot("edge", "one")) as session:
        uses = columns_used(session, parse_statement(session, text))
    for part in (C, S, "assigned"):
        assert getattr(uses, part) == USES[text].get(part, set()), part
