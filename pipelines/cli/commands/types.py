"""`statelake types`: the types of states as text, and differences of two such texts in words."""

from __future__ import annotations

from typing import Any

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.options import NamedSnapshot, source_options

JAR = ".jar"
FILES = (".yaml", ".yml", ".json", ".py")


@click.command()
@source_options
@click.option("--operator", "operators", multiple=True, help="Only this operator; may be repeated.")
@click.option("--diff", metavar="FILE", help="Say how the types differ from those of a file.")
@click.option("--flink-home", metavar="DIRECTORY", help="Flink, in which a JAR is started.")
@click.option("--entry-class", default="", help="The class with `main`; by default the JAR's.")
@click.option("--arg", "arguments", multiple=True, help="An argument of the program.")
@click.option("--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True,
              help="The seconds in which a JAR's job must start.")  # fmt: skip
@plugins_option
@json_option
def types(
    source: NamedSnapshot,
    operators: tuple[str, ...],
    diff: str | None,
    flink_home: str | None,
    entry_class: str,
    arguments: tuple[str, ...],
    timeout: float,
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

    With --diff the differences from such a file are told in words; SAVEPOINT may then be a file
    of types, too.

    \b
    Examples:
      statelake types /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f
      statelake types --lake lake --job orders --snapshot monday --operator customers
      statelake types /savepoints/savepoint-of-the-new-job --diff types.yaml
      statelake types new-types.yaml --diff types.yaml
      statelake types new-job.jar --flink-home /opt/flink --entry-class com.acme.Orders --arg eu
    """
    is_file = source.savepoint.endswith(FILES)
    if is_file and (diff is None or operators):
        raise click.UsageError("a file of types is for --diff, and has no --operator")
    new: Any = source.savepoint
    if source.savepoint.endswith(JAR):
        if flink_home is None:
            raise click.UsageError("a JAR is started in a Flink: name its directory, --flink-home")
        new = sl.job_types(
            source.savepoint, flink_home, entry_class=entry_class, arguments=arguments,
            operator=operators, timeout=timeout,
        )  # fmt: skip
    elif flink_home is not None or entry_class or arguments:
        raise click.UsageError("--flink-home, --entry-class and --arg are for a JAR")
    elif not is_file:
        new = (source.stored() if source.in_lake else source.open()).types(operators)
    result = new if diff is None else sl.diff_types(diff, new)
    show(result, as_json_=as_json_, marked="")
