"""YAML of users with the lines that its keys are on, so that a message can name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from state_core.errors import EncodeError

__all__ = ["SpecLines", "read_yaml"]


@dataclass(frozen=True)
class SpecLines:
    """The line of each key, by the keys that lead to it; empty where there are no lines."""

    lines: Mapping[tuple[str, ...], int]

    def of(self, keys: tuple[str, ...]) -> int:
        """The line of a key, or else of the nearest one above it; 0 if there is none."""
        while keys:
            if keys in self.lines:
                return self.lines[keys]
            keys = keys[:-1]
        return 0


def read_yaml(path: str, first: str, remedy: str) -> tuple[Mapping[str, Any], SpecLines]:
    """A file's mapping, and its lines.

    Args:
        path: The file.
        first: The key that it begins with.
        remedy: What to give, where it can't be read.

    Raises:
        EncodeError: The file can't be read, is no mapping, or has a key twice.
    """
    try:
        text = Path(path).read_text("utf-8")
        content = yaml.safe_load(text)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise EncodeError(
            f"it is no YAML: {error.problem}", place=f"{path}:{line}",
            remedy="mind the indentation, and quote what holds a colon, or a comma in braces",
        ) from error  # fmt: skip
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise EncodeError(
            f"it can't be read ({' '.join(str(error).split())})", place=path, remedy=remedy
        ) from error
    if not isinstance(content, Mapping):
        raise EncodeError("it holds no mapping", place=path, remedy=f"begin it with `{first}:`")
    lines: dict[tuple[str, ...], int] = {}
    _note(path, root, (), lines)
    return content, SpecLines(lines)


def _note(
    path: str, node: yaml.Node | None, at: tuple[str, ...], lines: dict[tuple[str, ...], int]
) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = (*at, str(key.value))
        if name in lines:  # or the last one would win without a word
            raise EncodeError(
                f"`{key.value}` is there twice, the first time in line {lines[name]}",
                place=f"{path}:{key.start_mark.line + 1}",
                remedy="keep one of them",
            )
        lines[name] = key.start_mark.line + 1
        _note(path, value, name, lines)
