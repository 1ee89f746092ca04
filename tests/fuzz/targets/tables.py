"""RocksDB's files: tables as they are read here, and whole databases that RocksDB reads, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from statelake.state_core.files.file_sources import InlineSource
from statelake.state_core.formats.keyed.rocksdb.rocksdb_tables import FamilyTables, OutputBatch
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds, SstFile
from statelake.state_core.formats.metadata.checkpoint_metadata import SubtaskState
from statelake.state_core.model.handles import IncrementalHandle, InlineHandle, KeyGroupRange
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.fuzz.targets.snapshots import Exchanged, Inline, files_target, forms_of
from tests.support.rocksdb_databases import Settings, Step, tables_in, write
from tests.support.savepoints.golden_cases import golden_cases
from tests.support.savepoints.snapshot_damage import read_everything

__all__ = ["fuzz_rocksdb", "fuzz_sst"]

KINDS = [  # without checksums, so that damage comes further than to those
    Settings(block_size=256, compression=compression, checksum=checksum, two_levels=two_levels)
    for compression, checksum, two_levels in [
        ("none", "no_checksum", False),
        ("snappy", "no_checksum", True),
        ("snappy", "no_checksum", False),
        ("lz4", "no_checksum", False),
        ("zstd", "no_checksum", True),
        ("snappy", "crc32c", False),
        ("none", "xxh3", True),
    ]
]
STEPS: list[Step] = [
    ("put", 0, bytes([n % 3]) + b"key-%03d" % (n * 31 % 97), b"value %d" % n * (n % 5))
    for n in range(60)
]
STEPS += [("delete", 0, b"\1key-031", b"")]
RANGE: Step = ("delete range", 0, b"\2key-010", b"\2key-020")


def fuzz_sst(directory: Path) -> Fuzzing:
    """Table files, with one or two in a run, and prefixes of one and of two bytes."""
    tables = []
    for number, settings in enumerate(KINDS):
        write(directory / f"database-{number}", settings, [*STEPS, RANGE][: 61 + number % 2])
        tables += [path.read_bytes() for path in tables_in(directory / f"database-{number}")]
    native = [golden for golden in golden_cases() if "rocksdb" in golden.name]
    for golden in native:
        files = [path for path in golden.snapshot.parent.rglob("*") if path.is_file()]
        tables += [path.read_bytes() for path in files if _is_table(path)][:4]
    return Fuzzing(seeded((n % 4, table) for n, table in enumerate(tables)), _read_table)


def _is_table(path: Path) -> bool:
    data = path.read_bytes()
    return len(data) < 1 << 13 and data.endswith(bytes.fromhex("57fb808b247547db")[::-1])


def _read_table(data: bytes) -> None:
    form, content = chosen(data, 4)
    prefix = 1 + (form & 1)
    source = InlineSource("table", content)
    index = SstFile.open(source, prefix, index_only=True)
    if index is None:
        return
    keys = index.keys_of(np.arange(len(index.offsets)))
    assert keys == sorted(keys)
    file = SstFile.open(source, prefix)
    if file is None:
        return
    runs = [[file], [file]] if form & 2 else [[file]]
    whole = KeyBounds.of(KeyGroupRange(0, (1 << 8 * prefix) - 1), prefix)
    middle = [key.ljust(prefix, b"\0") + b"\0" for key in keys[len(keys) // 2 :][:1]]
    parts = pairwise([whole.first, *middle, whole.behind])
    for bounds in (whole, *(KeyBounds(first or b"", behind) for first, behind in parts)):
        _read_between(runs, bounds, prefix)
    for _ in file.entries():
        pass


def _read_between(runs: list[list[SstFile]], bounds: KeyBounds, prefix: int) -> None:
    reader, out = FamilyTables(runs, 0, bounds, prefix), OutputBatch(str)
    while not reader.fill(out, (1 << 8 * prefix) - 1):
        _walk(out)
    _walk(out)


def _walk(out: OutputBatch) -> None:
    held = out.entries()
    if len(held):
        assert int(held.value_end.max()) <= held.data.size
        assert (held.key_start <= held.key_end).all()
        assert (held.value_start <= held.value_end).all()


def fuzz_rocksdb(directory: Path) -> Fuzzing:
    """Each file of a database of RocksDB's exchanged, among others that are as they were."""
    native = [golden.snapshot for golden in golden_cases("kinds", form="native")[1:]]
    forms = [form for kind in ("MANIFEST", "CURRENT", ".sst") for form in _forms(native, kind)]
    return files_target(directory, forms, read_everything)


def _forms(snapshots: list[Path], kind: str) -> Iterator[object]:
    def exchange(subtask: SubtaskState, inline: Inline) -> Exchanged | None:
        handle = subtask.managed_keyed
        if not isinstance(handle, IncrementalHandle):
            return None
        files = {name: inline(stream) for name, stream in (*handle.shared, *handle.private)}
        chosen_name = next(name for name in files if kind in name)
        meta = handle.meta and inline(handle.meta)

        def made(content: bytes) -> SubtaskState:
            now = {**files, chosen_name: InlineHandle("", content)}
            changed = replace(handle, meta=meta, shared=(), private=tuple(now.items()))
            return SubtaskState(managed_keyed=changed)

        return files[chosen_name].data, made

    yield from forms_of(exchange, snapshots)
