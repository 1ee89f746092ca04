"""Compatibility of POJOs, by the rules of Flink's `PojoSerializerSnapshot`.

- Another class is another type. So is a class that lost a subclass or a subclass's serializer.
- A field that both have is judged by its own serializers: `int` may become `Integer`, whose
  serializer is the same, and nothing else: Flink does not promote `int` to `long`.
- New or removed fields need a migration: a new field has Java's initial value, a removed one is
dropped.
- Registered subclasses keep their tags in the bytes, so unless the new order only appends to the
old one it is taken over from the old serializer; so are subclasses written by name.

Flink sees the new job's classes; here only the two snapshots are known. Fields of the same name
belong together if Java finds the new one from the class that declared the old one: in that class
itself, or in a superclass.

Source: `org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Reason,
    Verdict,
    as_is,
    incompatible,
    migrate,
    unknown,
    worst_of,
)
from statelake.state_core.serializers.opaque.optional_map import FramedSnapshot, OptionalEntry

NOTHING = "nothing"
FIELD_GONE = "the field is gone, and its values are dropped"
Results: TypeAlias = "dict[str, Compatibility]"


@dataclass(frozen=True, slots=True)
class Pojo:
    """The content of a POJO's serializer snapshot.

    Attributes:
        java_class: The POJO's class.
        fields: The fields in the order in which they are written. A key names the declaring class.
        registered: Registered subclasses, by tag. Keys are empty.
        non_registered: Subclasses that are written by name. Keys are empty.
    """

    java_class: str
    fields: tuple[OptionalEntry, ...] = ()
    registered: tuple[OptionalEntry, ...] = ()
    non_registered: tuple[OptionalEntry, ...] = ()


def resolve_pojo(new: Pojo, old: Pojo) -> tuple[Compatibility, Results, Results]:
    """Return the verdict on a POJO, and those on each field and each subclass of both."""
    if new.java_class != old.java_class:
        rule = "the class is another one, and Flink knows a POJO by its class"
        return incompatible(old.java_class, new.java_class, rule), {}, {}
    rule = "the subclass, or its serializer, is gone"
    gone = [
        incompatible(_type(field), NOTHING, rule).under(field.name)
        for field in (*old.registered, *old.non_registered)
        if not field.present
    ]
    fields = _resolve_fields(new, old)
    registered = _resolve_registered(new, old)
    results = [*gone, *fields.values(), *registered.values(), *_resolve_order(new, old)]
    return worst_of(results), fields, registered


def reconfigure(new: Pojo, old: Pojo, fields: Results, registered: Results) -> Pojo:
    """Return the new POJO with the tags and the subclasses of the old one.

    Args:
        new: The POJO that the job declares.
        old: The POJO of its state.
        fields: The verdict of `resolve_pojo` on each field.
        registered: Its verdict on each registered subclass.
    """
    added = {subclass.name: subclass for subclass in new.registered}
    kept = [
        _reconfigured(added.pop(subclass.name, subclass), registered) for subclass in old.registered
    ]
    return replace(
        new,
        fields=tuple(_reconfigured(field, fields) for field in new.fields),
        registered=(*kept, *added.values()),
        non_registered=tuple(_reconfigured(subclass, {}) for subclass in old.non_registered),
    )


def _reconfigured(entry: OptionalEntry, results: Results) -> OptionalEntry:
    result = results.get(entry.name)
    if result is not None and result.reconfigured is not None:
        return replace(entry, value=FramedSnapshot(result.reconfigured))
    return replace(entry, value=None if entry.value is None else entry.value.renewed())


# ------------------------------------------------------------------------------------- fields


def _resolve_fields(new: Pojo, old: Pojo) -> Results:
    """Return a verdict for each field of either POJO."""
    before = {field.name: field for field in old.fields}
    results: Results = {}
    for field in old.fields:
        results[field.name] = _resolve_field(field, new).under(field.name)
    for field in new.fields:
        match = before.get(field.name)
        if match is None or (field.present and not match.present):
            result = migrate(NOTHING, _type(field), "the field is new, and begins as Java has it")
            results[field.name] = result.under(field.name)
    names = [field.name for field in new.fields if field.name in before]
    if names != [field.name for field in old.fields if field.name in set(names)]:
        # Flink sorts fields and does not check, so that this does not happen
        rule = "the fields are written in another order"
        results[""] = migrate(old.java_class, new.java_class, rule)
    return results


def _resolve_field(old: OptionalEntry, new: Pojo) -> Compatibility:
    """Return the verdict on one field of the old POJO."""
    match = next((field for field in new.fields if field.name == old.name), None)
    if match is None or match.value is None or old.value is None or match.present != old.present:
        return migrate(_type(old), NOTHING, FIELD_GONE)
    if match.present:
        reached = _found_from(declared_in(old), declared_in(match), new.java_class)
        if reached is None:
            rule = "only the classes say whether the field moved up, or is another one of its name"
            return unknown(declared_in(old), declared_in(match), rule)
        if not reached:
            rule = "the field moved down to a subclass, where Flink does not find its old values"
            return migrate(declared_in(old), declared_in(match), rule)
    return match.value.resolve_schema_compatibility(old.value)


def _found_from(before: str, after: str, java_class: str) -> bool | None:
    """Return whether Java finds a field of class `after` from `before` upwards; None if unknown."""
    if before in (after, java_class):
        return True
    return False if after == java_class else None


def declared_in(entry: OptionalEntry) -> str:
    """Return the class that declares a field."""
    return DataInput(entry.key or b"\0\0", "the key of a field").read_utf()


def _type(entry: OptionalEntry) -> str:
    return NOTHING if entry.value is None else entry.value.type_name


# --------------------------------------------------------------------------------- subclasses


def _resolve_registered(new: Pojo, old: Pojo) -> Results:
    """Return a verdict for each subclass that both register."""
    before = {subclass.name: subclass.value for subclass in old.registered}
    results: Results = {}
    for subclass in new.registered:
        was = before.get(subclass.name)
        if was is not None and subclass.value is not None:
            results[subclass.name] = subclass.value.resolve_schema_compatibility(was).under(
                subclass.name
            )
    return results


def _resolve_order(new: Pojo, old: Pojo) -> list[Compatibility]:
    """Return the parts of the old one's subclasses that the new serializer takes over."""
    results = []
    before, after = [[subclass.name for subclass in pojo.registered] for pojo in (old, new)]
    if after[: len(before)] != before:
        rule = "subclasses keep the tags that they were written with"
        lost = [name for name in before if name not in after]
        if lost:
            rule += f"; {', '.join(lost)} must still be there as a class"
        results.append(_taken_over(", ".join(before), ", ".join(after) or NOTHING, rule))
    if old.non_registered:
        names = ", ".join(subclass.name for subclass in old.non_registered)
        rule = "the serializers of subclasses written by name are taken over"
        new_names = {subclass.name for subclass in (*new.registered, *new.non_registered)}
        lost = [subclass.name for subclass in old.non_registered if subclass.name not in new_names]
        if lost:
            rule += f"; {', '.join(lost)} must still be there as a class"
        results.append(_taken_over(names, names, rule))
    return results or [as_is()]


def _taken_over(old: str, new: str, rule: str) -> Compatibility:
    reasons = (Reason("", old, new, rule),)
    return Compatibility(Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER, reasons)
