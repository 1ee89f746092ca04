"""The process from which Spark forks its Python workers, with all modules loaded.

A fresh worker spends a second on importing NumPy, PyArrow and LLVM; a forked one has them.
"""

from __future__ import annotations

import gc

import pyarrow.parquet
from pyspark.daemon import manager

import statelake.pipelines.lake.export.export_slice
import statelake.pipelines.lake.ingest.import_slice
from statelake.state_core.kernels import decode, encode, hashing, scan, skip
from statelake.state_core.kernels.compiler import kernels_in
from statelake.state_core.serializers import registered_classes

MODULES = (
    pyarrow.parquet,
    statelake.pipelines.lake.ingest.import_slice,
    statelake.pipelines.lake.export.export_slice,
)


def preload() -> int:
    """Import all serializers, load all kernels, and return the number of kernels."""
    registered_classes()
    kernels = kernels_in(scan, skip, decode, encode, hashing)
    for kernel in kernels:
        kernel.compile()
    return len(kernels)


if __name__ == "__main__":
    preload()
    # PySpark collects garbage after each task: loaded modules are exempted
    gc.collect()
    gc.freeze()
    manager()
