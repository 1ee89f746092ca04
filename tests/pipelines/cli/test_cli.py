"""The command as a whole: help with examples, exit codes, errors on one line, no slow imports."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from statelake.pipelines.cli import main as cli
from statelake.pipelines.cli.main import COMMANDS, GROUPS, SUGGESTED, statelake
from statelake.pipelines.cli.options import SHOWN_ERRORS, refuse_all
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.errors import (
    ConflictError,
    IncompatibleError,
    NotALakeError,
    TruncatedError,
)
from tests.support.command import run
from tests.support.lakes import WORDS

ROOT = click.Context(statelake, info_name="statelake")


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, those of groups too, with its words."""
    for name in COMMANDS:
        found = statelake.get_command(ROOT, name)
        assert found is not None
        yield (name,), found
        if isinstance(found, click.Group):
            for below, command in found.commands.items():
                yield (name, below), command


EVERY = list(commands())
every_command = pytest.mark.parametrize(
    ("words", "command"), EVERY, ids=[" ".join(words) for words, _ in EVERY]
)


def examples(text: str) -> list[list[str]]:
    """The command lines in a help text, as words."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = re.findall(r"^\s*statelake (.*)$", joined, re.MULTILINE)
    return [shlex.split(line.partition(" | ")[0]) for line in lines]


def test_all_commands_are_there() -> None:
    """Those that were promised, by what they are for."""
    assert {title: list(group) for title, group in GROUPS.items()} == {
        "Most used": [
            "inspect", "scan", "import", "snapshots", "sql", "get", "find", "diff", "growth",
            "check", "export", "ui",
        ],
        "Look": [
            "types", "dump", "expired", "top", "offsets", "channels", "report", "mcp",
        ],
        "Archive": ["shell", "history", "hold", "release", "retain", "drop", "lake"],
        "Change": [
            "edit", "migrate", "upgrade", "sql-upgrade", "commit", "erase", "audit", "compress",
            "bootstrap",
        ],
        "Deploy": ["plan-rescale", "copy", "flink", "orphans"],
        "Run": ["run", "checkpoints", "spark", "warm", "demo"],
    }  # fmt: skip
    listed = run("--help").out.partition("Most used:")[2]
    titles = {f"{title}:" for title in GROUPS}
    lines = [line for line in listed.splitlines() if line.strip() and line not in titles]
    assert [line.split()[0] for line in lines] == list(COMMANDS)


def test_help_lists_what_is_usual_first() -> None:
    """What most do without is below, and what must be given never is."""
    usual, _, others = run("export", "--help").out.partition("More options:")
    assert "--parallelism" in usual
    assert "--to" in usual
    assert "--engine" in others
    assert "--uid" in others
    assert "More options:" not in run("hold", "--help").out


def test_a_command_that_is_not_there_names_the_one_like_it() -> None:
    """As for options."""
    ran = run("imprt", "x")
    assert (ran.code, ran.out) == (2, "")
    assert "No such command 'imprt'. Did you mean 'import'?" in ran.err
    assert "No such command 'why'. See `statelake growth`." in run("why").err


@pytest.mark.parametrize("meant", SUGGESTED.values())
def test_what_people_call_a_command_leads_to_one_that_is_there(meant: str) -> None:
    """With the option, if it names one."""
    name, *options = meant.split()
    command = COMMANDS[name]
    assert command
    if options and options[0].startswith("--"):
        assert options[0] in run(name, "--help").out


@every_command
def test_help(words: tuple[str, ...], command: click.Command) -> None:
    """It says what the command does, and shows how."""
    ran = run(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == run(*words, "-h").out
    assert f"Usage: statelake {' '.join(words)}" in ran.out
    assert re.search(r"^\s*Example(s|, .*)?:$", ran.out, re.MULTILINE)
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.opts[0] in ran.out


@every_command
def test_examples_can_be_run(
    words: tuple[str, ...], command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option and argument in the examples is one that its command takes."""
    assert command.help is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.txt").touch()
    found = examples(command.help)
    assert any(tuple(typed[: len(words)]) == words for typed in found)
    for typed in found:
        group: click.Command = statelake
        while isinstance(group, click.Group):
            below = group.get_command(ROOT, typed.pop(0))
            assert below is not None
            group = below
        group.make_context("statelake", typed).close()


def test_examples_of_the_whole() -> None:
    """The first help that someone reads has examples that work, too."""
    assert statelake.help is not None
    for example in examples(statelake.help):
        command = statelake.get_command(ROOT, example[0])
        assert command is not None
        command.make_context(example[0], example[1:]).close()


@every_command
def test_lists_say_how_help_begins(words: tuple[str, ...], command: click.Command) -> None:
    """The line that a command has in the list, on one line, is what its own help begins with."""
    assert command.help is not None
    if len(words) == 1:
        begins = COMMANDS[words[0]][1]
        assert command.help.startswith(begins)
        assert f"  {words[0]:<12}  {begins}\n" in run("--help").out


def test_version() -> None:
    """One line with a number."""
    ran = run("--version")
    assert ran.code == 0
    assert re.fullmatch(r"statelake, version \d+\.\d+\S*\n", ran.out)


@pytest.mark.parametrize(
    "words",
    [
        ["fly"],
        ["inspect"],
        ["inspect", "a", "b"],
        ["inspect", "a", "--parallelism", "0"],
        ["inspect", "a", "--color"],
        ["dump", "a", "--key-groups", "x"],
        ["dump", "a", "--key-groups", "9-3"],
        ["dump", "a", "--limit", "-1"],
        ["import", "a", "--lake", "b"],
        ["import", "a", "--lake", "b", "--job", "c", "--engine", "warp"],
        ["drop", "--lake", "a", "--job", "b"],
        ["drop", "--lake", "a", "--job", "b", "--keep", "1", "--snapshot", "c"],
        ["drop", "--lake", "a", "--job", "b", "--keep", "-1"],
        ["plan-rescale", "--lake", "a", "--job", "b", "--snapshot", "c"],
        ["export", "--lake", "a", "--job", "b", "--snapshot", "c", "--to", "d",
         "--max-parallelism", "32769"],
        ["export", "--lake", "a", "--job", "b", "--snapshot", "c", "--to", "d",
         "--metadata-version", "2"],
        ["diff", "--lake", "a", "--job", "b", "one"],
        ["check", "weather"],
        ["check", "sql", "a", "--old-plan", "b", "--new-plan", "c", "--no-uids", "--no-old-uids"],
        ["check", "integrity", "--lake", "a", "--job", "b", "--snapshot", "c", "--uid", "d"],
        ["growth", "--lake", "a", "--job", "b", "--allow-external", "c"],
        ["scan", "a", "--print-path", "--json"],
        ["orphans", "a", "--no-cluster", "--flink", "http://b"],
        ["ui", "a", "--no-values", "--audit", "b"],
        ["flink", "rescale", "--flink", "http://a", "--flink-job", "b", "--lake", "c", "--job", "d",
         "--jar", "e", "--exports", "f", "--dry-run", "--roll-back"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usage(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be meant is exit code 2, with the usage, before anything is done."""
    monkeypatch.chdir(tmp_path)
    ran = run(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("Usage: statelake")
    assert "Error: " in ran.err
    assert list(tmp_path.iterdir()) == []


def test_all_errors_of_a_command_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The first is raised, and so the last line; of very many the number is told."""
    refuse_all([])
    errors = [NotALakeError(str(number)) for number in range(SHOWN_ERRORS + 3)]
    with pytest.raises(NotALakeError, match=r"^0$"):
        refuse_all(errors)
    *others, last = capsys.readouterr().err.splitlines()
    assert others == [f"also: {number}" for number in range(1, SHOWN_ERRORS)]
    assert last == "also: 3 more"


ERRORS = [
    (TruncatedError("it ends", place="file, offset 7", remedy="fetch it again"), 3,
     "error: file, offset 7: it ends; fetch it again\n"),
    (NotALakeError("no lake"), 3, "error: no lake\n"),
    (ConflictError("two\n  lines"), 3, "error: two\\n lines\n"),
    (IncompatibleError("types differ", remedy="migrate"), 1, "error: types differ; migrate\n"),
    (RuntimeError("what\nnow"), 4,
     "internal error: RuntimeError: what now (statelake --debug shows the trace)\n"),
    (MemoryError(), 4, "internal error: MemoryError:  (statelake --debug shows the trace)\n"),
    (click.exceptions.Abort(), 130, "stopped\n"),
    (KeyboardInterrupt(), 130, "stopped\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code", "said"), ERRORS, ids=[type(error).__name__ for error, _, _ in ERRORS]
)
def test_errors(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind has its exit code, and one line on standard error; the trace is for --debug."""

    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(cli._Commands, "get_command", lambda *_: failing)
    ran = run("inspect")
    assert (ran.code, ran.out, ran.err.lstrip("\n")) == (code, "", said)
    if code != 130:
        traced = run("--debug", "inspect")
        assert traced.code == code
        assert traced.err.startswith("Traceback (most recent call last):")
        assert traced.err.endswith(said)


@pytest.mark.parametrize("code", [0, 1])
def test_a_commands_own_exit_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that answers no says so by its exit code."""

    @click.command()
    @click.pass_context
    def answering(context: click.Context) -> None:
        context.exit(code)

    monkeypatch.setattr(cli._Commands, "get_command", lambda *_: answering)
    assert run("inspect").code == code


DEMO = Path(cli.__file__).parent / "demo" / "savepoints" / "monday"
EXTRA = "pyspark,py4j,dagster,filelock,confluent_kafka"
MOST_MODULES = {"inspect": 80, "scan": 70}  # of ours, of all there are
SLOW = "deltalake,pandas,numba,llvmlite,yaml"
OURS = "statelake.state_core.serializers"
TYPES = (
    "pandas,numba,yaml,duckdb,rocksdict,fastavro,requests,google.protobuf,"
    f"{OURS}.avro,{OURS}.kryo,{OURS}.protobuf,{OURS}.scala,{OURS}.sql,{OURS}.composite.pojo"
)


def process(*words: object) -> subprocess.CompletedProcess[str]:
    """Run Python with words, as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    environment.pop("STATELAKE_DEBUG", None)
    return subprocess.run(
        [sys.executable, *map(str, words)], check=False, capture_output=True, text=True,
        timeout=120, env=environment,
    )  # fmt: skip


WATCHED = """
import sys
from statelake.pipelines.cli.main import main
unwanted = sys.argv.pop(1)
try:
    main()
except SystemExit as left:
    found = sorted(name for name in unwanted.split(",") if name in sys.modules)
    print(left.code, *found, file=sys.stderr)
"""


@pytest.mark.parametrize("command", MOST_MODULES)
def test_short_commands_load_few_modules_of_ours(command: str) -> None:
    """Most of the start of a short command is to load them."""
    program = (
        "import sys\n"
        "from statelake.pipelines.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(*(name for name in sys.modules if name.split('.')[0] == 'statelake'),"
        " file=sys.stderr)"
    )
    done = process("-c", program, command, DEMO)
    assert 0 < len(done.stderr.split()) <= MOST_MODULES[command]


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        (["inspect", WORDS], f"{EXTRA},{SLOW}"),
        (["inspect", DEMO], f"{EXTRA},{SLOW}"),
        (["dump", WORDS, "--limit", "1"], f"{EXTRA},deltalake,pandas"),
        (["import", WORDS, "--lake", "lake", "--job", "j"], f"{EXTRA},{TYPES}"),
        (["--help"], f"{EXTRA},{SLOW},numpy,pyarrow,rich"),
        (["--version"], f"{EXTRA},{SLOW},numpy,pyarrow,rich"),
    ],
    ids=["inspect", "inspect the demo", "dump", "import", "help", "version"],
)
def test_what_is_not_imported(
    command: list[object], unwanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that starts a JVM or takes seconds to import, where it is not needed."""
    monkeypatch.chdir(tmp_path)
    ran = process("-c", WATCHED, unwanted, *command)
    assert ran.stderr.strip() == "0"
    assert ran.stdout


MACHINE_CODE = """
import sys
from statelake.pipelines.cli.main import main
from statelake.state_core.kernels import compiler
compiler.interpreting = compiler.Interpreting(seconds=0)
loaded = []
store = compiler.NativeFunction.__init__
def counted(self, code, signature):
    store(self, code, signature)
    loaded.append(signature)
compiler.NativeFunction.__init__ = counted
try:
    main()
except SystemExit as left:
    found = [each.__name__ for each in compiler.all_kernels() if each._native is not None]
    assert len(found) == len(loaded)
    print(left.code, "numba" in sys.modules, *sorted(found), file=sys.stderr)
"""


@pytest.mark.full
def test_an_import_loads_the_kernels_of_its_types(tmp_path: Path) -> None:
    """Those of words and their numbers, and without Numba once they are compiled."""
    ran = [
        process("-c", MACHINE_CODE, "import", WORDS, "--lake", tmp_path / name, "--job", "j")
        for name in ("first", "second")
    ]
    code, with_numba, *kernels = ran[1].stderr.split()
    assert (code, with_numba) == ("0", "False")
    assert kernels == [
        "_read_fixed64", "count_entries", "fingerprint_entries", "first_unfinished", "read_strings",
        "read_zeros", "room", "scan_unified", "walk_run",
    ]  # fmt: skip


@pytest.mark.full
def test_real_processes(tmp_path: Path) -> None:
    """The codes are what a shell sees."""
    command = ("-m", "statelake.pipelines.cli.main")
    assert process(*command, "inspect", WORDS).returncode == 0
    assert process(*command, "inspect").returncode == 2
    ran = process(*command, "inspect", tmp_path)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.count("\n") == 1
    traced = process(*command, "--debug", "inspect", tmp_path)
    assert traced.returncode == 3
    assert "Traceback" in traced.stderr


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    """`statelake dump | head` ends in silence."""
    program = tmp_path / "dump.sh"
    words = [sys.executable, "-m", "statelake.pipelines.cli.main", "dump", str(WORDS)]
    program.write_text(f"{shlex.join(words)} | head -n 2\n", "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    ran = subprocess.run(
        ["bash", "-o", "pipefail", str(program)], check=False, capture_output=True, text=True,
        timeout=120, env=environment,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("\n") == 2


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EIO, "Input/output error", "/data/x"),
        OSError(errno.EROFS, "Read-only file system"),
        OSError(errno.EMFILE, "Too many open files"),
        PermissionError(errno.EACCES, "Permission denied"),
        RuntimeError("Generic LocalFileSystem error: No space left on device (os error 28)"),
    ],
    ids=str,
)
def test_what_the_system_refuses_is_no_fault_of_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or failing disk is bad input, wherever it is met: exit 3, and what to do about it."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("statelake.pipelines.cli.commands.lake.Lake", fail)
    ran = run("snapshots", "--lake", "lake")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(("error: ", "error: /data/x: "))
    assert "; " in ran.err
    assert "internal" not in ran.err


def test_an_error_of_ours_stays_an_internal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is missing where none may be is not the user's fault."""

    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")

    monkeypatch.setattr("statelake.pipelines.cli.commands.lake.Lake", fail)
    assert run("snapshots", "--lake", "lake").code == 4


@pytest.mark.parametrize("words", [("import", "--lake", "LAKE", "--job", "j"), ("inspect",)])
def test_a_reader_that_left_is_no_error(words: tuple[str, ...], tmp_path: Path) -> None:
    """What was to be done is done, and the exit code says so: `statelake import ... | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    named = [str(tmp_path / "lake") if word == "LAKE" else word for word in words]
    command = [sys.executable, "-m", "statelake.pipelines.cli.main", named[0], str(DEMO)]
    with os.fdopen(writing, "wb") as output:
        ended = subprocess.run(
            [*command, *named[1:]], stdout=output, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("also_errors", [False, True])
def test_a_reader_that_left_does_not_hear_yes(tmp_path: Path, *, also_errors: bool) -> None:
    """The answer stays no, and what was begun is ended: `statelake get ... 2>&1 | true && ...`."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "statelake.pipelines.cli.main"]
    with os.fdopen(writing, "wb") as output:
        for words, code in (
            (["get", str(DEMO), "--key", "5"], 1),
            (["inspect", str(tmp_path)], 3),
            (["--help"], 0),
            (["dump", str(DEMO)], 0),
        ):
            errors = output if also_errors else subprocess.PIPE
            ended = subprocess.run([*command, *words], stdout=output, stderr=errors, check=False)
            assert (words[0], ended.returncode) == (words[0], code)


@pytest.mark.full
def test_closed_output_is_nobodys_fault(tmp_path: Path) -> None:
    """`statelake import ... >&- 2>&-` imports, and none of its files gets what is printed."""
    lake = tmp_path / "lake"
    words = ["import", str(DEMO), "--lake", str(lake), "--job", "j"]
    command = shlex.join([sys.executable, "-m", "statelake.pipelines.cli.main", *words])
    for closed in (">&-", "<&- >&- 2>&-"):
        ended = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], capture_output=True, check=False
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert [summary.job for summary in Catalog(str(lake)).summaries("j")] == ["j"]


def test_a_file_is_no_snapshot(tmp_path: Path) -> None:
    """A file where a directory belongs is told as bad input."""
    path = tmp_path / "passwd"
    path.write_text("root", "utf-8")
    ran = run("inspect", path)
    assert (ran.code, ran.out) == (3, "")
    assert "it is a file, and no directory; give the directory of a savepoint" in ran.err


def test_key_groups_that_no_operator_has() -> None:
    """They are told, as no entry would be shown of them."""
    ran = run("dump", DEMO, "--key-groups", "900")
    assert (ran.code, ran.out) == (3, "")
    assert "no operator has key group 900; key groups are 0-127" in ran.err
    assert run("dump", DEMO, "--key-groups", "120-900").code == 0


def test_advice_for_a_target_is_about_writing() -> None:
    """Where nothing can be written, nothing is said of copying a snapshot's files."""
    for words in (("export", "--to"), ("import", "--job", "j", "--lake")):
        ran = run(words[0], DEMO, *words[1:], "/proc/nowhere")
        assert (ran.code, ran.out) == (3, "")
        assert "can't be" in ran.err
        assert "copy the whole directory" not in ran.err
