"""`statelake bootstrap` as a shell runs it: the example, its options, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.bootstrap import bootstrapping as bootstrap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.errors import SnapshotError
from tests.support.command import run
from tests.support.lakes import entries

EXAMPLE = Path(__file__).parents[3] / "examples" / "bootstrap_spec.yaml"
UIDS = ("customers", "discounts")


def rows(savepoint: Path, state: str, *columns: str) -> list[tuple[Any, ...]]:
    """A keyed state of the example's, sorted."""
    table = open_snapshot(savepoint, uids=UIDS).operator("customers").state(state).to_arrow()
    return sorted(tuple(row.values()) for row in table.select(columns).to_pylist())


def state_file(savepoint: Path) -> Path:
    """A file of a savepoint's state."""
    return next(path for path in savepoint.iterdir() if path.name != "_metadata")


def test_the_example_becomes_a_savepoint(tmp_path: Path) -> None:
    """Every state of the example's spec holds what its tables do."""
    ran = run("bootstrap", EXAMPLE, "--to", tmp_path / "sp")
    assert (ran.code, ran.err) == (0, "")
    assert "27 entries" in ran.out
    assert f"flink run -s {tmp_path / 'sp'}" in ran.out
    assert rows(tmp_path / "sp", "orders", "key", "value") == [
        ("alice", 12), ("bob", 3), ("carla", 41), ("dmitri", 1), ("eve", 7),
    ]  # fmt: skip
    assert rows(tmp_path / "sp", "prices", "key", "user_key", "value") == [
        ("alice", "coffee", 7.0), ("alice", "tea", 4.5), ("bob", "tea", 4.75),
        ("eve", "matcha", 19.9),
    ]  # fmt: skip
    assert rows(tmp_path / "sp", "session", "key", "value", "ttl")[0] == (
        "alice", "Berlin", 1_793_521_800_000,
    )  # fmt: skip
    profiles = dict(rows(tmp_path / "sp", "profile", "key", "value"))
    assert profiles["dmitri"] == {
        "name": None, "tier": "BRONZE", "address": {"city": "Riga", "zip": 1010},
    }  # fmt: skip
    assert profiles["carla"]["name"] == "Carla Díaz, PhD"
    assert len(rows(tmp_path / "sp", "_timer_state/event_user-timers", "key", "timestamp")) == 5
    snapshot = open_snapshot(tmp_path / "sp", uids=UIDS)
    assert [
        (operator.parallelism, operator.max_parallelism) for operator in snapshot.operators
    ] == [(2, 128)] * 2
    (tiers,) = snapshot.operator("discounts").operator_states
    found = tiers.to_arrow().select(["key", "value"]).to_pylist()
    assert {entry["key"]: entry["value"] for entry in found} == {
        "BRONZE": 0,
        "SILVER": 5,
        "GOLD": 12,
    }


def test_its_options_and_json(tmp_path: Path) -> None:
    """Parallelism and compression as asked for, the same entries, and a snapshot in a lake."""
    run("bootstrap", EXAMPLE, "--to", tmp_path / "plain")
    ran = run(
        "bootstrap", EXAMPLE, "--to", tmp_path / "sp", "--parallelism", 5,
        "--compression", "snappy",
        "--metadata-version", 6, "--lake", tmp_path / "lake", "--job", "shop",
        "--snapshot", "first", "--json", "--engine", "local",
    )  # fmt: skip
    assert ran.code == 0
    assert (ran.json["engine"], ran.json["snapshot_id"]) == ("local", "first")
    counts = {state["state"]: state["entries"] for state in ran.json["states"]}
    assert counts["profile"] == 5
    snapshot = open_snapshot(tmp_path / "sp")
    assert [operator.parallelism for operator in snapshot.operators] == [5, 5]
    assert [operator.uid for operator in snapshot.operators] == list(UIDS)
    assert snapshot.compression == "snappy"
    assert entries(tmp_path / "sp") == entries(tmp_path / "plain")
    record = Catalog(tmp_path / "lake").snapshot("shop", "first")
    assert {operator.label for operator in record.operators} == set(UIDS)


def test_another_max_parallelism(tmp_path: Path) -> None:
    """The key groups are those of that many."""
    ran = run("bootstrap", EXAMPLE, "--to", tmp_path / "sp", "--max-parallelism", 4096)
    assert ran.code == 0
    groups = rows(tmp_path / "sp", "orders", "key_group", "key")
    assert max(group for group, _ in groups) >= 128


@pytest.mark.parametrize(
    "words",
    [
        ("--lake", "lake"),
        ("--job", "shop"),
        ("--snapshot", "first"),
        ("--parallelism", 0),
    ],
)
def test_options_that_do_not_go_together(words: tuple[Any, ...], tmp_path: Path) -> None:
    """Usage, and nothing is written."""
    ran = run("bootstrap", EXAMPLE, "--to", tmp_path / "sp", *words)
    assert ran.code == 2
    assert not (tmp_path / "sp").exists()


def test_a_mistake_is_bad_input(tmp_path: Path) -> None:
    """One line of standard error, with the spec's own line."""
    path = tmp_path / "spec.yaml"
    path.write_text(EXAMPLE.read_text("utf-8").replace("type: Long", "type: Lonk"))
    ran = run("bootstrap", path, "--to", tmp_path / "sp")
    assert ran.code == 3
    assert f"{path}:15, operator customers, state 'orders', `type`" in ran.err
    assert "Lonk is no known type" in ran.err
    assert ran.err.count("\n") == 1


def test_a_target_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """It is not written over."""
    run("bootstrap", EXAMPLE, "--to", tmp_path / "sp")
    before = entries(tmp_path / "sp")
    ran = run("bootstrap", EXAMPLE, "--to", tmp_path / "sp", "--parallelism", 1)
    assert ran.code == 3
    assert entries(tmp_path / "sp") == before


class TestOneThatEndedBeforeItsImport:
    """The savepoint is whole, and the lake has no snapshot of it: the same command goes on."""

    @pytest.fixture
    def words(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
        """The words of the command that ended so."""
        words = (
            "bootstrap", EXAMPLE, "--to", tmp_path / "sp", "--lake", tmp_path / "lake",
            "--job", "shop", "--snapshot", "first",
        )  # fmt: skip

        def fail(*_: object, **__: object) -> None:
            raise SnapshotError("no space left", place="lake")

        with monkeypatch.context() as patch:
            patch.setattr(bootstrap, "import_snapshot", fail)
            assert run(*words).code == 3
        assert not Catalog(tmp_path / "lake").exists()
        return words

    def test_it_is_imported_as_it_is(self, words: tuple[Any, ...], tmp_path: Path) -> None:
        """Nothing of the savepoint is written again, and nothing is left beside it."""
        before = {path: path.stat().st_ino for path in (tmp_path / "sp").iterdir()}
        ran = run(*words)
        assert (ran.code, ran.err) == (0, "")
        assert {path: path.stat().st_ino for path in (tmp_path / "sp").iterdir()} == before
        exported = tmp_path / "out"
        assert run(
            "export", "--lake", tmp_path / "lake", "--job", "shop", "--snapshot", "first",
            "--to", exported,
        ).code == 0  # fmt: skip
        assert entries(exported) == entries(tmp_path / "sp")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "out", "sp"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda sp: (sp / "mine").write_bytes(b""),
            lambda sp: (sp / "_metadata").write_bytes(b"no savepoint"),
            lambda sp: state_file(sp).write_bytes(b""),
            lambda sp: state_file(sp).unlink(),
        ],
        ids=["another file", "no savepoint", "half a file", "no file"],
    )
    def test_another_directory_is_left_alone(
        self, change: Callable[[Path], object], words: tuple[Any, ...], tmp_path: Path
    ) -> None:
        """What this command would not write is somebody else's."""
        change(tmp_path / "sp")
        before = {path: path.read_bytes() for path in (tmp_path / "sp").iterdir()}
        ran = run(*words)
        assert ran.code == 3
        assert "the directory is not empty" in ran.err
        assert {path: path.read_bytes() for path in (tmp_path / "sp").iterdir()} == before
        assert [path.name for path in tmp_path.iterdir()] == ["sp"]

    @pytest.mark.parametrize("more", [("--parallelism", 5), ("--compression", "snappy")])
    def test_other_options_are_refused(
        self, more: tuple[Any, ...], words: tuple[Any, ...], tmp_path: Path
    ) -> None:
        """They make another savepoint."""
        ran = run(*words, *more)
        assert ran.code == 3
        assert "the directory is not empty" in ran.err
        assert [path.name for path in tmp_path.iterdir()] == ["sp"]


def test_a_key_twice_leaves_nothing(tmp_path: Path) -> None:
    """The example's own file with a line twice."""
    for path in EXAMPLE.parent.glob("bootstrap_*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "bootstrap_customers.csv").open("a") as file:
        file.write("bob,Other,GOLD,1,X,1,2026-11-02T17:05:00Z\n")
    ran = run("bootstrap", tmp_path / EXAMPLE.name, "--to", tmp_path / "sp")
    assert ran.code == 3
    assert "key 'bob' is there more than once" in ran.err
    assert not (tmp_path / "sp").exists()


def test_compression_has_one_name(tmp_path: Path) -> None:
    """As `export` and `compress` call it."""
    assert "--compression [snappy|none]" in run("bootstrap", "--help").out
    words = ("--to", tmp_path / "new", "--compression", "snappy")
    assert run("bootstrap", EXAMPLE, *words).code == 0
    assert open_snapshot(tmp_path / "new").compression == "snappy"
    assert run("bootstrap", EXAMPLE, "--to", tmp_path / "plain").code == 0
    assert open_snapshot(tmp_path / "plain").compression == "none"
