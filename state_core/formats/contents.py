"""The content of texts and bytes in a snapshot's states, as the user declares it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    NotFoundError,
    StateError,
    did_you_mean,
)
from statelake.state_core.formats.keyed.keyed_files import merge_states, with_names
from statelake.state_core.formats.layout.keyed_states import check_names
from statelake.state_core.model.snapshot import KeyedState, RowNames, Snapshot, StateKind
from statelake.state_core.serializers.contents.avro_messages import AvroMessages
from statelake.state_core.serializers.contents.json_texts import JsonTexts, shape_of
from statelake.state_core.serializers.contents.sayings import content_of

SAMPLE = 10_000  # values from which a shape is found
FORMS = "OPERATOR/STATE=json, =json:SHAPE_OR_FILE or =avro:FILE"
ANY_TEXT = 'json "json"'
_LARGEST_FILE = 1 << 24
_Snapshot = TypeVar("_Snapshot", bound=Snapshot)


def with_contents(
    snapshot: _Snapshot, decode: Iterable[str], before: Mapping[tuple[str, str], str] | None = None
) -> _Snapshot:
    """Return a snapshot in which texts and bytes of some states have the types of their content.

    Args:
        snapshot: The snapshot.
        decode: For each state `OPERATOR/STATE=FORM`: `json`, of the shape that its values have;
            `json:SHAPE`, or a file with it; `avro:FILE`, a schema, or schemas by number.
        before: What was declared of states earlier, by operator id and name: their shapes grow.

    Raises:
        NotFoundError: There is no such keyed state.
        DeclarationError: A state is given twice.
        EncodeError: The form is not known, or no value of the state is JSON.
        IncompatibleError: The values are neither text nor bytes.
    """
    states = {
        f"{label}/{state.name}": (operator, state)
        for operator in snapshot.operators
        for label in filter(None, (operator.label, operator.operator_id, operator.node))
        for state in operator.keyed_states
        if state.kind is not StateKind.TIMERS
    }
    names: dict[str, dict[str, RowNames]] = {}
    done: set[tuple[str, str]] = set()
    for word in decode:
        name, form = state_in(word, states)
        operator, state = states[name]
        if (operator.operator_id, state.name) in done:
            raise DeclarationError("it is given twice", place=name, remedy="give it once")
        done.add((operator.operator_id, state.name))
        try:
            check_names(state.meta_info, RowNames(content=ANY_TEXT))
            earlier = (before or {}).get((operator.operator_id, state.name), "")
            saying = saying_of(form, state, earlier)
        except StateError as error:
            raise error.within(name) from error
        mine = names.setdefault(
            operator.operator_id, {each.name: each.names for each in operator.keyed_states}
        )
        mine[state.name] = replace(mine[state.name], content=saying)
    operators = [
        replace(
            operator,
            keyed_files=(files := with_names(operator.keyed_files, names[operator.operator_id])),
            keyed_states=merge_states(files),
        )
        if operator.operator_id in names
        else operator
        for operator in snapshot.operators
    ]
    return replace(snapshot, operators=tuple(operators))


def state_in(word: str, names: Collection[str]) -> tuple[str, str]:
    """Return the name of the state with which a word begins, and what is behind its `=`.

    The longest name counts, as names may have any characters.

    Raises:
        NotFoundError: It begins with no state.
    """
    fitting = [name for name in names if word.startswith(f"{name}=")]
    if not fitting:
        shown = ", ".join(sorted(names)) or "none"
        raise NotFoundError(
            f"{word!r} begins with no keyed state, and is to be {FORMS}",
            remedy=f"there are: {shown}{did_you_mean(word, sorted(names))}",
        )
    name = max(fitting, key=len)
    return name, word[len(name) + 1 :]


def saying_of(form: str, state: KeyedState, before: str = "") -> str:
    """Return the declared content of a state, as it is kept with it.

    Args:
        form: `json`, `json:` and a shape or a file with it, or `avro:` and a file.
        state: The state, of which a shape is found in the first values.
        before: What was declared earlier: a detected shape grows from it.

    Raises:
        DeclarationError: It is no such form, or a file can't be read.
        EncodeError: It is no shape, or no schema; or no value is JSON.
    """
    kind, colon, rest = form.partition(":")
    if kind not in ("json", "avro") or (kind == "avro" and not rest) or (colon and not rest):
        raise DeclarationError(f"{form!r} is no form of what a state holds", remedy=f"say {FORMS}")
    if kind == "avro":
        return AvroMessages.parse(_content(rest)).saying
    if rest:
        is_shape = rest.lstrip()[:1] in ("{", "[", '"')
        return JsonTexts.parse(rest if is_shape else _content(rest)).saying
    known = content_of(before) if before.startswith("json ") else None
    shape = shape_of(_texts(state), known.shape if isinstance(known, JsonTexts) else None)
    if shape is None:
        raise EncodeError(
            f"none of the first {SAMPLE} values is JSON",
            remedy="leave the state out, or say the shape: =json:SHAPE",
        )
    return JsonTexts(shape).saying


def _content(file: str) -> str:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - a path that the user gives, as it is
            data = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise DeclarationError(f"it can't be read ({error.strerror})", place=file) from error
    if len(data) > _LARGEST_FILE:
        raise DeclarationError(f"more than {_LARGEST_FILE} bytes", place=file)
    try:
        json.loads(data)
        return data.decode()
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"not JSON ({error})", place=file) from error


def _texts(state: KeyedState) -> Iterator[bytes]:
    """Return the first texts of a state."""
    values = (
        text
        for batch in state.batches(columns=["value"])
        for text in _flat(batch.column(0)).cast(pa.binary()).to_pylist()
        if text is not None
    )
    return islice(values, SAMPLE)


def _flat(column: pa.Array) -> pa.Array:
    """Return the values of a column; the elements of one of lists."""
    return column.flatten() if pa.types.is_list(column.type) else column
