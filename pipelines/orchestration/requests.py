"""Requests as the settings of a run in Dagster."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pydantic import create_model

from statelake.pipelines.requests.arguments import arguments_of
from statelake.pipelines.requests.request import Asked, Option, Request, options_of


def settings_of(request: type[Request]) -> dict[str, dg.Field]:
    """Return the fields of a request as the settings of a step; a list may be one text."""
    return {option.name: _field(option) for option in options_of(request) if not option.given}


def _field(option: Option) -> dg.Field:
    kind: Any = option.kind if option.parse is None else str
    if option.choices:
        values = [dg.EnumValue(choice) for choice in option.choices]
        kind = dg.Enum(f"{option.name}_{'_'.join(option.choices)}", values)
    elif option.many:
        kind = dg.ScalarUnion(kind, [kind])
    if option.required:
        return dg.Field(kind, description=option.help)
    if option.default is None:
        kind = dg.Noneable(kind)
    default = list(option.default) if option.many else option.default
    return dg.Field(kind, description=option.help, default_value=default)


def model_of(request: type[Request], *without: str) -> type[dg.Model]:
    """Return a model with the options of a request, but for those that are left out."""
    options: Any = arguments_of(request, *without)
    return create_model(f"{request.__name__}Model", __base__=dg.Model, **options)


def words_of(settings: dg.Model, request: type[Request]) -> dict[str, Any]:
    """Return those settings that are fields of a request."""
    words = dict(settings)
    return {each.name: words[each.name] for each in options_of(request) if each.name in words}


def requested(context: dg.AssetExecutionContext, request: type[Asked]) -> Asked:
    """Return the request that the settings of a run make.

    Raises:
        DeclarationError: Settings contradict each other.
    """
    return request(**context.op_execution_context.op_config)
