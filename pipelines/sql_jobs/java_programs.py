"""Small Java programs of ours that run in the user's Flink, each compiled against it once.

They are source files beside this module. Nothing out of a snapshot is ever run: what runs is the
user's own job, or the user's own SQL.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from statelake.pipelines.java import (
    MINIMUM_JAVA,
    cache_directory,
    make_cache,
    require_java,
    run_java,
)
from statelake.state_core.errors import EncodeError, FlinkJobError, MissingFileError
from statelake.state_core.extras import require_extra

SOURCES = Path(__file__).parent
START_SECONDS = 60  # of a JVM, beside the job's own
# it runs for seconds: the better compiler takes more than it gives
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
COMPILER = ("-m", "jdk.compiler/com.sun.tools.javac.Main", "--release", str(MINIMUM_JAVA))
PROBLEM, ANSWERS = "PROBLEM", ("PLAN", "SAVEPOINT")
OPENS = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")
)
SQL_MODULES = (
    "flink-clients", "flink-streaming-java", "flink-table-planner_2.12", "flink-table-runtime",
    "flink-table-api-java-bridge",
)  # fmt: skip
CONF = "FLINK_CONF_DIR"
CONF_FILES = ("config.yaml", "flink-conf.yaml")
PLANNER = "flink-table-planner*.jar"
# modules that have the version of their Flink, as connectors and formats have not
MODULE = re.compile(
    r"(flink-(?:dist|clients|core|runtime|streaming-java|table-(?:planner|runtime|common|api-java))"
    r"(?:-[a-z]+)*?)(?:-loader)?(?:_2\.\d+)?(?:-(\d+(?:\.\d+)*).*)?\.jar"
)
HIDDEN, SHORT = "******", 4


def flink_libraries(home: str | os.PathLike[str], *, sql: bool = False) -> list[Path]:
    """Return the JARs of a Flink distribution.

    Args:
        home: Its directory, whose `lib` has them.
        sql: Whether the planner of SQL is needed, which may be in `opt`.

    Raises:
        MissingFileError: There is no Flink, or no planner.
        EncodeError: There are two Flinks.
    """
    require_java("Flink")
    libraries = sorted((Path(home) / "lib").glob("*.jar"))
    if not libraries:
        raise MissingFileError(
            "no JARs of Flink in its `lib`", place=os.fspath(home),
            remedy="name the directory of a Flink distribution, --flink-home",
        )  # fmt: skip
    if sql and not any(each.match(PLANNER) for each in libraries):
        planners = sorted((Path(home) / "opt").glob(PLANNER))
        if not planners:
            raise MissingFileError(
                f"no {PLANNER} in its `lib` and `opt`", place=os.fspath(home),
                remedy="name the directory of a whole Flink distribution, --flink-home",
            )  # fmt: skip
        libraries += planners
    _refuse_two(libraries, os.fspath(home))
    return libraries


def _refuse_two(libraries: Sequence[Path], home: str) -> None:
    """Refuse JARs of two versions of Flink, or of one module twice: Java would mix their classes.

    Raises:
        EncodeError: There are two.
    """
    of_module: dict[str, Path] = {}
    of_version: dict[str, Path] = {}
    for each in libraries:
        if (named := MODULE.fullmatch(each.name)) is None:
            continue
        other = of_module.setdefault(named[1], each)
        if other is each and named[2]:
            of_version.setdefault(named[2], each)
            other = next(iter(of_version.values())) if len(of_version) > 1 else each
        if other is not each:
            raise EncodeError(
                f"it has two Flinks: {other.parent.name}/{other.name} and"
                f" {each.parent.name}/{each.name}",
                place=home, remedy="remove one, or name the directory of one Flink, --flink-home",
            )  # fmt: skip


def flink_settings(home: str | os.PathLike[str] | None) -> Path | None:
    """Return the directory of a Flink distribution's settings; None if it has none."""
    conf = None if home is None else Path(home) / "conf"
    has_some = conf is not None and any((conf / name).is_file() for name in CONF_FILES)
    return conf if has_some else None


def flink_from_maven(version: str) -> list[Path]:
    """Return the JARs of Flink SQL from Maven Central, downloaded at the first call.

    Args:
        version: Such as `1.20.1`; of a minor version, `1.20`, its newest patch.

    Raises:
        EncodeError: It is no version.
        StateError: The JARs can't be downloaded.
    """
    parts = version.split(".")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise EncodeError(f"{version!r} is no version of Flink", remedy="give one such as 1.20")
    require_java("Flink")
    exact = version if len(parts) == 3 else f"{version}.+"
    require_extra("spark")
    from statelake.pipelines.spark.jars import resolve_jars  # noqa: PLC0415 - of that extra

    modules = [f"org.apache.flink:{module}:{exact}" for module in SQL_MODULES]
    return sorted(resolve_jars(f"flink-sql-{version}", modules).glob("*.jar"))


def run_program(
    sources: Sequence[str],
    libraries: Sequence[Path],
    words: Sequence[str],
    directory: str,
    *,
    timeout: float,
    place: str,
    problem: str,
    remedy: str,
    conf: Path | None = None,
    hidden: Sequence[str] = (),
) -> str:
    """Run a program, and return what it answers.

    Args:
        sources: Its files; the first has the class that is run.
        libraries: The JARs of Flink, and of the user.
        words: The program's arguments.
        directory: Where it may write.
        timeout: The seconds that it has, beside a JVM's start.
        place: Of whom it is, for messages.
        problem: What is the matter if it gives no answer.
        remedy: What to do then.
        conf: The directory of Flink's settings, if they count.
        hidden: What messages must not show, such as passwords.

    Raises:
        EncodeError: A path can't be on a class path.
        FlinkJobError: It can't be compiled, has not ended in time, or says what is wrong.
    """
    for library in libraries:
        if os.pathsep in str(library):
            raise EncodeError(
                f"Java's class path can't have {os.pathsep!r} in a path", place=str(library),
                remedy="name it by a link without it",
            )  # fmt: skip
    classes = _compiled(sources, libraries, timeout + START_SECONDS)
    path = os.pathsep.join(map(str, libraries))
    command = [
        f"-Djava.io.tmpdir={directory}", "-Xmx1g", *QUICK, *OPENS,
        "-cp", os.pathsep.join((str(classes), path)), Path(sources[0]).stem, *words,
    ]  # fmt: skip
    environment = {name: text for name, text in os.environ.items() if name != CONF}
    if conf is not None:
        environment[CONF] = str(conf)
    try:
        done = run_java(command, timeout=timeout + START_SECONDS, environment=environment)
    except subprocess.TimeoutExpired as error:
        raise FlinkJobError(
            f"it has not ended in {timeout:.0f} s", place=place,
            remedy="give it longer, --timeout; sources and sinks that are not of Flink's new"
            " interfaces are started as they are, and may wait for their servers",
        ) from error  # fmt: skip
    answers = {
        name: text for name, _, text in (line.partition(" ") for line in done.stdout.splitlines())
    }
    for name in ANSWERS:
        if name in answers:
            return answers[name]
    cause = _without(hidden, answers.get(PROBLEM) or _end(_without(hidden, done.stderr)))
    raise FlinkJobError(
        f"{problem}: {cause or f'Java ended: {done.returncode}'}", place=place, remedy=remedy
    )


def _without(hidden: Sequence[str], text: str) -> str:
    """Return a text without words that it must not show; short ones go if they stand alone."""
    for word in sorted(hidden, key=len, reverse=True):
        alone = r"(?<!\w){}(?!\w)" if len(word) < SHORT else "{}"
        text = re.sub(alone.format(re.escape(word)), HIDDEN, text)
    return text


def _end(text: str) -> str:
    return text.strip()[-500:]


def _compiled(sources: Sequence[str], libraries: Sequence[Path], timeout: float) -> Path:
    """Return the directory with a program's classes, compiled once for each Flink.

    Raises:
        FlinkJobError: It can't be compiled, or not in time.
    """
    files = [SOURCES / each for each in sources]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    digest.update(repr([(each.name, each.stat().st_size) for each in libraries]).encode())
    digest.update(repr(COMPILER).encode())
    target = cache_directory() / f"flink-programs-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    make_cache()
    with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as part:
        classes = Path(part) / "classes"
        path = os.pathsep.join(map(str, libraries))
        compiler = [*QUICK, *COMPILER, "-nowarn", "-cp", path, "-d", str(classes)]
        try:
            done = run_java([*compiler, *map(str, files)], timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise FlinkJobError(
                f"it is not made ready for this Flink in {timeout:.0f} s",
                place=str(libraries[0].parent),
                remedy="Java's compiler takes seconds on an idle machine: give it longer,"
                " --timeout, or see what keeps it",
            ) from error
        if done.returncode:
            raise FlinkJobError(
                f"it can't be made ready for this Flink: {_end(done.stderr)}",
                place=str(libraries[0].parent),
                remedy="it takes a JDK, not a JRE, and Flink 1.19 or later",
            )
        with suppress(OSError):  # another process was first
            classes.rename(target)
    return target
