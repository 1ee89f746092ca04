"""One subtask of an operator: its process function, with state, timers and outputs.

The runtime calls, in this order: `open`; `fire_processing_timers`; `process` for the records of
each input, the broadcast one first; `advance_watermark`; `end_input` if the stream has ended for
good; `close`, also after an error. Snapshots are taken by the backends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statelake.state_core.errors import LegalityError
from statelake.state_core.formats.writing.new_states import USER_TIMERS, NewOperatorState
from statelake.state_core.runtime.backends import (
    KeyedStateBackend,
    OperatorStateBackend,
    StateDescriptor,
)
from statelake.state_core.runtime.backends.backend import AnyState
from statelake.state_core.runtime.backends.batches import KeyBatch, encode_keys, get_many, put_many
from statelake.state_core.runtime.declarations.jobs import (
    InputSide,
    OperatorDeclaration,
    StreamKind,
    sides_of,
)
from statelake.state_core.runtime.declarations.states import StateDeclaration
from statelake.state_core.runtime.process.contexts import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    RuntimeContext,
)
from statelake.state_core.runtime.process.functions import (
    OneInputBatchProcessFunction,
    ProcessFunction,
)
from statelake.state_core.runtime.process.located_keys import LocatedKeys
from statelake.state_core.runtime.process.state_access import StateManager

# the single partition of a global stream, as in Flink's NullByteKeySelector
GLOBAL_KEY, GLOBAL_KEY_TYPE = 0, "Byte"
_FIRST = {InputSide.ONLY, InputSide.FIRST}
Visit = Callable[[PartitionedContext], None]


@dataclass(frozen=True)
class Backends:
    """The state backends of an operator.

    Attributes:
        operator: The backend of its list and broadcast states.
        keyed: The backend of its keyed state; None over streams without keys.
    """

    operator: OperatorStateBackend
    keyed: KeyedStateBackend | None = None


class BatchState:
    """A value, list, reducing or aggregating state, for many keys at once.

    Values are those that are stored: accumulators of an aggregating state. A key that occurs twice
    in a column is looked up twice; of two values for it the last one counts.
    """

    def __init__(self, backend: KeyedStateBackend, state: AnyState) -> None:
        self._backend = backend
        self._state = state
        self._keys: pa.Array | pa.ChunkedArray | None = None
        self._batch: KeyBatch | None = None

    def get(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the value of each key; null where it has none.

        Raises:
            EncodeError: A key is invalid.
            KeyGroupError: A key belongs to another subtask.
        """
        return get_many(self._encoded(keys))

    def put(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Set the value of each key; null removes it.

        Raises:
            EncodeError: A key or a value is invalid.
            KeyGroupError: A key belongs to another subtask.
        """
        put_many(self._encoded(keys), values)

    def _encoded(self, keys: pa.Array | pa.ChunkedArray) -> KeyBatch:
        """Return the bytes of the keys, made once for a `get` and the `put` that follows."""
        if self._batch is None or keys is not self._keys:
            self._batch = encode_keys(self._backend, self._state, keys)
            self._keys = keys
        return self._batch


class ProcessOperator:
    """One subtask of an operator.

    Args:
        function: The user's process function.
        declaration: The operator's declaration, which is legal.
        runtime: The subtask and the run.
        backends: The state backends.
        timers: The name of the service of its timers.

    Attributes:
        outputs: A collector for each output of the function.
    """

    def __init__(
        self,
        function: ProcessFunction,
        declaration: OperatorDeclaration,
        runtime: RuntimeContext,
        backends: Backends,
        timers: str = USER_TIMERS,
    ) -> None:
        self.function = function
        self.declaration = declaration
        self.runtime = runtime
        self.backends = backends
        self.outputs = tuple(Collector() for _ in range(declaration.outputs))
        self.batched = isinstance(function, OneInputBatchProcessFunction)
        self._states: dict[StateDeclaration, Any] = {}
        keyed = backends.keyed
        self._service = (
            None if keyed is None or self.declaration.alone else keyed.timer_service(timers)
        )
        sides = sides_of(declaration.inputs)
        self._contexts = {side: self._context(side) for side in sides}
        self._apart = {side: self._context_apart(side) for side in sides}
        self._calls = {side: self._call(side) for side in sides}

    # ------------------------------------------------------------------------- states

    def state(self, declaration: StateDeclaration) -> Any:
        """Return a declared state; of keyed ones many keys' if the function takes batches.

        Raises:
            LegalityError: The state is of a key, and no stream is keyed.
            IncompatibleError: The restored state can't be converted to the declared one.
        """
        state = self._states.get(declaration)
        if state is None:
            new = declaration.new_state()
            if isinstance(new, NewOperatorState):
                state = self.backends.operator.state(new)
            else:
                backend = self._backend()
                state = backend.state(StateDescriptor.from_declaration(declaration))
                if self.batched:
                    state = BatchState(backend, state)
            self._states[declaration] = state
        return state

    def _backend(self) -> KeyedStateBackend:
        if self.backends.keyed is None:
            raise LegalityError("no stream is keyed", place=self.declaration.label)
        return self.backends.keyed

    def _current_key(self) -> Any:
        if self.declaration.alone or self.backends.keyed is None:
            raise LegalityError(
                f"{self.declaration.streams} has no keys",
                place=self.declaration.label,
            )
        return self.backends.keyed.current_key

    # ------------------------------------------------------------------------- contexts

    def _context(self, side: InputSide, *, in_apply: bool = False) -> PartitionedContext:
        states = StateManager(
            self.declaration, side, self.state, partitioned=True, in_apply=in_apply
        )
        return PartitionedContext(self.runtime, states, self._service, self._current_key)

    def _context_apart(self, side: InputSide) -> NonPartitionedContext:
        states = StateManager(self.declaration, side, self.state, partitioned=False)
        within = self._context(side, in_apply=True)

        def each(visit: Visit) -> None:
            within.watermark = self._contexts[side].watermark
            self._for_each_partition(within, visit)

        return NonPartitionedContext(self.runtime, states, self.outputs, each)

    def _for_each_partition(self, ctx: PartitionedContext, visit: Visit) -> None:
        if self.backends.keyed is None or self.declaration.alone:
            visit(ctx)
            return
        backend = self.backends.keyed
        for key in self._keys(backend):
            backend.set_current_key(key)
            visit(ctx)

    def _keys(self, backend: KeyedStateBackend) -> list[Any]:
        """Return all keys that have state, by key group."""
        keys: dict[tuple[int, bytes], Any] = {}
        for state in backend.registry.states:
            for key, _ in backend.keys_and_namespaces(state):
                keys.setdefault(backend.context.locate(key), key)
        return [keys[at] for at in sorted(keys)]

    def _call(self, side: InputSide) -> Callable[..., None]:
        names = {
            InputSide.ONLY: "process_batch" if self.batched else "process_record",
            InputSide.FIRST: "process_record_from_first_input",
            InputSide.SECOND: "process_record_from_second_input",
        }
        call: Callable[..., None] = getattr(self.function, names[side])
        return call

    def _any_context(self) -> PartitionedContext:
        """Return the context of timers, which belong to no input: that of the last side."""
        return self._contexts[next(reversed(self._contexts))]

    # ------------------------------------------------------------------------- a run

    def open(self, watermark: int | None = None) -> None:
        """Create the states, so that a failed restore shows before the first record.

        Args:
            watermark: The watermark when the state was written.

        Raises:
            IncompatibleError: A restored state can't be converted to the declared one.
        """
        for state, _ in self.declaration.declared:
            self.state(state)
        if self.declaration.alone and self.backends.keyed is not None:
            self.backends.keyed.set_current_key(GLOBAL_KEY)
        self._set_watermark(watermark)
        self.function.open(self._apart[next(iter(self._apart))])

    def process(
        self, side: InputSide, records: Iterable[Any], keys: LocatedKeys | Iterable[Any] | None
    ) -> None:
        """Process records of one input, in their order.

        Args:
            side: The input.
            records: The records.
            keys: The key of each record; None if the input is not keyed.
        """
        call, outputs = self._calls[side], self.outputs
        broadcast = side in _FIRST and self.declaration.inputs[0] is StreamKind.BROADCAST
        ctx: Any = self._apart[side] if broadcast else self._contexts[side]
        if keys is None:
            for record in records:
                call(record, *outputs, ctx)
        elif isinstance(keys, LocatedKeys):
            self._process_located(call, ctx, records, keys)
        else:
            set_key = self._backend().set_current_key
            for key, record in zip(keys, records, strict=True):
                set_key(key)
                call(record, *outputs, ctx)

    def _process_located(
        self, call: Callable[..., None], ctx: Any, records: Iterable[Any], keys: LocatedKeys
    ) -> None:
        """Process records with keys whose bytes and groups are known."""
        at, outputs = self._backend().context, self.outputs
        located = zip(keys.keys, keys.groups, keys.encoded, records, strict=True)
        if len(outputs) == 1:  # faster than the general case below
            (output,) = outputs
            for at.key, at.group, at.encoded, record in located:
                call(record, output, ctx)
            return
        for at.key, at.group, at.encoded, record in located:
            call(record, *outputs, ctx)

    def process_batch(self, keys: pa.Array, records: pa.RecordBatch) -> None:
        """Process records of one key group, with a function that takes batches."""
        self._calls[InputSide.ONLY](keys, records, *self.outputs, self._contexts[InputSide.ONLY])

    def fire_processing_timers(self) -> None:
        """Call the function for each timer of processing time that is due."""
        if self._service is None:
            return
        for timer in self._service.advance_processing_time(self.runtime.processing_time):
            self.function.on_processing_timer(timer.timestamp, *self.outputs, self._any_context())

    def advance_watermark(self, watermark: int) -> None:
        """Advance event time: call the function for each due timer, then for the watermark."""
        self._set_watermark(watermark)
        if self._service is not None:
            for timer in self._service.advance_watermark(watermark):
                self.function.on_event_timer(timer.timestamp, *self.outputs, self._any_context())
        self.function.on_watermark(watermark, *self.outputs, self._last_apart())

    def end_input(self) -> None:
        """Call the function for the end of the stream."""
        self.function.end_input(*self.outputs, self._last_apart())

    def close(self) -> None:
        """Close the function and the backends."""
        try:
            self.function.close()
        finally:
            if self.backends.keyed is not None:
                self.backends.keyed.close()

    def _last_apart(self) -> NonPartitionedContext:
        return self._apart[next(reversed(self._apart))]

    def _set_watermark(self, watermark: int | None) -> None:
        contexts: Sequence[PartitionedContext | NonPartitionedContext] = [
            *self._contexts.values(), *self._apart.values(),
        ]  # fmt: skip
        for context in contexts:
            context.watermark = watermark
