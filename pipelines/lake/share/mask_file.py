"""Read a mask: a user's rules in a YAML file.

::

    secret: {env: MASK_SECRET}       # or {file: /run/secrets/mask}: never in this file
    keys:                            # by operator: in all its keyed states and timers
      customers: format
      orders: {f0: format, f1: keep} # keys of several fields
    states:                          # by operator/state
      customers/name: format         # all its columns: format, hash, null, {constant: ...}
      customers/total: keep          # as they are
      customers/session: drop        # the state is left out
      customers/person:              # by column, or by part of one: all of them
        value: format
        value.vip: keep              # a part has its own rule within that of the whole
        user_key: hash               # of a map; `key` of a broadcast state; `namespace`
    others: drop                     # or keep: states without a rule, which are refused otherwise

A name that a snapshot does not have is refused, so that a typing error is noticed; and so is every
field without a rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statelake.pipelines.lake.share.masking import (
    ALL_COLUMNS,
    CONSTANT,
    FORMAT,
    HASH,
    KEEP,
    NULL,
    MaskRule,
)
from statelake.pipelines.yaml_lines import read_yaml
from statelake.state_core.errors import EncodeError
from statelake.state_core.nested import ELEMENTS

__all__ = ["DROP", "KEEP", "Mask", "read_mask"]

DROP = "drop"
SHORTEST_SECRET = 16
_COLUMNS = ("value", "user_key", "namespace", "key")
_STEP = re.compile(r"\[\]|\.?[^.\[\]]+")
_SECTIONS = {"secret", "keys", "states", "others"}


@dataclass(frozen=True)
class Mask:
    """The content of a mask file.

    Attributes:
        path: The file, for messages.
        secret: The secret of the masking; empty if no rule needs one.
        keys: By operator, the rules of its keys.
        states: By operator/state, its rules, or `drop`.
        others: `keep` or `drop` for all others; empty if they are refused.
    """

    path: str
    secret: bytes = field(repr=False)
    keys: Mapping[str, tuple[MaskRule, ...]]
    states: Mapping[str, tuple[MaskRule, ...] | str]
    others: str


def read_mask(path: str) -> Mask:
    """Read a mask file, and the secret that it names.

    Raises:
        EncodeError: The file is not valid, or there is no such secret; the message names
            the place, and never the secret.
    """
    content, _ = read_yaml(
        path, "states", "give a YAML file with the rules of the mask: docs/share.md"
    )
    unknown = sorted(map(str, set(content) - _SECTIONS))
    if unknown:
        raise _fault(
            path,
            ", ".join(map(repr, unknown)),
            f"not a section of a mask, which are: {', '.join(sorted(_SECTIONS))}",
        )
    others = content.get("others", "")
    if others not in ("", KEEP, DROP):
        raise _fault(path, "others", f"{others!r} is neither keep nor drop")
    keys = {
        name: _key_rules(path, f"keys: {name}", rule)
        for name, rule in _mapping(path, content, "keys")
    }
    states = {
        name: _state_rules(path, f"states: {name}", rule)
        for name, rule in _mapping(path, content, "states")
    }
    rules = [*keys.values(), *(rules for rules in states.values() if not isinstance(rules, str))]
    needed = any(rule.needs_secret for each in rules for rule in each)
    if needed and "secret" not in content:
        raise _fault(path, "secret", "format and hash need one: {env: NAME}, or {file: PATH}")
    secret = _secret(path, content["secret"]) if "secret" in content else b""
    return Mask(path, secret, keys, states, others)


def _mapping(path: str, content: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    mapping = content.get(name) or {}
    if not isinstance(mapping, Mapping):
        raise _fault(path, name, "not a mapping")
    return [(str(key), value) for key, value in mapping.items()]


def _key_rules(path: str, place: str, given: Any) -> tuple[MaskRule, ...]:
    if isinstance(given, Mapping):
        parts = [("key." + str(part), rule) for part, rule in given.items()]
    else:
        parts = [("key", given)]
    rules = _rules(path, place, parts)
    for rule in rules:
        if rule.how in (NULL, CONSTANT):
            raise _fault(path, place, f"masked keys must stay different, unlike with {rule.how}")
    return rules


def _state_rules(path: str, place: str, rules: Any) -> tuple[MaskRule, ...] | str:
    if rules == DROP:
        return DROP
    if isinstance(rules, Mapping) and set(rules) != {CONSTANT}:
        return _rules(path, place, [(str(part), rule) for part, rule in rules.items()])
    return (_rule(path, place, ALL_COLUMNS, (), rules),)


def _rules(path: str, place: str, parts: list[tuple[str, Any]]) -> tuple[MaskRule, ...]:
    """Return the rules of some parts."""
    rules = []
    for part, given in parts:
        steps = _STEP.findall(part)
        column = steps[0] if steps else ""
        if "".join(steps) != part or column not in _COLUMNS:
            raise _fault(
                path,
                f"{place}, {part!r}",
                f"not a column: it must begin with one of {', '.join(_COLUMNS)}",
            )
        names = tuple(step if step == ELEMENTS else step.lstrip(".") for step in steps[1:])
        rules.append(_rule(path, f"{place}, {part!r}", column, names, given))
    return tuple(rules)


def _rule(path: str, place: str, column: str, steps: tuple[str, ...], given: Any) -> MaskRule:
    if isinstance(given, Mapping) and set(given) == {CONSTANT}:
        return MaskRule(column, steps, CONSTANT, given[CONSTANT])
    if given is None or given in (FORMAT, HASH, NULL, KEEP):
        return MaskRule(column, steps, NULL if given is None else str(given))
    if given == DROP:
        raise _fault(path, place, "a part can't be dropped: its type would be another; use null")
    raise _fault(
        path,
        place,
        f"{given!r} is not one of {FORMAT}, {HASH}, {NULL}, {KEEP}, {{{CONSTANT}: ...}}",
    )


def _secret(path: str, given: Any) -> bytes:
    """Return the secret, from the place that the file names."""
    kinds = set(given) if isinstance(given, Mapping) else set()
    if kinds not in ({"env"}, {"file"}):
        raise _fault(path, "secret", "it is neither {env: NAME} nor {file: PATH}")
    if kinds == {"env"}:
        named = str(given["env"])
        secret = os.environ.get(named, "").encode("utf-8", "surrogateescape")
        where = f"the environment variable {named}"
    else:
        named = where = str(given["file"])
        try:
            secret = Path(named).read_bytes().strip()
        except OSError as error:
            raise _fault(path, "secret", f"{named} can't be read ({error.strerror})") from error
    if len(secret) < SHORTEST_SECRET:
        raise _fault(path, "secret", f"{where} has no secret of {SHORTEST_SECRET} bytes or more")
    return secret


def _fault(path: str, part: str, problem: str) -> EncodeError:
    return EncodeError(
        f"{part}: {problem}",
        place=path,
        remedy="docs/share.md has an example of all settings",
    )
