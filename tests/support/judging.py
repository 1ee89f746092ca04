"""What a check says of a damaged snapshot, and what a salvage makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statelake.state_core.integrity import (
    IntegrityReport,
    SalvageReport,
    check_snapshot,
    salvage_snapshot,
)
from tests.support.lakes import entries
from tests.support.savepoints.damaged import Damaged

__all__ = ["said", "salvaged"]


def said(report: IntegrityReport) -> list[tuple[str, int | None, Any]]:
    """What is wrong: the kind, the subtask, and the key group, or the first and last of them."""
    found = []
    for fault in report.faults:
        assert fault.problem
        assert fault.remedy
        assert "\n" not in str(fault)
        groups = fault.where.key_groups
        shown = None if groups is None else (groups.first, groups.last)
        one = groups.first if groups is not None and len(groups) == 1 else shown
        found.append((fault.kind.value, fault.where.subtask, one))
    return found


def salvaged(damaged: Damaged, *without: int, told: bool = True) -> SalvageReport:
    """Salvage it: what is written is sound, and has all of the key groups that are not damaged.

    Args:
        damaged: What is damaged.
        without: The damaged key groups.
        told: Whether the damage is of a kind that every entry shows: what is saved of a damaged
            key group was there then. (A bit of a number that is not compressed shows nothing.)
    """
    to = damaged.path.parent / "salvaged"
    done = salvage_snapshot(damaged.path, to)
    assert done.path == str(to)
    check_sound(to, done)
    before, after = entries(damaged.origin), entries(to)
    for state, rows in before.items():
        found = after.get(state, [])
        rest = [row for row in rows if row[0] not in without]
        assert [row for row in found if row[0] not in without] == rest
        assert not told or set(found) <= set(rows)
    return done


def check_sound(to: Path, done: SalvageReport) -> None:
    """What was salvaged is sound, and as much as is said."""
    report = check_snapshot(to)
    assert report.sound, [str(fault) for fault in report.faults]
    assert report.checked.entries == done.entries
    assert report.checked.elements == done.elements
