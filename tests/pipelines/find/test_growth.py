"""`growth`: each made-up history of a job has its cause in the first three sentences."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.find.growth import Described, Growth, described, growth_of
from statelake.state_core.errors import DeclarationError, NotFoundError
from statelake.state_core.formats.key_weights import HeavyKey
from tests.support.command import run
from tests.support.lakes import DEMO, FLINK, KINDS
from tests.support.savepoints.change_logs import unpack

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
WEEK = timedelta(days=7)

Day = Callable[[int], sl.NewKeyedState | Sequence[sl.NewKeyedState]]


def history(tmp_path: Path, state_of: Day, weeks: int = 5) -> sl.Job:
    """Return a job whose snapshots, one a week, have these states."""
    job = sl.Lake(tmp_path / "lake").job("shop", engine="local")
    for week in range(weeks):
        states = state_of(week)
        states = (states,) if isinstance(states, sl.NewKeyedState) else tuple(states)
        operator = sl.NewOperator("carts", "Long", states, parallelism=2, max_parallelism=16)
        directory = tmp_path / f"week{week}"
        sl.write_snapshot(directory, [operator], metadata_version=6)
        job.import_snapshot(directory, f"week{week}", taken=START + week * WEEK, partitions=2)
    return job


def value(name: str, keys: Sequence[int], text: str = "x" * 40) -> sl.NewKeyedState:
    """Return a value state that has the same text for each key."""
    rows = pa.table({"key": keys, "value": pa.array([text] * len(keys), pa.string())})
    return sl.NewKeyedState(name, rows, value="String")


def answer(grown: Growth) -> str:
    """Return the sentences, which are at most three."""
    assert 2 <= len(grown.sentences) <= 3
    return " ".join(grown.sentences)


def test_keys_that_never_leave(tmp_path: Path) -> None:
    """The number of keys, and that none left; a forecast that is a straight line's."""
    grown = history(tmp_path, lambda week: value("cart", range(200 + 100 * week))).growth()
    text = answer(grown)
    assert "carts/cart has 100% of the growth: its keys went from 200 to 600" in text
    assert "entries are as large as before" in text
    assert "Of its first 200 entries none has left, and 200 have not changed" in text
    assert "it has no time to live" in text
    size, error = grown.forecast or (0.0, 1.0)
    each = grown.steps[0].total.size / 200
    assert size == pytest.approx(each * (600 + 100 * 30 / 7), rel=0.01)
    assert error == pytest.approx(0, abs=1)


def test_keys_that_leave_while_more_come(tmp_path: Path) -> None:
    """How many of the first ones left."""
    weeks = [range(100 * week, 300 + 200 * week) for week in range(4)]
    text = answer(history(tmp_path, lambda week: value("cart", weeks[week]), 4).growth())
    assert "its keys went from 300 to 600" in text
    assert "Of its first 300 entries 300 have left, and 0 have not changed" in text


def test_lists_that_never_end(tmp_path: Path) -> None:
    """The elements of each list, not the keys."""

    def clicks(week: int) -> sl.NewKeyedState:
        rows = pa.table({"key": range(50), "value": [list(range(10 + 20 * week))] * 50})
        return sl.NewKeyedState("clicks", rows, kind="list", value="Long")

    text = answer(history(tmp_path, clicks).growth())
    assert "its lists went from 10.0 to 90.0 elements each, those of 50 to 50 keys" in text


def test_maps_that_never_end(tmp_path: Path) -> None:
    """The entries of each map, not the keys."""

    def seen(week: int) -> sl.NewKeyedState:
        pairs = [(key, item) for key in range(40) for item in range(5 + 5 * week)]
        keys, items = (list(column) for column in zip(*pairs, strict=True))
        rows = pa.table({"key": keys, "user_key": items, "value": items})
        return sl.NewKeyedState("seen", rows, kind="map", value="Long", user_key="Long")

    text = answer(history(tmp_path, seen).growth())
    assert "its maps went from 5.0 to 25.0 entries each, those of 40 to 40 keys" in text


def test_one_hot_key(tmp_path: Path) -> None:
    """Its name and its share."""

    def clicks(week: int) -> sl.NewKeyedState:
        lists = [list(range(4000 * week + 3)) if key == 7 else [1, 2, 3] for key in range(50)]
        rows = pa.table({"key": range(50), "value": lists})
        return sl.NewKeyedState("clicks", rows, kind="list", value="Long")

    grown = history(tmp_path, clicks).growth()
    text = answer(grown)
    assert "the key 7 went from" in text
    assert grown.states[0].cause == "one key"
    assert grown.states[0].heaviest is not None
    assert grown.states[0].heaviest.key == 7
    assert grown.skew[1] > 1.5 > grown.skew[0]
    assert grown.groups[0].key_group == grown.states[0].heaviest.key_group


def test_the_json_of_a_hot_key_of_bytes(tmp_path: Path) -> None:
    """Python's own encoder takes it, with the bytes in Base64."""
    grown = history(tmp_path, lambda week: value("cart", range(100 + 100 * week)), 3).growth()
    grown.states[0].heaviest = HeavyKey(b"\xff\x00", 1, 2, 3)
    (state,) = json.loads(json.dumps(grown.to_json()))["states"]
    assert state["heaviest"] == {"key": "/wA=", "key_group": 1, "entries": 2, "bytes": 3}


def test_wider_values(tmp_path: Path) -> None:
    """Bytes of each entry, whose number stays."""
    wide = history(tmp_path, lambda week: value("cart", range(200), "x" * (20 + 40 * week)))
    text = answer(wide.growth())
    assert "its entries went from 30 to 191 bytes each, and their number from 200 to 200" in text
    assert "none has left, and 0 have not changed" in text


def test_a_new_state(tmp_path: Path) -> None:
    """Since which snapshot it exists."""
    text = answer(
        history(
            tmp_path,
            lambda week: (
                [value("cart", range(50))]
                + ([value("audit", range(100 * week))] if week > 1 else [])
            ),
        ).growth()
    )
    assert "carts/audit has 100% of the growth: it is new since week2" in text


def test_a_new_type(tmp_path: Path) -> None:
    """From which type to which."""

    def total(week: int) -> sl.NewKeyedState:
        if week >= 2:
            return value("total", range(100))
        rows = pa.table({"key": range(100), "value": range(100)})
        return sl.NewKeyedState("total", rows, value="Long")

    text = answer(history(tmp_path, total, 4).growth())
    assert "it was a value of Long, and is a value of String" in text


def test_timers_that_have_not_fired(tmp_path: Path) -> None:
    """Timers, not keys."""

    def timers(week: int) -> list[sl.NewKeyedState]:
        count = 100 + 300 * week
        rows = pa.table({"key": [each % 50 for each in range(count)], "timestamp": range(count)})
        return [value("cart", range(50)), sl.NewKeyedState.timers("event", rows)]

    text = answer(history(tmp_path, timers).growth())
    assert "its timers that have not fired went from 100 to 1,300" in text


def test_seasons_are_no_growth(tmp_path: Path) -> None:
    """State that comes back to where it was has no forecast and no cause."""
    counts = [300, 900, 320, 880, 310, 890, 305]
    grown = history(tmp_path, lambda week: value("cart", range(counts[week])), 7).growth()
    text = answer(grown)
    assert "State goes up and down between" in text
    assert "does not grow as a whole" in text
    assert grown.forecast is None
    assert not grown.states[0].cause


def test_steady_state(tmp_path: Path) -> None:
    """One percent more is none."""
    grown = history(tmp_path, lambda week: value("cart", range(1000 + week)), 4).growth()
    assert "State does not grow" in answer(grown)


def test_shrinking_state(tmp_path: Path) -> None:
    """By how much, and no cause."""
    grown = history(tmp_path, lambda week: value("cart", range(1000 - 200 * week)), 4).growth()
    assert answer(grown).startswith("State shrank from")
    assert grown.forecast is None


def test_what_a_time_to_live_would_free(tmp_path: Path) -> None:
    """Entries that nobody accessed for a week, by the time that each has."""

    def session(week: int) -> sl.NewKeyedState:
        keys = range(100 * (week + 1))
        stamps = [int((START + (key // 100) * WEEK).timestamp() * 1000) for key in keys]
        rows = pa.table({"key": keys, "value": ["x"] * len(keys), "ttl": stamps})
        return sl.NewKeyedState("session", rows, value="String", with_ttl=True)

    grown = history(tmp_path, session).growth()
    assert "400 entries" in answer(grown)
    assert "not accessed in the last 7d" in answer(grown)
    assert [(time, entries) for time, entries, _ in grown.states[0].expired] == [
        ("7d", 400), ("30d", 0), ("90d", 0),
    ]  # fmt: skip


def test_many_states_of_one_operator(tmp_path: Path) -> None:
    """The operator is named first if its states share the growth."""
    text = answer(
        history(
            tmp_path,
            lambda week: [value(f"s{each}", range(100 + 50 * week)) for each in range(4)],
            3,
        ).growth()
    )
    assert "carts has 100% of the growth, spread over its states; carts/s0 has most, 25%" in text


def test_garbage_in_files(tmp_path: Path) -> None:
    """Files that store more and more for the same keys and values."""
    snapshots = []
    for number, stored in enumerate((1.0, 2.0, 3.5)):
        directory = tmp_path / f"chk-{number}"
        operator = sl.NewOperator("carts", "Long", (value("cart", range(500)),), parallelism=1)
        sl.write_snapshot(directory, [operator], metadata_version=6)
        snapshot = sl.open_snapshot(directory)
        size = int(stored * 500 * 58)
        held = snapshot.describe(entries=True).operators
        snapshots.append(Described(directory.name, snapshot, held, size, compacts=True))
    assert "RocksDB has not compacted" in " ".join(growth_of(snapshots).sentences)
    others = [replace(each, compacts=False) for each in snapshots]
    assert "RocksDB" not in " ".join(growth_of(others).sentences)


def test_files_of_rocksdb_are_told_from_others(tmp_path: Path) -> None:
    """Only these have what is to be compacted away; a changelog and a canonical file have not."""
    unpack(tmp_path)
    compacts = {
        FLINK / "kinds-rocksdb-native-p2-m128-flink2.3.0/savepoint": True,
        KINDS: False,
        FLINK / "kinds-hashmap-native-snappy-p2-m128-flink2.3.0/savepoint": False,
        tmp_path / "rocksdb" / "chk-3": False,
    }
    for path, expected in compacts.items():
        assert described(sl.open_snapshot(path)).compacts is expected


def test_states_of_one_name(tmp_path: Path) -> None:
    """Keyed and operator state of an operator may have the same name: both count."""
    snapshots = []
    for number, count in enumerate((10, 1000)):
        elements = pa.table({"value": ["y"] * 20})
        of_operator = sl.NewOperatorState("buffer", elements, "split", "String")
        keyed = value("buffer", range(count))
        operator = sl.NewOperator("carts", "Long", (keyed,), (of_operator,))
        snapshots.append(tmp_path / f"chk-{number}")
        sl.write_snapshot(snapshots[-1], [operator], metadata_version=6)
    grown = sl.growth(snapshots)
    assert [(each.kind, each.cause) for each in grown.states] == [
        ("value", "more keys"),
        ("split", ""),
    ]
    assert [step.total.entries for step in grown.steps] == [30, 1020]


def test_a_state_that_was_empty(tmp_path: Path) -> None:
    """Its growth is of its keys, not of the size of the nothing before."""
    text = answer(history(tmp_path, lambda week: value("cart", range(100 * week)), 3).growth())
    assert "100% of the growth: its keys went from 0 to 200, and entries are of 50 bytes" in text


def test_what_changed_of_a_type(tmp_path: Path) -> None:
    """The type of the keys, and of timers, whose values have none."""

    def operator(key: str, keys: Sequence[int | str]) -> sl.NewOperator:
        held = sl.NewKeyedState("total", pa.table({"key": keys, "value": keys}), value=key)
        rows = pa.table({"key": keys, "timestamp": range(len(keys))})
        timers = sl.NewKeyedState.timers("event", rows)
        return sl.NewOperator("carts", key, (held, timers))

    for name, key, keys in (("a", "Long", [1, 2]), ("b", "String", [str(n) for n in range(90)])):
        sl.write_snapshot(tmp_path / name, [operator(key, keys)], metadata_version=6)
        os.utime(tmp_path / name / "_metadata", (START.timestamp(), START.timestamp()))
    because = {
        each.state: each.because for each in sl.growth([tmp_path / "a", tmp_path / "b"]).states
    }
    assert because["total"] == (
        "it was a value of Long, keyed by Long, and is a value of String, keyed by String"
    )
    assert because["_timer_state/event_user-timers"] == (
        "it was a queue of timers, keyed by Long, and is a queue of timers, keyed by String"
    )


def test_snapshots_of_one_minute(tmp_path: Path) -> None:
    """Seconds are called that, and say neither what a day brings nor what a month does."""
    paths = [tmp_path / f"chk-{number}" for number in range(3)]
    for number, path in enumerate(paths):
        held = (value("cart", range(100 + 100 * number)),)
        sl.write_snapshot(path, [sl.NewOperator("carts", "Long", held)], metadata_version=6)
        moment = START.timestamp() + 20 * number
        os.utime(path / "_metadata", (moment, moment))
    assert sl.growth(paths).sentences[0] == (
        "State grew from 4.9 KiB to 14.6 KiB from chk-0 to chk-2 (40 seconds); too little is known"
        " for a forecast."
    )
    grown = sl.growth(paths, ahead=1 / 24)
    assert grown.forecast is not None
    assert "a day" not in grown.sentences[0]
    for trend in (grown.to_json()["trend"], *(each["trend"] for each in grown.to_json()["states"])):
        assert trend["bytes_a_day"] is None
    assert all("TiB" not in str(line) and "MiB" not in str(line) for line in grown.lines())


def test_derived_snapshots_are_left_out(tmp_path: Path) -> None:
    """A copy without half of its rows does not show how the job shrank; named, it counts."""
    job = history(tmp_path, lambda week: value("cart", range(100 + 100 * week)), 3)
    job["week2"].edit("less").purge("carts/cart", "key > 10").save()
    assert [step.snapshot for step in job.growth().steps] == ["week0", "week1", "week2"]
    assert "less" in [step.snapshot for step in job.growth(until="less").steps]


def test_fewer_than_two_snapshots(tmp_path: Path) -> None:
    """Is an error that says so."""
    with pytest.raises(NotFoundError, match="two snapshots"):
        history(tmp_path, lambda _: value("cart", range(5)), 1).growth()


def test_words_that_make_no_sense(tmp_path: Path) -> None:
    """A forecast of no number of days; snapshots in the wrong order, which is told."""
    job = history(tmp_path, lambda week: value("cart", range(100 + 100 * week)), 3)
    for ahead in (float("nan"), float("inf"), -1):
        with pytest.raises(DeclarationError, match=r"a forecast of nan|--ahead is"):
            job.growth(ahead=ahead)
    with pytest.raises(DeclarationError, match="week2 was taken after week0"):
        job.growth("week2", "week0")
    lake = ("growth", "--lake", tmp_path / "lake", "--job", "shop")
    assert run(*lake, "--ahead", "nan", "--json").code == 3
    assert run(*lake, "--ahead", "0").code == 0


def test_the_command_of_savepoints_and_of_a_lake(tmp_path: Path) -> None:
    """The same sentences as in Python; JSON as its schema says."""
    job = history(tmp_path, lambda week: value("cart", range(100 + 100 * week)), 3)
    lake = ("--lake", tmp_path / "lake", "--job", "shop")
    shown = run("growth", *lake)
    assert shown.out.startswith(job.growth().sentences[0])
    assert run("growth", *lake, "--json").json["sentences"] == job.growth().sentences
    assert "monday" in run("growth", DEMO / "monday", DEMO / "tuesday").out
    assert run("growth", DEMO / "monday", "--lake", tmp_path / "lake").code == 2


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    """All of the first block, for the history that it is of."""
    history(
        tmp_path, lambda week: [value("cart", range(200 + 100 * week)), value("name", range(50))]
    )
    shown = run("growth", "--lake", tmp_path / "lake", "--job", "shop").out
    assert printed_on_the_page("--job shop\n") == [line.split() for line in shown.splitlines()]


def test_the_page_shows_the_difference_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the block, for the demo's savepoints."""
    shutil.copytree(DEMO, tmp_path / "demo" / "savepoints")
    monkeypatch.chdir(tmp_path)
    words = ("demo/savepoints/monday", "demo/savepoints/tuesday", "--sort", "bytes")
    shown = run("diff", *words, "--examples", 0).out
    printed = printed_on_the_page("--sort bytes --examples 0\n")
    assert printed == [line.split() for line in shown.splitlines()]


def printed_on_the_page(command: str) -> list[list[str]]:
    """The words of each line that the page shows below a command that ends so."""
    page = (Path(__file__).parents[3] / "docs" / "growth.md").read_text("utf-8")
    block = page.partition(command)[2].partition("```")[0]
    return [line.split() for line in block.splitlines()]
