"""`statelake erase`: erase keys and rows from every snapshot and every file of a lake."""

from __future__ import annotations

import os
import uuid
from typing import BinaryIO, NamedTuple

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show, tell
from statelake.pipelines.cli.options import (
    answer,
    gathered,
    lake_option,
    request_options,
    yes_option,
)
from statelake.pipelines.keys import KEY_LINES, lines_of
from statelake.pipelines.requests.erase import EraseFromLake
from statelake.state_core.printable import public_location

SECRET = "STATELAKE_ERASE_SECRET"  # noqa: S105 - the name of a variable


class ErasureArguments(NamedTuple):
    """The keys and predicates of a request, and the secret of its hash; empty if not given."""

    keys: tuple[str, ...]
    predicates: dict[str, str]
    secret: bytes


def _erasure_arguments(
    keys: tuple[str, ...],
    key_file: BinaryIO | None,
    where: tuple[tuple[str, str], ...],
    secret_file: BinaryIO | None,
) -> ErasureArguments:
    listed = list(keys)
    if key_file is not None:
        place = getattr(key_file, "name", "--keys")
        listed += [line for _, line in lines_of(key_file.read, place, KEY_LINES)]
    predicates: dict[str, str] = {}
    for state, predicate in where:
        also = predicates.get(state)
        predicates[state] = predicate if also is None else f"({also}\n) OR ({predicate}\n)"
    if not listed and not predicates:
        raise click.UsageError("say what to erase: --key, --keys or --where")
    secret = os.environ.get(SECRET, "").encode()
    if secret_file is not None:
        secret = secret_file.read().strip()
    return ErasureArguments(tuple(dict.fromkeys(listed)), predicates, secret)


# what is erased, and what an audit searches for
erasure_options = gathered(
    "arguments",
    _erasure_arguments,
    plugins_option,
    click.option("--key", "keys", multiple=True, help="A key, as `statelake dump` prints it."),
    click.option(
        "--keys", "key_file", type=click.File("rb"), help="A file, one key a line; or -."
    ),
    click.option(
        "--where", nargs=2, multiple=True, metavar="OPERATOR/STATE SQL",
        help="The rows of one state to erase, by value, user key or other columns; of a list"
        " only the elements, if SQL has `element`.",
    ),
    click.option(
        "--secret-file", type=click.File("rb"),
        help=f"The secret of the request's hash, by default {SECRET}; it is never in the lake.",
    ),
)  # fmt: skip


@click.command("erase")
@lake_option
@erasure_options
@click.option("--request", help="Its id in the records; by default a new one.")
@request_options(EraseFromLake, "erased")
@click.option("--all", "whole", is_flag=True, help="A predicate may be true of every row.")
@click.option(
    "--by", "requested_by", default="", help="Who asks for it; by default this process's user."
)
@yes_option
@json_option
def erase_command(
    lake: str,
    arguments: ErasureArguments,
    request: str | None,
    erased: EraseFromLake,
    whole: bool,
    requested_by: str,
    yes: bool,
    as_json_: bool,
) -> None:
    """Erase keys from every snapshot of a lake, and from every file that held them.

    The keys are erased from all keyed states and timers, and the rows of --where from its states;
    also from the state of runs and tasks in the lake, and in the places of --blobs and
    --changelogs. Snapshots keep their ids and all other rows; old files are deleted at once.
    Without --yes the command shows what it would do. The same --request continues an interrupted
    erasure. Exit code 1 if nothing is found.

    \b
    Examples:
      statelake erase --lake lake --key alice --request gdpr-4711
      statelake erase --lake lake --key alice --request gdpr-4711 --carried keep --yes
      statelake erase --lake lake --job orders --keys people.txt --request gdpr-4712 --yes
      statelake erase --lake lake --job orders --key alice --snapshot monday --yes
      statelake erase --lake lake --key alice --blobs s3://state/blobs --yes
      statelake erase --lake lake --where users/friends "user_key = 'alice'" --yes
      statelake erase --lake lake --where places/members "element = 'alice'" --yes
    """
    request = request or f"erasure-{uuid.uuid4().hex[:8]}"
    with progress_bar("erasing" if yes else "looking", quiet=as_json_) as progress:
        words = {"keys": arguments.keys, "where": arguments.predicates, "progress": progress}
        erasure = Lake(lake).erase(**vars(erased) | words | {"request": request})
        if yes:
            done = erasure.execute(whole=whole, secret=arguments.secret, by=requested_by)
        else:
            plan = erasure.plan(whole=whole)
    if not yes:
        show(plan, as_json_=as_json_)
        answer(yes=not plan.empty)
        return
    show(done, as_json_=as_json_, marked=request)
    if not as_json_:
        where = public_location(lake)
        tell(f"prove it: statelake audit erase --lake {where} --request {request} --key ...")
