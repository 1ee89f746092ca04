"""Keys of a column with their key groups and bytes, computed by kernels instead of key by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.formats.layout.keys import encode_keys
from statelake.state_core.runtime.backends import KeyedStateBackend
from statelake.state_core.runtime.backends.states.tables import cut_column


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
    encoded = cut_column(encode_keys(backend.context.serializer, keys))
    return LocatedKeys(keys.to_pylist(), groups.tolist(), encoded)
