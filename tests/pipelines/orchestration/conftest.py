"""What each of Dagster's tests stands on."""

from collections.abc import Iterator

import pytest
from dagster._core.storage.defs_state.base import set_defs_state_storage


@pytest.fixture(autouse=True)
def no_instance_of_another_test() -> Iterator[None]:
    """No current instance, until the test opens one.

    Dagster keeps the last one that was opened as the current one, even after it is gone;
    definitions that are loaded then ask it for their state and fail.
    """
    with set_defs_state_storage(None):
        yield
