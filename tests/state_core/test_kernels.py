"""Kernels read the same bytes alike, whether Python's interpreter runs them or machine code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.files.compression import IDENTIFIER, compress_snappy
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.kernels import (
    binary_rows,
    binary_rows_encode,
    compiler,
    decode,
    encode,
    machine_code,
)
from statelake.state_core.kernels.compiler import _OPTIONS, Interpreting, Kernel
from statelake.state_core.kernels.frames import CONTENT, walk_run
from statelake.state_core.kernels.machine_code import MachineCode, file_name
from statelake.state_core.kernels.scan import BETWEEN_RUNS, COUNT, DONE, FULL, scan_unified
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

U8Array = npt.NDArray[np.uint8]
Window = tuple[U8Array, npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]

DAMAGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3)
INCOMPRESSIBLE = np.random.default_rng(7).integers(0, 256, 5000, np.uint8).tobytes()
FRAMES = bytes(compress_snappy(b"state " * 30_000 + INCOMPRESSIBLE))[len(IDENTIFIER) :]


def windows() -> list[tuple[Window, int, int]]:
    """Files that Flink wrote, with one and with two bytes for a key group: as a scan takes them."""
    made = []
    for name in ("kinds-hashmap-canonical-p2-m128", "wordcount-hashmap-canonical-p2-m1024"):
        (case,) = (
            golden_case for golden_case in golden_cases() if golden_case.name.startswith(name)
        )
        keyed = (
            operator for operator in open_snapshot(case.snapshot).operators if operator.keyed_files
        )
        (file, *_) = next(keyed).keyed_files
        assert isinstance(file, UnifiedKeyedFile)
        data = np.empty(file.file.source.size, np.uint8)
        file.file.source.read_into(0, data)
        columns = zip(
            *((span.group, span.start, span.end) for span in file.file.spans), strict=True
        )
        groups, starts, ends = (np.array(column, np.int64) for column in columns)
        window = (data, groups.astype(np.int32), starts, ends)
        made.append((window, file.file.prefix, len(file.header.states)))
    return made


WINDOWS = windows()


def damaged(data: U8Array, damages: list[tuple[int, int]]) -> U8Array:
    """A copy with some bytes changed."""
    changed = data.copy()
    for at, byte in damages:
        changed[at % len(changed)] = byte
    return changed


def scanned(
    scan: Callable[..., Any], window: Window, prefix: int, states: int, rows: int, whole: bool
) -> list[Any]:
    """Everything that a scan says, table after table."""
    progress = np.array([0, window[2][0], BETWEEN_RUNS, 0], np.int64)
    status, said = FULL, []
    while status == FULL:
        progress[COUNT] = 0
        state_of, positions = np.zeros(rows, np.int16), np.zeros((5, rows), np.int64)
        status = scan(*window, prefix, states, whole, progress, state_of, *positions)
        said.append((int(status), progress.tolist(), state_of.tolist(), positions.tolist()))
    return said


@pytest.mark.parametrize("given_window", WINDOWS, ids=["one byte", "two bytes"])
@given(damages=DAMAGES, cut=st.integers(0, 1 << 20), rows=st.integers(1, 300), whole=st.booleans())
def test_entries_are_found_alike(
    given_window: tuple[Window, int, int],
    damages: list[tuple[int, int]],
    cut: int,
    rows: int,
    whole: bool,
) -> None:
    """In windows that Flink wrote, also damaged or cut off; no number becomes too large."""
    (data, groups, starts, ends), prefix, states = given_window
    end = int(ends.max()) - (0 if whole else cut % int((ends - starts).min()))
    window = (damaged(data, damages)[:end], groups, starts, np.minimum(ends, end))
    interpreted = scanned(scan_unified.interpret, window, prefix, states, rows, whole)
    assert interpreted == scanned(scan_unified.compile(), window, prefix, states, rows, whole)
    if not damages and whole:
        assert interpreted[-1][0] == DONE


@given(damages=DAMAGES, cut=st.integers(0, len(FRAMES)), room=st.integers(1, 1 << 18))
def test_chunks_are_found_alike(damages: list[tuple[int, int]], cut: int, room: int) -> None:
    """In Snappy frames, also damaged or cut off."""
    data = damaged(np.frombuffer(FRAMES, np.uint8), damages)[: len(FRAMES) - cut]
    answers = []
    for walk in (walk_run.interpret, walk_run.compile()):
        progress = np.zeros(4, np.int64)
        status = int(walk(data, room, progress))
        answers.append((status, progress.tolist()))
    assert answers[0] == answers[1]
    if not damages and not cut:
        assert answers[0][1][CONTENT] > 0


def test_only_what_is_small_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's interpreter gets small arrays for a while, then machine code takes over for good."""
    kernel = Kernel(lambda _: 1, "int64(U8R)")
    monkeypatch.setattr(kernel, "compile", lambda: lambda _: 2)
    monkeypatch.setattr(compiler, "interpreting", Interpreting(10, 1e9))
    four, many = np.zeros(4, np.uint8), np.zeros(11, np.uint8)
    assert [kernel(four), kernel(many), kernel(four)] == [1, 2, 1]
    monkeypatch.setattr(compiler, "interpreting", Interpreting(10, 0))
    assert kernel(four) == 2


def test_what_was_compiled_before_is_not_interpreted(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless LLVM would have to be loaded for it: an import was slower by a second."""
    words = np.arange(3)
    Kernel(doubled, "int64(I64R, I64)").compile()
    monkeypatch.setattr(compiler, "interpreting", Interpreting(10, 1e9, 1e9))
    kernel = Kernel(doubled, "int64(I64R, I64)")
    interpreted: list[Any] = []
    monkeypatch.setattr(kernel, "interpret", lambda *given: interpreted.append(given))
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "loaded", lambda: False)
        kernel(words, words.copy())
    assert len(interpreted) == 1
    assert kernel(words, words.copy()) == 3
    assert len(interpreted) == len(compilations) == 1


def test_the_interpreter_reads_bytes_as_machine_code_does() -> None:
    """A shifted byte is not cut off, and sums wrap around in silence."""
    shifted = Kernel(lambda data: data[0] << 8, "int64(U8R)")
    most = np.full(1, 255, np.uint8)
    assert shifted.interpret(most) == shifted.compile()(most) == 255 << 8
    stirred = Kernel(lambda words: (words[0] * np.uint64(3)) >> np.uint64(1), "uint64(U64R)")
    words = np.full(1, (1 << 64) - 1, np.uint64)
    assert stirred.interpret(words) == stirred.compile()(words)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_snapshots_are_read_alike(case: GoldenCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """All states of what Flink wrote."""

    def contents() -> dict[tuple[str, str], str]:
        return {  # as text, since a NaN is not equal to itself
            (operator.operator_id, state.name): repr(state.to_arrow().to_pylist())
            for operator in open_snapshot(case.snapshot).operators
            for state in (*operator.keyed_states, *operator.operator_states)
        }

    compiled = contents()
    monkeypatch.setattr(Kernel, "__call__", Kernel.interpret)
    assert contents() == compiled


@pytest.mark.parametrize(
    "kernels",
    [decode._read_fixed, encode._write_fixed, binary_rows._read_slots,
     binary_rows_encode._write_slots],
    ids=["read", "write", "read slots", "write slots"],
)  # fmt: skip
def test_kernels_of_each_width_have_files_of_their_own(kernels: tuple[Kernel, ...]) -> None:
    """In a file of all four, processes that compile at once could take one kernel for another."""
    assert len({file_name(kernel.function, kernel.signature, "") for kernel in kernels}) == 4


def doubled(words: npt.NDArray[np.int64], made: npt.NDArray[np.int64]) -> int:
    """A kernel."""
    for row in range(words.size):
        made[row] = words[row] * FACTOR
    return words.size


FACTOR = 2


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The signatures that are compiled, with an empty directory for machine code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    compiled: list[str] = []
    really = compiler._compile

    def compile_(function: Callable[..., Any], signature: str) -> MachineCode:
        compiled.append(signature)
        return really(function, signature)

    monkeypatch.setattr(compiler, "_compile", compile_)
    return compiled


def test_machine_code_is_kept_for_the_code_it_was_compiled_from(
    compilations: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file is compiled anew, and so is another number, whose file takes its place."""

    def doubling() -> list[int]:
        words, made = np.arange(3), np.zeros(3, np.int64)
        assert Kernel(doubled, "int64(I64R, I64)")(words, made) == 3
        return made.tolist()

    for _ in range(2):
        assert doubling() == [0, 2, 4]
    assert len(compilations) == 1
    (file,) = tmp_path.iterdir()
    for content in (file.read_bytes()[:-1], bytes(1) + file.read_bytes()[1:], b""):
        file.write_bytes(content)
        assert doubling() == [0, 2, 4]
    assert len(compilations) == 4
    monkeypatch.setitem(globals(), "FACTOR", 3)
    name = file_name(doubled, "int64(I64R, I64)", _OPTIONS)
    shutil.copy(file, tmp_path / name)  # of another kernel
    assert doubling() == [0, 3, 6]
    assert len(compilations) == 5
    (other,) = tmp_path.iterdir()
    assert other.name != file.name


@pytest.mark.parametrize(
    "words",
    [np.zeros(2, np.int32), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)[::2],
     np.zeros(17, np.uint8)[1:].view(np.int64)],
    ids=["other numbers", "two dimensions", "with gaps", "not aligned"],
)  # fmt: skip
@pytest.mark.usefixtures("compilations")
def test_machine_code_takes_only_arrays_of_its_signature(words: npt.NDArray[Any]) -> None:
    """It would read and write beyond others."""
    kernel = Kernel(doubled, "int64(I64R, I64)")
    fitting, fixed = np.zeros(2, np.int64), np.zeros(2, np.int64)
    fixed.flags.writeable = False
    for arguments in ((words, fitting), (fitting, words), (fitting, fixed)):
        with pytest.raises(TypeError):
            kernel(*arguments)
    assert kernel(fixed, fitting) == 2
