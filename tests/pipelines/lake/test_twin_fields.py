"""Fields that differ only in their case: each has a column, and what is done to it finds it again.

In bytes that real Flink 2.3 wrote: `twin` has the fields `ID` and `id`, and within it `A` and `a`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable

import statelake as sl
from statelake import open_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.errors import EncodeError, PluginError
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.serializers import Decoder, register_decoder
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import written_by
from tests.support.command import run
from tests.support.lakes import Contents, entries, import_golden
from tests.support.savepoints.kryo_savepoint import CAR, kryo_snapshot
from tests.support.savepoints.names_by_case import names_by_case
from tests.support.serializers.serializer_columns import encode

OPERATORS = ("op", "OP")
TWIN = {
    "ID_2": "UP3", "id": "low3", "inner": {"A_2": 2, "a": 1, "namespace": "n"}, "key": 3,
    "key_group": -3, "list": [{"A_2": 0, "a": 0, "namespace": None}], "select": "s", "value": 21,
}  # fmt: skip


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flink's savepoint."""
    return names_by_case(tmp_path_factory.mktemp("names") / "savepoint", *OPERATORS)


@pytest.fixture
def lake(savepoint: Path, tmp_path: Path) -> Path:
    """A lake that has it as snapshot `one` of job `j`."""
    import_golden(Catalog(tmp_path / "lake"), ("one", savepoint), job="j")
    return tmp_path / "lake"


@pytest.fixture
def twin(lake: Path, tmp_path: Path) -> Callable[[str], dict[int, bytes]]:
    """The bytes of each twin of `op`, by key, in the export of a snapshot of the lake."""

    def values(snapshot: str) -> dict[int, bytes]:
        to = tmp_path / f"{snapshot}-out"
        words = ("--lake", lake, "--job", "j", "--snapshot", snapshot)
        assert run("export", *words, "--to", to, "--engine", "local").code == 0
        return twins_in(entries(to), to)

    return values


def twins_in(contents: Contents, savepoint: Path) -> dict[int, bytes]:
    """The bytes of each twin of `op`, by its key, a Long."""
    held = contents[open_snapshot(savepoint).operator("op").operator_id, "twin"]
    return {int.from_bytes(key[:8], "big"): value for _, key, value in held}


def done(*words: object) -> str:
    """What a command printed that went well."""
    ran = run(*words)
    assert ran.code == 0, ran.err
    return ran.out


def text(value: str) -> bytes:
    """A field's text as Flink writes it: its null flag, the length and one, and characters."""
    return bytes([0, len(value) + 1]) + value.encode()


def test_an_export_of_an_unchanged_import_is_the_same_to_the_byte(
    lake: Path, savepoint: Path, tmp_path: Path
) -> None:
    """Its entries, and the serializers with the fields' own names."""
    done("export", "--lake", lake, "--job", "j", "--snapshot", "one", "--to", tmp_path / "out")
    assert entries(tmp_path / "out") == entries(savepoint)
    for name in OPERATORS:
        before, after = (
            open_snapshot(each).operator(name) for each in (savepoint, tmp_path / "out")
        )
        assert [each.meta_info for each in before.keyed_states] == [
            each.meta_info for each in after.keyed_states
        ]


def test_a_tables_columns_say_the_names_of_their_fields(lake: Path) -> None:
    """In the table's own metadata, nested ones too."""
    schema = json.loads(DeltaTable(str(lake / "j/keyed/op/twin")).schema().to_json())
    (value,) = (each["type"]["fields"] for each in schema["fields"] if each["name"] == "value")
    fields = {each["name"]: each for each in value}
    assert {name: each["metadata"] for name, each in fields.items() if each["metadata"]} == {
        "ID_2": {"statelake.field": "ID"}
    }
    for inner in (fields["inner"]["type"], fields["list"]["type"]["elementType"]):
        assert {each["name"]: each["metadata"] for each in inner["fields"]} == {
            "A_2": {"statelake.field": "A"}, "a": {}, "namespace": {},
        }  # fmt: skip


@pytest.mark.full
def test_what_needs_no_lake_shows_both(savepoint: Path, tmp_path: Path) -> None:
    """`inspect` says which field a column has; no command refuses."""
    said = done("inspect", savepoint)
    for column, name in {"ID_2": "ID", "inner.A_2": "A", "list.A_2": "A"}.items():
        assert f"twin.value.{column}: the field {name}, " in said
    operators = run("inspect", savepoint, "--json").json["operators"]
    (operator,) = (each for each in operators if each["operator-uid"] == "op")
    renamed = {each["name"]: each.get("renamed") for each in operator["keyed_states"]}
    assert renamed["twin"] == {"value.ID_2": "ID", "value.inner.A_2": "A", "value.list.A_2": "A"}
    assert renamed["count"] is None
    of_twin = ("--operator", "op", "--state", "twin")
    (row,) = run("get", savepoint, "--key", "3", *of_twin, "--json").json
    assert row["value"] == TWIN
    assert TWIN in [row["value"] for row in run("dump", savepoint, *of_twin).lines]
    assert "value.ID_2" in done("find", "UP3", savepoint)
    done("export", savepoint, "--to", tmp_path / "out", "--engine", "local")
    assert entries(tmp_path / "out") == entries(savepoint)
    assert "nothing was found" in done("upgrade", savepoint)
    assert run("diff", savepoint, tmp_path / "out", "--fail-on-diff").code == 0


@pytest.mark.full
def test_sql_reads_and_writes_each_field(
    lake: Path, savepoint: Path, twin: Callable[[str], dict[int, bytes]]
) -> None:
    """An edit lands in the field that the column has, and in no other byte."""
    of = ("--lake", lake, "--job", "j")
    query = "SELECT value.id, value.ID_2, value.inner.A_2, value.list[1].a FROM op.twin"
    (row,) = run("sql", *of, f"{query} WHERE value.ID_2 = 'UP3'", "--json").lines
    assert list(row.values()) == ["low3", "UP3", 2, 0]
    before = twins_in(entries(savepoint), savepoint)
    changes = {
        "upper": ("ID_2 := 'XX3'", text("UP3"), text("XX3")),
        "lower": ("id := 'LOW3'", text("low3"), text("LOW3")),
        # two numbers, each behind its null flag, as Flink orders them: `A`, then `a`
        "inner": (
            "inner := struct_update(value.inner, A_2 := 7)",
            bytes([0, 0, 0, 0, 2, 0, 0, 0, 0, 1]), bytes([0, 0, 0, 0, 7, 0, 0, 0, 0, 1]),
        ),
    }  # fmt: skip
    for name, (change, was, becomes) in changes.items():
        edit = f"UPDATE op.twin SET value = struct_update(value, {change}) WHERE key = 3"
        done("sql", *of, "--edit", "one", "--as", name, edit)
        assert before[3].count(was) == 1
        assert twin(name) == before | {3: before[3].replace(was, becomes)}
    said = run("diff", *of, "one", "upper", "--json").json
    (changed,) = (each for each in said if each["changed"])
    assert (changed["operator"], changed["state"], changed["changed"]) == ("op", "twin", 1)


@pytest.mark.full
def test_rows_are_found_and_erased_by_either_field(
    lake: Path, savepoint: Path, twin: Callable[[str], dict[int, bytes]]
) -> None:
    """A predicate over `ID_2` is about `ID`."""
    of = ("--lake", lake, "--job", "j")
    done("edit", *of, "--parent", "one", "--snapshot", "purged", "--purge", "op/twin",
         "value.ID_2 = 'UP3' OR value.inner.A_2 = 9")  # fmt: skip
    before = twins_in(entries(savepoint), savepoint)
    assert twin("purged") == {key: value for key, value in before.items() if key != 3}
    where = "value.ID_2 IN ('UP4', 'low5') OR value.id = 'low6'"
    done("erase", *of, "--where", "op/twin", where, "--request", "r", "--yes")
    assert twin("one") == {key: value for key, value in before.items() if key not in (4, 6)}


def test_masks_are_of_one_field(savepoint: Path, tmp_path: Path) -> None:
    """By the name of the column; the other field keeps its bytes, and a wrong name is refused."""
    mask = tmp_path / "mask.yaml"
    rules = {
        "value": "keep",
        "value.ID_2": {"constant": "XX3"},
        "value.list[].A_2": {"constant": 9},
    }
    mask.write_text(yaml.safe_dump({"others": "keep", "states": {"op/twin": rules}}))
    done("export", savepoint, "--to", tmp_path / "out", "--mask", mask, "--engine", "local")
    before, after = (twins_in(entries(each), each) for each in (savepoint, tmp_path / "out"))
    element = bytes([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])  # `A`, `a`, and no namespace
    assert before[3].count(element) == 1
    masked = before[3].replace(text("UP3"), text("XX3"))
    assert after[3] == masked.replace(element, bytes([2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1]))
    mask.write_text(mask.read_text().replace("ID_2", "ID"))
    refused = run("export", savepoint, "--to", tmp_path / "other", "--mask", mask)
    assert refused.code == 3
    assert "there is no 'ID'" in refused.err


MIGRATIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "renamed": (["--rename-field", "op/twin.ID=code"], {"code": "UP3", "id": "low3"}),
    "renamed-by-column": (["--rename-field", "op/twin.ID_2=code"], {"code": "UP3", "id": "low3"}),
    "lower-dropped": (["--drop-field", "op/twin.id"], {"ID": "UP3"}),
    "upper-dropped": (["--drop-field", "op/twin.ID_2"], {"id": "low3"}),
    "third": (
        ["--add-field", "op/twin.Id=String", "--default", "old.ID_2 || old.id"],
        {"ID_3": "UP3", "Id_2": "UP3low3", "id": "low3"},
    ),
    "a-field-of-that-name": (
        ["--add-field", "op/twin.ID_2=long"], {"ID_2": 0, "ID_3": "UP3", "id": "low3"},
    ),
    "used-by-its-column": (
        ["--drop-field", "op/twin.id", "--change", "op/twin.ID=Long",
         "--expression", "op/twin.ID=len(old.ID_2)"], {"ID": 3},
    ),
    "nested": (
        ["--rename-field", "op/twin.inner.A=b"],
        {"ID_2": "UP3", "id": "low3", "inner": {"a": 1, "b": 2, "namespace": "n"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIGRATIONS)
def test_migrations_keep_each_field_its_values(name: str, lake: Path, tmp_path: Path) -> None:
    """Fields go by their names in Flink, whatever their columns are called before and after."""
    words, expected = MIGRATIONS[name]
    of = ("--lake", lake, "--job", "j")
    done("migrate", *of, "--snapshot", "one", "--suffix", "-2", *words)
    done("export", *of, "--snapshot", "one-2", "--to", tmp_path / "out", "--engine", "local")
    (row,) = run(
        "get", tmp_path / "out", "--key", "3", "--operator", "op", "--state", "twin", "--json"
    ).json
    others = {name: held for name, held in TWIN.items() if name not in ("ID_2", "id")}
    assert row["value"] == others | expected


def test_states_and_operators_that_differ_only_in_their_case(lake: Path) -> None:
    """Each has a table of its own; a name that may be several is refused."""
    of = ("--lake", lake, "--job", "j")
    for state, first in {"Count": 0, "count": 1, "COUNT": 2}.items():
        for operator in ("op", "OP"):
            query = f'SELECT sum(value - key * 100 - {first}) AS n FROM {operator}."{state}"'
            assert run("sql", *of, query, "--json").lines == [{"n": 0}]
    refused = run("sql", *of, "SELECT * FROM op.cOUNT")
    assert refused.code == 3
    assert all(f".{state}" in refused.err for state in ("count", "Count", "COUNT"))
    assert "write it with the capital letters that it has" in refused.err


def test_an_upgrade_to_flink_2_finds_both_fields(tmp_path: Path) -> None:
    """What Flink 1's Kryo wrote of each becomes Flink 2's of the same."""
    uuid, tags = (kryo_snapshot().of_class(f"java.util.{name}") for name in ("UUID", "List"))
    pojo = PojoSerializerSnapshot.of("a.A", {"ID": uuid, "id": uuid, "TAGS": tags, "tags": tags})
    first, second = (f"00000000-0000-0000-0000-{number:012}" for number in (1, 2))
    value = {"ID_2": first, "id": second, "TAGS_2": '["x"]', "tags": '["y", "z"]'}
    with written_by(1):
        serializer = pojo.restore_serializer()
        (written,) = encode(serializer, pa.array([value], serializer.arrow_type))
    rows = pa.table({"key": ["k"], "value": [written]})
    operator = sl.NewOperator("crm", "String", (sl.NewKeyedState("p", rows, value=pojo),))
    sl.write_snapshot(tmp_path / "one", [operator], metadata_version=4)
    (row,) = run("dump", tmp_path / "one").lines
    assert row["value"] == value
    done("upgrade", tmp_path / "one", "--to", tmp_path / "two", "--uid", "crm")
    (row,) = run("dump", tmp_path / "two").lines
    assert row["value"] == value | {"TAGS_2": ["x"], "tags": ["y", "z"]}


@pytest.mark.parametrize("upper", ["ID", "ID_2"])
def test_bootstrap_takes_the_names_of_fields_and_of_columns(upper: str, tmp_path: Path) -> None:
    """In rows, in a specification by field and in a constant, each all the same bytes."""
    kind = {"pojo": "a.A", "fields": {"ID": "String", "id": "String"}}
    whole = {upper: "UP", "id": "low"}
    rows = pa.table({"key": [1], "value": [whole], "up": ["UP"], "low": ["low"]})

    def made(name: str, value: Any) -> list[tuple[int, bytes, bytes]]:
        state = {"type": kind, "source": "rows", "key": "key", "value": value}
        spec = {"operators": {"op": {"key_type": "Long", "states": {"s": state}}}}
        bootstrap(None, spec, tmp_path / name, sources={"rows": rows}, engine="local")
        return entries(tmp_path / name, ["op"])[operator_id_of_uid("op"), "s"]

    for name, value in {
        "rows": "value", "fields": {upper: "up", "id": "low"}, "constant": {"constant": whole},
    }.items():  # fmt: skip
        ((_, _, written),) = made(name, value)
        assert written == b"\x02" + text("UP") + text("low")
    with pytest.raises(EncodeError, match="no field 'Id' in the type"):
        made("other", {"constant": {**whole, "Id": "x"}})


class Pair(Decoder):
    """Says two fields that no table takes both."""

    arrow_type = pa.struct({"a": pa.int64(), "A": pa.int64()})

    def decode(self, data: bytes) -> dict[str, int]:
        """Return both fields."""
        return {"a": 1, "A": 2}


@pytest.mark.usefixtures("own_registry")
def test_a_decoder_with_such_names_is_told_before_anything_is_written(tmp_path: Path) -> None:
    """It is the plugin that has to say others; without a lake it may."""
    value = kryo_snapshot(CAR)
    rows = pa.table({"key": ["k"], "value": [b"\0"]})
    operator = sl.NewOperator("crm", "String", (sl.NewKeyedState("p", rows, value=value),))
    sl.write_snapshot(tmp_path / "one", [operator], metadata_version=5)
    register_decoder(CAR, Pair())
    with pytest.raises(PluginError, match="crm/p: the fields 'a' and 'A' differ only"):
        sl.Lake(tmp_path / "lake").job("crm").import_snapshot(tmp_path / "one")
    assert not list(tmp_path.glob("lake/crm/**/*.parquet"))
