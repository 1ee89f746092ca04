"""What a user says a state is to become: a small YAML or Python file.

::

    states:
      customers/customer:                     # operator uid / state name
        type: {pojo: com.acme.Customer, fields: {id: Long, name: String, full_name: String}}
        expressions:                          # only where Flink itself would not know
          full_name: concat(old.first, ' ', old.last)

A Python file has the same as a module-level `states`, and may register serializers and decoders:
it is loaded as a plugin. One state alone may be given without its name, as `type` and
`expressions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines.lake.migrating import ValueChange
from state_core.errors import EncodeError, StateError
from state_core.serializers.plugins import load_plugin
from state_core.serializers.type_spec import parse_type

__all__ = ["read_changes"]


def read_changes(path: str, only: str = "") -> list[ValueChange]:
    """The changes that a file describes.

    Args:
        path: The file, `.yaml`, `.yml`, `.json` or `.py`. A Python file is run.
        only: `operator/state`: just this one.

    Raises:
        EncodeError: The file can't be understood; the message names the place in it.
    """
    found = _states(path, _load(path), only)
    if only and only not in found:
        raise EncodeError(
            f"nothing is said of {only}", place=path, remedy=f"it has: {', '.join(found)}"
        )
    wanted = {only: found[only]} if only else found
    return [_change(path, name, said) for name, said in wanted.items()]


def _load(path: str) -> Mapping[str, Any]:
    try:
        if path.endswith(".py"):
            return vars(load_plugin(path))
        read = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise EncodeError(
            f"it can't be read ({' '.join(str(error).split())})",
            place=path,
            remedy="give a YAML or Python file that says what each state is to become",
        ) from error
    if not isinstance(read, Mapping):
        raise EncodeError("it holds no mapping", place=path, remedy="begin it with `states:`")
    return read


def _states(path: str, held: Mapping[str, Any], only: str) -> Mapping[str, Any]:
    states = held.get("states")
    if states is None and "type" in held and only:
        return {only: {name: held[name] for name in ("type", "expressions") if name in held}}
    if not isinstance(states, Mapping) or not states:
        raise EncodeError("it says nothing of any state", place=path, remedy="add `states:`")
    return states


def _change(path: str, name: str, said: Any) -> ValueChange:
    operator, _, state = name.partition("/")
    if not isinstance(said, Mapping) or "type" not in said or not state:
        raise EncodeError(
            f"states: {name}: not of the form operator/state: {{type: ...}}", place=path
        )
    try:
        value = parse_type(said["type"])
    except StateError as error:
        raise error.within(f"{path}, {name}") from error
    expressions = said.get("expressions") or {}
    if isinstance(expressions, str):
        expressions = {"": expressions}
    asked = {name: str(one) for name, one in expressions.items()}
    return ValueChange(operator, state, value, asked, said["type"])
