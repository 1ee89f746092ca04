"""Copy many pieces of one buffer to their places in another."""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.compiler import kernel


@kernel("void(U8R, I64R, I64R, U8, I64)")
def copy_pieces(data, starts, ends, out, position):
    """Copy a piece of each row to the row's position, which moves behind it."""
    for row in range(starts.size):
        target = position[row]
        for at in range(starts[row], ends[row]):
            out[np.uintp(target)] = data[np.uintp(at)]
            target += 1
        position[row] = target
