"""`statelake migrate`: give states new types, in one snapshot or all of a job's."""

from __future__ import annotations

from dataclasses import replace

import click

from statelake import Job
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    json_option,
    progress_bar,
    show,
    tell_times,
)
from statelake.pipelines.cli.options import (
    answer,
    opened_job_and_engine,
    request_options,
    snapshot_named,
)
from statelake.pipelines.requests.changes import MigrateSnapshots


@click.command()
@opened_job_and_engine
@click.option("--all", "every", is_flag=True, help="All snapshots that were not migrated yet.")
@request_options(MigrateSnapshots)
@plugins_option
@json_option
def migrate(
    opened: Job,
    every: bool,
    request: MigrateSnapshots,
    as_json_: bool,
) -> None:
    """Give states new types, as one new snapshot; the old one stays.

    Say what changes: --add-field, --rename-field, --drop-field and --change, of as many states as
    you like, where STATE is OPERATOR/STATE. Or give the new types, in a file as `statelake types`
    prints it; a field that it leaves out must be named by --drop-field, or by `drop` in the file.
    With --dry-run the plan is shown: states, rows, and a value before and after.

    What Flink itself would convert (a field added or removed, an enum's constants reordered)
    needs only the new type. For more, --expression or the file gives SQL over the old value,
    `old`. Compatibility is
    checked first, and every value is read back before the new snapshot exists. All states of one
    command get their new types in one snapshot, or none does. With --all, snapshots that were
    migrated already are skipped, so run the command again to resume it. If another state, another
    file or another command made a snapshot with the new id, the migration is refused.
    Values that Kryo wrote of unknown classes need the fields of these classes, in --kryo, or a
    decoder of yours, in --plugins or in a Python file for --to.

    With --ttl, a state gets time to live, or loses it, its values staying as they are. A snapshot
    does not say how long values live: that is in the job. What has expired meanwhile is deleted by
    `edit --expire`.

    A state may be operator state: the elements of a list (split or union), or the values of a
    broadcast state, whose keys stay. If the copies of a broadcast state differ, nothing is
    migrated, because the lake has only one of them. Decoders are for keyed state only.

    \b
    Examples:
      statelake migrate --lake lake --job shop --snapshot monday \\
          --add-field customers/customer.country=String --default "'DE'" --dry-run
      statelake migrate --lake lake --job shop --snapshot monday --state customers/customer \\
          --to customer.yaml
      statelake migrate --lake lake --job shop --snapshot monday --to customer.yaml \\
          --state customers/customer --to rule.yaml --state rules/rules
      statelake migrate --lake lake --job shop --all --state rules/rules --to rule.yaml --dry-run
      statelake migrate --lake lake --job shop --all --to all-states.yaml
      statelake migrate --lake lake --job shop --snapshot monday --ttl kinds/name=on \\
          --last-access taken_at
    """
    if bool(request.snapshots) == every:
        raise click.UsageError("give either --snapshot (once or more) or --all")
    names = list(dict.fromkeys(snapshot_named(opened, name) for name in request.snapshots))
    with progress_bar(
        f"migrating {' '.join(names)}".rstrip(), quiet=as_json_ or request.dry_run
    ) as progress:
        migrated = replace(opened, progress=progress).migrated(request, names)
    show(migrated, as_json_=as_json_)
    for outcome in () if as_json_ else migrated.outcomes:
        tell_times(outcome.times)
    answer(yes=not migrated.failed)
