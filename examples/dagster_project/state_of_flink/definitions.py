"""What Dagster loads: everything below `defs`."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All definitions of the project."""
    everything = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    # a run's steps follow each other and are short: none needs a process of its own
    return dg.Definitions.merge(everything, dg.Definitions(executor=dg.in_process_executor))
