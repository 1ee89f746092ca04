"""`statelake types`: the types of states as text, and differences of two such texts in words."""

from __future__ import annotations

from typing import Any

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    option_of,
    refuse_problems,
    request_options,
    source_or_sql_options,
)
from statelake.pipelines.requests.checks import CheckCompatibility
from statelake.pipelines.sql_jobs.requests import FlinkOfSql

JAR = ".jar"
FILES = (".yaml", ".yml", ".json", ".py")


@click.command()
@source_or_sql_options
@option_of(CheckCompatibility, "operator")
@click.option("--diff", metavar="FILE", help="Say how the types differ from those of a file.")
@click.option("--to", "target", metavar="DIRECTORY",
              help="Of --sql: keep the savepoint, which sql-upgrade takes as --like.")  # fmt: skip
@click.option("--no-uids", is_flag=True, help="The SQL job runs without a compiled plan.")
@request_options(FlinkOfSql, "flink")
@click.option("--entry-class", default="", help="The class with `main`; by default the JAR's.")
@click.option("--arg", "arguments", multiple=True, help="An argument of the program.")
@plugins_option
@json_option
def types(
    source: NamedSnapshot,
    operator: tuple[str, ...],
    diff: str | None,
    target: str | None,
    no_uids: bool,
    flink: FlinkOfSql,
    entry_class: str,
    arguments: tuple[str, ...],
    as_json_: bool,
) -> None:
    """Print the types of a snapshot's states as YAML, to be committed beside the job's code.

    `statelake check compatibility --against` and `statelake migrate --to` read it: class names,
    fields, enum constants, Avro schemas. The kind of a state, the types of its keys and namespaces
    and whether it has time to live are in it, too; no migration changes them. Types that the file
    can't express, such as Kryo's, are comments. Nothing is decoded.

    Of a JAR the types are those of a job that has never run: it is started in the Flink of
    --flink-home, by Java, reads nothing, and stops with a savepoint. Its main is run here, so give
    only a JAR that you would deploy. States that are registered later, at a record, are not seen.

    Of a script of Flink SQL, --sql, the types are those of its job over empty tables: it is
    compiled and started in the Flink of --flink-home or --flink-version, and nothing is asked of
    your systems. The savepoint that it takes has no data and all types: with --to it is kept, and
    is what sql-upgrade takes as --like.

    With --diff the differences from such a file are printed; SAVEPOINT may then be a file
    of types, too.

    \b
    Examples:
      statelake types /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
      statelake types --lake lake --job orders --snapshot monday --operator customers
      statelake types /savepoints/savepoint-of-the-new-job --diff types.yaml
      statelake types new-types.yaml --diff types.yaml
      statelake types new-job.jar --flink-home /opt/flink --entry-class com.acme.Orders --arg eu
      statelake types --sql new.sql --flink-version 2.3 --to schema-savepoint
    """
    is_jar, is_file = source.savepoint.endswith(JAR), source.savepoint.endswith(FILES)
    if is_file and (diff is None or operator):
        raise click.UsageError("a file of types is for --diff, and has no --operator")
    if source.sql is None and (target is not None or no_uids or flink.flink_version):
        raise click.UsageError("--to, --no-uids and --flink-version are for --sql")
    if flink.flink_home is not None and flink.flink_version:
        raise click.UsageError("--flink-home has its version: give one of both")
    if not is_jar and (entry_class or arguments):
        raise click.UsageError("--entry-class and --arg are for a JAR")
    new: Any = source.savepoint
    if source.sql is not None:
        new = sl.sql_types(source.sql, target, no_uids=no_uids, operator=operator, **vars(flink))
    elif is_jar:
        if flink.flink_home is None:
            raise click.UsageError("a JAR is started in a Flink: name its directory, --flink-home")
        if flink.classpath:
            raise click.UsageError("a JAR has its classes: --classpath is for --sql")
        new = sl.job_types(
            source.savepoint, flink.flink_home, entry_class=entry_class, arguments=arguments,
            operator=operator, timeout=flink.timeout,
        )  # fmt: skip
    elif flink.flink_home is not None or flink.classpath:
        raise click.UsageError("--flink-home and --classpath are for a JAR, or --sql")
    elif not is_file:
        new = source.opened(partial=diff is None).types(operator)
    result = new if diff is None else sl.diff_types(diff, new)
    show(result, as_json_=as_json_, marked="")
    refuse_problems(getattr(result, "problems", ()))
