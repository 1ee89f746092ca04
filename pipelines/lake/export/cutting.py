"""Cut key groups for an export: into slices, and into chunks that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statelake.pipelines.lake.export.large_groups import GroupPiece, plan_pieces
from statelake.pipelines.lake.tables.table_rows import TableReader, chunks_of
from statelake.state_core.formats.writing.spills import PART_BYTES
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import I64Array

CHUNK_BYTES = 16 << 20
SLICE_BYTES = PART_BYTES


def cut_slices(sizes: I64Array, key_groups: KeyGroupRange) -> Iterator[KeyGroupRange]:
    """Cut key groups into slices, each for one task unless it is a large key group.

    Args:
        sizes: The bytes of all key groups, from 0 on.
        key_groups: The key groups to cut.
    """
    return chunks_of(sizes, key_groups, SLICE_BYTES)


def cut_chunks(
    tables: Sequence[TableReader],
    sizes: I64Array,
    key_groups: KeyGroupRange,
    *,
    whole_groups: bool = False,
) -> list[KeyGroupRange | GroupPiece]:
    """Cut key groups into chunks that fit into memory: some of them, or a piece of a large one.

    Args:
        tables: The tables with their rows.
        sizes: The bytes of all key groups, from 0 on.
        key_groups: The key groups to cut.
        whole_groups: Whether a key group is never cut.
    """
    chunks: list[KeyGroupRange | GroupPiece] = []
    for groups in chunks_of(sizes, key_groups, CHUNK_BYTES):
        chunk = sizes[groups.first : groups.last + 1]
        if whole_groups or chunk.sum() <= SLICE_BYTES:
            chunks.append(groups)
        else:  # one key group has most of the bytes
            chunks += plan_pieces(tables, groups.first + int(chunk.argmax()), CHUNK_BYTES)
    return chunks


def cut_parts(
    chunks: Sequence[KeyGroupRange | GroupPiece],
) -> list[list[KeyGroupRange | GroupPiece]]:
    """Return the chunks of each task: a large key group has several tasks of about equal size."""
    sizes = [chunk.size if isinstance(chunk, GroupPiece) else 0 for chunk in chunks]
    share = sum(sizes) / max(1, -(-sum(sizes) // SLICE_BYTES))
    parts: list[list[KeyGroupRange | GroupPiece]] = [[]]
    total = 0
    for chunk, size in zip(chunks, sizes, strict=True):
        if total and total + size / 2 > share:
            parts.append([])
            total = 0
        parts[-1].append(chunk)
        total += size
    return parts


def chunk_weight(chunk: KeyGroupRange | GroupPiece, sizes: I64Array) -> int:
    """Return the approximate number of bytes of a chunk."""
    if isinstance(chunk, GroupPiece):
        return chunk.size
    return int(sizes[chunk.first : chunk.last + 1].sum())
