"""Schema compatibility: whether state written by one serializer can be used by another.

The **new** snapshot gives a verdict on the old one: one of Flink's four results, or `UNKNOWN` if
the bytes are not enough to decide. A verdict always has reasons.

==============================================  ==============================================
`COMPATIBLE_AS_IS`                              same schema, bytes are used as they are
`COMPATIBLE_WITH_RECONFIGURED_SERIALIZER`       the same, once the new serializer has taken over
                                                the old one's configuration
`COMPATIBLE_AFTER_MIGRATION`                    read with the old, written with the new
`UNKNOWN`                                       only the Java code could decide
`INCOMPATIBLE`                                  not possible
==============================================  ==============================================

Of nested serializers the worst verdict counts, in the order of this table: one field that needs
migration is enough to migrate the complete value.

Source: `TypeSerializerSchemaCompatibility`, `CompositeTypeSerializerUtil` in
`org.apache.flink.api.common.typeutils`; the key's rule is that of the state backends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any


class Verdict(IntEnum):
    """The verdicts, from best to worst."""

    COMPATIBLE_AS_IS = 0
    COMPATIBLE_WITH_RECONFIGURED_SERIALIZER = 1
    COMPATIBLE_AFTER_MIGRATION = 2
    UNKNOWN = 3
    INCOMPATIBLE = 4

    @property
    def text(self) -> str:
        """The name in reports: `compatible_as_is`."""
        return self.name.lower()


@dataclass(frozen=True)
class Reason:
    """One cause of a verdict.

    Attributes:
        path: The path in the type: `value.address.street`; empty for the type itself.
        old: The old type or value.
        new: The new type or value.
        rule: The rule that decides, as a sentence without a period.
    """

    path: str
    old: str
    new: str
    rule: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        change = self.old if self.old == self.new else f"{self.old} → {self.new}"
        return f"{where}{change}: {self.rule}"


@dataclass(frozen=True)
class Compatibility:
    """A verdict and its causes.

    Attributes:
        verdict: The result.
        reasons: The reasons why it is not `COMPATIBLE_AS_IS`; empty if it is.
        reconfigured: For `COMPATIBLE_WITH_RECONFIGURED_SERIALIZER`, the new serializer's snapshot
            to write from now on.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    reconfigured: Any = None

    @property
    def usable(self) -> bool:
        """Return whether Flink would use the state, migrating it if necessary."""
        return self.verdict <= Verdict.COMPATIBLE_AFTER_MIGRATION

    def under(self, field: str) -> Compatibility:
        """Return the same verdict with `field` in front of the paths of its reasons."""
        reasons = tuple(
            replace(reason, path=f"{field}.{reason.path}" if reason.path else field)
            for reason in self.reasons
        )
        return replace(self, reasons=reasons)


_AS_IS = Compatibility(Verdict.COMPATIBLE_AS_IS)


def as_is() -> Compatibility:
    """Return the verdict on the same schema."""
    return _AS_IS


def reconfigured(snapshot: Any, old: str, new: str, rule: str) -> Compatibility:
    """Return the verdict on the same schema if the new serializer becomes that of `snapshot`."""
    reasons = (Reason("", old, new, rule),)
    return Compatibility(Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER, reasons, snapshot)


def migrate(old: str, new: str, rule: str) -> Compatibility:
    """Return the verdict on another schema to which values can be migrated."""
    return Compatibility(Verdict.COMPATIBLE_AFTER_MIGRATION, (Reason("", old, new, rule),))


def unknown(old: str, new: str, settled_by: str) -> Compatibility:
    """Return the verdict if bytes are not enough; `settled_by` names what would decide."""
    return Compatibility(Verdict.UNKNOWN, (Reason("", old, new, settled_by),))


def incompatible(old: str, new: str, rule: str) -> Compatibility:
    """Return the verdict on another schema to which values can't be migrated."""
    return Compatibility(Verdict.INCOMPATIBLE, (Reason("", old, new, rule),))


def worst_of(results: Iterable[Compatibility]) -> Compatibility:
    """Return the worst verdict, with the reasons of all that are not `COMPATIBLE_AS_IS`.

    Reasons come worst first, so that the first line of a report is the most important one.
    Reconfigured snapshots are not combined: a composite snapshot builds its own from its nested
    ones.
    """
    ordered = sorted(results, key=lambda result: -result.verdict)
    if not ordered or ordered[0].verdict is Verdict.COMPATIBLE_AS_IS:
        return _AS_IS
    reasons = tuple(reason for result in ordered for reason in result.reasons)
    return Compatibility(ordered[0].verdict, reasons)


def without_migration(result: Compatibility, what: str) -> Compatibility:
    """Return the verdict on a part that can't be migrated: a key, namespace or user key.

    Flink looks entries up by these bytes, so they must not change.
    """
    if result.verdict is not Verdict.COMPATIBLE_AFTER_MIGRATION:
        return result
    rule = f"a {what} never evolves, since entries are found by its bytes"
    reasons = tuple(replace(reason, rule=rule) for reason in result.reasons)
    return Compatibility(Verdict.INCOMPATIBLE, reasons)
