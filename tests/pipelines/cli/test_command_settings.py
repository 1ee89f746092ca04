"""Where a lake, a job and an engine come from: the command line, the environment, a file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click
import pytest

from statelake.pipelines.cli import options, settings
from statelake.pipelines.cli.main import COMMANDS, statelake
from statelake.pipelines.engine import MASTER, cluster_configured
from tests.support.command import run
from tests.support.lakes import WORDS

ROOT = click.Context(statelake, info_name="statelake", help_option_names=["-h", "--help"])


def context_of(*words: str) -> click.Context:
    """What a command is called with, read and not run."""
    command = statelake.get_command(ROOT, words[0])
    assert command is not None
    return command.make_context(words[0], list(words[1:]), parent=ROOT)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own to stand in, below a home of its own; nothing is configured."""
    for name in ("STATELAKE_LAKE", "STATELAKE_JOB", MASTER):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / "shop" / ".git").mkdir(parents=True)
    (home / "shop" / "below" / "deep").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "shop")
    return home / "shop"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the snapshot `monday` of the job `words`, and `tuesday` of `others`."""
    lake = tmp_path_factory.mktemp("imported") / "lake"
    for job, name in (("words", "monday"), ("others", "tuesday")):
        assert run("import", WORDS, "--lake", lake, "--job", job, "--snapshot", name).code == 0
    return lake


@pytest.fixture
def lake(imported: Path, place: Path) -> Path:
    """That lake, at `lake` in the repository."""
    return Path(shutil.copytree(imported, place / "lake"))


def listed(*words: object) -> set[str]:
    """The snapshots that `statelake snapshots` lists."""
    ran = run("snapshots", "--json", *words)
    assert ran.code == 0, ran.err
    return {row["snapshot_id"] for row in ran.json}


class TestPrecedence:
    """The option, then the environment, then the file."""

    def test_each_stands_for_the_next(
        self, lake: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is nearer wins, for the lake and the job each by itself."""
        assert run("snapshots").code == 2
        (place / "statelake.toml").write_text('lake = "lake"\njob = "words"\n')
        assert listed() == {"monday"}
        monkeypatch.setenv("STATELAKE_JOB", "others")
        assert listed() == {"tuesday"}
        assert listed("--job", "words") == {"monday"}
        assert listed("--job", "") == {"monday", "tuesday"}
        monkeypatch.setenv("STATELAKE_LAKE", str(place / "nowhere"))
        assert run("snapshots").code == 3
        assert listed("--lake", lake) == {"tuesday"}

    def test_a_command_says_what_would_stand_for_it(self) -> None:
        """The error of a missing option, and the help, name the environment and the file."""
        ran = run("commit", "--snapshot", "monday", "--parent", "sunday")
        assert ran.code == 2
        assert "'--lake' (STATELAKE_LAKE or statelake.toml may have it, too)" in ran.err
        assert "STATELAKE_JOB" in run("export", "--help").out

    def test_the_engine(self, place: Path, lake: Path) -> None:
        """The file may say where commands run; the option wins."""
        (place / "statelake.toml").write_text('lake = "lake"\njob = "a"\nengine = "spark"\n')
        assert context_of("import", "x").params["engine"] == "spark"
        params = context_of("import", "x", "--engine", "local").params
        assert (params["engine"], params["lake"]) == ("local", str(lake))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_same_options(name: str) -> None:
    """No command has a rule of its own for `--lake`, `--job`, `--engine`."""
    commands = [statelake.get_command(ROOT, name)]
    if isinstance(commands[0], click.Group):
        commands = list(commands[0].commands.values())
    for command in commands:
        assert command is not None
        for param in command.params:
            if param.name in {"lake", "job", "engine"}:
                assert isinstance(param, options.Configured), (name, param.name)


class TestWhereTheFileIs:
    """In the working directory or above, up to the repository or the user's directory."""

    def test_the_nearest(self, place: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file nearer by wins as a whole, and a lake is relative to its file."""
        (place / "statelake.toml").write_text('lake = "lake"\njob = "words"\n')
        monkeypatch.chdir(place / "below" / "deep")
        assert listed() == {"monday"}
        (place / "below" / "statelake.toml").write_text('lake = "../lake"\n')
        assert listed() == {"monday", "tuesday"}
        assert lake.is_dir()

    def test_not_beyond_the_repository(self, place: Path, lake: Path) -> None:
        """What lies above a repository is of something else."""
        (place.parent / "statelake.toml").write_text(f'lake = "{lake}"\n')
        assert run("snapshots").code == 2
        (place / ".git").rmdir()
        assert listed() == {"monday", "tuesday"}

    def test_not_above_the_home(self, place: Path, lake: Path) -> None:
        """Nor what lies above a user's directory."""
        (place / ".git").rmdir()
        (place.parents[1] / "statelake.toml").write_text(f'lake = "{lake}"\n')
        assert run("snapshots").code == 2

    def test_not_above_a_shared_directory(
        self, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Outside both, nobody's file in a directory above is taken for one's own."""
        (tmp_path / "shared" / "mine").mkdir(parents=True)
        (tmp_path / "shared" / "statelake.toml").write_text(f'lake = "{lake}"\n')
        monkeypatch.chdir(tmp_path / "shared" / "mine")
        assert run("snapshots").code == 2
        monkeypatch.chdir(tmp_path / "shared")
        assert listed() == {"monday", "tuesday"}

    def test_home_in_a_path(self, place: Path, lake: Path) -> None:
        """`~` is the user's directory; a URI stays as it is."""
        (place / "statelake.toml").write_text('lake = "~/shop/lake"\n')
        assert listed() == {"monday", "tuesday"}
        (place.parent / "statelake.toml").write_text('trust = ["s3://bucket"]')
        (place / "statelake.toml").write_text('lake = "s3://bucket/lake"\njob = "a"\n')
        assert context_of("drop").params["lake"] == "s3://bucket/lake"
        assert lake.is_dir()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"lake = ", "it is no TOML"),
        (b'lake = "\xff"', "it is no TOML"),
        (b'lakes = "lake"', "there is no setting 'lakes'"),
        (b'plugins = "evil.py"', "there is no setting 'plugins'"),
        (b'master = "spark://evil:7077"', "there is no setting 'master'"),
        (b"lake = 7", "lake is no text"),
        (b'job = ""', "job is no text"),
        (b'engine = "warp"', "there is no engine 'warp'"),
        (b'lake = "~nobody-of-that-name/lake"', "lake: "),
    ],
)
def test_a_wrong_file_is_named(place: Path, text: bytes, said: str) -> None:
    """The error says which file, what is wrong with it, and what it may have."""
    (place / "statelake.toml").write_bytes(text)
    ran = run("snapshots")
    assert ran.code == 3
    assert ran.err.startswith(f"error: {place / 'statelake.toml'}: {said}")
    assert "it may have lake, job, engine" in ran.err
    assert run("snapshots", "--help").code == 0


def test_a_file_that_is_none(place: Path) -> None:
    """A directory of that name, and a link to nowhere, are told like any other wrong file."""
    (place / "statelake.toml").mkdir()
    assert f"error: {place / 'statelake.toml'}: it can't be read" in run("snapshots").err
    (place / "statelake.toml").rmdir()
    (place / "statelake.toml").symlink_to("nowhere")
    assert f"error: {place / 'statelake.toml'}: it can't be read" in run("snapshots").err


class TestCommandsThatNeedNone:
    """What is configured makes no command do more than it was asked for."""

    @pytest.fixture(autouse=True)
    def _configured(self, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STATELAKE_LAKE", str(lake))
        monkeypatch.setenv("STATELAKE_JOB", "words")

    def test_check_integrity(self) -> None:
        """A savepoint is checked alone; `--snapshot` is of the lake that is configured."""
        alone = run("check", "integrity", WORDS, "--json")
        assert (alone.code, "lake_faults" in alone.json) == (0, False)
        stored = run("check", "integrity", "--snapshot", "monday", "--json")
        assert (stored.code, stored.json["lake_faults"]) == (0, [])
        assert run("check", "integrity").code == 2

    def test_check_legality(self, place: Path) -> None:
        """A declaration is checked alone, too."""
        (place / "orders.json").write_text('{"version": 1, "name": "orders", "operators": []}')
        assert run("check", "legality", "orders.json").code != 2
        held = run("check", "legality", "orders.json", "--snapshot", "nothing")
        assert "no snapshot 'nothing'" in held.err

    def test_bootstrap(self, place: Path) -> None:
        """A savepoint is imported where a lake or a snapshot is named, and not else."""
        (place / "in.csv").write_text("id,count\n1,2\n")
        (place / "spec.yaml").write_text(
            "operators:\n  counter:\n    key_type: Long\n    key: id\n    source: in.csv\n"
            "    states:\n      count: {type: Long, value: count}\n"
        )
        ran = run("bootstrap", "spec.yaml", "--to", "first", "--json")
        assert (ran.code, ran.json["snapshot_id"]) == (0, None), ran.err
        ran = run("bootstrap", "spec.yaml", "--to", "second", "--json", "--snapshot", "second")
        assert (ran.code, ran.json["snapshot_id"]) == (0, "second"), ran.err
        assert listed() == {"monday", "second"}


class TestMaster:
    """`--master` tells Spark, and `auto`, as long as the command runs."""

    @pytest.mark.parametrize("before", [None, "local[2]"])
    def test_it_is_set_and_taken_back(
        self, before: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the environment said before is there again behind it."""
        if before:
            monkeypatch.setenv(MASTER, before)
        monkeypatch.delenv("SPARK_REMOTE", raising=False)
        words = ("x", "--lake", "l", "--job", "j", "--master", "spark://host:7077")
        with context_of("import", *words):
            assert os.environ[MASTER] == "spark://host:7077"
        assert os.environ.get(MASTER) == before
        assert not cluster_configured()


class TestWhoIsTrusted:
    """A lake elsewhere gets the user's credentials only where the user has said so."""

    LAKE = "s3://bucket/lake?endpoint_override=127.0.0.1:1&scheme=http"

    @pytest.mark.parametrize(
        "words",
        [
            ("snapshots",), ("drop", "--job", "a"), ("top",), ("top", "--job", "a"),
            ("check", "integrity", "--job", "a", "--snapshot", "b"),
            ("bootstrap", "spec.yaml", "--to", "out", "--job", "a"),
            ("flink", "savepoint", "--flink-job", "0" * 32, "--flink", "http://127.0.0.1:1",
             "--job", "a"),
            ("checkpoints", "verify", "--log", "log", "--job", "a"),
        ],
        ids=" ".join,
    )  # fmt: skip
    def test_a_lake_elsewhere_that_only_a_file_names_is_not_opened(
        self, words: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its server would be sent signed requests, with a session's token."""
        monkeypatch.setattr("statelake.pipelines.lake.catalog.catalog.Directory", None)
        (place / "statelake.toml").write_text(f'lake = "{self.LAKE}"\njob = "orders"\n')
        ran = run(*words)
        assert ran.code == 3
        assert "only statelake.toml names the lake s3://bucket" in ran.err
        assert "--lake or STATELAKE_LAKE" in ran.err

    def test_what_needs_no_lake_is_done(self, place: Path) -> None:
        """A file that names a lake elsewhere stops nothing that opens none."""
        (place / "statelake.toml").write_text(f'lake = "{self.LAKE}"\njob = "orders"\n')
        assert run("inspect", WORDS).code == 0

    def test_nothing_is_opened_for_completion(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A TAB sends nothing either."""
        (place / "statelake.toml").write_text(f'lake = "{self.LAKE}"\njob = "orders"\n')
        command = statelake.get_command(ROOT, "drop")
        assert command is not None
        context = command.make_context("drop", [], parent=ROOT, resilient_parsing=True)
        assert context.params["lake"] is None

    @pytest.mark.parametrize(
        ("own", "trusted"),
        [
            ('lake = "s3://bucket/lake"', True),
            ('trust = ["s3://other", "s3://bucket"]', True),
            ('trust = ["s3://bucket/lake/"]', True),
            ('trust = ["s3://bucket/la"]', False),
            ('trust = ["s3://bucket?scheme=http"]', False),
            ('trust = ["s3://buck"]', False),
            ("trust = []", False),
            ('lake = "lake"', False),
        ],
    )
    def test_the_users_own_file_says_whom_to_trust(
        self, own: str, trusted: bool, place: Path
    ) -> None:
        """Places at or below those that it names, with the same options."""
        (place.parent / "statelake.toml").write_text(own)
        (place / "statelake.toml").write_text('lake = "s3://bucket/lake"\njob = "a"\n')
        assert settings.is_trusted("s3://bucket/lake") is trusted
        assert not settings.is_trusted("s3://bucket/lake?endpoint_override=evil:1")
        assert not settings.is_trusted("s3://bucket/lake/../../other")
        assert not settings.is_trusted("s3://[bucket/lake")
        assert not settings.is_trusted("s3://key:secret@bucket/lake")

    def test_only_the_users_own_file_trusts(self, place: Path) -> None:
        """A file of somebody else's would trust itself."""
        (place / "statelake.toml").write_text('trust = ["s3://bucket"]')
        assert "there is no setting 'trust'" in run("snapshots").err
        (place.parent / "statelake.toml").write_text('trust = "s3://bucket"')
        (place / "statelake.toml").write_text('lake = "s3://bucket/lake"')
        assert "trust is no list of texts" in run("snapshots").err


def test_a_file_that_might_not_end_is_refused(place: Path) -> None:
    """A pipe, a device, and more than settings can be: none is waited for."""
    path = place / "statelake.toml"
    os.mkfifo(path)
    assert f"error: {path}: it can't be read (it is no regular file)" in run("snapshots").err
    for device in ("/dev/zero", "/dev/tty"):
        path.unlink()
        path.symlink_to(device)
        assert f"error: {path}: it can't be read (it is no regular file)" in run("snapshots").err
    path.unlink()
    with path.open("wb") as file:
        file.truncate(200 << 20)
    assert f"error: {path}: it has more than 64 KiB" in run("snapshots").err
