"""Options of commands whose work an engine does: which one, and where Spark runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from statelake.pipelines.cli.help import more
from statelake.pipelines.cli.options import (
    Configured,
    gathered,
    job_of,
    job_option,
    lake_option,
)
from statelake.pipelines.cli.settings import ENGINES
from statelake.pipelines.engine import MASTER, SPARK_CONF, SPARK_PACK
from statelake.state_core.extras import require_extra

Command = TypeVar("Command", bound=Callable[..., Any])


def engine_option(command: Command) -> Command:
    """Add `--engine`, and the options of `cluster_options`."""
    choice = click.option(
        "--engine", cls=Configured, type=click.Choice(ENGINES), default="auto", show_default=True,
        help="Where to run; auto runs on this machine, or on a configured Spark cluster.",
    )  # fmt: skip
    return more(choice)(cluster_options(command))


def cluster_options(command: Command) -> Command:
    """Add `--master`, `--spark-pack` and `--spark-conf`, which Spark's session reads."""
    for option in (
        click.option(
            "--spark-conf", multiple=True, metavar="KEY=VALUE", expose_value=False,
            callback=_use_settings, help="A setting of Spark; may be repeated.",
        ),
        click.option(
            "--spark-pack", envvar=SPARK_PACK, show_envvar=True, metavar="FILE", expose_value=False,
            callback=partial(_use_setting, SPARK_PACK),
            help="The archive of `statelake spark pack`, for executors without statelake.",
        ),
        click.option(
            "--master", envvar=MASTER, show_envvar=True, metavar="URL", expose_value=False,
            callback=partial(_use_setting, MASTER),
            help="The cluster on which Spark runs: spark://HOST:PORT, yarn, sc://HOST:PORT.",
        ),
    ):  # fmt: skip
        command = more(option)(command)
    return command


def _use_settings(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> None:
    """Set Spark's settings for the session, as long as the command runs."""
    for setting in given:
        key, sign, _ = setting.partition("=")
        if not (key and sign) or "\n" in setting:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", context, option)
    _use_setting(SPARK_CONF, context, option, "\n".join(given))


def _use_setting(name: str, context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Set the environment variable that the session reads, as long as the command runs."""
    if not value or context.resilient_parsing:
        return
    require_extra("spark")
    before = os.environ.get(name)
    os.environ[name] = value

    def restore() -> None:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before

    context.call_on_close(restore)


# a job of a lake, and where its operations run
opened_job_and_engine = gathered("opened", job_of, lake_option, job_option, engine_option)
