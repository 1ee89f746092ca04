"""Jobs: sources, streams, operators and sinks; checked for legality when they are built.

    job = Job("alerts", max_parallelism=128)
    orders = job.source("orders", "lake/orders", event_time="at").key_by("customer", "Long")
    rules = job.source("rules", "rules.jsonl").broadcast()
    alerts = rules.connect_and_process(orders, Alert(), uid="alert", output=SCHEMA)
    alerts.sink("alerts", "lake/alerts")

Nothing runs here: a job is what a runtime is given.

Source: `ExecutionEnvironment`, and `org.apache.flink.datastream.api.stream`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from state_core.checks.legality import require_legal
from state_core.declarations.jobs import (
    JobDeclaration,
    OperatorDeclaration,
    StreamKind,
    declare_operator,
)
from state_core.declarations.type_descriptors import TypeDescriptor, TypeLike
from state_core.errors import DeclarationError
from state_core.model.key_groups import check_parallelism
from state_core.process.functions import (
    OneInputBatchProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from state_core.process.operators import GLOBAL_KEY_TYPE

__all__ = ["Input", "Job", "OperatorNode", "SinkNode", "SourceNode", "Stream"]

KeySelector: TypeAlias = "str | Callable[[Any], Any]"
FORMATS = ("delta", "parquet", "json")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|h|d)")
_MILLIS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_ONE = (OneInputStreamProcessFunction, OneInputBatchProcessFunction, TwoOutputStreamProcessFunction)
_TWO = (TwoInputNonBroadcastStreamProcessFunction, TwoInputBroadcastStreamProcessFunction)


@dataclass(frozen=True)
class SourceNode:
    """Where records come from: files that are added to, each row a dict of its columns.

    Attributes:
        name: By which its offsets are remembered.
        path: A directory, a file, or a Delta table.
        format: `delta`, `parquet` or `json` (an object a line).
        event_time: The column of event time (a timestamp, or milliseconds); empty for none.
        delay: How far the watermark stays behind, in milliseconds.
        schema: Of what is read; taken from the files by default.
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
        node: The name of the source, or the uid of the operator, that it comes from.
        output: Which of its outputs.
        kind: How it is partitioned.
        key: What a record's key is, if it is keyed.
    """

    node: str
    output: int
    kind: StreamKind
    key: KeySelector = ""


@dataclass(frozen=True)
class OperatorNode:
    """A process function in its place.

    Attributes:
        declaration: What it declares.
        function: It.
        inputs: What it reads, the broadcast input first.
        outputs: The columns of each output.
        key_type: Of keyed inputs, and of the one partition of global ones; None for others.
    """

    declaration: OperatorDeclaration
    function: ProcessFunction = field(compare=False)
    inputs: tuple[Input, ...] = ()
    outputs: tuple[pa.Schema, ...] = ()
    key_type: TypeDescriptor | None = None

    @property
    def uid(self) -> str:
        """By which its state is found."""
        return self.declaration.uid


@dataclass(frozen=True)
class SinkNode:
    """A Delta table that a stream is appended to.

    Attributes:
        name: By which its commits are told apart.
        path: The table.
        input: What is appended.
    """

    name: str
    path: str
    input: Input


@dataclass
class Job:
    """A job that is being built.

    Args:
        name: Its name, which is that of its tables in the lake.
        max_parallelism: How many key groups it has: fixed once there is state.

    Attributes:
        sources: By name.
        operators: By uid, each behind those that it reads.
        sinks: By name.
    """

    name: str
    max_parallelism: int = 128
    sources: dict[str, SourceNode] = field(default_factory=dict)
    operators: dict[str, OperatorNode] = field(default_factory=dict)
    sinks: dict[str, SinkNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name(self.name, "job")
        check_parallelism(self.max_parallelism, 1)

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
        """A stream of what is added to a table or directory.

        Args:
            name: By which its offsets are remembered.
            path: A Delta table, or files of Parquet or JSON lines, or their directory.
            format: `delta`, `parquet` or `json`; told from the path by default.
            event_time: The column of event time.
            delay: How far the watermark stays behind it: `5s`, or milliseconds.
            schema: Of what is read; taken from the files by default.

        Raises:
            DeclarationError: The name is taken or no name, or the format is unknown.
        """
        self._take(name)
        found = format or ("json" if path.endswith((".json", ".jsonl")) else "")
        found = found or ("parquet" if path.endswith(".parquet") else "delta")
        if found not in FORMATS:
            raise DeclarationError(
                f"format {found!r}",
                place=f"source {name!r}",
                remedy=f"use one of {', '.join(FORMATS)}",
            )
        late = _millis(delay, f"source {name!r}")
        self.sources[name] = SourceNode(name, path, found, event_time, late, schema)
        return Stream(self, Input(name, 0, StreamKind.NON_KEYED))

    def declaration(self) -> JobDeclaration:
        """What it declares; legal, or `require_legal` of `checks.legality` says what is not."""
        return JobDeclaration(self.name, tuple(one.declaration for one in self.operators.values()))

    def build(self) -> Job:
        """The job itself, checked.

        Raises:
            LegalityError: A state is not legal; the message has all faults.
            DeclarationError: There is nothing to run.
        """
        if not self.operators:
            raise DeclarationError("a job without operators", place=f"job {self.name!r}")
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
    """A stream of a job, partitioned in some way.

    Attributes:
        job: The job.
        origin: Where it comes from, and how it is partitioned.
        key_type: Of its keys, if it is keyed.
    """

    job: Job = field(repr=False)
    origin: Input
    key_type: TypeDescriptor | None = None

    def key_by(self, key: KeySelector, type: TypeLike) -> Stream:  # noqa: A002 - Flink's word
        """The same records, partitioned by a column, or by a function of the record.

        Raises:
            DeclarationError: The type can't be understood.
        """
        held = Input(self.origin.node, self.origin.output, StreamKind.KEYED, key)
        return Stream(self.job, held, TypeDescriptor.of(type, f"key of {self.origin.node!r}"))

    def broadcast(self) -> Stream:
        """The same records, all of them for every partition."""
        return self._as(StreamKind.BROADCAST)

    def to_global(self) -> Stream:
        """The same records, in one partition."""
        return self._as(StreamKind.GLOBAL)

    def shuffle(self) -> Stream:
        """The same records, spread evenly."""
        return self._as(StreamKind.NON_KEYED)

    def process(
        self,
        function: ProcessFunction,
        *,
        uid: str,
        output: pa.Schema | Mapping[str, pa.DataType] | tuple[pa.Schema, pa.Schema],
    ) -> Stream | tuple[Stream, Stream]:
        """What a function of one input makes of the stream.

        Args:
            function: The function.
            uid: By which its state is found.
            output: The columns of what it gives; two of them for a function of two outputs.

        Returns:
            A stream, or two.

        Raises:
            DeclarationError: It is no function of one input, or the uid is taken.
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
        """What a function of two inputs makes of this stream, the first, and another.

        A broadcast stream is the first, on whichever side it stands.

        Raises:
            DeclarationError: It is no function of two such inputs, or the uid is taken.
        """
        if not isinstance(function, _TWO):
            raise _wrong(function, uid, "two inputs", "process")
        pair = self, other
        if other.origin.kind is StreamKind.BROADCAST:
            pair = other, self
        broadcast = pair[0].origin.kind is StreamKind.BROADCAST
        if broadcast != isinstance(function, TwoInputBroadcastStreamProcessFunction):
            found = "a broadcast input" if broadcast else "no broadcast input"
            raise _wrong(function, uid, found, "a function of such inputs")
        made = self._operator(function, uid, pair, output)
        return made if isinstance(made, Stream) else made[0]

    def sink(self, name: str, path: str) -> None:
        """Append the stream to a Delta table, exactly once.

        Raises:
            DeclarationError: The name is taken, or a source is to be written.
        """
        if self.origin.node in self.job.sources:
            raise DeclarationError("a source that is written as it is", place=f"sink {name!r}")
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
        if any(one.job is not self.job for one in streams):
            raise DeclarationError("streams of two jobs", place=f"operator {uid!r}")
        keys = list(dict.fromkeys(one.key_type for one in streams if one.key_type is not None))
        if len(keys) > 1:
            raise DeclarationError(
                f"keys of two types, {keys[0]} and {keys[1]}", place=f"operator {uid!r}"
            )
        inputs = tuple(one.origin for one in streams)
        alone = any(one.kind is StreamKind.GLOBAL for one in inputs)
        declaration = declare_operator(
            uid,
            function,
            tuple(one.kind for one in inputs),
            function.uses_states(),
            first_states=function.uses_states_of_first_input(),
            second_states=function.uses_states_of_second_input(),
            key=keys[0] if keys else None,
            max_parallelism=1 if alone else self.job.max_parallelism,
            outputs=len(schemas),
        )
        key = keys[0] if keys else None
        if alone:
            key = TypeDescriptor.of(GLOBAL_KEY_TYPE)
        self.job.operators[uid] = OperatorNode(declaration, function, inputs, schemas, key)
        made = tuple(
            Stream(self.job, Input(uid, at, StreamKind.NON_KEYED)) for at in range(len(schemas))
        )
        return made[0] if len(made) == 1 else (made[0], made[1])


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
            f"a {what} called {name!r}", remedy="use letters, digits, and . _ - between them"
        )


def _millis(given: str | int, place: str) -> int:
    if isinstance(given, int):
        return given
    found = _DURATION.fullmatch(given.strip())
    if found is None:
        raise DeclarationError(f"a duration of {given!r}", place=place, remedy="write 5s, or 2min")
    return int(found[1]) * _MILLIS[found[2]]
