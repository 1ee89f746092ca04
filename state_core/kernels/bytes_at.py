"""Numbers at positions of bytes: helpers of kernels.

Source: `util/coding.h` of RocksDB 8.10; `DataInputStream` of Java.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.compiler import helper, inlined


@inlined
def u8(data, at):
    """Return a byte."""
    return np.int64(data[np.uintp(at)])


@helper
def put(out, at, byte):
    """Write a byte; return the position behind it."""
    out[np.uintp(at)] = byte
    return at + 1


@inlined
def u32(data, at):
    """Return four bytes, little-endian."""
    low = u8(data, at) | u8(data, at + 1) << 8
    return low | u8(data, at + 2) << 16 | u8(data, at + 3) << 24


@inlined
def i32(data, at):
    """Return four bytes, big-endian, with sign."""
    high = np.int32(data[np.uintp(at)]) << 24
    rest = (
        (np.int32(data[np.uintp(at + 1)]) << 16)
        | (np.int32(data[np.uintp(at + 2)]) << 8)
        | np.int32(data[np.uintp(at + 3)])
    )
    return np.int64(np.int32(high | rest))


@inlined
def u64(data, at):
    """Return eight bytes, big-endian, so that they compare like bytes."""
    value = np.uint64(0)
    for step in range(8):
        value = value << np.uint64(8) | np.uint64(data[np.uintp(at + step)])
    return value


@inlined
def varint(data, at, end):
    """Return the number of up to 63 bits at `at`, and its end: behind `end` if it is invalid."""
    if at < end:
        byte = u8(data, at)
        if byte < 0x80:
            return byte, at + 1
    value = np.int64(0)
    for shift in range(0, 63, 7):
        if at >= end:
            break
        byte = u8(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return np.int64(0), end + 1


@helper
def varint32(data, at, end):
    """Return value, end, and whether it is in the shortest form; the end is -1 on a fault."""
    value = np.int64(0)
    shift = 0
    byte = np.int64(0x80)
    while at < end and shift <= 28:
        byte = np.int64(data[np.uintp(at)])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at, shift == 0 or byte != 0
        shift += 7
    return value, np.int64(-1), False


@inlined
def compare(left, left_at, left_size, right, right_at, right_size):
    """Return less than 0, 0 or more if the left key is before, equal to or after the right one."""
    size = min(left_size, right_size)
    done = np.int64(0)
    while done + 8 <= size:
        word, other = u64(left, left_at + done), u64(right, right_at + done)
        if word != other:
            return np.int64(-1) if word < other else np.int64(1)
        done += 8
    while done < size:
        change = u8(left, left_at + done) - u8(right, right_at + done)
        if change:
            return change
        done += 1
    return left_size - right_size


@inlined
def move8(data, at, out, to):
    """Copy eight bytes: all are read first, so LLVM makes one load and one store of it."""
    value = np.uint64(0)
    for step in range(8):
        value |= np.uint64(data[np.uintp(at + step)]) << np.uint64(8 * step)
    for step in range(8):
        out[np.uintp(to + step)] = np.uint8(value >> np.uint64(8 * step) & 0xFF)


@inlined
def copy(data, at, out, to, size):
    """Copy forward, eight bytes at a time as long as possible."""
    done = np.int64(0)
    while done + 8 <= size:
        move8(data, at + done, out, to + done)
        done += 8
    while done < size:
        out[np.uintp(to + done)] = data[np.uintp(at + done)]
        done += 1
