"""`statelake migrate`: give states new types, in one snapshot or all of a job's."""

from __future__ import annotations

import click

from statelake import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    json_option,
    progress_bar,
    show,
    tell_times,
)
from statelake.pipelines.cli.options import (
    answer,
    engine_option,
    inexact_option,
    job_option,
    lake_option,
    snapshot_named,
    snapshot_option,
)


@click.command()
@lake_option
@job_option
@snapshot_option("--snapshot", "snapshot_ids", multiple=True, help="A snapshot to migrate.")
@click.option("--all", "every", is_flag=True, help="All snapshots that were not migrated yet.")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="OPERATOR/STATE",
    help="Only this state of the file's; may be repeated.",
)
@click.option(
    "--to", "files", multiple=True, metavar="FILE",
    help="A file that says what states become. With several files, the first --state is of the"
    " first file, and so on.",
)  # fmt: skip
@click.option(
    "--add-field", "add_fields", multiple=True, metavar="STATE.FIELD=TYPE", help="Add a field."
)
@click.option(
    "--default", "defaults", multiple=True, metavar="SQL",
    help="The value of an added field; one for each --add-field, in their order.",
)  # fmt: skip
@click.option(
    "--rename-field", "rename_fields", multiple=True, metavar="STATE.OLD=NEW",
    help="Rename a field, which keeps its values.",
)  # fmt: skip
@click.option(
    "--drop-field", "drop_fields", multiple=True, metavar="STATE.FIELD",
    help="Drop a field, or let it go that a file leaves out.",
)  # fmt: skip
@click.option(
    "--change", "changes", multiple=True, metavar="STATE[.FIELD]=TYPE",
    help="Give a field, or the value, another type.",
)  # fmt: skip
@click.option(
    "--expression", "expressions", multiple=True, metavar="STATE[.FIELD]=SQL",
    help="What a field, or the value, becomes: SQL over the value `old`.",
)  # fmt: skip
@click.option(
    "--ttl", multiple=True, metavar="OPERATOR/STATE=on|off",
    help="Switch a keyed state's time to live; may be repeated, and go with --to.",
)  # fmt: skip
@click.option(
    "--last-access", default="now", show_default=True, metavar="now|taken_at|FIELD",
    help="The time of last access that values get with --ttl: now, when the snapshot was taken, or"
    " a field of the values.",
)  # fmt: skip
@click.option(
    "--suffix",
    default="-migrated",
    show_default=True,
    help="Appended to the id.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only report whether it would work, and what it would do."
)
@inexact_option
@click.option("--note", default="", help="Kept with the new snapshot.")
@engine_option
@plugins_option
@json_option
def migrate(
    lake: str,
    job: str,
    snapshot_ids: tuple[str, ...],
    every: bool,
    states: tuple[str, ...],
    files: tuple[str, ...],
    add_fields: tuple[str, ...],
    defaults: tuple[str, ...],
    rename_fields: tuple[str, ...],
    drop_fields: tuple[str, ...],
    changes: tuple[str, ...],
    expressions: tuple[str, ...],
    ttl: tuple[str, ...],
    last_access: str,
    suffix: str,
    dry_run: bool,
    inexact: bool,
    note: str,
    engine: str,
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
    if bool(snapshot_ids) == every:
        raise click.UsageError("give either --snapshot (once or more) or --all")
    words = {
        "add_field": add_fields,
        "default": defaults,
        "rename_field": rename_fields,
        "drop_field": drop_fields,
        "change": changes,
        "expression": expressions,
    }
    asked = bool(files or ttl) or any(words.values())
    if not asked or (states and not files):
        raise click.UsageError(
            "give --to, and --state if need be, words such as --add-field, or --ttl, or several of"
            " these"
        )
    if last_access != "now" and not any(text.endswith("=on") for text in ttl):
        raise click.UsageError("--last-access is for --ttl OPERATOR/STATE=on")
    if states and len(files) > 1 and len(states) != len(files):
        raise click.UsageError("give one --state for each --to, in their order, or none")
    opened = Lake(lake).job(job)
    names = list(dict.fromkeys(snapshot_named(opened, name) for name in snapshot_ids))
    with progress_bar(
        f"migrating {' '.join(names)}".rstrip(), quiet=as_json_ or dry_run
    ) as progress:
        migrating = Lake(lake).job(job, engine=engine, progress=progress)
        migrated = migrating.migrate(
            files, *names, state=states, **words, ttl=ttl, last_access=last_access,
            suffix=suffix, dry_run=dry_run, inexact=inexact, note=note,
        )  # fmt: skip
    show(migrated, as_json_=as_json_)
    for outcome in () if as_json_ else migrated.outcomes:
        tell_times(outcome.times)
    answer(yes=not migrated.failed)
