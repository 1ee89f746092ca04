"""`--plugins` and `--kryo`: the types of users, for every command."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from statelake.pipelines.cli.help import more
from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.framework.plugins import (
    ENVIRONMENT,
    load_plugin,
    load_text,
    restore_plugins,
)

DESCRIPTORS = (".pb", ".binpb", ".desc")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _load(context: click.Context, _: click.Parameter, named: tuple[str, ...]) -> None:
    """Load each plugin while the command line is parsed, before a later option needs it."""
    if not context.resilient_parsing:
        for plugin in named:
            load_plugin(plugin)


def _declare(context: click.Context, _: click.Parameter, named: tuple[str, ...]) -> None:
    """Declare the classes of each file by a generated plugin, which other processes load too."""
    if context.resilient_parsing:
        return
    restore_plugins(())  # removes the declarations of an earlier command of this process
    if not named:
        return
    from statelake.pipelines.yaml_lines import read_yaml  # noqa: PLC0415 - only when wanted

    for path in named:
        if path.endswith(DESCRIPTORS):
            _declare_messages(path)
            continue
        content, _lines = read_yaml(path, "classes", "give a YAML file with `flink` and `classes`")
        text = json.dumps(content, default=str)
        program = (
            "import json\n"
            "from statelake.state_core.serializers.kryo.decoding import declare_classes\n"
            f"declare_classes(json.loads({text!r}))\n"
        )
        load_text(path, program.encode(), declares=True)


def _declare_messages(path: str) -> None:
    """Declare the messages of a file of Protobuf descriptors."""
    try:
        with click.open_file(path, "rb") as file:
            encoded = base64.b64encode(file.read()).decode()
    except OSError as error:
        raise EncodeError(f"it can't be read ({error})", place=path) from error
    program = (
        "import base64\n"
        "from statelake.state_core.serializers.kryo.decoding import declare_messages\n"
        f"declare_messages(base64.b64decode({encoded!r}), {path!r})\n"
    )
    load_text(path, program.encode(), declares=True)


_plugins = click.option(
    "--plugins",
    multiple=True,
    metavar="MODULE_OR_FILE",
    callback=_load,
    expose_value=False,
    help=f"A module or file with your serializers or decoders; also {ENVIRONMENT}.",
)
_kryo = click.option(
    "--kryo",
    multiple=True,
    metavar="FILE",
    callback=_declare,
    expose_value=False,
    help="A YAML file with the version of Flink that wrote Kryo's values, and your classes; or"
    " Protobuf descriptors (.pb, .binpb, .desc).",
)


def plugins_option(command: _Command) -> _Command:
    """Give a command both options."""
    return more(_plugins)(more(_kryo)(command))
