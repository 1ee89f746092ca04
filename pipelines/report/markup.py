"""HTML elements, whose text is escaped.

Text comes from untrusted snapshots. So a tag's children and attributes are text unless they are
`Html`, which only this module and its callers' own constants make.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import Any

from statelake.state_core.printable import Table, printable

LONGEST = 1000  # characters of a name, type, key or message


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def text(value: str) -> Html:
    """Return a snapshot's text for a page: shortened, invisible characters and markup escaped."""
    if isinstance(value, Html):
        return value
    shown = value if len(value) <= LONGEST else f"{value[:LONGEST]}…"
    return Html(html.escape(printable(shown), quote=True))


def tag(name: str, /, *children: str, **attributes: str | int) -> Html:
    """Return an element.

    Args:
        name: Its name.
        children: Its contents, each escaped unless it is `Html`.
        attributes: Their values are escaped, too; `class_` stands for `class`, `aria_label` for
            `aria-label`.
    """
    escaped = {
        key.rstrip("_").replace("_", "-"): text(value if isinstance(value, str) else str(value))
        for key, value in attributes.items()
    }
    named = "".join(f' {key}="{value}"' for key, value in escaped.items())
    return Html(f"<{name}{named}>{''.join(map(text, children))}</{name}>")


def table(shown: Table, body_id: str = "") -> Html:
    """Return a table, which scrolls sideways on a narrow page; the first cell names the row.

    Args:
        shown: The table.
        body_id: The id of its body, for the script.
    """
    classes = ["number" if column[0] == ">" else "words" for column in shown.columns]
    head = [
        tag("th", column[1:], scope="col", class_=class_)
        for column, class_ in zip(shown.columns, classes, strict=True)
    ]
    lines = []
    for row in shown.rows:
        named, *others = ("; ".join(cell) if isinstance(cell, list) else cell for cell in row)
        first = tag("th", named, scope="row", class_=classes[0]) if named else tag("td")
        rest = (
            tag("td", cell, class_=class_) for cell, class_ in zip(others, classes[1:], strict=True)
        )
        lines.append(tag("tr", first, *rest))
    element = tag(
        "table",
        tag("caption", shown.title),
        tag("thead", tag("tr", *head)),
        tag("tbody", *lines, **({"id": body_id} if body_id else {})),
    )
    more = [tag("p", f"… and {shown.left:,} more", class_="more")] if shown.left else []
    scrolled = tag("div", element, class_="wide", role="region", tabindex=0, aria_label=shown.title)
    return Html("".join([scrolled, *more]))


def data_text(value: Any) -> Html:
    """Return a value as JSON for a script element, which no character of it ends."""
    encoded = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: no U+2028
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return Html(encoded)


def digest(content: str) -> str:
    """Return the source of a Content-Security-Policy that is a style or a script itself."""
    hashed = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(hashed).decode()}'"


def content_policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: nothing is loaded, and only these two run."""
    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)};"
        " base-uri 'none'; form-action 'none'"
    )
