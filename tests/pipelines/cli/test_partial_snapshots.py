"""A snapshot of which something can't be read: all else is served, and what is not is named."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.orchestration.metadata import savepoint_metadata
from statelake.pipelines.ui import pages
from statelake.pipelines.ui.options import Options
from statelake.pipelines.ui.views import Name, Source
from statelake.state_core.errors import CorruptSnapshotError, UnreachableFileError
from statelake.state_core.files.filesystem import ConfinedDirectory
from statelake.state_core.formats import expiring
from statelake.state_core.formats.keyed.headed_file import HeadedFile
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.metadata.stream_map import moved_streams, streams_of
from statelake.state_core.formats.operator_state.operator_file import OperatorFile
from statelake.state_core.formats.operator_state.operator_states import OperatorLayout
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.model.handles import (
    FileHandle,
    InlineHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.command import Ran, run

GOLDEN = Path(__file__).parents[2] / "golden"
FLINK = GOLDEN / "flink"
SMALL = (
    "operator-hashmap-canonical-snappy-p3-m128-flink2.3.0/savepoint",
    "windows-hashmap-canonical-p2-m128-flink2.3.0/savepoint",
    "wordcount-hashmap-native-p2-m128-flink2.3.0/savepoint",
    "churn-rocksdb-checkpoint-p2-m128-flink2.3.0/checkpoints/chk-20",
)
TABLES = "kinds-rocksdb-native-p2-m128-flink2.3.0/savepoint"
WAYS = ("gone", "empty", "denied")


def copied(fixture: Path, to: Path) -> Path:
    """Copy a snapshot with the directories of its job; return its directory."""
    whole = fixture.parent if fixture.name.startswith("chk-") else fixture
    shutil.copytree(whole, to, dirs_exist_ok=True)
    return to / fixture.name if whole is not fixture else to


def files_of(snapshot: Path) -> list[Path]:
    """Return the files that handles of a snapshot lead to."""
    opened = sl.open_snapshot(snapshot)
    files: StateFiles = opened.files
    return sorted(
        {
            Path(files.open(stream, complete=False, shared=True).name)
            for stream in streams_of(opened.metadata)
            if isinstance(stream, FileHandle | RelativeHandle | SegmentHandle)
        }
    )


def dumped(snapshot: Path) -> tuple[dict[tuple[str, str], Counter[str]], int, str]:
    """Return the lines of each state, the exit code and the message of `dump`."""
    ran = run("dump", snapshot)
    lines: dict[tuple[str, str], Counter[str]] = {}
    for line in ran.lines:
        lines.setdefault((line["operator"], line["state"]), Counter())[json.dumps(line)] += 1
    return lines, ran.code, ran.err


def states_of(described: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the states of `inspect --json`, by operator and name."""
    return {
        (operator["operator-uid"] or operator["operator-uid-hash"], state["name"]): state
        for operator in described["operators"]
        for state in (*operator["keyed_states"], *operator["operator_states"])
    }


def spoil(file: Path, way: str, patch: pytest.MonkeyPatch) -> None:
    """Make a file unreadable."""
    if way == "gone":
        file.unlink()
    elif way == "empty":
        os.truncate(file, 0)
    else:
        opened = os.open

        def refusing(path: Any, *words: Any, **more: Any) -> int:
            if str(path).endswith(file.name):
                raise PermissionError(13, "Permission denied")
            return opened(path, *words, **more)

        patch.setattr(os, "open", refusing)


Served = dict[tuple[str, str], Any]  # by operator and state


def of_states(rows: list[dict[str, Any]]) -> Served:
    """Return how often each row is there, by operator and state."""
    found: Served = {}
    for row in rows:
        found.setdefault((row["operator"], row["state"]), Counter())[json.dumps(row)] += 1
    return found


def weighed(ran: Ran) -> Served:
    """Return what `top` says of each state that has entries."""
    return {
        (operator["operator"], state["state"]): state
        for operator in ran.json["operators"]
        for state in operator["states"]
        if state["entries"]
    }


def reported(ran: Ran) -> Served:
    """Return nothing: what the page shows is that of `inspect` and `top`."""
    assert Path(ran.json["path"]).stat().st_size == ran.json["bytes"]
    return {}


Reader = tuple[Callable[[Path], Ran], Callable[[Ran], Served], Served]


def readers(whole: Path, lines: dict[tuple[str, str], Counter[str]], page: Path) -> list[Reader]:
    """Return commands that read state, each with how it serves each state, and what of the whole.

    Args:
        whole: The snapshot.
        lines: What `dump` prints of it.
        page: Where `report` writes.
    """
    rows = [json.loads(line) for counted in lines.values() for line in counted]
    found: list[tuple[Callable[[Path], Ran], Callable[[Ran], Served]]] = [
        (lambda at: run("top", at, "--json", "--limit", 1), weighed),
        (lambda at: run("expired", at, "--ttl", "1d", "--at", "2100-01-01T00:00Z", "--json"),
         lambda ran: of_states(ran.json["states"])),
        (lambda at: run("report", at, "--to", page, "--overwrite", "--limit", 1, "--json"),
         reported),
    ]  # fmt: skip
    keys = [row["key"] for row in rows if "key_group" in row]
    if keys:
        text = keys[0] if isinstance(keys[0], str) else json.dumps(keys[0])
        get = lambda at: run("get", at, "--key", text, "--json")  # noqa: E731
        find = lambda at: run("find", text.strip("{}"), at, "--json", "--contains")  # noqa: E731
        found.append((get, lambda ran: of_states(ran.json)))
    else:
        find = lambda at: run("find", "a", at, "--json", "--contains")  # noqa: E731
    found.append((find, lambda ran: of_states(ran.json["hits"])))
    ran = [(ask(whole), ask, serve) for ask, serve in found]
    return [(ask, serve, held_by(serve, done)) for done, ask, serve in ran if done.code != 3]


def held_by(serve: Callable[[Ran], Served], ran: Ran) -> Served:
    """Return what a command serves; nothing if it has only said what it can't read."""
    return serve(ran) if ran.out else {}


def check_served(reader: Reader, ran: Ran, lost: set[tuple[str, str]], file: str) -> None:
    """Check that a command serves what is not lost, and names the file of what is."""
    _, serve, right = reader
    served = held_by(serve, ran)
    for place, held in right.items():
        assert place in lost or served.get(place) == held, (file, place)
    assert {*served} <= {*right}, file
    assert ran.code == 3 or (served == right and not (serve is reported and lost)), file
    assert ran.code != 3 or file in ran.err, (file, ran.err)


def sweep(
    fixture: Path, tmp_path: Path, ways: tuple[str, ...], *, each_way: bool, every: bool = False
) -> int:
    """Make each file of a fixture unreadable in turn; return how many were tried.

    Args:
        fixture: The snapshot.
        tmp_path: Where copies go.
        ways: The ways.
        each_way: Whether each file in each way, or in one of them.
        every: Whether each other command reads each of them; else one in turn, or none in each way.
    """
    whole = copied(fixture, tmp_path / "whole")
    lines, code, _ = dumped(whole)
    assert code == 0
    inspected = run("inspect", whole, "--json").json
    described = states_of(inspected)
    names = {  # messages name an operator without a uid by its name
        operator["operator-uid"] or operator["operator-uid-hash"]: operator["operator-uid"]
        or operator["operator-name"]
        for operator in inspected["operators"]
    }
    kinds = {place: "mode" in state for place, state in described.items()}
    types = {
        (operator["operator"], state["state"]): state
        for operator in run("types", whole, "--json").json["operators"]
        for state in operator["states"]
    }
    offsets = run("offsets", whole, "--json").json
    reading = readers(whole, lines, tmp_path / "page.html") if every or not each_way else []
    tried = 0
    for number, file in enumerate(files_of(whole)):
        for way in ways if each_way else (ways[number % len(ways)],):
            spoiled = copied(fixture, tmp_path / "spoiled")
            with pytest.MonkeyPatch.context() as patch:
                spoil(tmp_path / "spoiled" / file.relative_to(tmp_path / "whole"), way, patch)
                inspected = run("inspect", spoiled, "--json")
                left, dump_code, said = dumped(spoiled)
                typed = run("types", spoiled, "--json")
                listed = run("offsets", spoiled, "--json")
                chosen = reading if every or not reading else [reading[tried % len(reading)]]
                asked = [(reader, reader[0](spoiled)) for reader in chosen]
            shutil.rmtree(tmp_path / "spoiled")
            tried += 1
            why = file.name, way
            found = states_of(inspected.json)
            unread = [
                (operator["operator-uid"] or operator["operator-uid-hash"], part)
                for operator in inspected.json["operators"]
                for part in operator.get("unread", ())
            ]
            problems = inspected.json.get("problems", [])
            assert inspected.code == (3 if problems else 0), why
            assert all(file.name in str(part["files"]) for _, part in unread), why
            lost = {(label, "keyed" in part["what"]) for label, part in unread}
            # what is shown of a state is right, or marked
            for place, state in found.items():
                assert state.get("problem") or state == described[place], (why, place)
            # other operators, and their other kind of state, are as before
            for place, state in described.items():
                if (place[0], not kinds[place]) not in lost and problems:
                    assert found[place] == state or found[place].get("problem"), (why, place)
                if (place[0], not kinds[place]) not in lost and (place[0] not in str(problems)):
                    assert found[place] == state, (why, place)
                    assert left.get(place) == lines.get(place), (why, place)
            for place, counted in lines.items():
                assert not left.get(place, Counter()) - counted, (why, place)
                if left.get(place) != counted:
                    assert dump_code == 3, (why, place)
                    assert f"operator {names[place[0]] or place[0]}" in said, (why, place)
            assert dump_code == 3 or left == lines, why
            if dump_code == 3:
                assert file.name in said, why
                assert problems, why
            kept = {
                (operator["operator"], state["state"]): state
                for operator in typed.json["operators"]
                for state in operator["states"]
            }
            assert kept.items() <= types.items(), why
            assert typed.code == 3 or kept == types, why
            for role in ("sources", "sinks"):
                for one in listed.json[role]:
                    assert one.get("problems") or one in offsets[role], why
            assert listed.code == 3 or listed.json == offsets, why
            for reader, ran in asked:
                check_served(
                    reader, ran, {at for at in lines if left.get(at) != lines[at]}, file.name
                )
    return tried


@pytest.mark.parametrize("fixture", SMALL, ids=lambda name: name.split("-p")[0])
@pytest.mark.full
def test_one_unreadable_file_closes_no_other_state(fixture: str, tmp_path: Path) -> None:
    """Whatever file it is: the states of others are served, and it is named."""
    assert sweep(FLINK / fixture, tmp_path, WAYS, each_way=False) > 1


LONGEST = {"types-hashmap-native-p2-m128-flink2.3.0", "kinds-rocksdb-native-p2-m128-flink2.3.0"}


def every(*, nightly: Collection[str]) -> pytest.MarkDecorator:
    """Each golden savepoint of several files; some of them each night alone."""
    found = {
        str(each.parent.relative_to(FLINK)).split("/")[0]: each.parent
        for each in sorted(FLINK.glob("**/_metadata"))
        if len(list(each.parent.iterdir())) > 1
    }
    marks = {name: [pytest.mark.nightly] if name in nightly else [] for name in found}
    return pytest.mark.parametrize(
        "fixture", [pytest.param(path, id=name, marks=marks[name]) for name, path in found.items()]
    )


@pytest.mark.nightly
@every(nightly=())
def test_every_command_serves_what_can_be_read(fixture: Path, tmp_path: Path) -> None:
    """Of every golden savepoint, whichever file is gone."""
    assert sweep(fixture, tmp_path, WAYS[:1], each_way=True, every=True) > 1


@pytest.mark.full
@every(nightly=LONGEST)
def test_no_unreadable_file_closes_another_state(fixture: Path, tmp_path: Path) -> None:
    """The same of every golden savepoint, each file in each way."""
    assert sweep(fixture, tmp_path, WAYS, each_way=True) > 1


JOB, OTHER = "a" * 32, "b" * 32


def alone(
    fixture: Path, to: Path, change: Callable[[StreamHandle], StreamHandle] = lambda each: each
) -> CheckpointMetadata:
    """Write the `_metadata` of a fixture alone, with other handles."""
    before = read_metadata((fixture / "_metadata").read_bytes())
    metadata = moved_streams(before, change, lambda directory: directory)
    to.mkdir(parents=True)
    (to / "_metadata").write_bytes(write_metadata(metadata))
    return metadata


def in_buckets(stream: StreamHandle) -> StreamHandle:
    """Return the handle of a file that the job has in a bucket, or another job in another one."""
    if isinstance(stream, RelativeHandle):
        return FileHandle(f"s3://flink/{JOB}/chk-20/{stream.path}", stream.size)
    if isinstance(stream, FileHandle):
        name = stream.uri.rpartition("/")[2]
        return FileHandle(f"s3://key:secret@old/{OTHER}/shared/{name}", stream.size)
    return stream


def test_metadata_alone_tells_what_it_can(tmp_path: Path) -> None:
    """Operators, sizes, kinds, files, and whose directories: of a bucket that nobody allowed."""
    fixture = FLINK / SMALL[3]
    alone(fixture, tmp_path / "there/chk-20", in_buckets)
    ran = run("inspect", tmp_path / "there/chk-20", "--json")
    assert ran.code == 3
    other, error = ran.err.splitlines()
    assert other.startswith("also: operator churn, subtask 1, keyed state, ")
    assert error.startswith("error: operator churn, subtask 0, keyed state, ")
    assert "outside the snapshot; if that place is yours, allow it: --allow-external s3:" in ran.err
    whole = run("inspect", copied(fixture, tmp_path / "whole"), "--json").json
    unknown = {"key_type", "keyed_states", "key_groups", "subtasks", "unread"}
    for found, held in zip(ran.json["operators"], whole["operators"], strict=True):
        wanted = {name: value for name, value in held.items() if name not in unknown}
        assert {name: value for name, value in found.items() if name not in unknown} == wanted
    assert (ran.json["size_bytes"], ran.json["compression"]) == (whole["size_bytes"], "?")
    churn = ran.json["operators"][0]
    assert (churn["key_groups"], churn["subtasks"], churn["keyed_states"]) == (None, None, [])
    assert [each["handle"] for each in churn["unread"]] == ["RocksDB", "RocksDB"]
    needs = {each["directory"]: each for each in ran.json["needs"]}
    assert list(needs) == [f"s3://flink/{JOB}/chk-20", f"s3://old/{OTHER}/shared"]
    own, other = needs.values()
    assert (own["owner"], own["job"]) == ("its job", JOB)
    assert (other["owner"], other["job"]) == ("another job", OTHER)
    assert own["bytes"] + other["bytes"] == whole["size_bytes"]
    assert set(other["files"]) == {file.name for file in (tmp_path / "whole/shared").iterdir()}
    text = run("inspect", tmp_path / "there/chk-20").out
    assert "another job:" in text
    assert "? keyed" in text
    assert "secret" not in text + ran.out + ran.err
    assert run("offsets", tmp_path / "there/chk-20").code == 0  # no operator is a source
    assert run("types", tmp_path / "there/chk-20").out.count("# ? not known: operator churn") == 2
    (found,) = run("scan", tmp_path / "there/chk-20", "--json").json["snapshots"]
    assert found["state"] == "elsewhere"
    assert f"s3://old/{OTHER}/shared (18 files), which is not below" in found["problems"][0]


def test_state_in_metadata_is_served_whole(tmp_path: Path) -> None:
    """Beside state whose file is gone: its lines, its counts and its types."""
    fixture = FLINK / "operator-hashmap-canonical-snappy-p3-m128-flink2.3.0/savepoint"
    whole, _, _ = dumped(fixture)

    def inline(stream: StreamHandle) -> StreamHandle:
        if isinstance(stream, RelativeHandle) and stream.size > 1000:
            return InlineHandle("inline", (fixture / stream.path).read_bytes())
        return stream

    alone(fixture, tmp_path / "alone", inline)
    left, code, said = dumped(tmp_path / "alone")
    assert code == 3
    assert "operator rules, subtask 0, operator state 'rules', " in said
    assert left == {place: lines for place, lines in whole.items() if place[0] != "rules"}
    described = run("inspect", tmp_path / "alone", "--json").json
    assert (
        states_of(described).items()
        >= {
            place: state
            for place, state in states_of(run("inspect", fixture, "--json").json).items()
            if place[0] != "rules"
        }.items()
    )
    ran = run("dump", tmp_path / "alone", "--operator", "opstate")
    assert (ran.code, len(ran.lines)) == (0, sum(sum(each.values()) for each in left.values()))
    ran = run("dump", tmp_path / "alone", "--state", "rules")
    assert (ran.code, ran.out) == (3, "")
    assert run("types", tmp_path / "alone", "--operator", "rules").code == 3
    assert run("types", tmp_path / "alone", "--operator", "opstate").code == 0


def test_a_partition_of_a_reader_that_is_gone_is_not_finished(tmp_path: Path) -> None:
    """Where no reader is known to have it, nobody knows; others stay assigned."""
    fixture = GOLDEN / "sources/kafka-5.0"
    whole = run("offsets", fixture, "--json").json["sources"][0]
    assert [each["status"] for each in whole["splits"]] == ["assigned"] * 3
    metadata = read_metadata((fixture / "_metadata").read_bytes())
    for operator in metadata.operators:
        handle = (operator.subtasks or {0: None})[0].managed_operator
        if handle is not None and "SourceReaderState" in handle.states:
            operator.subtasks[0].managed_operator = replace(
                handle, stream=RelativeHandle("gone", handle.stream.size)
            )
    (tmp_path / "_metadata").write_bytes(write_metadata(metadata))
    ran = run("offsets", tmp_path, "--json")
    assert ran.code == 3
    assert "subtask 0, operator state 'SourceReaderState'" in ran.err
    (found,) = ran.json["sources"]
    assert [(each["subtask"], each["partition"], each["status"]) for each in found["splits"]] == [
        (1, 2, "assigned"), (1, 0, "assigned"), (None, 1, "unknown"),
    ]  # fmt: skip
    assert "finished" not in run("offsets", tmp_path).out


def test_a_lost_table_is_of_one_state(tmp_path: Path) -> None:
    """Of a RocksDB instance, all states but that of the table are counted and printed."""
    whole = copied(FLINK / TABLES, tmp_path / "whole")
    lines, _, _ = dumped(whole)
    counted = states_of(run("inspect", whole, "--json").json)
    opened = sl.open_snapshot(whole)
    handle = opened.metadata.operators[0].subtasks[0].managed_keyed
    tables = [stream.path for name, stream in handle.private if name.endswith(".sst")]
    (whole / tables[0]).unlink()
    found = states_of(run("inspect", whole, "--json").json)
    (marked,) = [place for place, state in found.items() if state.get("problem")]
    del found[marked], counted[marked]
    assert found == counted
    left, code, said = dumped(whole)
    assert (code, tables[0] in said) == (3, True)
    assert [place for place in lines if left.get(place) != lines[place]] == [marked]
    assert run("dump", whole, "--state", marked[1]).code == 3
    served = run("dump", whole, "--state", next(iter(counted))[1])
    assert (served.code, len(served.lines)) == (0, sum(lines[next(iter(counted))].values()))

    # so do commands that read keys, and one that is asked for another state
    for words in (["top", whole], ["expired", whole, "--ttl", "1d"], ["find", "1", whole]):
        ran = run(*words)
        assert (ran.code, tables[0] in ran.err) == (3, True), words
    other = next(iter(counted))
    for words in (["top", whole], ["find", "1", whole]):
        ran = run(*words, "--operator", other[0], "--state", other[1])
        assert ran.code in (0, 1), ran.err
    key = json.dumps(json.loads(next(iter(lines[marked])))["key"])
    got = run("get", whole, "--key", key, "--json")
    assert (got.code, tables[0] in got.err) == (3, True)
    assert other[1] in {row["state"] for row in got.json}
    assert marked[1] not in {row["state"] for row in got.json}


KINDS = "kinds-hashmap-canonical-p2-m128-flink2.3.0/savepoint"


def undecodable(name: str, patch: pytest.MonkeyPatch) -> None:
    """Make the entries of the states of a name unreadable, wherever they are."""
    keyed, element = HeadedFile.decode, OperatorLayout.decode

    def decode(file: HeadedFile, state: int, *words: Any) -> pa.RecordBatch:
        if file.states[state].name == name:
            raise CorruptSnapshotError("bytes of nothing", place=file.name)
        return keyed(file, state, *words)

    def decode_part(
        layout: OperatorLayout, file: OperatorFile, state: str, subtask: int
    ) -> pa.RecordBatch:
        if state == name:
            raise CorruptSnapshotError("bytes of nothing", place="a file")
        return element(layout, file, state, subtask)

    patch.setattr(HeadedFile, "decode", decode)
    patch.setattr(OperatorLayout, "decode", decode_part)


@pytest.mark.parametrize(
    "fixture",
    [
        pytest.param(each, marks=() if each == KINDS else pytest.mark.nightly)
        for each in sorted(
            str(each.parent.relative_to(FLINK)) for each in FLINK.glob("**/_metadata")
        )
    ],
    ids=lambda name: name.split("/")[0],
)
def test_no_unreadable_state_closes_another(fixture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state in turn, whose values can't be decoded: it is named, and all others are served."""
    place = FLINK / fixture
    lines, _, _ = dumped(place)
    row = next(json.loads(line) for each in lines.values() for line in each)
    key = json.dumps(row.get("key", 0))
    asked = {"get": ["--key", key], "find": [str(row.get("key", "a"))]}
    whole = {word: run(word, place, *words, "--json") if word == "get"
             else run(word, *words, place, "--json") for word, words in asked.items()}  # fmt: skip
    for name in sorted({name for _, name in lines}):
        with monkeypatch.context() as patch:
            undecodable(name, patch)
            left, code, said = dumped(place)
            got = run("get", place, "--key", key, "--json")
            found = run("find", *asked["find"], place, "--json")
        assert (code, f"state {name!r}, " in said, "bytes of nothing" in said) == (3, True, True)
        assert left == {at: held for at, held in lines.items() if at[1] != name}
        for ran, before, rows in (
            (got, whole["get"], list), (found, whole["find"], lambda answer: answer["hits"])
        ):  # fmt: skip
            if before.code == 3 or not before.out:
                continue
            right = of_states(rows(before.json))
            served = of_states(rows(ran.json))
            assert {at: each for at, each in right.items() if at[1] != name} == {
                at: each for at, each in served.items() if at[1] != name
            }
            if served != right:
                assert (ran.code, f"state {name!r}" in ran.err) == (3, True)


def test_a_key_that_is_damaged_closes_no_other_state(tmp_path: Path) -> None:
    """Its entry is found, and weighs: a key among the heaviest that can't be shown is named."""
    whole = copied(FLINK / SMALL[1], tmp_path / "whole")
    spoiled = copied(FLINK / SMALL[1], tmp_path / "spoiled")
    (row, *_) = sl.open_snapshot(whole)["tumbling"]["window-contents"].to_arrow().to_pylist()
    key = bytes([row["key_group"], len(row["key"]) + 1]) + row["key"].encode()
    (file, *_) = (each for each in files_of(spoiled) if key in each.read_bytes())
    data = file.read_bytes()
    file.write_bytes(data.replace(key, key[:1] + b"\x70" + key[2:]))
    ran = [run("top", each, "--limit", 100, "--json") for each in (whole, spoiled)]
    assert [each.code for each in ran] == [0, 3]
    before, after = map(weighed, ran)
    counted = {"keys": 41}  # the damaged one is another
    before["tumbling", "window-contents"] |= counted | {"heaviest": [], "busiest": []}
    assert after == before
    said = "error: operator tumbling, state 'window-contents', "
    page = tmp_path / "page.html"
    reported = run("report", spoiled, "--to", page, "--limit", 100)
    assert (reported.code, page.exists()) == (3, True)
    for each in (ran[1], reported):
        assert each.err.startswith(said)
        assert "what should be a String does not fit in its bytes" in each.err


def test_keys_that_no_column_holds_are_looked_for_in_what_can_be_read(tmp_path: Path) -> None:
    """What is no decimal may be one that no column holds: damaged ones close no other operator."""
    texts = pa.table({"key": ["5 x"], "value": [1]})
    prices = pa.table({"key": pa.array([{"f0": Decimal(each)} for each in range(50)],
                                       pa.struct([("f0", pa.decimal128(9, 2))])),
                       "value": [1] * 50})  # fmt: skip
    write_snapshot(tmp_path / "made", [
        NewOperator("words", "String", (NewKeyedState("count", texts, value="Long"),)),
        NewOperator("prices", {"row_data": ["DECIMAL(9, 2)"]},
                    (NewKeyedState("count", prices, value="Long"),)),
    ])  # fmt: skip
    asked = ("get", tmp_path / "made", "--key", "5 x")
    assert [row["value"] for row in run(*asked, "--json").json] == [1]
    file = max(files_of(tmp_path / "made"), key=lambda each: each.stat().st_size)
    data = file.read_bytes()
    file.write_bytes(data[:-200] + b"\x7f" * 150 + data[-50:])
    ran = run(*asked, "--json")
    assert (ran.code, [row["value"] for row in ran.json]) == (3, [1])
    prices_id = operator_id_of_uid("prices")
    assert ran.err.startswith(f"error: operator {prices_id}, state 'count', ")
    for uid, code in (("words", 0), ("prices", 3)):
        assert run(*asked, "--operator", operator_id_of_uid(uid)).code == code


def test_expired_keys_that_are_damaged_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has expired is told by times alone: of keys that can't be listed it is said."""

    def damaged(*_: Any) -> None:
        raise CorruptSnapshotError("no key")

    whole = FLINK / "kinds-hashmap-canonical-p2-m128-flink2.3.0/savepoint"
    asked = ("expired", whole, "--ttl", "1d", "--at", "2100-01-01T00:00Z", "--keys", "--json")
    before = run(*asked)
    monkeypatch.setattr(expiring, "printed_column", damaged)
    after = run(*asked)
    assert (before.code, after.code) == (0, 3)
    assert "operator kinds, state 'session'" in after.err
    (counted,), (found,) = (each.json["states"] for each in (before, after))
    assert found == counted | {"keys": []}


def test_a_report_without_heaviest_keys_says_what_it_could_not_read(tmp_path: Path) -> None:
    """State is counted all the same, and counts of damaged state are missing."""
    spoiled = copied(FLINK / SMALL[1], tmp_path / "spoiled")
    file = max(files_of(spoiled), key=lambda each: each.stat().st_size)
    data = file.read_bytes()
    at = len(data) * 6 // 10
    file.write_bytes(data[:at] + b"\x7f" * 64 + data[at + 64 :])
    problems = run("inspect", spoiled, "--json").json["problems"]
    for limit in (0, 5):
        ran = run("report", spoiled, "--to", tmp_path / f"{limit}.html", "--limit", limit, "--json")
        assert (ran.code, ran.json["problems"]) == (3, problems)


def test_a_store_that_does_not_answer_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question may take a minute. One that refuses a file may give another."""

    def without_keys(stream: StreamHandle) -> StreamHandle:
        moved = in_buckets(stream)
        is_file = isinstance(moved, FileHandle)
        return replace(moved, uri=moved.uri.replace("key:secret@", "")) if is_file else moved

    alone(FLINK / SMALL[3], tmp_path / "chk-20", without_keys)
    asked: list[str] = []
    found, said = ConfinedDirectory.source, "When reading: curlCode: 28, Timeout was reached"

    def source(directory: ConfinedDirectory, path: str) -> Any:
        if directory.local:
            return found(directory, path)
        asked.append(path)
        raise UnreachableFileError(f"can't be read: {said}", place=path)

    monkeypatch.setattr(ConfinedDirectory, "source", source)
    places = ["s3://flink/?region=eu", "s3://old/?region=eu"]
    opened = sl.open_snapshot(tmp_path / "chk-20", partial=True, allow_external=places)
    assert len(asked) == 2
    assert [type(each.error) for each in opened.unread] == [UnreachableFileError] * 2
    asked.clear()
    said = "AWS Error ACCESS_DENIED during HeadObject operation"
    opened = sl.open_snapshot(tmp_path / "chk-20", partial=True, allow_external=places)
    assert len(asked) == 20
    assert "ACCESS_DENIED" in str(opened.unread[0].error)
    with pytest.raises(UnreachableFileError, match="ACCESS_DENIED"):
        sl.open_snapshot(tmp_path / "chk-20", allow_external=places)


def test_pages_and_metadata_say_the_same(tmp_path: Path) -> None:
    """What could not be read is on the page of the snapshot, and in Dagster's metadata."""
    fixture = FLINK / SMALL[0]
    alone(fixture, tmp_path / "sp" / "savepoint-aaaaaa-000000000000")
    opened = sl.open_snapshot(tmp_path / "sp" / "savepoint-aaaaaa-000000000000", partial=True)
    problems = opened.describe().problems
    metadata = savepoint_metadata(opened)
    assert str(metadata["could not be read"]).count("operator state") >= len(problems) == 6
    for values in (True, False):
        source = Source(tmp_path / "sp", Options(values=values))
        name = Name("", "savepoint-aaaaaa-000000000000")
        held = source.contents(name)
        source.close()
        page = "".join(
            str(part) for part in pages.snapshot(name, held, [], values=values, parallelism=0)
        )
        assert page.count("Not all of its state could be read: operator ") == 2
        assert ("no such file" in page) is values
