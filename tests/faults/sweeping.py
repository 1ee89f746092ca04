"""Faults and interleavings of commands on a small lake, each judged against calm runs.

A fault: the command fails, is killed, told to end or writes half at one call. Then all that is in
the lake is as before or as after, nothing in between; then, mostly, the same command is run calmly;
then no file is too many. An interleaving: one command stands still at one call while another runs
from begin to end, and goes on; what is there then is what those that said 0 do one after the other.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, permutations, zip_longest
from pathlib import Path

from tests.faults.commands import (
    COMMANDS,
    ERASED,
    FIRST,
    SECOND,
    clean_up,
    copy,
    import_of,
    prepare_sources,
)
from tests.faults.judging import Seen, files_too_many, files_with, look, plain, shape
from tests.faults.playing import HERE, TOO_LONG, Guise, Played, do_apart, start
from tests.faults.shim import Calls, Fault

__all__ = ["Case", "Sweep", "Verdict"]

INTERNAL, TERMINATED = 4, 143
WAITS_SECONDS = 3.0  # then who was to run alone waits for the one that stands still
HOUR, DAY = 3600, 86_400
LEASE_IN_A_BLINK = 600
KILLS = ("kill", "half")
# what can happen to a call, by how its name begins
FAULTS = {
    "open": ("kill", "half", "term", "EIO", "ENOSPC", "EROFS", "EMFILE", "full"),
    "fsync": ("kill", "half", "term", "EIO", "full"),
    "fdatasync": ("kill", "half", "term", "EIO", "full"),
    "syncfs": ("kill", "half", "term", "EIO", "full"),
    "unlink": ("kill", "half", "term", "EIO", "EROFS"),
    "unlinkat": ("kill", "half", "term", "EIO", "EROFS"),
    "rmdir": ("kill", "half", "term", "EIO", "EROFS"),
}
ANY_FAULTS = ("kill", "half", "term", "EIO", "ENOSPC", "EROFS", "full")
CLOCKS = tuple(Guise(clock=seconds) for seconds in (-DAY, -HOUR, HOUR, DAY + HOUR))


@dataclass(frozen=True)
class Case:
    """What is tried: `first` alone, or with `second` while it stands still.

    Attributes:
        first: The command at one of whose calls it happens.
        what: What happens: a kind of fault, or `stop`.
        at: The call.
        second: The other command; none for a fault.
        seed: From which follow the clocks, the containers and what is done afterwards.
    """

    first: str
    what: str
    at: int
    second: str = ""
    seed: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.what}:{self.at}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that is written so."""
        names, what, at, seed = text.split(":")
        first, _, second = names.partition("+")
        return cls(first, what, int(at), second, int(seed))

    @property
    def name(self) -> str:
        """Its commands."""
        return f"{self.first}+{self.second}" if self.second else self.first

    @property
    def draw(self) -> random.Random:
        """What decides the rest."""
        return random.Random(str(self))


@dataclass
class Verdict:
    """What became of a case.

    Attributes:
        case: The case.
        call: The call at which it happened; empty if the command ended before it.
        codes: Exit codes of its commands, in the order of their begin.
        guises: Where they ran.
        problems: What is wrong, each after a word that says of which kind it is.
    """

    case: Case
    call: str = ""
    codes: list[int] = field(default_factory=list)
    guises: str = ""
    problems: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@dataclass
class _Calm:
    """What commands do, one after the other, with nothing in their way."""

    codes: tuple[int, ...]
    outputs: tuple[str, ...]
    state: dict[str, str]
    shape: Counter[str]


class Sweep:
    """All that is needed to try cases, in a directory.

    Args:
        directory: An empty one.
        keep: Where the worlds of bad cases are kept, if they are.
        containers: Whether commands may run in containers.
    """

    def __init__(
        self, directory: Path, *, keep: Path | None = None, containers: bool = True
    ) -> None:
        self.directory, self.keep, self.containers = directory, keep, containers
        self._calm: dict[tuple[Path, tuple[str, ...]], _Calm] = {}
        self._traces: dict[tuple[str, str], list[str]] = {}
        self._worlds: dict[tuple[str, ...], Path] = {}
        do_apart(lambda: prepare_sources(directory / "sources"))
        empty = directory / "empty"
        for name in ("tmp", "exports"):
            (empty / name).mkdir(parents=True)
        self._worlds["fresh",] = empty
        base = self._worlds[()] = self._copy(empty, "base")
        for words in (
            import_of("monday", snapshot=FIRST), import_of("tuesday", snapshot=SECOND),
            import_of("friday", "returns"),
        ):  # fmt: skip
            _require(start(words, base).end())

    # what is there to try

    def trace(self, name: str, what: str = "count") -> list[str]:
        """The calls of a command that nothing disturbs; `read` with the files that it reads."""
        if (name, what) not in self._traces:
            world, calls = self._copy(self._prepared(name), "traced"), Calls()
            words, fault = COMMANDS[name].words, Fault(what, 0)
            _require(start(words, world, calls=calls, fault=fault).end())
            self._traces[name, what] = calls.trace
            shutil.rmtree(world)
        return self._traces[name, what]

    def faults(self, names: list[str], seed: int) -> Iterator[Case]:
        """All faults of some commands, in turn; those at calls that are rare come first."""
        return _in_turn([self._faults_of(name, seed) for name in names])

    def _faults_of(self, name: str, seed: int) -> Iterator[Case]:
        trace = self.trace(name)
        kinds: dict[str, list[Case]] = {}
        for at, call in enumerate(trace, 1):
            for what in FAULTS.get(call.partition(" ")[0], ANY_FAULTS):
                kind = f"{what} {plain(call)}"
                kinds.setdefault(kind, []).append(Case(name, what, at, seed=seed))
        return _shuffled(list(kinds.values()), random.Random(f"{name} {seed}"))

    def interleavings(self, pairs: list[tuple[str, str]], seed: int) -> Iterator[Case]:
        """All interleavings of some pairs, in turn, without end."""
        return _in_turn([self._interleavings_of(*pair, seed) for pair in pairs])

    def _interleavings_of(self, first: str, second: str, seed: int) -> Iterator[Case]:
        for again in range(seed, seed + 1000):
            kinds: dict[str, list[Case]] = {}
            for at, call in enumerate([*self.trace(first, "read"), "its end"], 1):
                case = Case(first, "stop", at, second, again)
                kinds.setdefault(plain(call), []).append(case)
            yield from _shuffled(list(kinds.values()), random.Random(f"{first} {second} {again}"))

    # how it is tried

    def judge(self, case: Case) -> Verdict:
        """Try a case, and say what became of it."""
        verdict = Verdict(case)
        world = self._copy(self._prepared(case.first, case.second), f"case-{case.name}")
        (self._interleave if case.second else self._disturb)(case, world, verdict)
        if verdict.problems and self.keep is not None:
            shutil.copytree(world, self.keep / str(case), symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(world)
        for left in self.directory.glob(f"{world.name}.*"):
            left.unlink()
        return verdict

    def _disturb(self, case: Case, world: Path, verdict: Verdict) -> None:
        draw, command = case.draw, COMMANDS[case.first]
        before = look(world).state
        after = self._serial((case.first,), (case.first,))
        host = draw.choice(("", "", "pod")) if case.what in KILLS and self.containers else ""
        guise = Guise(host, hurry=LEASE_IN_A_BLINK if host else 1)
        clock = draw.choice(CLOCKS).clock if draw.random() < 0.25 else 0
        later = Guise(host, clock=clock, hurry=guise.hurry)
        verdict.guises = f"{guise}, then {later}"
        calls = Calls()
        played = start(
            command.words, world, calls=calls, fault=Fault(case.what, case.at), guise=guise
        ).end()
        verdict.call = calls.at(case.at) if calls.hits else ""
        seen = self._check(case.first, played, world, verdict)
        unlike_after = seen.compared(after.state)
        if played.code == 0 and unlike_after:
            verdict.problems.append(f"untrue: said 0, but {unlike_after}")
        elif command.steps:
            known = before.items() | after.state.items()
            if strange := seen.state.items() - known:
                verdict.problems.append(f"half: {sorted(strange)}")
        elif unlike_after and (unlike_before := seen.compared(before)):
            verdict.problems.append(f"half: {unlike_before} (as before); {unlike_after} (as after)")
        if case.first == "erase":  # which exchanges what readers see
            self._read(world, guise, ("sql",) if unlike_after else ("erase", "sql"), verdict)
        if "nothing was changed" in played.err:
            if changed := seen.compared(before):
                verdict.problems.append(f"untrue: said that nothing was changed: {changed}")
            self._probe(world, guise, verdict)
        elif draw.random() < 0.75 or case.first == "erase":
            done = command.done if not unlike_after else (0,)
            again = start(command.words, world, guise=later).end()
            seen = self._check(f"{case.first} again", again, world, verdict)
            if again.code not in done:
                verdict.problems.append(f"refused: again exit {again.code}: {_last(again)}")
            if unlike_after := seen.compared(after.state):
                verdict.problems.append(f"wrong: again {unlike_after}")
        if not verdict.problems:
            twice = self._serial((case.first,), (case.first, case.first))
            self._clean(world, later, after.shape | twice.shape, verdict)

    def _interleave(self, case: Case, world: Path, verdict: Verdict) -> None:
        names = case.first, case.second
        guises = self._guises(case.draw)
        verdict.guises = " beside ".join(map(str, guises))
        calls = Calls()
        fault = Fault("stop", case.at)
        first = start(COMMANDS[case.first].words, world, calls=calls, fault=fault, guise=guises[0])
        ended = first.wait(stops=True)
        alone = ended is not None
        verdict.call = "" if alone else calls.at(case.at)
        second = start(COMMANDS[case.second].words, world, guise=guises[1])
        other = second.wait(WAITS_SECONDS)
        if ended is None:
            first.go_on()
            ended = first.end()
        if other is None:
            other = second.end()
            verdict.guises += ", waiting"
        self._check(case.first, ended, world, verdict)
        seen = self._check(case.second, other, world, verdict)
        if not verdict.problems:
            self._compare(names, (ended, other), seen, verdict, in_order=alone)
        if not verdict.problems:
            self._probe(self._copy(world, "probe"), HERE, verdict, remove=True)
        if not verdict.problems:
            orders = [self._serial(names, order) for order in permutations(names)]
            orders += [self._serial(names, (name,)) for name in names]
            most = Counter[str]()
            for order in orders:
                most |= order.shape
            self._clean(world, HERE, most, verdict)

    def _guises(self, draw: random.Random) -> tuple[Guise, Guise]:
        """Where two commands run: here mostly; on two clocks; in two containers or hosts."""
        kind = draw.choice(("here", "clocks", "containers", "hosts"))
        clock = draw.choice(CLOCKS).clock
        if kind == "here" or (kind != "clocks" and not self.containers):
            return HERE, HERE
        if kind == "clocks":
            return draw.choice(((HERE, Guise(clock=clock)), (Guise(clock=clock), HERE)))
        boots = ("", "") if kind == "containers" else (f"{'a' * 8}-0-0", f"{'b' * 8}-0-0")
        hurry = draw.choice((1, LEASE_IN_A_BLINK))
        clock = draw.choice((0, clock))
        return Guise("pod-a", boots[0]), Guise("pod-b", boots[1], clock, hurry)

    def _compare(
        self,
        names: tuple[str, str],
        ended: tuple[Played, Played],
        seen: Seen,
        verdict: Verdict,
        *,
        in_order: bool,
    ) -> None:
        """What those that said 0 do one after the other must be what is there."""
        results = list(zip(names, ended, strict=True))
        succeeded = tuple(name for name, played in results if played.code == 0)
        twice = names[0] == names[1]
        differences = []
        for order in {succeeded} if in_order else set(permutations(succeeded)):
            calm = self._serial(names, order)
            if any(calm.codes) and not twice:
                continue
            # who keeps the newest passes over what others build on
            more = {} if in_order else self._serial(names, _without_pruning(order)).state
            kept = {name: more[name] for name in seen.state.keys() - calm.state if name in more}
            differences.append(seen.compared(calm.state | kept))
        if all(differences):
            unlike = " or ".join(differences) or "they can't in any order"
            verdict.problems.append(f"wrong: exit 0 of {list(succeeded)}, but {unlike}")
        if "sql" in succeeded and not twice:
            known = set()
            for order in permutations(names):
                known.add(self._serial(names, order).outputs[order.index("sql")])
            if (saw := dict(results)["sql"].out) not in known:
                verdict.problems.append(f"half: sql saw {saw[:200]!r}")

    def _check(self, name: str, played: Played, world: Path, verdict: Verdict) -> Seen:
        """What is wrong whatever a command was to do."""
        verdict.codes.append(played.code)
        verdict.said.append(_last(played))
        seen = look(world)
        verdict.problems += [f"lost: after {name}: {fault}" for fault in seen.faults]
        if played.code == TOO_LONG:
            verdict.problems.append(f"endless: {name}")
        if played.code >= INTERNAL and played.code != TERMINATED:
            verdict.problems.append(f"internal: {name}: exit {played.code}: {_last(played)}")
        if name.startswith("erase") and played.code == 0:
            left = [path for path in files_with(world, ERASED) if path not in seen.named]
            verdict.problems += [f"not erased: {path}" for path in left]
        return seen

    def _read(self, world: Path, guise: Guise, order: tuple[str, ...], verdict: Verdict) -> None:
        """SQL sees what the catalog says."""
        played = start(COMMANDS["sql"].words, world, guise=guise).end()
        if played.code or played.out != self._serial(("erase",), order).outputs[-1]:
            saw = played.out[:200] or _last(played)
            verdict.problems.append(f"half: sql saw {saw!r}")

    def _probe(self, world: Path, guise: Guise, verdict: Verdict, *, remove: bool = False) -> None:
        """The lake can be written to."""
        played = start(import_of("wednesday", snapshot="probe"), world, guise=guise).end()
        if played.code:
            verdict.problems.append(f"refused: an import, exit {played.code}: {_last(played)}")
        if remove:
            shutil.rmtree(world)

    def _clean(self, world: Path, guise: Guise, most: Counter[str], verdict: Verdict) -> None:
        """Nothing is left that nothing names, if need be by cleaning; snapshots stay."""
        seen = look(world)
        if not files_too_many(world, seen, most):
            return
        for words in clean_up():
            played = start(words, world, guise=guise).end()
            if played.code not in (0, 3):
                verdict.problems.append(f"refused: {words[0]}, exit {played.code}: {_last(played)}")
        cleaned = look(world)
        verdict.problems += [f"lost: after cleaning: {fault}" for fault in cleaned.faults]
        if cleaned.compared(seen.state):
            verdict.problems.append(f"wrong: cleaned {cleaned.compared(seen.state)}")
        for left in files_too_many(world, cleaned, most):
            verdict.problems.append(f"left in {left.partition('/')[0]}: {left}")

    # calm runs

    def _copy(self, world: Path, name: str) -> Path:
        to = self.directory / name
        copy(world, to)
        return to

    def _prepared(self, *names: str) -> Path:
        """A world in which commands can be run."""
        chosen = tuple(dict.fromkeys(name for name in names if name))
        if COMMANDS[chosen[0]].fresh:
            return self._worlds["fresh",]
        wanted = tuple(name for name in chosen if COMMANDS[name].after or COMMANDS[name].edits)
        if wanted not in self._worlds:
            world = self._copy(self._worlds[()], f"for-{'-'.join(wanted)}")
            for earlier in chain.from_iterable(COMMANDS[name].after for name in wanted):
                _require(start(COMMANDS[earlier].words, world).end())
            for edits in filter(None, (COMMANDS[name].edits for name in wanted)):
                do_apart(partial(edits, world))
            self._worlds[wanted] = world
        return self._worlds[wanted]

    def _serial(self, names: tuple[str, ...], order: tuple[str, ...]) -> _Calm:
        """What commands do one after the other, in a world that is prepared for `names`."""
        prepared = self._prepared(*names)
        if (prepared, order) not in self._calm:
            world = self._copy(prepared, "calm")
            played = [start(COMMANDS[name].words, world).end() for name in order]
            seen = look(world)
            assert not seen.faults, seen.faults
            self._calm[prepared, order] = _Calm(
                tuple(each.code for each in played), tuple(each.out for each in played),
                seen.state, shape(world),
            )  # fmt: skip
            shutil.rmtree(world)
        return self._calm[prepared, order]


def _without_pruning(order: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in order if not COMMANDS[name].prunes)


def _last(played: Played) -> str:
    lines = [line for line in played.err.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def _require(played: Played) -> None:
    assert played.code == 0, played


def _shuffled(kinds: list[list[Case]], draw: random.Random) -> Iterator[Case]:
    """One of each kind, and then another of each."""
    for kind in kinds:
        draw.shuffle(kind)
    draw.shuffle(kinds)
    return _in_turn([iter(kind) for kind in kinds])


def _in_turn(sources: list[Iterator[Case]]) -> Iterator[Case]:
    """One of each, again and again, until all are at their end."""
    rounds = zip_longest(*sources)
    return (case for case in chain.from_iterable(rounds) if case is not None)
