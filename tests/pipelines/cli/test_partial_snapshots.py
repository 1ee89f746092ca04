"""A snapshot of which something can't be read: all else is served, and what is not is named."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.metadata.stream_map import streams_of
from statelake.state_core.model.handles import FileHandle, RelativeHandle, SegmentHandle
from tests.support.command import run

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
            Path(files.open(stream, whole=False, shared=True).name)
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


def sweep(fixture: Path, tmp_path: Path, ways: tuple[str, ...], *, each_way: bool) -> int:
    """Make each file of a fixture unreadable in turn; return how many were tried.

    Args:
        fixture: The snapshot.
        tmp_path: Where copies go.
        ways: The ways.
        each_way: Whether each file in each way, or in one of them.
    """
    whole = copied(fixture, tmp_path / "whole")
    lines, code, _ = dumped(whole)
    assert code == 0
    described = states_of(run("inspect", whole, "--json").json)
    kinds = {place: "mode" in state for place, state in described.items()}
    types = {
        (operator["operator"], state["state"]): state
        for operator in run("types", whole, "--json").json["operators"]
        for state in operator["states"]
    }
    offsets = run("offsets", whole, "--json").json
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
                    assert f"operator {place[0]}" in said, (why, place)
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
    return tried


@pytest.mark.parametrize("fixture", SMALL, ids=lambda name: name.split("-p")[0])
def test_one_unreadable_file_closes_no_other_state(fixture: str, tmp_path: Path) -> None:
    """Whatever file it is: the states of others are served, and it is named."""
    assert sweep(FLINK / fixture, tmp_path, WAYS, each_way=False) > 1


@pytest.mark.full
@pytest.mark.parametrize(
    "fixture",
    sorted(
        each.parent
        for each in FLINK.glob("**/_metadata")
        if len(list(each.parent.iterdir())) > 1
    ),
    ids=lambda path: str(path.relative_to(FLINK)).split("/")[0],
)  # fmt: skip
def test_no_unreadable_file_closes_another_state(fixture: Path, tmp_path: Path) -> None:
    """The same of every golden savepoint, each file in each way."""
    assert sweep(fixture, tmp_path, WAYS, each_way=True) > 1
