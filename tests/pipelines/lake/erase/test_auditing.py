"""The audit finds what is planted, wherever it is put, and nothing where nothing is."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import unicodedata
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.erase.audit_records import SCHEMA, AuditRecord, audit_records
from statelake.pipelines.lake.erase.auditing import AuditResult, audit_erasure
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.needles import Needle
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.erase.searching import Searcher
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.names import ERASURE_RECORDS, new_edited_file
from statelake.pipelines.lake.tables.tables import open_table
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import ConflictError, DamagedLakeError, EncodeError, NotFoundError
from statelake.state_core.files.compression import compress_snappy
from tests.support.lakes import DEMO, LOCAL, import_as
from tests.support.people import ALICE, BESIDE_KEYS, people_savepoint
from tests.support.rocksdb_databases import Settings
from tests.support.rocksdb_databases import write as rocksdb_write

KEY = "-783633772217"
NUMBER = ErasureRequest("gdpr-1", [KEY], carried="keep")
TEXT = ErasureRequest(
    "gdpr-2",
    [ALICE],
    BESIDE_KEYS,
)


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two jobs, each of which something was erased from."""
    root = tmp_path_factory.mktemp("erased")
    lake = Catalog(root / "lake")
    import_as(lake, DEMO / "monday", "monday", "numbers")
    import_as(lake, people_savepoint(root / "day", 0), "day", "people", uids=("users", "places"))
    erase(lake, NUMBER, ["numbers"], secret=b"s3cret")
    erase(lake, TEXT, ["people"], all_rows=True)
    return root / "lake"


@pytest.fixture
def lake(erased: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    shutil.copytree(erased, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


@pytest.mark.full
def test_nothing_is_found_where_nothing_is_left(lake: Catalog) -> None:
    """All files were read, to the last byte, and more was unpacked."""
    root = Path(lake.directory.root)
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    for asked in (NUMBER, TEXT):
        result = audit_erasure(lake, asked)
        assert result.clean
        assert result.hits == []
        assert result.unpacked_bytes > 10_000
        if asked is NUMBER:
            assert (result.files, result.file_bytes) == (len(sizes), sum(sizes))
    assert ALICE not in json.dumps(result.record.to_json())


@pytest.mark.full
def test_half_of_a_record_that_a_killed_audit_left_is_no_doubt(lake: Catalog) -> None:
    """It can't be unpacked, but nothing will ever name it: it goes."""
    records = Path(lake.directory.root, ERASURE_RECORDS)
    (whole, *_) = records.glob("*.parquet")
    left = records / new_edited_file(len(list((records / "_delta_log").glob("*.json"))))
    left.write_bytes(whole.read_bytes()[:-100])
    assert audit_erasure(lake, NUMBER).clean
    assert not left.exists()


def only_hit(lake: Catalog, asked: ErasureRequest, path: Path) -> AuditResult:
    """What the audit says of a lake in which one file holds something."""
    result = audit_erasure(lake, asked)
    assert not result.clean
    assert {hit.file for hit in result.hits} == {path.relative_to(lake.directory.root).as_posix()}
    return result


def test_a_key_in_the_statistics_of_a_file(lake: Catalog) -> None:
    """In the footer of a file whose rows do not have it."""
    path = Path(lake.directory.root) / "numbers" / "planted.parquet"
    other = -783633772218
    pq.write_table(pa.table({"key": [other, 1]}), path, compression="zstd", use_dictionary=False)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    hers, theirs = (number.to_bytes(8, "little", signed=True) for number in (int(KEY), other))
    assert theirs in data[footer:]
    path.write_bytes(data[:footer] + data[footer:].replace(theirs, hers))
    result = only_hit(lake, NUMBER, path)
    assert {(hit.where, hit.form) for hit in result.hits} == {("bytes", "Long in a column")}


def test_a_key_in_a_dictionary_that_no_row_names(lake: Catalog) -> None:
    """A page of a dictionary, compressed, in front of rows that have other values."""
    names = pa.array([0, 0], pa.int32())
    column = pa.DictionaryArray.from_arrays(names, pa.array(["bob", f"x {ALICE} y" * 40]))
    path = Path(lake.directory.root) / "people" / "planted.parquet"
    table = pa.table({"name": column})
    pq.write_table(table, path, compression="snappy", write_statistics=False, store_schema=False)
    assert pq.read_table(path).column("name").to_pylist() == ["bob", "bob"]
    result = only_hit(lake, TEXT, path)
    assert {hit.where for hit in result.hits} >= {"row group 0, name, dictionary"}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "brotli", "lz4", "none"])
def test_a_key_in_a_page(lake: Catalog, codec: str, version: str) -> None:
    """Of either version of pages, in each codec."""
    path = Path(lake.directory.root) / "people" / "planted.parquet"
    table = pa.table({"name": ["z" * 2000, f"to {ALICE}"] * 50})
    pq.write_table(
        table, path, compression=codec, use_dictionary=False, write_statistics=False,
        data_page_version=version,
    )  # fmt: skip
    assert only_hit(lake, TEXT, path).not_unpacked == []


@pytest.mark.parametrize(
    ("column", "kind", "encoding", "asked"),
    [
        ("key", pa.int64(), "DELTA_BINARY_PACKED", NUMBER),
        ("key", pa.int64(), "BYTE_STREAM_SPLIT", NUMBER),
        ("name", pa.string(), "DELTA_BYTE_ARRAY", TEXT),
        ("name", pa.string(), "DELTA_LENGTH_BYTE_ARRAY", TEXT),
        ("name", pa.large_string(), "DELTA_BYTE_ARRAY", TEXT),
    ],
)
def test_a_key_that_does_not_stand_as_it_is(
    lake: Catalog, column: str, kind: pa.DataType, encoding: str, asked: ErasureRequest
) -> None:
    """Deltas and split bytes are decoded."""
    values = [int(KEY) + at for at in (-3, 0, 5)] if asked is NUMBER else ["alicf", ALICE, "alien"]
    path = Path(lake.directory.root) / "planted.parquet"
    pq.write_table(
        pa.table({column: pa.array(values, kind)}), path, use_dictionary=False,
        column_encoding={column: encoding}, write_statistics=False,
    )  # fmt: skip
    only_hit(lake, asked, path)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("beside", ["A" * 65, "7" * 55, "z" * 122])
def test_a_number_in_texts_is_told_from_the_next_text(
    lake: Catalog, beside: str, encoding: str
) -> None:
    """What stands behind it is the length of the next one, or the next one, and no more digits."""
    path = Path(lake.directory.root) / "planted.parquet"
    for values in ([KEY, beside], [beside, f"of {KEY}", beside]):
        pq.write_table(
            pa.table({"name": values}), path, use_dictionary=False,
            column_encoding={"name": encoding}, write_statistics=False, compression="zstd",
        )  # fmt: skip
        only_hit(lake, NUMBER, path)
    column = pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), pa.array([KEY, beside]))
    pq.write_table(pa.table({"name": column}), path, write_statistics=False, store_schema=False)
    only_hit(lake, NUMBER, path)
    pq.write_table(pa.table({"name": [f"{KEY}1", f"x{KEY}"]}), path, write_statistics=False)
    assert audit_erasure(lake, NUMBER).clean  # others' numbers


SERIALIZED = int(KEY).to_bytes(8, "big", signed=True)
AS_KRYO = KEY[:-1].encode() + bytes([ord(KEY[-1]) | 0x80])  # the last letter of ASCII is marked


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "said",
    [
        f'{{"commitInfo": {{"predicate": "key = {KEY}"}}}}'.encode(),
        json.dumps({"bytes": SERIALIZED.hex()}).encode(),
        json.dumps({"bytes": SERIALIZED.hex().upper()}).encode(),
        *(json.dumps({"raw": base64.b64encode(b"x" * n + SERIALIZED).decode()}).encode()
          for n in range(3)),
        json.dumps({"raw": base64.urlsafe_b64encode(SERIALIZED).decode()}).encode(),
        b"\x00" * 4000 + SERIALIZED,
        b"Person" + AS_KRYO + b"Berlin",
        b"\x0e" + KEY.encode() + b"Berlin",
        b"\x1a" + KEY.encode() + b"Berlin",
        b"\x00\x0d" + KEY.encode() + b"Berlin",
        gzip.compress(b"some" + SERIALIZED * 50),
        b"before" + pa.compress(b"some" + SERIALIZED * 50, "zstd", asbytes=True),
        b"before" + bytes(compress_snappy(b"some" + SERIALIZED * 50)),
        pa.compress(b"ab" * 100 + SERIALIZED * 2, "snappy", asbytes=True),
    ],
    ids=["text", "hex", "HEX", "b64-0", "b64-1", "b64-2", "b64-url", "raw", "kryo", "string",
         "avro", "java", "gzip", "zstd", "framed", "snappy"],
)  # fmt: skip
def test_a_key_in_a_log_or_a_blob(lake: Catalog, said: bytes) -> None:
    """In the codes of JSON, and in compressed blocks."""
    path = Path(lake.directory.root) / "numbers" / "_delta_log" / "planted"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(said)
    only_hit(lake, NUMBER, path)


@pytest.mark.parametrize("kind", ["VARCHAR(40)", "BIGINT"])
def test_the_one_field_of_a_key_is_searched_for(tmp_path: Path, kind: str) -> None:
    """A key of Flink SQL is a row: the text or the number in it tells who it is."""
    who: Any = "alice-77123" if kind != "BIGINT" else 783633772217
    rows = pa.table({"key": [{"f0": who}, {"f0": type(who)(5)}], "value": [1, 2]})
    state = NewKeyedState("visits", rows, value="Long")
    write_snapshot(tmp_path / "day", [NewOperator("users", {"row_data": [kind]}, (state,))])
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "day", "day", "sql")
    asked = ErasureRequest("gdpr-4", [json.dumps({"f0": who})])
    erase(lake, asked, ["sql"])
    assert audit_erasure(lake, asked).clean
    path = tmp_path / "lake" / "left.parquet"
    pq.write_table(rows, path, compression="zstd", use_dictionary=False, write_statistics=False)
    only_hit(lake, asked, path)


BRIEN = "Zo\u00eb O'Brien/7"
DECOMPOSED = unicodedata.normalize("NFD", BRIEN)
SPELLED = {
    "as it is": BRIEN,
    "in the other normal form": DECOMPOSED,
    "doubled": "key = 'Zo\u00eb O''Brien/7'",
    "escaped": r"key = E'Zo\u00eb O\'Brien/7'".replace(r"\u00eb", "\u00eb"),
    "in JSON": json.dumps({"key": BRIEN}),
    "in JSON of the other form": json.dumps({"key": DECOMPOSED}),
    "in JSON, not ASCII alone": json.dumps({"key": BRIEN}, ensure_ascii=False),
    "in JSON, with capitals": json.dumps({"key": BRIEN}).replace("00eb", "00EB"),
    "in JSON for pages": json.dumps({"key": BRIEN}).replace("'", r"\u0027"),
    "in JSON with slashes": json.dumps({"key": BRIEN}).replace("/", r"\/"),
    "SQL in JSON": json.dumps({"predicate": "key = 'Zo\u00eb O''Brien/7'"}),
    "JSON in JSON": json.dumps({"stats": json.dumps({"minValues": {"key": BRIEN}})}),
    "in an address": quote(BRIEN),
    "in a form": quote_plus(BRIEN),
    "as JavaScript": quote(BRIEN, safe="!'()*~"),
    "in an address, small": quote(BRIEN, safe="").replace("%C3%AB", "%c3%ab").replace("%2F", "%2f"),
    "in hexadecimal": DECOMPOSED.encode().hex(),
    **{f"in base64, {n}": base64.b64encode(b"-" * n + BRIEN.encode()).decode() for n in range(3)},
    "in base64 of addresses": base64.urlsafe_b64encode(b"??" + DECOMPOSED.encode()).decode(),
}


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that somebody was erased from whose name is written in many ways; notes tell of it."""
    root = tmp_path_factory.mktemp("named")
    rows = pa.table({"key": [BRIEN, "bob"], "value": [1, 2]})
    state = NewKeyedState("visits", rows, value="Long")
    write_snapshot(root / "day", [NewOperator("users", "String", (state,))])
    lake = Catalog(root / "lake")
    note = f"by hand: UPDATE users.visits SET value = 'Long Lane 5' WHERE key = '{BRIEN}'"
    for number, text in enumerate(("in May", note.replace("O'B", "O''B"), *SPELLED.values())):
        import_snapshot(
            lake, str(root / "day"), "names", Import(note=text), snapshot_id=f"s{number}",
            engine=LOCAL,
)  # fmt: skip
    erase(lake, ErasureRequest("gdpr-3", [BRIEN]), ["names"])
    return root / "lake"


@pytest.mark.full
def test_notes_of_any_spelling_are_cleaned(named: Path) -> None:
    """The value beside a key goes as well; a note that says nothing of it stays."""
    lake = Catalog(named)
    notes = [lake.snapshot("names", f"s{number}").note for number in range(len(SPELLED) + 2)]
    assert notes[:2] == ["in May", "by hand: UPDATE users.visits SET value = ? WHERE key = ?"]
    assert [note for note in notes if "Brien" in note or "rien/7" in note] == []
    assert audit_erasure(lake, ErasureRequest("gdpr-3", [BRIEN])).clean


@pytest.mark.full
def test_a_key_is_found_however_it_is_written(named: Path, tmp_path: Path) -> None:
    """In SQL, JSON, addresses, codes, and both normal forms: each in a file of its own."""
    (tmp_path / "also").mkdir()
    for at, text in enumerate(SPELLED.values()):
        (tmp_path / "also" / f"{at}").write_bytes(b"so " + text.encode() + b", they said")
    (tmp_path / "also" / f"job={quote(BRIEN, safe='')}").write_bytes(b"")
    asked = ErasureRequest("gdpr-3", [BRIEN])
    result = audit_erasure(Catalog(named), asked, [str(tmp_path / "also")])
    found = {hit.file.rpartition(":")[2] for hit in result.hits}
    missed = [name for at, name in enumerate(SPELLED) if str(at) not in found]
    assert missed == []
    assert {hit.where for hit in result.hits if "job=" in hit.file} == {"name"}
    assert audit_erasure(Catalog(named), asked).clean  # also of what the audit itself recorded


@pytest.mark.full
def test_a_note_is_found_that_no_form_is_of(named: Path, tmp_path: Path) -> None:
    """Half escaped, and in other letters: by what it reads as."""
    shutil.copytree(named, tmp_path / "lake")
    lake = Catalog(tmp_path / "lake")
    note = r"key = E'ZO\xcb o\'brien/7'"
    users = lake.snapshot("names", "s0").operators[0].label
    statement = f"DELETE FROM {users}.visits WHERE true"
    edit_by_sql(ChildSnapshot(lake, "names", "s0", "noted", note=note), [statement])
    result = audit_erasure(lake, ErasureRequest("gdpr-3", [BRIEN]))
    assert [(hit.file, hit.where) for hit in result.hits] == [("names/noted", "note")]
    erase(lake, ErasureRequest("gdpr-4", [BRIEN]), ["names"])
    assert lake.snapshot("names", "noted").note == "[erased]"


def test_other_places_are_searched_where_they_are_named(lake: Catalog, tmp_path: Path) -> None:
    """Such as exports from before the erasure, compressed by Flink."""
    assert audit_erasure(lake, NUMBER).clean
    result = audit_erasure(lake, NUMBER, [str(DEMO)])
    assert {hit.file.split(":")[1].split("/")[0] for hit in result.hits} == {"monday", "tuesday"}
    assert any(hit.where.startswith("Snappy") for hit in result.hits)
    with pytest.raises(NotFoundError):
        audit_erasure(lake, NUMBER, [str(tmp_path / "nowhere")])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "zstd"])
def test_a_key_in_a_table_of_rocksdbs(lake: Catalog, tmp_path: Path, compression: str) -> None:
    """Of a key that a block shortens by the one before it, and within a value."""
    others = [("put", 0, f"alice-7f3a9{end}".encode(), b"x" * 300) for end in "abde"]
    hers = ("put", 0, ALICE.encode(), b"z" * 2000)
    named = ("put", 0, b"bob", b"y" * 1000 + b"friend of " + ALICE.encode() + b"y" * 1000)
    settings = Settings(compression=compression)
    erased = [("flush", 0, b"", b""), ("delete", 0, ALICE.encode(), b"")]
    for number, more in enumerate(([], [hers], [named], [hers, *erased])):
        place = tmp_path / f"table-{number}"
        rocksdb_write(place, settings, [*others, *more])
        for other in place.iterdir():
            if other.suffix != ".sst":
                other.unlink()
        result = audit_erasure(lake, TEXT, [str(place)])
        assert result.not_unpacked == []
        assert bool(result.hits) == bool(more)
        assert all(hit.file.endswith(".sst") for hit in result.hits)


def test_large_files_are_searched_piece_by_piece(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for Parquet and tables of RocksDB, which are unpacked as a whole."""
    monkeypatch.setattr("statelake.pipelines.lake.erase.auditing.PIECE_BYTES", 1000)
    assert audit_erasure(lake, TEXT).clean
    folder = tmp_path / "large"
    steps = [("put", 0, ALICE.encode(), b"z" * 20_000), ("put", 0, b"bob", b"y" * 20_000)]
    rocksdb_write(folder, Settings(), steps)
    pq.write_table(
        pa.table({"name": ["z" * 2000, ALICE]}), folder / "a.parquet", compression="zstd"
    )
    (folder / "plain").write_bytes(b"-" * 990 + ALICE.encode() + b"-" * 5000)
    result = audit_erasure(lake, TEXT, [str(folder)])
    found = {(hit.file.rpartition(":")[2].rpartition(".")[2], hit.where) for hit in result.hits}
    assert ("plain", "bytes") in found
    assert ("parquet", "row group 0, name, dictionary") in found
    assert any(kind == "sst" and where.startswith("block at") for kind, where in found)


def test_rows_that_come_back_are_found_by_their_structure(lake: Catalog) -> None:
    """An import of the job that still has her: rows are counted, whatever stands in bytes."""
    import_as(lake, DEMO / "tuesday", "tuesday", "numbers")
    result = audit_erasure(lake, NUMBER)
    assert result.rows == 11
    assert result.hits


def test_what_can_not_be_audited_is_said(lake: Catalog) -> None:
    """Requests that are not recorded, other keys than were erased, forms that are anywhere."""
    with pytest.raises(NotFoundError, match="gdpr-1, gdpr-2"):
        audit_erasure(lake, ErasureRequest("gdpr-3", [KEY]))
    with pytest.raises(ConflictError, match="had other keys or predicates"):
        audit_erasure(lake, ErasureRequest("gdpr-1", ["-820795872871"]), secret=b"s3cret")
    with pytest.raises(EncodeError, match="which occur everywhere"):
        audit_erasure(lake, ErasureRequest("gdpr-2", ["a"]))
    assert audit_erasure(lake, NUMBER, secret=b"s3cret").clean
    (Path(lake.directory.root) / "torn.parquet").write_bytes(b"PAR1 and no more than that PAR1")
    result = audit_erasure(lake, NUMBER)
    assert result.not_unpacked == ["torn.parquet"]
    assert not result.clean
    for path in Path(lake.directory.root).glob("_statelake/erasure_records/*.parquet"):
        path.unlink()
        break
    with pytest.raises(DamagedLakeError):
        audit_erasure(lake, NUMBER)


def test_many_words_are_found_as_one_by_one() -> None:
    """Words of all lengths, within others and at either end."""
    words = [b"abcde", b"bcdef", b"cdefghijk", b"zzzzzzzz", b"abcdefgh", b"\xff\xfe\xfd\xfc\xfb"]
    searcher = Searcher([Needle(0, "", word) for word in words])
    data = b"abcdefghijk..zzzzzzzzz..\xff\xfe\xfd\xfc\xfb--abcde"
    expected = sorted(
        (at, word) for word in words for at in range(len(data)) if data[at : at + len(word)] == word
    )
    assert sorted((at, needle.data) for at, needle in searcher.find(data)) == expected


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "no JSON": ({"said": "{"}, "malformed JSON"),
    "nested": ({"said": "[" * 100_000}, "malformed JSON"),
    "digits": ({"said": '{"jobs": [' + "9" * 10_000 + "]}"}, "malformed JSON"),
    "nothing": ({"said": None}, "said: None"),
    "a list": ({"said": "[1]"}, "`object` is wanted"),
    "no jobs": ({"said": "{}"}, "Object missing required field `jobs`"),
    "a number of jobs": ({"said": '{"jobs": 3}'}, "jobs: 3, and `array` is wanted"),
    "jobs of objects": ({"said": '{"jobs": [{}]}'}, r"jobs\[0\]: {}, and `str` is wanted"),
    "only a number": ({"said": '{"jobs": [], "only": 7}'}, "only: 7"),
    "an audit of nothing": (
        {"said": '{"jobs": []}', "kind": "audit"},
        "Object missing required field `erasure`",
    ),
    "another kind": ({"said": '{"jobs": []}', "kind": "x"}, "kind: 'x'"),
    "no number": ({"said": '{"jobs": []}', "number": None}, "number: None"),
    "nobody": ({"said": '{"jobs": []}', "requested_by": None}, "requested_by: None"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_record_that_is_forged_is_refused_before_anything_is_erased(
    forged: str, lake: Catalog
) -> None:
    """Its digest is right, and it is named with what is wrong; no erasure stops half way at it."""
    said, problem = FORGED[forged]
    before = audit_records(lake)[-1]
    row = asdict(before) | {"number": before.number + 1, "previous": before.digest} | said
    row["digest"] = AuditRecord(**row).sealed()
    directory = lake.table(ERASURE_RECORDS).directory
    table = open_table(directory)
    assert table is not None
    change = DeltaCommit(directory, SCHEMA, None, CommitProperties())
    change.add_rows(new_edited_file(table.version() + 1), pa.Table.from_pylist([row], SCHEMA))
    change.write(table)
    contents = {path: path.read_bytes() for path in Path(lake.directory.root).rglob("*.parquet")}
    for use in (
        lambda: audit_erasure(lake, NUMBER),
        lambda: erase(lake, ErasureRequest("gdpr-3", ["2"], carried="keep"), ["numbers"]),
        lambda: audit_records(lake),
    ):
        with pytest.raises(DamagedLakeError, match=f"record .* of erasures: {problem}"):
            use()
    after = {path: path.read_bytes() for path in Path(lake.directory.root).rglob("*.parquet")}
    assert after == contents
