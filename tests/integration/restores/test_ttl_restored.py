"""Time to live switched on and off in a lake: what real Flink restores then, and unaided."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from statelake import Lake
from tests.integration.flink.oracle import FlinkError, FlinkOracle, sorted_lines
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS = 120
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
EMPTY: dict[str, Any] = {
    "name": None, "items": [], "scores": {}, "total": None, "avg": None, "triple": None,
    "row": None,
}  # fmt: skip
SWITCHES = [*(f"kinds/{state}=on" for state in EMPTY), "kinds/session=off"]
HOUR = ",".join([*(f"{state}:3600000" for state in EMPTY), "session:off"])
GOLDEN = {
    case.facts["flink"]: case for case in golden_cases("kinds", form="canonical")
}  # of each version one


@pytest.fixture(params=["1.20.0", "2.3.0"])
def version(request: pytest.FixtureRequest) -> str:
    """A version of Flink, which writes the savepoint and restores what becomes of it."""
    return str(request.param)


@pytest.fixture
def asked(version: str, request: pytest.FixtureRequest) -> FlinkOracle:
    """That Flink."""
    found: FlinkOracle = request.getfixturevalue("old_flink" if version == "1.20.0" else "flink")
    return found


def test_switched_states_are_restored_and_expire(
    version: str, asked: FlinkOracle, tmp_path: Path
) -> None:
    """Every kind of state in both backends: all values while they live, and none afterwards."""
    job = Lake(str(tmp_path / "lake")).job("shop", engine="local")
    source = GOLDEN[version].snapshot
    job.import_snapshot(str(source), name="s", taken=LONG_AGO, uids=["kinds"])
    before = asked.restore("kinds", source, keys=KEYS)
    expired = [{**line, **EMPTY} if "session" in line else line for line in before]
    for last_access, expected in (("now", before), ("taken_at", expired)):
        made = f"s-{last_access}"
        job["s"].migrate(ttl=SWITCHES, last_access=last_access, suffix=made[1:])
        job[made].export(str(tmp_path / made))
        for backend in ("hashmap", "rocksdb"):
            restored = asked.restore(
                "kinds", tmp_path / made, backend=backend, keys=KEYS, ttl=HOUR, strict="true"
            )
            assert sorted_lines(restored) == sorted_lines(expected), (last_access, backend)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("switched", ["name:1000", "items:1000", "scores:1000", "session:off"])
def test_unaided_flink_1_refuses_and_flink_2_takes_the_restore_for_an_access(
    version: str, asked: FlinkOracle, backend: str, switched: str
) -> None:
    """On as off; of a time that values had before the restore, Flink 2 knows nothing."""
    source = GOLDEN[version].snapshot
    options: dict[str, Any] = {"backend": backend, "keys": KEYS}
    if version == "1.20.0":
        with pytest.raises(FlinkError, match="must not be incompatible with the old state"):
            asked.restore("kinds", source, ttl=switched, **options)
        return
    lives = switched.replace(":1000", ":3600000")
    assert asked.restore("kinds", source, ttl=lives, **options) == asked.restore(
        "kinds", source, **options
    )
