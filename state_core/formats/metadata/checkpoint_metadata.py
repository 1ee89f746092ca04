"""The `_metadata` file of a savepoint or checkpoint, versions 2 to 6.

::

    i32 magic 0x4960672d, i32 version
    i64 checkpoint id
    i32 n, n master states
    i32 n, n operator states: id, parallelism, coordinator state, subtasks with their handles
    version 4 and later: the checkpoint properties, a Java object stream, to the end of the file

Version 1 is refused by Flink itself since 1.17. Version 2 (Flink 1.3 to 1.10) is read; as in Flink
it can't be written. Flink deserializes the Java stream unfiltered when it restores. Here it is
parsed by its grammar (`files.java_stream`) if it is needed, and otherwise carried as bytes: nothing
in it is ever instantiated. New streams are written by the same grammar, with the class descriptions
of Flink 1.20 to 2.3, which are the same.

Source: `org.apache.flink.runtime.checkpoint.Checkpoints` and `...checkpoint.metadata`
(`MetadataV2Serializer` to `MetadataV6Serializer`), `CheckpointProperties`, `SavepointType`,
`CheckpointType`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from statelake.state_core.bounds import KEY_GROUPS, OPERATORS, SUBTASKS, Budget
from statelake.state_core.errors import (
    CorruptSnapshotError,
    NotASnapshotError,
    SnapshotError,
    UnsupportedFormatError,
)
from statelake.state_core.files.java_stream import (
    JavaClass,
    JavaEnum,
    JavaField,
    JavaObject,
    JavaValue,
    read_java_stream,
    write_java_stream,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.metadata.handle_codec import (
    read_channel_handle,
    read_keyed_handle,
    read_operator_handle,
    read_stream_handle,
    unmerged,
    write_channel_handle,
    write_keyed_handle,
    write_operator_handle,
    write_stream_handle,
)
from statelake.state_core.model.handles import (
    ChannelHandle,
    InlineHandle,
    KeyedHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    OperatorHandle,
    keyed_bytes,
)

CHECKPOINT = "org.apache.flink.runtime.checkpoint."
FORMAT_TYPE = "org.apache.flink.core.execution.SavepointFormatType"
POST_ACTION = f"{CHECKPOINT}SavepointType$PostCheckpointAction"
FORMATS = ("CANONICAL", "NATIVE")
SERIALIZABLE, SERIALIZABLE_ENUM = 0x02, 0x12
SAVEPOINT_TYPE_VERSION = -0x5F782CF75BA7EB48  # a087d308a45814b8


def describe_properties(data: bytes) -> tuple[str, str]:
    """Return a snapshot's kind and format; empty if the bytes don't contain them.

    Returns:
        `("savepoint", "canonical" | "native")`, `("checkpoint", "checkpoint")` or `("", "")`.
    """
    try:
        budget = Budget(len(data))
        properties = read_java_stream(DataInput(data, "checkpoint properties", budget=budget))
    except SnapshotError:
        return "", ""
    kind = properties.values.get("checkpointType") if isinstance(properties, JavaObject) else None
    if not isinstance(kind, JavaObject):
        return "", ""
    form = kind.values.get("formatType")
    if isinstance(form, JavaEnum):
        known = form.constant in FORMATS
        return ("savepoint", form.constant.lower()) if known else ("", "")
    if kind.java_class.name == f"{CHECKPOINT}CheckpointType":
        return "checkpoint", "checkpoint"
    return "", ""


def check_properties(metadata: CheckpointMetadata) -> None:
    """Check that the properties can be parsed to their end, as Flink does before all else.

    Raises:
        SnapshotError: They can't; the place is their offset.
    """
    if metadata.version >= FIRST_WITH_PROPERTIES:
        data = metadata.properties
        budget = Budget(len(data))
        read_java_stream(DataInput(data, "checkpoint properties", budget=budget))


def is_canonical_savepoint(data: bytes) -> bool:
    """Return whether these are the properties of a savepoint in the unified format."""
    return describe_properties(data) == ("savepoint", "canonical")


def canonical_savepoint_properties() -> bytes:
    """Return the properties that Flink writes for `flink savepoint --type canonical`."""
    java_enum = JavaClass("java.lang.Enum", 0, SERIALIZABLE_ENUM)
    form = JavaEnum(JavaClass(FORMAT_TYPE, 0, SERIALIZABLE_ENUM, (), java_enum), "CANONICAL")
    action = JavaEnum(JavaClass(POST_ACTION, 0, SERIALIZABLE_ENUM, (), java_enum), "NONE")
    savepoint_type = JavaClass(
        f"{CHECKPOINT}SavepointType",
        SAVEPOINT_TYPE_VERSION,
        SERIALIZABLE,
        (
            JavaField("L", "formatType", _signature(FORMAT_TYPE)),
            JavaField("L", "name", "Ljava/lang/String;"),
            JavaField("L", "postCheckpointAction", _signature(POST_ACTION)),
        ),
    )
    flags = ("Cancelled", "Failed", "Finished", "Subsumed", "Suspended")
    names = [*(f"discard{flag}" for flag in flags), "forced", "unclaimed"]
    fields = [JavaField("Z", name) for name in names]
    fields.append(JavaField("L", "checkpointType", _signature(f"{CHECKPOINT}SnapshotType")))
    values: dict[str, JavaValue] = {
        "formatType": form,
        "name": "Savepoint",
        "postCheckpointAction": action,
    }
    properties = JavaObject(
        JavaClass(f"{CHECKPOINT}CheckpointProperties", 2, SERIALIZABLE, tuple(fields)),
        {name: name == "forced" for name in names},
    )
    properties.values["checkpointType"] = JavaObject(savepoint_type, values)
    return write_java_stream(properties)


def _signature(class_name: str) -> str:
    return f"L{class_name.replace('.', '/')};"


MAGIC = 0x4960672D
MASTER_STATE_MAGIC = -0x3694E96A  # 0xc96b1696 as a signed int
METADATA_VERSIONS = range(2, 7)
FIRST_WITH_COORDINATOR = 3
FIRST_WITH_PROPERTIES = 4
FIRST_WITH_NAMES = 5
FIRST_WITH_TYPED_CHANNELS = 6
CHAIN_LENGTH, NO_DURATION = 1, -1  # as Flink fills what version 2 has, and nothing reads
LEAST_OPERATOR_BYTES = 24
LEAST_CHANNEL_BYTES = 22  # merged, without a stream


@dataclass(frozen=True, slots=True)
class MasterState:
    """State of a master hook (`MasterTriggerRestoreHook`): opaque bytes."""

    name: str
    version: int
    data: bytes


@dataclass(slots=True)
class SubtaskState:
    """The state of one subtask of one operator: at most one handle of each kind."""

    managed_operator: OperatorHandle | None = None
    raw_operator: OperatorHandle | None = None
    managed_keyed: KeyedHandle | None = None
    raw_keyed: KeyedHandle | None = None
    inputs: tuple[ChannelHandle, ...] = ()
    outputs: tuple[ChannelHandle, ...] = ()
    finished: bool = False


@dataclass(slots=True)
class OperatorMetadata:
    """One operator's part of the file.

    Attributes:
        operator_id: 16 bytes, as hex; the hash of the uid, or of the topology.
        parallelism: The number of subtasks, with or without state.
        max_parallelism: The number of key groups.
        name: Its name, from version 5 on; otherwise empty.
        uid: Its uid, from version 5 on; otherwise empty.
        coordinator: The source coordinator's state, opaque.
        subtasks: By index. None if the operator was fully finished.
    """

    operator_id: str
    parallelism: int
    max_parallelism: int
    name: str = ""
    uid: str = ""
    coordinator: InlineHandle | None = None
    subtasks: dict[int, SubtaskState] | None = field(default_factory=dict)

    def with_subtasks(self, change: Callable[[SubtaskState], SubtaskState]) -> OperatorMetadata:
        """Return the operator with each of its subtasks changed."""
        if self.subtasks is None:
            return self
        subtasks = {index: change(subtask) for index, subtask in self.subtasks.items()}
        return replace(self, subtasks=subtasks)


@dataclass(slots=True)
class CheckpointMetadata:
    """The whole file; `properties` is the Java stream of version 4 and later, as bytes."""

    version: int
    checkpoint_id: int
    operators: list[OperatorMetadata]
    masters: list[MasterState] = field(default_factory=list)
    properties: bytes = b""


def kind_and_format(metadata: CheckpointMetadata) -> tuple[str, str]:
    """Return kind and format, from the properties of version 4 and later, or from the handles."""
    kind, format_name = describe_properties(metadata.properties)
    if kind:
        return kind, format_name
    handles = [
        subtask.managed_keyed
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
    ]
    unified = any(
        isinstance(handle, KeyGroupsHandle) and handle.kind is KeyGroupsKind.SAVEPOINT
        for handle in handles
    )
    return ("savepoint", "canonical") if unified else ("", "")


def subtask_bytes(subtask: SubtaskState) -> int:
    """Return the size of a subtask's state by its handles (`OperatorSubtaskState.getStateSize`)."""
    operators = (subtask.managed_operator, subtask.raw_operator)
    streams = [operator.stream for operator in operators if operator is not None]
    keyed = [keyed for keyed in (subtask.managed_keyed, subtask.raw_keyed) if keyed is not None]
    size = sum(stream.size for stream in streams if stream is not None)
    return size + sum(map(keyed_bytes, keyed)) + in_flight_bytes(subtask)


def raw_bytes(subtask: SubtaskState) -> int:
    """Return the size of a subtask's raw state, keyed and not."""
    operator, keyed = subtask.raw_operator, subtask.raw_keyed
    size = operator.stream.size if operator is not None and operator.stream is not None else 0
    return size + (keyed_bytes(keyed) if keyed is not None else 0)


def in_flight_bytes(subtask: SubtaskState) -> int:
    """Return the size of a subtask's in-flight buffers: only its own part of shared files."""
    return sum(channel.size for channel in (*subtask.inputs, *subtask.outputs))


def major_version(metadata_version: int) -> int:
    """Return the major version of the Flink that writes `_metadata` of a version: 1 or 2."""
    return 1 if metadata_version < FIRST_WITH_NAMES else 2


def read_metadata(data: bytes, source: str = "_metadata") -> CheckpointMetadata:
    """Parse a `_metadata` file.

    Args:
        data: The file's bytes.
        source: The file's path, for messages.

    Raises:
        NotASnapshotError: The file does not begin with Flink's magic number.
        UnsupportedFormatError: The version is unknown, or the file holds an unknown handle.
        CorruptSnapshotError: Anything else does not fit.
    """
    wire = DataInput(data, source, budget=Budget(len(data)))
    if wire.remaining < 8 or wire.read_int() != MAGIC:
        raise NotASnapshotError(
            "this is no Flink `_metadata` file: it does not begin with 49 60 67 2D",
            place=source,
            remedy="give the directory of a savepoint or of a retained checkpoint (chk-N)",
        )
    version = wire.read_int()
    if version not in METADATA_VERSIONS:
        raise UnsupportedFormatError(
            f"`_metadata` version {version}; versions 2 to 6 (Flink 1.3 to 2.3) are read",
            place=wire.place,
            remedy="restore it in a Flink that knows it, and take a new savepoint there",
        )
    checkpoint_id = wire.read_long()
    if checkpoint_id < 0:
        raise wire.fault(f"checkpoint id {checkpoint_id}")
    masters = [_read_master(wire) for _ in range(wire.read_count("master states", 8))]
    count = wire.read_length("operators", LEAST_OPERATOR_BYTES)
    OPERATORS.check(count, wire)
    operators = [_read_operator(wire, version) for _ in range(count)]
    properties = b""
    if version >= FIRST_WITH_PROPERTIES:
        properties = wire.read_rest()
    elif wire.remaining:
        raise wire.fault(f"{wire.remaining} bytes behind the last operator")
    return CheckpointMetadata(version, checkpoint_id, operators, masters, properties)


def write_metadata(metadata: CheckpointMetadata) -> bytes:
    """Return the file's bytes.

    Raises:
        UnsupportedFormatError: Version 2, or content that the version can't hold.
    """
    version = metadata.version
    if version not in METADATA_VERSIONS or version < FIRST_WITH_COORDINATOR:
        raise UnsupportedFormatError(
            f"`_metadata` version {version} can't be written",
            remedy="choose 3 (any Flink since 1.11), 4 (1.16+), 5 (2.0+) or 6 (2.1+)",
        )
    return write_as_read(metadata)


def write_as_read(metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of a file that was read and has other handles now, in its own version.

    Raises:
        UnsupportedFormatError: Content that the version can't hold.
    """
    version = metadata.version
    out = DataOutput()
    out.write_int(MAGIC)
    out.write_int(version)
    out.write_long(metadata.checkpoint_id)
    out.write_int(len(metadata.masters))
    for master in metadata.masters:
        _write_master(master, out)
    out.write_int(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator(operator, out, version)
    if version >= FIRST_WITH_PROPERTIES:
        out.write_bytes(metadata.properties)
    return out.to_bytes()


# --------------------------------------------------------------------------- reading


def _read_master(wire: DataInput) -> MasterState:
    if wire.read_int() != MASTER_STATE_MAGIC:
        raise wire.fault("a master state without its magic number")
    length = wire.read_length("bytes of master state")
    base = wire.base + wire.position
    inner = DataInput(wire.read_bytes(length), wire.source, base)
    version, name = inner.read_int(), inner.read_utf()
    data = inner.read_bytes(inner.read_length("bytes of master state"))
    if inner.remaining:
        raise inner.fault(f"{inner.remaining} bytes behind master state {name!r}")
    return MasterState(name, version, data)


def _read_operator(wire: DataInput, version: int) -> OperatorMetadata:
    name = wire.read_utf() if version >= FIRST_WITH_NAMES else ""
    uid = wire.read_utf() if version >= FIRST_WITH_NAMES else ""
    operator = OperatorMetadata(
        wire.read_bytes(16).hex(), wire.read_int(), wire.read_int(), name, uid
    )
    if operator.parallelism < 1 or operator.max_parallelism < 1:
        raise wire.fault(
            f"operator {operator.operator_id} with parallelism {operator.parallelism}"
            f" and max parallelism {operator.max_parallelism}"
        )
    wire.spend(SUBTASKS, min(operator.parallelism, KEY_GROUPS.most))
    if version >= FIRST_WITH_COORDINATOR:
        coordinator = read_stream_handle(wire)
        if coordinator is not None and not isinstance(coordinator, InlineHandle):
            raise wire.fault("coordinator state that is not inlined")
        operator.coordinator = coordinator
    else:
        wire.read_int()  # the chain length, before Flink 1.3
    count = wire.read_int()
    if count < 0 and version >= FIRST_WITH_COORDINATOR:
        operator.subtasks = None
        return operator
    if count < 0 or count * 4 > wire.remaining:
        raise wire.fault(f"{count} subtask states declared, {wire.remaining} bytes left")
    subtasks: dict[int, SubtaskState] = {}
    for _ in range(count):
        place = wire.place
        index, subtask = _read_subtask(wire, version, operator)
        if subtasks.setdefault(index, subtask) is not subtask:
            raise CorruptSnapshotError(
                f"subtask {index} of operator {operator.operator_id} a second time", place=place
            )
    operator.subtasks = subtasks
    return operator


def _read_subtask(
    wire: DataInput, version: int, operator: OperatorMetadata
) -> tuple[int, SubtaskState]:
    index = wire.read_int()
    finished = index < 0
    if finished:
        index = -index - 1
    if index >= operator.parallelism or (finished and version < FIRST_WITH_COORDINATOR):
        raise wire.fault(f"subtask {index} of an operator with {operator.parallelism}")
    if finished:
        return index, SubtaskState(finished=True)
    if version < FIRST_WITH_COORDINATOR:
        wire.read_long()  # a duration, unused
        if wire.read_int() > 0:
            raise UnsupportedFormatError(
                "state of the `Checkpointed` interface of Flink 1.1",
                place=wire.place,
                remedy="no Flink since 1.4 reads it either",
            )
    subtask = SubtaskState()
    if wire.read_int():
        subtask.managed_operator = read_operator_handle(wire)
    if wire.read_int():
        subtask.raw_operator = read_operator_handle(wire)
    subtask.managed_keyed = read_keyed_handle(wire)
    subtask.raw_keyed = read_keyed_handle(wire)
    if version >= FIRST_WITH_COORDINATOR:
        typed = version >= FIRST_WITH_TYPED_CHANNELS
        subtask.inputs = _read_channels(wire, typed, 1)
        subtask.outputs = _read_channels(wire, typed, 2)
    return index, subtask


def _read_channels(wire: DataInput, typed: bool, kind: int) -> tuple[ChannelHandle, ...]:
    count = wire.read_count("channel states", LEAST_CHANNEL_BYTES)
    return tuple(read_channel_handle(wire, typed, kind) for _ in range(count))


# --------------------------------------------------------------------------- writing


def _write_master(master: MasterState, out: DataOutput) -> None:
    inner = DataOutput()
    inner.write_int(master.version)
    inner.write_utf(master.name)
    inner.write_int(len(master.data))
    inner.write_bytes(master.data)
    out.write_int(MASTER_STATE_MAGIC)
    out.write_int(len(inner))
    out.write_bytes(inner.to_bytes())


def _write_operator(operator: OperatorMetadata, out: DataOutput, version: int) -> None:
    if version >= FIRST_WITH_NAMES:
        out.write_utf(operator.name)
        out.write_utf(operator.uid)
    out.write_bytes(bytes.fromhex(operator.operator_id))
    out.write_int(operator.parallelism)
    out.write_int(operator.max_parallelism)
    if version >= FIRST_WITH_COORDINATOR:
        write_stream_handle(operator.coordinator, out)
    else:
        out.write_int(CHAIN_LENGTH)
    if operator.subtasks is None:
        if operator.coordinator is not None:
            raise CorruptSnapshotError(
                "a fully finished operator can't have coordinator state",
                place=f"operator {operator.operator_id}",
            )
        out.write_int(-1)
        return
    out.write_int(len(operator.subtasks))
    for index, subtask in operator.subtasks.items():
        out.write_int(-index - 1 if subtask.finished else index)
        if not subtask.finished:
            _write_subtask(subtask, out, version)


def _write_subtask(subtask: SubtaskState, out: DataOutput, version: int) -> None:
    if version < FIRST_WITH_COORDINATOR:
        out.write_long(NO_DURATION)
        out.write_int(0)  # no state of the `Checkpointed` interface
    for handle in (subtask.managed_operator, subtask.raw_operator):
        out.write_int(0 if handle is None else 1)
        if handle is not None:
            write_operator_handle(handle, out)
    write_keyed_handle(subtask.managed_keyed, out)
    write_keyed_handle(subtask.raw_keyed, out)
    if version < FIRST_WITH_COORDINATOR:
        return
    typed = version >= FIRST_WITH_TYPED_CHANNELS
    for handles in (subtask.inputs, subtask.outputs):
        channels = handles if typed else [part for handle in handles for part in unmerged(handle)]
        out.write_int(len(channels))
        for channel in channels:
            write_channel_handle(channel, out, typed)
