"""Exports with keys and values masked: joins hold, nothing shows, and Flink's rules are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pytest
import yaml

from statelake import NewKeyedState, NewOperator, NewOperatorState, open_snapshot, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.share.mask_file import read_mask
from statelake.pipelines.lake.share.sampling import Sample
from statelake.pipelines.lake.share.sharing import SharedForm
from statelake.state_core.errors import (
    EncodeError,
    NotFoundError,
    UnknownHashError,
    UnsupportedFormatError,
)
from statelake.state_core.files.compression import IDENTIFIER
from statelake.state_core.integrity import check_snapshot
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WINDOWS,
    golden,
    import_as,
    import_golden,
    raw_savepoint,
)
from tests.support.savepoints.own_savepoint import own_savepoint

QUERIES = golden("queries-hashmap-canonical-inline-p2-m128-flink2.3.0").snapshot
DISTINCT = golden("sql-hashmap-canonical-p2-m128-flink2.3.0").snapshot
SECRET = "a secret of the tests"  # noqa: S105 - for nobody
NAMES = [f"customer-{number:04d}" for number in range(300)]
IDS = [10_000_000_000 + 37 * number for number in range(300)]
EVENTS = "_timer_state/event_user-timers"
PERSON = {"pojo": "acme.Person", "fields": {"name": "String", "id": "Long", "tags": "List<String>"}}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SECRET", SECRET)


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with customers by name and orders by number, which name each other."""
    write_snapshot(tmp_path / "joined", [customers(), orders()], metadata_version=6)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "joined", "s")
    return lake


def customers() -> NewOperator:
    """By name: what number each has, and who that is."""
    people = [
        {"name": name, "id": number, "tags": [name, "vip"]}
        for name, number in zip(NAMES, IDS, strict=True)
    ]
    return NewOperator(
        "customers", "String",
        (
            NewKeyedState("row", pa.table({"key": NAMES, "value": range(300)}), value="Long"),
            NewKeyedState("id", pa.table({"key": NAMES, "value": IDS}), value="Long"),
            NewKeyedState("person", pa.table({"key": NAMES, "value": people}), value=PERSON),
            NewKeyedState.timers("event", pa.table({"key": NAMES, "timestamp": range(300)})),
        ),
        parallelism=3, max_parallelism=64,
        operator_states=(
            NewOperatorState("seen", pa.table({"value": NAMES}), "split", "String"),
            NewOperatorState(
                "known", pa.table({"key": NAMES, "value": IDS}), "broadcast", "Long", key="String"
            ),
        ),
    )  # fmt: skip


def orders() -> NewOperator:
    """By number: who it is, and what else is known by name."""
    return NewOperator(
        "orders", "Long",
        (
            NewKeyedState("row", pa.table({"key": IDS, "value": range(300)}), value="Long"),
            NewKeyedState("name", pa.table({"key": IDS, "value": NAMES}), value="String"),
            NewKeyedState(
                "friends",
                pa.table({"key": IDS, "user_key": NAMES, "value": NAMES[1:] + NAMES[:1]}),
                "map", value="String", user_key="String",
            ),
        ),
        parallelism=2, max_parallelism=128,
    )  # fmt: skip


def mask(tmp_path: Path, **said: Any) -> SharedForm:
    """What a file says."""
    path = tmp_path / "mask.yaml"
    path.write_text(yaml.safe_dump({"secret": {"env": "MASK_SECRET"}, **said}), "utf-8")
    return SharedForm(mask=read_mask(str(path)))


def all_masked(tmp_path: Path, how: str = "format", ids: str = "format") -> SharedForm:
    """A mask of all names and numbers; rows keep their numbers, so that they are known again."""
    return mask(
        tmp_path,
        keys={"customers": how, "orders": ids},
        states={
            "customers/row": "keep", "customers/id": ids,
            "customers/person": {"value.name": how, "value.id": ids, "value.tags[]": how},
            "customers/seen": how, "customers/known": {"key": how, "value": ids},
            "orders/row": "keep", "orders/name": how,
            "orders/friends": {"user_key": how, "value": how},
        },
    )  # fmt: skip


def export(lake: Catalog, sharing: SharedForm, to: Path, **options: Any) -> Path:
    """Export a snapshot to others."""
    export_snapshot(lake, "orders", "s", to, sharing=sharing, engine=LOCAL, **options)
    return to


def lake_of(tmp_path: Path, *operators: NewOperator) -> Catalog:
    """A lake with a snapshot of some operators."""
    write_snapshot(tmp_path / "written", operators, metadata_version=6)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "written", "s")
    return lake


def table(savepoint: Path, operator: str, state: str) -> list[Mapping[str, Any]]:
    """The rows of a state."""
    opened = open_snapshot(savepoint).operator(operator)
    others = {operator_state.name for operator_state in opened.operator_states}
    found = opened.operator_state(state) if state in others else opened.state(state)
    rows: list[Mapping[str, Any]] = found.to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("how", ["format", "hash"])
def test_joins_hold(lake: Catalog, tmp_path: Path, how: str) -> None:
    """A name is masked alike as a key, value, field, element and map's key; no two meet."""
    to = export(lake, all_masked(tmp_path, how, how), tmp_path / "out")
    name_of = {row["value"]: row["key"] for row in table(to, "customers", "row")}
    id_of = {row["value"]: row["key"] for row in table(to, "orders", "row")}
    names, ids = [name_of[at] for at in range(300)], [id_of[at] for at in range(300)]
    assert len(set(names)) == len(set(ids)) == 300
    assert not set(names) & set(NAMES)
    assert not set(ids) & set(IDS)
    if how == "format":
        assert all(re.fullmatch(r"[a-z]{8}-\d{4}", name) for name in names)
        assert all(10**10 <= number < 10**11 for number in ids)
    by_name, by_id = dict(zip(names, ids, strict=True)), dict(zip(ids, names, strict=True))
    assert {row["key"]: row["value"] for row in table(to, "customers", "id")} == by_name
    assert {row["key"]: row["value"] for row in table(to, "orders", "name")} == by_id
    (vip,) = {row["value"]["tags"][1] for row in table(to, "customers", "person")}
    assert [row["value"] for row in table(to, "customers", "person")] == [
        {"id": by_name[row["key"]], "name": row["key"], "tags": [row["key"], vip]}
        for row in table(to, "customers", "person")
    ]
    timers = table(to, "customers", EVENTS)
    assert {row["timestamp"]: row["key"] for row in timers} == name_of
    assert {row["value"] for row in table(to, "customers", "seen")} == set(names)
    assert {row["key"]: row["value"] for row in table(to, "customers", "known")} == by_name
    friends = {row["user_key"]: row["value"] for row in table(to, "orders", "friends")}
    assert friends == dict(zip(names, names[1:] + names[:1], strict=True))


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.full
def test_nothing_of_what_is_masked_is_in_the_bytes(
    lake: Catalog, tmp_path: Path, compression: str
) -> None:
    """Neither a name nor a number, in no file, compressed or not."""
    plain = tmp_path / "plain"
    export_snapshot(lake, "orders", "s", plain, engine=LOCAL, compression=compression)
    needles = [name.encode() for name in NAMES] + [number.to_bytes(8, "big") for number in IDS]
    assert sum(needle in content_of(plain) for needle in needles) == 600
    to = export(lake, all_masked(tmp_path), tmp_path / "out", compression=compression)
    content = content_of(to)
    assert [needle for needle in needles if needle in content] == []
    assert SECRET.encode() not in content


def content_of(savepoint: Path) -> bytes:
    """The bytes of all files, and what their Snappy streams hold."""
    content = b""
    for path in sorted(savepoint.rglob("*")):
        data = path.read_bytes()
        content += data
        at = data.find(IDENTIFIER)
        while at >= 0:
            behind = data.find(IDENTIFIER, at + 1)
            content += unpacked(data[at : behind if behind >= 0 else len(data)])
            at = behind
    return content


def unpacked(stream: bytes) -> bytes:
    """What the chunks of a framed Snappy stream hold, by the words of that format alone."""
    found, at = b"", 0
    while at + 4 <= len(stream):
        kind, size = stream[at], int.from_bytes(stream[at + 1 : at + 4], "little")
        chunk = stream[at + 4 : at + 4 + size]
        if kind == 0:
            found += bytes(cramjam.snappy.decompress_raw(chunk[4:]))
        elif kind == 1:
            found += chunk[4:]
        elif kind != 0xFF:
            break
        at += 4 + size
    return found


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(None, None), (5, 64), (3, 1000)])
def test_masked_keys_are_in_their_key_groups(
    lake: Catalog, tmp_path: Path, parallelism: int | None, max_parallelism: int | None
) -> None:
    """Whatever the parallelism, the savepoint is sound, and has every row."""
    to = export(
        lake, all_masked(tmp_path), tmp_path / "out",
        parallelism=parallelism, max_parallelism=max_parallelism,
    )  # fmt: skip
    report = check_snapshot(to)
    assert report.faults == ()
    assert report.checked.entries > 1800


def test_a_masked_sample_is_a_part_of_the_whole(lake: Catalog, tmp_path: Path) -> None:
    """First the keys are chosen, as they were, and then masked."""
    whole = export(lake, all_masked(tmp_path), tmp_path / "whole")
    sharing = SharedForm(Sample(0.2), all_masked(tmp_path).mask)
    part = export(lake, sharing, tmp_path / "part")
    for operator, state in (("customers", "person"), ("orders", "friends")):
        everything, some = (
            {row["key"]: row["value"] for row in table(to, operator, state)} for to in (whole, part)
        )
        assert 20 < len(some) < 110
        assert (
            some.items() <= {**everything}.items()
            if state == "friends"
            else all(everything[key] == value for key, value in some.items())
        )
    assert table(part, "customers", "known") == table(whole, "customers", "known")
    assert check_snapshot(part).faults == ()


def test_null_constants_and_what_is_dropped(lake: Catalog, tmp_path: Path) -> None:
    """Values that say nothing, and states that are not there."""
    sharing = mask(
        tmp_path,
        keys={"customers": "keep"},
        states={
            "customers/row": {"value": {"constant": 7}},
            "customers/person": {
                "value.name": None,
                "value.tags[]": {"constant": "x"},
                "value.id": "keep",
            },
            "customers/id": "drop",
        },
        others="drop",
    )
    done = export_snapshot(lake, "orders", "s", tmp_path / "out", sharing=sharing, engine=LOCAL)
    assert done.left_out == [
        "the state customers/id", "the state customers/seen", "the state customers/known",
        "the keyed state of operator orders",
    ]  # fmt: skip
    snapshot = open_snapshot(tmp_path / "out")
    names = {state.name for state in snapshot.operator("customers").keyed_states}
    assert names == {"row", "person", EVENTS}
    assert {row["value"] for row in table(tmp_path / "out", "customers", "row")} == {7}
    people = [row["value"] for row in table(tmp_path / "out", "customers", "person")]
    assert {(person["name"], *person["tags"]) for person in people} == {(None, "x", "x")}
    assert sorted(person["id"] for person in people) == IDS
    assert snapshot.operator("orders").keyed_states == ()


def test_what_nothing_is_said_of_is_refused(lake: Catalog, tmp_path: Path) -> None:
    """Each is named, and nothing is written; `others: keep` says it of all."""
    said = {"keys": {"customers": "format"}, "states": {"customers/id": "format"}}
    with pytest.raises(EncodeError) as refused:
        export(lake, mask(tmp_path, **said), tmp_path / "out")
    for name in ("customers/row", "customers/known", "orders/name", "the keys of operator orders"):
        assert name in str(refused.value)
    assert not (tmp_path / "out").exists()
    kept = export(lake, mask(tmp_path, **said, others="keep"), tmp_path / "out")
    assert {row["value"] for row in table(kept, "orders", "name")} == set(NAMES)


def advised(refused: pytest.ExceptionInfo[EncodeError]) -> dict[str, Any]:
    """The lines that a refusal names."""
    lines = re.findall(r"`((?:keys|states): \{.*?\})`", str(refused.value))
    return {name: rules for line in lines for name, rules in yaml.safe_load(line).items()}


def test_a_rule_for_a_state_is_one_for_all_its_columns(lake: Catalog, tmp_path: Path) -> None:
    """The keys of maps and of broadcast states as well, which are names here."""
    said = {"keys": {"customers": "format", "orders": "hash"}, "others": "drop"}
    states = {"orders/friends": "format", "customers/known": "format"}
    to = export(lake, mask(tmp_path, states=states, **said), tmp_path / "out")
    content = content_of(to)
    assert [name for name in NAMES if name.encode() in content] == []
    assert len({row["user_key"] for row in table(to, "orders", "friends")}) == 300
    assert len({row["key"] for row in table(to, "customers", "known")}) == 300


def test_no_word_that_sql_counts_stays(tmp_path: Path) -> None:
    """`COUNT(DISTINCT word)` has the words as the keys of a map."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", DISTINCT))
    (operator,) = [each for each in open_snapshot(DISTINCT).operators if each.keyed_states]
    distinct = f"{operator.label}/distinctAcc_0"
    words = {row["user_key"] for row in table(DISTINCT, operator.label, "distinctAcc_0")}
    texts = [str(word["f0"] if isinstance(word, dict) else word).encode() for word in words if word]
    assert sum(text in content_of(DISTINCT) for text in texts) == len(texts) > 0
    said = mask(
        tmp_path, keys={operator.label: "format"}, states={distinct: "format"}, others="drop"
    )
    to = export(lake, said, tmp_path / "out")
    assert [text for text in texts if text in content_of(to)] == []
    assert len(table(to, operator.label, "distinctAcc_0")) == len(
        table(DISTINCT, operator.label, "distinctAcc_0")
    )


def test_each_field_is_named_or_refused(lake: Catalog, tmp_path: Path) -> None:
    """Also where another field of that state is named; the lines that are advised do."""
    said: dict[str, Any] = {
        "keys": {"customers": "format", "orders": "format"},
        "states": {
            "customers/person": {"value.name": "format"},
            "customers/known": {"value": "format"},
            "orders/friends": {"value": "format"},
        },
    }
    with pytest.raises(EncodeError) as refused:
        export(lake, mask(tmp_path, **said), tmp_path / "out")
    for words in (
        "value.id, value.tags[] of customers/person", "key of customers/known",
        "user_key of orders/friends", "orders/name", "customers/row",
    ):  # fmt: skip
        assert words in str(refused.value)
    assert not (tmp_path / "out").exists()
    for name, rule in advised(refused)["states"].items():
        there = said["states"].setdefault(name, rule)
        if there is not rule:
            there.update(rule)
    to = export(lake, mask(tmp_path, **said), tmp_path / "out")
    assert [name for name in NAMES if name.encode() in content_of(to)] == []


def test_a_field_of_a_key_is_named_or_refused(tmp_path: Path) -> None:
    """One of two: the other would go out as it is."""
    rows = pa.table({"key": [{"f0": "alice", "f1": "berlin"}], "value": [1]})
    state = NewKeyedState("count", rows, value="Long")
    lake = lake_of(tmp_path, NewOperator("op", "Tuple2<String, String>", (state,)))
    said: dict[str, Any] = {"keys": {"op": {"f0": "format"}}, "states": {"op/count": "keep"}}
    with pytest.raises(EncodeError, match=r"key\.f1 of the keys of operator op") as refused:
        export(lake, mask(tmp_path, **said), tmp_path / "out")
    assert advised(refused) == {"keys": {"op": {"f1": "format"}}}
    said["keys"]["op"]["f1"] = "hash"
    content = content_of(export(lake, mask(tmp_path, **said), tmp_path / "out"))
    assert b"alice" not in content
    assert b"berlin" not in content


def test_a_part_has_its_own_rule_within_that_of_the_whole(lake: Catalog, tmp_path: Path) -> None:
    """All else of it is masked; what has no parts any more can't have one."""
    said = {"keys": {"customers": "keep"}, "others": "drop"}
    person: dict[str, Any] = {
        "value": "format", "value.tags": "keep", "value.id": {"constant": 7},
    }  # fmt: skip
    to = export(lake, mask(tmp_path, states={"customers/person": person}, **said), tmp_path / "out")
    rows = table(to, "customers", "person")
    assert {row["value"]["tags"][0] for row in rows} == set(NAMES)
    assert {row["value"]["id"] for row in rows} == {7}
    assert not {row["value"]["name"] for row in rows} & set(NAMES)
    person = {"value": None, "value.tags": "keep"}
    with pytest.raises(EncodeError, match=r"value.tags has a rule .* with the rule null"):
        export(lake, mask(tmp_path, states={"customers/person": person}, **said), tmp_path / "no")


def test_a_state_of_keys_alone_is_named_too(tmp_path: Path) -> None:
    """That it has a key says something; `others: drop` leaves it out, and timers stay."""
    rows = pa.table({"key": ["alice"], "value": [{"empty": True}]})
    state = NewKeyedState("seen", rows, value={"row_data": []})
    timers = NewKeyedState.timers("event", pa.table({"key": ["alice"], "timestamp": [7]}))
    lake = lake_of(tmp_path, NewOperator("op", "String", (state, timers)))
    said: dict[str, Any] = {"keys": {"op": "keep"}}
    with pytest.raises(EncodeError) as refused:
        export(lake, mask(tmp_path, **said), tmp_path / "out")
    assert advised(refused) == {"states": {"op/seen": "keep"}}
    to = export(lake, mask(tmp_path, others="drop", **said), tmp_path / "out")
    left = open_snapshot(to).operator("op").keyed_states
    assert [each.name for each in left] == [EVENTS]


def test_windows_are_named_and_kept(tmp_path: Path) -> None:
    """Of contents and of timers; a window that began at another time would be none."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", WINDOWS))
    said: dict[str, Any] = {
        "keys": {"tumbling": "format", "sliding": "format"},
        "states": {"tumbling/window-contents": {"value": "format"}},
    }
    with pytest.raises(EncodeError) as refused:
        export(lake, mask(tmp_path, **said), tmp_path / "out")
    assert "namespace of tumbling/window-contents" in str(refused.value)
    assert "tumbling/timers" in str(refused.value)
    states = advised(refused)["states"]
    assert states["tumbling/timers"] == "keep"
    states["tumbling/window-contents"] = "format"
    with pytest.raises(EncodeError, match=r"namespace\.start is a bound of a window, which can't"):
        export(lake, mask(tmp_path, **said | {"states": states}), tmp_path / "out")
    states["tumbling/window-contents"] = {"value": "format", "namespace": "keep"}
    to = export(lake, mask(tmp_path, **said | {"states": states}), tmp_path / "out")
    assert check_snapshot(to).faults == ()
    assert len(table(to, "tumbling", "window-contents")) > 0


@pytest.mark.parametrize("how", ["format", "hash", {"constant": "GOLD-9"}])
@pytest.mark.parametrize("state", ["tier", "person", "tiers", "avro"])
def test_an_enum_is_refused_before_anything_is_written(
    tmp_path: Path, state: str, how: Any
) -> None:
    """Also within a struct or a list, and no constant that a row has is in the message."""
    enum = {"enum": "acme.Tier", "constants": ["SECRET_TIER", "OTHER_TIER"]}
    states: dict[str, tuple[Any, Any]] = {
        "tier": (enum, "SECRET_TIER"),
        "person": ({"pojo": "acme.P", "fields": {"tier": enum, "name": "String"}},
                   {"name": "alice", "tier": "SECRET_TIER"}),
        "tiers": ({"list": enum}, ["SECRET_TIER"]),
        "avro": ({"avro": {"type": "record", "name": "R", "fields": [{"name": "tier", "type": [
                    "null", {"type": "enum", "name": "T", "symbols": enum["constants"]}]}]}},
                 {"tier": "SECRET_TIER"}),
    }  # fmt: skip
    kind, value = states[state]
    rows = pa.table({"key": ["a"], "value": [value]})
    lake = lake_of(
        tmp_path, NewOperator("op", "String", (NewKeyedState("state", rows, value=kind),))
    )
    part = {"tier": "value", "tiers": "value[]"}.get(state, "value.tier")
    rule = {part: how} if isinstance(how, dict) else how
    rule = rule | {"value.name": "keep"} if state == "person" and rule is not how else rule
    said = mask(tmp_path, keys={"op": "keep"}, states={"op/state": rule})
    with pytest.raises(EncodeError, match=re.escape(f"op/state: {part} is an enum")) as refused:
        export(lake, said, tmp_path / "out")
    assert "_TIER" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_the_branch_of_a_union_is_kept_and_what_is_in_it_masked(tmp_path: Path) -> None:
    """Another branch would be another type; of it all are named, or refused."""
    union = {"name": "who", "type": ["string", "long"]}
    kind = {"avro": {"type": "record", "name": "R", "fields": [union]}}
    values = [{"who": {"branch": 0, "b0": "alice"}}, {"who": {"branch": 1, "b1": 7_712_345}}]
    rows = pa.table({"key": ["a", "b"], "value": values})
    lake = lake_of(
        tmp_path, NewOperator("op", "String", (NewKeyedState("state", rows, value=kind),))
    )
    said: dict[str, Any] = {"keys": {"op": "keep"}, "states": {"op/state": "format"}}
    with pytest.raises(EncodeError, match=r"value\.who\.branch is the index of the field"):
        export(lake, mask(tmp_path, **said), tmp_path / "out")
    said["states"]["op/state"] = {"value": "format", "value.who.branch": "keep"}
    to = export(lake, mask(tmp_path, **said), tmp_path / "out")
    after = {row["key"]: row["value"]["who"] for row in table(to, "op", "state")}
    assert [after[key]["branch"] for key in "ab"] == [0, 1]
    assert re.fullmatch(r"[a-z]{5}", after["a"]["b0"])
    assert after["a"]["b0"] != "alice"
    assert 1_000_000 <= after["b"]["b1"] != 7_712_345


def test_exact_bytes_are_kept_by_one_rule_alone(tmp_path: Path) -> None:
    """What they hold beside the columns has no part that a mask could name."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", QUERIES))
    name = "f15fc7d4c60bf6d64da93457bd598ead"
    said: dict[str, Any] = {"keys": {name: "keep"}, "others": "drop"}
    parts = mask(tmp_path, states={f"{name}/accState": {"value.f0": "keep"}}, **said)
    whole = mask(tmp_path, states={f"{name}/accState": {"value": "keep"}}, **said)
    for sharing, exact in ((parts, 0), (whole, 2)):
        to = export(lake, replace(sharing, leave_out=True), tmp_path / str(exact))
        raw = [row["raw_value"] for row in table(to, name, "accState")]
        assert len([data for data in raw if data is not None]) == exact


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            {"states": {"customers/nam": "format", "customers/person": "format", "x/y": "format"}},
            "the snapshot has no 'customers/nam', 'x/y'",
        ),
        ({"keys": {"customer": "format"}}, "the snapshot has no 'customer'"),
        (
            {"states": {"customers/person": {"value.nam": "hash"}}},
            "there is no 'nam' in a value of type",
        ),
        ({"states": {"customers/person": {"user_key": "hash"}}}, "has no user_key to be masked"),
        ({"states": {"customers/person": {"key": "hash"}}}, "has no key to be masked"),
        ({"states": {"customers/id": {"value": {"constant": "x"}}}}, "'x' is not a valid int64"),
        ({"states": {"orders/friends": {"user_key": None}}}, "masked keys must stay different"),
        ({"states": {"customers/known": {"key": None}}}, "masked keys must stay different"),
    ],
)
def test_what_is_no_mask_of_this_snapshot(
    lake: Catalog, tmp_path: Path, said: dict[str, Any], problem: str
) -> None:
    """It is refused before anything is written."""
    with pytest.raises((EncodeError, NotFoundError), match=re.escape(problem)):
        export(lake, mask(tmp_path, **said, others="keep"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


TYPES = golden("types-hashmap-canonical-p2-m128-flink2.3.0").snapshot
OPAQUE = r"state \S+ of binary \(.*, which can't be masked"
KEPT = {"boolean", "enum"}


@pytest.mark.full
def test_every_type_that_has_a_format(tmp_path: Path) -> None:
    """Flink's types, each masked by format: as many values, sound, and hardly one as it was."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", TYPES))
    operator = open_snapshot(TYPES).operator("types")
    names = [state.name for state in operator.keyed_states if not state.name.startswith("_timer")]
    states: dict[str, Any] = {f"types/{name}": "format" for name in names}
    states["types/either"] = {"value": "format", "value.is_left": "keep"}
    states |= {f"types/{name}": "keep" for name in KEPT}
    sharing = mask(tmp_path, keys={"types": "keep"}, states=states)
    # some instants are finer than a microsecond, which only exact bytes hold
    with pytest.raises(EncodeError, match=r"\d+ rows have a value that the column does not hold"):
        export(lake, sharing, tmp_path / "refused")
    to = export(lake, SharedForm(None, sharing.mask, leave_out=True), tmp_path / "out")
    assert check_snapshot(to).faults == ()
    for name in names:
        before = {row["key"]: row["value"] for row in table(TYPES, "types", name)}
        after = {row["key"]: row["value"] for row in table(to, "types", name)}
        assert after.keys() == before.keys()
        same = sum(before[key] == value for key, value in after.items())
        assert same == len(after) if name in KEPT else same < len(after) / 5, name


def test_raw_state_is_left_out_or_refused(tmp_path: Path) -> None:
    """Nobody knows what is in it."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, raw_savepoint(tmp_path / "raw"), "s")
    sharing = mask(tmp_path, others="keep")
    with pytest.raises(UnsupportedFormatError, match="raw operator state of operator opstate"):
        export(lake, sharing, tmp_path / "out")
    export(lake, SharedForm(sharing.sample, sharing.mask, leave_out=True), tmp_path / "out")
    assert b"only the job can read this" not in content_of(tmp_path / "out")


def test_a_class_that_nobody_knows_is_refused_or_left_out(tmp_path: Path) -> None:
    """Its values are bytes: they are kept only where that is said of the state itself."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, own_savepoint("canonical", tmp_path / "own"), "s")
    said = mask(tmp_path, others="keep")
    with pytest.raises(UnsupportedFormatError, match=r"can't be masked.*--leave-out-opaque"):
        export(lake, said, tmp_path / "out")
    done = export_snapshot(
        lake, "orders", "s", tmp_path / "out", sharing=replace(said, leave_out=True), engine=LOCAL
    )
    assert any(re.search(OPAQUE, what) for what in done.left_out)
    label = next(operator.label for operator in open_snapshot(tmp_path / "own").operators
                 if operator.keyed_states)  # fmt: skip
    left = open_snapshot(tmp_path / "out").operator(label).keyed_states
    assert [state.name for state in left if "binary (" in state.value_type] == []
    assert left


RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}


@pytest.mark.parametrize(
    ("value", "is_known"),
    [
        ({"row_data": ["BIGINT", "VARBINARY(9)"]}, True),
        (
            {"avro": {"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}},
            True,
        ),
        ("Map<String, byte[]>", True),
        ({"row_data": ["BIGINT", "VARIANT"]}, False),
        ({"avro": RECURSIVE}, False),
        ({"pojo": "acme.Node", "fields": {"avro": {"avro": RECURSIVE}}}, False),
    ],
)
def test_bytes_of_others_are_told_from_bytes(tmp_path: Path, value: Any, *, is_known: bool) -> None:
    """A column of bytes is the job's own; what stands for more than its bytes is not masked."""
    rows = pa.table({"key": pa.array([], pa.string()), "value": pa.nulls(0)})
    operator = NewOperator("op", "String", (NewKeyedState("state", rows, value=value),))
    write_snapshot(tmp_path / "typed", [operator], metadata_version=6)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "typed", "s")
    said = mask(tmp_path, others="keep")
    if is_known:
        export(lake, said, tmp_path / "out")
        return
    with pytest.raises(
        UnsupportedFormatError, match=r"state op/state of .*, which can't be masked"
    ):
        export(lake, said, tmp_path / "out")


def test_the_secret_is_shown_to_nobody(tmp_path: Path) -> None:
    """Not even where a mask is printed."""
    sharing = mask(tmp_path, states={"customers/id": "format"}, others="keep")
    assert SECRET not in repr(sharing)


def test_a_compressed_job_with_timers(tmp_path: Path) -> None:
    """A snapshot of three subtasks, compressed by Flink: all keys masked, all timers with them."""
    lake = import_golden(Catalog(tmp_path / "lake"), ("s", KINDS))
    to = export(lake, mask(tmp_path, keys={"kinds": "format"}, others="keep"), tmp_path / "out")
    assert check_snapshot(to).faults == ()
    keys = {row["key"] for row in table(to, "kinds", "total")}
    assert {row["key"] for row in table(to, "kinds", "_timer_state/event_user-timers")} <= keys
    assert not keys & {row["key"] for row in table(KINDS, "kinds", "total")}


def test_keys_of_a_hash_that_nobody_knows_are_not_masked(tmp_path: Path) -> None:
    """No one could say in which key group Flink looks for them."""
    rows = pa.table({"key": [{"name": "A"}, {"name": "B"}], "value": [1, 2], "key_group": [3, 4]})
    pojo = {"pojo": "acme.Tier", "fields": {"name": "String"}}
    tiers = NewOperator(
        "tiers", pojo, (NewKeyedState("count", rows, value="Long"),), max_parallelism=8
    )
    write_snapshot(tmp_path / "tiers", [tiers], metadata_version=6)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "tiers", "s")
    with pytest.raises(UnknownHashError, match="say `keep` of these keys"):
        export(lake, mask(tmp_path, keys={"tiers": "format"}, others="keep"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
