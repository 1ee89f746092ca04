"""`--decode`: states whose texts are JSON, and whose bytes are messages of a registry."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import statelake as sl
from statelake.state_core.errors import (
    ConflictError,
    DeclarationError,
    EncodeError,
    IncompatibleError,
    InexactError,
    NotFoundError,
)
from tests.support.command import run

PAGE = Path(__file__).parents[4] / "docs" / "types.md"
BLOCK = re.compile(r"```\n(\$ statelake import [^\n]* --decode .*?)```", re.DOTALL)
ORDER: dict[str, Any] = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}  # fmt: skip
PROFILES = [
    '{"id":1,"name":"Ada","tags":["x"],"address":{"city":"Bonn"}}',
    '{"id":2,"name":"Ben","tags":[],"address":{"city":"Köln","zip":"5"}}',
    '{"id": 3, "name": "Cid"}',
    "no json",
]


def message(number: int, item: str) -> bytes:
    """A message of an order."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"id": 5, "item": item})
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def write(to: Path, profiles: list[str] = PROFILES) -> Path:
    """A savepoint of texts, bytes, lists and maps of texts, with TTL, and of numbers."""
    keys = [f"c{number}" for number in range(len(profiles))]
    texts = pa.array(profiles, pa.string())
    orders = [message(7, "tea"), message(7, "jam"), b"", message(8, "oil")][: len(keys)]
    states = (
        sl.NewKeyedState("profile", pa.table({"key": keys, "value": texts}), value="String"),
        sl.NewKeyedState("orders", pa.table({"key": keys, "value": orders}), value="byte[]"),
    )
    sl.write_snapshot(to, [sl.NewOperator("crm", "String", states)], metadata_version=5)
    return to


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A savepoint."""
    return write(tmp_path / "savepoint-5f1e2c")


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """What is said of the orders."""
    file = tmp_path / "orders.json"
    file.write_text(json.dumps({"7": ORDER}))
    return f"crm/orders=avro:{file}"


@pytest.fixture
def job(tmp_path: Path) -> sl.Job:
    """A job of an empty lake."""
    return sl.Lake(tmp_path / "lake").job("crm", engine="local")


def files_of(savepoint: Path) -> list[bytes]:
    """The files of a savepoint, whose names are random."""
    return sorted(each.read_bytes() for each in savepoint.iterdir() if each.name != "_metadata")


def rows(job: sl.Job, query: str) -> list[dict[str, Any]]:
    """The rows of a query."""
    return list(job.sql(query).read_all().to_pylist())


def test_json_and_messages_are_columns_and_an_export_is_the_same(
    savepoint: Path, orders: str, job: sl.Job, tmp_path: Path
) -> None:
    """Texts with spaces, no JSON, and a schema that is not known keep their bytes."""
    job.import_snapshot(savepoint, "monday", decode=["crm/profile=json", orders])
    assert rows(job, "SELECT key, value.address.city FROM crm.profile ORDER BY key") == [
        {"key": "c0", "city": "Bonn"}, {"key": "c1", "city": "Köln"},
        {"key": "c2", "city": None}, {"key": "c3", "city": None},
    ]  # fmt: skip
    assert rows(job, "SELECT value.item, value.schema_id FROM crm.orders ORDER BY key") == [
        {"item": "tea", "schema_id": 7}, {"item": "jam", "schema_id": 7},
        {"item": None, "schema_id": None}, {"item": None, "schema_id": None},
    ]  # fmt: skip
    job["monday"].export(tmp_path / "export")
    assert files_of(tmp_path / "export") == files_of(savepoint)


def test_an_edited_value_is_written_anew(savepoint: Path, orders: str, job: sl.Job) -> None:
    """Without spaces and nulls; all others as they were."""
    job.import_snapshot(savepoint, "monday", decode=["crm/profile=json", orders])
    made = run(
        "sql", "--lake", job.lake.catalog.location, "--job", "crm",
        "--edit", "monday", "--as", "tuesday",
        "UPDATE crm.profile SET value = struct_update(value, name := 'Cyd') WHERE key = 'c2'",
    )  # fmt: skip
    assert made.code == 0, made.err
    to = Path(job.lake.catalog.location) / "export"
    job["tuesday"].export(to)
    profile = sl.open_snapshot(to)["crm"]["profile"].to_arrow()
    held = dict(zip(*(profile.column(name).to_pylist() for name in ("key", "value")), strict=True))
    assert held == {**dict(zip(("c0", "c1", "c2", "c3"), PROFILES, strict=True)),
                    "c2": '{"id":3,"name":"Cyd"}'}  # fmt: skip


def test_what_only_exact_bytes_hold_is_erased_by_these(job: sl.Job, tmp_path: Path) -> None:
    """A predicate of columns does not see it, as the page says."""
    job.import_snapshot(
        write(tmp_path / "one", ['{"id":"1","name":"Ada"}', '{"id":2,"name":"Ben"}']), "monday",
        decode=['crm/profile=json:{"id":"long","name":"string"}'],
    )  # fmt: skip
    of_bytes = "value IS NULL AND contains(CAST(raw_value AS VARCHAR), 'Ada')"
    assert of_bytes.partition("'")[0] in (PAGE.parent / "erase.md").read_text("utf-8")
    for number, (where, code) in enumerate({"value.name = 'Ada'": 1, of_bytes: 0}.items()):
        ran = run("erase", "--lake", job.lake.catalog.location, "--where", "crm/profile", where,
                  "--request", f"request-{number}", "--yes")  # fmt: skip
        assert ran.code == code, ran.err
    assert [row["key"] for row in rows(job, "SELECT key FROM crm.profile")] == ["c1"]


MIGRATED = [
    ("String", "struct_update(old, name := 'Q')", ['{"id":1,"name":"Q"}']),
    ("byte[]", "{'id': old.id + 1, 'name': old.name}", [b'{"id":2,"name":"Ada"}']),
    ("Long", "old.id", [1]),
]


@pytest.mark.parametrize(("kind", "sql", "values"), MIGRATED, ids=[kind for kind, *_ in MIGRATED])
def test_migrated_texts_still_hold_it(
    kind: str, sql: str, values: list[Any], job: sl.Job, tmp_path: Path
) -> None:
    """An expression sees columns, and gives columns, where the new type is text or bytes."""
    job.import_snapshot(
        write(tmp_path / "one", ['{"id":1,"name":"Ada"}']), "one", decode=["crm/profile=json"]
    )
    lake = ("--lake", job.lake.catalog.location, "--job", "crm", "--snapshot")
    words = ("--change", f"crm/profile={kind}", "--expression", f"crm/profile={sql}")
    ran = run("migrate", *lake, "one", *words)
    assert ran.code == 0, ran.err
    job["one-migrated"].export(tmp_path / "out")
    shown = sl.open_snapshot(tmp_path / "out")["crm"]["profile"].to_arrow()
    assert shown["value"].to_pylist() == values


MASKS: list[tuple[str, str, str]] = [
    ("crm/orders", "{value.item: format, value.id: keep, value.schema_id: keep}", ""),
    ("crm/orders", "format", "value.schema_id is the number of its schema"),
    ("crm/profile", "{value.id: keep, value.name: format, value.more: keep}", ""),
    ("crm/profile", '{value.id: keep, value.name: hash, value.more: "null"}', ""),
    ("crm/profile", "{value.id: keep, value.name: keep, value.more: format}", "JSON of any class"),
    ("crm/profile", "{value.id: keep, value.name: keep, value.more: hash}", "JSON of any class"),
    ("crm/whole", "format", "JSON of any class"),
]


@pytest.mark.parametrize(("state", "rule", "refused"), MASKS, ids=[rule for _, rule, _ in MASKS])
def test_a_part_of_what_is_held_is_masked_or_refused_by_name(
    state: str, rule: str, refused: str, job: sl.Job, tmp_path: Path
) -> None:
    """A field of a message, or of JSON; not the schema's number, nor what stays JSON."""
    keys, texts = ["a"], ['{"id":1,"name":"Ada","more":{"x":[null,"Ada"]}}']
    values = {"profile": texts, "whole": texts, "orders": [message(7, "Ada")]}
    states = [
        sl.NewKeyedState(name, pa.table({"key": keys, "value": held}),
                         value="byte[]" if name == "orders" else "String")
        for name, held in values.items()
    ]  # fmt: skip
    operator = sl.NewOperator("crm", "String", states)
    sl.write_snapshot(tmp_path / "one", [operator], metadata_version=5)
    (tmp_path / "7.json").write_text(json.dumps({"7": ORDER}))
    job.import_snapshot(tmp_path / "one", "one", decode=[
        'crm/profile=json:{"id":"long","name":"string","more":"json"}', 'crm/whole=json:"json"',
        f"crm/orders=avro:{tmp_path}/7.json",
    ])  # fmt: skip
    (tmp_path / "secret").write_text("0123456789abcdef")
    rules = tmp_path / "mask.yaml"
    others = "".join(f"  crm/{name}: drop\n" for name in values if f"crm/{name}" != state)
    rules.write_text(
        f"secret: {{file: {tmp_path}/secret}}\nkeys: {{crm: keep}}\n"
        f"states:\n  {state}: {rule}\n{others}"
    )
    ran = run("export", "--lake", job.lake.catalog.location, "--job", "crm", "--snapshot", "one",
              "--to", tmp_path / "out", "--mask", rules)  # fmt: skip
    assert (ran.code == 3, refused in ran.err) == (bool(refused), True), ran.err
    if not refused:
        shown = sl.open_snapshot(tmp_path / "out")["crm"][state[4:]].to_arrow()
        assert shown["value"][0].as_py() not in values[state[4:]]


def test_a_shape_grows_from_snapshot_to_snapshot(job: sl.Job, tmp_path: Path) -> None:
    """A field that the next one lacks stays a column; the same import again changes nothing."""
    first = write(tmp_path / "first", ['{"a":1,"b":"x"}'])
    second = write(tmp_path / "second", ['{"a":1.5,"c":true}'])
    for name, savepoint in (("first", first), ("second", second)):
        assert job.import_snapshot(savepoint, name, decode=["crm/profile=json"]).new
    columns = job["second"]["crm"]["profile"].schema.field("value").type
    assert columns == pa.struct({"a": pa.float64(), "b": pa.string(), "c": pa.bool_()})
    assert not job.import_snapshot(first, "first", decode=["crm/profile=json"]).new


def test_snapshots_with_and_without_it_are_compared_by_their_bytes(
    savepoint: Path, job: sl.Job
) -> None:
    """Columns that differ are no difference."""
    job.import_snapshot(savepoint, "plain")
    job.import_snapshot(savepoint, "typed", decode=["crm/profile=json"])
    ran = run("diff", "plain", "typed", "--lake", job.lake.catalog.location, "--job", "crm")
    assert (ran.code, "retyped" in ran.out, ran.out.count("same")) == (0, False, 2), ran.out


def test_what_was_imported_without_it_is_told(savepoint: Path, job: sl.Job) -> None:
    """The same id can't have other columns."""
    job.import_snapshot(savepoint, "monday")
    with pytest.raises(ConflictError, match="without the columns of what --decode says"):
        job.import_snapshot(savepoint, "monday", decode=["crm/profile=json"])


def test_what_was_imported_with_another_shape_is_told(savepoint: Path, job: sl.Job) -> None:
    """It is not taken for done; the same shape again is."""
    said, other = ('crm/profile=json:{"id":"long"}', 'crm/profile=json:{"name":"string"}')
    job.import_snapshot(savepoint, "monday", decode=[said])
    assert not job.import_snapshot(savepoint, "monday", decode=[said]).new
    with pytest.raises(ConflictError, match="without the columns of what --decode says"):
        job.import_snapshot(savepoint, "monday", decode=[other])
    with pytest.raises(DeclarationError, match="given twice"):
        job.import_snapshot(savepoint, "tuesday", decode=[said, other])


WRONG = [
    ("crm/nothing=json", NotFoundError, "begins with no keyed state"),
    ("crm/profile", NotFoundError, "begins with no keyed state"),
    ("crm/profile=xml", DeclarationError, "no form of what a state holds"),
    ("crm/profile=json:", DeclarationError, "no form of what a state holds"),
    ("crm/profile=avro", DeclarationError, "no form of what a state holds"),
    ("crm/profile=json:missing.json", DeclarationError, "can't be read"),
    ("crm/profile=json:{", EncodeError, "no shape of JSON"),
    ("crm/orders=json", EncodeError, "none of the first 10000 values is JSON"),
]


@pytest.mark.parametrize(("word", "kind", "why"), WRONG, ids=[word for word, *_ in WRONG])
def test_what_can_not_be_said_is_told(
    word: str, kind: type[Exception], why: str, savepoint: Path, job: sl.Job
) -> None:
    """Before anything is written."""
    with pytest.raises(kind, match=why):
        job.import_snapshot(savepoint, "monday", decode=[word])
    assert not Path(job.lake.catalog.location).exists()


def test_numbers_hold_nothing(job: sl.Job, tmp_path: Path) -> None:
    """The state is named."""
    state = sl.NewKeyedState("total", pa.table({"key": ["a"], "value": [1]}), value="Long")
    to = tmp_path / "numbers"
    sl.write_snapshot(to, [sl.NewOperator("crm", "String", (state,))], metadata_version=5)
    with pytest.raises(IncompatibleError, match="crm/total: its values are Long"):
        job.import_snapshot(to, "monday", decode=["crm/total=json"])


def test_lists_maps_and_ttl_are_read(tmp_path: Path, job: sl.Job) -> None:
    """The elements of a list, the values of a map; exported as they were."""
    keys = ["a", "b"]
    lists = pa.table({"key": keys, "value": [['{"n":1}', '{"n":2}'], ["x"]]})
    maps = pa.table({"key": keys, "user_key": ["u", "v"], "value": ['{"n":1}', '{"n": 2}']})
    aged = pa.table({"key": keys, "value": ['{"n":1}', '{"n":5}'], "ttl": [1, 2]})
    states = (
        sl.NewKeyedState("lists", lists, kind="list", value="String"),
        sl.NewKeyedState("maps", maps, kind="map", user_key="String", value="String"),
        sl.NewKeyedState("aged", aged, value="String", with_ttl=True),
    )
    to = tmp_path / "savepoint"
    sl.write_snapshot(to, [sl.NewOperator("crm", "String", states)], metadata_version=5)
    said = [f"crm/{state.name}=json" for state in states]
    snapshot = sl.open_snapshot(to, decode=said)
    values = {
        state.name: dict(zip(*(state.to_arrow().column(name).to_pylist()
                               for name in ("key", "value")), strict=True))
        for state in snapshot["crm"].keyed_states
    }  # fmt: skip
    assert values == {
        "lists": {"a": [{"n": 1}, {"n": 2}], "b": [None]},
        "maps": {"a": {"n": 1}, "b": {"n": 2}},
        "aged": {"a": {"n": 1}, "b": {"n": 5}},
    }
    job.import_snapshot(to, "monday", decode=said)
    job["monday"].export(tmp_path / "export")
    assert files_of(tmp_path / "export") == files_of(to)


@pytest.mark.parametrize("words", [["dump"], ["inspect"], ["get", "--key", "c0"], ["find"]])
def test_commands_that_show_values_take_it(words: list[str], savepoint: Path) -> None:
    """Without a lake."""
    value = ["Ada"] if words == ["find"] else []
    ran = run(words[0], *value, savepoint, *words[1:], "--decode", "crm/profile=json")
    assert ran.code == 0, ran.err
    assert {"dump": '"city": "Bonn"', "inspect": "String of JSON"}.get(words[0], "Bonn") in ran.out


def test_a_lake_has_the_columns_of_its_import(savepoint: Path, job: sl.Job) -> None:
    """There it is not said again."""
    job.import_snapshot(savepoint, "monday", decode=["crm/profile=json"])
    words = ["get", "--lake", job.lake.catalog.location, "--job", "crm", "--key", "c0"]
    assert '"city": "Bonn"' in run(*words).out
    refused = run(*words, "--decode", "crm/profile=json")
    assert (refused.code, "--decode is for a SAVEPOINT" in refused.err) == (2, True)


def test_the_page_shows_what_is_printed(
    savepoint: Path, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both commands, one after the other."""
    assert savepoint.exists()
    assert orders
    monkeypatch.chdir(tmp_path)
    (block,) = BLOCK.findall(PAGE.read_text("utf-8"))
    for part in block.removeprefix("$ statelake ").split("$ statelake "):
        command, _, shown = part.partition("\n")
        ran = run(*shlex.split(command))
        assert ran.code == 0, ran.err
        printed = "\n".join(line.rstrip() for line in ran.out.splitlines()) + "\n"
        pattern = re.escape(shown).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, printed), f"{command}\n{printed}"


def test_a_null_that_is_none_decides_nothing(savepoint: Path, orders: str, job: sl.Job) -> None:
    """A text that is no JSON is refused, until its bytes are named; one with spaces is not."""
    job.import_snapshot(savepoint, "monday", decode=["crm/profile=json", orders])
    nulls = "DELETE FROM crm.profile WHERE value IS NULL"
    with pytest.raises(InexactError, match="1 row has a value that the column does not hold"):
        job["monday"].edit_sql("tuesday", nulls)
    job["monday"].edit_sql("tuesday", f"{nulls} AND raw_value IS NOT NULL")
    assert [row["key"] for row in rows(job, "SELECT key FROM crm.profile ORDER BY key")] == [
        "c0", "c1", "c2",
    ]  # fmt: skip
