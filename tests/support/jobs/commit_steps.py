"""The steps of a commit, in their order, and the recovery from a crash between them.

The commit calls its observer with a step's name before the step; the simulation in the tests kills
a process there, and checks this table, which `docs/commit.md` shows.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STEPS", "Step", "crash_table", "order"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a commit.

    Attributes:
        name: The name, for the observer.
        beside: Whether it runs during processing.
        does: Its description.
        left: The leftovers of a crash before it.
        resolved: The recovery at the next start.
        restores_this: Whether this commit is restored after a crash before it; otherwise the
            previous one.
        marked: Whether a crash before it leaves this commit's id in the local directories.
        sent: Whether a crash before it leaves blobs that may be useless.
    """

    name: str
    beside: bool
    does: str
    left: str
    resolved: str
    restores_this: bool = False
    marked: bool = False
    sent: bool = False


BEFORE = "the checkpoint before is restored: its local directory, or its markers"
NOT_NAMED = f"{BEFORE}; the directory's id is not in the log, so it is removed"

STEPS = (
    Step(
        "flush", False, "the inputs' offsets are taken, every store is flushed",
        "nothing of this commit", BEFORE,
    ),
    Step(
        "checkpoint", False, "a local checkpoint of every persistent store is made, by hard links",
        "newer files in the working directory", f"{BEFORE}; the working directory is discarded",
    ),
    Step(
        "snapshot", False, "`snapshot` of every backend; the changelog is flushed",
        "a local directory without an id", NOT_NAMED,
    ),
    Step(
        "upload", True, "`upload` of every backend, all at once; processing goes on",
        "changes in the changelog behind the marker of the log",
        f"{NOT_NAMED}; the changes behind the marker are undone",
    ),
    Step(
        "mark", True, "the record, with all markers, goes to the local directories",
        "blobs that no record names",
        f"{NOT_NAMED}; the blobs expire, and the changes behind the marker are undone",
        sent=True,
    ),
    Step(
        "record", True, "the record goes to the log: from here on the commit is there",
        "a local id that is newer than the log's, and blobs that no record names",
        f"{NOT_NAMED}; the blobs expire, and the changes behind the marker are undone",
        marked=True, sent=True,
    ),
    Step(
        "clean_up", True, "`clean_up` of every backend: what only older snapshots need is removed",
        "blobs that still expire, and those of the snapshot before",
        "this checkpoint is restored, and `clean_up` comes again before anything else",
        restores_this=True, marked=True,
    ),
    Step(
        "drop_local", True, "older local checkpoints are removed",
        "local directories of older checkpoints",
        "this checkpoint is restored; the older directories are removed",
        restores_this=True, marked=True,
    ),
    Step(
        "trim_inputs", True, "inputs that nobody else reads are trimmed to the record's offsets",
        "inputs with what was processed",
        "this checkpoint is restored; the next commit trims further",
        restores_this=True, marked=True,
    ),
)  # fmt: skip


def order() -> str:
    """Return the steps as a drawing."""
    width = max(len(step.name) for step in STEPS)
    lines = ["processing stops", "  │"]
    for at, step in enumerate(STEPS):
        if step.beside and not STEPS[at - 1].beside:
            lines += ["  │", "processing goes on ─────────────────────────────▶", "  │"]
        lines.append(f"  {at + 1}  {step.name:<{width}}  {step.does}")
    return "\n".join(lines)


def crash_table() -> str:
    """Return the leftovers of a crash before each step, as a table in Markdown."""
    rows = ["| crash before | left behind | the next start |", "|---|---|---|"]
    rows += [f"| `{step.name}` | {step.left} | {step.resolved} |" for step in STEPS]
    return "\n".join(rows)
