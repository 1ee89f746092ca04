"""Golden snapshots whose `_metadata` contradicts itself, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    write_metadata,
)
from statelake.state_core.model.handles import KeyGroupsHandle, RelativeHandle
from tests.support.lakes import golden
from tests.support.savepoints.damaged import Damaged, damaged

__all__ = ["CONTRADICTIONS", "Contradiction", "contradict", "subtask_twice"]

WORDS = "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0"
ROCKSDB = "kinds-rocksdb-native-p2-m128-flink2.3.0"
OTHER_ID = "ab" * 16
Change = Callable[[CheckpointMetadata, OperatorMetadata], None]


@dataclass(frozen=True)
class Contradiction:
    """One way to contradict oneself.

    Attributes:
        name: What it is.
        change: How `_metadata` is changed.
        says: Words of the message, which names both places.
        kind: The kind of fault that a check of integrity calls it.
        case: The golden snapshot that is changed.
    """

    name: str
    change: Change
    says: tuple[str, ...]
    kind: str = "metadata"
    case: str = WORDS


def contradict(contradiction: Contradiction, to: Path) -> Path:
    """The snapshot that contradicts itself."""
    snapshot = damaged(golden(contradiction.case), to)
    (to / "opaque").write_bytes(b"an operator's own")
    snapshot.edit(contradiction.change)
    return snapshot.path


def subtask_twice(to: Path) -> Damaged:
    """One whose bytes have subtask 0 of its first operator twice, which no dictionary can hold."""
    snapshot = damaged(golden(WORDS), to)
    metadata, operator = snapshot.metadata, snapshot.operator
    assert operator.subtasks is not None
    operator.parallelism, operator.subtasks[0x7A7A] = 0x7FFF, operator.subtasks[0]
    written = write_metadata(replace(metadata, operators=[operator]))
    for index, other in ((0x7A7A, 0), (0x7FFF, 2)):
        assert written.count(index.to_bytes(4, "big")) == 1
        written = written.replace(index.to_bytes(4, "big"), other.to_bytes(4, "big"))
    (to / "_metadata").write_bytes(written)
    return snapshot


def _handle(operator: OperatorMetadata, index: int) -> KeyGroupsHandle:
    assert operator.subtasks is not None
    handle = operator.subtasks[index].managed_keyed
    assert isinstance(handle, KeyGroupsHandle)
    return handle


def _give(operator: OperatorMetadata, index: int, **changed: object) -> None:
    """Give a subtask's handle other fields."""
    assert operator.subtasks is not None
    operator.subtasks[index].managed_keyed = replace(_handle(operator, index), **changed)  # type: ignore[arg-type]


def _operator_twice(metadata: CheckpointMetadata, operator: OperatorMetadata) -> None:
    metadata.operators.append(deepcopy(operator))


def _uid_twice(metadata: CheckpointMetadata, operator: OperatorMetadata) -> None:
    """With another content: the copy has but one subtask's."""
    copied = replace(deepcopy(operator), operator_id=OTHER_ID)
    assert copied.subtasks is not None
    del copied.subtasks[1]
    metadata.operators.append(copied)


def _id_as_uid(metadata: CheckpointMetadata, operator: OperatorMetadata) -> None:
    """An operator without a uid is called by its id."""
    metadata.operators.append(replace(deepcopy(operator), operator_id=OTHER_ID, uid=""))
    operator.uid = OTHER_ID


def _copy_with_fewer(metadata: CheckpointMetadata, operator: OperatorMetadata) -> None:
    """Of 2,340 entries of such a snapshot 1,751 came out of the lake again."""
    copied = replace(deepcopy(operator), operator_id=OTHER_ID, uid="copy", max_parallelism=96)
    metadata.operators.append(copied)


def _parallelism(parallelism: int, max_parallelism: int) -> Change:
    def change(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        operator.parallelism, operator.max_parallelism = parallelism, max_parallelism

    return change


def _same_key_groups(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    _give(operator, 1, first=0)


def _overlap(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    _give(operator, 1, first=60, offsets=(0, 0, 0, 0, *_handle(operator, 1).offsets))


def _within(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    """One claims all, the other some of it."""
    _give(operator, 0, offsets=(*_handle(operator, 0).offsets, *[0] * 64))


def _gap(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    _give(operator, 0, offsets=_handle(operator, 0).offsets[:-5])


def _shifted(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    """Of 128 key groups, 65 to 128."""
    _give(operator, 1, first=65)


def _finished(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    """The subtasks' handles changed places, and one subtask had finished."""
    assert operator.subtasks is not None
    operator.subtasks = {0: operator.subtasks[1], 1: SubtaskState(finished=True)}


def _raw_overlap(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    assert operator.subtasks is not None
    for index in (0, 1):
        raw = replace(_handle(operator, 0), first=32 * index, offsets=(0,) + (-1,) * 63)
        operator.subtasks[index].raw_keyed = replace(raw, stream=RelativeHandle("opaque", 17))


def _file_twice(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
    assert operator.subtasks is not None
    handle = operator.subtasks[1].managed_keyed
    private = (*handle.private, handle.private[-1])  # type: ignore[union-attr]
    operator.subtasks[1].managed_keyed = replace(handle, private=private)  # type: ignore[type-var,arg-type]


CONTRADICTIONS = (
    Contradiction("an operator twice", _operator_twice, ("2 operators of id 0da08f51eaa85fc2",)),
    Contradiction(
        "a uid twice, with other values",
        _uid_twice,
        ("operators 0da08f51eaa85fc298e176a139b3649a and abababab", "both of uid 'counter'"),
    ),
    Contradiction(
        "an operator's id as another's uid",
        _id_as_uid,
        ("operators 0da08f51eaa85fc298e176a139b3649a and abababab", "both of uid 'abababab"),
    ),
    Contradiction(
        "a copy with a lower max parallelism",
        _copy_with_fewer,
        ("operator copy, subtask 1", "key groups 64-127 claimed, and there are 96"),
        "key groups",
    ),
    Contradiction(
        "a higher max parallelism",
        _parallelism(2, 200),
        ("operator counter, subtask 1, key groups 128-199", "in no handle"),
        "key groups",
    ),
    Contradiction(
        "more subtasks than key groups",
        _parallelism(200, 128),
        ("operator counter", "parallelism 200 is not between 1 and the max parallelism 128"),
    ),
    Contradiction(
        "more key groups than Flink has",
        _parallelism(2, 2**31 - 1),
        ("operator counter", "max parallelism 2147483647 is not between 1 and 32768"),
    ),
    Contradiction(
        "the same key groups in two subtasks",
        _same_key_groups,
        ("operator counter, subtask 1, key groups 0-63", "in the handle of subtask 0 too"),
        "key groups",
    ),
    Contradiction(
        "handles that overlap",
        _overlap,
        ("operator counter, subtask 1, key groups 60-63", "in the handle of subtask 0 too"),
        "key groups",
    ),
    Contradiction(
        "a handle within another",
        _within,
        ("operator counter, subtask 1, key groups 64-127", "in the handle of subtask 0 too"),
        "key groups",
    ),
    Contradiction(
        "key groups in no handle",
        _gap,
        ("operator counter, subtask 0, key groups 59-63", "the subtask's holds 0-58"),
        "key groups",
    ),
    Contradiction(
        "key groups that can not be",
        _shifted,
        ("operator counter, subtask 1", "key groups 65-128 claimed, and there are 128"),
        "key groups",
    ),
    Contradiction(
        "key groups of a subtask that had finished",
        _finished,
        ("operator counter, subtask 1, key groups 64-127", "their own had finished"),
        "key groups",
    ),
    Contradiction(
        "raw state that overlaps",
        _raw_overlap,
        ("operator counter, subtask 1, key groups 32-63", "in the handle of subtask 0 too"),
        "key groups",
    ),
    Contradiction(
        "a file of RocksDB twice",
        _file_twice,
        ("operator kinds, subtask 1", "the handle of its RocksDB has 2 files '"),
        case=ROCKSDB,
    ),
)
