"""`statelake shell`: a prompt for SQL over a lake."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from statelake import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.queries.query_output import print_rows
from statelake.pipelines.cli.commands.queries.sql import (
    ROWS,
    as_of_option,
    left_out_job_option,
    of_job,
)
from statelake.pipelines.cli.commands.terminal import tell
from statelake.pipelines.cli.options import lake_option, query_memory_option
from statelake.state_core.errors import ReadOnlyError, StateError, did_you_mean
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.lake.query.session import Session

HISTORY = "STATELAKE_HISTORY"  # the environment variable with the history's file
HISTORY_LINES = 1000
KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "USING", "COUNT", "SUM",
    "DESCRIBE", "key_group(",
)  # fmt: skip
HELP = """\
SQL ends with a semicolon, and may go over several lines.
.tables            the tables there are
.as-of SNAPSHOT    read tables as they were in a snapshot; without one as they are now
.job JOB           leave this job out of names; without one name it each time
.help              this
.quit              leave; so do quit, exit and the end of the input"""
LEAVING = ("quit", "exit")


@click.command()
@lake_option
@left_out_job_option
@as_of_option
@query_memory_option
@plugins_option
def shell(lake: str, job: str | None, as_of: str | None, query_memory: int | None) -> None:
    """Run SQL at a prompt, with completion of tables and columns, and history.

    Lines from a file or a pipe are run up to the first error. The history is kept in
    ~/.local/state/statelake/history, or in the file that STATELAKE_HISTORY names.

    \b
    Examples:
      statelake shell --lake lake --job orders
      echo "SELECT count(*) FROM orders.counter.count;" | statelake shell --lake lake
    """
    opened = Shell(Lake(lake), job, query_memory=query_memory)
    opened.as_of = of_job(opened.lake, job, as_of)
    opened.session().close()  # refuses a wrong name at once
    with suppress(EOFError):
        if sys.stdin.isatty():
            _at_a_terminal(opened)
        else:
            for line in sys.stdin:
                opened.run(line)
            opened.finish()


@dataclass
class Shell:
    """The state of a prompt.

    Attributes:
        lake: The lake.
        job: The job whose name may be left out of table names.
        as_of: The snapshot to read.
        typed: The lines of an unfinished query.
        query_memory: The bytes that DuckDB may take for each query; None for its own limit.
    """

    lake: Lake
    job: str | None = None
    as_of: str | None = None
    typed: list[str] = field(default_factory=list)
    query_memory: int | None = None

    @property
    def prompt(self) -> str:
        """The prompt of the next line."""
        return "   ...> " if self.typed else f"{printable(self.as_of or 'statelake')}> "

    def session(self) -> Session:
        """Open a session over the tables that names stand for now."""
        return self.lake.session(as_of=self.as_of, job=self.job)

    def run(self, line: str) -> None:
        """Run an order, or add a line of SQL to the query, which runs at its semicolon.

        Raises:
            EOFError: The line was `.quit`.
            StateError: The order or the query fails.
        """
        text = line.strip()
        name, _, given = text.partition(" ")
        if not self.typed and text.rstrip(";").lower() in LEAVING:
            name = ".quit"
        if name.startswith(".") and (not self.typed or name in self._orders):
            if self.typed:  # no line of SQL begins with the name of an order
                tell(f"forgotten, as it has no semicolon: {' '.join(self.typed)}")
                self.typed = []
            order = self._orders.get(name)
            if order is None:
                near = did_you_mean(name, self._orders)
                orders = " ".join(self._orders)
                raise StateError(f"no order {name}", remedy=f"there are {orders}{near}")
            order(given.strip().rstrip(";"))
            return
        if text:
            self.typed.append(line.rstrip("\n"))
        if text.endswith(";"):
            query, self.typed = "\n".join(self.typed), []
            self._query(query)

    def finish(self) -> None:
        """Run the unfinished query, and leave, at the end of the input."""
        if self.typed:
            self.run(";")
        self._quit("")

    def _query(self, query: str) -> None:
        try:
            rows = self.lake.sql(
                query, as_of=self.as_of, job=self.job, limit=ROWS, query_memory=self.query_memory
            )
        except ReadOnlyError as error:
            raise click.UsageError(error.problem) from error
        print_rows(rows, ROWS)

    @property
    def _orders(self) -> dict[str, Callable[[str], None]]:
        return {
            ".tables": self._tables, ".as-of": self._read, ".job": self._of_job,
            ".help": self._help, ".quit": self._quit,
        }  # fmt: skip

    def _help(self, _: str) -> None:
        for line in HELP.splitlines():
            tell(line)

    def _tables(self, _: str) -> None:
        with self.session() as session:
            for name in session.tables():
                tell(name)

    def _read(self, snapshot: str) -> None:
        as_of = of_job(self.lake, self.job, snapshot or None)
        self.lake.session(as_of=as_of, job=self.job).close()  # refuses a wrong name
        self.as_of = as_of

    def _of_job(self, job: str) -> None:
        self.lake.session(as_of=self.as_of, job=job or None).close()  # refuses a wrong name
        self.job = job or None

    def _quit(self, _: str) -> None:
        raise EOFError

    def completions(self, word: str, line: str) -> list[str]:
        """Return the possible completions of a word.

        Args:
            word: Its letters so far.
            line: The line that it is in: columns are those of the tables named there.
        """
        if line.lstrip().startswith(".") and not self.typed:
            given = line.lstrip().partition(" ")
            if not given[1]:
                return [order for order in self._orders if order.startswith(word)]
            records = self.lake.snapshots(None if given[0] == ".job" else self.job)
            names = [each.job if given[0] == ".job" else each.snapshot_id for each in records]
            return [name for name in dict.fromkeys(names) if name.startswith(word)]
        with self.session() as session:
            columns = session.columns_in(" ".join([*self.typed, line]))
            words = [*self._names(session), *session.catalog_tables, *columns, *KEYWORDS]
        return [each for each in dict.fromkeys(words) if each.lower().startswith(word.lower())]

    def _names(self, session: Session) -> Iterator[str]:
        """Yield the names of the states' tables, without the job if it may be left out."""
        for table in session.names:
            parts = [table.operator, table.state]
            parts = parts if table.job == self.job else [table.job, *parts]
            yield ".".join(map(_written, parts))


def _written(part: str) -> str:
    """Quote a part of a name if SQL needs that."""
    if re.fullmatch(r"\w+", part):
        return part
    escaped = part.replace("`", "``")
    return f"`{escaped}`"


def _at_a_terminal(shell: Shell) -> None:
    """Prompt for lines; print errors, and continue."""
    with suppress(ImportError):
        import readline  # noqa: PLC0415 - there is none on every system

        _complete(readline, shell)
    tell("SQL ends with a semicolon; .help says what else there is")
    while _step(shell):
        pass


def _step(shell: Shell) -> bool:
    """Run one line of a terminal; return whether another is to be read."""
    try:
        shell.run(input(shell.prompt))
    except EOFError:
        click.echo()
        return False
    except KeyboardInterrupt:
        shell.typed.clear()
        click.echo()
    except (StateError, click.UsageError) as error:
        text = " ".join(str(error).split())
        click.echo(f"error: {printable(text)}", err=True)
    return True


def _complete(readline: ModuleType, shell: Shell) -> None:
    """Set up completion, and a history that outlives the process."""
    import atexit  # noqa: PLC0415 - only at a prompt

    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    history = Path(os.environ.get(HISTORY) or home / "statelake" / "history")
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES)

    def save() -> None:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    atexit.register(save)
    candidates: list[str] = []

    def complete(word: str, at: int) -> str | None:
        if at == 0:
            candidates.clear()
            with suppress(StateError):
                candidates.extend(shell.completions(word, readline.get_line_buffer()))
        return candidates[at] if at < len(candidates) else None

    readline.set_completer_delims(" \t\n,()=<>;")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
