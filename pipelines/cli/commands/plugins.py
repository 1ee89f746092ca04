"""`--plugins` and `--kryo`: what users know of their types, for every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from statelake.state_core.serializers.framework.plugins import (
    ENVIRONMENT,
    load_plugin,
    load_text,
    restore_plugins,
)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _load(context: click.Context, _: click.Parameter, named: tuple[str, ...]) -> None:
    """Load each as the command line is read, so that what follows finds it registered."""
    if not context.resilient_parsing:
        for plugin in named:
            load_plugin(plugin)


def _declare(context: click.Context, _: click.Parameter, named: tuple[str, ...]) -> None:
    """Declare the classes of each file by a plugin made of it, which other processes load too."""
    if context.resilient_parsing:
        return
    restore_plugins(())  # what another command of this process declared is forgotten
    if not named:
        return
    from statelake.pipelines.yaml_lines import read_yaml  # noqa: PLC0415 - only when wanted

    for path in named:
        content, _lines = read_yaml(path, "classes", "give a YAML file with `flink` and `classes`")
        text = json.dumps(content, default=str)
        program = (
            "import json\n"
            "from statelake.state_core.serializers.kryo.decoding import declare_classes\n"
            f"declare_classes(json.loads({text!r}))\n"
        )
        load_text(path, program.encode(), declares=True)


_plugins = click.option(
    "--plugins",
    multiple=True,
    metavar="MODULE_OR_FILE",
    callback=_load,
    expose_value=False,
    help=f"Python that registers serializers or decoders of yours; also {ENVIRONMENT}.",
)
_kryo = click.option(
    "--kryo",
    multiple=True,
    metavar="FILE",
    callback=_declare,
    expose_value=False,
    help="YAML that says which Flink wrote Kryo's values, and the fields of your classes.",
)


def plugins_option(command: _Command) -> _Command:
    """Give a command both options."""
    return _plugins(_kryo(command))
