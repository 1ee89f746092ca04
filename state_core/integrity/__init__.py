"""Is all of a snapshot there, and is it sound? Every fault, and what can be saved of the rest.

=================  =================================================================
`findings`         faults, losses, and what was checked
`keyed_sources`    keyed handles opened as far as they can be
`keyed_entries`    entries of keyed state, one by one if need be
`operator_parts`   operator state, element for element
`checking`         `check_snapshot`
=================  =================================================================
"""

from state_core.integrity.checking import IntegrityReport, check_snapshot
from state_core.integrity.findings import Checked, Fault, FaultKind, Loss, Place, Unchecked

__all__ = [
    "Checked",
    "Fault",
    "FaultKind",
    "IntegrityReport",
    "Loss",
    "Place",
    "Unchecked",
    "check_snapshot",
]
