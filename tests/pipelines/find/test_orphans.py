"""`orphans`: nothing that a snapshot or a job needs is listed, and what is left over is found."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.find.orphans import (
    JOURNAL,
    Orphans,
    delete_orphans,
    find_orphans,
)
from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.find.scanning import Tree
from statelake.pipelines.live.cluster_view import cluster_jobs
from statelake.state_core.errors import DeclarationError, SnapshotError
from statelake.state_core.files.confinement import ConfinedTree
from tests.support.command import Ran, run
from tests.support.fake_rest import Answer, FakeRest
from tests.support.savepoints.checkpoint_histories import DAY, World
from tests.support.savepoints.checkpoint_trees import MadeTree, made_tree

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
        root,
        partial(cluster_jobs, cluster) if ask else None,
        older_than=WEEK,
        paths=paths,
        now=world.now,
    )


@pytest.mark.parametrize(
    "histories",
    [
        24,
        pytest.param(150, marks=pytest.mark.full),
        pytest.param(1000, marks=[pytest.mark.full, pytest.mark.nightly]),
    ],
)
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


# --------------------------------------------------------------------------- one at a time


@pytest.fixture
def tree(tmp_path: Path) -> MadeTree:
    """Two jobs with three checkpoints and a savepoint: incremental, and with merged files."""
    families = ("incremental", "merged")
    made = made_tree(f"file:{tmp_path / 'flink'}", jobs=2, each=3, families=families)
    made.write(tmp_path / "flink")
    return made


def jobs_of(tree: MadeTree) -> list[str]:
    """The ids of its jobs, in order."""
    return list(dict.fromkeys(made.job for made in tree.snapshots))


def leave(root: Path, *paths: str, days: float = 30) -> list[str]:
    """Write files that nothing names."""
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"left")
        then = time.time() - days * DAY
        os.utime(file, (then, then))
    return sorted(paths)


def aged(root: Path, days: float) -> None:
    """Let all files be of an age."""
    then = time.time() - days * DAY
    for path in root.rglob("*"):
        os.utime(path, (then, then))


def answering(
    root: Path, running: str, *, completed: int = 3, late: float = 0, state: str = "RUNNING"
) -> FakeRest:
    """A cluster with one job that runs."""
    now = int((time.time() - late * DAY) * 1000)
    done = {
        "id": completed, "status": "COMPLETED", "trigger_timestamp": now,
        "external_path": f"file:{root}/{running}/chk-{completed}",
    }  # fmt: skip
    job = {"jid": running, "name": "orders", "state": state, "start-time": 0, "tasks": {}}

    def answer(_: str, path: str) -> Answer:
        if path == "/jobs/overview":
            return Answer({"jobs": [job]})
        assert path == f"/jobs/{running}/checkpoints"
        return Answer({"counts": {"completed": completed}, "history": [done], "latest": {}})

    return FakeRest(answer)


def paths_of(ran: Ran) -> list[str]:
    """The files of a plan."""
    assert ran.code == 0, ran.err
    return [file["path"] for file in ran.json["files"]]


def test_only_what_lies_where_flink_writes_is_listed(tree: MadeTree, tmp_path: Path) -> None:
    """By class; a user's own files stay, as do those that are young."""
    root, (job, other) = tmp_path / "flink", jobs_of(tree)
    aged(root, 20)
    half = f"savepoints/savepoint-{job[:6]}-{'0' * 11}f"
    left = leave(
        root, f"{job}/chk-9/a", f"{job}/chk-9/below/b", f"{job}/chk-2/c", f"{job}/shared/d",
        f"{job}/shared/op_1/db/e", f"{other}/taskowned/f", f"{other}/dstl/g", f"{half}/h",
    )  # fmt: skip
    leave(root, "notes.txt", "shared/of/mine", f"{job}/README", "savepoints/mine/data", days=90)
    leave(root, f"{job}/shared/young", days=6)
    ran = run("orphans", root, "--no-cluster", "--older-than", "7d", "--json")
    # what is young makes the job one that may run
    assert set(paths_of(ran)) == set(left) - {f"{job}/shared/op_1/db/e", f"{job}/chk-9/a",
                                              f"{job}/chk-9/below/b"}  # fmt: skip
    (root / job / "shared" / "young").unlink()
    ran = run("orphans", root, "--no-cluster", "--older-than", "7d", "--json")
    assert paths_of(ran) == left
    kinds = Counter(file["class"] for file in ran.json["files"])
    assert kinds == {
        "half-written": 3, "left in a checkpoint": 1, "shared": 2, "task-owned": 1, "changelog": 1,
    }  # fmt: skip
    assert paths_of(run("orphans", root, "--no-cluster", "--older-than", "60d", "--json")) == []
    shown = run("orphans", root, "--no-cluster", "--older-than", "7d").out
    assert shown.startswith("8 files are nobody's (32 B); 8 snapshots name ")
    assert "shared/ without a reference" in shown


def test_a_job_that_can_not_be_asked_keeps_its_files(tree: MadeTree, tmp_path: Path) -> None:
    """Without a cluster nothing is planned; what another cluster's job writes stays."""
    root, (job, other) = tmp_path / "flink", jobs_of(tree)
    aged(root, 40)
    left = leave(root, f"{job}/shared/a", f"{other}/shared/b", f"{other}/chk-1/c")
    for words, problem in (
        ((), "no cluster to ask for its jobs"),
        (("--no-cluster",), "--no-cluster without an age"),
    ):
        ran = run("orphans", root, *words)
        assert (ran.code, problem in ran.err) == (3, True)
    with FakeRest([Answer({"errors": ["?"]}, 404)]) as cluster:
        ran = run("orphans", root, "--flink", cluster.url, "--yes")
    assert ran.code == 3
    with answering(root, job, late=1) as cluster:
        assert paths_of(run("orphans", root, "--flink", cluster.url, "--json")) == left
        leave(root, f"{other}/chk-4/_metadata.inprogress", days=0.1)
        ran = run("orphans", root, "--flink", cluster.url, "--json")
        assert paths_of(ran) == [path for path in left if path.startswith(job)]
        (unknown,) = {kept["reason"] for kept in ran.json["kept"] if "cluster" in kept["reason"]}
        assert "that the cluster does not know" in unknown


@pytest.mark.full
def test_a_job_that_runs_keeps_what_it_may_name(tree: MadeTree, tmp_path: Path) -> None:
    """What is task-owned, a later checkpoint, and shared files that are as old as its newest."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    aged(root, 40)
    kept = (
        f"{job}/taskowned/a", f"{job}/dstl/b", f"{job}/chk-3/c", f"{job}/chk-4/d",
        f"{job}/shared/op_1/db/e",
    )  # fmt: skip
    leave(root, *kept)
    listed = leave(root, f"{job}/chk-1/f", f"{job}/shared/g")
    for state in ("RUNNING", "RESTARTING", "SUSPENDED"):
        with answering(root, job, late=1, state=state) as cluster:
            ran = run("orphans", root, "--flink", cluster.url, "--json")
        assert paths_of(ran) == listed
        assert sum(each["files"] for each in ran.json["kept"]) == len(kept)
    with answering(root, job, late=1, state="FINISHED") as cluster:
        ran = run("orphans", root, "--flink", cluster.url, "--json")
    assert paths_of(ran) == sorted({*listed, *kept})
    with answering(root, job, late=25) as cluster:
        assert paths_of(run("orphans", root, "--flink", cluster.url, "--json")) == listed[:1]
    for checkpoint in (root / job).glob("chk-*"):
        shutil.rmtree(checkpoint)
    leave(root, f"{job}/chk-4/d")
    with answering(root, job, completed=4) as cluster:
        ran = run("orphans", root, "--flink", cluster.url)
        assert (ran.code, "come and go faster than they are read" in ran.err) == (3, True)


def test_a_checkpoint_elsewhere_names_files_too(tree: MadeTree, tmp_path: Path) -> None:
    """One that the cluster lists, and that is not below the directory; if unreadable, all stays."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    checkpoint = next(each for each in tree.snapshots if each.job == job and each.elsewhere)
    elsewhere = tmp_path / "other" / ("f" * 32) / "chk-3"
    elsewhere.parent.mkdir(parents=True)
    shutil.copytree(root / checkpoint.path, elsewhere)
    for each in (root / job).glob("chk-*"):
        shutil.rmtree(each)
    aged(root, 40)
    needed = set(checkpoint.elsewhere)
    with answering(tmp_path / "other", "f" * 32) as cluster:
        listed = set(paths_of(run("orphans", root, "--flink", cluster.url, "--json")))
        assert needed
        assert listed & needed == set()
        assert len(listed) > 10
        (elsewhere / "_metadata").write_bytes(b"")
        ran = run("orphans", root, "--flink", cluster.url, "--json")
        assert paths_of(ran) == []
        assert "which job ffff" in ran.json["kept"][0]["reason"]


def test_links_and_other_programs_files(tree: MadeTree, tmp_path: Path) -> None:
    """A link that leads outside may lead to a snapshot; a Parquet summary is none."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    aged(root, 40)
    left = leave(root, f"{job}/shared/a")
    words = ("orphans", root, "--no-cluster", "--older-than", "1d", "--json")
    (root / "table").mkdir()
    (root / "table" / "_metadata").write_bytes(b"PAR1...PAR1")
    (root / "current").symlink_to(root / job)
    assert paths_of(run(*words)) == left
    (root / "more").symlink_to(tmp_path)
    ran = run(*words)
    assert paths_of(ran) == []
    assert "a link that leads outside" in ran.json["kept"][0]["reason"]


def test_who_was_killed_goes_on(
    tree: MadeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are written down before the first is deleted; nothing else is touched."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    aged(root, 40)
    files = {path for path in root.rglob("*") if path.is_file()}
    left = leave(root, *(f"{job}/shared/{number}" for number in range(20)))
    words = ("orphans", root, "--no-cluster", "--older-than", "7d")
    assert "nothing was deleted: --yes" in run(*words).out
    assert paths_of(run(*words, "--json")) == left
    deleted: list[str] = []
    delete = ConfinedTree.remove

    def killed(tree: ConfinedTree, path: str) -> None:
        if len(deleted) == 7:
            raise KeyboardInterrupt
        deleted.append(path)
        delete(tree, path)

    with monkeypatch.context() as patch:
        patch.setattr(ConfinedTree, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            sl.orphans(root, no_cluster=True, older_than=WEEK, delete=True)
    written = json.loads((root / JOURNAL).read_text())
    assert [file["path"] for file in written["files"]] == left
    ran = run(*words, "--yes", "--json")
    assert (ran.json["deleted"], ran.json["went_on"]) == (13, 13)
    assert {path for path in root.rglob("*") if path.is_file()} == files
    again = sl.orphans(root, no_cluster=True, older_than=WEEK, delete=True)
    assert (again.deleted, again.files) == (0, ())


def test_only_an_untrusted_file_names_the_cluster(
    tree: MadeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its word does not decide what is deleted."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    aged(root, 40)
    left = leave(root, f"{job}/shared/a")
    monkeypatch.chdir(tmp_path)
    with answering(root, job, late=1) as cluster:
        (tmp_path / "statelake.toml").write_text(f'flink = "{cluster.url}"\n')
        assert paths_of(run("orphans", root, "--json")) == left
        ran = run("orphans", root, "--yes")
        assert (ran.code, "whose word decides what is deleted" in ran.err) == (3, True)
        assert (root / left[0]).is_file()
        ran = run("orphans", root, "--yes", "--flink", cluster.url)
        assert ran.code == 0
    assert not (root / left[0]).exists()


def test_a_checkpoint_that_comes_while_the_tree_is_listed(
    tree: MadeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took over from one that has gone meanwhile is not listed."""
    root = tmp_path / "flink"
    last = next(each for each in reversed(tree.snapshots) if each.elsewhere)
    (root / last.path).rename(tmp_path / "aside")
    aged(root, 40)
    listed = Tree.__init__
    seen: list[Any] = []

    def come(tree: Tree, location: Any) -> None:
        listed(tree, location)
        if not seen:
            (tmp_path / "aside").rename(root / last.path)
        seen.append(location)

    monkeypatch.setattr(Tree, "__init__", come)
    plan = sl.orphans(root, no_cluster=True, older_than=WEEK)
    assert {file.path for file in plan.files} & set(last.elsewhere) == set()
    assert plan.snapshots == len(tree.snapshots)


@pytest.mark.parametrize(("goes", "found"), [(15, True), (10_000, False)])
@pytest.mark.full
def test_checkpoints_that_go_while_the_tree_is_read(
    goes: int, found: bool, tree: MadeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each listing the newest is subsumed: what one of them named is never listed."""
    root = tmp_path / "flink"
    last = next(each for each in reversed(tree.snapshots) if each.elsewhere)
    job = (root / last.path).parent
    left = leave(root, f"{job.name}/shared/left")
    aged(root, 40)
    listed = Tree.__init__
    at = int(last.path.rpartition("-")[2])
    numbers = iter(range(at, at + 100_000))

    def go(tree: Tree, location: Any) -> None:
        listed(tree, location)
        number = next(numbers)
        if number - at < goes:
            (job / f"chk-{number}").rename(job / f"chk-{number + 1}")

    monkeypatch.setattr(Tree, "__init__", go)
    if not found:
        with pytest.raises(SnapshotError, match=r"come and go .*chk-\d+/_metadata is gone"):
            sl.orphans(root, no_cluster=True, older_than=WEEK)
        return
    plan = sl.orphans(root, no_cluster=True, older_than=WEEK)
    assert [file.path for file in plan.files] == left
    assert plan.snapshots == len(tree.snapshots)


def test_names_that_flink_does_not_give_stay(tree: MadeTree, tmp_path: Path) -> None:
    """They keep no other file from being deleted; that a note was damaged does not, either."""
    root = tmp_path / "flink"
    shared = root / tree.snapshots[0].job / "shared"
    shared.mkdir(exist_ok=True)
    names = [b"new\nline", b"no \xff UTF-8", b"c:\\back", b"left"]
    for name in names:
        path = os.fsencode(shared) + b"/" + name
        Path(os.fsdecode(path)).write_bytes(b"x")
    aged(root, 20)
    (root / JOURNAL).write_text("[" * 100_000)
    done = sl.orphans(root, no_cluster=True, older_than=WEEK, delete=True)
    assert [Path(each.path).name for each in done.files] == ["left"]
    still = {os.fsencode(each.name) for each in shared.iterdir()}
    assert still & set(names) == set(names[:-1])
    assert [kept.files for kept in done.kept if "such a name" in kept.reason] == [3]
    assert not (root / JOURNAL).exists()


def test_an_age_of_nothing_is_one(tree: MadeTree, tmp_path: Path) -> None:
    """It is not the default; a negative one is refused."""
    left = tmp_path / "flink" / tree.snapshots[0].job / "shared" / "left"
    left.parent.mkdir(exist_ok=True)
    left.write_text("x")
    assert not sl.orphans(tmp_path / "flink", no_cluster=True, older_than=WEEK).files
    found = sl.orphans(tmp_path / "flink", no_cluster=True, older_than=timedelta(0))
    assert [Path(each.path).name for each in found.files] == ["left"]
    with pytest.raises(DeclarationError, match="negative"):
        sl.orphans(tmp_path / "flink", no_cluster=True, older_than=-WEEK)


def test_what_changed_since_the_plan_stays(tree: MadeTree, tmp_path: Path) -> None:
    """A file that was written anew, and one whose `_metadata` has come; what is gone is gone."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    aged(root, 40)
    left = leave(root, f"{job}/chk-8/a", f"{job}/chk-9/b", f"{job}/shared/c", f"{job}/shared/d")
    plan = find_orphans(root, None, older_than=WEEK)
    assert [file.path for file in plan.files] == left
    made = next(root.glob(f"{job}/chk-*/_metadata"))
    shutil.copy2(made, root / job / "chk-9" / "_metadata")
    (root / job / "shared" / "c").write_bytes(b"anew")
    (root / job / "chk-8" / "a").unlink()
    done = delete_orphans(root, plan)
    assert [file.path for file in done.files] == [f"{job}/shared/d"]
    assert done.deleted == 1
    assert (root / job / "chk-9" / "b").exists()
    assert (root / job / "shared" / "c").read_bytes() == b"anew"
    assert not (root / job / "shared" / "d").exists()


@pytest.mark.parametrize("kind", ["inside", "outside", "dangling", "above", "pipe", "directory"])
@pytest.mark.parametrize("comes", ["before", "after the plan"])
def test_what_is_called_metadata_and_is_not_read_keeps_all(
    comes: str, kind: str, tree: MadeTree, tmp_path: Path
) -> None:
    """Flink follows links: what one leads to may name any file. It is named, and nothing goes."""
    root = tmp_path / "flink"
    job = next(each.job for each in tree.snapshots if each.elsewhere)
    left = leave(root, f"{job}/shared/left")
    aged(root, 40)
    plan = find_orphans(root, None, older_than=WEEK)
    assert [file.path for file in plan.files] == left
    metadata = root / job / "chk-3" / "_metadata"
    if kind in {"inside", "outside"}:
        place = (root if kind == "inside" else tmp_path) / "kept"
        metadata.rename(place)
        metadata.symlink_to(place)
    else:
        metadata.unlink()
    if kind == "dangling":
        metadata.symlink_to("nowhere")
    elif kind == "above":
        metadata.symlink_to("..")
    elif kind == "pipe":
        os.mkfifo(metadata)
    elif kind == "directory":
        metadata.mkdir()
    files = {path for path in root.rglob("*") if path.is_file()}
    if comes == "before":
        plan = find_orphans(root, None, older_than=WEEK)
        assert plan.files == ()
        assert f"{job}/chk-3/_metadata: " in plan.kept[0].reason
    assert delete_orphans(root, plan).deleted == 0
    assert {path for path in root.rglob("*") if path.is_file()} == files
    states = {each.path: each for each in sl.scan(root).snapshots}
    assert states[f"{job}/chk-3"].state == "damaged"
    assert states[f"{job}/chk-3"].reason.startswith("`_metadata` is ")


def test_what_may_not_be_read_keeps_all(
    tree: MadeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `_metadata` that another user owns is not one that is gone."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    leave(root, f"{job}/shared/left")
    aged(root, 40)
    opened = os.open

    def refusing(path: Any, *words: Any, **more: Any) -> int:
        if str(path).endswith("_metadata"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *words, **more)

    monkeypatch.setattr(os, "open", refusing)
    plan = find_orphans(root, None, older_than=WEEK)
    assert plan.files == ()
    assert "_metadata: Permission denied" in plan.kept[0].reason


def test_links_to_files_and_directories_keep_what_they_lead_to(
    tree: MadeTree, tmp_path: Path
) -> None:
    """A file of another name, and a checkpoint in a directory of another name."""
    root = tmp_path / "flink"
    one = next(each for each in reversed(tree.snapshots) if len(each.elsewhere) > 1)
    shared = root / next(path for path in one.elsewhere if "/shared/" in path)
    shared.rename(shared.with_name("renamed"))
    shared.symlink_to("renamed")
    (root / one.path).rename(root / "aside")
    (root / one.path).symlink_to(root / "aside")
    left = leave(root, f"{one.job}/shared/left")
    aged(root, 40)
    assert [file.path for file in find_orphans(root, None, older_than=WEEK).files] == left


def test_only_one_deletes(tree: MadeTree, tmp_path: Path) -> None:
    """A second one is refused while the first lives; one that was killed makes way."""
    root, job = tmp_path / "flink", tree.snapshots[0].job
    leave(root, f"{job}/shared/left")
    aged(root, 40)
    plan = find_orphans(root, None, older_than=WEEK)
    held = ConfinedTree(str(root)).hold(JOURNAL, b"{}")
    assert held is not None
    with pytest.raises(SnapshotError, match="another process deletes files there"):
        delete_orphans(root, plan)
    os.close(held)
    assert delete_orphans(root, plan).deleted == 1
    assert not (root / JOURNAL).exists()
