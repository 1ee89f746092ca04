"""`--plugins`: code of users that registers serializers and decoders, for every command."""

from __future__ import annotations

import click

from state_core.serializers.framework.plugins import ENVIRONMENT, load_plugin

__all__ = ["plugins_option"]


def _load(context: click.Context, _: click.Parameter, named: tuple[str, ...]) -> None:
    """Load each as the command line is read, so that what follows finds it registered."""
    if not context.resilient_parsing:
        for one in named:
            load_plugin(one)


plugins_option = click.option(
    "--plugins",
    multiple=True,
    metavar="MODULE_OR_FILE",
    callback=_load,
    expose_value=False,
    help=f"Python that registers serializers or decoders of yours; also {ENVIRONMENT}.",
)
