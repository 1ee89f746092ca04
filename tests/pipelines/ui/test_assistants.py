"""`statelake mcp`, asked by the official client, over standard input and output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from starlette.testclient import TestClient

import statelake as sl
from statelake.pipelines.ui.assistants import Tools
from statelake.pipelines.ui.audit import Audit
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.server import Site
from statelake.pipelines.ui.views import Name, Source
from statelake.state_core.errors import CorruptSnapshotError, EncodeError, LakeError, StateError
from tests.support.command import run
from tests.support.lakes import DEMO, FLINK, demo_lake, files_of
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.hostile_names import hostile_savepoint
from tests.support.served_pages import PROGRAM

READING = {"scan", "inspect", "types", "diff", "offsets", "check_types", "check_integrity"}
OF_LAKE = {"growth", "erasures"}
OF_VALUES = {"get", "top", "sql"}
PEOPLE = ("alice@example.org", "bob@example.org")
KAFKA = FLINK / "kafka"


class Asked:
    """The tools of a server, and all that it answered."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.told = ""

    async def call(self, tool: str, **words: str) -> CallToolResult:
        """What a tool answers."""
        answer = await self.client.call_tool(tool, words)
        self.told += answer.model_dump_json()
        return answer

    async def text(self, tool: str, **words: str) -> str:
        """The text of an answer."""
        answer = await self.call(tool, **words)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        assert not answer.is_error, content.text
        return content.text

    async def json(self, tool: str, **words: str) -> Any:
        """The JSON of an answer."""
        return json.loads(await self.text(tool, **words))

    async def error(self, tool: str, **words: str) -> str:
        """What a tool refuses."""
        answer = await self.call(tool, **words)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        assert answer.is_error, content.text
        return content.text


def ask(ask_all: Callable[[Asked], Coroutine[Any, Any, None]], *words: str | Path) -> str:
    """Ask a server of one's own; all that it said."""
    arguments = ["-u", "-c", PROGRAM, "mcp", *map(str, words)]
    told: list[str] = []

    async def main() -> None:
        started = StdioServerParameters(command=sys.executable, args=arguments, cwd=Path.cwd())
        async with Client(stdio_client(started)) as client:
            asked = Asked(client)
            await ask_all(asked)
            told.append(asked.told)

    anyio.run(main)
    return told[0]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two snapshots of the demo's job."""
    return demo_lake(tmp_path_factory.mktemp("mcp") / "lake")


@pytest.mark.full
def test_a_lake_is_answered_as_by_the_commands(lake: Path) -> None:
    """Each tool, and nothing is written."""
    before = files_of(lake)
    job = sl.Lake(lake).job("demo", engine="local")
    held = sl.open_snapshot(DEMO / "monday")
    (key, *_) = held["kinds"]["total"].to_arrow()["key"].to_pylist()
    of = {"job": "demo", "snapshot": "monday"}

    async def all_tools(asked: Asked) -> None:
        listed = await asked.client.list_tools()
        assert {tool.name for tool in listed.tools} == READING | OF_LAKE | OF_VALUES
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed.tools)
        assert all(tool.description for tool in listed.tools)
        assert [each["snapshot"] for each in await asked.json("scan")] == ["tuesday", "monday"]
        (kinds,) = (await asked.json("inspect", operator="kinds", **of))["operators"]
        states = {state["name"]: state["entries"] for state in kinds["keyed_states"]}
        assert states["total"] == held["kinds"]["total"].to_arrow().num_rows
        differ = await asked.json("diff", job="demo", earlier="monday", later="tuesday")
        assert [each["state"] for each in differ] == [
            each.state for each in job["monday"].diff("tuesday") if each.status != "same"
        ]
        assert any(each["examples"] for each in differ)
        types = await asked.text("types", **of)
        assert types == str(job["monday"].types())
        verdicts = await asked.json("check_types", types=types, **of)
        assert verdicts["compatible"]
        assert {each["state"] for each in verdicts["states"]} >= set(states)
        assert (await asked.json("check_integrity", **of))["sound"]
        grown = await asked.json("growth", job="demo")
        assert grown["sentences"] == list(job.growth().sentences)
        assert (await asked.json("erasures"))["records"] == []
        assert set(await asked.json("offsets", **of)) == {"sources", "sinks"}
        got = run("get", "--lake", lake, "--job", "demo", "--snapshot", "monday", f"--key={key}",
                  "--json")  # fmt: skip
        assert await asked.json("get", key=str(key), **of) == json.loads(got.out)
        total = (await asked.json("top", operator="kinds", **of))["total"]
        assert total["keys"] == states["total"]
        assert len(total["heaviest"]) == min(10, states["total"])
        (total,) = [
            each["heaviest"]
            for name, each in (await asked.json("top", operator="kinds", limit=3, **of)).items()
            if name == "total"
        ]
        assert len(total) == 3
        pairs = "SELECT * FROM (VALUES ('a', 1), ('a', 2), ('b', 3)) AS t (x, y) ORDER BY y"
        answer = await asked.json("sql", query=pairs, **of)
        assert answer["rows"] == [["a", 1], ["a", 2], ["b", 3]]
        query = "SELECT count(*) AS rows FROM kinds.total"
        answer = await asked.json("sql", query=query, **of)
        assert answer == {"columns": ["rows"], "rows": [[states["total"]]], "more": False}
        assert "demo.kinds.total" in await asked.json("sql", query="", **of)

    ask(all_tools, lake, "--values")
    assert files_of(lake) == before


@pytest.mark.full
def test_a_query_that_takes_too_much_is_ended(lake: Path) -> None:
    """Too long, or too much memory; the assistant is told what to raise."""
    of = {"job": "demo", "snapshot": "monday"}

    async def queries(asked: Asked) -> None:
        query = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
        assert "--query-seconds" in await asked.error("sql", query=query, **of)
        query = "SELECT repeat('x', 2000000000) FROM range(1000)"
        assert "--query-memory" in await asked.error("sql", query=query, **of)
        assert (await asked.json("sql", query="SELECT 1 AS a", **of))["rows"] == [[1]]

    ask(queries, lake, "--values", "--query-memory", "64MiB", "--query-seconds", "5")


@pytest.mark.full
def test_a_directory_is_answered_and_nothing_beside_it() -> None:
    """Only snapshots that were found; errors have the words of the command."""

    async def all_tools(asked: Asked) -> None:
        listed = await asked.client.list_tools()
        assert {tool.name for tool in listed.tools} == READING
        assert {each["snapshot"] for each in await asked.json("scan")} == {"monday", "tuesday"}
        assert (await asked.json("check_integrity", snapshot="monday")) == {
            "sound": True, "fault_count": 0
        }  # fmt: skip
        for name in ("..", "/etc", "monday/..", "no"):
            assert "no snapshot" in await asked.error("inspect", snapshot=name)
        assert "it has: kinds" in await asked.error("inspect", snapshot="monday", operator="kind")
        assert "Unknown tool" in str(await asked.error("sql", snapshot="monday", query="SELECT 1"))
        refused = await asked.error("check_types", snapshot="monday", types="[")
        assert ": types.yaml:1: it is no YAML" in refused
        differ = await asked.json("diff", earlier="monday", later="tuesday")
        assert not any(each["examples"] for each in differ)

    ask(all_tools, DEMO)


def people(path: Path) -> Path:
    """Two savepoints with names in keys and values."""
    for number in (1, 2):
        rows = pa.table(
            {"key": pa.array(PEOPLE), "value": pa.array(f"{each}{number}" for each in PEOPLE)}
        )
        state = sl.NewKeyedState("mail", rows, value="String")
        operator = sl.NewOperator("customers", "String", (state,), parallelism=1)
        sl.write_snapshot(path / f"savepoint-{number}", [operator], metadata_version=6)
    return path


@pytest.mark.parametrize("in_lake", [False, True])
@pytest.mark.full
def test_without_values_no_answer_has_one(tmp_path: Path, *, in_lake: bool) -> None:
    """Neither a key nor a value, of any tool."""
    location = people(tmp_path / "all")
    words = {"job": "people"} if in_lake else {}
    if in_lake:
        job = sl.Lake(tmp_path / "lake").job("people", engine="local")
        for number in (1, 2):
            job.import_snapshot(location / f"savepoint-{number}", f"savepoint-{number}")
        location = tmp_path / "lake"

    async def all_tools(asked: Asked) -> None:
        await asked.json("scan")
        of = {**words, "snapshot": "savepoint-1"}
        for tool in ("inspect", "offsets", "check_integrity"):
            await asked.json(tool, **of)
        types = await asked.text("types", **of)
        await asked.json("check_types", types=types, **of)
        found = await asked.json("diff", earlier="savepoint-1", later="savepoint-2", **words)
        assert [each["changed"] for each in found] == [2]
        if in_lake:
            await asked.json("growth", job="people")
            await asked.json("erasures")

    told = ask(all_tools, location)
    assert "mail" in told
    assert not any(person.partition("@")[0] in told for person in PEOPLE)


@pytest.mark.parametrize(
    ("name", "secret", "shown"),
    [
        ("mysql-cdc-snapshot-3.5", '"chunk_end": "100"', "shop.orders"),
        ("files-2.3", "goldwork/texts", "records_after_position"),
        ("numbers-to-files-2.3", '"bucket": "2026', "next_number"),
        ("delta-table-0.6", "year=2026", "to_commit"),
    ],
)
@pytest.mark.full
def test_offsets_without_values_have_none(name: str, secret: str, shown: str) -> None:
    """Bounds of chunks are keys; paths and buckets may be of values. With values they are there."""

    async def offsets(asked: Asked) -> None:
        assert shown in await asked.text("offsets", snapshot=".")

    def said(*words: str | Path) -> str:
        return ask(offsets, GOLDEN / "sources" / name, *words).replace('\\"', '"')

    assert secret not in said()
    assert secret in said("--values")


@pytest.mark.full
def test_errors_and_arguments_without_values(tmp_path: Path) -> None:
    """An error quotes no value, and an argument that a tool does not have is no default."""

    async def refused(asked: Asked) -> None:
        types = "states: {customers/mail: {type: String, alice: 1}}"
        said = await asked.error("check_types", snapshot="savepoint-1", types=types)
        assert "no entry here" in said
        said = await asked.error("check_types", snapshot="savepoint-1", types="'alice 4711471'")
        assert "alice" not in said
        assert "4711471" not in said
        said = await asked.error("inspect", snapshot="savepoint-1", opperator="x")
        assert "has no argument 'opperator'; it has: snapshot, job, operator; did you mean" in said

    ask(refused, people(tmp_path / "all"))


@pytest.mark.full
def test_looks_are_in_the_audit_file(tmp_path: Path) -> None:
    """Before they are answered; names of a hostile snapshot are data in JSON."""
    path = hostile_savepoint(tmp_path / "sp")
    audit = tmp_path / "looks.jsonl"

    async def all_tools(asked: Asked) -> None:
        held = await asked.json("inspect", snapshot=".")
        for operator in held["operators"]:
            await asked.json("top", snapshot=".", operator=operator["operator-uid-hash"])
        await asked.json("get", snapshot=".", key="1")

    told = ask(all_tools, path, "--values", "--audit", audit)
    assert told.isprintable()
    looks = [json.loads(line)["look"] for line in audit.read_text().splitlines()]
    assert looks[-1] == "key"
    assert set(looks[:-1]) == {"top"}


@pytest.mark.parametrize("values", [True, False])
def test_each_tool_that_shows_values_is_in_the_audit_file(lake: Path, *, values: bool) -> None:
    """All but those of which the table says that they have names alone; with the arguments."""
    written: list[tuple[str, Name, dict[str, str]]] = []

    class Kept(Audit):
        def write(self, look: str, name: Name, **words: str) -> None:
            written.append((look, name, words))

    known = {"job": "demo", "snapshot": "monday", "earlier": "monday", "later": "tuesday",
             "operator": "kinds", "key": "1", "query": "SELECT 1", "types": "{}",
             "limit": 5, "state": None, "sort": "bytes", "since": "monday", "until": None,
             "ahead": 7, "allow_non_restored_state": True}  # fmt: skip

    async def call_all(server: MCPServer) -> set[str]:
        tools = await server.list_tools()
        for tool in tools:
            wanted = {each: known[each] for each in tool.input_schema.get("properties", {})}
            with suppress(ToolError):
                await server.call_tool(tool.name, wanted)
        return {tool.name for tool in tools}

    with closing(Source(lake, Options(values=values))) as source:
        called = anyio.run(call_all, Tools(source, Kept("")).server())
    without = {"scan", "inspect", "types", "check_types", "erasures"}
    looks = {"key" if tool == "get" else tool for tool in called - without}
    assert {look for look, *_ in written} == (looks if values else set())
    monday = Name("demo", "monday")
    assert ("check_integrity" in looks, ("sql", monday, {"query": "SELECT 1"}) in written) == (
        True, values
    )  # fmt: skip
    of_diff = ("diff", Name("demo", "tuesday"), {"earlier": "monday", "sort": "bytes"})
    assert (of_diff in written) == values


@pytest.mark.parametrize(
    "fault",
    [
        EncodeError("no alice here", place="op/s", remedy="give alice@example.org"),
        LakeError("could not convert alice to a number"), StateError("alice is refused"),
        KeyError("alice"), CorruptSnapshotError("a length of 4 at alice", place="a/_metadata"),
    ],
    ids=lambda fault: type(fault).__name__,
)  # fmt: skip
def test_errors_without_values_have_no_words_of_theirs(
    lake: Path, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quoted or not: they have the kind and the place, in the browser, too; with values, all."""

    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr(Source, "contents", fails)
    of = {"job": "demo", "snapshot": "monday"}
    for values in (True, False):
        with closing(Source(lake, Options(values=values))) as source:
            with pytest.raises(ToolError) as refused:
                anyio.run(Tools(source, Audit("")).server().call_tool, "inspect", of)
            told = values and isinstance(fault, StateError)
            assert ("alice" in str(refused.value)) == told
            assert getattr(fault, "place", "") in str(refused.value)
            app = Site(source, Audit("")).app()
            client = TestClient(app, raise_server_exceptions=False)
            answer = client.get("/snapshot?job=demo&snapshot=monday")
        assert answer.status_code == (400 if isinstance(fault, StateError) else 500)
        assert values or "alice" not in answer.text


def test_a_mask_is_for_values(tmp_path: Path) -> None:
    """Where none are shown, none are masked."""
    ran = run("mcp", tmp_path, "--mask", "mask.yaml")
    assert (ran.code, "--mask and --audit are for --values" in ran.err) == (2, True)
