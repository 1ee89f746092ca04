"""flink-scala-api compiled from its sources, and what it writes: vectors, and a savepoint.

`python -m tests.integration.flink.scala_library SOURCES VERSION DIRECTORY` takes a checkout of
flink-scala-api at `VERSION`, one of those below, and writes its golden files into a directory. Its
JARs were not to be had when these were made, so that it is compiled here: its serializers and its
derivation of type information, without its streams.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statelake.pipelines.spark.jars import java_command, resolve_jars
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.integration.flink.oracle import answers_of, successes

__all__ = ["VERSIONS", "Library"]

FLINK = "1.20.0"
TYPES = Path(__file__).parent / "scala" / "FlinkxTypes.scala"
# of the library's sources, what only serves streams, tables and their functions
LEFT_OUT = re.compile(
    r"rowdata|/extensions/|Stream|conv\.scala|/async/|/function/|/table/api/|ClosureCleaner"
    r"|OutputTag|CloseableIterator|typeutils/Default"
)


@dataclass(frozen=True)
class Version:
    """A version of the library.

    Attributes:
        word: What `FlinkxVectors` calls it.
        scala: The version of Scala.
    """

    word: str
    scala: str


VERSIONS = {
    "1.2.4": Version("first", "2.13.18"),
    "1.2.9": Version("middle", "2.13.18"),
    "2.2.4": Version("last", "3.3.7"),
}


class Library:
    """The library, compiled against one version of Flink.

    Args:
        sources: The checkout.
        version: Its version.
        flink: Flink's.
        directory: Where the classes go.
    """

    def __init__(self, sources: Path, version: str, flink: str, directory: Path) -> None:
        self.version = VERSIONS[version]
        three = self.version.scala.startswith("3")
        compiler = "scala3-compiler_3" if three else "scala-compiler"
        magnolia = "1_3:magnolia_3:1.3.18" if three else "1_2:magnolia_2.13:1.1.10"
        coordinates = [
            f"org.scala-lang:{compiler}:{self.version.scala}",
            f"com.softwaremill.magnolia{magnolia}",
        ]
        self.scala = sorted(resolve_jars(f"scala-{self.version.scala}", coordinates).glob("*.jar"))
        self.main = "dotty.tools.dotc.Main" if three else "scala.tools.nsc.Main"
        self.options = ["-Xmax-inlines:128"] if three else []
        flinks = [jar for jar in flink_jars(flink) if "scala" not in jar.name]
        self.classes = directory / "classes"
        self.classes.mkdir(parents=True)
        self.jars = [self.classes, *self.scala, *flinks]
        files = _sources(sources, "scala-3" if three else "scala-2")
        self.compile(files)
        java = [file for file in files if file.suffix == ".java"]
        if java:
            path = ":".join(map(str, self.jars))
            command = ["javac", "-nowarn", "-cp", path, "-d", self.classes, *java]
            subprocess.run(command, check=True)

    def compile(self, files: Iterable[Path]) -> None:
        """Compile Scala sources, which may name classes of Java sources among them."""
        path = ":".join(map(str, self.jars))
        command = [
            java_command(), "-Xmx2g", "-Xss8m", "-cp", ":".join(map(str, self.scala)), self.main,
            "-nowarn", *self.options, "-classpath", path, "-d", self.classes, *files,
        ]  # fmt: skip
        subprocess.run(command, check=True)

    def vectors(self) -> str:
        """What `FlinkxVectors` prints; it compiles with the newest library only: run that first."""
        classes = self._compiled("flinkx", "FlinkxVectors", "Vectors", "Json")
        path = ":".join(map(str, [classes, *self.jars]))
        command = [java_command(), *OPENS, "-cp", path, "FlinkxVectors", self.version.word]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def states(self, *commands: tuple[str, str]) -> list[str]:
        """What `FlinkxStates` answers: `write` a savepoint, or `read` one."""
        self.compile([TYPES])
        release = f"flinkx-{self.version.word}"
        classes = self._compiled(release, "FlinkxStates", "HeldSource", "Cluster", "Answers")
        return successes(answers_of("FlinkxStates", classes, self.jars, commands, "768m"))

    def _compiled(self, release: str, *programs: str) -> Path:
        sources = [JAVA_SOURCES / f"{program}.java" for program in programs]
        return compiled(sources, self.jars, release)


def _sources(checkout: Path, scala: str) -> list[Path]:
    """The library's sources, which moved twice."""
    places = [checkout / place for place in ("modules/flink-common-api", "modules/scala-api", ".")]
    main = next(place for place in places if (place / "src/main/scala").is_dir()) / "src/main"
    found = [
        file
        for folder in ("scala", scala, "java")
        for suffix in ("scala", "java")
        for file in sorted((main / folder).rglob(f"*.{suffix}"))
    ]
    return [file for file in found if not LEFT_OUT.search(file.as_posix())]


if __name__ == "__main__":
    given, named, to = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    with tempfile.TemporaryDirectory() as temporary:
        library = Library(given, named, FLINK, Path(temporary))
        to.mkdir(parents=True, exist_ok=True)
        (to / f"flinkx-{named}.jsonl").write_text(library.vectors(), "utf-8")
        library.states(("write", (to / "savepoint").as_uri()))
