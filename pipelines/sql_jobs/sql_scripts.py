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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from statelake.pipelines.find.copying import copy_snapshot
from statelake.pipelines.requests.request import takes
from statelake.pipelines.sql_jobs.java_programs import (
    flink_from_maven,
    flink_libraries,
    flink_settings,
    run_program,
)
from statelake.pipelines.sql_jobs.requests import CompileSql, FlinkOfSql, NamedPlans, SqlTypes
from statelake.state_core.errors import DeclarationError, EncodeError, MissingFileError
from statelake.state_core.formats.layout.state_types import StateTypes
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.plans.naming import nodes_by_uid
from statelake.state_core.plans.plan import MAX_PLAN_BYTES, Plan, parse_plan, read_plan

SILENT = ("JobStates.java", "Silent.java", "EmptyTables.java")
COMPILER, RUNNER = ("SqlScript.java", *SILENT), (*SILENT, "SqlScript.java")
MAX_SCRIPT_BYTES = 16 << 20
PLAN = ".json"
_TOKEN = re.compile(r"'[^']*'|`[^`]*`|--[^\n]*|/\*.*?\*/|;|\w+|\s+|.", re.DOTALL)
_BLOCK = re.compile(r"\bSTATEMENT SET BEGIN\b")
# in the names of options: those of which Flink shows no value either, and some more
_SECRET_WORDS = (
    "pass(?:word|wd|phrase|code)", "pwd", "secret", "token", "auth", "jaas", "credential",
    "private", "signature", r"(?:api|access|account|service|shared|encryption)[._-]?key",
    "user-?info", "http-headers",
    # short ones, which are parts of other words
    r"(?<![a-z])(?:pass|sig|sas|pw)(?![a-z])", r"(?-i:[a-z](?:Pass|Sig|Sas|Pw)(?![a-z]))",
)  # fmt: skip
_SECRET = re.compile("|".join(_SECRET_WORDS), re.IGNORECASE)
_ASSIGNED = (
    re.compile(r"'([\w.-]{1,200})'\s{0,20}=\s{0,20}'((?:[^']|'')*)"),  # an option of a script
    re.compile(r'"([\w.-]{1,200})"\s{0,20}:\s{0,20}"((?:[^"\\]|\\.)*)'),  # one of a plan
    re.compile(r"(?<![\w.-])([\w.-]{1,100})\s{0,20}=\s{0,20}\\?\"([^\"\\]*)"),  # within one
    re.compile(r"(?<![\w.-])([\w.-]{1,100})\s{0,20}=\s{0,20}([^\"'\\&;,\s]+)"),
    re.compile(r"(?<![\w.-])([\w.-]{1,100})\s{0,20}=\s{0,20}([^\"'\\&;\s]+)"),  # with a comma
)
# a mistake, of which Flink repeats a part
_UNQUOTED = re.compile(r"'([\w.-]{1,200})'[\s=]{0,20}([^'\"\s=,)]+)")
_WORD = re.compile(r"(?:[^\s'\"]|'')+")  # a quote within a text of SQL is two
# before the user of an address: the user ends at a colon, or for Oracle's at a slash
_ADDRESSES = ((re.compile("://"), ":"), (re.compile(r"jdbc:oracle:\w{1,20}:", re.IGNORECASE), "/"))
_QUOTED_OF_ORACLE = re.compile(
    r"jdbc:oracle:\w{1,20}:[^/\s'\"@]{0,200}/\\?\"([^\"\\]*)", re.IGNORECASE
)
_REMEDY = (
    "give the whole script of the job: its tables, its settings, and one INSERT or STATEMENT SET."
    " The JARs of functions and of connectors that are not known go on the --classpath; another"
    " version of Flink is named by --flink-version or --flink-home"
)


@dataclass(frozen=True)
class SqlScript:
    """A script of Flink SQL, which real Flink compiles when its plan is needed.

    Attributes:
        sql: The script, a file: settings, tables, views and functions, and one INSERT or STATEMENT
            SET.
        flink_home: The directory of Flink, whose `lib` has its JARs.
        flink_version: Instead, the version whose JARs are taken from Maven Central, such as `1.20`.
        classpath: JARs, or directories of them, with the script's functions and connectors.
            Connectors that are there are used themselves, in the place of empty tables.
        timeout: The seconds that Flink has.
        keep: The file that keeps the plan; None if it is not kept.
    """

    sql: str | os.PathLike[str]
    flink_home: str | os.PathLike[str] | None = None
    flink_version: str = ""
    classpath: str | Sequence[str] = ()
    timeout: float = 60.0
    keep: str | os.PathLike[str] | None = None

    @cached_property
    def plan(self) -> Plan:
        """The plan over empty tables, compiled at the first use.

        Raises:
            EncodeError: No Flink is named, or two are; or the plan can't be kept there.
            MissingFileError: There is no such script, no such JAR, or no Flink.
            DeclarationError: It is not a SQL script.
            FlinkJobError: Flink does not compile it.
        """
        return replace(parse_plan(self._text, os.fspath(self.sql)), numbered=False)

    @cached_property
    def _text(self) -> bytes:
        script = _read_script(os.fspath(self.sql))
        libraries = _libraries(self.flink_home, self.flink_version, self.classpath)
        if self.keep is not None:
            _refuse_place(self.keep)
            if Path(self.keep).resolve() == Path(self.sql).resolve():
                raise _unwritable(self.keep, "it is the script")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            words = ["compile", _real(self.classpath), _written(script, directory),
                     str(Path(directory) / "plan.json")]  # fmt: skip
            made = Path(
                _answer(COMPILER, libraries, words, directory, self.timeout, self.sql, script,
                        self.flink_home)
            )  # fmt: skip
            return made.read_bytes()

    def keep_plan(self) -> None:
        """Write the plan to its file, completely or not at all, readable by its owner alone.

        It has the options of the script's tables, and so may have passwords.

        Raises:
            EncodeError: It can't be written.
        """
        if self.keep is None:
            return
        _refuse_place(self.keep)
        target = Path(self.keep).resolve()
        part = None
        try:
            handle, part = tempfile.mkstemp(dir=target.parent, prefix=".plan-")  # of mode 0600
            with os.fdopen(handle, "wb") as file:
                file.write(self._text)
                file.flush()
                os.fsync(handle)
            Path(part).replace(target)
            part = None
        except OSError as error:
            raise _unwritable(self.keep, error.strerror) from error
        finally:
            if part is not None:
                Path(part).unlink(missing_ok=True)


@dataclass(frozen=True)
class SqlPlans:
    """The plans of a job's old query and of its new one: compiled ones, or scripts in their place.

    Attributes:
        old: That of the job that took the savepoint: a file, what `compile_sql` returns, or a
            script.
        new: That of the job that is to go on.
    """

    old: str | os.PathLike[str] | Plan | SqlScript
    new: str | os.PathLike[str] | Plan | SqlScript

    @classmethod
    def named(cls, request: NamedPlans) -> SqlPlans:
        """Return them as a user names them; what is empty or None is not named.

        Raises:
            EncodeError: What is named does not belong together.
        """
        old_plan, old_sql, keep_plan = request.old_plan, request.old_sql, request.keep_plan
        new_plan, new_sql, flink_home = request.new_plan, request.new_sql, request.flink_home
        for word, plan, sql in (("old", old_plan, old_sql), ("new", new_plan, new_sql)):
            if bool(plan) == bool(sql):
                raise EncodeError(f"give --{word}-plan, or --{word}-sql")
        if keep_plan and not new_sql:
            raise EncodeError("--keep-plan is for the plan of --new-sql")
        for read in filter(None, (old_plan, old_sql) if keep_plan else ()):
            if Path(read).resolve() == Path(keep_plan or "").resolve():
                raise EncodeError(f"--keep-plan {keep_plan} is a file that the old job needs")
        if flink_home and request.flink_version:
            raise EncodeError("--flink-home has its version: give one of both")
        new = SqlScript(new_sql or "", flink_home or None, request.flink_version,
                        request.classpath, request.timeout, keep_plan or None)  # fmt: skip
        old = replace(new, sql=old_sql or "", keep=None)
        old_flink = request.old_flink
        if old_flink:
            is_version = old_flink.replace(".", "").isdecimal()
            home, version = (None, old_flink) if is_version else (old_flink, "")
            old = replace(old, flink_home=home, flink_version=version)
        for sql, script in ((old_sql, old), (new_sql, new)):
            if sql and script.flink_home is None and not script.flink_version:
                raise _no_flink()
        return cls(old_plan or old, new_plan or new)

    def within(self, timeout: float) -> SqlPlans:
        """Return them with so many seconds to compile each script."""
        old, new = (
            replace(each, timeout=timeout) if isinstance(each, SqlScript) else each
            for each in (self.old, self.new)
        )
        return SqlPlans(old, new)

    def read(self) -> tuple[str | os.PathLike[str] | Plan, str | os.PathLike[str] | Plan]:
        """Return both plans: the file of one, or what Flink compiles of a script.

        Raises:
            StateError: As `SqlScript.plan`.
        """
        old, new = (
            each.plan if isinstance(each, SqlScript) else each for each in (self.old, self.new)
        )
        return old, new

    def keep(self) -> None:
        """Keep the plan of the new script, if a file for it is named.

        Raises:
            EncodeError: It can't be written.
        """
        if isinstance(self.new, SqlScript):
            self.new.keep_plan()


@takes(CompileSql)
def compile_sql(request: CompileSql) -> Plan:
    """Return the plan that real Flink compiles of a SQL script, over empty tables.

    Raises:
        EncodeError: No Flink is named, or two are; or the plan can't be written.
        MissingFileError: There is no such script, no such JAR, or no Flink.
        DeclarationError: It is not a SQL script.
        FlinkJobError: Flink does not compile it.
    """
    script = SqlScript(**request.words(FlinkOfSql), sql=request.sql, keep=request.to)
    plan = script.plan
    script.keep_plan()
    return plan


def _refuse_place(to: str | os.PathLike[str]) -> None:
    """Refuse a file that can't be written, before Java starts.

    Raises:
        EncodeError: There is no such directory, or something else in the file's place.
    """
    target = Path(to).resolve()
    if target.exists() and not target.is_file():
        raise _unwritable(to, "something else is there")
    if not target.parent.is_dir():
        raise _unwritable(to, "no such directory")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise _unwritable(to, "the directory is not yours to write")


def _unwritable(to: str | os.PathLike[str], reason: str | None) -> EncodeError:
    return EncodeError(
        f"the plan can't be written ({reason})", place=os.fspath(to), remedy="name another file"
    )


@takes(SqlTypes)
def sql_types(request: SqlTypes) -> StateTypes:
    """Return the types of the states of a job of Flink SQL, started over empty tables.

    The savepoint that it takes at once has all states and no entry, and is what `sql_upgrade` takes
    as `like`.

    Raises:
        EncodeError: No Flink is named, or two are.
        MissingFileError: There is no such script, no such JAR, or no Flink.
        DeclarationError: It is not a SQL script.
        FlinkJobError: Flink does not compile or start it.
    """
    place, classpath, timeout = os.fspath(request.sql), request.classpath, request.timeout
    flink_home, no_uids = request.flink_home, request.no_uids
    is_plan = place.endswith(PLAN)
    if is_plan and no_uids:
        raise DeclarationError(
            "a compiled plan, which has uids", place=place, remedy="give the script"
        )
    source = _read(place) if is_plan else _read_script(place)
    libraries = _libraries(flink_home, request.flink_version, classpath)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        plan = str(Path(place).absolute() if is_plan else Path(directory) / "plan.json")
        job = ["plan", _real(classpath), plan]
        if not is_plan:
            job = ["run" if no_uids else "compiled", _real(classpath),
                   _written(source, directory), plan]  # fmt: skip
        words = [directory, "SqlScript", Path(directory).as_uri(), f"{timeout:.0f}", *job]
        made = _answer(RUNNER, libraries, words, directory, timeout, place, source, flink_home)
        made = made.removeprefix("file:")
        if request.to is not None:
            copy_snapshot(made, request.to)
        uids = () if no_uids else _uids(made, read_plan(plan))
        return open_snapshot(made, uids=uids).types(request.operator)


def _uids(savepoint: str, plan: Plan) -> list[str]:
    """Return the uids of the operators of a plan, of which a savepoint of Flink 1 has hashes."""
    uids = {each.operator_id: each.uid for each in open_snapshot(savepoint).operators}
    nodes, _ = nodes_by_uid(plan, uids)
    return [f"{number}_{name}" for number, name in nodes.values()]


def _answer(
    sources: Sequence[str],
    libraries: Sequence[Path],
    words: Sequence[str],
    directory: str,
    timeout: float,
    place: str | os.PathLike[str],
    source: str,
    flink_home: str | os.PathLike[str] | None,
) -> str:
    return run_program(
        sources, libraries, words, directory, timeout=timeout, place=os.fspath(place),
        problem="Flink does not take it", remedy=_REMEDY, conf=flink_settings(flink_home),
        hidden=sorted(passwords(source)),
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
        raise _no_flink()
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


def _no_flink() -> EncodeError:
    return EncodeError(
        "the version of Flink that compiles SQL is missing",
        remedy="name its directory, --flink-home, or its version, --flink-version 1.20",
    )


def _real(classpath: str | Sequence[str]) -> str:
    return str(bool(classpath)).lower()


def _written(script: str, directory: str) -> str:
    """Write the statements of a script to a file, as the program reads them."""
    path = Path(directory) / "statements"
    statements = split_statements(script)
    path.write_text("".join(f"{line}\0{text}\0" for line, text in statements), "utf-8")
    return str(path)


def _read_script(place: str) -> str:
    """Return a script that a user names.

    Raises:
        MissingFileError: It can't be read.
        DeclarationError: It is not text, or has no statement.
    """
    text = _read(place, MAX_SCRIPT_BYTES)
    if "\0" in text:
        raise DeclarationError("not a SQL script", place=place, remedy=_REMEDY)
    if next(split_statements(text), None) is None:
        raise DeclarationError("it has no statement", place=place, remedy=_REMEDY)
    return text


def _read(place: str, most: int = MAX_PLAN_BYTES) -> str:
    """Return the text of a file that a user names.

    Raises:
        MissingFileError: It can't be read.
        DeclarationError: It is not text, or too long.
    """
    try:
        with Path(place).open("rb") as file:
            data = file.read(most + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise MissingFileError(
            f"it can't be read ({error.strerror})", place=place, remedy=_REMEDY
        ) from error
    except UnicodeDecodeError as error:
        raise DeclarationError(f"no text ({error})", place=place, remedy=_REMEDY) from error
    if len(data) > most:
        raise DeclarationError(f"more than {most >> 20} MiB", place=place, remedy=_REMEDY)
    return text


def passwords(text: str) -> set[str]:
    """Return what the options in a script or a plan have that no message may show."""
    secrets = {each[1] for each in _QUOTED_OF_ORACLE.finditer(text)}
    for word in _WORD.finditer(text):
        secrets |= _passwords_of_users(word[0])
    for pattern in _ASSIGNED:
        secrets |= {each[2] for each in pattern.finditer(text) if _SECRET.search(each[1])}
    for each in _UNQUOTED.finditer(text):
        if _SECRET.search(each[1]):
            secrets |= {each[2], *re.findall(r"\w+", each[2])}
    return {each for value in secrets for each in (value, value.replace("''", "'")) if each}


def _passwords_of_users(word: str) -> set[str]:
    """Return the passwords in addresses; each end that one may have, as any character may be in it.

    The time is in proportion to the length: a part ends where the next address begins.
    """
    secrets = set()
    for before, after_user in _ADDRESSES:
        for part in before.split(word)[1:]:
            user, _, rest = part.partition(after_user)
            if "@" in user or "/" in user or "@" not in rest:
                continue
            host, beside = rest.partition("/")[0], rest.partition("?")[0]
            secrets |= {
                rest.partition("@")[0], rest.rpartition("@")[0],
                host.rpartition("@")[0], beside.rpartition("@")[0],
            }  # fmt: skip
    return secrets


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
