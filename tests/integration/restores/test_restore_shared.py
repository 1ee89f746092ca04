"""Real Flink restores masked samples: it finds every key that is in one, and what was masked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.share.ciphers import Cipher
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.command import run
from tests.support.lakes import golden, import_golden

pytestmark = [pytest.mark.flink, pytest.mark.full]

SECRET = "a secret of the tests"  # noqa: S105 - for nobody
CIPHER = Cipher(SECRET.encode())
WINDOWS = golden("windows-hashmap-canonical-p2-m128-flink2.3.0")
KINDS = golden("kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0")
NOTHING = {"items": [], "scores": {}} | dict.fromkeys(
    ("name", "total", "avg", "triple", "row", "session")
)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A lake with snapshots of both jobs, and a secret in the environment."""
    monkeypatch.setenv("MASK_SECRET", SECRET)
    return import_golden(
        Catalog(tmp_path / "lake"), ("windows", WINDOWS.snapshot), ("kinds", KINDS.snapshot)
    )


def shared(lake: Catalog, snapshot: str, to: Path, said: dict[str, Any], *words: object) -> Path:
    """Export a masked sample, as a user does."""
    mask = to.with_suffix(".yaml")
    mask.write_text(yaml.safe_dump({"secret": {"env": "MASK_SECRET"}, **said}), "utf-8")
    ran = run(
        "export", "--lake", lake.location, "--job", "orders", "--snapshot", snapshot, "--to", to,
        "--sample", "50%", "--mask", mask, "--leave-out-opaque", *words,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    return to


def lines_of(savepoint: Path) -> list[Any]:
    """What Flink saw in a golden savepoint."""
    path = savepoint.parent / "expected.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("backend", "parallelism", "groups"), [("hashmap", 3, 128), ("rocksdb", 2, 1000)]
)
def test_windows_fire_for_masked_keys(
    lake: Catalog, flink: FlinkOracle, tmp_path: Path, backend: str, parallelism: int, groups: int
) -> None:
    """Flink finds contents and timers of each masked key, in two operators, where it hashes it."""
    operators = [operator.label for operator in lake.snapshot("orders", "windows").operators
                 if operator.states]  # fmt: skip
    to = shared(
        lake, "windows", tmp_path / "out",
        {"keys": dict.fromkeys(operators, "format"), "others": "keep"},
        "--parallelism", parallelism, "--max-parallelism", groups,
    )  # fmt: skip
    keys = {
        key
        for operator in operators
        for key in open_snapshot(to).operator(operator).state("window-contents")
        .to_arrow()["key"].to_pylist()
    }  # fmt: skip
    masked = [line | {"key": CIPHER.text(line["key"])} for line in lines_of(WINDOWS.snapshot)]
    expected = [line for line in masked if line["key"] in keys]
    assert 100 < len(expected) < 300
    restored = flink.restore(
        "windows", to, keys=WINDOWS.facts["keys"], parallelism=parallelism, max=groups,
        backend=backend,
    )  # fmt: skip
    assert sorted_lines(restored) == sorted_lines(expected)


def test_masked_values_of_a_sample(lake: Catalog, flink: FlinkOracle, tmp_path: Path) -> None:
    """Keys that are in it have their values, masked or not; the others have nothing."""
    to = shared(
        lake, "kinds", tmp_path / "out",
        {
            "keys": {"kinds": "keep"},
            "states": {
                "kinds/name": "format", "kinds/total": {"value": {"constant": 7}},
                "kinds/row": {"value.f1": "hash", "value.f2": None},
            },
            "others": "keep",
        },
    )  # fmt: skip
    total = open_snapshot(to).operator("kinds").state("total").to_arrow()
    keys = set(total["key"].to_pylist())
    assert 30 < len(keys) < 90
    expected = []
    for line in lines_of(KINDS.snapshot):
        if "timer" in line:
            expected += [line] if line["key"] in keys else []
        elif line["key"] not in keys:
            expected.append({"key": line["key"]} | NOTHING)
        else:
            number, text, _ = line["row"]
            hashed = None if text is None else CIPHER.digest(text.encode()).hex()
            expected.append(
                line
                | {"name": CIPHER.text(line["name"]), "total": 7, "row": [number, hashed, None]}
            )
    restored = flink.restore(
        "kinds", to, keys=KINDS.facts["keys"], parallelism=3, backend="rocksdb"
    )
    assert sorted_lines(restored) == sorted_lines(expected)


def test_timers_fire_for_masked_keys(lake: Catalog, flink: FlinkOracle, tmp_path: Path) -> None:
    """A key that is a number becomes another number, and its timers go with it."""
    to = shared(lake, "kinds", tmp_path / "out", {"keys": {"kinds": "format"}, "others": "keep"})
    timers = open_snapshot(to).operator("kinds").state("_timer_state/event_user-timers").to_arrow()
    keys = set(timers["key"].to_pylist())
    expected = [
        line | {"key": CIPHER.integer(line["key"])}
        for line in lines_of(KINDS.snapshot)
        if "timer" in line and CIPHER.integer(line["key"]) in keys
    ]
    assert len(expected) > 20
    restored = flink.restore(
        "kinds", to, keys=KINDS.facts["keys"], parallelism=2, backend="hashmap"
    )
    fired = [line for line in restored if "timer" in line]
    assert sorted_lines(fired) == sorted_lines(expected)
