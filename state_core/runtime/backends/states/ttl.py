"""Time to live: each value, list element or map entry has the time of its last access.

A state of such values checks the times: an expired value is not returned (or once more, if its
visibility allows), and is removed when it is read. The clock is the backend's.

Source: `TtlValueState` and its siblings, `TtlReduceFunction`, `TtlAggregateFunction` in
`org.apache.flink.runtime.state.ttl`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.declarations.states import (
    StateTtlConfig,
    StateVisibility,
    UpdateType,
)

TtlValue: TypeAlias = "dict[str, Any]"


class LastAccess:
    """Checks and sets the times of last access.

    Args:
        ttl: The time to live.
        clock: Returns the time.
    """

    def __init__(self, ttl: StateTtlConfig, clock: Callable[[], int]) -> None:
        self.millis = ttl.millis
        self.on_read = ttl.update_type is UpdateType.ON_READ_AND_WRITE
        self.return_expired = ttl.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        self.clock = clock

    def wrap(self, value: Any) -> TtlValue:
        """Return a value with the current time."""
        return {"ttl": self.clock(), "value": value}

    def expired(self, stored: TtlValue) -> bool:
        """Return whether a value has expired."""
        return bool(stored["ttl"] + self.millis <= self.clock())

    def unexpired(self, stored: TtlValue) -> Any:
        """Return the value; None if it has expired and may not be returned."""
        if not self.return_expired and self.expired(stored):
            return None
        return stored["value"]

    def read(
        self, stored: TtlValue, renew: Callable[[Any], None], remove: Callable[[], None]
    ) -> TtlValue | None:
        """Return a value unless it has expired, and renew or remove it."""
        if self.expired(stored):
            remove()
            return stored if self.return_expired else None
        if self.on_read:
            renew(stored["value"])
        return stored

    def joined(
        self, join: Callable[[Any, Any], Any], first: TtlValue, second: TtlValue
    ) -> TtlValue | None:
        """Return two values combined into one, without expired ones; None without any."""
        living = [value for value in map(self.unexpired, (first, second)) if value is not None]
        if not living:
            return None
        return self.wrap(join(*living) if len(living) == 2 else living[0])


def access_times(layout: KeyedLayout, values: pa.Array, now: int) -> pa.Array:
    """Return a column of times for a column of values, or of lists of them."""
    if layout.kind is not StateKind.LIST:
        return pa.array(np.full(len(values), now, np.int64))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))).astype(np.int32)
    times = pa.array(np.full(int(offsets[-1]), now, np.int64))
    return pa.ListArray.from_arrays(pa.array(offsets), times)
