"""Ask real Flink: a JVM that writes savepoints with our jobs, and restores them."""

from __future__ import annotations

import atexit
import json
import subprocess
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, Timer
from types import TracebackType
from typing import Any

from typing_extensions import Self

from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.support.java import java

SOURCES = (
    "Oracle.java",
    "Cluster.java",
    "BacklogJobs.java",
    "Jobs.java",
    "ChainJobs.java",
    "ChangeJobs.java",
    "OperatorJobs.java",
    "OwnTypeJobs.java",
    "KryoJobs.java",
    "PojoJobs.java",
    "ProfileJobs.java",
    "Judge.java",
    "Json.java",
)
# what Flink 1 has no API for
NEW_SOURCES = ("AsyncJobs.java", "AsyncChangeJobs.java", "DeclaredJobs.java")
MODULES = ("flink-statebackend-changelog", "flink-dstl-dfs")
NEW_MODULES = ("flink-statebackend-forst", "flink-datastream")
KEPT_LINES = 60
KEPT_JVMS = 2
ANSWER_SECONDS = 300
CLOSE_SECONDS = 30


def modules_of(version: str) -> tuple[str, ...]:
    """What our jobs need of a Flink, beside what all do."""
    return MODULES if version.startswith("1.") else (*MODULES, *NEW_MODULES)


class FlinkError(RuntimeError):
    """Flink refused; the message is its own."""


def sorted_lines(held: Iterable[Any]) -> list[str]:
    """What keys hold as text, in an order that depends on nothing else: comparable."""
    return sorted(json.dumps(line, sort_keys=True) for line in held)


def successes(answers: Iterable[str]) -> list[str]:
    """What follows the `ok` of each answer.

    Raises:
        FlinkError: A command failed.
    """
    answers = list(answers)
    failed = [answer for answer in answers if not answer.startswith("ok ")]
    if failed:
        raise FlinkError("\n".join(failed))
    return [answer.removeprefix("ok ") for answer in answers]


class AskedFlink:
    """A program of ours in one version of Flink, in a JVM of its own, asked line by line.

    Args:
        version: Of Flink.
        program: Its class, which answers each line with one that begins with `ok` or `error`.
        path: Where its classes and what they need are.
        heap: Of the JVM; buffers of the network are as much again at most.
        patience: Seconds to wait for one answer.
    """

    def __init__(
        self, version: str, program: str, path: Iterable[Path], heap: str, patience: float
    ) -> None:
        self.version = version
        self.patience = patience
        # Flink leaves files in its temporary directory, so it gets one that goes with it
        self._directory = tempfile.TemporaryDirectory(
            prefix=f"flink-{version}-", ignore_cleanup_errors=True
        )
        self.process = subprocess.Popen(
            java(heap, path, f"-Djava.io.tmpdir={self._directory.name}", *OPENS, program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._told: deque[str] = deque(maxlen=KEPT_LINES)
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM, and remove what it left."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join(CLOSE_SECONDS)
        self.process.stdout.close()
        self.process.stderr.close()
        self._directory.cleanup()

    def answer_to(self, words: Iterable[object]) -> str:
        """The line that a command is answered with.

        Raises:
            FlinkError: The program has ended, or does not answer in time.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\t".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise self._gone("has ended") from error
        return self._line()

    def ask_words(self, words: Iterable[object]) -> str:
        """What follows the `ok` that a command is answered with.

        Raises:
            FlinkError: It is answered otherwise, or not.
        """
        return self._text_of(self.answer_to(words))

    def _text_of(self, line: str) -> str:
        verdict, _, text = line.partition(" ")
        if verdict != "ok":
            raise FlinkError(f"Flink {self.version}: {text}")
        return text

    def _line(self) -> str:
        assert self.process.stdout is not None
        late = Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        watchdog = Timer(self.patience, give_up)
        watchdog.daemon = True
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise self._gone(
                f"gave no answer in {self.patience:g} s" if late.is_set() else "ended unasked"
            )
        return line.rstrip("\n")

    def _gone(self, how: str) -> FlinkError:
        """An error that quotes the JVM's last words, all of which are read first."""
        self.process.wait(CLOSE_SECONDS)
        self._listener.join(CLOSE_SECONDS)
        told = "\n".join(self._told) or "(it wrote nothing to its standard error)"
        code = self.process.returncode
        return FlinkError(f"Flink {self.version} {how}, with exit code {code}:\n{told}")

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._told.append(line.rstrip("\n"))


@contextmanager
def kept_jvm(version: str, program: str, path: Iterable[Path], heap: str) -> Iterator[AskedFlink]:
    """A program that was asked before, or a new one; it is kept for the next who asks.

    Args:
        version: Of Flink.
        program: As for `AskedFlink`.
        path: As for `AskedFlink`.
        heap: As for `AskedFlink`.
    """
    key = (program, tuple(path), heap)
    asked = _kept.pop(key, None) or AskedFlink(version, *key, ANSWER_SECONDS)
    try:
        yield asked
    except BaseException:
        asked.close()
        raise
    _kept[key] = asked
    while len(_kept) > KEPT_JVMS:
        _kept.pop(next(iter(_kept))).close()


# those that were asked last
_kept: dict[tuple[str, tuple[Path, ...], str], AskedFlink] = {}


@atexit.register
def _close_kept() -> None:
    while _kept:
        _kept.popitem()[1].close()


def answers_of(
    program: str,
    classes: Path,
    jars: Iterable[Path],
    commands: Iterable[Iterable[object]],
    heap: str = "1g",
) -> list[str]:
    """What a program of ours says to some commands: lines that begin with `ok` or `error`.

    Args:
        program: Its class, which answers as `Answers.java` does.
        classes: The directory that it is compiled to.
        jars: What it needs.
        commands: The words of each command.
        heap: Of the JVM.

    Raises:
        FlinkError: The program ended too soon.
    """
    with kept_jvm(program, program, [classes, *jars], heap) as asked:
        return [asked.answer_to(words) for words in commands]


class FlinkOracle(AskedFlink):
    """The jobs of `Jobs.java` in one version of Flink.

    Args:
        version: Of Flink.
        heap: As for `AskedFlink`.
        patience: As for `AskedFlink`.
        modules: Of Flink, beside those that our jobs need.
        changed: Sources that are compiled in place of those of their names.
    """

    def __init__(
        self,
        version: str,
        heap: str = "1g",
        patience: float = ANSWER_SECONDS,
        modules: Collection[str] = (),
        changed: Collection[Path] = (),
    ) -> None:
        jars = flink_jars(version, [*modules_of(version), *modules])
        names = [*SOURCES, *(() if version.startswith("1.") else NEW_SOURCES)]
        sources = {name: JAVA_SOURCES / name for name in names}
        sources |= {path.name: path for path in changed}
        classes = compiled(sources.values(), jars, f"flink-{version}")
        super().__init__(version, "Oracle", [classes, *jars], heap, patience)
        try:
            self._text_of(self._line())
        except BaseException:
            self.close()
            raise

    def generate(self, case: str, to: Path, **options: object) -> Path:
        """Run a job over some keys, and take a savepoint; where it is."""
        chosen = {
            "backend": "hashmap", "format": "canonical", "compression": "false",
            "parallelism": 2, "max": 128, "keys": 300, "inline": 0, **options,
        }  # fmt: skip
        answer = self._ask("generate", case=case, to=to.as_uri(), **chosen)
        return Path(answer.removeprefix("file:"))

    def checkpoints(self, case: str, to: Path, **options: object) -> list[Path]:
        """Run a job whose checkpoints are all kept: where they are, then where its savepoints are.

        Args:
            case: The job; `chain`, `changes` and `async-changes` change their state before each
                checkpoint.
            to: Where a directory for the job is to be.
            options: `generations` is the number of checkpoints, `savepoints` the formats of the
                savepoints after them, `pause` how many milliseconds it waits behind each; names
                with a dot are Flink's own options.
        """
        chosen = {
            "backend": "rocksdb", "compression": "false", "parallelism": 2, "max": 128,
            "keys": 300, "inline": 0, "generations": 1, "savepoints": "", **options,
        }  # fmt: skip
        answer = self._ask("checkpoints", case=case, to=to.as_uri(), **chosen)
        return [Path(part.removeprefix("file:")) for part in answer.split()]

    def restore(self, case: str, savepoint: Path, **options: object) -> list[Any]:
        """What Flink sees after restoring: the sorted lines of every key, as JSON.

        Args:
            case: The job.
            savepoint: What it restores.
            options: `strict="true"` lets Flink refuse state that no operator claims; `suffix` is
                what the uids of the operators `counter` and `kinds` end in; `ttl` is how long
                states of `kinds` live, as in `name:1000,session:off`, in milliseconds.
        """
        chosen = {"backend": "hashmap", "parallelism": 2, "max": 128, "keys": 300, **options}
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "lines"
            self._ask("restore", case=case, savepoint=savepoint.as_uri(), out=out, **chosen)
            lines = out.read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _ask(self, command: str, **arguments: object) -> str:
        return self.ask_words([command, *(f"{name}={value}" for name, value in arguments.items())])
