"""The `statelake` command: which commands there are, and how errors become exit codes.

A command's module is imported when the command is called, so that `--help` waits for none of them,
and `inspect` never for Spark.

Exit codes: 0 done; 1 the answer is no; 2 usage; 3 bad input; 4 internal; 130 and 143 stopped.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from statelake.pipelines.cli.help import show_usual_first
from statelake.state_core.errors import (
    HeldError,
    IncompatibleError,
    NoMatchError,
    StateError,
    did_you_mean,
)
from statelake.state_core.printable import is_text, printable

NO, BAD_INPUT, INTERNAL = 1, 3, 4
PATIENCE_SECONDS = 0.5  # for threads that still read when a command is interrupted
PANIC = "PanicException"  # of libraries in Rust
# by the number of an error of the system's, what to do about it
REFUSALS = {
    errno.ENOSPC: "make room there, or write elsewhere",
    errno.EDQUOT: "make room there, or write elsewhere",
    errno.EIO: "the disk, or the way to it, fails: see the system's log",
    errno.EROFS: "write elsewhere: that file system can only be read",
    errno.EMFILE: "allow this process more open files (ulimit -n)",
    errno.ENFILE: "close other programs: the system has no more files to open",
    errno.EACCES: "let this user read and write there, or name another place",
    errno.EPERM: "let this user read and write there, or name another place",
    errno.ENAMETOOLONG: "give shorter names",
    errno.ENOTDIR: "name a directory",
    errno.ELOOP: "name the place itself and no link to it",
}
_SYSTEM_ERROR = re.compile(r"(?:\(os error |\bOs \{ code: |\[[Ee]rrno )(\d+)")
MADE_OBJECTS = 50_000  # before garbage is looked for: modules make as many, and none of it
OWN_PROCESS = "own process"  # of the command, and of nothing else that may use what it has loaded

# those that most people use, and then by what they are for: where each is, and how its help begins
GROUPS = {
    "Most used": {
        "inspect": ("inspect:inspect", "Show what a savepoint or checkpoint holds"),
        "scan": ("scanning:scan", "Find every savepoint and checkpoint below a directory"),
        "import": ("lake:import_command", "Import a savepoint or checkpoint"),
        "snapshots": ("lake:snapshots", "List the snapshots of a lake"),
        "sql": ("queries.sql:sql", "Run SQL on the tables of a lake"),
        "get": ("keys.one_key:get", "Show all that is held for one key"),
        "find": ("keys.finding:find", "Find a value in all state"),
        "diff": ("compare:diff", "Show what changed from one snapshot to another"),
        "growth": ("compare:growth", "Show which state grows, and why"),
        "check": ("checks.group:check", "Check a snapshot before a deploy"),
        "export": ("export:export", "Write a snapshot as a canonical savepoint"),
        "ui": ("ui:ui", "Look at a lake, a directory of snapshots"),
    },
    "Look": {
        "types": ("types:types", "Print the types of a snapshot's states"),
        "dump": ("dump:dump", "Print the entries of a savepoint's state"),
        "expired": ("keys.expiring:expired", "Show what state has expired"),
        "top": ("keys.heavy_keys:top", "Show the heaviest keys of each keyed state"),
        "offsets": ("sources.offsets:offsets", "Show where the sources of a snapshot continue"),
        "channels": (
            "sources.channels:channels",
            "Show the records in flight of an unaligned checkpoint",
        ),
        "report": ("report:report", "Write a page of HTML that shows a snapshot"),
        "mcp": ("ui:mcp", "Answer an assistant about a lake, a directory"),
    },
    "Archive": {
        "shell": ("queries.shell:shell", "Run SQL at a prompt"),
        "history": ("keys.one_key:history", "Show what changed of one key"),
        "hold": ("retention:hold", "Protect a snapshot from deletion"),
        "release": ("retention:release", "End the holds of a snapshot"),
        "retain": ("retention:retain", "Delete the snapshots that a policy does not keep"),
        "drop": ("lake:drop", "Delete snapshots, and the files that only they need"),
        "lake": ("cleaning:lake", "Maintain a lake as a whole"),
    },
    "Change": {
        "edit": ("edit:edit", "Change a snapshot as a whole"),
        "migrate": ("migrate:migrate", "Give states new types"),
        "upgrade": ("upgrade:upgrade", "Upgrade a snapshot of Flink 1"),
        "sql-upgrade": ("sql_upgrade:sql_upgrade", "Upgrade a Flink SQL job whose query changed"),
        "commit": ("lake:commit", "Register edited tables as a new snapshot"),
        "erase": ("erasure.erase:erase_command", "Erase keys from every snapshot"),
        "audit": ("erasure.audit:audit", "Prove that erased keys are gone"),
        "compress": ("compress:compress", "Compress a canonical savepoint, or decompress it"),
        "bootstrap": ("bootstrap:bootstrap_command", "Create a savepoint from tables"),
    },
    "Deploy": {
        "plan-rescale": (
            "compare:plan_rescale",
            "Show how key groups would be spread over subtasks",
        ),
        "copy": ("scanning:copy", "Copy a savepoint or checkpoint to another place"),
        "flink": ("flink.group:flink", "Operate the jobs of a live Flink cluster"),
        "orphans": ("orphans:orphans", "Find files that no checkpoint needs, and delete them"),
    },
    "Run": {
        "run": ("run:run", "Run a job of process functions"),
        "checkpoints": ("checkpoints:checkpoints", "Manage checkpoints of running tasks"),
        "spark": ("spark:spark", "Prepare a Spark cluster"),
        "warm": ("warm:warm", "Compile all kernels ahead"),
        "demo": ("demo:demo", "Run the whole way on bundled savepoints"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
# what people call what a command does
SUGGESTED = {
    "rescale": "export --parallelism",
    "rename": "edit --rename-uid",
    "merge": "edit --merge",
    "delete": "drop",
    "why": "growth",
    "ls": "snapshots",
    "list": "snapshots",
    "show": "inspect",
    "cat": "dump",
    "validate": "check integrity",
    "verify": "check integrity",
    "restore": "export",
    "savepoint": "flink savepoint",
    "plan": "types --sql",
}

# end as soon as nobody reads on: they have as many lines as state has, and no answer
LISTS = ("dump", "sql")
CALLS_USERS_CODE = ("run", "migrate", "bootstrap")  # which may make pandas of Arrow


class _NoPandas:
    """Says of pandas that it is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Called by `import` with the name of each module that is not loaded yet."""
        if name == "pandas":
            raise ModuleNotFoundError(f"no {name} for PyArrow", name=name)


def _spare_pandas() -> None:
    """Have PyArrow look for pandas now, and not find it.

    It imports pandas (0.3 s, 33 MB) before it makes its first array, to know objects of pandas:
    commands give it none. Whoever else imports pandas gets it as ever.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - not for `--help`

    absent = _NoPandas()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(absent)


class _Commands(click.Group):
    """Find commands by the table above, and import only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete them without importing one."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one is like it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = SUGGESTED.get(args[0])
            near = did_you_mean(args[0], COMMANDS).replace("; did", " Did")
            near = near if meant is None else f" See `statelake {meant}`."
            raise click.UsageError(f"{error.message}{near}", ctx) from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        commands = importlib.import_module(f"statelake.pipelines.cli.commands.{module}")
        command: click.Command = getattr(commands, name)
        show_usual_first(command)
        if ctx.obj is OWN_PROCESS and cmd_name in LISTS:
            cut_off()
        if ctx.obj is OWN_PROCESS and cmd_name not in CALLS_USERS_CODE and "pyarrow" in sys.modules:
            _spare_pandas()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them by group, without importing one."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{width}}", begins) for name, (_, begins) in group.items()]
                )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has enough (`| head`) is no error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # to be caught here: click would exit with 1
            lose(sys.stdout.fileno())
            return 0
        return result


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="statelake")
@click.option("--debug", is_flag=True, help="Show the trace of an error.")
def statelake(debug: bool) -> None:
    """The state warehouse for stream processors.

    Reads Flink savepoints and checkpoints into versioned Delta tables, checks and changes them, and
    writes them back as savepoints that real Flink restores.

    \b
    Examples:
      statelake inspect savepoint-5f1e2c-0a1b2c3d4e5f
      statelake import savepoint-5f1e2c-0a1b2c3d4e5f --lake /data/lake --job orders
      statelake sql --lake /data/lake "SELECT count(*) FROM orders.counter.count"

    Exit codes: 0 done, 1 the answer is no, 2 usage, 3 bad input, 4 internal error.
    """
    if debug:
        os.environ["STATELAKE_DEBUG"] = "1"


def main(arguments: list[str] | None = None) -> None:
    """Run the command, and leave with its exit code."""
    if arguments is None:
        print_to_the_end()
        gc.set_threshold(MADE_OBJECTS)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, end_in_order)
    try:
        _refuse_bytes(sys.argv[1:] if arguments is None else arguments)
        process = OWN_PROCESS if arguments is None else None
        code = statelake.main(arguments, "statelake", standalone_mode=False, obj=process)
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        _leave(130, own=arguments is None)
    except SystemExit as error:
        _leave(error.code, own=arguments is None)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - the last line of defence, which tells and exits
        sys.exit(_fail(error))
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        sys.exit(_fail(error))
    sys.exit(code if isinstance(code, int) else 0)


def end_in_order(number: int, _: object) -> None:
    """End as at Ctrl-C, so that temporary directories and started programs go; then at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _leave(code: str | int | None, *, own: bool) -> NoReturn:
    """Leave with an exit code; threads that still read are given a moment in a process of its own.

    Python itself would wait for them, however long a disk or a store takes.
    """
    from statelake.pipelines.engine import wait_for_threads  # noqa: PLC0415 - at such an end alone

    if own and not wait_for_threads(PATIENCE_SECONDS):
        atexit._run_exitfuncs()  # noqa: SLF001 - temporary directories go, without a wait
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)


def _refuse_bytes(arguments: Iterable[str]) -> None:
    """Refuse what is no UTF-8: no table, no script and no terminal could hold it.

    Raises:
        UsageError: An argument is such.
    """
    for argument in arguments:
        if not is_text(argument):
            raise click.UsageError(f"{printable(argument)} is no UTF-8; rename it, or link to it")


def _fail(error: BaseException) -> int:
    """Say on one line of standard error what went wrong."""
    if os.environ.get("STATELAKE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, StateError):
        click.echo(f"error: {_one_line(str(error))}", err=True)
        return NO if isinstance(error, HeldError | IncompatibleError | NoMatchError) else BAD_INPUT
    refused = _system_refusal(error)
    if refused:
        click.echo(f"error: {printable(refused)}", err=True)
        return BAD_INPUT
    what = f"{type(error).__name__}: {printable(_one_line(str(error)))}"
    click.echo(f"internal error: {what} (statelake --debug shows the trace)", err=True)
    return INTERNAL


def _system_refusal(error: BaseException) -> str:
    """Return an error of the system with its remedy; empty for other errors."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        match = _SYSTEM_ERROR.search(str(error))
        number = None if match is None else int(match[1])
    remedy = REFUSALS.get(number or 0)
    if remedy is None:
        return ""
    named = error.filename if isinstance(error, OSError) else None
    place = f"{os.fsdecode(named)}: " if isinstance(named, str | bytes) else ""
    return f"{place}{os.strerror(number or 0)}; {remedy}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Heard(io.FileIO):
    """A file of which the rest is lost when its reader leaves."""

    def write(self, data: Any) -> int:
        """Write, or lose it."""
        try:
            return super().write(data)
        except BrokenPipeError:
            lose(self.fileno())
            return len(data)


def lose(number: int) -> None:
    """Let what is printed to a descriptor go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


def print_to_the_end() -> None:
    """Open the standard files that are closed, as others would get their numbers; lose no errors.

    What a reader does not want any more is lost, and no error: `statelake migrate ... | head -1`
    would else stop half way, and `statelake check ... | head` would say yes where it is no.
    """
    for number in range(3):
        if not _is_open(number):
            lose(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        if before is not None:
            before.flush()
        text = io.TextIOWrapper(
            io.BufferedWriter(_Heard(number, "w", closefd=False)),
            encoding=getattr(before, "encoding", "utf-8"),
            errors=getattr(before, "errors", "backslashreplace"),
            line_buffering=getattr(before, "line_buffering", False),
        )
        setattr(sys, name, text)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def cut_off() -> None:
    """Let a reader that leaves be an error again, for what would be long, and says no more."""
    if sys.__stdout__ is not None:
        sys.stdout = sys.__stdout__


if __name__ == "__main__":
    main()
