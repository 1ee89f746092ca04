"""A heap checkpoint of real StateFun 3.3: whole, and with messages of a class that nobody knows."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from statelake import open_snapshot
from statelake.state_core.errors import UnwalkableError
from statelake.state_core.model.snapshot import Operator
from tests.support.command import run
from tests.support.lakes import GOLDEN, entries

TIMERS = "_timer_state/processing_delayed-messages-timer-service"
SEEN = {"user-0": 82, "user-1": 3, "user-2": 3, "user-3": 3}
# key group 8, of user-0, has too many places where a message might begin
OPERATOR = "6b87a4870d0e21cecbbe271bd893cfcc"
LOST = {"delayed-messages-buffer", "h.count.buf", "h.count.by", "h.count.seen", TIMERS}


def checkpoint(to: Path) -> Path:
    """The checkpoint, unpacked."""
    to.mkdir()
    packed = GOLDEN / "statefun" / "heap-checkpoint-3.3.metadata.xz"
    (to / "_metadata").write_bytes(lzma.decompress(packed.read_bytes()))
    return to


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """As StateFun wrote it."""
    return checkpoint(tmp_path / "whole")


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """With the serializer of messages under a name that is not registered."""
    place = checkpoint(tmp_path / "unknown")
    data = (place / "_metadata").read_bytes()
    assert data.count(b"MessageTypeSerializer$Snapshot") == 2
    (place / "_metadata").write_bytes(
        data.replace(b"MessageTypeSerializer$Snapshot", b"MessageTypeSerializer$Snapshox")
    )
    return place


def keyed_bytes_of(place: Path) -> list[tuple[int, tuple[int, ...], bytes]]:
    """The keyed state of all subtasks, with the places of its key groups."""
    opened = open_snapshot(place)
    found = []
    for operator in opened.metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            handle = subtask.managed_keyed
            if handle is not None:
                source = opened.files.open(handle.stream)
                data = np.empty(source.size, np.uint8)
                source.read_into(0, data)
                found.append((handle.first, handle.offsets, data.tobytes()))
    return found


def operator_of(place: Path) -> Operator:
    """The only one with keyed state."""
    (found,) = (each for each in open_snapshot(place).operators if each.keyed_states)
    return found


def test_messages_and_all_behind_them_are_read(whole: Path) -> None:
    """The states of a key agree: so many messages, so many times seen, a timer for each."""
    operator = operator_of(whole)
    for name in ("h.count.seen", "h.count.by", "h.count.buf"):
        rows = operator[name].to_arrow().to_pylist()
        held = {row["key"]: row["value"] for row in rows}
        sizes = {key: len(each) if isinstance(each, list) else each for key, each in held.items()}
        assert sizes == SEEN
    waiting = operator["delayed-messages-buffer"].to_arrow().to_pylist()
    assert {row["raw_value"] for row in waiting} == {None}
    timers = Counter(row["key"] for row in operator[TIMERS].to_arrow().to_pylist())
    assert Counter(row["key"] for row in waiting) == timers
    for row in waiting:
        for message in row["value"]:
            address = {"namespace": "h", "type": "count", "id": row["key"]}
            text = f"later-{row['key']}".encode()
            assert message == {
                "source": address, "target": address, "checkpoint": None,
                "payload": {
                    "class_name": "java.lang.String",
                    # Kryo's class 3, the first reference, a text whose last byte has a bit more
                    "payload_bytes": b"\3\1" + text[:-1] + bytes([text[-1] | 0x80]),
                },
                "cancellation_token": "",
            }  # fmt: skip


def test_it_goes_through_a_lake(whole: Path, tmp_path: Path) -> None:
    """All entries come out as they were."""
    of = ("--lake", tmp_path / "lake", "--job", "sf", "--snapshot", "one")
    assert run("import", whole, *of, "--engine", "local").code == 0
    assert run("export", *of, "--to", tmp_path / "out", "--engine", "local").code == 0
    assert entries(tmp_path / "out") == entries(whole)


@pytest.mark.full
def test_states_whose_entries_are_not_found_close_no_other(unknown: Path, whole: Path) -> None:
    """Each is read as far as it is certain, and ends in an error that names it."""
    known, found = operator_of(whole), operator_of(unknown)
    lost: set[str] = set()
    for state in found.keyed_states:
        rows = []
        try:
            for batch in state.batches(columns=["key_group", "key"]):
                rows += batch.to_pylist()
        except UnwalkableError as error:
            named = state.name in error.states and "delayed-messages-buffer" in str(error)
            lost |= {state.name if named else "?"}
        right = known[state.name].to_arrow(columns=["key_group", "key"]).to_pylist()
        assert all(row in right for row in rows)
        if state.name not in lost:
            assert sorted(map(repr, rows)) == sorted(map(repr, right))
        elif state.name.startswith("h."):  # certain in the key groups of the other keys
            assert {row["key"] for row in rows} == {"user-1", "user-2", "user-3"}
    assert LOST <= lost <= {state.name for state in found.keyed_states}


@pytest.mark.full
def test_commands_serve_the_rest_and_name_the_states(unknown: Path) -> None:
    """`?` with a reason, rows before the error, and never "sound" without a word."""
    inspected = run("inspect", unknown)
    assert (inspected.code, inspected.out.count("not all entries of")) == (3, 1)
    assert f"operator {OPERATOR}, state 'delayed-messages-buffer': entries" in inspected.err
    assert run("inspect", unknown, "--no-entries").code == 0  # nobody looked for them
    lines = {line.split()[0]: line for line in inspected.out.splitlines() if line.strip()}
    assert lines["h.count.seen"].split()[-2:] == ["?", "?"]
    assert lines["delayed-message-index"].split()[-3:] == ["0", "0", "B"]
    assert "not all entries of delayed-messages-buffer" in inspected.out
    (operator,) = (each for each in run("inspect", unknown, "--json").json["operators"]
                   if each.get("keyed_states"))  # fmt: skip
    states = {state["name"]: state for state in operator["keyed_states"]}
    assert states["h.count.seen"]["entries"] is None
    assert "only its class knows" in states["h.count.seen"]["not_counted"]
    assert states["delayed-message-index"]["entries"] == 0
    assert run("inspect", unknown, "--keys").code == 3

    dumped = run("dump", unknown)
    assert (dumped.code, dumped.out.count("h.count.seen")) == (3, 3)
    assert "not all entries are found of state 'delayed-messages-buffer'" in dumped.err
    assert run("dump", unknown, "--state", "delayed-message-index").code == 0

    got = run("get", unknown, "--key", "user-2", "--state", "h.count.seen", "--json")
    assert (got.code, [row["value"] for row in got.json]) == (0, [3])
    got = run("get", unknown, "--key", "user-0", "--state", "h.count.seen")
    assert (got.code, "h.count.seen" in got.err) == (3, True)

    sought = run("find", "user-3", unknown)
    assert (sought.code, "h.count.buf" in sought.out) == (0, True)
    assert "h.count.buf: entries that could not be located" in sought.err + sought.out
    sought = run("find", "nobody", unknown)
    assert (sought.code, "nowhere in what was searched" in sought.out) == (3, True)
    assert f"error: operator {OPERATOR}, state '" in sought.err
    assert run("find", "nobody", unknown, "--state", "delayed-message-index").code == 1

    checked = run("check", "integrity", unknown)
    assert checked.out.startswith("sound as far as it can be read")
    assert "state 'h.count.seen': entries that can't be found" in checked.out
    assert run("types", unknown).code == run("offsets", unknown).code == 0


@pytest.mark.full
def test_state_whose_entries_are_not_found_goes_through_a_lake_as_bytes(
    unknown: Path, tmp_path: Path
) -> None:
    """Whole, said by name; it moves to no other key groups, and no mask passes over it."""
    lake = tmp_path / "lake"
    of = ("--lake", lake, "--job", "sf", "--snapshot", "one", "--engine", "local")
    imported = run("import", unknown, *of)
    assert imported.code == 0
    said = f"operator {OPERATOR}: keyed state kept as bytes, without tables: only its class knows"
    assert said in imported.out
    assert "MessageTypeSerializer$Snapshox" in imported.out
    assert run("export", *of, "--to", tmp_path / "out").code == 0
    assert keyed_bytes_of(tmp_path / "out") == keyed_bytes_of(unknown)

    asked = ["get", "--key", "user-1"]
    of_operator = [*asked, "--operator", OPERATOR[:8]]
    for words in (asked, of_operator, ["top"], ["expired", "--ttl", "1d"]):
        refused = run(*words, *of[:6])
        assert refused.code == 3
        assert f"operator {OPERATOR}: keyed state kept as bytes" in refused.err
    written = run("report", *of[:6], "--to", tmp_path / "page.html")
    assert (written.code, (tmp_path / "page.html").exists()) == (3, True)
    assert f"operator {OPERATOR}: keyed state kept as bytes" in written.err
    sought = run("find", "nobody", *of[:6])
    assert f"{OPERATOR}: 20,965 bytes of keyed state kept" in sought.out
    assert sought.code == 3
    assert f"operator {OPERATOR}: keyed state kept as bytes" in sought.err

    for words in (("--parallelism", 2), ("--max-parallelism", 256)):
        refused = run("export", *of, "--to", tmp_path / "other", *words)
        assert refused.code == 3
        assert f"operator {OPERATOR}, subtask 0: keyed state kept as bytes" in refused.err
        assert "export it at parallelism 1" in refused.err
    assert not (tmp_path / "other").exists()
    sampled = run("export", *of, "--to", tmp_path / "half", "--sample", "50%", "--leave-out-opaque")
    assert f"left out: the keyed state kept as bytes of operator {OPERATOR}" in sampled.out

    at = of[:4]
    assert run("check", "integrity", *of[:6]).code == 0
    planned = run("erase", *at[:2], "--key", "user-1", "--request", "r").out
    assert "keyed state kept as bytes, which only the job can search, in 1 of 1" in planned
    erased = run("erase", *at[:2], "--key", "user-1", "--request", "r", "--yes")
    assert (erased.code, "not searched: state without tables" in erased.err) == (1, True)
    assert run("erase", *at[:2], "--key", "user-1", "--request", "r", "--yes", "--carried",
               "drop").code == 0  # fmt: skip
    assert run("export", *of, "--to", tmp_path / "less").code == 0
    assert keyed_bytes_of(tmp_path / "less") == []


@pytest.mark.full
def test_such_state_can_not_be_changed_in_part(unknown: Path, tmp_path: Path) -> None:
    """The error says why, and what can be done; the operator as a whole can be dropped."""
    of = ("--lake", tmp_path / "lake", "--job", "sf")
    assert run("import", unknown, *of, "--snapshot", "one", "--engine", "local").code == 0
    (tmp_path / "keys").write_text("user-1\n")
    state = f"{OPERATOR}/h.count.seen"
    edit = ("edit", *of, "--parent", "one", "--snapshot", "two")
    migrate = ("migrate", *of, "--snapshot", "one")
    for words in (
        (*edit, "--purge", state, "value = 3"), (*edit, "--drop-state", state),
        (*edit, "--expire", f"{OPERATOR}/timers", "1d"),
        (*edit, "--keep-keys", OPERATOR, tmp_path / "keys"),
        (*migrate, "--ttl", f"{state}=on"), (*migrate, "--drop-field", f"{state}.f"),
        ("erase", *of[:2], "--where", state, "value = 3"),
    ):  # fmt: skip
        refused = run(*words)
        assert refused.code == 3
        assert f"operator {OPERATOR}: keyed state kept as bytes, since only a class" in refused.err
        assert "import a canonical savepoint of the job" in refused.err
    assert run(*edit, "--drop-state", "nobody/timers").err.startswith("error: snapshot one has no")
    assert run(*edit, "--drop-operator", OPERATOR).code == 0


@pytest.mark.nightly
def test_such_state_is_exported_without_a_lake(unknown: Path, tmp_path: Path) -> None:
    """Beside what has tables. Nobody says that another job could read it."""
    of = ("--lake", tmp_path / "lake", "--job", "sf", "--snapshot", "one")
    assert run("import", unknown, *of, "--engine", "local").code == 0
    checked = run("check", "compatibility", *of, "--against", unknown, "--json")
    (verdict,) = checked.json["states"]
    assert (checked.code, verdict["operator"], verdict["verdict"]) == (0, OPERATOR, "unknown")
    assert run("export", unknown, "--to", tmp_path / "out").code == 0
    assert keyed_bytes_of(tmp_path / "out") == keyed_bytes_of(unknown)


@pytest.mark.full
def test_what_is_counted_for_people_says_what_it_lacks(unknown: Path, tmp_path: Path) -> None:
    """A report has the reason and the other states; growth has no number that is too small."""
    page = tmp_path / "page.html"
    written = run("report", unknown, "--to", page, "--json")
    named = [problem.partition(":")[0] for problem in written.json["problems"]]
    assert (written.code, {name.split("'")[1] for name in named} >= LOST) == (3, True)
    text = page.read_text("utf-8")
    assert "Not all of its state could be read: not all entries of delayed-messages" in text
    assert "delayed-message-index" in text
    grown = run("growth", unknown, unknown)
    assert (grown.code, "only its class knows" in grown.err) == (3, True)
