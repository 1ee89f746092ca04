"""What may follow a POJO, where the vectors of Flink have no example."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, IntSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializerSnapshot
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Compatibility, Verdict

LONG, INT, TEXT = (
    SNAPSHOTS[LongSerializer](),
    SNAPSHOTS[IntSerializer](),
    StringSerializerSnapshot(),
)
SUB = PojoSerializerSnapshot.of("acme.S", {"id": LONG, "x": INT})


def pojo(fields: dict[str, TypeSerializerSnapshot], **parts: object) -> PojoSerializerSnapshot:
    """A POJO `acme.P`."""
    return PojoSerializerSnapshot.of("acme.P", fields, **parts)  # type: ignore[arg-type]


def resolve(old: TypeSerializerSnapshot, new: TypeSerializerSnapshot) -> Compatibility:
    """What the new one says of the old one."""
    return new.resolve_schema_compatibility(old)


def test_every_cause_is_named_with_its_path() -> None:
    """A removed, an added and a changed field are three reasons, the worst first."""
    old = pojo({"a": LONG, "b": INT, "p": SUB})
    new = pojo({"b": LONG, "c": TEXT, "p": PojoSerializerSnapshot.of("acme.S", {"x": LONG})})
    result = resolve(old, new)
    assert result.verdict is Verdict.INCOMPATIBLE
    by_path = {reason.path: (reason.old, reason.new) for reason in result.reasons}
    assert by_path == {
        "b": ("Integer", "Long"),
        "p.x": ("Integer", "Long"),
        "p.id": ("Long", "nothing"),
        "a": ("Long", "nothing"),
        "c": ("nothing", "String"),
    }
    assert [reason.path for reason in result.reasons][:2] == ["b", "p.x"]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("acme.P", "acme.Parent", Verdict.COMPATIBLE_AS_IS),
        ("acme.Parent", "acme.P", Verdict.COMPATIBLE_AFTER_MIGRATION),
        ("acme.Parent", "acme.Parent", Verdict.COMPATIBLE_AS_IS),
        ("acme.Parent", "acme.Grandparent", Verdict.UNKNOWN),
    ],
)
def test_where_a_field_is_declared(before: str, after: str, verdict: Verdict) -> None:
    """Java looks for a field from where it was declared, upwards; between parents nobody knows."""
    old = pojo({"id": LONG}, declared_in={"id": before})
    new = pojo({"id": LONG}, declared_in={"id": after})
    assert resolve(old, new).verdict is verdict


def test_another_order_is_no_as_is() -> None:
    """Flink does not look at it, since it always sorts; bytes would be misread."""
    old, new = pojo({"a": LONG, "b": LONG}), pojo({"a": LONG, "b": LONG})
    old.pojo = replace(old.pojo, fields=old.pojo.fields[::-1])
    assert resolve(old, new).verdict is Verdict.COMPATIBLE_AFTER_MIGRATION


def test_a_subclass_whose_serializer_is_gone() -> None:
    """Neither registered nor by name can it be taken over."""
    new = pojo({"id": LONG}, registered={"acme.S": SUB})
    for part in ("registered", "non_registered"):
        old = pojo({"id": LONG}, **{part: {"acme.S": SUB}})
        entries = tuple(replace(entry, value=None) for entry in getattr(old.pojo, part))
        old.pojo = replace(old.pojo, **{part: entries})
        result = resolve(old, new)
        assert result.verdict is Verdict.INCOMPATIBLE
        assert result.reasons[0].path == "acme.S"


def test_missing_fields_of_both_are_the_same() -> None:
    """A savepoint with a field that is gone may follow itself."""
    one = pojo({"a": LONG, "b": TEXT})
    gone = replace(one.pojo.fields[0], name="missing-field-at-0", key=None)
    one.pojo = replace(one.pojo, fields=(gone, one.pojo.fields[1]))
    assert resolve(one, one).verdict is Verdict.COMPATIBLE_AS_IS


def test_a_pojo_follows_nothing_else() -> None:
    """Nor does anything else follow a POJO."""
    assert resolve(LONG, pojo({"id": LONG})).verdict is Verdict.INCOMPATIBLE
    assert resolve(pojo({"id": LONG}), LONG).verdict is Verdict.INCOMPATIBLE


def test_reconfigured_inside_a_field() -> None:
    """A nested POJO keeps its old tags, and the outer one is written with it."""
    first, second = (dict.fromkeys(names, SUB) for names in (["acme.S", "acme.T"], ["acme.T"]))
    old = pojo({"p": pojo({"id": LONG}, registered=first)})
    new = pojo({"p": pojo({"id": LONG}, registered=second)})
    result = resolve(old, new)
    assert result.verdict is Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER
    inner = result.reconfigured.pojo.fields[0].value.snapshot
    assert [entry.name for entry in inner.pojo.registered] == ["acme.S", "acme.T"]
    assert resolve(old, result.reconfigured).verdict is Verdict.COMPATIBLE_AS_IS
