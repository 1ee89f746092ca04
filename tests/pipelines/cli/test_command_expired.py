"""`statelake expired`: as counted from the times of last access, one by one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import KINDS, import_as

ROWS = {row["key"]: row["ttl"] for row in
        open_snapshot(KINDS)["kinds"].state("session").to_arrow().to_pylist()}  # fmt: skip


@pytest.mark.parametrize("seconds", [0, 10, 30, 86_400])
def test_counts_what_counting_by_hand_finds(seconds: int, tmp_path: Path) -> None:
    """By default at the newest last access; a lake says the same as its savepoint."""
    newest = max(ROWS.values())
    gone = sorted(key for key, time in ROWS.items() if time <= newest - 1000 * seconds)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, KINDS, "s")
    more = ("--ttl", f"{seconds}s", "--keys", "--limit", 1000, "--json")
    for where in ((KINDS,), ("--lake", lake.location, "--job", "orders")):
        ran = run("expired", *where, *more)
        assert ran.code == 0
        (state,) = ran.json["states"]
        assert (state["entries"], state["expired"]) == (len(ROWS), len(gone))
        assert sorted(state["keys"]) == gone
        at = datetime.fromisoformat(ran.json["at"])
        assert at == datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=newest)
        assert "newest last access" in ran.json["rule"]


def test_each_state_may_have_its_own(tmp_path: Path) -> None:
    """`operator/state=` goes before the time to live of all; lists expire by element."""
    lists = {
        "key": [1, 2],
        "value": pa.array([[10, 11], [12]], pa.list_(pa.int64())),
        "ttl": pa.array([[1000, 5000], [1000]], pa.list_(pa.int64())),
    }
    seen = NewKeyedState("seen", pa.table(lists), "list", "Long", with_ttl=True)
    last = pa.table({"key": [1, 2], "value": [1, 2], "ttl": [1000, 5000]})
    count = NewKeyedState("count", last, value="Long", with_ttl=True)
    operator = NewOperator("op", "Long", (seen, count))
    write_snapshot(tmp_path / "s", [operator], metadata_version=6)
    ran = run("expired", tmp_path / "s", "--ttl", "1d", "--ttl", "op/seen=2s", "--json")
    held = {each["state"]: (each["entries"], each["expired"], each["ttl"])
            for each in ran.json["states"]}  # fmt: skip
    assert held == {"seen": (3, 2, "2s"), "count": (2, 0, "1d")}


def test_bad_input() -> None:
    """A state without times of last access is refused, a missing or unreadable time too."""
    refused = run("expired", KINDS, "--ttl", "kinds/total=1d")
    assert refused.code == 3
    assert "kinds/session" in refused.err
    assert run("expired", KINDS).code == 2
    assert run("expired", KINDS, "--ttl", "soon").code == 2
