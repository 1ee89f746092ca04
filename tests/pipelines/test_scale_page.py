"""`docs/scale.md` has the tables of the model, and the model does what the page says."""

from __future__ import annotations

import pytest

from benchmarks.scale_model import (
    ASSUMED,
    OPERATIONS,
    PAGE,
    RUNS,
    predict,
    with_tables,
)


def test_tables_are_those_of_the_model() -> None:
    """`python -m benchmarks.scale_model --write` puts them there if they are not."""
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page)
    assert all(f"| {operation} | 10 TB |" in page for operation in OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rates_are_those_of_one_executor(operation: str) -> None:
    """The first run is what is predicted of it; twice as many executors take half as long."""
    run = next(run for run in RUNS if run.operation == operation)
    assert run.executors == 1
    assert predict(operation, run.gigabytes, 1).seconds == pytest.approx(run.seconds)
    halves = predict(operation, 64.0, 1).seconds / predict(operation, 64.0, 2).seconds
    assert halves == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_more_cores_than_slices_are_idle(operation: str) -> None:
    """They cost, and save no time."""
    most, more = (predict(operation, 1000, cores, ASSUMED) for cores in (10_000, 20_000))
    assert most.busy == more.busy < 10_000
    assert most.seconds == more.seconds
    assert most.dollars < more.dollars


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_on_local_disks_is_cut_for_any_number_of_cores(operation: str) -> None:
    """There neither buckets nor subtasks keep cores idle."""
    assert predict(operation, 10_000, 10_000).busy == 10_000
