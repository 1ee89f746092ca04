"""`docs/json`: a schema for each command with `--json`, to which tests hold every output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import ValidationError

from statelake.pipelines.bootstrap.bootstrapping import BootstrapResult
from statelake.pipelines.find.copying import CopiedCheckpoints, CopiedSnapshot
from statelake.pipelines.find.growth import MeasuredSnapshot
from statelake.pipelines.find.orphans import Orphans
from statelake.pipelines.find.scanning import Scan
from statelake.pipelines.lake.catalog.dropping import DropResult
from statelake.pipelines.lake.catalog.lake_format import LakeUpgrade
from statelake.pipelines.lake.change.migrations import Migrations, UpgradeOutcome
from statelake.pipelines.lake.edit.edit_results import EditResult
from statelake.pipelines.lake.erase.auditing import AuditResult
from statelake.pipelines.lake.export.exporting import ExportResult
from statelake.pipelines.lake.export.rescaling import OperatorPlan
from statelake.pipelines.lake.ingest.importing import ImportResult
from statelake.pipelines.lake.keys.key_history import KeyHistory
from statelake.pipelines.lake.tables.records import HoldRecord
from statelake.pipelines.lake.verify.diffing import Differences
from statelake.pipelines.lake.verify.lake_checking import LakeReport
from statelake.pipelines.live.answers import FlinkJob
from statelake.pipelines.live.canary import DrillResult
from statelake.pipelines.live.live_rescaling import RescaleResult
from statelake.pipelines.report.contents import ReportResult
from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade
from statelake.state_core.connectors.sinks import Sink
from statelake.state_core.formats.key_weights import HeavyKey, LongCollection
from statelake.state_core.formats.layout.state_compatibility import Verdicts
from statelake.state_core.formats.layout.state_types import StateTypes, TypeDifferences
from statelake.state_core.integrity.findings import Fault
from statelake.state_core.integrity.salvage import SalvageReport
from statelake.state_core.runtime.commit.logs.checkpoint_migrating import MigratedLog
from statelake.state_core.runtime.commit.logs.checkpoint_verifying import VerifiedLog
from statelake.state_core.runtime.declarations.findings import JobFindings
from tests.support.command import run
from tests.support.json_schemas import SCHEMAS, check_output, commands_with_json, schema_of
from tests.support.lakes import DEMO
from tests.support.result_types import differences, schema_of_type

OF_STATES = "properties/operators/items/properties/states/items/properties"
# what each schema, or a part of it, is of; see `JsonFields`
RESULTS: tuple[tuple[str, str, Any], ...] = (
    ("audit-erase", "", AuditResult),
    ("bootstrap", "", BootstrapResult),
    ("check-compatibility", "", Verdicts),
    ("check-integrity", "properties/faults/items", Fault),
    ("check-integrity", "properties/salvage", SalvageReport),
    ("check-legality", "", JobFindings),
    ("check-sql", "", SqlUpgrade),
    ("checkpoints-migrate", "", MigratedLog),
    ("checkpoints-verify", "", VerifiedLog),
    ("copy", "anyOf/0", CopiedSnapshot),
    ("copy", "anyOf/1", CopiedCheckpoints),
    ("diff", "", Differences),
    ("drop", "properties/dropped", DropResult | None),
    ("edit", "", EditResult),
    ("export", "", ExportResult),
    ("flink-drill", "", DrillResult),
    ("flink-jobs", "items", FlinkJob),
    ("flink-rescale", "anyOf/0", RescaleResult),
    ("growth", "properties/snapshots", list[MeasuredSnapshot]),
    ("history", "", KeyHistory),
    ("hold", "properties/holds", list[HoldRecord]),
    ("import", "", ImportResult),
    ("lake-check", "", LakeReport),
    ("lake-upgrade", "", LakeUpgrade),
    ("migrate", "", Migrations),
    ("offsets", "properties/sinks/items", Sink),
    ("orphans", "", Orphans),
    ("plan-rescale", "", list[OperatorPlan]),
    ("report", "", ReportResult),
    ("scan", "", Scan),
    ("sql-upgrade", "", SqlUpgrade),
    ("top", f"{OF_STATES}/heaviest", list[HeavyKey]),
    ("top", f"{OF_STATES}/longest", list[LongCollection]),
    ("types", "anyOf/0", StateTypes),
    ("types", "anyOf/1", TypeDifferences),
    ("upgrade", "items", UpgradeOutcome),
)

every_command = pytest.mark.parametrize("words", commands_with_json(), ids=" ".join)


@every_command
def test_each_command_has_a_schema_that_says_what_it_is_of(words: tuple[str, ...]) -> None:
    """A valid one, which allows fields that are added later."""
    schema_of(words)
    written = json.loads((SCHEMAS / f"{'-'.join(words)}.json").read_text("utf-8"))
    assert written["title"] == f"statelake {' '.join(words)}"
    assert '"additionalProperties": false' not in json.dumps(written)


def test_there_is_no_other_schema() -> None:
    """One of a command that is gone."""
    names = {"-".join(words) for words in commands_with_json()}
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.json" for name in names}


def test_an_output_that_differs_is_found() -> None:
    """A field that is missing, unknown, or of another type."""
    output = run("inspect", DEMO / "monday", "--json").json
    for change in ({"size_bytes": "1"}, {"unknown": 1}, {"operators": [{}]}):
        with pytest.raises(ValidationError):
            check_output(["inspect"], json.dumps(output | change))
    del output["kind"]
    with pytest.raises(ValidationError):
        check_output(["inspect"], json.dumps(output))


@pytest.mark.parametrize(("command", "part", "result"), RESULTS)
def test_a_schema_follows_the_fields_of_the_result(command: str, part: str, result: Any) -> None:
    """Names, what may be left out, and types."""
    written = json.loads((SCHEMAS / f"{command}.json").read_text("utf-8"))
    schema: Any = written
    for step in filter(None, part.split("/")):
        schema = schema[int(step) if isinstance(schema, list) else step]
    typed = schema_of_type(result)
    assert typed
    assert not list(differences(schema, typed, written.get("$defs")))


def test_a_schema_that_does_not_follow_is_found() -> None:
    """A field that is missing or unknown, and one of another type, wherever it is."""
    lake_check = json.loads((SCHEMAS / "lake-check.json").read_text("utf-8"))
    typed = schema_of_type(LakeReport)
    damaged = lake_check["properties"]["damaged"]["items"]
    damaged["required"].remove("path")
    damaged["properties"]["problem"]["type"] = ["string", "null"]
    lake_check["properties"]["unknown"] = lake_check["properties"].pop("sound")
    assert len(list(differences(lake_check, typed, {}))) == 3
