"""Pages of the site that are made when it is built: the commands by their own help, the examples.

MkDocs calls the functions below by their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from statelake.pipelines.cli.main import statelake

EXAMPLES = Path(__file__).parents[1] / "examples"
WIDTH = 100
FENCES = {".py": "python", ".yaml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    pages = {"commands.md": commands_page(), "examples.md": examples_page()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead to the page of examples where a page names the file."""
    for path in EXAMPLES.iterdir():
        anchor = path.name.replace(".", "").lower()
        markdown = markdown.replace(f"](../examples/{path.name})", f"](examples.md#{anchor})")
    return markdown


def commands_page() -> str:
    """The help of every command, as the terminal shows it."""
    # with the settings of a call, as a command remembers the names of its option for help
    context = click.Context(statelake, info_name="statelake", **statelake.context_settings)
    return "\n".join(["# Commands", "", *sections(statelake, context, "##")])


def sections(group: click.Group, context: click.Context, mark: str) -> Iterator[str]:
    """A heading and a verbatim block for each command of a group, and those below it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        inner = click.Context(command, context, name, terminal_width=WIDTH, max_content_width=WIDTH)
        words = inner.command_path.removeprefix("statelake ")
        yield from (f"{mark} {words}", "", "```text", command.get_help(inner), "```", "")
        if isinstance(command, click.Group):
            yield from sections(command, inner, mark + "#")


def examples_page() -> str:
    """The examples, as they lie in the repository, where the tests run them."""
    lines = ["# Examples", ""]
    for path in sorted(EXAMPLES.iterdir()):
        if path.suffix in FENCES:
            text = path.read_text("utf-8").rstrip()
            lines += [f"## {path.name}", "", f"```{FENCES[path.suffix]}", text, "```", ""]
    return "\n".join(lines)
