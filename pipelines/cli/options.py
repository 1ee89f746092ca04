"""Options that several commands have, and where their values come from.

A lake, a job, an engine and a Flink cluster are those of the command line; else those of the
environment (`STATELAKE_LAKE`, `STATELAKE_JOB`, `STATELAKE_FLINK`); else those of `statelake.toml`.

A shell's TAB completes a lake's jobs and snapshots. It takes them from the lake, which anybody may
have written, and puts them into a command line: so only names that mean nothing to a shell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from statelake.pipelines.cli.settings import ENGINES, FILE, configured, is_trusted
from statelake.pipelines.engine import MASTER, SPARK_CONF, SPARK_PACK
from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.extras import require_extra
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.api import LakeSnapshot
    from statelake.pipelines.lake.catalog.catalog import Catalog
    from statelake.pipelines.lake.share.mask_file import Mask
    from statelake.pipelines.lake.tables.records import SnapshotRecord
    from statelake.state_core.model.snapshot import Snapshot

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")

UNTRUSTED = "statelake.untrusted"  # the lake that only a file names, in what a command knows
_HARMLESS = re.compile(r"\w[\w.@%+=:,-]*")


class _Configured(click.Option):
    """An option that `statelake.toml` has a value for, if nothing nearer has one."""

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """The value, and whose it is: the file's is one of `DEFAULT_MAP`."""
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.DEFAULT:
            try:
                setting = configured(self.name)
                if self.name == "lake" and setting is not None and not is_trusted(setting):
                    ctx.meta[UNTRUSTED] = setting
                    if self.required or ctx.resilient_parsing:
                        refuse_untrusted(ctx)
            except StateError:
                if not ctx.resilient_parsing:  # which is completion: nobody reads an error there
                    raise
                setting = None
            if setting is not None:
                return setting, ParameterSource.DEFAULT_MAP
        return value, source

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """What it may be given by, where it is missing."""
        return f"'--{self.name}' ({self.envvar} or {FILE} may have it, too)"


def refuse_untrusted(context: click.Context) -> None:
    """Refuse a lake elsewhere that only a file names which may be anybody's.

    Raises:
        DeclarationError: A command is about to open such a lake.
    """
    lake = context.meta.get(UNTRUSTED)
    if lake is not None:
        shown = re.sub("//[^/]*@", "//", lake.partition("?")[0])
        raise DeclarationError(
            f"only {FILE} names the lake {shown}, and it would be opened with your credentials",
            remedy="name it with --lake or STATELAKE_LAKE, or let ~/statelake.toml trust it: a file"
            " that lies in a directory is not sent what is yours",
        )


def _rows(context: click.Context, job: str | None = None) -> list[SnapshotRecord]:
    """The rows of the lake that the command line has named so far; none if anything is wrong."""
    try:
        from statelake.pipelines.lake.catalog.catalog import Catalog  # noqa: PLC0415 - Delta only when wanted

        return Catalog(context.params["lake"]).listed(job)[0]
    except Exception:  # noqa: BLE001 - nobody reads an error there, and it would spoil the line
        return []


def _complete_jobs(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return _items({row.job: "" for row in _rows(context)}, incomplete)


def _complete_snapshots(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    rows = reversed(_rows(context, context.params.get("job") or None))
    return _items({row.snapshot_id: f"{row.taken_at:%Y-%m-%d %H:%M}" for row in rows}, incomplete)


def _items(names: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    """The names that begin with a text, each with its help."""
    return [
        CompletionItem(name, help=said or None)
        for name, said in names.items()
        if name.startswith(incomplete) and _HARMLESS.fullmatch(name)
    ]


snapshot_option = partial(click.option, shell_complete=_complete_snapshots)
max_parallelism_option = partial(click.option, "--max-parallelism", type=click.IntRange(1, 1 << 15))
metadata_version_option = partial(click.option, "--metadata-version", type=click.IntRange(3, 6))
operator_state_version_option = partial(
    click.option, "--operator-state-version", type=click.IntRange(5, 6)
)
snapshot_argument = partial(click.argument, shell_complete=_complete_snapshots)


def configured_option(
    name: str, help_: str, *, required: bool = False
) -> Callable[[Command], Command]:
    """An option that the environment and `statelake.toml` stand for.

    Args:
        name: `lake`, `job` or `flink`.
        help_: What it is to the command.
        required: Whether nothing can be done without it.
    """
    return click.option(
        f"--{name}", cls=_Configured, envvar=f"STATELAKE_{name.upper()}", show_envvar=True,
        required=required, help=help_, shell_complete=_complete_jobs if name == "job" else None,
    )  # fmt: skip


lake_option = configured_option("lake", "The lake: a directory or URI.", required=True)
job_option = configured_option("job", "The job's name in the lake.", required=True)


def lake_is_meant() -> bool:
    """Whether the command line speaks of a lake, in a command that needs none.

    What is configured stands in for `--lake` and `--job` where one of them, or `--snapshot`, is
    given; by itself it makes no command do more than it was asked for.
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


def snapshot_named(lake: Catalog, job: str, name: str) -> str:
    """The id of the snapshot that a command line names, told to people if it is another word.

    Raises:
        NotFoundError: The name means several snapshots, or none that there could be.
    """
    from statelake.pipelines.lake.catalog.snapshot_names import resolve_snapshot  # noqa: PLC0415 - deltalake

    snapshot_id = resolve_snapshot(lake, job, name)
    if snapshot_id != name:
        click.echo(printable(f"{name} is snapshot {snapshot_id}"), err=True)
    return snapshot_id


class Reading(TypedDict):
    """What whoever reads a savepoint or checkpoint has to know of it."""

    allow_external: tuple[str, ...]
    uids: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where a command is to look: a savepoint or checkpoint, or a snapshot of a lake.

    Attributes:
        savepoint: The snapshot's directory, unless it is a snapshot of a lake.
        reading: How it is read.
        lake: The lake, where it is a snapshot of one.
        job: The job's name in the lake.
        snapshot_id: What names its snapshot; none for the newest.
    """

    savepoint: str
    reading: Reading
    lake: str | None
    job: str
    snapshot_id: str | None

    @property
    def in_lake(self) -> bool:
        """Whether it is a snapshot of a lake."""
        return self.lake is not None

    def open(self) -> Snapshot:
        """The savepoint or checkpoint, opened.

        Raises:
            SnapshotError: The snapshot can't be read.
        """
        from statelake.state_core.formats import open_snapshot  # noqa: PLC0415 - not for --help

        return open_snapshot(self.savepoint, **self.reading)

    def recorded(self) -> tuple[Catalog, SnapshotRecord]:
        """The lake, and what its catalog says of the snapshot.

        Raises:
            NotFoundError: There is no such job or snapshot.
            LakeError: There is no lake, or its catalog can't be read.
        """
        from statelake.pipelines.lake.catalog.catalog import Catalog  # noqa: PLC0415 - Delta only when wanted

        lake = Catalog(self.lake or "")
        return lake, self._record(lake)

    def stored(self, engine: str = "auto") -> LakeSnapshot:
        """The snapshot of the lake; errors as of `recorded`."""
        from statelake.pipelines.api import Lake, LakeSnapshot  # noqa: PLC0415 - Delta only when wanted

        job = Lake(self.lake or "").job(self.job, engine=engine)
        return LakeSnapshot(job, self._record(job.lake.catalog))

    def _record(self, lake: Catalog) -> SnapshotRecord:
        from statelake.pipelines.lake.keys.one_key import newest_snapshot  # noqa: PLC0415 - the same

        named = self.snapshot_id
        snapshot_id = None if named is None else snapshot_named(lake, self.job, named)
        return newest_snapshot(lake, self.job, snapshot_id)

    def read(self, read: Callable[[Catalog, SnapshotRecord], Result]) -> Result:
        """Read a snapshot of the lake to its end: see `SnapshotReading.whole`."""
        from statelake.pipelines.lake.catalog.reading import SnapshotReading  # noqa: PLC0415 - the same

        lake, record = self.recorded()
        return SnapshotReading(lake, record).whole(partial(read, lake))


def gathered(
    name: str, gather: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Command], Command]:
    """Options that a command gets as one argument.

    Args:
        name: The argument.
        gather: Makes it of the options' values, by their names; may raise a `UsageError`.
        options: The options, as `--help` lists them.
    """
    names = list(signature(gather).parameters)

    def with_options(command: Command) -> Command:
        @wraps(command)
        def with_argument(*arguments: Any, **values: Any) -> Any:
            given = gather(**{each: values.pop(each) for each in names})
            return command(*arguments, **{name: given}, **values)

        decorated: Any = with_argument
        for option in reversed(options):
            decorated = option(decorated)
        return cast("Command", decorated)

    return with_options


def _reading(allow_external: tuple[str, ...], uids: tuple[str, ...]) -> Reading:
    return {"allow_external": allow_external, "uids": uids}


uid_option = click.option(
    "--uid", "uids", multiple=True, help="An operator uid to recognise (Flink < 2.0)."
)
allow_external_option = click.option(
    "--allow-external", multiple=True, help="A directory elsewhere that handles may lead to."
)
reading_options = gathered("reading", _reading, uid_option, allow_external_option)


def _source(
    savepoint: str | None,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    uids: tuple[str, ...],
    allow_external: tuple[str, ...],
) -> Source:
    if savepoint is not None and not lake_is_meant():
        lake = job = None
    if lake is not None:
        refuse_untrusted(click.get_current_context())
    if (savepoint is None) == (lake is None) or (lake is None) != (job is None):
        raise click.UsageError("give either a SAVEPOINT, or --lake and --job")
    if lake is None and snapshot_id is not None:
        raise click.UsageError("--snapshot names one of a lake: give --lake and --job")
    if lake is not None and (uids or allow_external):
        raise click.UsageError("--uid and --allow-external are for a SAVEPOINT")
    return Source(savepoint or "", _reading(allow_external, uids), lake, job or "", snapshot_id)


# where to look
source_options = gathered(
    "source",
    _source,
    click.argument("savepoint", required=False),
    configured_option("lake", "Look into a lake instead: a directory or URI."),
    configured_option("job", "The job's name in the lake."),
    snapshot_option(
        "--snapshot", "snapshot_id", help="One of its snapshots; by default the newest."
    ),
    uid_option,
    allow_external_option,
)


class Share(click.ParamType[float]):
    """`1%`, `0.5%`, `0.01`: a part of a whole."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse a share."""
        if isinstance(value, float):
            return value
        from statelake.pipelines.lake.share.sampling import parse_share  # noqa: PLC0415 - not for --help

        try:
            return parse_share(str(value))
        except StateError as error:
            self.fail(str(error), param, ctx)


class Sharing(TypedDict):
    """What others get of a snapshot, as `LakeSnapshot.export` takes it."""

    sample: float | None
    seed: int
    mask: Mask | None
    leave_out_opaque: bool


def _sharing(sample: float | None, seed: int, mask: str | None, leave_out_opaque: bool) -> Sharing:
    if leave_out_opaque and sample is None and mask is None:
        raise click.UsageError("--leave-out-opaque is for --sample and --mask")
    read = None
    if mask is not None:
        from statelake.pipelines.lake.share.mask_file import read_mask  # noqa: PLC0415 - not for --help

        read = read_mask(mask)
    return {"sample": sample, "seed": seed, "mask": read, "leave_out_opaque": leave_out_opaque}


# what others are to get of a snapshot
share_options = gathered(
    "sharing",
    _sharing,
    click.option("--sample", type=Share(), metavar="SHARE",
                 help="A share of the keys: 1%; all by default."),
    click.option("--seed", type=int, default=0, show_default=True,
                 help="Another one samples other keys."),
    click.option("--mask", metavar="FILE", help="What becomes of keys and values, in YAML."),
    click.option("--leave-out-opaque", is_flag=True,
                 help="Leave out what can't be sampled or masked."),
)  # fmt: skip


def engine_option(command: Command) -> Command:
    """`--engine`, and the options of `cluster_options`."""
    choice = click.option(
        "--engine", cls=_Configured, type=click.Choice(ENGINES), default="auto", show_default=True,
        help="Where to run; auto is here, or Spark where that is told to run on a cluster.",
    )  # fmt: skip
    return choice(cluster_options(command))


def cluster_options(command: Command) -> Command:
    """`--master`, `--spark-pack` and `--spark-conf`: passed on to Spark and not to the command."""
    for option in (
        click.option(
            "--spark-conf", multiple=True, metavar="KEY=VALUE", expose_value=False,
            callback=_use_settings, help="A setting of Spark's; may be repeated.",
        ),
        click.option(
            "--spark-pack", envvar=SPARK_PACK, show_envvar=True, metavar="FILE", expose_value=False,
            callback=partial(_use_setting, SPARK_PACK),
            help="What `statelake spark pack` wrote, for executors without statelake.",
        ),
        click.option(
            "--master", envvar=MASTER, show_envvar=True, metavar="URL", expose_value=False,
            callback=partial(_use_setting, MASTER),
            help="The cluster that Spark is to run on: spark://HOST:PORT, yarn, sc://HOST:PORT.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _use_settings(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> None:
    """Tell the session, as long as the command runs."""
    for setting in given:
        key, sign, _ = setting.partition("=")
        if not (key and sign) or "\n" in setting:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", context, option)
    _use_setting(SPARK_CONF, context, option, "\n".join(given))


def _use_setting(name: str, context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Put a value where the session looks for it, as long as the command runs."""
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
