"""Users' YAML with the lines of its keys, so that a message can name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from statelake.state_core.errors import EncodeError

MOST_VALUES = 1 << 18
LONGEST_NUMBER = (
    4300  # characters, as Python has it: the time to read `1:1:1` grows with its square
)


@dataclass(frozen=True)
class SpecLines:
    """The line of each key, by the path of keys; empty without lines."""

    lines: Mapping[tuple[str, ...], int]

    def of(self, keys: tuple[str, ...]) -> int:
        """Return the line of a key, or else of the nearest one above it; 0 without one."""
        while keys:
            if keys in self.lines:
                return self.lines[keys]
            keys = keys[:-1]
        return 0


def read_yaml(path: str, first: str, remedy: str) -> tuple[Mapping[str, Any], SpecLines]:
    """Read a file's mapping, and its lines.

    Args:
        path: The file.
        first: The key with which it begins.
        remedy: The remedy of the error if it can't be read.

    Raises:
        EncodeError: The file can't be read, is not a mapping, has a key twice or a number that is
            too long, or its aliases expand without end, or to more than `MOST_VALUES`.
    """
    try:
        text = Path(path).read_text("utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
        _check_aliases(path, root)
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise EncodeError(
            f"it is no YAML: {error.problem}", place=f"{path}:{line}",
            remedy="mind the indentation, and quote what holds a colon, or a comma in braces",
        ) from error  # fmt: skip
    except EncodeError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise EncodeError(
            f"it can't be read ({' '.join(str(error).split())})", place=path, remedy=remedy
        ) from error
    if not isinstance(content, Mapping):
        raise EncodeError("it holds no mapping", place=path, remedy=f"begin it with `{first}:`")
    lines: dict[tuple[str, ...], int] = {}
    _note(path, root, (), lines)
    return content, SpecLines(lines)


def _check_aliases(path: str, root: yaml.Node | None) -> None:
    """Refuse aliases that expand a few lines too far.

    Raises:
        EncodeError: A value contains itself, or too many values.
    """
    sizes: dict[yaml.Node, int | None] = {}  # None while a node is walked

    def size_of(node: yaml.Node) -> int:
        size = sizes.setdefault(node, 0)
        if size is None:
            raise EncodeError(
                "it holds itself", place=f"{path}:{node.start_mark.line + 1}",
                remedy="let no alias (*) stand within what it names (&)",
            )  # fmt: skip
        if isinstance(node, yaml.ScalarNode):
            _check_number(path, node)
        if size == 0 and isinstance(node, yaml.CollectionNode):
            sizes[node] = None
            parts = (
                [part for pair in node.value for part in pair]
                if isinstance(node, yaml.MappingNode)
                else node.value
            )
            sizes[node] = size = sum(map(size_of, parts))
        return size + 1

    if root is not None and size_of(root) > MOST_VALUES:
        raise EncodeError(
            f"with what its aliases stand for, it has more than {MOST_VALUES} values", place=path,
            remedy="write out what is needed, or split the file",
        )  # fmt: skip


def _check_number(path: str, node: yaml.ScalarNode) -> None:
    if node.tag.endswith((":int", ":float")) and len(node.value) > LONGEST_NUMBER:
        raise EncodeError(
            f"a number has more than {LONGEST_NUMBER} characters",
            place=f"{path}:{node.start_mark.line + 1}", remedy="put it in quotes if it is a text",
        )  # fmt: skip


def _note(
    path: str, node: yaml.Node | None, at: tuple[str, ...], lines: dict[tuple[str, ...], int]
) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = (*at, str(key.value))
        if name in lines:  # otherwise the last one would win silently
            raise EncodeError(
                f"`{key.value}` is there twice, the first time in line {lines[name]}",
                place=f"{path}:{key.start_mark.line + 1}",
                remedy="keep one of them",
            )
        lines[name] = key.start_mark.line + 1
        _note(path, value, name, lines)
