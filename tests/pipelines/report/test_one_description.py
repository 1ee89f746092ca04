"""One description: `inspect`, `report`, Dagster, notebooks and Python say the same numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import ImportResult, import_snapshot
from statelake.pipelines.orchestration.history import history_metadata
from statelake.pipelines.orchestration.metadata import savepoint_metadata, tables_metadata
from statelake.pipelines.shown import bytes_text
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.model.handles import InlineHandle, KeyGroupsHandle, KeyGroupsKind
from tests.support.command import run
from tests.support.lakes import DEMO, LOCAL, golden, import_as, raw_savepoint

MONDAY = DEMO / "monday"
FILLED = "83 of 128"
HEAVIEST = (82, "714 B")
LOAD = ("12.6 KiB to 12.7 KiB a subtask", "1.005")


def text_of(page: str) -> str:
    """The text of HTML, a space between any two parts."""
    return unescape(re.sub("(<[^>]*>)+", " ", page))


def test_inspect_report_dagster_and_python_say_the_same(tmp_path: Path) -> None:
    """Of the demo's savepoint: key groups with data, the heaviest, each subtask's bytes, skew."""
    described = open_snapshot(MONDAY).describe()
    kinds = described.operator("kinds")
    assert f"{kinds.with_data} of {kinds.max_parallelism}" == FILLED
    assert (kinds.heaviest[0], bytes_text(int(kinds.sizes[82]))) == HEAVIEST
    assert f"{kinds.load().skew:.3f}" == LOAD[1]

    printed = run("inspect", MONDAY).out
    for said in (f"{FILLED} key groups", "heaviest: 82 (714 B)", f"{LOAD[0]}, skew {LOAD[1]}"):
        assert said in printed
        assert said in text_of(described._repr_html_())
    as_json = run("inspect", MONDAY, "--json").json
    assert as_json == described.to_json()
    sizes = [subtask.state_bytes for subtask in kinds.load().subtasks]
    now = as_json["operators"][0]["subtasks"]["now"]
    assert [subtask["state_bytes"] for subtask in now["subtasks"]] == sizes

    lake = Catalog(tmp_path / "lake")
    done = import_snapshot(lake, str(MONDAY), "demo", snapshot_id="monday", engine=LOCAL)
    words = ("--lake", lake.location, "--job", "demo", "--limit", 0)
    assert run("report", MONDAY, "--to", tmp_path / "savepoint.html").code == 0
    assert run("report", *words, "--to", tmp_path / "lake.html").code == 0
    metadata = {**tables_metadata(lake, done), **history_metadata(lake, done.record)}
    pages = [(tmp_path / f"{name}.html").read_text("utf-8") for name in ("savepoint", "lake")]
    in_dagster = metadata["key groups of kinds"].value + metadata["subtasks of kinds"].value
    for told in (*map(text_of, pages), in_dagster):
        assert f"{FILLED} have data; the heaviest is 82 with 714 B" in told
        assert f"At parallelism 2: {LOAD[0]}; skew {LOAD[1]}; the heaviest is subtask 1." in told
    assert metadata["skew of kinds"] == round(kinds.load().skew, 4)
    for state in kinds.states:
        assert f"{state.entries:,} | {bytes_text(state.size or 0)} |" in metadata["tables"].value
        for page in pages:
            assert f"{state.entries:,} {bytes_text(state.size or 0)}" in text_of(page)


def test_dagster_names_keyed_state_without_tables(tmp_path: Path) -> None:
    """Nothing else in an import's metadata would say that there is some."""
    lake = Catalog(tmp_path / "lake")
    record = import_as(lake, raw_savepoint(tmp_path / "raw"), "s")
    metadata = read_metadata(record.metadata)
    (subtask, *_) = (metadata.operators[0].subtasks or {}).values()
    kept = KeyGroupsHandle(KeyGroupsKind.NATIVE, 0, (0,), InlineHandle("heap", bytes(2048)))
    subtask.managed_keyed = kept
    with_bytes = replace(record, metadata=write_metadata(metadata))
    told = tables_metadata(lake, ImportResult(with_bytes, new=False))["keyed state kept as bytes"]
    assert "operator opstate: 2.0 KiB, without tables" in told.value


def test_dagster_reads_nothing_of_a_savepoint_but_its_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the savepoint's asset shows is known without key groups, and so is a notebook's line."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("measure_operator", "_stored_sizes"):
        monkeypatch.setattr(f"statelake.state_core.formats.describing.{name}", never)
    snapshot = open_snapshot(MONDAY)
    assert savepoint_metadata(snapshot)["size (bytes)"] == snapshot.total_bytes
    assert "45.4 KiB" in snapshot._repr_html_()
    assert "total" in snapshot.operator("kinds")._repr_html_()


def test_operator_state_has_entries_and_bytes(tmp_path: Path) -> None:
    """Of a broadcast state those of one copy; as an import into a lake counts them."""
    source = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
    described = open_snapshot(source).describe()
    lake = Catalog(tmp_path / "lake")
    done = import_snapshot(lake, str(source), "demo", snapshot_id="one", engine=LOCAL)
    counted = {
        (operator.label, state.name): (state.entries, state.size)
        for operator in described.operators
        for state in operator.operator_states
    }
    assert counted == {
        (operator.label, state.name): (state.entries, state.state_bytes)
        for operator in done.record.operators
        for state in operator.operator_states
    }
    assert len(counted) >= 3
    uncounted = open_snapshot(source).describe(entries=False)
    held = [state for operator in uncounted.operators for state in operator.operator_states]
    assert {(state.entries, state.size) for state in held} == {(None, None)}


def test_what_is_not_counted_is_marked() -> None:
    """Bytes that files store are no bytes of keys and values, and say so."""
    described = open_snapshot(MONDAY).describe(entries=False)
    (kinds, *_) = described.to_json()["operators"]
    assert kinds["key_groups"]["estimated"] is True
    assert "are estimated from the bytes that files store, --entries counts them" in str(described)
    assert "at parallelism 2: about " in str(described)


def test_text_of_it_is_what_inspect_prints() -> None:
    """`print(snapshot.describe())`, but for the spaces that a terminal's table ends with."""
    described = open_snapshot(MONDAY).describe(parallelism=5)
    printed = run("inspect", MONDAY, "--parallelism", 5).out
    assert str(described).split() == printed.split()
