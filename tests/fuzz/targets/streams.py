"""Streams of others: Java's serialized objects, and Snappy's frames."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import cramjam
import numpy as np

from statelake.state_core.files.compression import SnappyStream, compress_snappy
from statelake.state_core.files.file_sources import InlineSource
from statelake.state_core.files.java_stream import read_java_stream, write_java_stream
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    describe_properties,
    read_metadata,
)
from statelake.state_core.kernels.frames import CRC_TABLE
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.support.savepoints.golden_cases import GOLDEN, golden_cases

__all__ = ["fuzz_java", "fuzz_snappy"]

MAGIC = b"\xac\xed\0\x05"
MOST = 1 << 20


def fuzz_java(_: Path) -> Fuzzing:
    """Java streams: read, and written again; and as the properties of a checkpoint."""
    metadata = [(golden.snapshot / "_metadata").read_bytes() for golden in golden_cases()]
    seeds = {read_metadata(data).properties for data in metadata}
    for name in ("compatibility.jsonl", "scala.jsonl", "serializers.txt"):
        text = (GOLDEN / "vectors" / name).read_text("utf-8")
        parts = text.split(MAGIC.hex())[1:]
        seeds |= {MAGIC + bytes.fromhex(part[: _digits(part)]) for part in parts}
    return Fuzzing(sorted(seed for seed in seeds if seed), _read_java)


def _digits(text: str) -> int:
    count = next((n for n, char in enumerate(text) if char not in "0123456789abcdef"), len(text))
    return count & ~1


def _read_java(data: bytes) -> None:
    describe_properties(data)
    value = read_java_stream(DataInput(data))
    again = write_java_stream(value)
    assert write_java_stream(read_java_stream(DataInput(again))) == again


def fuzz_snappy(_: Path) -> Fuzzing:
    """Frames as they are, and with the right checksum before whatever they hold."""
    contents = [b"", b"statelake", b"ab" * 700, bytes(range(256)) * 300]
    frames = [bytes(compress_snappy(content)) for content in contents]
    return Fuzzing(seeded((form, data) for form in range(4) for data in frames), _read_snappy)


def _read_snappy(data: bytes) -> None:
    form, rest = chosen(data, 4)
    if form & 2:
        rest = _with_checksums(rest)
    stream = SnappyStream(InlineSource("frames", rest), 0, len(rest), up_to_break=bool(form & 1))
    out, count = np.empty(1 << 15, np.uint8), 0
    while True:
        done = stream.read_into(out)
        count += done
        if done < out.size:
            return
        assert count <= MOST * max(1, len(rest))


def _with_checksums(data: bytes) -> bytes:
    """The same chunks, each with the checksum of what it holds."""
    out, at = bytearray(), 0
    while at + 8 <= len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        payload = data[at + 8 : at + 4 + length]
        content = payload
        if kind == 0:
            content = b""
            with suppress(cramjam.DecompressionError):
                if cramjam.snappy.decompress_raw_len(payload) <= MOST:
                    content = bytes(cramjam.snappy.decompress_raw(payload))
        checksum = data[at + 4 : at + 8] if kind > 1 else _masked_crc(content)
        out += data[at : at + 4] + checksum + payload
        at += 4 + max(4, length)
    return bytes(out + data[at:])


def _masked_crc(content: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = int(CRC_TABLE[(crc ^ byte) & 0xFF]) ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
