"""Requests for scripts of Flink SQL: the Flink that compiles them, and the plans of two queries."""

from __future__ import annotations

import os
from collections.abc import Sequence

from statelake.pipelines.requests.request import Request, given, option
from statelake.pipelines.requests.shared import timeout_option


class FlinkOfSql(Request):
    """The Flink that compiles a SQL script."""

    flink_home: str | os.PathLike[str] | None = option(
        "The Flink that compiles SQL, or starts a JAR.", "DIRECTORY", default=None
    )
    flink_version: str = option(
        "For SQL: instead, the version whose JARs Maven has, such as 1.20.", "VERSION", default=""
    )
    classpath: Sequence[str] = option(
        "A JAR, or a directory of them, with the SQL's functions and connectors.", "JAR", default=()
    )
    timeout: float = timeout_option(
        "1min", "How long Flink may take to compile SQL, or to start a job", least=1
    )


class CompileSql(FlinkOfSql):
    """The plan of a script. Connectors on the classpath are used in the place of empty tables."""

    sql: str | os.PathLike[str] = given(
        "The script, a file: settings, tables, views and functions, and one INSERT or STATEMENT"
        " SET.",
        kw_only=False,
    )
    to: str | os.PathLike[str] | None = given(
        "The file that the plan is written to, which its owner alone may read, as it has all"
        " options of the tables.",
        default=None, kw_only=False,
    )  # fmt: skip


class SqlTypes(CompileSql):
    """The types of the states of a script's job; or of that of a compiled plan, `.json`."""

    to: str | os.PathLike[str] | None = given(
        "The directory that the savepoint is copied to, which must not have another file in it.",
        default=None, kw_only=False,
    )  # fmt: skip
    no_uids: bool = given(
        "Whether the job runs without a compiled plan, so that operators have no uids.",
        default=False,
    )
    operator: Sequence[str] = given("Only these operators, by uid or id.", default=())


class NamedPlans(FlinkOfSql):
    """The plans of a job's old query and of its new one, or their scripts."""

    old_plan: str | None = option(
        "The compiled plan of the job that took the savepoint.", "FILE", default=None
    )
    old_sql: str | None = option(
        "Instead, that job's SQL script, which real Flink compiles here.", "FILE", default=None
    )
    new_plan: str | None = option("The compiled plan of the new job.", "FILE", default=None)
    new_sql: str | None = option("Instead, that job's SQL script.", "FILE", default=None)
    keep_plan: str | None = option(
        "Keep the plan of --new-sql here: it is what the new job is to run.", "FILE", default=None
    )
    old_flink: str | None = option(
        "The Flink that compiles --old-sql, if it is another.", "VERSION_OR_HOME", default=None
    )
