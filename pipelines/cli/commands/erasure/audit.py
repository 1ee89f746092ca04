"""`statelake audit`: prove that erased keys and rows are gone."""

from __future__ import annotations

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.erasure.erase import ErasureArguments, erasure_options
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    json_option,
    print_table,
    progress_bar,
    show,
    tell,
)
from statelake.pipelines.cli.options import answer, lake_option
from statelake.state_core.printable import Table


@click.group()
def audit() -> None:
    """Prove that erased keys are gone, and show what was erased and audited.

    \b
    Examples:
      statelake audit erase --lake lake --request gdpr-4711 --key alice
      statelake audit records --lake lake
    """


@audit.command("erase")
@lake_option
@click.option("--request", required=True, help="The id of the erasure.")
@erasure_options
@click.option("--also", multiple=True, help="Another directory or URI to search, such as exports.")
@json_option
def erase(
    lake: str,
    request: str,
    arguments: ErasureArguments,
    also: tuple[str, ...],
    as_json_: bool,
) -> None:
    """Read every byte of a lake, and search for the erased keys in all their forms.

    Give the keys and predicates of the erasure: the lake no longer has them. Pages of Parquet,
    tables of RocksDB, and blocks of Snappy, gzip and zstd are unpacked. Exit code 1 if anything is
    found, or could not be searched.

    \b
    Examples:
      statelake audit erase --lake lake --request gdpr-4711 --key alice
      statelake audit erase --lake lake --request gdpr-4711 --keys people.txt --also /exports --json
    """
    with progress_bar("searching", quiet=as_json_) as progress:
        erasure = Lake(lake).erase(
            request, keys=arguments.keys, where=arguments.predicates, progress=progress
        )
        result = erasure.audit(also, secret=arguments.secret)
    show(result, as_json_=as_json_)
    answer(yes=result.clean)


@audit.command("records")
@lake_option
@json_option
def records(lake: str, as_json_: bool) -> None:
    """List the records of erasures and audits. Exit code 1 if a record was changed.

    \b
    Examples:
      statelake audit records --lake lake
      statelake audit records --lake lake --json | jq .records
    """
    opened = Lake(lake)
    listed, broken = opened.audit_records(), opened.broken_record()
    if as_json_:
        as_json({"records": listed, "broken": None if broken is None else broken.number})
    else:
        columns = (
            ">number", "<kind", "<request", "<recorded=recorded_at", "<by=requested_by",
            "<digest:.16",
        )  # fmt: skip
        print_table(Table.of(f"{len(listed)} records", columns, listed))
    if broken is not None:
        tell(f"record {broken.number} was changed, or one before it was removed")
    answer(yes=broken is None)
