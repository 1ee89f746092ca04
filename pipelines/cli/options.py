"""Options of several commands, and the sources of their values.

The lake, the job, the engine and the Flink cluster are taken from the command line, otherwise from
the environment (`STATELAKE_LAKE`, `STATELAKE_JOB`, `STATELAKE_FLINK`), otherwise from
`statelake.toml`.

A shell's TAB key completes the names of jobs and snapshots. A stranger may have written the lake,
and a completed name becomes part of a command line: so names with characters that a shell
interprets are left out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from statelake.pipelines.cli.help import more
from statelake.pipelines.cli.settings import ENGINES, FILE, configured, is_trusted
from statelake.pipelines.engine import MASTER, SPARK_CONF, SPARK_PACK
from statelake.pipelines.requests.request import Asked, Option, Request, options_of
from statelake.pipelines.requests.shared import (
    PlannedReading,
    Reading,
    Sharing,
    TypedReading,
    parse_age,
    parse_seconds,
    parse_size,
)
from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    NotFoundError,
    SnapshotError,
    StateError,
)
from statelake.state_core.extras import require_extra
from statelake.state_core.printable import printable, public_location

if TYPE_CHECKING:
    from statelake.pipelines.api import Job, LakeSnapshot
    from statelake.pipelines.engine import Progress
    from statelake.pipelines.lake.catalog.snapshot_names import SnapshotId
    from statelake.pipelines.lake.tables.records import SnapshotRecord
    from statelake.state_core.formats.reader import Snapshot

Command = TypeVar("Command", bound=Callable[..., Any])

SHOWN_ERRORS = 20
UNTRUSTED = "statelake.untrusted"  # key of `Context.meta`: a lake that only an untrusted file names
_HARMLESS = re.compile(r"\w[\w.@%+=:,-]*")


class _Configured(click.Option):
    """An option that falls back to a value of `statelake.toml`."""

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the value and its origin; `DEFAULT_MAP` stands for the file."""
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.DEFAULT:
            try:
                setting = configured(self.name)
                if self.name == "lake" and setting is not None and not is_trusted(setting):
                    ctx.meta[UNTRUSTED] = setting
                    if self.required or ctx.resilient_parsing:
                        refuse_untrusted(ctx)
            except StateError:
                if not ctx.resilient_parsing:  # a completion, which prints no error
                    raise
                setting = None
            if setting is not None:
                return setting, ParameterSource.DEFAULT_MAP
        return value, source

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return where else the value may come from, for the error that it is missing."""
        return f"'--{self.name}' ({self.envvar} or {FILE} may have it, too)"


def refuse_untrusted(context: click.Context) -> None:
    """Refuse to open a remote lake that only an untrusted `statelake.toml` names.

    Raises:
        DeclarationError: The command would open such a lake.
    """
    lake = context.meta.get(UNTRUSTED)
    if lake is not None:
        shown = public_location(lake)
        raise DeclarationError(
            f"only {FILE} names the lake {shown}, and it would be opened with your credentials",
            remedy="name it with --lake or STATELAKE_LAKE, or let ~/statelake.toml trust it: a file"
            " that lies in a directory is not sent what is yours",
        )


def _records(context: click.Context, job: str | None = None) -> list[SnapshotRecord]:
    """Return the snapshots of the lake on the command line; an empty list if anything is wrong."""
    try:
        from statelake import Lake  # noqa: PLC0415 - deltalake takes long to load

        return Lake(context.params["lake"]).snapshots(job)
    except Exception:  # noqa: BLE001 - an error would be printed into the line that is typed
        return []


def _complete_jobs(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _items({record.job: "" for record in _records(context)}, incomplete)


def _complete_snapshots(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    records = reversed(_records(context, context.params.get("job") or None))
    names = {record.snapshot_id: f"{record.taken_at:%Y-%m-%d %H:%M}" for record in records}
    return _items(names, incomplete)


def _items(names: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin with a text, each with its help."""
    return [
        CompletionItem(name, help=help_text or None)
        for name, help_text in names.items()
        if name.startswith(incomplete) and _HARMLESS.fullmatch(name)
    ]


snapshot_option = partial(click.option, shell_complete=_complete_snapshots)
snapshot_argument = partial(click.argument, shell_complete=_complete_snapshots)


def configured_option(
    name: str, help_: str, *, required: bool = False
) -> Callable[[Command], Command]:
    """Return an option whose value the environment or `statelake.toml` may give.

    Args:
        name: `lake`, `job` or `flink`.
        help_: Its help.
        required: Whether the command needs it.
    """
    return click.option(
        f"--{name}", cls=_Configured, envvar=f"STATELAKE_{name.upper()}", show_envvar=True,
        required=required, help=help_, shell_complete=_complete_jobs if name == "job" else None,
    )  # fmt: skip


yes_option = click.option(
    "--yes", is_flag=True, help="Execute the plan, which is otherwise only shown."
)
lake_option = configured_option("lake", "The lake: a directory or URI.", required=True)
job_option = configured_option("job", "The job's name in the lake.", required=True)


def lake_is_meant() -> bool:
    """Return whether the command line names a lake, in a command that also works without.

    A configured lake or job completes `--lake`, `--job` or `--snapshot`; alone it changes nothing.
    """
    context = click.get_current_context()
    is_meant = any(
        context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for name in ("lake", "job", "snapshot_id")
    )
    if is_meant:
        refuse_untrusted(context)
    return is_meant


def answer(*, yes: bool) -> None:
    """Leave with exit code 1 if the answer is no; else go on."""
    if not yes:
        click.get_current_context().exit(1)


def refuse_problems(problems: Iterable[str]) -> None:
    """End with exit code 3 and the reasons if not all could be read, after all else was shown.

    Args:
        problems: What could not be read, and why, each as a sentence.

    Raises:
        SnapshotError: There are some.
    """
    refuse_all([SnapshotError(problem) for problem in problems])


def refuse_all(errors: Sequence[StateError]) -> None:
    """End with the first error, and print the others before it, after all else was shown.

    Args:
        errors: The errors; without any, the command goes on.

    Raises:
        StateError: The first of them.
    """
    if not errors:
        return
    sys.stdout.flush()
    for other in errors[1:SHOWN_ERRORS]:  # not behind the first, which may end with words to copy
        click.echo(printable(f"also: {other}"), err=True)
    if len(errors) > SHOWN_ERRORS:
        click.echo(f"also: {len(errors) - SHOWN_ERRORS:,} more", err=True)
    raise errors[0]


@contextmanager
def served_in_part(problems: Sequence[str]) -> Iterator[None]:
    """End with what could not be read if nothing of that name, or that can have that key, is left.

    Args:
        problems: What could not be read, for `refuse_problems`.

    Raises:
        SnapshotError: Something is not found, and there are problems.
    """
    try:
        yield
    except (NotFoundError, EncodeError):
        refuse_problems(problems)
        raise


def snapshot_named(job: Job, name: str) -> SnapshotId:
    """Return the id of the snapshot that a reading command names; print it if it is another word.

    Raises:
        NotFoundError: Several snapshots begin so, or there are fewer than it counts.
    """
    snapshot_id = job.resolve(name)
    say_meant(name, snapshot_id)
    return snapshot_id


def say_meant(name: str, snapshot_id: str) -> None:
    """Say on standard error which snapshot a name means, if it is not the id itself."""
    if name and snapshot_id != name:
        completed = "completed to" if snapshot_id.startswith(name) else "snapshot"
        click.echo(printable(f"{name} is {completed} {snapshot_id}"), err=True)


def gathered(
    name: str, gather: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Command], Command]:
    """Return a decorator that adds options, and passes their values as one argument.

    Args:
        name: The argument.
        gather: Returns the argument, given the options' values by name; may raise a `UsageError`.
        options: The options, in the order of `--help`.
    """

    def attached(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    def unused() -> None:
        """Carry the options."""

    names = [each.name for each in attached(unused).__click_params__]

    def with_options(command: Command) -> Command:
        @wraps(command)
        def with_argument(*arguments: Any, **values: Any) -> Any:
            given = gather(**{each: values.pop(each) for each in names if each in values})
            return command(*arguments, **{name: given}, **values)

        return cast("Command", attached(with_argument))

    return with_options


def request_options(
    request: Callable[..., Asked], name: str = "request"
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a request, and passes it as one argument.

    Args:
        request: The class of the request. What it refuses is an error of usage. What no words say
            has its default, or None, until the command sets it.
        name: The argument.
    """
    options = [each for each in options_of(request) if not each.given]
    unset = {each.name: None for each in options_of(request) if each.given and each.required}

    def gather(**values: Any) -> Asked:
        try:
            return request(**unset, **values)
        except DeclarationError as error:
            raise click.UsageError(str(error)) from error

    return gathered(name, gather, *map(_click_option, options))


def option_of(request: Callable[..., Request], name: str) -> Callable[[Any], Any]:
    """Return the option of one field of a request, for a command that takes no other."""
    (option,) = (each for each in options_of(request) if each.name == name)
    return _click_option(option)


def _click_option(option: Option) -> Callable[[Any], Any]:
    """Return an option of a command."""
    return more(_declared(option)) if option.more else _declared(option)


def _declared(option: Option) -> Callable[[Any], Any]:
    if option.kind is bool:
        return click.option(
            option.flag, option.name, is_flag=True, default=option.default, help=option.help,
            show_default=bool(option.default) and "default" not in option.help,
        )  # fmt: skip
    kind: Any = str if option.parse is not None or option.paired else option.kind
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.parse is None and (option.least, option.most) != (None, None):
        kind = (click.IntRange if kind is int else click.FloatRange)(option.least, option.most)
    return click.option(
        option.flag, option.name, type=kind, multiple=option.many, required=option.required,
        nargs=2 if option.paired else 1,
        metavar=option.placeholder or None, help=option.help,
        show_default=option.default not in (None, (), ""),
        envvar=option.variable or None, show_envvar=bool(option.variable),
        shell_complete=_complete_snapshots if option.names == "snapshot" else None,
        **{} if option.required else {"default": option.default},  # None would be one, too
    )  # fmt: skip


reading_options = request_options(Reading, "reading")
typed_reading_options = request_options(TypedReading, "reading")


@dataclass(frozen=True)
class NamedSnapshot:
    """A savepoint or checkpoint, or a snapshot of a lake, as the command line names it.

    Attributes:
        savepoint: The snapshot's directory; empty for a snapshot of a lake.
        reading: How to read the directory; see `TypedReading`.
        lake: The lake; None for a savepoint.
        job: The job's name in the lake.
        snapshot_id: The name of the job's snapshot; None for the newest.
        sql: The SQL script that is named in the place of a savepoint; None without one.
    """

    savepoint: str
    reading: Reading
    lake: str | None
    job: str
    snapshot_id: str | None
    sql: str | None = None

    @property
    def in_lake(self) -> bool:
        """Return whether it is a snapshot of a lake."""
        return self.lake is not None

    def check_target(self, target: str | None, *, dry_run: bool) -> None:
        """Refuse a new savepoint's directory, `--to`, where nothing is written to it.

        Raises:
            UsageError: It is a dry run, or the snapshot is in a lake, which gets the new one.
        """
        if dry_run and target is not None:
            raise click.UsageError("--to writes what --dry-run does not: give one of them")
        if self.in_lake and target is not None:
            raise click.UsageError("--to is for a SAVEPOINT: a lake gets a new snapshot, to export")

    def open(self, *, partial: bool = False) -> Snapshot:
        """Open the savepoint or checkpoint, with the names of its plan.

        Args:
            partial: Whether to open it as far as it can be; see `refuse_problems`.

        Raises:
            SnapshotError: The snapshot can't be read.
            DeclarationError: The plan is not that of its job.
        """
        from statelake import open_snapshot  # noqa: PLC0415 - not for --help

        return open_snapshot(self.savepoint, partial=partial, **vars(self.reading))

    def opened(self, progress: Progress | None = None) -> Snapshot:
        """Return it to be read, as far as it can be."""
        return self.stored(progress=progress) if self.in_lake else self.open(partial=True)

    def stored(self, engine: str = "auto", progress: Progress | None = None) -> LakeSnapshot:
        """Return the snapshot of the lake.

        Raises:
            NotFoundError: There is no such job or snapshot.
            LakeError: There is no lake, or its catalog can't be read.
        """
        job = self.stored_job(engine, progress)
        named = self.snapshot_id
        return job.newest() if named is None else job[snapshot_named(job, named)]

    def stored_job(self, engine: str = "auto", progress: Progress | None = None) -> Job:
        """Return the job of the lake."""
        from statelake import Lake  # noqa: PLC0415 - deltalake takes long to load

        return Lake(self.lake or "").job(self.job, engine=engine, progress=progress)


def _source(
    savepoint: str | None,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    reading: Reading,
    sql: str | None = None,
) -> NamedSnapshot:
    given = {name: bool(value) for name, value in vars(reading).items()}
    if sql is not None:
        if savepoint is not None or lake_is_meant() or snapshot_id or any(given.values()):
            raise click.UsageError("--sql is in the place of a SAVEPOINT: give one of both")
        return NamedSnapshot("", reading, None, "", None, sql)
    if savepoint is not None and not lake_is_meant():
        lake = job = None
    if lake is not None:
        refuse_untrusted(click.get_current_context())
    if (savepoint is None) == (lake is None) or (lake is None) != (job is None):
        raise click.UsageError("give either a SAVEPOINT, or --lake and --job")
    if lake is None and snapshot_id is not None:
        raise click.UsageError("--snapshot names one of a lake: give --lake and --job")
    if lake is not None and (given["uids"] or given["allow_external"]):
        raise click.UsageError("--uid and --allow-external are for a SAVEPOINT")
    if lake is not None and given.get("plan"):
        raise click.UsageError("--plan is for a SAVEPOINT: a lake has the names of its import")
    if lake is not None and given.get("decode"):
        raise click.UsageError("--decode is for a SAVEPOINT: a lake has the columns of its import")
    return NamedSnapshot(savepoint or "", reading, lake, job or "", snapshot_id, sql)


def _source_options(
    reading: type[Reading], *options: Callable[[Any], Any]
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a source, and passes it as `source`."""
    names = [each.name for each in options_of(reading)]

    def gather(**values: Any) -> NamedSnapshot:
        request = reading(**{name: values.pop(name) for name in names})
        return _source(reading=request, **values)

    own = (
        click.argument("savepoint", required=False),
        configured_option("lake", "Look into a lake instead: a directory or URI."),
        configured_option("job", "The job's name in the lake."),
        snapshot_option(
            "--snapshot", "snapshot_id", help="One of its snapshots; by default the newest."
        ),
        *map(_click_option, options_of(reading)),
    )
    return gathered("source", gather, *own, *options)


# a savepoint or checkpoint, or a snapshot of a lake
source_options = _source_options(Reading)
# the same, where a savepoint's keys and rows are shown
planned_source_options = _source_options(PlannedReading)
# the same, or the SQL of a job that has never run
source_or_sql_options = _source_options(
    Reading,
    click.option("--sql", metavar="FILE",
                 help="Instead, a script of Flink SQL, or its compiled plan (.json)."),
)  # fmt: skip
# the same, where values may have the types of their content
typed_source_options = _source_options(TypedReading)


class Parsed(click.ParamType[Any]):
    """What a function makes of a text.

    Args:
        name: What it is, for people.
        parse: The function.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text; the default may be parsed already.

        Raises:
            UsageError: It is not of that form.
        """
        try:
            return self.parse(value) if isinstance(value, str) else value
        except DeclarationError as error:
            self.fail(error.problem, param, ctx)


DURATION = Parsed("duration", parse_age)
SECONDS = Parsed("duration", parse_seconds)
inexact_option = option_of(Sharing, "inexact")


query_memory_option = more(
    click.option(
        "--query-memory", type=Parsed("size", parse_size), metavar="SIZE",
        help="How much memory DuckDB may take for a query, such as 2GiB; by default 80 % of the"
        " machine's.",
    )
)  # fmt: skip


def engine_option(command: Command) -> Command:
    """Add `--engine`, and the options of `cluster_options`."""
    choice = click.option(
        "--engine", cls=_Configured, type=click.Choice(ENGINES), default="auto", show_default=True,
        help="Where to run; auto runs on this machine, or on a configured Spark cluster.",
    )  # fmt: skip
    return more(choice)(cluster_options(command))


def cluster_options(command: Command) -> Command:
    """Add `--master`, `--spark-pack` and `--spark-conf`, which Spark's session reads."""
    for option in (
        click.option(
            "--spark-conf", multiple=True, metavar="KEY=VALUE", expose_value=False,
            callback=_use_settings, help="A setting of Spark; may be repeated.",
        ),
        click.option(
            "--spark-pack", envvar=SPARK_PACK, show_envvar=True, metavar="FILE", expose_value=False,
            callback=partial(_use_setting, SPARK_PACK),
            help="The archive of `statelake spark pack`, for executors without statelake.",
        ),
        click.option(
            "--master", envvar=MASTER, show_envvar=True, metavar="URL", expose_value=False,
            callback=partial(_use_setting, MASTER),
            help="The cluster on which Spark runs: spark://HOST:PORT, yarn, sc://HOST:PORT.",
        ),
    ):  # fmt: skip
        command = more(option)(command)
    return command


def _use_settings(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> None:
    """Set Spark's settings for the session, as long as the command runs."""
    for setting in given:
        key, sign, _ = setting.partition("=")
        if not (key and sign) or "\n" in setting:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", context, option)
    _use_setting(SPARK_CONF, context, option, "\n".join(given))


def _use_setting(name: str, context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Set the environment variable that the session reads, as long as the command runs."""
    if not value or context.resilient_parsing:
        return
    require_extra("spark")
    before = os.environ.get(name)
    os.environ[name] = value

    def restore() -> None:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before

    context.call_on_close(restore)


def _job(lake: str, job: str, engine: str = "auto") -> Job:
    from statelake import Lake  # noqa: PLC0415 - deltalake takes long to load

    return Lake(lake).job(job, engine=engine)


# a job of a lake
opened_job = gathered("opened", _job, lake_option, job_option)
# the same, and where its operations run
opened_job_and_engine = gathered("opened", _job, lake_option, job_option, engine_option)
