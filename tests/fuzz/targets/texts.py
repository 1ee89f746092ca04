"""What users write: YAML, TOML and JSON, and the names of types in them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelake.pipelines.bootstrap.bootstrap_spec import read_bootstrap_spec
from statelake.pipelines.cli.settings import KEYS as SETTING_KEYS
from statelake.pipelines.cli.settings import configured
from statelake.pipelines.keys import key_from_text
from statelake.pipelines.lake.catalog.retention import Policy
from statelake.pipelines.lake.change.changes import read_changes
from statelake.pipelines.lake.share.mask_file import read_mask
from statelake.pipelines.orchestration.erasure.request_files import RequestDirectory
from statelake.pipelines.yaml_lines import read_yaml
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.runtime.commit.records import serdes, snapshot_index
from statelake.state_core.runtime.declarations.json_forms import from_json, job_from_json, to_json
from statelake.state_core.runtime.legality.rules import check_job
from statelake.state_core.serializers.framework.plugins import forget_declarations
from statelake.state_core.serializers.framework.registry import write_serializer_snapshot
from statelake.state_core.serializers.kryo.decoding import declare_classes
from statelake.state_core.serializers.type_spec import parse_type
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.support.jobs.declared_jobs import OPERATORS
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.kryo_jobs import BASKET

__all__ = ["fuzz_json", "fuzz_types", "fuzz_yaml"]

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE_FILES = ("bootstrap_spec.yaml", "mask.yaml", "new_types.yaml")
SETTINGS = 'lake = "lake"\njob = "orders"\nengine = "local"\nflink = "http://localhost:8081"\n'
REQUEST = (
    '{"keys": ["\\"u1\\"", "17"], "where": {"kinds/total": "key = 3"}, "carried": "keep",'
    ' "jobs": ["orders"], "asked_at": "2024-02-29T01:02:03+00:00", "requested_by": "desk"}'
)
POLICIES = ("14d all, 8w weekly, 3y monthly", "90 daily", "forever yearly")
DECLARED = [to_json(state) for operator in OPERATORS.operators for state in operator.states]
JOB = to_json(OPERATORS)
SAMZA = ("checkpoint-v1", "checkpoint-v2", "checkpoint-log-key", "snapshot-index")
MARKER = json.dumps({
    "version": 1, "changelog-offset": "7",
    "changelog-ssp": {"system": "kafka", "partition": 0, "stream": "s", "keyBucket": -1},
})  # fmt: skip
TYPES: tuple[Any, ...] = (
    "Map<String, List<Tuple2<Long, Instant>>>", "Row<Long, BigDecimal>",
    {"pojo": "com.acme.P", "fields": {"id": "long", "b": {"enum": "E", "constants": ["X", "Y"]}}},
    {"row_data": ["BIGINT NOT NULL", "ROW<x INT, y ARRAY<STRING>>", "DECIMAL(10, 2)"]},
    {"map": ["Long", {"tuple": ["String", {"nullable": {"row": ["Long"]}}]}]},
    {"avro": {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": ["null", "long"], "default": None}]}},
)  # fmt: skip
SCHEMAS: tuple[Any, ...] = (
    {"type": "record", "name": "a.R", "fields": [
        {"name": "x", "type": {"type": "array", "items": "R"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}]},
    {"type": "map", "values": {"type": "fixed", "name": "F", "size": 3}},
    ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
)  # fmt: skip
KEYS_OF = ("Long", "String", "Tuple2<String, Instant>", "BigDecimal", "Boolean", "Byte")
KEYS = (b"-7", b"a", b'{"f0": "a", "f1": "2024-02-29T01:02:03+00:00"}', b"1.50", b"true", b"1")


def fuzz_yaml(directory: Path) -> Fuzzing:
    """Files of YAML, and `statelake.toml`."""
    path, settings = directory / "input.yaml", directory / "statelake.toml"
    (directory / ".git").mkdir(exist_ok=True)  # nothing above it is looked at

    def declared(_: str) -> None:
        forget_declarations()
        said, _lines = read_yaml(str(path), "classes", "")
        declare_classes(json.loads(json.dumps(said, default=str)))

    readers: list[Callable[[str], object]] = [
        read_bootstrap_spec, read_mask, read_changes, declared,
    ]  # fmt: skip
    texts = [(EXAMPLES / name).read_text("utf-8") for name in EXAMPLE_FILES] + [BASKET, SETTINGS]
    texts[1] = texts[1].replace("MASK_SECRET", "PATH")  # a secret that there is

    def run(data: bytes) -> None:
        form, content = chosen(data, len(readers) + 1)
        if form == len(readers):
            settings.write_bytes(content)
            here = Path.cwd()
            os.chdir(directory)
            try:
                for key in SETTING_KEYS:
                    configured(key)
            finally:
                os.chdir(here)
        else:
            path.write_bytes(content)
            readers[form](str(path))

    return Fuzzing(seeded((n, text.encode()) for n, text in enumerate(texts)), run)


def fuzz_json(directory: Path) -> Fuzzing:
    """Declarations, requests for erasure, policies, records of a checkpoint log, keys."""
    requests = RequestDirectory(str(directory), 30.0)

    def request(data: bytes) -> None:
        (directory / "gdpr.json").write_bytes(data)
        requests.read("gdpr")

    def keys(data: bytes) -> None:
        form, text = chosen(data, len(KEYS_OF))
        serializer = parse_type(KEYS_OF[form]).restore_serializer()
        value = key_from_text(_text(text), serializer)
        pa.array([value], serializer.arrow_type)

    readers: list[tuple[Callable[[bytes], object], list[bytes]]] = [
        (serdes.read_checkpoint_v1, [_samza(SAMZA[0])]),
        (serdes.read_checkpoint_v2, [_samza(SAMZA[1])]),
        (serdes.read_key, [_samza(SAMZA[2])]),
        (snapshot_index.read_snapshot_index, [_samza(SAMZA[3])]),
        (lambda data: serdes.read_changelog_marker(_text(data)), [MARKER.encode()]),
        (lambda data: to_json(from_json(_text(data))), [text.encode() for text in DECLARED]),
        (lambda data: check_job(job_from_json(_text(data))), [JOB.encode()]),
        (request, [REQUEST.encode()]),
        (lambda data: Policy.parse(_text(data)), [policy.encode() for policy in POLICIES]),
        (keys, seeded(enumerate(KEYS))),
    ]  # fmt: skip

    def run(data: bytes) -> None:
        form, content = chosen(data, len(readers))
        readers[form][0](content)

    return Fuzzing(seeded((n, text) for n, (_, texts) in enumerate(readers) for text in texts), run)


def fuzz_types(_: Path) -> Fuzzing:
    """Types as users name them, what becomes of each, and schemas of Avro's in pairs."""
    known = [parse_type({"avro": schema}) for schema in SCHEMAS]

    def run(data: bytes) -> None:
        form, content = chosen(data, 2)
        spec: Any = _text(content)
        with suppress(ValueError, RecursionError):
            spec = json.loads(spec)
        snapshot = parse_type({"avro": spec} if form else spec)
        snapshot.restore_serializer()
        write_serializer_snapshot(snapshot, DataOutput())
        for old in (snapshot, *(known if form else ())):
            snapshot.resolve_schema_compatibility(old)
            old.resolve_schema_compatibility(snapshot)

    seeds = [(0, kind) for kind in TYPES] + [(1, schema) for schema in SCHEMAS]
    return Fuzzing(seeded((form, json.dumps(value).encode()) for form, value in seeds), run)


def _samza(name: str) -> bytes:
    return (GOLDEN / "samza" / f"{name}.json").read_bytes()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
