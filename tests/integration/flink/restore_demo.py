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
    keys = [one for one in lines if "name" in one]
    for one in keys[:3]:
        print(f"  key {one['key']}: {one['name']!r}, items {one['items']}, total {one['total']}")
    missing = KEYS - len(keys)
    took = time.monotonic() - began
    print(f"  ... {len(keys)} keys restored in {took:.0f} s; the {missing} erased is gone")
    if missing != 1:
        raise SystemExit(f"{KEYS - 1} keys were expected")


if __name__ == "__main__":
    main(sys.argv[1])
