"""Options of a request as pydantic has them: arguments of an assistant's tool, settings of Dagster.

Requests themselves load without pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from statelake.pipelines.requests.request import Option, Request, options_of


def arguments_of(request: type[Request], *without: str) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each option of a request, `...` for none.

    Args:
        request: The request.
        without: The options that are left out.
    """
    return {
        each.name: (_type(each), ... if each.required else each.default)
        for each in options_of(request)
        if not each.given and each.name not in without
    }


def _type(option: Option) -> Any:
    kind: Any = option.kind if option.parse is None else str
    if option.unit:
        kind = FiniteFloat | str
    if option.choices:
        kind = Literal[option.choices]
    if option.keyed:
        kind = dict[str, str]
    elif option.many:
        kind = list[kind] | kind  # as everywhere, a list may be one text
    elif option.default is None and not option.required:
        kind = kind | None
    least, most = (None, None) if option.parse else (option.least, option.most)
    return Annotated[kind, Field(description=option.help, ge=least, le=most)]
