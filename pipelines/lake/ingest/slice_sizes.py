"""How large a slice may be for one task: by its bytes, and by what its file allows."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.lake.ingest.import_slice import ImportTask
from pipelines.lake.tables.units import SLICE_BYTES, Partitioning
from state_core.model.pieces import CuttableFile
from state_core.model.snapshot import Operator

__all__ = ["is_large", "large_bytes"]

LARGE_BYTES = 2 * SLICE_BYTES
SHARE = 64  # a smaller part of all bytes than that holds up nobody


def large_bytes(operators: Iterable[Operator]) -> int:
    """How many bytes a slice may have that one task imports, of a snapshot with these operators."""
    files = (file for operator in operators for file in operator.keyed_files)
    return max(LARGE_BYTES, sum(size for file in files for _, size in file.group_bytes()) // SHARE)


def is_large(operator: Operator, task: ImportTask, size: int, large: int) -> bool:
    """Whether a slice is imported in pieces: a large one, of one bucket, whose file allows it.

    Args:
        operator: Its operator.
        task: The slice.
        size: Its bytes as stored.
        large: What `large_bytes` says.
    """
    if size <= large or len(task.parts) > 1:
        return False
    (part,) = task.parts
    file = operator.keyed_files[part.file]
    if not isinstance(file, CuttableFile):
        return False
    sizes = file.looked_up_bytes()
    groups = [group for group, count in sizes if count and group in part.key_groups]
    return all(
        len({Partitioning(task.max_parallelism, column).partition_of(g) for g in groups}) == 1
        for column in {target.partition_by for target in task.targets}
    )
