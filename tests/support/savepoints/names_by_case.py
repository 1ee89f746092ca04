"""The savepoint `golden/names/by-case`: names of operators, states and fields that are unusual.

Five operators are called `op`, `OP`, `a/b`, `..` and `x y`. Each has states `count`, `Count`,
`COUNT` and others, and `twin`: POJOs with fields `id` and `ID`, `a` and `A`, for 40 keys.
"""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["names_by_case"]


def names_by_case(to: Path, *uids: str) -> Path:
    """The savepoint, unpacked: of some of its operators, if any are named."""
    to.mkdir(parents=True)
    data = lzma.decompress((GOLDEN / "names" / "by-case-2.3.metadata.xz").read_bytes())
    metadata = read_metadata(data)
    wanted = set(map(operator_id_of_uid, uids))
    chosen = [each for each in metadata.operators if not uids or each.operator_id in wanted]
    (to / "_metadata").write_bytes(write_metadata(replace(metadata, operators=chosen)))
    return to
