"""The savepoints under `golden/evolving`, and what a job's types become in its new version.

Their classes are those of `tests/integration/flink/java/evolving`, once `old` and once `new`.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.snapshot import KeyedState, StateKind
from statelake.state_core.serializers.composite.pojo import SubclassValue
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = [
    "BACKENDS",
    "FOLDER",
    "GENERIC",
    "KEPT_BY_NAME",
    "LETTER",
    "MIGRATED",
    "NEW_TYPES",
    "REFUSED_TYPES",
    "STATES",
    "UNKNOWN",
    "VERDICTS",
    "evolving_savepoint",
    "lines_of",
    "migrated",
    "old_lines",
    "plain",
]

FOLDER = GOLDEN / "evolving"
BACKENDS = ("hashmap", "rocksdb")
GENERIC = "generic"
LETTER = "Shop$Letter"
UNKNOWN = "of a class that the snapshot says nothing of"
STATES = (
    "order", "orders", "ordered", "contact", "labels", "tiers", "event", "events", "happened",
)  # fmt: skip
# states whose values the heap backend can write with subclasses that its snapshot does not know
KEPT_BY_NAME = ("order", "orders", "ordered", "contact")
VERDICTS: dict[str, dict[str, str]] = json.loads((FOLDER / "verdicts.json").read_text("utf-8"))


def _lines(name: str) -> list[dict[str, Any]]:
    """Flink's lines, without those of keys that hold nothing."""
    read = [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]
    return [line for line in read if line["event"] is not None]


MIGRATED = _lines("migrated.jsonl")


def old_lines() -> list[dict[str, Any]]:
    """What Flink printed of the old savepoints, restored with the old classes."""
    return _lines("old.jsonl")


def evolving_savepoint(name: str, to: Path) -> Path:
    """One of the savepoints, unpacked: `old-hashmap`, `operator-new`, or another's name."""
    to.mkdir(parents=True)
    packed = (FOLDER / f"{name}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


def lines_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What a snapshot of the job holds, in the shape of Flink's lines."""
    operator = snapshot.operator("evolving")
    found: dict[str, dict[str, Any]] = {}
    for state in operator.keyed_states:
        if state.kind is StateKind.TIMERS:
            continue
        for row in state.to_arrow().to_pylist():
            line = found.setdefault(row["key"], {"key": row["key"]})
            value = _value(state, operator.keyed_files[0].key_serializer, row)
            if state.kind is StateKind.MAP:
                line.setdefault(state.name, {})[str(row["user_key"])] = value
            else:
                line[state.name] = value
    empty: dict[str, Any] = {"orders": [], "labels": [], "events": []}
    empty |= {"ordered": {}, "tiers": {}, "happened": {}, "contact": None}
    return [plain({**empty, **line}) for line in found.values()]


def _value(state: KeyedState, key_serializer: bytes, row: dict[str, Any]) -> Any:
    """A row's value, of its exact bytes where it has them: only these hold a subclass's fields."""
    data = row["raw_value"]
    if data is None:
        return row["value"]
    stored = parse_keyed_state(state.meta_info, key_serializer)[1].stored_value()
    assert stored is not None
    if state.kind is StateKind.MAP:
        if data[0]:
            return None
        data = data[1:]
    source = DataInput(data, "raw_value")
    try:
        value = stored.read(source)
    except UnsupportedFormatError:
        return UNKNOWN
    assert source.position == len(data)
    return value


def plain(value: Any) -> Any:
    """A value as lines are compared: subclasses say which, and an empty map is an empty list."""
    if isinstance(value, SubclassValue):
        return {**plain(value.value), "class": value.java_class}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()} or []
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return {str(key): plain(item) for key, item in value}
    return [plain(item) for item in value] if isinstance(value, list) else value


def migrated(
    lake: Catalog, job: str, snapshot: str, types: dict[str, Any], engine: LocalEngine
) -> str:
    """Migrate states one after another, each in a snapshot of its own; the last one's id."""
    for state, spec in types.items():
        change = ValueChange("evolving", state, parse_type(spec), {}, spec)
        made = f"{snapshot}-{state}"
        snapshot = migrate_snapshot(
            ChildSnapshot(lake, job, snapshot, made, engine=engine), change
        ).record.snapshot_id
    return snapshot


# ------------------------------------------------------------------------------- the new types


def _contact(address: dict[str, Any], *, evolved: bool) -> dict[str, Any]:
    """A contact and its registered subclasses, in the order of their registration."""
    own = {"name": "String", "since": "int"}
    email = {**own, "email": "String", "address": address}
    phone: dict[str, Any] = {**own, "number": "String"}
    if evolved:
        email["seen"] = "long"
    else:
        phone["extension"] = "Integer"
    registered = {
        "Shop$Phone": {"pojo": "Shop$Phone", "fields": phone},
        "Shop$Email": {"pojo": "Shop$Email", "fields": email},
    }
    names = list(registered) if evolved else sorted(registered)
    return {
        "pojo": "Shop$Contact",
        "fields": own,
        "registered": {name: registered[name] for name in names},
        "non_registered": {
            LETTER: {"pojo": LETTER, "fields": {**own, "box": "String", "weight": "long"}}
        },
    }


def _order(address: dict[str, Any], tier: dict[str, Any], *, evolved: bool) -> dict[str, Any]:
    contact = _contact(address, evolved=evolved)
    fields = {
        "id": "long", "price": "Double", "tier": tier, "address": address, "contact": contact,
        "past": {"nullable": {"list": {"nullable": address}}},
        "tiers": {"nullable": {"map": ["Nullable<String>", tier]}},
    }  # fmt: skip
    more = {"quantity": "int", "rating": "Integer", "note": "String"}
    return {"pojo": "Shop$Order", "fields": fields | (more if evolved else {"name": "String"})}


def _event(version: str) -> dict[str, Any]:
    place: list[dict[str, Any]] = [
        {"name": "street", "type": "string"},
        {"name": "zip", "type": "int"},
    ]
    symbols = ["BRONZE", "SILVER", "GOLD"]
    head: list[dict[str, Any]] = [
        {"name": "id", "type": "int"},
        {"name": "count", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
    ]
    if version == "new":
        symbols = ["GOLD", "PLATINUM", "BRONZE", "SILVER"]
        country = {"name": "country", "type": ["string", "null"], "default": "nowhere"}
        place = [*reversed(place), country]
        head = [
            {"name": "count", "type": "long", "default": 7},
            {"name": "note", "type": ["null", "string"]},
            {"name": "id", "type": "long"},
        ]
    where = {"type": "record", "name": "Place", "fields": place}
    fields = [
        *head,
        {"name": "tier", "type": {"type": "enum", "name": "Tier", "symbols": symbols}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "place", "type": ["null", where]},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ]
    return {"type": "record", "name": "Event", "fields": fields}


def _types(version: str) -> dict[str, Any]:
    """The type of each state, as a person would write it for `statelake migrate`."""
    evolved = version == "new"
    fields = {"street": "String", "zip": "int" if evolved else "long"}
    more = {"country": "String", "floor": "Integer", "checked": "boolean"}
    address = {
        "pojo": "Shop$Address",
        "fields": fields | (more if evolved else {"city": "String"}),
    }
    constants = (
        ["GOLD", "PLATINUM", "BRONZE", "SILVER"] if evolved else ["BRONZE", "SILVER", "GOLD"]
    )
    tier = {"enum": "Shop$Tier", "constants": constants}
    order = _order(address, tier, evolved=evolved)
    text = "String" if evolved else "int"
    label = {"pojo": "Shop$Label", "fields": {"tier": tier, "text": text}}
    event = {"avro": _event(version), "class": "Event"}
    types = dict.fromkeys(STATES[:3], order) | dict.fromkeys(STATES[6:], event)
    types |= {"contact": _contact(address, evolved=evolved), "labels": label, "tiers": tier}
    return types | {GENERIC: {"avro": _event(version)}}


NEW_TYPES = _types("new")
REFUSED_TYPES = _types("refused")
