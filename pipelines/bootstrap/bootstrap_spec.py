"""Read the specification of a new job's state: a small YAML or Python file, or a mapping.

::

    operators:
      counter:                            # the uid that the job sets
        key_type: String
        parallelism: 2
        states:
          count:
            type: Long
            source: customers.csv         # a column `key` and a column `value` ...
            key: customer                 # ... unless the columns are named
            value: orders

A Python file has the same as a module-level `operators`, and may register serializers. The message
for every mistake has the line, the operator and state, and what would be legal there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statelake.pipelines.bootstrap.bootstrap_columns import ColumnPlan, plan_column
from statelake.pipelines.yaml_lines import SpecLines, read_yaml
from statelake.state_core.errors import EncodeError, StateError, did_you_mean
from statelake.state_core.model.key_groups import MAX_PARALLELISM_LIMIT
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.plugins import load_plugin
from statelake.state_core.serializers.type_spec import parse_type

KEYED = ("value", "list", "map", "reducing", "aggregating")
MODES = ("split", "union", "broadcast")
DOMAINS = ("event", "processing")
USER_TIMERS = "user-timers"
OPERATOR_KEYS = (
    "name", "parallelism", "max_parallelism", "key_type", "key", "source", "states", "timers",
    "operator_states",
)  # fmt: skip
DEFAULTS = ("parallelism", "max_parallelism", "source")
Keys = tuple[str, ...]


@dataclass(frozen=True)
class StateSpec:
    """One state.

    Attributes:
        name: The name in the job's descriptor; for timers, of their service.
        kind: A kind of keyed state, `timers`, or a mode of operator state.
        place: The line, operator and state, for messages.
        source: The source of its rows: a path, or an object.
        columns: The plans of its columns.
        types: Its types: `type`, `user_key_type`, `namespace_type`, `key_type`.
        domain: For timers: `event` or `processing`.
    """

    name: str
    kind: str
    place: str
    source: Any
    columns: Mapping[str, ColumnPlan]
    types: Mapping[str, TypeSerializerSnapshot]
    domain: str = ""

    @property
    def label(self) -> str:
        """Its name in messages."""
        if self.kind == "timers":
            return f"timers {self.domain}/{self.name}"
        return f"operator state {self.name!r}" if self.kind in MODES else f"state {self.name!r}"


@dataclass(frozen=True)
class OperatorSpec:
    """One operator with its states."""

    uid: str
    name: str = ""
    key_type: TypeSerializerSnapshot | None = None
    parallelism: int = 1
    max_parallelism: int | None = None
    states: tuple[StateSpec, ...] = ()
    operator_states: tuple[StateSpec, ...] = ()


@dataclass(frozen=True)
class BootstrapSpec:
    """A whole specification.

    Attributes:
        name: The file, for messages.
        directory: The base of relative paths.
        operators: In the order of the file.
    """

    name: str
    directory: str
    operators: tuple[OperatorSpec, ...] = field(default_factory=tuple)


def read_bootstrap_spec(given: str | Path | Mapping[str, Any]) -> BootstrapSpec:
    """Read the specification in a file or a mapping.

    Args:
        given: A `.yaml`, `.yml` or `.json` file, a `.py` file, which is run, or a mapping.

    Raises:
        EncodeError: The file is not valid; the message names the line, or the state.
    """
    if isinstance(given, Mapping):
        return _SpecReader("the spec", given, SpecLines({})).spec(".")
    path = str(given)
    content: Mapping[str, Any]
    if path.endswith(".py"):
        module = vars(load_plugin(path))
        names = [name for name in ("operators", *DEFAULTS) if name in module]
        content, lines = {name: module[name] for name in names}, SpecLines({})
    else:
        content, lines = read_yaml(
            path, "operators", "give a YAML or Python file that begins with `operators`"
        )
    return _SpecReader(path, content, lines).spec(str(Path(path).parent))


class _SpecReader:
    def __init__(self, path: str, content: Mapping[str, Any], lines: SpecLines) -> None:
        self.path = path
        self.content = content
        self.lines = lines

    def place(self, keys: Keys, what: str = "") -> str:
        """Return the file and line of a key, and its operator and state."""
        line = self.lines.of(keys)
        where = f"{self.path}:{line}" if line else self.path
        return f"{where}, {what}" if what else where

    def spec(self, directory: str) -> BootstrapSpec:
        """Parse the whole specification."""
        self.known(self.content, ("operators", *DEFAULTS), (), "")
        operators = self.mapping(self.content.get("operators"), ("operators",), "operators")
        operator_specs = tuple(self.operator(str(uid), given) for uid, given in operators.items())
        return BootstrapSpec(self.path, directory, operator_specs)

    def operator(self, uid: str, given: Any) -> OperatorSpec:
        """Parse one operator."""
        at, what = ("operators", uid), f"operator {uid}"
        content = self.mapping(given, at, what)
        self.known(content, OPERATOR_KEYS, at, what)
        defaults = {name: self.content[name] for name in DEFAULTS if name in self.content} | dict(
            content
        )
        states = [
            self.keyed(str(name), state, (*at, "states", str(name)), what, defaults)
            for name, state in self.optional(content, "states", at, what).items()
        ]
        states += [
            self.timers(str(name), timers, (*at, "timers", str(name)), what, defaults)
            for name, timers in self.optional(content, "timers", at, what).items()
        ]
        others = [
            self.unkeyed(str(name), state, (*at, "operator_states", str(name)), what, defaults)
            for name, state in self.optional(content, "operator_states", at, what).items()
        ]
        if not states and not others:
            raise EncodeError(
                "it has no states", place=self.place(at, what),
                remedy="add `states`, `timers` or `operator_states`",
            )  # fmt: skip
        key = self.type_of(content, "key_type", at, what) if states else None
        return OperatorSpec(
            uid,
            str(content.get("name", "")),
            key,
            self.number(defaults, "parallelism", at, what) or 1,
            self.number(defaults, "max_parallelism", at, what),
            tuple(states),
            tuple(others),
        )

    def keyed(
        self, name: str, given: Any, at: Keys, operator: str, defaults: Mapping[str, Any]
    ) -> StateSpec:
        """Parse one keyed state."""
        what = f"{operator}, state {name!r}"
        content = self.mapping(given, at, what)
        kind = self.choice(content.get("kind", "value"), KEYED, (*at, "kind"), what)
        of_map = ("user_key_type", "user_key") if kind == "map" else ()
        columns = ("key", "namespace", *of_map[1:], "value", "ttl")
        types = ("type", *of_map[:1], "namespace_type")
        return self.state(
            name, kind, content, at, what, defaults, columns=columns, types=types, needed=types[:-1]
        )

    def timers(
        self, name: str, given: Any, at: Keys, operator: str, defaults: Mapping[str, Any]
    ) -> StateSpec:
        """Parse the timers of one domain and service."""
        what = f"{operator}, timers {name}"
        content = self.mapping(given, at, what)
        domain, _, service = name.partition("/")
        self.choice(domain, DOMAINS, at, what)
        return self.state(
            service or USER_TIMERS, "timers", content, at, what, defaults,
            columns=("key", "namespace", "timestamp"), types=("namespace_type",), needed=(),
            domain=domain,
        )  # fmt: skip

    def unkeyed(
        self, name: str, given: Any, at: Keys, operator: str, defaults: Mapping[str, Any]
    ) -> StateSpec:
        """Parse one operator state."""
        what = f"{operator}, operator state {name!r}"
        content = self.mapping(given, at, what)
        kind = self.choice(content.get("kind"), MODES, (*at, "kind"), what)
        broadcast = kind == "broadcast"
        columns = ("key", "value") if broadcast else ("subtask", "position", "value")
        types = ("type", "key_type") if broadcast else ("type",)
        shared = {name: default for name, default in defaults.items() if name == "source"}
        return self.state(
            name, kind, content, at, what, shared, columns=columns, types=types, needed=types
        )

    def state(
        self,
        name: str,
        kind: str,
        content: Mapping[str, Any],
        at: Keys,
        what: str,
        defaults: Mapping[str, Any],
        *,
        columns: Keys,
        types: Keys,
        needed: Keys,
        domain: str = "",
    ) -> StateSpec:
        """Parse one state of any kind."""
        self.known(content, ("kind", *types, "source", *columns), at, what)
        source = content.get("source", defaults.get("source"))
        if source is None:
            raise EncodeError(
                "it has no `source`", place=self.place(at, what),
                remedy="give a Parquet, Delta, CSV or JSON-lines path, {lake: ...}, or {sql: ...}",
            )  # fmt: skip
        serializers = {
            type_: self.type_of(content, type_, at, what)
            for type_ in types if type_ in needed or type_ in content
        }  # fmt: skip
        optional = {
            "namespace": "namespace_type" in content, "ttl": False, "subtask": False,
            "position": False,
        }  # fmt: skip
        plans = {}
        for column in columns:
            shared = defaults.get("key") if column == "key" else None
            wanted = content.get(column, shared)
            if wanted is None and column not in content:
                if not optional.get(column, True):
                    continue
                wanted = column
            if column == "namespace" and "namespace_type" not in content:
                raise EncodeError(
                    "a `namespace` without a `namespace_type`", place=self.place(at, what)
                )
            plans[column] = plan_column(wanted, self.place((*at, column), f"{what}, `{column}`"))
        return StateSpec(name, kind, self.place(at, what), source, plans, serializers, domain)

    def mapping(self, given: Any, at: Keys, what: str) -> Mapping[str, Any]:
        """Return a mapping that is not empty."""
        if isinstance(given, Mapping) and given:
            return given
        raise EncodeError(
            f"it is to be a mapping, and is {given!r}" if given else "it says nothing",
            place=self.place(at, what),
            remedy={"operators": "begin with `operators:`, and below it each operator's uid"}.get(
                what, "see docs/bootstrap.md for what belongs there"
            ),
        )

    def optional(
        self, content: Mapping[str, Any], name: str, at: Keys, what: str
    ) -> Mapping[str, Any]:
        """Return a mapping that may be left out."""
        if name not in content:
            return {}
        return self.mapping(content[name], (*at, name), f"{what}, `{name}`")

    def known(self, content: Mapping[str, Any], legal: Sequence[str], at: Keys, what: str) -> None:
        """Refuse unknown keys."""
        for name in content:
            if name not in legal:
                raise EncodeError(
                    f"`{name}` means nothing here",
                    place=self.place((*at, str(name)), what),
                    remedy=f"legal: {', '.join(legal)}{did_you_mean(str(name), legal)}",
                )

    def choice(self, given: Any, legal: Sequence[str], at: Keys, what: str) -> str:
        """Return one of the legal words."""
        if given not in legal:
            problem = f"no kind {given!r}" if given is not None else "it has no `kind`"
            if legal is DOMAINS:
                problem = f"no domain {given!r}"
            place = self.place(at if self.lines.of(at) else at[:-1], what)
            raise EncodeError(problem, place=place, remedy=f"legal: {', '.join(legal)}")
        return str(given)

    def type_of(
        self, content: Mapping[str, Any], name: str, at: Keys, what: str
    ) -> TypeSerializerSnapshot:
        """Parse a type."""
        if name not in content:
            raise EncodeError(
                f"it has no `{name}`", place=self.place(at, what), remedy="write one, such as Long"
            )
        given = content[name]
        if isinstance(given, TypeSerializerSnapshot):
            return given
        return self._parsed(lambda: parse_type(given), (*at, name), f"{what}, `{name}`")

    def _parsed(
        self, parse: Callable[[], TypeSerializerSnapshot], at: Keys, what: str
    ) -> TypeSerializerSnapshot:
        try:
            return parse()
        except StateError as error:
            raise error.within(self.place(at, what)) from error

    def number(self, content: Mapping[str, Any], name: str, at: Keys, what: str) -> int | None:
        """Parse a parallelism."""
        if name not in content:
            return None
        given = content[name]
        if (
            isinstance(given, bool)
            or not isinstance(given, int)
            or not 1 <= given <= MAX_PARALLELISM_LIMIT
        ):
            raise EncodeError(
                f"{name} {given!r}", place=self.place((*at, name), what),
                remedy=f"a number from 1 to {MAX_PARALLELISM_LIMIT}",
            )  # fmt: skip
        return given
