"""Open a snapshot: read `_metadata` and the headers of its keyed files to a model.

Opening reads `_metadata` and the header of each file with keyed state; no entry is read.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from statelake.state_core.bounds import CELLS_IN_ALL, COUNTED_CELLS, STATES
from statelake.state_core.errors import (
    NotASnapshotError,
    OversizedError,
    StateError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import check_names
from statelake.state_core.formats.contradictions import (
    find_contradictions,
    find_timers_twice,
    label_of,
)
from statelake.state_core.formats.keyed.keyed_files import (
    OperatorHandles,
    PartialOpening,
    is_timers,
    merge_states,
    open_keyed,
    open_raw_timers,
    with_names,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    in_flight_bytes,
    kind_and_format,
    major_version,
    raw_bytes,
    read_metadata,
    subtask_bytes,
)
from statelake.state_core.formats.metadata.state_files import METADATA_FILE, StateFiles
from statelake.state_core.model import snapshot as model
from statelake.state_core.model.entries import KeyedFile
from statelake.state_core.model.handles import OperatorHandle
from statelake.state_core.model.key_groups import check_parallelism, operator_id_of_uid
from statelake.state_core.model.snapshot import OperatorState, Unread
from statelake.state_core.printable import Table

if TYPE_CHECKING:
    from statelake.state_core.connectors.sinks import Sink
    from statelake.state_core.connectors.sources import SourceState
    from statelake.state_core.formats.channels import ChannelElements
    from statelake.state_core.formats.description import OperatorDescription, SnapshotDescription
    from statelake.state_core.formats.expiring import ExpiredShare
    from statelake.state_core.formats.key_weights import StateWeights
    from statelake.state_core.formats.layout.state_types import StateTypes
    from statelake.state_core.model.channels import Channel
    from statelake.state_core.model.finding import SearchResult
    from statelake.state_core.serializers.framework.base import TypeSerializer

_Snapshot = TypeVar("_Snapshot", bound=model.Snapshot)

# what not every snapshot has, or nobody asks for, is not imported before
# ruff: noqa: PLC0415

__all__ = [
    "METADATA_FILE",
    "Operator",
    "Snapshot",
    "open_snapshot",
    "snapshot_directory",
    "with_plan",
    "without_raw_timers",
]


class Operator(model.Operator):
    """The model's operator, of which a notebook shows its states."""

    def _repr_html_(self) -> str:
        from statelake.state_core.formats.describing import describe_operator

        states = describe_operator(self, key_groups=False).states_table()
        return Table(repr(self)).to_html() + states.to_html()


class Snapshot(model.Snapshot):
    """An open savepoint or checkpoint: the model, and what formats and connectors tell of it.

    These work on the model, which knows neither. This class is above both: each method imports the
    function that has the knowledge.
    """

    def _repr_html_(self) -> str:
        operators = self.describe(key_groups=False).operators_table()
        return Table(repr(self)).to_html() + operators.to_html()

    def describe(
        self,
        *,
        parallelism: int | None = None,
        entries: bool | None = None,
        schema: bool = False,
        key_groups: bool = True,
        keys: bool = False,
        types: bool = False,
    ) -> SnapshotDescription:
        """Return what it holds: operators, states, types, sizes, key groups and their skew.

        `print` shows it as `statelake inspect` does, a notebook as tables; `to_json` returns what
        `statelake inspect --json` prints.

        Args:
            parallelism: A parallelism at which it might run, for a comparison.
            entries: Whether to count entries and the bytes of their keys and values, which reads
                all state; by default up to 2 GiB. Else key groups have the bytes that files store.
            schema: Whether to list the columns of each state.
            key_groups: Whether to look at key groups; without, nothing is read but `_metadata` and
                the heads of files.
            keys: Whether to name the heaviest key of each operator's heaviest key group.
            types: Whether to list the types of each state, as `types` does, and its serializers.

        Raises:
            CorruptSnapshotError: The bytes are not entries.
            KeyGroupError: The parallelism is out of range.
        """
        from statelake.state_core.formats.describing import describe_snapshot

        return describe_snapshot(
            self, self._described, parallelism=parallelism, entries=entries, schema=schema,
            key_groups=key_groups, keys=keys, types=types,
        )  # fmt: skip

    def _described(self, operator: model.Operator, **words: Any) -> OperatorDescription:
        from statelake.state_core.formats.describing import describe_operator

        return describe_operator(operator, **words)

    def types(self, operator: str | Sequence[str] = ()) -> StateTypes:
        """Return the types of its states as text, which a migration and a check read.

        `print` shows the YAML; timers are left out.

        Args:
            operator: Only these operators, by uid or id; all by default.

        Raises:
            NotFoundError: There is no such operator with state.
        """
        from statelake.state_core.formats.layout.state_compatibility import schemas_of_snapshot
        from statelake.state_core.formats.layout.state_types import types_of

        schemas = schemas_of_snapshot(self)
        wanted = [operator] if isinstance(operator, str) else [*operator]
        hidden = [
            (one, each.problem) for one in self.operators for each in one.unread
            if each.hides_types(one)
            and (not wanted or {one.label, one.operator_id} & {*wanted})
        ]  # fmt: skip
        if not hidden:
            return types_of(schemas, wanted)
        lost = [one for one, _ in hidden if not one.keyed_states and not one.operator_states]
        names = {name for one in lost for name in (one.label, one.operator_id)}
        known = [name for name in wanted if name not in names]
        result = types_of(schemas if known or not wanted else (), known)
        return replace(result, problems=tuple(problem for _, problem in hidden))

    def find(
        self,
        value: object,
        *,
        operator: str | None = None,
        state: str | None = None,
        contains: bool = False,
        limit: int | None = 100,
    ) -> SearchResult:
        """Return where a value is: in keys, namespaces, values, any field or element, timers.

        Texts are compared as they are, numbers by number (with `float` and `double` by the nearest
        one), times as they are shown, bytes by hex. `SearchResult.unsearched` has what was not
        searched, `SearchResult.problems` what could not be read of a partial snapshot.

        Args:
            value: Text as the command line has it (`0x...` for bytes), or a value of Python's.
            operator: Only in this operator: its uid, name or id.
            state: Only in states of that name.
            contains: Whether texts, and bytes, may have more before and behind it.
            limit: How many places are returned; all are counted. None for all.

        Raises:
            NotFoundError: There is no such operator or state.
            CorruptSnapshotError: The bytes are not what the header says they are.
        """
        from statelake.state_core.model.finding import find_in_snapshot

        result = find_in_snapshot(
            self, value, operator=operator, state=state, contains=contains, limit=limit,
            readable=self.partial,
        )  # fmt: skip
        result.problems[:0] = self.problems_of(operator, state)
        return result

    def expired(
        self,
        ttl: timedelta | Mapping[str, timedelta],
        *,
        at: datetime | None = None,
        keys: bool = False,
        limit: int = 100,
        problems: list[str] | None = None,
    ) -> ExpiredShare:
        """Return how much of each state with times of last access has expired.

        Args:
            ttl: The time to live, which no snapshot has: of all states, or by `operator/state`,
                with the empty name for all others.
            at: The time; by default the newest last access.
            keys: Whether to list keys of which something has expired.
            limit: How many keys of each state.
            problems: Receives the unreadable parts, with reasons; without it, an error is raised.

        Raises:
            NotFoundError: A named state does not exist, or has no times of last access.
            CorruptSnapshotError: The bytes are not entries.
        """
        from statelake.state_core.formats.expiring import expired_in_snapshot

        return expired_in_snapshot(
            self, self.top, ttl, at=at, keys=keys, limit=limit, problems=problems
        )

    def sources(self) -> list[SourceState]:
        """Return its sources, with the offsets, positions and splits from which they continue.

        Raises:
            SnapshotError: The state of a source can't be read.
        """
        from statelake.state_core.connectors.sources import sources_of

        return sources_of(self)

    def sinks(self) -> list[Sink]:
        """Return its sinks, with what they have still to commit.

        Raises:
            SnapshotError: The state of a sink can't be read.
        """
        from statelake.state_core.connectors.sinks import sinks_of

        return sinks_of(self)

    def channels(self) -> list[Channel]:
        """Return its channels with records in flight, by operator and subtask."""
        from statelake.state_core.formats.channels import channels_of

        return channels_of(self)

    def read_channels(
        self, operator: str | None = None, *, problems: list[str] | None = None
    ) -> Iterator[ChannelElements]:
        """Yield the elements in flight of each channel: received ones first, then unsent ones.

        Args:
            operator: Only of this operator: its uid or id.
            problems: Receives the unreadable parts, with reasons; without it, an error is raised.

        Raises:
            NotFoundError: The operator has nothing in flight.
            SnapshotError: A file can't be read, or is damaged.
        """
        from statelake.state_core.formats.channels import read_channels

        return read_channels(self.channels(), operator, problems)

    def record_serializer(self, *, type: str = "", like: str = "") -> TypeSerializer | None:  # noqa: A002
        """Return a serializer for `ChannelElements.decode`: no snapshot has the type of records.

        Args:
            type: Their type, as Java writes it: `Tuple2<Long, String>`.
            like: `operator/state`, if they are of the type of a state's values.

        Returns:
            None if neither is given: records are then bytes.

        Raises:
            NotFoundError: There is no such state, or it has no values.
            DeclarationError: Both are given.
            EncodeError: There is no such type.
        """
        from statelake.state_core.formats.channels import record_serializer

        return record_serializer(type, like, self)

    def top(
        self,
        limit: int = 10,
        *,
        operator: str | None = None,
        state: str | None = None,
        ttl: Iterable[timedelta] = (),
        at: datetime | None = None,
        problems: list[str] | None = None,
    ) -> dict[str, dict[str, StateWeights]]:
        """Return the heaviest keys of each keyed state, exactly, by operator and state.

        Args:
            limit: How many keys of each state.
            operator: Only of this operator: its uid, name or id.
            state: Only of the state of that name.
            ttl: Times to live: how much would be gone at each is in `StateWeights.expiries`.
            at: When it would; by default when the snapshot was taken.
            problems: Receives the unreadable parts, with reasons; without it, an error is raised.

        Raises:
            NotFoundError: There is no such operator or state, or no keyed state at all.
            CorruptSnapshotError: The bytes are not entries.
        """
        from statelake.state_core.formats.key_weights import expired_until

        operators = self.keyed_operators(operator, state)
        lives = list(ttl)
        until = expired_until(at or self.taken_at, lives) if lives else []
        weighed = {}
        for each in operators:
            states = [keyed.name for keyed in each.keyed_states if state in (None, *keyed.labels)]
            lost: dict[str, StateError] | None = None if problems is None else {}
            weighed[each.label] = self._weighed(each, limit, states, until, lost)
            if problems is not None:
                problems += each.problems_among(lost or {})
        return weighed

    def _weighed(
        self, operator: model.Operator, most: int, states: Sequence[str],
        until: Sequence[int] = (), lost: dict[str, StateError] | None = None,
    ) -> dict[str, StateWeights]:  # fmt: skip
        """Return the heaviest keys of an operator's states; `lost` receives errors of states."""
        from statelake.state_core.formats.key_weights import weigh_operator, weigh_readable

        if lost is None:
            return weigh_operator(operator, most, states=states, until=until)
        return weigh_readable(operator, most, lost, states=states, until=until)


@dataclass(frozen=True, repr=False)
class PlacedSnapshot(Snapshot):
    """An open savepoint or checkpoint that can be read again, by what is above this library.

    Attributes:
        place: Where it is: a path or URI; None if no other could open it so.
        reading: How it is read: the arguments of `open_snapshot` for that.
        methods: Returns the class of further methods, when one of them is used.
    """

    place: str | None = field(default=None, compare=False)
    reading: Mapping[str, Any] = field(default_factory=dict, compare=False)
    methods: Callable[[], type] = field(default=lambda: object, compare=False)

    def __dir__(self) -> Iterable[str]:
        return {*super().__dir__(), *dir(self.methods())}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            method = None if name.startswith("_") else getattr(self.methods(), name, None)
            if method is None:
                raise AttributeError(f"a snapshot has no attribute {name!r}")
            return method.__get__(self)


def placed(methods: Callable[[], type]) -> Callable[..., PlacedSnapshot]:
    """Return `open_snapshot` for snapshots with the further methods of a class."""

    @wraps(open_snapshot)
    def opened(*values: Any, **words: Any) -> PlacedSnapshot:
        return replace(open_snapshot(*values, **words), methods=methods)

    return opened


def open_snapshot(
    location: str | os.PathLike[str] | Directory,
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    plan: str | os.PathLike[str] | None = None,
    decode: Iterable[str] = (),
    filesystem: Any = None,
    storage_options: Mapping[str, str] | None = None,
    partial: bool = False,
) -> PlacedSnapshot:
    """Open a savepoint or a retained checkpoint.

    Args:
        location: The snapshot's directory or its `_metadata` file, as a path or a URI.
        allow_external: Other directories to which its handles may lead.
        uids: Operator uids to recognise: before Flink 2.0 a snapshot holds only their hashes.
        plan: The compiled plan of its Flink SQL job, as a file: operators, keys and columns of rows
            are named as in its query.
        decode: What texts and bytes hold, `OPERATOR/STATE=json` or `OPERATOR/STATE=avro:FILE` each;
            see `with_contents`.
        filesystem: Arrow's file system, or fsspec's, in which `location` is a path.
        storage_options: Options of `s3://`: `AWS_REGION` and the like; see `with_storage_options`.
        partial: Whether to open it as far as it can be: what can't be read closes nothing else, and
            is in `Snapshot.unread`.

    Raises:
        NotASnapshotError: The location is not a snapshot.
        SnapshotError: It can't be read; the subclass tells the reason. Contradictions are refused,
            as they can't be resolved.
        DeclarationError: The plan is not that of the snapshot's job, or can't be understood.
    """
    if storage_options and not isinstance(location, Directory):
        from statelake.state_core.files.storage_options import with_storage_options

        location = with_storage_options(location, storage_options)
    directory = snapshot_directory(location, filesystem)
    is_elsewhere = filesystem is not None or isinstance(location, Directory)
    place = None if is_elsewhere else os.fspath(cast("str", location))
    reading: dict[str, Any] = {"allow_external": tuple(allow_external), "uids": tuple(uids),
                               "plan": plan, "decode": tuple(decode)}  # fmt: skip
    files = StateFiles(directory, reading["allow_external"])
    metadata = read_metadata(files.metadata(), files.metadata_path)
    files.heads.flink = major_version(metadata.version)
    uid_of = {operator_id_of_uid(uid): uid for uid in reading["uids"]}
    for contradiction in find_contradictions(metadata.operators, uid_of):
        where, path = contradiction.place, files.metadata_path
        raise contradiction.error.within(f"{path}, {where}" if where else path)
    operators = tuple(
        _open_operator(operator, files, uid_of, partial=partial) for operator in metadata.operators
    )
    kind, format_name = kind_and_format(metadata)
    snapshot = PlacedSnapshot(
        directory.uri,
        metadata.version,
        metadata.checkpoint_id,
        kind,
        format_name,
        operators,
        metadata,
        files,
        partial,
        place,
        reading,
    )
    if plan is not None:
        snapshot = with_plan(snapshot, plan)
    if reading["decode"]:
        from statelake.state_core.formats.contents import with_contents

        snapshot = with_contents(snapshot, reading["decode"])
    return snapshot


def with_plan(snapshot: _Snapshot, file: str | os.PathLike[str]) -> _Snapshot:
    """Return a snapshot with the names that a plan gives to its operators and rows.

    Args:
        snapshot: The snapshot.
        file: The compiled plan of its job.

    Raises:
        DeclarationError: The plan is not that of the snapshot's job, or can't be understood.
    """
    from statelake.state_core.plans.naming import names_in
    from statelake.state_core.plans.plan import read_plan

    named = names_in(snapshot, read_plan(file))
    operators = []
    for operator in snapshot.operators:
        names = named.get(operator.operator_id)
        if names is None:
            operators.append(operator)
            continue
        keyed = with_names(operator.keyed_files, names.states) if names.states else None
        operators.append(
            replace(
                operator,
                node=names.label,
                query=names.query,
                keyed_files=keyed or operator.keyed_files,
                keyed_states=merge_states(keyed) if keyed else operator.keyed_states,
            )
        )
    return replace(snapshot, operators=tuple(operators))


def metadata_digest(source: str, allow_external: tuple[str, ...] = ()) -> str:
    """Return the digest of a snapshot's `_metadata`, by which the catalog knows it.

    Args:
        source: The snapshot's directory.
        allow_external: Directories elsewhere to which its handles may lead.

    Raises:
        SnapshotError: It can't be read.
    """
    files = StateFiles(snapshot_directory(source), allow_external)
    return hashlib.sha256(files.metadata()).hexdigest()


def snapshot_directory(
    location: str | os.PathLike[str] | Directory, filesystem: Any = None
) -> Directory:
    """Return the directory of a snapshot, given that or its `_metadata` file.

    Raises:
        NotASnapshotError: The location is not a snapshot.
    """
    directory = location if isinstance(location, Directory) else Directory(location, filesystem)
    if directory.is_file(METADATA_FILE):
        return directory
    if posixpath.basename(directory.root) == METADATA_FILE:
        above = directory.child("..")
        if above.is_file(METADATA_FILE):
            return above
    raise _no_snapshot(directory)


def _no_snapshot(directory: Directory) -> NotASnapshotError:
    remedy = "give the directory of a savepoint or of a retained checkpoint (chk-N)"
    problem = "no `_metadata` file in it" if directory.exists() else "no such directory"
    try:
        below = [name for name in directory.names() if directory.is_file(f"{name}/{METADATA_FILE}")]
    except NotADirectoryError:
        problem, below = "it is a file, and no directory", []
    if below:
        remedy = f"did you mean {directory.full(below[-1])}?"
    return NotASnapshotError(problem, place=directory.full(), remedy=remedy)


def _open_operator(
    state: OperatorMetadata, files: StateFiles, uid_of: dict[str, str], *, partial: bool
) -> Operator:
    uid = state.uid or uid_of.get(state.operator_id, "")
    label = label_of(state, uid_of)
    try:
        check_parallelism(state.max_parallelism, state.parallelism)
    except StateError as error:
        raise error.within(f"operator {label}") from error
    keyed_files: list[KeyedFile] = []
    subtasks = state.subtasks or {}
    handles = [part.managed_keyed for part in subtasks.values() if part.managed_keyed is not None]
    siblings = OperatorHandles(handles, files, state.max_parallelism)
    unread: list[Unread] = []

    def pass_over(index: int, handle: OperatorHandle, error: StateError) -> None:
        unread.append(Unread.of(label, index, "operator state", handle, error))

    for index, subtask in sorted(subtasks.items()):
        if partial:
            keyed_files += _readable_files(index, subtask, siblings, label, unread)
            continue
        whose = f"operator {label}, subtask {index}"
        keyed_files += _keyed_files(subtask, siblings, whose)
    try:
        operator_states, version, compressed = _operator_states(
            state, files, pass_over if partial else None
        )
        states = merge_states(keyed_files)
    except StateError as error:
        raise error.within(f"operator {label}") from error
    budget = files.heads.budget
    budget.spend(STATES, len(states) + len(operator_states), f"operator {label}")
    cells = len(states) * state.max_parallelism
    COUNTED_CELLS.check(cells, f"operator {label}")
    budget.spend(CELLS_IN_ALL, cells, f"operator {label}")
    coordinator = state.coordinator.size if state.coordinator is not None else 0
    operator = Operator(
        state.operator_id,
        uid,
        state.name,
        state.parallelism,
        state.max_parallelism,
        tuple(keyed_files),
        states,
        operator_states,
        version,
        compressed,
        len(state.subtasks or {}),
        coordinator,
        sum(_raw_bytes(subtask, files, partial) for subtask in (state.subtasks or {}).values()),
        sum(in_flight_bytes(subtask) for subtask in (state.subtasks or {}).values()),
        coordinator + sum(subtask_bytes(subtask) for subtask in (state.subtasks or {}).values()),
        finished=state.subtasks is None,
        unread=tuple(unread),
    )
    _check_names(operator, f"operator {label}")
    return operator


def _operator_states(
    state: OperatorMetadata,
    files: StateFiles,
    pass_over: Callable[[int, OperatorHandle, StateError], None] | None,
) -> tuple[tuple[OperatorState, ...], int, bool]:
    """Return an operator's own states, the version of their files, and if these are compressed."""
    if all(subtask.managed_operator is None for subtask in (state.subtasks or {}).values()):
        return (), 0, False
    from statelake.state_core.formats.operator_state.operator_reader import (
        open_non_keyed,
        open_operator_files,
    )

    opened = open_operator_files(state, files, pass_over)
    headers = [file.header for file in opened.values()]
    return (
        open_non_keyed(opened, files.heads),
        max((header.version for header in headers), default=0),
        any(header.compressed for header in headers),
    )


def _check_names(operator: Operator, whose: str) -> None:
    """Refuse names that are text only for Java, as no table and no script could hold them.

    Raises:
        UnsupportedFormatError: A name is not valid text.
    """
    names = [("uid", operator.uid), ("name", operator.name)]
    for keyed in operator.keyed_states:
        names += [
            ("state", keyed.name), ("key's type", keyed.key_type),
            ("namespace's type", keyed.namespace_type), ("user key's type", keyed.user_key_type),
            ("value's type", keyed.value_type),
        ]  # fmt: skip
    for state in operator.operator_states:
        names += [
            ("operator state", state.name), ("key's type", state.key_type),
            ("value's type", state.value_type),
        ]  # fmt: skip
    try:
        for what, name in names:
            check_names([name], f"the {what}")
    except StateError as error:
        raise error.within(whose) from error


def _keyed_files(subtask: SubtaskState, siblings: OperatorHandles, whose: str) -> list[KeyedFile]:
    """Return the files of a subtask's backend, and of RocksDB jobs' timers on the heap."""
    managed, files, max_parallelism = (
        subtask.managed_keyed, siblings.files, siblings.max_parallelism,
    )  # fmt: skip
    try:
        opened = None if managed is None else open_keyed(managed, files, max_parallelism, siblings)
        timers = open_raw_timers(subtask.raw_keyed, files, max_parallelism)
        if opened is not None and timers is not None:
            twice = find_timers_twice(
                (state.name for state in opened.states), (state.name for state in timers.states)
            )
            if twice is not None:
                raise twice
    except StateError as error:
        raise error.within(whose) from error
    return [keyed for keyed in (opened, timers) if keyed is not None]


def _readable_files(
    index: int, subtask: SubtaskState, siblings: OperatorHandles, label: str, unread: list[Unread]
) -> list[KeyedFile]:
    """Return the keyed files of a subtask that can be opened, and note the others."""
    opened: list[KeyedFile] = []
    for what, handle in (
        ("keyed state", subtask.managed_keyed),
        ("raw keyed state", subtask.raw_keyed),
    ):
        if handle is None:
            continue
        opening = PartialOpening()
        try:
            file: KeyedFile | None
            if handle is subtask.managed_keyed:
                file = open_keyed(
                    handle, siblings.files, siblings.max_parallelism, siblings, opening
                )
            else:
                file = open_raw_timers(handle, siblings.files, siblings.max_parallelism)
            if file is None:
                continue
            twice = find_timers_twice(
                (state.name for other in opened for state in other.states),
                (state.name for state in file.states),
            )
            if twice is not None:
                raise twice
        except OversizedError:
            raise  # the next one would take as much again
        except StateError as error:
            unread.append(Unread.of(label, index, what, handle, error))
            continue
        opened.append(file)
        if opening.missing:
            missing = opening.missing[0]
            unread.append(Unread.of(label, index, what, handle, missing, complete=False))
    return opened


def _raw_bytes(subtask: SubtaskState, files: StateFiles, partial: bool) -> int:
    """Return the size of raw state other than timers."""
    try:
        timers = is_timers(subtask.raw_keyed, files)
    except StateError:
        if not partial:
            raise
        timers = False
    rest = replace(subtask, raw_keyed=None) if timers else subtask
    return raw_bytes(rest)


def without_raw_timers(
    metadata: CheckpointMetadata, files: StateFiles, kept: Collection[str] = ()
) -> CheckpointMetadata:
    """Return the same `_metadata` without timers in raw state, which are states like any other.

    Args:
        metadata: The `_metadata`.
        files: Its files.
        kept: The ids of operators that keep theirs, as their keyed state is kept as bytes.
    """

    def strip(subtask: SubtaskState) -> SubtaskState:
        has_timers = is_timers(subtask.raw_keyed, files)
        return replace(subtask, raw_keyed=None) if has_timers else subtask

    operators = [
        operator if operator.operator_id in kept else operator.with_subtasks(strip)
        for operator in metadata.operators
    ]
    return replace(metadata, operators=operators)
