"""`statelake audit`: proof that what was erased is gone."""

from __future__ import annotations

from dataclasses import asdict

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.erasure.erase import Asked, asked_options
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    progress_bar,
    tell,
)
from statelake.pipelines.cli.options import answer, lake_option
from statelake.pipelines.lake.erase.audit_records import broken_record
from statelake.pipelines.lake.erase.auditing import AuditResult

SHOWN = 20


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
@asked_options
@click.option("--also", multiple=True, help="Another directory or URI to search, such as exports.")
@json_option
def erase(
    lake: str,
    request: str,
    asked: Asked,
    also: tuple[str, ...],
    as_json_: bool,
) -> None:
    """Read every byte below a lake, and search for what was erased in all its forms.

    Give the keys and predicates of the erasure: the lake does not know them any more. Pages of
    Parquet, tables of RocksDB, and blocks of Snappy, gzip and zstd are unpacked. Exit code 1 if
    anything is found, or could not be looked at.

    \b
    Examples:
      statelake audit erase --lake lake --request gdpr-4711 --key alice
      statelake audit erase --lake lake --request gdpr-4711 --keys people.txt --also /exports --json
    """
    with progress_bar("searching", quiet=as_json_) as progress:
        erasure = Lake(lake).erase(
            request, keys=asked.keys, where=asked.predicates, progress=progress
        )
        result = erasure.audit(also, secret=asked.secret)
    if as_json_:
        shown = asdict(result)
        as_json(shown | {"clean": result.clean, "record": result.record.to_json()})
    else:
        _print(result)
    answer(yes=result.clean)


def _print(result: AuditResult) -> None:
    print_table(
        f"{result.request}: searched {result.files} files, {bytes_text(result.file_bytes)}, which"
        f" unpack to {bytes_text(result.unpacked_bytes)}",
        ("<place", ">files", ">bytes"),
        [
            (name, f"{counts['files']:,}", f"{counts['bytes']:,}")
            for name, counts in result.places.items()
        ],
    )
    if result.forms_left_out:
        tell(f"too short to be searched for: {', '.join(result.forms_left_out)}")
    for name in result.not_unpacked[:SHOWN]:
        tell(f"not all of it could be unpacked: {name}")
    if result.unread:
        tell(f"rows of snapshots can't be looked through: {result.unread}")
    if result.hits:
        rows = [(hit.file, hit.where, hit.form, str(hit.at)) for hit in result.hits[:SHOWN]]
        print_table(f"{len(result.hits)} hits", ("<file", "<where", "<form", ">byte"), rows)
    if result.only:
        tell(f"only these snapshots were erased from: {', '.join(result.only)}")
    if result.rows:
        tell(f"{result.rows:,} rows of snapshots have it")
    if result.clean:
        tell(f"nothing is left; record {result.record.number}, {result.record.digest}")


@audit.command("records")
@lake_option
@json_option
def records(lake: str, as_json_: bool) -> None:
    """Show what was erased and audited. Exit code 1 if a record is not as it was written.

    \b
    Examples:
      statelake audit records --lake lake
      statelake audit records --lake lake --json | jq .records
    """
    listed = Lake(lake).audit_records()
    broken = broken_record(listed)
    if as_json_:
        as_json(
            {
                "records": [record.to_json() for record in listed],
                "broken": None if broken is None else broken.number,
            }
        )
    else:
        rows = [
            (str(record.number), record.kind, record.request, record.recorded_at,
             record.requested_by, record.digest[:16])
            for record in listed
        ]  # fmt: skip
        columns = (">number", "<kind", "<request", "<recorded", "<by", "<digest")
        print_table(f"{len(listed)} records", columns, rows)
    if broken is not None:
        tell(f"record {broken.number} was changed, or one before it was removed")
    answer(yes=broken is None)
