"""`orphans`: nothing that a snapshot or a job needs is listed, and what is left over is found."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.flink.path_map import PathMap
from statelake.pipelines.operations.orphans import Orphans, asked, find_orphans
from tests.support.savepoints.checkpoint_histories import DAY, World

WEEK = timedelta(days=7)


def history(root: Path, seed: int, steps: int = 25) -> World:
    """Let a history happen below a directory."""
    world = World(root, random.Random(seed))
    for _ in range(steps):
        world.step()
    world.end()
    return world


def found_in(
    world: World, root: Path, *, ask: bool = True, paths: PathMap | None = None
) -> Orphans:
    """Return the orphans of a history."""
    cluster: Any = world.cluster()
    return find_orphans(
        root, partial(asked, cluster) if ask else None, older_than=WEEK, paths=paths, now=world.now
    )


@pytest.mark.parametrize("histories", [40, pytest.param(1000, marks=pytest.mark.full)])
def test_random_histories(histories: int, tmp_path: Path) -> None:
    """Of five backends: checkpoints that complete, fail, are claimed, dropped, deleted by hand."""
    counts = Counter[str]()
    for seed in range(histories):
        root = tmp_path / str(seed)
        world = history(root, seed)
        needed = world.needed()
        plan = found_in(world, root)
        listed = {root / file.path for file in plan.files}
        assert listed & needed == set(), seed
        left = world.left(7 * DAY)
        assert left - listed == set(), seed
        counts.update(file.kind for file in plan.files)
        counts["needed"] += len(needed)
        counts["kept"] += sum(kept.files for kept in plan.kept)
        if seed % 4 == 0:
            _look_otherwise(world, root, plan)
        shutil.rmtree(root)
    assert min(counts.values()) >= histories // 8


def _look_otherwise(world: World, root: Path, plan: Orphans) -> None:
    """Without a cluster; elsewhere, under other names; and with a `_metadata` that is damaged."""
    needed = world.needed()
    named = {path for path in needed if not _is_held(world, path)}
    listed = {root / file.path for file in found_in(world, root, ask=False).files}
    assert listed & named == set()
    moved = root.with_name("moved")
    root.rename(moved)
    paths = PathMap({str(root): str(moved)})
    assert found_in(world, moved, paths=paths).files == plan.files
    metadata = sorted(moved.rglob("_metadata"))
    if metadata:
        target = world.rng.choice(metadata)
        target.write_bytes(target.read_bytes()[: world.rng.randrange(60)])
        assert found_in(world, moved, paths=paths).files == ()
    moved.rename(root)


def _is_held(world: World, path: Path) -> bool:
    snapshots = [*world.savepoints, *(each for job in world.jobs for each in job.completed)]
    return path.name != "_metadata" and not any(path in each.named for each in snapshots)
