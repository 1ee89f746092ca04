"""Names out of a snapshot: any text is one, half a surrogate pair is refused with its place."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
)
from statelake.state_core.integrity import check_snapshot
from tests.support.lakes import golden
from tests.support.savepoints.damaged import damaged
from tests.support.savepoints.snapshot_damage import inlined

WORDS = "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0"
POJO = "pojo-hashmap-canonical-p2-m128-flink1.20.0"
OPERATOR = "operator-hashmap-canonical-p2-m128-flink2.3.0"
HALF = b"\xed\xa0\x80"
# what is renamed in a snapshot, and what the message calls it
NAMED = [
    (WORDS, b"\0\x05count", "the state is called '\\ud800nt'"),
    (OPERATOR, b"\0\x05union", "the operator state is called '\\ud800on'"),
    (POJO, b"\0\x06street", "a field is called '\\ud800eet'"),
    (POJO, b"\0\x05GREEN", "a constant of Judge$Color is called '\\ud800EN'"),
    (POJO, b"\0\x0eJudge$Customer", "the value's type is called '\\ud800ge$Customer'"),
    (POJO, b"event_user-timers", "the state is called '_timer_state/\\ud800nt_user-timers'"),
]


@cache
def whole(name: str) -> bytes:
    """The snapshot as one `_metadata`."""
    return inlined(golden(name))


@pytest.mark.parametrize("attribute", ["uid", "name"])
def test_an_operator_that_is_called_half_a_pair(attribute: str, tmp_path: Path) -> None:
    """No table, no script and no terminal could hold the name."""
    snapshot = damaged(golden(WORDS), tmp_path / "snapshot")

    def rename(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        setattr(operator, attribute, "a\ud800b")

    snapshot.edit(rename)
    with pytest.raises(UnsupportedFormatError, match=rf"operator .*the {attribute} is called"):
        open_snapshot(snapshot.path)
    assert check_snapshot(snapshot.path).sound  # all of it is there


@pytest.mark.parametrize(("name", "old", "said"), NAMED)
def test_what_is_called_half_a_pair(name: str, old: bytes, said: str, tmp_path: Path) -> None:
    """A state, a field, a constant, a class: the message names it and what it belongs to."""
    data = whole(name)
    at = 2 if old[0] == 0 else 0
    assert old in data
    renamed = old[:at] + HALF + old[at + len(HALF) :]
    (tmp_path / "_metadata").write_bytes(data.replace(old, renamed))
    with pytest.raises(UnsupportedFormatError) as refused:
        open_snapshot(tmp_path)
    assert said in str(refused.value)
    assert str(refused.value).startswith("operator ")
    report = check_snapshot(tmp_path)
    assert report.checked.key_groups or report.checked.elements
    for found in (*report.faults, *report.unchecked):
        assert str(found).encode()


def test_names_of_any_other_text(tmp_path: Path) -> None:
    """Control characters and signs that turn text around are names, however they are shown."""
    snapshot = damaged(golden(WORDS), tmp_path / "snapshot")
    odd = "\0\x1b[31m\n\u202e[b]größe-键😀"

    def rename(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        operator.uid = operator.name = odd

    snapshot.edit(rename)
    assert open_snapshot(snapshot.path).operator(odd).uid == odd
