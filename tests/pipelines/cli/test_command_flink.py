"""`statelake flink` without a cluster: options, exit codes, and who is sent what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.fake_rest import Answer, FakeRest
from tests.support.lakes import KINDS, import_golden

JOB = "0123456789abcdef" * 2
NOW = 1_700_000_000_000
JOBS = {
    "jobs": [
        {"jid": JOB, "name": "[red]orders\x1b[0m", "state": "RUNNING", "start-time": NOW,
         "duration": 65_000, "tasks": {"total": 4, "running": 3}},
        {"jid": "f" * 32, "name": "old", "state": "FINISHED", "start-time": 0},
    ]
}  # fmt: skip
CHECKPOINTS = {
    "counts": {"completed": 2, "failed": 1},
    "latest": {"restored": {"external_path": "file:/savepoints/first"}},
    "history": [
        {"id": 2, "status": "COMPLETED", "is_savepoint": True, "trigger_timestamp": NOW + 2000,
         "end_to_end_duration": 1500, "state_size": 2048, "external_path": "file:/savepoints/x"},
        {"id": 1, "status": "COMPLETED", "trigger_timestamp": NOW,
         "end_to_end_duration": 100, "state_size": 4096, "checkpointed_size": 1024},
    ],
}  # fmt: skip


def answer(_: str, path: str) -> Answer:
    """A cluster with two jobs."""
    if path == "/jobs/overview":
        return Answer(JOBS)
    return Answer(CHECKPOINTS) if path.endswith("/checkpoints") else Answer({"errors": ["?"]}, 404)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRest]:
    """That cluster; nothing else is configured."""
    for name in ("", "_TOKEN", "_USER", "_PASSWORD", "_HEADERS", "_CERT", "_KEY", "_PATH_MAP"):
        monkeypatch.delenv(f"STATELAKE_FLINK{name}", raising=False)
    for name in ("STATELAKE_LAKE", "STATELAKE_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    with FakeRest(answer) as made:
        yield made


def test_jobs_are_listed(server: FakeRest) -> None:
    """Those that run, or all; a name is text, whatever is in it."""
    listed = run("flink", "jobs", "--flink", server.url)
    assert listed.code == 0
    assert "1 jobs" in listed.out
    assert "[red]orders" in listed.out
    assert "\x1b" not in listed.out
    assert "3/4" in listed.out
    every = run("flink", "jobs", "--flink", server.url, "--all", "--json").json
    assert [row["state"] for row in every] == ["RUNNING", "FINISHED"]
    assert every[0]["seconds"] == 65


def test_checkpoints_are_shown_over_time(server: FakeRest) -> None:
    """The oldest first, with what they were restored from."""
    words = ("flink", "checkpoints", "--flink", server.url, "--flink-job", JOB)
    shown = run(*words).out
    assert "2 completed, 1 failed" in shown
    assert "restored from file:/savepoints/first" in shown
    first, second = run(*words, "--json").json["history"]
    assert (first["number"], first["state_bytes"], first["written_bytes"]) == (1, 4096, 1024)
    assert (second["is_savepoint"], second["seconds"], second["written_bytes"]) == (True, 1.5, 2048)


def test_a_cluster_that_only_a_file_names_gets_no_credentials(
    server: FakeRest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote the file would have them; one that the environment names does."""
    (tmp_path / "statelake.toml").write_text(f'flink = "{server.url}"\n')
    assert run("flink", "jobs").code == 0
    monkeypatch.setenv("STATELAKE_FLINK_TOKEN", "s3cret-word")
    refused = run("flink", "jobs")
    assert refused.code == 3
    assert "name it with --flink" in refused.err
    assert "s3cret" not in refused.err
    assert all("Authorization" not in headers for _, _, headers, _ in server.asked)
    assert run("flink", "jobs", "--flink", server.url).code == 0
    monkeypatch.setenv("STATELAKE_FLINK", server.url)
    assert run("flink", "jobs").code == 0
    assert server.asked[-1][2]["Authorization"] == "Bearer s3cret-word"


RESCALE = (
    "flink", "rescale", "--lake", "lake", "--job", "orders", "--savepoints", "file:/sp",
    "--exports", "/sp",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flink", "savepoint"), "Missing option '--flink-job'"),
        (("flink", "savepoint", "--flink-job", JOB, "--as", "monday"), "an import needs"),
        (("flink", "run"), "give either --jar or --jar-id"),
        (RESCALE, "Missing option '--flink-job'"),
        ((*RESCALE, "--flink-job", JOB), "give either --jar or --jar-id"),
        (
            (*RESCALE, "--flink-job", JOB, "--jar", "a", "--migrate", "b"),
            "--migrate needs --old-jar",
        ),
        (
            (*RESCALE, "--flink-job", JOB, "--jar", "a", "--old-jar", "b", "--old-jar-id", "c"),
            "not both",
        ),
        (("flink", "canary", "--lake", "a", "--job", "b", "--exports", "c"), "give either --jar"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_can_not_be_meant_is_usage(
    server: FakeRest, words: tuple[str, ...], said: str
) -> None:
    """And nothing was asked for but what there is."""
    ran = run(*words, "--flink", server.url)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert all(method == "GET" for method, *_ in server.asked)


def test_bad_input_has_its_exit_code(server: FakeRest) -> None:
    """A cluster that is none, and a job that is nowhere."""
    assert run("flink", "jobs").code == 2
    assert run("flink", "jobs", "--flink", "localhost").code == 3
    nobody = run("flink", "stop", "--flink", server.url, "--flink-job", "nobody")
    assert nobody.code == 3
    assert "there is no job 'nobody'" in nobody.err
    mapped = run(
        "flink", "savepoint", "--flink", server.url, "--flink-job", JOB, "--path-map", "x",
        "--lake", "a", "--job", "b",
    )  # fmt: skip
    assert mapped.code == 3
    assert all(method == "GET" for method, *_ in server.asked)


@contextmanager
def configured(**settings: str) -> Iterator[FakeRest]:
    """A cluster with a running job and these settings, where no JAR can be run."""
    rows = [{"key": name.replace("_", "."), "value": value} for name, value in settings.items()]

    def answer(method: str, path: str) -> Answer:
        if path == "/jobmanager/config":
            return Answer(rows)
        if path == "/jobs/overview":
            return Answer(JOBS)
        if path == f"/jobs/{JOB}":
            vertex = {"parallelism": 2, "maxParallelism": 128, "status": "RUNNING"}
            return Answer({"jid": JOB, "name": "orders", "state": "RUNNING", "vertices": [vertex]})
        return Answer({"errors": ["no"]}, 404 if method in ("GET", "PATCH") else 400)

    with FakeRest(answer) as made:
        yield made


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("settings", "directory"),
    [
        ({"execution_checkpointing_savepoint-dir": "file:/sp"}, "file:/sp"),
        ({"state_savepoints_dir": "file:/old"}, "file:/old"),
        ({"state_checkpoints_dir": "file:/cp"}, ""),
    ],
    ids=["since 1.20", "before", "none"],
)
def test_savepoints_go_where_the_cluster_is_configured_to_put_them(
    settings: dict[str, str], directory: str, tmp_path: Path
) -> None:
    """Without --savepoints, or --exports of a canary; nothing is guessed if nothing is set."""
    place = ("--lake", tmp_path / "lake", "--job", "orders", "--jar-id", "x")
    with configured(**settings) as cluster:
        words = ("--flink", cluster.url, *place)
        ran = run(
            "flink", "rescale", *words, "--flink-job", "[red]orders\x1b[0m", "--exports", "/sp",
            "--dry-run",
        )  # fmt: skip
        said = f"its savepoint goes to {directory}" if directory else "no directory for savepoints"
        assert (ran.code, said in ran.out + ran.err) == (0 if directory else 3, True), ran.err
        import_golden(Catalog(tmp_path / "lake"), ("s", KINDS))
        (tmp_path / "sp").mkdir()
        mapped = ("--path-map", f"{directory or 'file:/none'}={tmp_path / 'sp'}")
        ran = run("flink", "canary", *words, *mapped)
        bodies = [body for _, path, _, body in cluster.asked if path == "/jars/x/run"]
        if directory:
            assert ran.code == 1, ran.err
            assert f"{directory[5:]}/canary-" in bodies[0].decode()
            assert list((tmp_path / "sp").iterdir()) == []
        else:
            assert (ran.code, said in ran.err, bodies) == (3, True, [])
