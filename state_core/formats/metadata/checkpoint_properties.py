"""The checkpoint properties at the end of `_metadata` (version 4 and later), as data.

Flink writes a Java object stream there and deserializes it unfiltered when it restores. Here the
stream is parsed by its grammar and never instantiated; new streams are written by the same grammar,
with the class descriptions of Flink 1.20 to 2.3 (they are the same).

Source: `org.apache.flink.runtime.checkpoint.CheckpointProperties`, `SavepointType`,
`CheckpointType`.
"""

from __future__ import annotations

from statelake.state_core.bounds import Budget
from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.java_stream import (
    JavaClass,
    JavaEnum,
    JavaField,
    JavaObject,
    JavaValue,
    read_java_stream,
    write_java_stream,
)
from statelake.state_core.files.wire import DataInput

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
