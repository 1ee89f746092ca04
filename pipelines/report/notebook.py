"""A notebook of marimo, which is a Python file, that opens a lake, a directory or a snapshot.

The text of all cells is fixed but for the first one's, which assigns what was named to variables:
each name in it is a literal of ASCII, so that no name is code. Names that are shown come from the
snapshots when the notebook runs, and are given to marimo as data, never as Markdown or HTML.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from statelake.pipelines.report.page import open_target
from statelake.state_core.printable import Printed

_BEGIN = """\
# Written by `statelake notebook`. `marimo edit` opens it; Python runs it as a script.
import marimo

app = marimo.App(width="full", app_title="statelake")


@app.cell
def _():
    from contextlib import ExitStack

    import marimo as mo
    import pyarrow as pa

    import statelake as sl

    ROWS = 1000  # shown of a state or of a query
    SMALL = 100 << 20  # bytes of a snapshot that is read without asking

    return ExitStack, ROWS, SMALL, mo, pa, sl


"""
_NAMED = """\
@app.cell
def _():
    # what was named, and what is chosen at first
    location = {location}
    first_job = {job}
    first_snapshot = {snapshot}
    reading = {reading}
    return first_job, first_snapshot, location, reading


"""
_OF_LAKE = """\
@app.cell
def _(location, mo, sl):
    lake = sl.Lake(location)
    records = lake.snapshots()
    mo.vstack([
        mo.md("## What there is"),
        mo.ui.table([record.to_json() for record in reversed(records)], selection=None),
    ])
    return lake, records


@app.cell
def _(first_job, mo, records):
    _jobs = list(dict.fromkeys(record.job for record in records))
    job_name = mo.ui.dropdown(
        _jobs, value=first_job if first_job in _jobs else next(iter(_jobs), None), label="job"
    )
    job_name
    return (job_name,)


@app.cell
def _(first_snapshot, job_name, lake, mo, records):
    mo.stop(job_name.value is None, "the lake has no snapshot")
    job = lake.job(job_name.value, engine="local")
    _names = [record.snapshot_id for record in records if record.job == job_name.value]
    chosen = mo.ui.dropdown(
        _names, value=first_snapshot if first_snapshot in _names else _names[-1], label="snapshot"
    )
    chosen
    return chosen, job


@app.cell
def _(chosen, job):
    snapshot = stored = job[chosen.value]
    return snapshot, stored


"""
_OF_DIRECTORY = """\
@app.cell
def _(location, mo, sl):
    found = sl.scan(location)
    sound = {each.path or ".": each for each in found.snapshots if each.restorable}
    mo.vstack([
        mo.md("## What there is"),
        mo.ui.table([each.to_json() for each in found.snapshots], selection=None),
    ])
    return (sound,)


@app.cell
def _(first_snapshot, mo, sound):
    chosen = mo.ui.dropdown(
        list(sound),
        value=first_snapshot if first_snapshot in sound else next(iter(sound), None),
        label="snapshot",
    )
    chosen
    return (chosen,)


@app.cell
def _(chosen, mo, reading, sl, sound):
    mo.stop(chosen.value is None, "no snapshot can be restored")
    place = sound[chosen.value].location
    snapshot = sl.open_snapshot(place, **reading)
    return place, snapshot


"""
_HELD = """\
@app.cell
def _(mo, snapshot):
    described = snapshot.describe()
    mo.vstack([mo.md("## What it holds"), mo.plain_text(str(described))])
    return (described,)


@app.cell
def _(mo, snapshot):
    states = {
        f"{operator.label}/{each.name}": each
        for operator in snapshot.operators
        for each in (*operator.keyed_states, *operator.operator_states)
    }
    state = mo.ui.dropdown(list(states), value=next(iter(states), None), label="state")
    state
    return state, states


@app.cell
def _(ROWS, mo, pa, state, states):
    mo.stop(state.value is None, "it has no state")
    _wanted = [
        name for name in states[state.value].schema.names if not name.startswith("raw_")
    ]  # the others have exact bytes
    _reader = states[state.value].to_batch_reader(columns=_wanted)
    _batches = []
    for _batch in _reader:
        _batches.append(_batch)
        if sum(map(len, _batches)) >= ROWS:
            break
    rows = pa.Table.from_batches(_batches, _reader.schema).slice(0, ROWS)
    mo.vstack([mo.md("## Its first rows"), mo.ui.table(rows, selection=None)])
    return (rows,)


"""
_IMPORTED = """\
@app.cell
def _(SMALL, chosen, mo, sound):
    wanted = mo.ui.checkbox(
        value=chosen.value is not None and sound[chosen.value].bytes <= SMALL,
        label="import it into a temporary lake, for SQL",
    )
    wanted
    return (wanted,)


@app.cell
def _(ExitStack, mo, place, reading, sl, wanted):
    mo.stop(not wanted.value, "SQL needs a lake")
    holding = ExitStack()  # the temporary lake goes with it
    stored = holding.enter_context(sl.in_temporary_lake(place, **reading))
    return holding, stored


"""
_SQL = """\
@app.cell
def _(mo):
    query = mo.ui.code_editor(
        'SELECT "operator", "state", "rows", "file_bytes" FROM statelake.tables',
        language="sql",
        label="SQL: a table is <operator>.<state>",
    )
    query
    return (query,)


@app.cell
def _(ROWS, mo, query, stored):
    answer = stored.job.lake.sql(
        query.value, as_of=stored.name, job=stored.job.name, limit=ROWS
    ).read_all()
    mo.ui.table(answer, selection=None)
    return (answer,)


"""
_GROWTH_OF_JOB = """\
@app.cell
def _(job, mo):
    mo.stop(len(job.snapshots()) < 2, "growth needs two snapshots")
    grown = job.growth()
    mo.vstack([mo.md("## Growth"), mo.plain_text(str(grown))])
    return (grown,)


"""
_GROWTH_OF_TWO = """\
@app.cell
def _(SMALL, chosen, mo, sound):
    _all = list(sound)
    _earlier = [
        name
        for name in _all[_all.index(chosen.value) + 1 :]
        if sound[name].job == sound[chosen.value].job
    ] if chosen.value is not None else []
    since = mo.ui.dropdown(
        _earlier,
        value=_earlier[-1] if _earlier and sound[_earlier[-1]].bytes <= SMALL else None,
        label="growth since",
    )
    since
    return (since,)


@app.cell
def _(mo, place, reading, since, sl, sound):
    mo.stop(since.value is None, "growth needs an earlier snapshot")
    grown = sl.growth([sound[since.value].location, place], **reading)
    mo.vstack([mo.md("## Growth"), mo.plain_text(str(grown))])
    return (grown,)


"""
_END = """\
if __name__ == "__main__":
    app.run()
"""


@dataclass(frozen=True)
class NotebookResult(Printed):
    """The result of writing a notebook.

    Attributes:
        path: The file.
        location: What it opens, without credentials.
        job: The job that is chosen at first; empty without one.
        snapshot: The snapshot that is chosen at first; empty if there is none.
    """

    path: str
    location: str
    job: str
    snapshot: str

    def lines(self) -> list[str]:
        """Return what people read."""
        return [f"{self.path} opens {self.location}: run `marimo edit` with it"]


def notebook_text(
    location: str,
    job: str,
    snapshot: str,
    *,
    in_lake: bool,
    allow_external: tuple[str, ...] = (),
    uids: tuple[str, ...] = (),
) -> str:
    """Return the text of a notebook.

    Args:
        location: The lake, the directory, or the snapshot.
        job: The job that is chosen at first.
        snapshot: The snapshot that is chosen at first, as a scan or the lake names it.
        in_lake: Whether it is a lake.
        allow_external: Directories elsewhere to which handles may lead.
        uids: Operator uids to recognise.
    """
    reading = {"allow_external": allow_external, "uids": uids}
    named = _NAMED.format(
        location=ascii(location), job=ascii(job), snapshot=ascii(snapshot), reading=ascii(reading)
    )
    cells: tuple[str, ...]
    if in_lake:
        cells = (_OF_LAKE, _HELD, _SQL, _GROWTH_OF_JOB)
    else:
        cells = (_OF_DIRECTORY, _HELD, _IMPORTED, _SQL, _GROWTH_OF_TWO)
    return "".join((_BEGIN, named, *cells, _END))


def write_notebook(text: str, to: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a notebook.

    Args:
        text: Its text.
        to: The file, a path or URI; its directory must exist.
        overwrite: Whether to replace a file.

    Raises:
        ConflictError: The file exists.
        SnapshotError: The path names no file, or its directory does not exist.
    """
    directory, name = open_target(to, overwrite=overwrite)
    directory.write(name, text.encode("ascii"))
