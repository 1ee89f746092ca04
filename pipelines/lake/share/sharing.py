"""Plan how a snapshot is sampled and masked for others, state by state.

First everything is checked, and state that can't be sampled or masked is refused, or left out if
the user allows it. Then each batch of rows is sampled and masked by itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import yaml

from statelake.pipelines.lake.catalog.unmanaged_state import KEYED
from statelake.pipelines.lake.share.ciphers import Cipher
from statelake.pipelines.lake.share.mask_file import DROP, Mask, read_mask
from statelake.pipelines.lake.share.masking import ALL_COLUMNS, KEEP, MaskRule, masked
from statelake.pipelines.lake.share.parts import ColumnParts, settle
from statelake.pipelines.lake.share.sampling import Sample
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
)
from statelake.pipelines.lake.tables.table_rows import table_rows
from statelake.state_core.errors import (
    EncodeError,
    InexactError,
    NotFoundError,
    StateError,
    UnsupportedFormatError,
    did_you_mean,
)
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    NAMESPACE,
    RAW_KEY,
    RAW_VALUE,
    USER_KEY,
    VALUE,
    KeyedLayout,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.operator_state.operator_states import ElementRows, OperatorLayout
from statelake.state_core.formats.rewriting.value_migration import exact_values, null_value_fields
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.serializers.avro.serializer import AvroSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.sql.binary.slots import BinaryFormat
from statelake.state_core.serializers.sql.section_data import BinarySerializer
from statelake.state_core.serializers.sql.table_data import RawValueDataSerializer
from statelake.state_core.serializers.sql.table_variants import BitmapSerializer, VariantSerializer

Rows = TypeVar("Rows", StateRows, ElementRows)
TIMERS = "timers"
_BYTES_OF_OTHERS = (
    OpaqueSerializer, BinarySerializer, RawValueDataSerializer, BitmapSerializer, VariantSerializer,
)  # fmt: skip
_REMEDY = "leave it out with --leave-out-opaque"
_OR_SHOWN = ", or go by what the column shows: --inexact"


@dataclass(frozen=True)
class SharedForm:
    """The options of a sample and a mask.

    Attributes:
        sample: The sample of keys; None for all keys.
        mask: The mask; None to change no values.
        leave_out: Whether state that can't be sampled or masked is left out, and not refused.
        inexact: Whether values are masked by what columns show of those that they don't hold in
            full.
    """

    sample: Sample | None = None
    mask: Mask | None = None
    leave_out: bool = False
    inexact: bool = False

    def of(self, lake: str, record: SnapshotRecord, metadata: CheckpointMetadata) -> SharedSnapshot:
        """Return the shared form of a snapshot.

        Args:
            lake: The lake's location.
            record: The snapshot.
            metadata: Its carried `_metadata`.

        Raises:
            UnsupportedFormatError: The snapshot has state that can't be sampled or masked.
            EncodeError: The mask has no rule for a state, or an impossible one.
            NotFoundError: The mask names an operator or state that does not exist.
        """
        return _Planning(self, lake, record, metadata).planned()


def sharing_of(
    sample: float | None = None,
    seed: int = 0,
    mask: Mask | str | os.PathLike[str] | None = None,
    *,
    leave_out_opaque: bool = False,
    inexact: bool = False,
) -> SharedForm | None:
    """Return the sample and the mask of a snapshot; None if there is neither.

    Args:
        sample: The share of the keys, above 0 and up to 1; None for all.
        seed: The seed of the sample; another one samples other keys.
        mask: The rules of masking, or their YAML file.
        leave_out_opaque: Whether state that can't be sampled or masked is left out, and not
            refused.
        inexact: Whether to go by what columns show of values that they don't hold in full.

    Raises:
        EncodeError: The file is not valid.
    """
    if sample is None and mask is None:
        return None
    if mask is not None and not isinstance(mask, Mask):
        mask = read_mask(os.fspath(mask))
    chosen = None if sample is None else Sample(sample, seed)
    return SharedForm(chosen, mask, leave_out_opaque, inexact)


@dataclass(frozen=True)
class SampleAndMasks:
    """The sample and the masks of the rows of one operator; picklable.

    Attributes:
        sample: The sample of keys; None for all keys.
        keyed: By keyed state or queue of timers, the rules of its columns.
        others: By operator state, the rules of its columns.
        secret: The secret of the masking.
        leave_out: Whether exact bytes of masked values are left out, and not refused.
        inexact: As in `SharedForm`.
    """

    sample: Sample | None
    keyed: Mapping[str, tuple[MaskRule, ...]]
    others: Mapping[str, tuple[MaskRule, ...]]
    secret: bytes = field(repr=False)
    leave_out: bool
    inexact: bool = False

    @property
    def masks_keys(self) -> bool:
        """Return whether keys are masked, and so get other key groups."""
        return any(
            rule.column == KEY and rule.how != KEEP
            for rules in self.keyed.values()
            for rule in rules
        )

    def apply(self, rows: Rows) -> Rows:
        """Return the sampled and masked rows of one state, in their order.

        Raises:
            EncodeError: A value to mask has exact bytes beside its column.
        """
        if self.sample is not None and isinstance(rows, StateRows):
            rows = replace(rows, batch=rows.batch.filter(self.sample.has(rows)))
        rules = (self.keyed if isinstance(rows, StateRows) else self.others).get(rows.name, ())
        if not rules or not len(rows.batch):
            return rows
        of_values = any(rule.column == VALUE for rule in rules)
        of_keys = any(rule.column != VALUE for rule in rules)
        rows = self._typed(rows, of_keys=of_keys, of_values=of_values)
        names = rows.batch.schema.names
        columns = dict(zip(names, rows.batch.columns, strict=True))
        cipher = Cipher(self.secret)
        for rule in rules:
            if rule.how != KEEP:
                columns[rule.column] = masked(columns[rule.column], rule, cipher)
        for raw, touched in ((RAW_KEY, of_keys), (RAW_VALUE, of_values)):
            if touched and raw in columns:
                columns[raw] = pa.nulls(len(rows.batch), pa.binary())
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.batch.schema)
        shared = replace(rows, batch=batch)
        before = null_value_fields(rows)
        for path, null in null_value_fields(shared).items():
            if path not in before:
                raise replace(null, remedy="mask it by a constant").error()
        return shared

    def _typed(self, rows: Rows, *, of_keys: bool, of_values: bool) -> Rows:
        """Return rows that can be masked, without exact bytes beside typed values, if allowed.

        Rows whose key or value is only exact bytes are left out, too.
        """
        nothing = np.zeros(len(rows.batch), bool)
        keys, values = nothing, nothing
        if of_keys:
            keys = rows.batch.column(RAW_KEY).is_valid().to_numpy(zero_copy_only=False)
        if of_values and not self.inexact:
            values = exact_values(rows).to_numpy(zero_copy_only=False)
        count = int((keys | values).sum())
        if not count:
            return rows
        gone = keys
        if of_values and not self.inexact:
            null = rows.batch.column(VALUE).is_null().to_numpy(zero_copy_only=False)
            gone = keys | (values & null)
        must_drop = isinstance(rows, ElementRows) and gone.any()
        if must_drop or not self.leave_out:
            raise InexactError.of(
                count,
                VALUE if values.any() else KEY,
                place=f"state {rows.name!r}",
                remedy="drop the state"
                if must_drop
                else f"{_REMEDY}, or keep the whole key or value by one rule{_OR_SHOWN}"
                if values.any()
                else f"{_REMEDY}, or keep the whole key or value by one rule",
            )
        return replace(rows, batch=rows.batch.filter(pa.array(~gone)))


@dataclass(frozen=True)
class SharedSnapshot:
    """A snapshot with a sample and masks.

    Attributes:
        record: The snapshot without the states that are left out.
        metadata: Its carried `_metadata`, without the parts that are left out.
        rows: By operator id, the sample and the masks of its rows.
        left_out: The parts that are left out, in words.
    """

    record: SnapshotRecord
    metadata: CheckpointMetadata
    rows: Mapping[str, SampleAndMasks]
    left_out: list[str]


@dataclass
class _Planning:
    """Checks everything before anything is written."""

    sharing: SharedForm
    lake: str
    record: SnapshotRecord
    metadata: CheckpointMetadata
    left_out: list[str] = field(default_factory=list)
    # parts without a rule: in words, and rules that would fit
    unnamed: list[str] = field(default_factory=list)
    unnamed_keys: dict[str, Any] = field(default_factory=dict)
    unnamed_states: dict[str, Any] = field(default_factory=dict)

    def planned(self) -> SharedSnapshot:
        """Return the whole plan."""
        if self.sharing.mask is not None:
            _refuse_unknown(self.sharing.mask, self.record)
        metadata = self._metadata()
        operators, rows = [], {}
        for operator in self.record.operators:
            left, rows[operator.operator_id] = self._operator(operator)
            operators.append(left)
        if self.unnamed and self.sharing.mask is not None:
            raise EncodeError(
                f"no rule for {', '.join(dict.fromkeys(self.unnamed))}",
                place=self.sharing.mask.path,
                remedy=f"give each a rule, such as {self._advice()}; or `others: drop`, which "
                f"leaves out states, or `others: keep`",
            )
        record = replace(self.record, operators=operators)
        return SharedSnapshot(record, metadata, rows, self.left_out)

    def _advice(self) -> str:
        """Return lines for the mask with all parts that have no rule."""
        sections = {"keys": self.unnamed_keys, "states": self.unnamed_states}
        return ", ".join(
            f"`{name}: {yaml.safe_dump(given, default_flow_style=True, width=math.inf).strip()}`"
            for name, given in sections.items()
            if given
        )

    # ------------------------------------------------------------------ state that has no tables

    def _metadata(self) -> CheckpointMetadata:
        metadata = self.metadata
        operators = [self._carried(operator) for operator in metadata.operators]
        masters = metadata.masters
        if masters and self.sharing.mask is not None:
            self._leave_out("the state of master hooks, which can't be masked")
            masters = []
        return replace(metadata, operators=operators, masters=masters)

    def _carried(self, operator: OperatorMetadata) -> OperatorMetadata:
        label = operator.uid or operator.operator_id

        def without_opaque(subtask: SubtaskState) -> SubtaskState:
            gone: dict[str, dict[str, Any]] = {}
            if subtask.raw_keyed is not None:
                gone["raw keyed state"] = {"raw_keyed": None}
            if subtask.managed_keyed is not None:
                gone[KEYED] = {"managed_keyed": None}
            if subtask.inputs or subtask.outputs:
                gone["channel state"] = {"inputs": (), "outputs": ()}
            if subtask.raw_operator is not None and self.sharing.mask is not None:
                gone["raw operator state"] = {"raw_operator": None}
            for what, without in gone.items():
                self._leave_out(f"the {what} of operator {label}, which can't be {self._verb}")
                subtask = replace(subtask, **without)
            return subtask

        shared = operator.with_subtasks(without_opaque)
        if shared.coordinator is not None and self.sharing.mask is not None:
            self._leave_out(f"the coordinator's state of operator {label}, which can't be masked")
            shared = replace(shared, coordinator=None)
        return shared

    @property
    def _verb(self) -> str:
        return "masked" if self.sharing.mask is not None else "sampled"

    def _leave_out(self, what: str) -> None:
        """Record a part that is left out.

        Raises:
            UnsupportedFormatError: The user did not say that it may be.
        """
        if not self.sharing.leave_out:
            raise UnsupportedFormatError(f"there is {what}", remedy=_REMEDY)
        if what not in self.left_out:
            self.left_out.append(what)

    # ------------------------------------------------------------------------- state with tables

    def _operator(self, operator: OperatorRecord) -> tuple[OperatorRecord, SampleAndMasks]:
        """Return an operator without the states left out, and the plan of its rows."""
        layouts = dict(_keyed_layouts(self.lake, operator))
        key_rules = self._key_rules(operator, layouts)
        rules = {
            state.name: self._keyed_rules(operator, state, layouts[state.name])
            for state in (operator.states if key_rules is not None else ())
        }
        keyed = {name: (key_rules or ()) + rule for name, rule in rules.items() if rule is not None}
        rules = {
            state.name: self._operator_rules(operator, state) for state in operator.operator_states
        }
        others = {name: rule for name, rule in rules.items() if rule is not None}
        states = [state for state in operator.states if state.name in keyed]
        operator_states = [state for state in operator.operator_states if state.name in others]
        left = operator.with_states(states, operator_states)
        sharing = self.sharing
        secret = b"" if sharing.mask is None else sharing.mask.secret
        return left, SampleAndMasks(
            sharing.sample, keyed, others, secret, sharing.leave_out, sharing.inexact
        )

    def _key_rules(
        self, operator: OperatorRecord, layouts: Mapping[str, KeyedLayout]
    ) -> tuple[MaskRule, ...] | None:
        """Return the rules of an operator's keys; None if its keyed state is left out."""
        if not layouts:
            return ()
        layout = next(iter(layouts.values()))
        mask, place = self.sharing.mask, f"the keys of operator {operator.label}"
        opaque = any(keyed_layout.opaque_key for keyed_layout in layouts.values())
        if opaque and self.sharing.sample is not None:
            self._leave_out(
                f"the keyed state of operator {operator.label}, whose keys of type"
                f" {layout.key.name} can't be sampled"
            )
            return None
        if mask is None:
            return ()
        given = _rules_in(mask.keys, operator)
        if given is None and mask.others == DROP:
            self.left_out.append(f"the keyed state of operator {operator.label}")
            return None
        column = ColumnParts(KEY, layout.key.arrow_type, layout.key, apart=True)
        rules = self._settled(given, [column], place, self.unnamed_keys, operator.label)
        if (opaque or _has_opaque(layout.key)) and (rules or (given is None and mask.others)):
            self._leave_out(
                f"the keyed state of operator {operator.label}, whose keys of type"
                f" {layout.key.name} can't be masked"
            )
            return None
        return rules

    def _keyed_rules(
        self, operator: OperatorRecord, state: StateRecord, layout: KeyedLayout
    ) -> tuple[MaskRule, ...] | None:
        """Return the rules of a keyed state or timers except keys; None if it is left out."""
        schema = layout.schema
        columns = [
            ColumnParts(name, schema.field(name).type, writer, apart=name != VALUE)
            for name, writer in (
                (NAMESPACE, layout.namespace),
                (USER_KEY, layout.user_key),
                (VALUE, layout.value),
            )
            if writer is not None
        ]
        name = TIMERS if state.kind == TIMERS else state.name
        parts = [column.writer for column in columns]
        stored = layout.stored_value()
        rules = self._rules_of(
            operator, name, columns, parts if stored is None else [*parts, stored]
        )
        if rules and layout.opaque_key and any(rule.column != VALUE for rule in rules):
            self._leave_out(
                f"the state {operator.label}/{name}, whose keys can't be separated from the bytes "
                f"that follow them, which can't be masked"
            )
            return None
        return rules

    def _operator_rules(
        self, operator: OperatorRecord, state: OperatorStateRecord
    ) -> tuple[MaskRule, ...] | None:
        """Return the rules of an operator state; None if it is left out."""
        layout: OperatorLayout = parse_operator_state(state.meta_info)[1]
        columns = [ColumnParts(VALUE, layout.value.arrow_type, layout.value)]
        if layout.key is not None:
            columns.insert(0, ColumnParts(KEY, layout.key.arrow_type, layout.key, apart=True))
        parts = [column.writer for column in columns]
        return self._rules_of(operator, state.name, columns, parts)

    def _rules_of(
        self,
        operator: OperatorRecord,
        state: str,
        columns: Sequence[ColumnParts],
        parts: Sequence[TypeSerializer],
    ) -> tuple[MaskRule, ...] | None:
        """Return the mask's rules of a state; None if it is left out.

        Args:
            operator: Its operator.
            state: Its name.
            columns: Its columns, without the keys of the operator.
            parts: Its serializers.
        """
        mask, name = self.sharing.mask, f"{operator.label}/{state}"
        if mask is None:
            return ()
        there = [column.name for column in columns]
        columns = [column for column in columns if not column.says_nothing]
        labels = next((each.labels for each in operator.states if each.name == state), (state,))
        given = _rules_in(mask.states, operator, [f"/{label}" for label in labels])
        free = state == TIMERS and not columns  # only keys, which have rules
        if given == DROP or (given is None and mask.others == DROP and not free):
            self.left_out.append(f"the state {name}")
            return None
        for rule in given or ():
            if rule.column not in (ALL_COLUMNS, *there):
                raise EncodeError(
                    f"{name} has no {rule.column} to be masked",
                    place=mask.path,
                    remedy=f"it has {', '.join(there)}; keys are masked below `keys`, by operator",
                )
        opaque = next((part.name for part in parts if _has_opaque(part)), None)
        if given is None and not mask.others and (opaque is not None or not columns) and not free:
            self.unnamed.append(name)
            self.unnamed_states[name] = DROP if columns else KEEP
            return ()
        rules = self._settled(given, columns, name, self.unnamed_states, name)
        named = given is not None and not any(settle(given, column).unnamed for column in columns)
        if opaque is not None and (rules or not named):
            self._leave_out(f"the state {name} of {opaque}, which can't be masked")
            return None
        return rules

    def _settled(
        self,
        given: Sequence[MaskRule] | None,
        columns: Sequence[ColumnParts],
        place: str,
        advice: dict[str, Any],
        label: str,
    ) -> tuple[MaskRule, ...]:
        """Return the rules of some columns; parts without one are noted, unless others are kept.

        Args:
            given: The mask's rules; None without rules.
            columns: The columns.
            place: Their operator or state, for messages.
            advice: The mapping to which suggested rules are added.
            label: The key of the suggestion.
        """
        mask = self.sharing.mask
        assert mask is not None  # noqa: S101 - by the callers
        try:
            settled = {column.name: settle(given or (), column) for column in columns}
        except StateError as error:
            raise error.within(f"{mask.path}, {place}") from error
        unnamed: dict[str, Any] = {}
        for name, each in settled.items() if mask.others != KEEP else ():
            parts = {str(MaskRule(name, part.steps, KEEP)): part.advice for part in each.unnamed}
            alike = len(set(map(str, parts.values()))) == 1 and len(parts) == each.parts
            unnamed |= {name: next(iter(parts.values()))} if alike else parts
        if unnamed:
            all_columns = len(unnamed) == len(columns) and {*unnamed} == {*settled}
            self.unnamed.append(place if given is None else f"{', '.join(unnamed)} of {place}")
            if all_columns and len(set(map(str, unnamed.values()))) == 1:
                unnamed = next(iter(unnamed.values()))
            elif advice is self.unnamed_keys:
                unnamed = {part.removeprefix("key."): rule for part, rule in unnamed.items()}
            advice[label] = unnamed
        return tuple(rule for each in settled.values() for rule in each.rules)


def _rules_in(
    rules: Mapping[str, Any], operator: OperatorRecord, behind: Sequence[str] = ("",)
) -> Any:
    """Return the mask's entry of an operator, or of its state; None without an entry."""
    for label in operator.labels:
        for state in behind:
            if label + state in rules:
                return rules[label + state]
    return None


def _refuse_unknown(mask: Mask, record: SnapshotRecord) -> None:
    """Refuse a mask that names an unknown operator or state, or one twice.

    Raises:
        NotFoundError: An operator or state that it names does not exist.
        EncodeError: It names one by two of its names, so that the rules of one would not count.
    """
    operators: dict[str, str] = {}  # by each of its names, its label in messages
    states: dict[str, str] = {}
    for operator in record.operators:
        names = {
            called: TIMERS if state.kind == TIMERS else state.name
            for state in operator.all_states
            for called in ((TIMERS,) if state.kind == TIMERS else state.labels)
        }
        for label in operator.labels:
            states |= {f"{label}/{each}": f"{operator.label}/{names[each]}" for each in names}
            if operator.states:
                operators[label] = operator.label
    for given, there in ((mask.keys, operators), (mask.states, states)):
        unknown = [name for name in given if name not in there]
        if unknown:
            shown = ", ".join(dict.fromkeys(there.values())) or "none"
            raise NotFoundError(
                f"the snapshot has no {', '.join(map(repr, unknown))}",
                place=mask.path,
                remedy=f"it has: {shown}{did_you_mean(unknown[0], there)}",
            )
        named: dict[str, str] = {}
        for name in given:
            if (other := named.setdefault(there[name], name)) != name:
                raise EncodeError(
                    f"{other!r} and {name!r} are one", place=mask.path, remedy="name it once"
                )


def _keyed_layouts(lake: str, operator: OperatorRecord) -> Iterator[tuple[str, KeyedLayout]]:
    """Yield the layout of each keyed state, as its table was written."""
    for table in operator.keyed_tables:
        rows = table_rows(lake, operator, table)
        for _, table_state in rows.states:
            state, layout = rows.parse(table_state)
            yield state.name, layout


def _has_opaque(serializer: TypeSerializer) -> bool:
    """Return whether a part of a serializer's values is opaque."""
    waiting: list[object] = [serializer]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if _is_opaque(part):
            return True
        if type(part).__module__.startswith("statelake.state_core.serializers."):
            waiting += getattr(part, "__dict__", {}).values()
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return False


def _is_opaque(part: object) -> bool:
    """Return whether a serializer reads bytes for a type that is not bytes."""
    if isinstance(part, BinaryFormat):  # in a row of Flink SQL: RAW, VARIANT and BITMAP
        return not part.inline
    if isinstance(part, AvroSerializer):
        return part.recursive
    return isinstance(part, _BYTES_OF_OTHERS)
