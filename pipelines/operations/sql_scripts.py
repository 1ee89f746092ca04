"""Scripts of Flink SQL: the plan that real Flink compiles of one, and the types of its job's state.

The tables that a script declares are empty ones of ours, so that no connector is needed and no
system of the user's is asked. What the planner asks of a connector is answered by its name and its
options: `EmptyTables.java` says how. Java is needed, and the user's Flink or Maven's. The script is
the user's own; functions that it names are run as far as the planner folds constants.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from statelake.pipelines.operations.copying import CopyOptions, copy_snapshot
from statelake.pipelines.operations.java_programs import (
    flink_from_maven,
    flink_libraries,
    flink_settings,
    run_program,
)
from statelake.state_core.errors import DeclarationError, EncodeError, MissingFileError
from statelake.state_core.formats import open_snapshot
from statelake.state_core.formats.layout.state_types import StateTypes
from statelake.state_core.plans.naming import nodes_by_uid
from statelake.state_core.plans.plan import Plan, parse_plan, read_plan

SILENT = ("JobStates.java", "Silent.java", "EmptyTables.java")
COMPILER, RUNNER = ("SqlScript.java", *SILENT), (*SILENT, "SqlScript.java")
MAX_SCRIPT_BYTES = 16 << 20
PLAN = ".json"
_TOKEN = re.compile(r"'[^']*'|`[^`]*`|--[^\n]*|/\*.*?\*/|;|\w+|\s+|.", re.DOTALL)
_BLOCK = re.compile(r"\bSTATEMENT SET BEGIN\b")
_REMEDY = (
    "give the whole script of the job: its tables, its settings, and one INSERT or STATEMENT SET."
    " The JARs of functions and of connectors that are not known go on the --classpath; another"
    " version of Flink is named by --flink-version or --flink-home"
)


def compile_sql(
    sql: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    flink_home: str | os.PathLike[str] | None = None,
    flink_version: str = "",
    classpath: str | Sequence[str] = (),
    timeout: float = 60.0,
) -> Plan:
    """Return the plan that real Flink compiles of a SQL script, over empty tables.

    Args:
        sql: The script, a file: settings, tables, views and functions, and one INSERT or STATEMENT
            SET.
        to: The file that the plan is written to; none without it.
        flink_home: The directory of Flink, whose `lib` has its JARs.
        flink_version: Instead, the version whose JARs are taken from Maven Central, such as `1.20`.
        classpath: JARs, or directories of them, with the script's functions and connectors.
            Connectors that are there are used themselves, in the place of empty tables.
        timeout: The seconds that Flink has.

    Raises:
        EncodeError: No Flink is named, or two are.
        MissingFileError: There is no such script, no such JAR, or no Flink.
        DeclarationError: It is no script of SQL.
        FlinkJobError: Flink does not compile it.
    """
    place = os.fspath(sql)
    statements = _statements(place)
    libraries = _libraries(flink_home, flink_version, classpath)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        words = ["compile", _real(classpath), _written(statements, directory),
                 str(Path(directory) / "plan.json")]  # fmt: skip
        made = Path(_answer(COMPILER, libraries, words, directory, timeout, place, flink_home))
        text = made.read_bytes()
    plan = parse_plan(text, place)
    if to is not None:
        try:
            Path(to).write_bytes(text)
        except OSError as error:
            raise EncodeError(
                f"it can't be written ({error.strerror})", place=os.fspath(to)
            ) from error
    return replace(plan, numbered=False)


def sql_types(
    sql: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    flink_home: str | os.PathLike[str] | None = None,
    flink_version: str = "",
    classpath: str | Sequence[str] = (),
    no_uids: bool = False,
    operator: str | Sequence[str] = (),
    timeout: float = 60.0,
) -> StateTypes:
    """Return the types of the states of a job of Flink SQL, started over empty tables.

    The savepoint that it takes at once has all states and no entry, and is what `sql_upgrade` takes
    as `like`.

    Args:
        sql: The script, a file; or a compiled plan, which ends in `.json`.
        to: The directory that the savepoint is copied to, which must not have another file in it.
        flink_home: The directory of Flink, whose `lib` has its JARs.
        flink_version: Instead, the version whose JARs are taken from Maven Central, such as `1.20`.
        classpath: JARs, or directories of them, with the script's functions and connectors.
        no_uids: Whether the job runs without a compiled plan, so that operators have no uids.
        operator: Only these operators, by uid or id.
        timeout: The seconds in which the job must start.

    Raises:
        EncodeError: No Flink is named, or two are.
        MissingFileError: There is no such script, no such JAR, or no Flink.
        DeclarationError: It is no script of SQL.
        FlinkJobError: Flink does not compile or start it.
    """
    place = os.fspath(sql)
    is_plan = place.endswith(PLAN)
    if is_plan and no_uids:
        raise DeclarationError(
            "a compiled plan, which has uids", place=place, remedy="give the script"
        )
    statements = [] if is_plan else _statements(place)
    libraries = _libraries(flink_home, flink_version, classpath)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        plan = str(Path(place).absolute() if is_plan else Path(directory) / "plan.json")
        job = ["plan", _real(classpath), plan]
        if not is_plan:
            job = ["run" if no_uids else "compiled", _real(classpath),
                   _written(statements, directory), plan]  # fmt: skip
        words = [directory, "SqlScript", Path(directory).as_uri(), f"{timeout:.0f}", *job]
        made = _answer(RUNNER, libraries, words, directory, timeout, place, flink_home)
        made = made.removeprefix("file:")
        if to is not None:
            copy_snapshot(made, to, CopyOptions())
        uids = () if no_uids else _uids(made, read_plan(plan))
        wanted = [operator] if isinstance(operator, str) else operator
        return open_snapshot(made, uids=uids).types(wanted)


def _uids(savepoint: str, plan: Plan) -> list[str]:
    """Return the uids of the operators of a plan, of which a savepoint of Flink 1 has hashes."""
    held = {each.operator_id: each.uid for each in open_snapshot(savepoint).operators}
    nodes, _ = nodes_by_uid(plan, held)
    return [f"{number}_{name}" for number, name in nodes.values()]


def _answer(
    sources: Sequence[str],
    libraries: Sequence[Path],
    words: Sequence[str],
    directory: str,
    timeout: float,
    place: str,
    flink_home: str | os.PathLike[str] | None,
) -> str:
    return run_program(
        sources, libraries, words, directory, timeout=timeout, place=place,
        problem="Flink does not take it", remedy=_REMEDY, conf=flink_settings(flink_home),
    )  # fmt: skip


def _libraries(
    flink_home: str | os.PathLike[str] | None, flink_version: str, classpath: str | Sequence[str]
) -> list[Path]:
    """Return the JARs of Flink and of the user.

    Raises:
        EncodeError: There is no directory and no version, or both.
        MissingFileError: A JAR is not there.
    """
    if (flink_home is None) != bool(flink_version):
        raise EncodeError(
            "SQL is compiled by one Flink, which is not said",
            remedy="name its directory, --flink-home, or its version, --flink-version 1.20",
        )
    own: list[Path] = []
    for given in [classpath] if isinstance(classpath, str) else classpath:
        path = Path(given)
        jars = sorted(path.glob("*.jar")) if path.is_dir() else [path]
        if not jars or not path.exists():
            raise MissingFileError("no JAR there", place=given, remedy="see --classpath")
        own += jars
    if flink_home is not None:
        return [*flink_libraries(flink_home, sql=True), *own]
    return [*flink_from_maven(flink_version), *own]


def _real(classpath: str | Sequence[str]) -> str:
    return str(bool(classpath)).lower()


def _written(statements: Sequence[tuple[int, str]], directory: str) -> str:
    """Write statements to a file, as the program reads them."""
    path = Path(directory) / "statements"
    path.write_text("".join(f"{line}\0{text}\0" for line, text in statements), "utf-8")
    return str(path)


def _statements(place: str) -> list[tuple[int, str]]:
    """Return the statements of a script that a user names.

    Raises:
        MissingFileError: It can't be read.
        DeclarationError: It is no text, or has no statement.
    """
    try:
        with Path(place).open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise MissingFileError(
            f"it can't be read ({error.strerror})", place=place, remedy=_REMEDY
        ) from error
    except UnicodeDecodeError as error:
        raise DeclarationError(f"no text ({error})", place=place, remedy=_REMEDY) from error
    if len(data) > MAX_SCRIPT_BYTES or "\0" in text:
        raise DeclarationError("no script of SQL", place=place, remedy=_REMEDY)
    found = list(split_statements(text))
    if not found:
        raise DeclarationError("it has no statement", place=place, remedy=_REMEDY)
    return found


def split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a script, each with the number of its first line.

    A statement ends with a semicolon that is in no text, name or comment. Those within `STATEMENT
    SET BEGIN ... END` are one statement.
    """
    begin, words = -1, list[str]()
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word.isspace() or word.startswith(("--", "/*")):
            continue
        if word == ";":
            inside = _BLOCK.search(" ".join(words)) and words[-2:] != [";", "END"]
            if inside:
                words.append(word)
                continue
            if words:
                yield _line(text, begin), text[begin : token.start()]
            begin, words = -1, []
            continue
        begin = token.start() if begin < 0 else begin
        words.append("''" if word[0] in "'`" else word.upper())
    if words:
        yield _line(text, begin), text[begin:]


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
