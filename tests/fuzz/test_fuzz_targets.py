"""The targets of `make fuzz` work: their seeds, and some damage to each, without any guidance."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from statelake.state_core.errors import StateError
from tests.fuzz.running import Run, table, total
from tests.fuzz.targets import TARGETS, chosen, prepare, seeded

SEEDS, DAMAGES = 2, 2


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("name", TARGETS)
def test_only_our_own_errors_come_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few seeds as they are, and damaged."""
    monkeypatch.chdir(tmp_path)
    random_ = random.Random(name)
    fuzzing = prepare(name, tmp_path)
    read = 0
    for seed in sorted(fuzzing.seeds, key=len):
        with suppress(StateError):
            fuzzing.run(seed)
            read += 1
        for _ in range(DAMAGES):
            damaged = bytearray(seed)
            damaged[random_.randrange(len(seed))] ^= random_.randrange(1, 256)
            with suppress(StateError):
                fuzzing.run(bytes(damaged[: random_.randrange(2, len(seed) + 2)]))
        if read == SEEDS:
            break
    assert read


def test_forms_are_chosen_as_they_were_seeded() -> None:
    """Whatever the first bytes are, they are a form."""
    assert [chosen(data, 300) for data in seeded([(0, b""), (299, b"x")])] == [
        (0, b""),
        (299, b"x"),
    ]
    assert chosen(b"", 3) == (0, b"")
    assert chosen(b"\xff\xff\x01", 2) == (1, b"\x01")


def test_runs_of_a_target_add_up() -> None:
    """Executions and seconds are sums, what was reached and taken at most are maxima."""
    runs = [Run("java", "interpreted", 30.0, 50, 7, 9, 20, 1, 0),
            Run("java", "compiled", 30.0, 70, 9, 12, 10, 0, 2)]  # fmt: skip
    (run,) = total(runs)
    assert run == Run("java", "both", 60.0, 120, 7, 12, 20, 1, 2)
    assert table([run]).splitlines()[-1] == "| java | 1.0 | 120 | 2 | 7 to 12 | 20 | 1 | 2 |"
