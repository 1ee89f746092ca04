"""`statelake check integrity`: all faults of a snapshot, and what can be saved of it."""

from __future__ import annotations

from typing import Any

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    progress_bar,
    tell,
)
from statelake.pipelines.cli.options import (
    Reading,
    answer,
    configured_option,
    lake_is_meant,
    reading_options,
    snapshot_named,
    snapshot_option,
)
from statelake.state_core.checks.integrity import (
    Fault,
    IntegrityReport,
    Loss,
    Place,
    SalvageReport,
    check_snapshot,
    salvage_snapshot,
)
from statelake.state_core.formats import open_snapshot

SHOWN = 200
STYLE = {True: "red", False: "green"}  # of a verdict, by whether there are faults


@click.command()
@click.argument("savepoint", required=False)
@click.option("--salvage", metavar="DIR", help="Write what can be read as a savepoint, to here.")
@configured_option("lake", "The lake whose snapshot is checked.")
@configured_option("job", "The job's name in the lake.")
@snapshot_option("--snapshot", "snapshot_id", help="The snapshot in the lake.")
@reading_options
@plugins_option
@json_option
def integrity(
    savepoint: str | None,
    salvage: str | None,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    reading: Reading,
    as_json_: bool,
) -> None:
    """Read all of a savepoint or checkpoint, and report every fault, not the first.

    Every handle leads to its bytes, every key group is where the handle says, its marks are right
    and nothing follows them, every key hashes to its key group, every value decodes to its last
    byte, all copies of a broadcast state are the same. What only the job's own classes can read is
    listed as not checked.

    Of a snapshot in a lake every row is read, counted and hashed; with a savepoint, too, the two
    are compared.

    \b
    Examples:
      statelake check integrity /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
      statelake check integrity /checkpoints/chk-42 --salvage /savepoints/salvaged
      statelake check integrity --lake lake --job orders --snapshot monday --json
    """
    if not lake_is_meant():
        lake = job = None
    given = [lake, job, snapshot_id]
    if (any(given) and not all(given)) or not (savepoint or lake):
        raise click.UsageError("give a savepoint, or --lake, --job and --snapshot, or both")
    if salvage and not savepoint:
        raise click.UsageError("--salvage is for a savepoint; a lake's snapshot is exported")
    content: dict[str, Any] = {}
    faults = 0
    if savepoint:
        done = _examine(savepoint, salvage, reading, quiet=as_json_)
        report = done.integrity if isinstance(done, SalvageReport) else done
        content = _plain(report)
        if isinstance(done, SalvageReport):
            content["salvage"] = _plain_salvage(done)
        faults = len(report.faults)
        if not as_json_:
            _print(report)
            if isinstance(done, SalvageReport):
                _print_salvage(done)
    if lake and job and snapshot_id:
        opened = Lake(lake)
        snapshot_id = snapshot_named(opened.job(job), snapshot_id)
        source = open_snapshot(savepoint, **reading) if savepoint and not faults else None
        with progress_bar("reading", quiet=as_json_) as progress:
            stored = opened.job(job, progress=progress)[snapshot_id]
            lake_faults = stored.check_integrity(source)
        content["lake_faults"] = lake_faults
        faults += len(lake_faults)
        if not as_json_:
            _print_lake(f"{job}/{snapshot_id}", lake_faults)
    if as_json_:
        as_json({"sound": not faults, **content})
    answer(yes=not faults)


def _examine(
    savepoint: str,
    salvage: str | None,
    reading: Reading,
    *,
    quiet: bool,
) -> IntegrityReport | SalvageReport:
    with progress_bar("salvaging" if salvage else "checking", quiet=quiet) as progress:
        if salvage is None:
            return check_snapshot(savepoint, **reading, progress=progress)
        return salvage_snapshot(savepoint, salvage, **reading, progress=progress)


# --------------------------------------------------------------------------- for scripts


def _plain(report: IntegrityReport) -> dict[str, Any]:
    return {
        "location": report.location,
        "faults": [_plain_fault(fault) for fault in report.faults],
        "not_checked": [
            _place(unchecked.where) | {"why": unchecked.why} for unchecked in report.unchecked
        ],
        "checked": vars(report.checked),
    }


def _plain_fault(fault: Fault) -> dict[str, Any]:
    content = {"kind": fault.kind.value, **_place(fault.where), "place": fault.place}
    return {**content, "problem": fault.problem, "remedy": fault.remedy, "entries": fault.entries}


def _place(where: Place) -> dict[str, Any]:
    groups = where.key_groups
    return {
        "operator": where.operator or None,
        "subtask": where.subtask,
        "state": where.state or None,
        "key_groups": None if groups is None else [groups.first, groups.last],
    }


def _plain_salvage(done: SalvageReport) -> dict[str, Any]:
    return {
        "path": done.path,
        "entries": done.entries,
        "elements": done.elements,
        "lost": [
            _place(loss.where) | {"why": loss.why, "entries": loss.entries, "bytes": loss.size}
            for loss in done.lost
        ],
    }


# --------------------------------------------------------------------------- for people


def _print(report: IntegrityReport) -> None:
    checked = report.checked
    verdict = _verdict(len(report.faults))
    tell(
        f"{verdict}: {checked.handles} handles, {checked.files} files, {bytes_text(checked.size)},"
        f" {checked.key_groups} key groups; {checked.entries} entries"
        f" ({checked.values} values decoded, {checked.hashed} keys hashed),"
        f" {checked.elements} elements of operator state",
        marked=verdict,
        style=STYLE[bool(report.faults)],
    )
    for fault in report.faults[:SHOWN]:
        tell("")
        tell(f"{fault.kind.value}  {fault.where!s}", marked=fault.kind.value)
        texts = [
            _what(fault),
            fault.place.removeprefix(f"{report.location}/"),
            f"-> {fault.remedy}",
        ]
        for line in filter(None, texts):
            tell(f"    {line}")
    if len(report.faults) > SHOWN:
        tell(f"... and {len(report.faults) - SHOWN} more: --json lists all")
    if report.faults or report.unchecked:
        tell("")
    for skipped in report.unchecked:
        tell(f"not checked: {skipped}")


def _verdict(faults: int) -> str:
    many = "fault" if faults == 1 else "faults"
    return f"{faults} {many}" if faults else "sound"


def _what(fault: Fault) -> str:
    many = fault.entries is not None and fault.entries > 1
    return f"{fault.problem} ({fault.entries} entries)" if many else fault.problem


def _print_salvage(done: SalvageReport) -> None:
    if done.path is None:
        tell("nothing can be salvaged: without `_metadata` nobody knows what the files are")
        return
    tell(
        f"wrote {done.path}: {done.entries} entries, {done.elements} elements"
        f" of operator state; {'lost:' if done.lost else 'nothing is lost'}",
        marked=done.path,
    )
    for loss in done.lost[:SHOWN]:
        where = str(loss.where) or "the snapshot"
        tell(f"    {where}: {_amount(loss)} ({loss.why})")
    if len(done.lost) > SHOWN:
        tell(f"... and {len(done.lost) - SHOWN} more: --json lists all")


def _amount(loss: Loss) -> str:
    entries = [] if loss.entries is None else [f"{loss.entries} entries"]
    size = [] if loss.size is None else [f"at most {bytes_text(loss.size)}"]
    return ", ".join([*entries, *size]) or "an unknown amount"


def _print_lake(name: str, faults: list[str]) -> None:
    verdict = _verdict(len(faults))
    tell(f"{verdict}: {name}", marked=verdict, style=STYLE[bool(faults)])
    for fault in faults:
        tell(f"  {fault}")
