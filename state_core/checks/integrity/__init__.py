"""Is all of a snapshot there, and is it sound? Every fault, and what can be saved of the rest.

=================  =================================================================
`findings`         faults, losses, and what was checked
`keyed_sources`    keyed handles opened as far as they can be
`keyed_entries`    entries of keyed state, one by one if need be
`operators`        what operators say of themselves: handles, ranges, parallelism
`operator_parts`   operator state, element for element
`channels`         records in flight
`checking`         `check_snapshot`
`spilled`          sound entries on their way into a new savepoint
`salvaged_states`  the states of a salvaged operator
`salvage`          `salvage_snapshot`
=================  =================================================================
"""

from statelake.state_core.checks.integrity.checking import IntegrityReport, check_snapshot
from statelake.state_core.checks.integrity.findings import (
    Checked,
    Fault,
    FaultKind,
    Loss,
    Place,
    Unchecked,
)
from statelake.state_core.checks.integrity.salvage import SalvageReport, salvage_snapshot

__all__ = [
    "Checked",
    "Fault",
    "FaultKind",
    "IntegrityReport",
    "Loss",
    "Place",
    "SalvageReport",
    "Unchecked",
    "check_snapshot",
    "salvage_snapshot",
]
