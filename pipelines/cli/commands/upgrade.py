"""`statelake upgrade`: make a snapshot of Flink 1 one that Flink 2 restores."""

from __future__ import annotations

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import as_json, json_option, progress_bar, show
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    answer,
    option_of,
    refuse_all,
    request_options,
    source_options,
)
from statelake.pipelines.requests.changes import Upgrade, UpgradeSavepoint, Upgrading
from statelake.state_core.errors import StateError


@click.command()
@source_options
@click.option("--all", "every", is_flag=True,
              help="Upgrade all snapshots of the job that were not upgraded yet.")  # fmt: skip
@option_of(UpgradeSavepoint, "to")
@request_options(Upgrade)
@engine_option
@plugins_option
@json_option
def upgrade(
    source: NamedSnapshot,
    every: bool,
    to: str | None,
    request: Upgrade,
    engine: str,
    as_json_: bool,
) -> None:
    """Upgrade a snapshot of Flink 1 to one that Flink 2 restores.

    Flink 2 can't restore what Flink 1's Kryo wrote, at any depth: in fields of POJOs, tuples and
    rows, elements of lists, keys and values of maps, operator and broadcast state. For List, Set
    and Map fields it has serializers of its own. All of that is found and rewritten in one pass;
    all other bytes stay. Without --to, a savepoint's plan is shown: what would stop Flink, and what
    becomes of it. In a lake a new snapshot is made.

    The types of a collection's elements are in no snapshot. They are found in the values, declared
    by --collection, or taken from a savepoint of the new job, --like. Classes of the job's own that
    Kryo wrote need their fields, in a file for --kryo.

    Exit code 1 if Flink 2 could not restore all of it. With --all, a snapshot that fails keeps no
    other from being upgraded; its error comes at the end.

    \b
    Examples:
      statelake upgrade savepoint-5f1e2c-0a1b2c3d4e5f --to-flink 2.3
      statelake upgrade savepoint-5f1e2c-0a1b2c3d4e5f --to-flink 2.3 --to savepoint-flink-2
      statelake upgrade savepoint-5f1e2c-0a1b2c3d4e5f --to savepoint-flink-2 \\
          --collection 'customers/customer.tags=List<String>'
      statelake upgrade --lake lake --job shop --snapshot monday --like savepoint-of-the-new-job
    """
    source.check_target(to, dry_run=request.dry_run)
    if every and (not source.in_lake or source.snapshot_id is not None):
        raise click.UsageError("--all is for a job of a lake, and names no --snapshot")
    failed: list[StateError] = []
    with progress_bar("upgrading", quiet=as_json_) as progress:
        if not source.in_lake:
            words = request.words(Upgrading)
            done = [sl.upgrade(source.savepoint, to, **words, **vars(source.reading))]
        else:
            job = source.stored_job(engine, progress)
            names = (
                job.not_migrated(request.suffix)
                if every
                else [source.stored(engine, progress).name]
            )
            done = []
            for name in names:
                try:
                    done.append(job[name].upgrade(**vars(request)))
                except StateError as error:  # noqa: PERF203 - each has its own
                    if not every:
                        raise
                    if job.lake.catalog.has(job.name, name):  # not dropped meanwhile
                        failed.append(error)
    if as_json_:
        as_json(done)
    for each in () if as_json_ else done:
        show(each, as_json_=False)
    refuse_all(failed)
    answer(yes=all(each.restorable or (each.complete and bool(each.made)) for each in done))
