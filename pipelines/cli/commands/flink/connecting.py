"""Options of all commands on a cluster, and the cluster that they name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console

from statelake.pipelines.cli.options import SECONDS, configured_option, gathered, option_of
from statelake.pipelines.cli.settings import FILE, is_trusted
from statelake.pipelines.live.jars import JarRun
from statelake.pipelines.live.requests import Drill, Rescale
from statelake.pipelines.requests.checks import Restoring
from statelake.state_core.errors import DeclarationError
from statelake.state_core.extras import require_extra
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.live.cluster import FlinkCluster

Command = TypeVar("Command", bound=Callable[..., Any])

flink_option = configured_option(
    "flink", "The cluster's REST API: http://HOST:8081.", required=True
)
path_map_option = option_of(Drill, "path_map")
flink_job_option = option_of(Rescale, "flink_job")
savepoints_option = option_of(Rescale, "savepoints")
format_option = option_of(Rescale, "format")


def timeout_option(default: str, what: str) -> Callable[[Command], Command]:
    """Return the option `--timeout`."""
    return click.option(
        "--timeout", type=SECONDS, default=default, show_default=True, help=f"How long {what}."
    )


def _program(
    jar: str | None,
    jar_id: str | None,
    entry_class: str,
    arguments: tuple[str, ...],
    allow_non_restored_state: bool,
) -> JarRun:
    if (jar is None) == (jar_id is None):
        raise click.UsageError("give either --jar or --jar-id")
    return JarRun(jar or "", jar_id or "", entry_class, arguments, allow_non_restored_state)


# the program to run there
program_options = gathered(
    "program",
    _program,
    click.option("--jar", metavar="FILE", help="The JAR to upload and run."),
    click.option("--jar-id", help="The id of a JAR on the cluster."),
    click.option("--entry-class", default="", help="The class with `main`; by default the JAR's."),
    click.option("--arg", "arguments", multiple=True, help="An argument of the program."),
    option_of(Restoring, "allow_non_restored_state"),
)


@contextmanager
def connected(url: str) -> Iterator[FlinkCluster]:
    """Connect to the cluster of `--flink`.

    Raises:
        DeclarationError: Only a file names the cluster, and the environment has credentials, which
            the author of that file would get.
    """
    require_extra("flink")
    from statelake.pipelines.live.cluster import FlinkCluster  # noqa: PLC0415 - requests only when wanted
    from statelake.pipelines.live.connection import ConnectionSettings  # noqa: PLC0415 - the same

    context = click.get_current_context()
    of_file = context.get_parameter_source("flink") is ParameterSource.DEFAULT_MAP
    if of_file and ConnectionSettings.has_credentials() and not is_trusted(url):
        raise DeclarationError(
            f"only {FILE} names the cluster {url}, and the environment has credentials for one",
            remedy="name it with --flink or STATELAKE_FLINK, or let ~/statelake.toml trust it: a"
            " file in a working directory may not direct your credentials elsewhere",
        )
    with FlinkCluster(ConnectionSettings.from_environment(url)) as cluster:
        yield cluster


@contextmanager
def status_line(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the event that the command waits for on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status("") as status:
        yield lambda waited: status.update(printable(waited).replace("[", "\\["))
