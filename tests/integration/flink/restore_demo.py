"""The end of `make demo`: real Flink restores the savepoint that the demo wrote."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.integration.flink.oracle import FlinkOracle

VERSION = "2.3.0"
KEYS = 128


def main(savepoint: str) -> None:
    """Restore it at a parallelism of its own, and show what some keys hold."""
    print(f"\nReal Flink {VERSION} restores {savepoint} (the first time, Flink is downloaded)")
    began = time.monotonic()
    with FlinkOracle(VERSION) as flink:
        lines = flink.restore(
            "kinds", Path(savepoint).resolve(), parallelism=3, max=256, keys=KEYS, backend="rocksdb"
        )
    keys = [line for line in lines if "name" in line]
    alive = [key for key in keys if key["name"] is not None]
    for row in alive[:3]:
        print(f"  key {row['key']}: {row['name']!r}, items {row['items']}, total {row['total']}")
    gone = [key["key"] for key in keys if key["name"] is None]
    took = time.monotonic() - began
    print(f"  ... {len(alive)} keys restored in {took:.0f} s; nothing is left of {gone}")
    if len(alive) != KEYS - 1 or len(gone) != 1:
        raise SystemExit(f"{KEYS - 1} keys were expected")


if __name__ == "__main__":
    main(sys.argv[1])
