"""Samples: whole keys, the same ones everywhere, as many as were asked for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, NewOperatorState, open_snapshot, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.share.sampling import Sample
from statelake.pipelines.lake.share.sharing import SharedForm
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.handles import InlineHandle, KeyGroupsHandle
from tests.support.lakes import LOCAL, entries, import_as

KEYS = [f"key-{number}" for number in range(5000)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with two operators that have keys of one type, and other state beside them."""
    root = tmp_path_factory.mktemp("sampled")
    first = NewOperator(
        "first", "String",
        (
            NewKeyedState("count", pa.table({"key": KEYS, "value": range(5000)}), value="Long"),
            NewKeyedState.timers("event", pa.table({"key": KEYS, "timestamp": range(5000)})),
        ),
        parallelism=2, max_parallelism=128,
        operator_states=(
            NewOperatorState("seen", pa.table({"value": KEYS[:100]}), "split", "String"),
            NewOperatorState(
                "rules", pa.table({"key": KEYS[:9], "value": KEYS[:9]}), "broadcast", "String",
                "String",
            ),
        ),
    )  # fmt: skip
    scores = pa.table({"key": KEYS[::2], "user_key": KEYS[::2], "value": [1.5] * 2500})
    second = NewOperator(
        "second", "String",
        (NewKeyedState("scores", scores, "map", value="Double", user_key="String"),),
        parallelism=3, max_parallelism=300,
    )  # fmt: skip
    write_snapshot(root / "savepoint", [first, second], metadata_version=6)
    lake = Catalog(root / "lake")
    import_as(lake, root / "savepoint", "s")
    return lake


def keys_of(savepoint: Path, operator: str, state: str) -> set[str]:
    """The keys that a state has."""
    found = open_snapshot(savepoint).operator(operator).state(state).to_arrow()
    return set(found["key"].to_pylist())


def export(lake: Catalog, to: Path, share: float, seed: int = 0, **options: Any) -> Path:
    """Export a sample."""
    sharing = SharedForm(Sample(share, seed))
    export_snapshot(lake, "orders", "s", to, sharing=sharing, engine=LOCAL, **options)
    return to


def test_whole_keys(lake: Catalog, tmp_path: Path) -> None:
    """Each key is in or out with all it has, in every operator with keys of its type."""
    to = export(lake, tmp_path / "out", 0.1)
    keys = keys_of(to, "first", "count")
    assert 400 < len(keys) < 600
    assert keys_of(to, "first", "_timer_state/event_user-timers") == keys
    assert keys_of(to, "second", "scores") == keys & set(KEYS[::2])
    assert check_snapshot(to).faults == ()


def test_state_without_keys_is_whole(lake: Catalog, tmp_path: Path) -> None:
    """It is the same for any key."""
    export_snapshot(lake, "orders", "s", tmp_path / "all", engine=LOCAL)
    to = export(lake, tmp_path / "out", 0.01)
    for state in ("seen", "rules"):
        whole, part = (
            open_snapshot(path).operator("first").operator_state(state).to_arrow()
            for path in (tmp_path / "all", to)
        )
        assert part == whole


def test_reproducible(lake: Catalog, tmp_path: Path) -> None:
    """The same seed gives the same entries, and another one other keys."""
    once, again = (export(lake, tmp_path / name, 0.05, 7) for name in ("once", "again"))
    assert entries(once) == entries(again)
    keys = keys_of(once, "first", "count")
    others = keys_of(export(lake, tmp_path / "other", 0.05, 8), "first", "count")
    assert len(keys & others) < len(keys) / 2


def test_a_larger_sample_has_all_of_a_smaller_one(lake: Catalog, tmp_path: Path) -> None:
    """And the whole is all there is."""
    shares = (0.001, 0.1, 0.5, 1.0)
    found = [
        keys_of(export(lake, tmp_path / str(share), share), "first", "count") for share in shares
    ]
    assert all(small < large for small, large in pairwise(found))
    assert found[-1] == set(KEYS)


def test_at_another_parallelism(lake: Catalog, tmp_path: Path) -> None:
    """The same keys, in other key groups."""
    plain = export(lake, tmp_path / "plain", 0.1)
    wide = export(lake, tmp_path / "wide", 0.1, parallelism=5, max_parallelism=1000)
    assert keys_of(wide, "first", "count") == keys_of(plain, "first", "count")
    assert check_snapshot(wide).faults == ()


def test_state_without_structure_is_refused_or_left_out(lake: Catalog, tmp_path: Path) -> None:
    """Raw keyed state has keys, and nobody knows which."""
    export_snapshot(lake, "orders", "s", tmp_path / "raw", engine=LOCAL)
    path = tmp_path / "raw" / "_metadata"
    metadata = read_metadata(path.read_bytes())
    subtasks = metadata.operators[0].subtasks
    assert subtasks is not None
    keyed = subtasks[0].managed_keyed
    assert isinstance(keyed, KeyGroupsHandle)
    raw = InlineHandle("raw", b"raw keyed state " * 4)
    subtasks[0].raw_keyed = replace(keyed, offsets=tuple(range(raw.size)), stream=raw)
    path.write_bytes(write_metadata(metadata))
    other = Catalog(tmp_path / "lake")
    import_as(other, tmp_path / "raw", "s")
    with pytest.raises(UnsupportedFormatError, match="raw keyed state of operator first") as error:
        export(other, tmp_path / "out", 0.1)
    assert "--leave-out-opaque" in str(error.value)
    sharing = SharedForm(Sample(0.1), leave_out=True)
    done = export_snapshot(other, "orders", "s", tmp_path / "out", sharing=sharing, engine=LOCAL)
    assert done.left_out == ["the raw keyed state of operator first, which can't be sampled"]
    assert b"raw keyed state" not in (tmp_path / "out" / "_metadata").read_bytes()
