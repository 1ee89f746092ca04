"""Jobs: sources, streams, operators and sinks; checked for legality when they are built.

    job = Job("alerts", max_parallelism=128)
    orders = job.source("orders", "lake/orders", event_time="at").key_by("customer", "Long")
    rules = job.source("rules", "rules.jsonl").broadcast()
    alerts = rules.connect_and_process(orders, Alert(), uid="alert", output=SCHEMA)
    alerts.sink("alerts", "lake/alerts")

Nothing runs here: a job is the input of a runtime.

Source: `ExecutionEnvironment`, and `org.apache.flink.datastream.api.stream`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from statelake.state_core.errors import DeclarationError
from statelake.state_core.formats.writing.new_states import USER_TIMERS, V2_TIMERS
from statelake.state_core.model.key_groups import check_parallelism
from statelake.state_core.runtime.declarations.jobs import (
    JobDeclaration,
    OperatorDeclaration,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.declarations.type_descriptors import TypeDescriptor, TypeLike
from statelake.state_core.runtime.legality.rules import require_legal
from statelake.state_core.runtime.process.functions import (
    OneInputBatchProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from statelake.state_core.runtime.process.operators import GLOBAL_KEY_TYPE

__all__ = ["Input", "OperatorNode", "SinkNode", "SourceNode", "Stream", "StreamJob"]

KeySelector: TypeAlias = "str | Callable[[Any], Any]"
FORMATS = ("delta", "parquet", "json")
TIMERS = (USER_TIMERS, V2_TIMERS)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|h|d)")
_MILLIS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_ONE = (OneInputStreamProcessFunction, OneInputBatchProcessFunction, TwoOutputStreamProcessFunction)
_TWO = (TwoInputNonBroadcastStreamProcessFunction, TwoInputBroadcastStreamProcessFunction)


@dataclass(frozen=True)
class SourceNode:
    """A source of records: files that grow in number, each row a dict of its columns.

    Attributes:
        name: The name by which its offsets are remembered.
        path: A directory, a file, or a Delta table.
        format: `delta`, `parquet` or `json` (one object a line).
        event_time: The column of event time (a timestamp, or milliseconds); empty without event
            time.
        delay: The distance of the watermark behind it, in milliseconds.
        schema: The schema of the records; taken from the files by default.
    """

    name: str
    path: str
    format: str
    event_time: str = ""
    delay: int = 0
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class Input:
    """One input of an operator.

    Attributes:
        node: The name of its source, or the uid of its operator.
        output: The index of that operator's output.
        kind: Its partitioning.
        key: The key of a record, if it is keyed.
    """

    node: str
    output: int
    kind: StreamKind
    key: KeySelector = ""


@dataclass(frozen=True)
class OperatorNode:
    """A process function in a job.

    Attributes:
        declaration: Its declaration.
        function: The user's process function.
        inputs: Its inputs, the broadcast one first.
        outputs: The columns of each output.
        key_type: The key type of keyed inputs, or of the one partition of global ones; otherwise
            None.
    """

    declaration: OperatorDeclaration
    function: ProcessFunction = field(compare=False)
    inputs: tuple[Input, ...] = ()
    outputs: tuple[pa.Schema, ...] = ()
    key_type: TypeDescriptor | None = None

    @property
    def uid(self) -> str:
        """The uid of the operator, by which its state is found."""
        return self.declaration.uid

    def parallelism(self, of_run: int) -> int:
        """Return its parallelism in a run: a global stream has one partition."""
        return 1 if self.declaration.alone else of_run


@dataclass(frozen=True)
class SinkNode:
    """A Delta table to which a stream is appended.

    Attributes:
        name: The name of its commits in the table's log.
        path: The table.
        input: The stream to append.
    """

    name: str
    path: str
    input: Input


@dataclass
class StreamJob:
    """A job in the making.

    Args:
        name: Its name, which is also that of its tables in the lake.
        max_parallelism: The number of its key groups, fixed once the job has state.
        timers: The name under which a new job's timers are kept: `user-timers`, as Flink's
            `KeyedProcessFunction` has it, or `processing timer`, as the DataStream API V2. State
            that is restored keeps its own.

    Attributes:
        sources: Its sources, by name.
        operators: Its operators by uid, each after those whose output it reads.
        sinks: Its sinks, by name.
    """

    name: str
    max_parallelism: int = 128
    timers: str = USER_TIMERS
    sources: dict[str, SourceNode] = field(default_factory=dict)
    operators: dict[str, OperatorNode] = field(default_factory=dict)
    sinks: dict[str, SinkNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name(self.name, "job")
        check_parallelism(self.max_parallelism, 1)
        if self.timers not in TIMERS:
            raise DeclarationError(
                f"timers under the name {self.timers!r}",
                place=f"job {self.name!r}",
                remedy=f"names are {', '.join(map(repr, TIMERS))}",
            )

    def source(
        self,
        name: str,
        path: str,
        *,
        format: str = "",  # noqa: A002 - Spark's word
        event_time: str = "",
        delay: str | int = 0,
        schema: pa.Schema | None = None,
    ) -> Stream:
        """Return a stream of the records that are added to a table or directory.

        Args:
            name: The name by which its offsets are remembered.
            path: A Delta table, or files of Parquet or JSON lines, or their directory.
            format: `delta`, `parquet` or `json`; derived from the path by default.
            event_time: The column of event time.
            delay: The distance of the watermark behind it: `5s`, or milliseconds.
            schema: The schema of the records; taken from the files by default.

        Raises:
            DeclarationError: The name is taken or invalid, or the format is unknown.
        """
        self._take(name)
        chosen = format or ("json" if path.endswith((".json", ".jsonl")) else "")
        chosen = chosen or ("parquet" if path.endswith(".parquet") else "delta")
        if chosen not in FORMATS:
            raise DeclarationError(
                f"the format {chosen!r} is not known",
                place=f"source {name!r}",
                remedy=f"use one of {', '.join(FORMATS)}",
            )
        late = _millis(delay, f"source {name!r}")
        self.sources[name] = SourceNode(name, path, chosen, event_time, late, schema)
        return Stream(self, Input(name, 0, StreamKind.NON_KEYED))

    def declaration(self) -> JobDeclaration:
        """Return the job's declaration; `require_legal` of `checks.legality` checks it."""
        return JobDeclaration(
            self.name, tuple(operator.declaration for operator in self.operators.values())
        )

    def build(self) -> StreamJob:
        """Check the job, and return it.

        Raises:
            LegalityError: A state is not legal; the message has all faults.
            DeclarationError: The job has no operators.
        """
        if not self.operators:
            raise DeclarationError("the job has no operators", place=f"job {self.name!r}")
        require_legal(self.declaration())
        return self

    def _take(self, name: str) -> None:
        _check_name(name, "source, operator or sink")
        if name in self.sources or name in self.operators or name in self.sinks:
            raise DeclarationError(
                f"two parts of the job are called {name!r}",
                place=f"job {self.name!r}",
                remedy="give each source, operator and sink a name of its own",
            )


@dataclass(frozen=True)
class Stream:
    """A stream of a job, with its partitioning.

    Attributes:
        job: The job.
        origin: Its node, and its partitioning.
        key_type: The type of its keys, if it is keyed.
    """

    job: StreamJob = field(repr=False)
    origin: Input
    key_type: TypeDescriptor | None = None

    def key_by(self, key: KeySelector, type: TypeLike) -> Stream:  # noqa: A002 - Flink's word
        """Return the same records, partitioned by a column, or by a function of the record.

        Args:
            key: The column, or the function.
            type: The type of the key.

        Raises:
            DeclarationError: The type can't be parsed.
        """
        keyed = Input(self.origin.node, self.origin.output, StreamKind.KEYED, key)
        return Stream(self.job, keyed, TypeDescriptor.of(type, f"key of {self.origin.node!r}"))

    def broadcast(self) -> Stream:
        """Return the same records, each of them for every partition."""
        return self._as(StreamKind.BROADCAST)

    def to_global(self) -> Stream:
        """Return the same records, in one partition."""
        return self._as(StreamKind.GLOBAL)

    def shuffle(self) -> Stream:
        """Return the same records, distributed evenly."""
        return self._as(StreamKind.NON_KEYED)

    def process(
        self,
        function: ProcessFunction,
        *,
        uid: str,
        output: pa.Schema | Mapping[str, pa.DataType] | tuple[pa.Schema, pa.Schema],
    ) -> Stream | tuple[Stream, Stream]:
        """Process the stream with a function of one input.

        Args:
            function: The function.
            uid: The uid of the operator, by which its state is found.
            output: The columns of the output; two schemas for a function of two outputs.

        Returns:
            The stream of the output, or two streams.

        Raises:
            DeclarationError: `function` is not a function of one input, or the uid is taken.
        """
        if not isinstance(function, _ONE):
            raise _wrong(function, uid, "one input", "connect_and_process")
        return self._operator(function, uid, (self,), output)

    def connect_and_process(
        self,
        other: Stream,
        function: ProcessFunction,
        *,
        uid: str,
        output: pa.Schema | Mapping[str, pa.DataType],
    ) -> Stream:
        """Process this stream, as the first input, and another with a function of two inputs.

        A broadcast stream is always the first input.

        Args:
            other: The other stream.
            function: The function.
            uid: The uid of the operator, by which its state is found.
            output: The columns of the output.

        Raises:
            DeclarationError: `function` is not a function of two such inputs, or the uid is taken.
        """
        if not isinstance(function, _TWO):
            raise _wrong(function, uid, "two inputs", "process")
        pair = self, other
        if other.origin.kind is StreamKind.BROADCAST:
            pair = other, self
        broadcast = pair[0].origin.kind is StreamKind.BROADCAST
        if broadcast != isinstance(function, TwoInputBroadcastStreamProcessFunction):
            inputs = "a broadcast input" if broadcast else "no broadcast input"
            raise _wrong(function, uid, inputs, "a function of such inputs")
        stream = self._operator(function, uid, pair, output)
        return stream if isinstance(stream, Stream) else stream[0]

    def sink(self, name: str, path: str) -> None:
        """Append the stream to a Delta table, exactly once.

        Args:
            name: The name of its commits in the table's log.
            path: The table.

        Raises:
            DeclarationError: The name is taken, or the stream is a source.
        """
        if self.origin.node in self.job.sources:
            raise DeclarationError(
                "a source can't be written to a sink as it is", place=f"sink {name!r}"
            )
        self.job._take(name)  # noqa: SLF001 - a part of it
        self.job.sinks[name] = SinkNode(name, path, self.origin)

    def _as(self, kind: StreamKind) -> Stream:
        return Stream(self.job, Input(self.origin.node, self.origin.output, kind))

    def _operator(
        self, function: ProcessFunction, uid: str, streams: tuple[Stream, ...], output: Any
    ) -> Stream | tuple[Stream, Stream]:
        self.job._take(uid)  # noqa: SLF001 - a part of it
        two = isinstance(function, TwoOutputStreamProcessFunction)
        schemas = tuple(map(_schema, output)) if two else (_schema(output),)
        if any(stream.job is not self.job for stream in streams):
            raise DeclarationError("the streams belong to two jobs", place=f"operator {uid!r}")
        keys = list(dict.fromkeys(each.key_type for each in streams if each.key_type is not None))
        if len(keys) > 1:
            raise DeclarationError(
                f"the inputs have keys of two types, {keys[0]} and {keys[1]}",
                place=f"operator {uid!r}",
            )
        key = keys[0] if keys else None
        inputs = tuple(stream.origin for stream in streams)
        alone = any(input_.kind is StreamKind.GLOBAL for input_ in inputs)
        declaration = declare_operator(
            uid,
            function,
            tuple(input_.kind for input_ in inputs),
            function.uses_states(),
            first_states=function.uses_states_of_first_input(),
            second_states=function.uses_states_of_second_input(),
            key=key,
            max_parallelism=1 if alone else self.job.max_parallelism,
            outputs=len(schemas),
        )
        if alone:
            key = TypeDescriptor.of(GLOBAL_KEY_TYPE)
        self.job.operators[uid] = OperatorNode(declaration, function, inputs, schemas, key)
        outputs = tuple(
            Stream(self.job, Input(uid, at, StreamKind.NON_KEYED)) for at in range(len(schemas))
        )
        return outputs[0] if len(outputs) == 1 else (outputs[0], outputs[1])


def _schema(given: pa.Schema | Mapping[str, pa.DataType]) -> pa.Schema:
    return given if isinstance(given, pa.Schema) else pa.schema(list(given.items()))


def _wrong(function: object, uid: str, what: str, remedy: str) -> DeclarationError:
    return DeclarationError(
        f"{type(function).__name__} is no function of {what}",
        place=f"operator {uid!r}",
        remedy=f"use {remedy}",
    )


def _check_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise DeclarationError(
            f"{name!r} is not a valid name of a {what}",
            remedy="use letters, digits, and . _ - between them",
        )


def _millis(given: str | int, place: str) -> int:
    if isinstance(given, int):
        return given
    match = _DURATION.fullmatch(given.strip())
    if match is None:
        raise DeclarationError(
            f"{given!r} is not a duration", place=place, remedy="write 5s, or 2min"
        )
    return int(match[1]) * _MILLIS[match[2]]
