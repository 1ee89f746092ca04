"""A case, and what must be true when it is over: the same for all of them."""

from __future__ import annotations

import stat
import unicodedata
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import RESERVE
from tests.adversary.makers.scene import Maker, Scene, Tree, changed, files, leaks, tree
from tests.adversary.makers.seed import JOB, SECRETS
from tests.adversary.runner import COMMAND, MEMORY, SECONDS, Ended, Runner
from tests.support.covering import covering
from tests.support.lakes import CATALOG_LOG, entries

__all__ = ["Case", "as_parameters", "over", "play"]

MAY_APPEAR = {"out", "lake"}  # beside the victim
REFUSED, INTERNAL = 3, 4
HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}  # categories of what a terminal obeys, and nobody sees


@dataclass(frozen=True)
class Case:
    """Hostile input, a command that reads it, and how that is to end.

    Attributes:
        name: What is wrong with the input.
        make: Makes it in a scene.
        command: Its words, with places of the scene.
        code: The exit code, or those that will do; None if it may be done or refused.
        says: Part of what is printed.
        honest: Whether the other snapshots of the lake are exported behind it, as they were.
        changes: Whether a command that refused may have done part of its work.
        seconds: How long it may take, in time of the processor.
        memory: How many bytes it may have.
        entry: What is called instead of the command.
        input: What input of more than one command or place is called: its kind, perhaps a place,
            and what stands there.
    """

    name: str
    make: Maker
    command: str
    code: int | tuple[int, ...] | None = REFUSED
    says: str = ""
    honest: bool = True
    changes: bool = False
    seconds: float = SECONDS
    memory: int = MEMORY
    entry: str = COMMAND
    input: str = ""


def over(
    commands: Mapping[str, str],
    name: str,
    make: Maker,
    code: int | Mapping[str, int] = REFUSED,
    **more: Any,
) -> list[Case]:
    """One case for each command.

    Args:
        commands: By a short name, their words. The first gets farthest into the input.
        name: What is wrong with the input.
        make: Makes it.
        code: How all end, or by short name those that do not end with a refusal.
        more: The rest of what a case is.
    """
    codes = dict.fromkeys(commands, code) if isinstance(code, int) else code
    return [
        Case(f"{name}/{verb}", make, words, codes.get(verb, REFUSED), input=name, **more)
        for verb, words in commands.items()
    ]


def as_parameters(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """A test of every case, by its name.

    In CI there is each place with each command; and each thing that may stand there, with the
    first of the commands in one of the places of its kind. What else there is is `nightly`.
    """
    listed = list(cases)
    names = [case.name for case in listed]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"two cases are called {sorted(twice)}"
    first: dict[str, Case] = {}
    has: list[list[Hashable]] = []
    for case in listed:
        place, _, thing = case.input.rpartition("/")
        farthest = first.setdefault(case.input, case) is case
        standing: Hashable = (place.partition("/")[0], thing) if case.input else case.name
        has.append([(place, case.command), *([standing] if farthest or not case.input else [])])
    in_ci = covering(has)
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=case.name, marks=() if at in in_ci else pytest.mark.nightly)
            for at, case in enumerate(listed)
        ],
    )


def play(case: Case, runner: Runner, scene: Scene) -> Ended:
    """Make the input, run the command, and assert what is true of every case."""
    case.make(scene)
    before = {name: tree(scene.root / name) for name in _present(scene)}
    environment = {
        "TMPDIR": str(scene.temporary), "HOME": str(scene.work), "ORDERS_DATA": str(scene.data),
    }  # fmt: skip
    ended = runner.run(
        scene.words(case.command), scene.work, entry=case.entry, environment=environment
    )
    assert not ended.stopped, ended
    assert ended.code in _codes(case), ended
    assert case.says in ended.out + ended.err, ended
    _check_output(ended)
    after = _check_places(case, scene, before, refused=ended.code == REFUSED)
    if ended.processor_seconds > case.seconds or ended.peak_bytes > case.memory:
        pytest.fail(f"{ended.processor_seconds:.1f} s of the processor: {ended}")
    if case.honest and "lake" in before:
        _check_honest(runner, scene, before["lake"], after.get("lake", {}))
    return ended


def _codes(case: Case) -> tuple[int, ...]:
    """The exit codes that will do."""
    if case.code is None:
        return (0, REFUSED)
    return case.code if isinstance(case.code, tuple) else (case.code,)


def _present(scene: Scene) -> list[str]:
    return [name for name in sorted(path.name for path in scene.root.iterdir()) if name != "work"]


def _check_output(ended: Ended) -> None:
    """One line of error, all of it to be seen, and no secret; no trace of ours nor of Rust's."""
    for text in (ended.out, ended.err):
        assert "Traceback" not in text, ended
        assert "panicked" not in text, ended
        assert "internal error" not in text, ended
        assert not any(secret in text.encode() for secret in SECRETS), ended
        hidden = {char for char in text if char != "\n" and unicodedata.category(char) in HIDDEN}
        assert not hidden, f"{hidden!r} is printed: {ended}"
    if ended.code == REFUSED:
        lines = ended.err.splitlines()
        assert [line for line in lines if line.startswith("error: ")] == lines[-1:], ended


def _check_places(
    case: Case, scene: Scene, before: dict[str, Tree], *, refused: bool
) -> dict[str, Tree]:
    """The victim is as it was; nothing is beside what was there; nothing has the secret.

    Returns:
        What is there now, by the name of its directory.
    """
    harm = changed(before["victim"], tree(scene.victim))
    assert not harm, f"the victim's {harm} changed"
    after = {name: tree(scene.root / name) for name in _present(scene) if name != "victim"}
    appeared = set(after) - set(before)
    assert appeared <= MAY_APPEAR, appeared
    for name, content in (*after.items(), ("work", tree(scene.work))):
        leaking = leaks(scene.root / name, content, before.get(name, {}))
        assert not leaking, f"the secret is in {name}/{leaking[0]}"
    assert not list(scene.temporary.iterdir()), "temporary files are left"
    if not refused:
        return after
    written = set(files(after["out"])) if "out" in appeared else set()
    # a report is one page of all that can be read, and says the rest
    page = {"."} if case.command.startswith("report {savepoint}") else set()
    assert written <= page, f"what was refused is half written: {sorted(written)}"
    for name in () if case.changes else set(before) - {"victim"}:
        was, is_now = files(before[name]), files(after.get(name, {}))
        # an attempt says in the catalog's log that it begins, and that it ends
        said = {entry for entry in is_now.keys() - was.keys() if entry.startswith(CATALOG_LOG)}
        harm = [changed_file for changed_file in changed(was, is_now) if changed_file not in said]
        assert not harm, f"refused, and in {name} there changed {harm}"
    if "lake" in appeared:
        left = [  # but for the same
            name
            for name, state in after["lake"].items()
            if stat.S_ISREG(state[0]) and name != RESERVE and not name.startswith(CATALOG_LOG)
        ]
        assert not left, f"what was refused left {left[0]}"
    return after


# lakes whose honest snapshots were exported already, but for times: a command that only reads a
# hostile lake leaves it as the command of the case before it did
_EXPORTED: set[str] = set()


def _check_honest(runner: Runner, scene: Scene, before: Tree, after: Tree) -> None:
    """The snapshots that nobody touched come out as they went in."""
    described = repr([(name, *state[:2], *state[3:]) for name, state in sorted(after.items())])
    lake = f"{after == before} {described}".replace(str(scene.root), "")
    if lake in _EXPORTED:
        return
    sources = {JOB: "savepoint-good", "clean": "savepoint-clean"}
    for job in (JOB,) if after == before else sources:
        to = scene.work / f"honest-{job}"
        words = f"export --lake {{lake}} --job {job} --snapshot good --to {to} --engine local"
        ended = runner.run(scene.words(words), scene.work)
        assert ended.code == 0, f"an honest snapshot can't be exported any more: {ended}"
        assert entries(to) == entries(scene.seed.root / sources[job])
    _EXPORTED.add(lake)
