"""The check of a whole snapshot for damage, and the salvage of its sound part.

=================  =================================================================
`findings`         faults, losses, and what was checked
`keyed_sources`    keyed handles, opened as far as possible
`keyed_entries`    entries of keyed state, one by one if necessary
`operators`        an operator's own data: handles, ranges, parallelism
`operator_parts`   operator state, element for element
`checking`         `check_snapshot`, with records in flight
`salvaged_states`  the states of a salvaged operator
`salvage`          `salvage_snapshot`
=================  =================================================================
"""

from statelake.state_core.integrity.checking import IntegrityReport, check_snapshot
from statelake.state_core.integrity.findings import (
    Checked,
    Fault,
    FaultKind,
    Loss,
    Place,
    Unchecked,
)
from statelake.state_core.integrity.salvage import SalvageReport, salvage_snapshot

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
