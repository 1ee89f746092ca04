"""Keys of a column with their key groups and bytes, computed by kernels instead of key by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.runtime.backends import KeyedStateBackend
from statelake.state_core.runtime.backends.states.tables import cut_pieces
from statelake.state_core.serializers.framework.columns import ALL_PRESENT, Target


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """Keys with their key groups and their bytes."""

    keys: list[Any]
    groups: list[int]
    encoded: list[bytes]


def locate_keys(
    backend: KeyedStateBackend, keys: pa.Array, groups: npt.NDArray[np.int32]
) -> LocatedKeys:
    """Return the keys of a column with their key groups and bytes.

    Args:
        backend: The backend of the keys.
        keys: The keys, one per row.
        groups: The key group of each key.

    Raises:
        KeyGroupError: A key belongs to another subtask.
    """
    backend.configuration.check_key_groups(groups)
    serializer = backend.context.serializer
    bounds = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(serializer.sizes(keys, ALL_PRESENT), out=bounds[1:])
    out = np.empty(int(bounds[-1]), np.uint8)
    serializer.encode(keys, Target(out, bounds[:-1].copy()))
    ends = bounds.tolist()
    pieces = cut_pieces(out.tobytes(), ends[:-1], ends[1:])
    return LocatedKeys(keys.to_pylist(), groups.tolist(), pieces)
