"""Hundreds of imports into one lake by two processes that are killed again and again.

One imports a job's savepoints and in turn drops, retains, erases and cleans, and checks the lake;
the other one does the same with a second job at the same time. Each is killed at random calls, and
started again with the same command until that is done. What a command said that it made, and what
the catalog lists, is read by Delta and Parquet alone, and compared with what the savepoints held.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelake import NewKeyedState, NewOperator, NewOperatorState, write_snapshot
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import OperatorHandle, RelativeHandle
from tests.faults.judging import Seen, files_too_many, look, shape
from tests.faults.playing import Played, do_apart, start
from tests.faults.shim import Calls, Fault
from tests.support.people import PROFILE

__all__ = ["Lives"]

SAVEPOINTS, PEOPLE, KEPT = 8, 40, 5
KILLED = 0.5  # how many commands are, of the first job; of the second one a half of these
WITH_UIDS = 5
MOST_KILLS = 3  # of one command
LOOKS_EVERY = 10  # commands
MOST_TIMES = 3  # as many bytes as a catalog that never had others; its log has gone on since
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
KINDS = ("import", "retain", "import", "drop", "import", "erase", "import", "clean", "import",
         "check")  # fmt: skip
SECOND_KINDS = ("import", "import", "retain", "import", "drop")
Rows = dict[str, list[Any]]


def name_of(person: int) -> str:
    """The key of a person."""
    return f"person-{person:03d}"


def rows_of(number: int) -> Rows:
    """What a savepoint holds, by key: of two that follow on each other most is the same."""
    return {
        name_of(at): [20 + at + (number if at % 8 == number % 8 else 0), f"city-{at % 5}"]
        for at in range(PEOPLE)
    }


def prepare(to: Path) -> None:
    """Write the savepoints: keyed state, operator state, and raw state that is carried."""
    to.mkdir()
    for number in range(SAVEPOINTS):
        rows = rows_of(number)
        values = [{"age": age, "city": city} for age, city in rows.values()]
        profile = NewKeyedState("profile", pa.table({"key": [*rows], "value": values}),
                                value=PROFILE)  # fmt: skip
        pending = NewOperatorState(
            "pending",
            pa.table({"subtask": [0, 0], "position": [0, 1], "value": ["bob", f"day-{number}"]}),
            "split", "String",
        )  # fmt: skip
        at = to / str(number)
        users = NewOperator("users", "String", (profile,), (pending,))
        write_snapshot(at, [users], metadata_version=WITH_UIDS)
        (at / "opaque").write_bytes(f"only the job can read this: {number % 3}".encode())
        metadata = read_metadata((at / "_metadata").read_bytes())
        subtasks = metadata.operators[0].subtasks
        assert subtasks is not None
        raw = OperatorHandle({}, RelativeHandle("opaque", (at / "opaque").stat().st_size))
        subtasks.setdefault(0, SubtaskState()).raw_operator = raw
        (at / "_metadata").write_bytes(write_metadata(metadata))


@dataclass
class Made:
    """A snapshot that was imported.

    Attributes:
        number: Of its savepoint.
        sure: Whether a command said that it is there.
        erased: The keys that were erased from it.
        perhaps_erased: The keys of erasures that were killed, or went on beside the import.
        perhaps_gone: Whether a command that drops it was begun.
    """

    number: int
    sure: bool = False
    erased: set[str] = field(default_factory=set)
    perhaps_erased: set[str] = field(default_factory=set)
    perhaps_gone: bool = False


@dataclass
class Command:
    """What a life does next.

    Attributes:
        kind: One of `KINDS`.
        words: What stands behind `statelake`.
        what: The snapshot, or the key.
        kills: How often it was killed.
    """

    kind: str
    words: tuple[str, ...]
    what: str = ""
    kills: int = 0


class Life:
    """One process after another that do what is to be done with one job.

    Args:
        job: The job.
        kinds: What it does in turn.
        chance: By which it is chosen.
    """

    def __init__(self, job: str, kinds: tuple[str, ...], chance: random.Random) -> None:
        self.job, self.chance = job, chance
        self._of_job = ("--lake", "lake", "--job", job)
        self._kinds = kinds
        self._done = self.imports = 0
        self.made: dict[str, Made] = {}
        self.command: Command | None = None

    def next(self) -> Command:
        """What is done now: what was not done yet, or the next in turn."""
        if self.command is None:
            self.command = self._command(self._kinds[self._done % len(self._kinds)])
            self._done += 1
        return self.command

    def importing(self, name: str, number: int) -> tuple[str, ...]:
        """The words that import a savepoint; the later a name, the later it was taken."""
        taken = (BEGAN + timedelta(hours=int(name.partition("-")[2]))).isoformat()
        return (
            "import", f"../sources/{number}", *self._of_job, "--snapshot", name,
            "--taken", taken, "--engine", "local",
        )  # fmt: skip

    def retaining(self) -> tuple[str, ...]:
        """The words that drop all but the newest."""
        return ("retain", *self._of_job, "--policy", f"{KEPT} all", "--yes")

    def _command(self, kind: str) -> Command:
        if kind == "import":
            self.imports += 1
            name = f"s-{self.imports}"  # names begin others
            self.made[name] = Made(self.chance.randrange(SAVEPOINTS))
            return Command(kind, self.importing(name, self.made[name].number), name)
        there = [name for name, made in self.made.items() if made.sure]
        if kind == "drop" and len(there) > 1:
            name = self.chance.choice(there[:-1])
            words = ("drop", *self._of_job, "--snapshot", name, "--yes")
            return Command(kind, words, name)
        if kind in {"retain", "drop"}:
            return Command("retain", self.retaining())
        if kind == "erase":
            key = name_of(self.chance.randrange(PEOPLE))
            request = f"r-{self._done}"
            words = ("erase", "--lake", "lake", f"--key={key}", "--request", request,
                     "--carried", "keep", "--yes")  # fmt: skip
            return Command(kind, words, key)
        if kind == "clean":
            return Command(kind, ("lake", "clean", "--lake", "lake", "--yes"))
        return Command("check", ("lake", "check", "--lake", "lake"))


class Lives:
    """A lake, and two that use it.

    Args:
        directory: Where the world is made.
        seed: Of what is chosen.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir(parents=True)
        self._chance = random.Random(seed)
        self._sources = directory / "sources"
        do_apart(lambda: prepare(self._sources))
        self.world = directory / "world"
        (self.world / "tmp").mkdir(parents=True)
        self.lives = [
            Life("orders", KINDS, random.Random(f"{seed} orders")),
            Life("returns", SECOND_KINDS, random.Random(f"{seed} returns")),
        ]
        self._calls: dict[str, int] = {}
        self.kills = 0
        self.codes: Counter[str] = Counter()
        self.figures: list[str] = []

    def __call__(self, imports: int) -> Iterator[str]:
        """Yield what is wrong, until there were so many imports."""
        steps = 0
        while sum(life.imports for life in self.lives) < imports:
            yield from self._step()
            steps += 1
            if steps % LOOKS_EVERY == 0:
                yield from self._look(f"step {steps}")
                self._measure()
        while any(life.command for life in self.lives):
            yield from self._step(calm=True, begin=False)
        yield from self._end()

    def _step(self, *, calm: bool = False, begin: bool = True) -> Iterator[str]:
        """Have both do one command, and kill whom it hits."""
        began = []
        for life, share in zip(self.lives, (KILLED, KILLED / 2), strict=True):
            if not begin and life.command is None:
                continue
            command, calls = life.next(), Calls()
            most = self._calls.get(command.kind, 0)
            strike = command.kills < MOST_KILLS and not calm and self._chance.random() < share
            at = self._chance.randrange(1, most + 1) if most and strike else 0
            kind = self._chance.choice(("kill", "kill", "half"))
            self._expect(life, command)
            fault = Fault(kind, at) if at else Fault("count", 0)
            began.append((life, command, calls, start(command.words, self.world, calls=calls,
                                                      fault=fault)))  # fmt: skip
        for life, command, calls, process in began:
            played = process.end()
            self.codes[f"{command.kind} {played.code}"] += 1
            if calls.hits:
                self.kills += 1
                command.kills += 1
            elif played.code in {0, 1}:
                self._calls[command.kind] = calls.count
            yield from self._judge(life, command, played, struck=calls.hits > 0)

    def _expect(self, life: Life, command: Command) -> None:
        """Note what may be so from now on."""
        if command.kind == "erase":
            for each in self.lives:
                for made in each.made.values():
                    made.perhaps_erased.add(command.what)
        elif command.kind == "drop":
            life.made[command.what].perhaps_gone = True
        elif command.kind == "retain":
            for name in [*life.made][:-KEPT]:
                life.made[name].perhaps_gone = True
        elif command.kind == "import":
            now = self.lives[0].command
            if now is not None and now.kind == "erase":
                life.made[command.what].perhaps_erased.add(now.what)

    def _judge(
        self, life: Life, command: Command, played: Played, *, struck: bool
    ) -> Iterator[str]:
        """Note what a command said, and yield what it may not say."""
        if struck:
            return
        said = f"{life.job}: {_said(command.words, played)}"
        if played.code == 0:
            life.command = None
        elif command.kind == "drop" and played.code == 3 and "there is no snapshot" in played.err:
            if command.kills == 0:
                yield f"a snapshot is gone that nobody dropped: {said}"
            life.command = None
        elif command.kind == "erase" and played.code == 1:
            life.command = None
        elif played.code == 3 and _is_beside_another(played.err):
            return  # again, when the other one has ended
        else:
            yield said
            life.command = None
        if life.command is None:
            self._note(life, command)

    def _note(self, life: Life, command: Command) -> None:
        """Note what is so, as a command said."""
        if command.kind == "import":
            life.made[command.what].sure = True
        elif command.kind == "drop":
            life.made.pop(command.what)
        elif command.kind == "retain":
            for name in [*life.made][:-KEPT]:
                life.made.pop(name)
        elif command.kind == "erase":
            beside = [each.command.what for each in self.lives
                      if each.command is not None and each.command.kind == "import"]  # fmt: skip
            for each in self.lives:
                for name, made in each.made.items():
                    if made.sure and name not in beside:
                        made.perhaps_erased.discard(command.what)
                        made.erased.add(command.what)

    def _look(self, when: str) -> Iterator[str]:
        """Compare all snapshots with what their savepoints held."""
        seen = look(self.world)
        yield from (f"{when}: {fault}" for fault in seen.faults)
        for life in self.lives:
            listed = _listed(seen, life.job)
            for name, made in life.made.items():
                if made.sure and not made.perhaps_gone and name not in listed:
                    yield f"{when}: {life.job}/{name} is lost"
            for name, rows in listed.items():
                if name not in life.made:
                    yield f"{when}: {life.job}/{name} was dropped, and is there"
                else:
                    yield from (f"{when}: {life.job}/{name}: {problem}"
                                for problem in _unlike(life.made[name], rows))  # fmt: skip

    def _measure(self) -> None:
        """Note what the lake costs now."""
        files = [path for path in (self.world / "lake").rglob("*") if path.is_file()]
        kept = sum(len(life.made) for life in self.lives)
        self.figures.append(
            f"{sum(life.imports for life in self.lives):6} imports: about {kept} snapshots,"
            f" {len(files)} files, {_catalog_bytes(self.world)} bytes of catalog and logs"
        )

    def _end(self) -> Iterator[str]:
        """Retain, clean and check, with nothing in the way; yield what is too much then.

        Costs are compared with those of a lake into which nothing else was ever imported.
        """
        last = [
            ("lake", "clean", "--lake", "lake", "--yes"), ("lake", "check", "--lake", "lake"),
        ]  # fmt: skip
        policies = [life.retaining() for life in self.lives]
        for words in (*policies, *last):
            yield from self._calmly(words, self.world)
        for life in self.lives:
            life.made = dict([*life.made.items()][-KEPT:])
        yield from self._look("at the end")
        calm = self.world.with_name("calm")
        (calm / "tmp").mkdir(parents=True)
        for life in self.lives:
            for name, made in life.made.items():
                yield from self._calmly(life.importing(name, made.number), calm)
        for words in (*policies, *last):
            yield from self._calmly(words, calm)
        yield from files_too_many(self.world, look(self.world), shape(calm))
        most, held = (_catalog_bytes(world) for world in (calm, self.world))
        if held > MOST_TIMES * most:
            yield f"the catalog has {held} bytes, of so many snapshots alone {most}"

    @staticmethod
    def _calmly(words: tuple[str, ...], world: Path) -> Iterator[str]:
        """Have a command done; yield what it said if it was not."""
        played = start(words, world).end()
        if played.code:
            yield _said(words, played)


def _said(words: tuple[str, ...], played: Played) -> str:
    return f"{' '.join(words)}: exit {played.code}: {played.out[-600:]}{played.err[-600:]}"


def _is_beside_another(said: str) -> bool:
    """Whether a command ended as another one works, or was killed."""
    words = ("meanwhile", "is working", "erasure", "at the same time")
    return any(each in said for each in words)


def _unlike(made: Made, rows: Rows) -> Iterator[str]:
    wanted = rows_of(made.number)
    for key, value in wanted.items():
        if key in rows and rows[key] != value:
            yield f"{key} is {rows[key]}, and was {value}"
        if key in rows and key in made.erased:
            yield f"{key} was erased, and is there"
        if key not in rows and key not in made.erased | made.perhaps_erased:
            yield f"{key} is lost"
    for key in rows.keys() - wanted.keys():
        yield f"{key} was never there"


def _listed(seen: Seen, job: str) -> dict[str, Rows]:
    """The state of each snapshot of a job, by its id."""
    start = f"{job}/"
    return {
        name[len(start) :]: {
            row["key"]: [row["value"]["age"], row["value"]["city"]]
            for row in map(json.loads, tables[f"{job}/keyed/users/profile"])
        }
        for name, tables in seen.rows.items()
        if name.startswith(start)
    }


def _catalog_bytes(world: Path) -> int:
    """The bytes of the catalog, and of the logs of all tables."""
    files = (world / "lake").rglob("*")
    kept = [path for path in files if path.is_file()]
    return sum(
        path.stat().st_size
        for path in kept
        if "_delta_log" in path.parts or "snapshots" in path.relative_to(world).parts
    )
