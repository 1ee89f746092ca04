"""`statelake orphans`: files below a directory of checkpoints that no snapshot needs."""

from __future__ import annotations

import click
from click.core import ParameterSource

import statelake as sl
from statelake.pipelines.cli.commands.flink.connecting import connected
from statelake.pipelines.cli.commands.terminal import json_option, show, tell
from statelake.pipelines.cli.options import configured_option, request_options, yes_option
from statelake.pipelines.cli.settings import FILE, is_trusted
from statelake.pipelines.live.requests import FindOrphans
from statelake.state_core.errors import DeclarationError


@click.command()
@click.argument("directory")
@configured_option("flink", "The REST API of the cluster whose jobs write there.")
@request_options(FindOrphans)
@yes_option
@json_option
def orphans(
    directory: str,
    flink: str | None,
    request: FindOrphans,
    yes: bool,
    as_json_: bool,
) -> None:
    """Find files that no checkpoint needs, and delete them.

    Such files are left by failed checkpoints and by TaskManagers that were lost, and where
    directories are deleted by hand: half-written chk-N, and files in `shared`, `taskowned` and
    `dstl` that no `_metadata` names, neither below the directory nor in the cluster's list of
    checkpoints. In doubt a file stays: one `_metadata` that can't be read may name any file.

    The cluster says which jobs run: their files stay as long as they may name them later. Files of
    a job that writes there and that the cluster does not know stay, too.

    Without --yes nothing is deleted. The names are written down before: if the command
    is killed, run it again; in an object store, remove statelake-orphans.json first.

    \b
    Examples:
      statelake orphans /checkpoints --flink http://jm:8081
      statelake orphans s3://bucket/flink --flink http://jm:8081 --older-than 14d --yes
      statelake orphans /checkpoints --no-cluster --older-than 30d --json
    """
    source = click.get_current_context().get_parameter_source("flink")
    if request.no_cluster and source is ParameterSource.COMMANDLINE:
        raise click.UsageError("--no-cluster asks none, --flink that one: give one of them")
    words = vars(request) | {"directory": directory, "delete": yes}
    if request.no_cluster or not flink:
        result = sl.orphans(**words)
    else:
        if yes and source is ParameterSource.DEFAULT_MAP and not is_trusted(flink):
            raise DeclarationError(
                f"only {FILE} names the cluster {flink}, whose word decides what is deleted",
                remedy="name it with --flink or STATELAKE_FLINK",
            )
        with connected(flink) as cluster:
            result = sl.orphans(**words | {"cluster": cluster, "no_cluster": False})
    show(result, as_json_=as_json_)
    if not yes and result.files and not as_json_:
        tell("nothing was deleted: --yes deletes them")
