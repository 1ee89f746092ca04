"""The page of a report: one file with style, script and data, and no external address."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelake.pipelines.report.contents import (
    DETAILED,
    DETAILED_STATES,
    Integrity,
    Report,
    ReportResult,
)
from statelake.pipelines.report.drawing import growth_line, key_group_chart
from statelake.pipelines.report.markup import Html, content_policy, data_text, table, tag
from statelake.pipelines.shown import bytes_text, json_text, plain
from statelake.state_core.errors import ConflictError, SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.description import OperatorDescription, StateDescription
from statelake.state_core.printable import Table, change_text, count_text

if TYPE_CHECKING:
    from statelake.pipelines.find.growth import Growth

SHOWN_OPERATORS = 500
SHOWN_SUBTASKS = 100
SHOWN_KEYS = 500  # keys of all states of one operator
SHOWN_GROUPS = 10
SHOWN_FAULTS = 500
SHOWN_SNAPSHOTS = 100
SHOWN_GROWN = 500  # states of a job, by their growth
LONGEST_KEY = 200


def write_report(
    gather: Callable[[], Report], to: str | os.PathLike[str], *, overwrite: bool = False
) -> ReportResult:
    """Write the page of a report.

    Args:
        gather: Returns the report; called once it is known that the file can be written.
        to: The file, a path or URI; its directory must exist.
        overwrite: Whether to replace a file.

    Raises:
        ConflictError: The file exists.
        SnapshotError: The path names no file, or its directory does not exist.
    """
    _open_target(to, overwrite=overwrite)
    report = gather()
    page = page_of(report).encode()
    directory, name = _open_target(to, overwrite=overwrite)  # again, as gathering may take long
    directory.write(name, page)
    faults = None if report.integrity is None else len(report.integrity.faults)
    return ReportResult(os.fspath(to), len(page), len(report.operators), faults, report.problems)


def _open_target(to: str | os.PathLike[str], *, overwrite: bool) -> tuple[Directory, str]:
    """Return the directory of a file that is to be written, and its name there.

    Raises:
        ConflictError: The file exists.
        SnapshotError: The path names no file, or its directory does not exist.
    """
    target = os.fspath(to)
    above, name = posixpath.split(target)
    directory = Directory(above or ".")
    refuse_target(directory, name, target, overwrite=overwrite)
    return directory, name


def refuse_target(directory: Directory, name: str, target: str, *, overwrite: bool) -> None:
    """Refuse a file that can't be written, or must not be.

    Raises:
        ConflictError: The file exists.
        SnapshotError: The path names no file, or its directory does not exist.
    """
    if not directory.is_object_store and not directory.exists():
        raise SnapshotError(
            "there is no such directory", place=directory.uri, remedy="make it first"
        )
    if not name or (directory.exists(name) and not directory.is_file(name)):
        raise SnapshotError("this is a directory", place=target, remedy="name a file in it")
    if directory.exists(name) and not overwrite:
        raise ConflictError("the file is there", place=target, remedy="--overwrite replaces it")


def page_of(report: Report) -> str:
    """Return a report as HTML; equal reports have equal pages, to the byte."""
    style, script = _own("page.css"), _own("page.js")
    detailed = [
        (number, operator)
        for number, operator in enumerate(report.operators[:DETAILED])
        if operator.states or operator.other or operator.problem
    ]
    drawn = [(number, operator) for number, operator in detailed if _is_drawn(operator)]
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        # before the elements to which it applies
        Html(
            f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style, script)}">'
        ),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"State of {report.title}"),
        Html(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag(
            "main",
            tag("h1", f"State of {report.title}"),
            tag(
                "dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in report.facts)
            ),
            *_operators(report.operators, detailed),
            *_growth(report),
            *_faults(report.integrity),
            *(part for number, operator in detailed for part in _operator(number, operator)),
        ),
        Html(f'<script type="application/json" id="data">{_data(drawn)}</script>'),
        Html(f"<script>{script}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _own(name: str) -> str:
    """Return the text of a file of this package."""
    return (resources.files("statelake.pipelines.report") / name).read_text("utf-8")


def _data(drawn: list[tuple[int, OperatorDescription]]) -> Html:
    """Return the script's data: numbers of the key groups that have data."""
    operators: dict[str, Any] = {}
    for number, operator in drawn:
        at, entries, sizes = operator.key_groups.tolist()
        operators[str(number)] = {
            "groups": operator.max_parallelism, "at": at, "bytes": sizes, "entries": entries,
        }  # fmt: skip
    return data_text({"shown": SHOWN_SUBTASKS, "operators": operators})


def _operators(
    operators: tuple[OperatorDescription, ...], detailed: list[tuple[int, OperatorDescription]]
) -> Iterator[Html]:
    if not operators:
        return
    linked = {number for number, _ in detailed}
    rows = []
    for number, operator in enumerate(operators[:SHOWN_OPERATORS]):
        label: str = operator.label
        if number in linked:
            label = tag("a", label, href=f"#operator-{number}")
        other = [f"{what} {bytes_text(size)}" for what, size in operator.other]
        rows.append(
            (
                label,
                operator.name,
                str(operator.parallelism),
                str(operator.max_parallelism),
                bytes_text(operator.total_bytes),
                f"{operator.load().skew:.3f}" if _is_drawn(operator) else "",
                ", ".join([f"{len(operator.states):,}", *other]),
            )
        )
    columns = (
        "<Uid or id", "<Name", ">Parallelism", ">Key groups", ">Size", ">Skew", "<States"
    )  # fmt: skip
    yield tag("h2", "Operators")
    left = len(operators) - len(rows)
    yield table(Table("Operators, the largest first", columns, rows, left))
    few = f" Details below are of the {DETAILED} largest." if len(operators) > DETAILED else ""
    yield tag(
        "p",
        "Skew is the bytes of the heaviest subtask over the mean: 1 is even, 2 is a subtask with"
        f" twice its share.{few}",
        class_="note",
    )


def _growth(report: Report) -> Iterator[Html]:
    if not report.growth:
        return
    steps = report.growth[-SHOWN_SNAPSHOTS:]
    rows = []
    before = None
    for step in steps:
        change = "" if before is None else _change(step.state_bytes - before)
        rows.append(
            (
                step.snapshot_id,
                f"{step.taken_at:%Y-%m-%d %H:%M}",
                f"{step.entries:,}",
                bytes_text(step.state_bytes),
                change,
                bytes_text(step.written_bytes),
            )
        )
        before = step.state_bytes
    columns = ("<Snapshot", "<Taken (UTC)", ">Entries", ">State", ">Change", ">Added to the lake")
    yield tag("h2", "Growth")
    if report.growth_problem:
        yield tag("p", f"Why it grew is not known: {report.growth_problem}", class_="bad")
    if report.grown is not None:
        yield from growth_answer(report.grown, report.snapshot_id)
    left = len(report.growth) - len(steps)
    yield table(Table("The job's snapshots, the oldest first", columns, rows, left))
    if report.grown is not None:
        yield from growth_tables(report.grown)


def growth_answer(growth: Growth, snapshot_id: str = "") -> Iterator[Html]:
    """Yield how a job's state grew, as sentences and as a line with a snapshot marked on it."""
    for sentence in growth.sentences:
        yield tag("p", sentence)
    yield growth_line(growth, snapshot_id)


def growth_tables(growth: Growth) -> Iterator[Html]:
    """Yield the states of a job by what they grew, and the key groups that grew most."""
    columns = (
        "<State=label", "<Kind", ">First=first.size:B", ">Last=last.size:B", ">Change:+B",
        ">Entries=first.entries:,", ">Then=last.entries:,", "<Cause",
    )  # fmt: skip
    yield table(
        Table.of("States, the one that grew most first", columns, growth.states, SHOWN_GROWN)
    )
    if growth.groups:
        before, after = growth.skew
        title = (
            f"Key groups of {growth.groups[0].operator} that grew most; skew {before:.3f}, then"
            f" {after:.3f}"
        )
        yield table(Table.of(title, (">Key group", ">First:B", ">Last:B"), growth.groups))


def _change(size: int) -> str:
    return change_text(size) if size else "none"


def _faults(integrity: Integrity | None) -> Iterator[Html]:
    yield tag("h2", "Faults")
    if integrity is None:
        yield tag("p", "Not checked for faults: make the report with ", tag("code", "--check"), ".")
        return
    faults = integrity.faults
    if faults:
        yield tag("p", count_text(len(faults), "fault"), class_="bad")
        columns = ("<Kind", "<Where", "<Problem", "<Remedy")
        yield table(Table.of("Problem", columns, faults, SHOWN_FAULTS))
    else:
        read = "everything but what is listed here" if integrity.unchecked else "everything"
        yield tag("p", f"Sound: {read} was read, and no fault was found.", class_="good")
    if integrity.unchecked:
        shown = [(line,) for line in integrity.unchecked[:SHOWN_FAULTS]]
        left = len(integrity.unchecked) - len(shown)
        yield table(Table("Not checked", ("<Part, and reason",), shown, left))


def _operator(number: int, operator: OperatorDescription) -> Iterator[Html]:
    named = f", {operator.name}" if operator.name and operator.name != operator.label else ""
    yield tag("h2", f"{operator.label}{named}", id=f"operator-{number}")
    if operator.node:
        yield tag("p", f"{operator.node}: {operator.query}")
    keyed = f"keyed by {operator.key_text}, " if operator.key_text else ""
    yield tag(
        "p",
        f"{bytes_text(operator.total_bytes)}, {keyed}parallelism {operator.parallelism}, max"
        f" parallelism {operator.max_parallelism}",
    )
    if operator.problem:
        yield tag("p", f"Not all of its state could be read: {operator.problem}", class_="bad")
    if operator.states:
        columns = (
            "<State", "<Kind", "<Namespace", "<Type", "<Read as", ">Entries", ">Bytes"
        )  # fmt: skip
        rows = list(map(_state_row, operator.states[:DETAILED_STATES]))
        left = len(operator.states) - len(rows)
        yield table(Table("States and their types", columns, rows, left))
    if _is_drawn(operator):
        yield from _key_groups(number, operator)
        yield from _keys(operator)


def _is_drawn(operator: OperatorDescription) -> bool:
    """Return whether its key groups were counted, and it has keyed state."""
    return operator.counted and bool(operator.keyed_states)


def _state_row(state: StateDescription) -> tuple[str, ...]:
    return (
        state.name,
        state.kind,
        state.namespace_type,
        state.type_text,
        "" if state.schema is None or "value" not in state.schema.names else str(
            state.schema.field("value").type
        ),
        *state.counts_text,
    )  # fmt: skip


def _key_groups(number: int, operator: OperatorDescription) -> Iterator[Html]:
    yield tag("h3", "Key groups")
    yield key_group_chart(operator.sizes, operator.parallelism).figure(f"groups-{number}")
    yield tag("h3", "Bytes by subtask")
    field = Html(
        f'<input type="number" id="parallelism-{number}" min="1" max="{operator.max_parallelism}"'
        f' value="{operator.parallelism}" step="1" inputmode="numeric">'
    )
    label = tag("label", "Parallelism", for_=f"parallelism-{number}")
    yield tag("form", label, field, id=f"form-{number}")
    load = operator.load()
    yield tag("p", str(load), id=f"summary-{number}", role="status")
    rows = [
        (
            str(subtask.subtask),
            f"{subtask.first} to {subtask.last}",
            f"{subtask.entries:,}",
            bytes_text(subtask.state_bytes),
        )
        for subtask in load.subtasks[:SHOWN_SUBTASKS]
    ]
    title = "Subtasks, and the key groups that Flink assigns to each"
    columns = (">Subtask", ">Key groups", ">Entries", ">Bytes")
    yield table(Table(title, columns, rows), f"subtasks-{number}")
    left = len(load.subtasks) - SHOWN_SUBTASKS
    more = f"… and {left:,} more" if left > 0 else ""
    yield tag("p", more, id=f"more-{number}", class_="more")


def _keys(operator: OperatorDescription) -> Iterator[Html]:
    heavy = [(state, key) for state in operator.states for key in state.heaviest]
    if not heavy:
        return
    rows = [
        (
            _key_text(key.key),
            state.name,
            str(key.key_group),
            f"{key.entries:,}",
            bytes_text(key.size),
            f"{100 * key.size / state.size:.1f} %" if state.size else "",
        )
        for state, key in islice(heavy, SHOWN_KEYS)
    ]
    columns = ("<Key", "<State", ">Key group", ">Entries", ">Bytes", ">Of the state")
    yield tag("h3", "Heaviest keys")
    left = len(heavy) - len(rows)
    yield table(Table("The keys with the most bytes in each state", columns, rows, left))


def _key_text(key: Any) -> str:
    shown = json_text(plain(key))
    return shown if len(shown) <= LONGEST_KEY else f"{shown[:LONGEST_KEY]}…"
