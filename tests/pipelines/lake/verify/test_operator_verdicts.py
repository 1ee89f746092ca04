"""Operator state of evolving types: judged as real Flink does it.

The savepoints are those of `EvolvingOperators.java`; what is compared with is what Flink printed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.verify.compatibility import check_against
from statelake.state_core.errors import NotFoundError
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.model.handles import InlineHandle
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.lakes import golden, import_as, raw_savepoint
from tests.support.savepoints.evolving_operators import (
    NEW_HOLDERS,
    OLD_HOLDERS,
    REFUSED_HOLDERS,
    judged,
    old_job_lake,
    recorded,
    subtask_lines,
    verdicts_of_flink,
)
from tests.support.savepoints.evolving_savepoints import evolving_savepoint
from tests.support.savepoints.golden_cases import golden_cases

JOB = "orders"
RULES = golden("operator-hashmap-canonical-snappy-p3-m128-flink2.3.0")


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with the old job's savepoint."""
    return old_job_lake(tmp_path)


def spec(types: dict[str, Any], to: Path) -> Path:
    """A file that says what states become."""
    said = {f"holders/{state}": {"type": type_} for state, type_ in types.items()}
    to.write_text(json.dumps({"states": said}), "utf-8")
    return to


def test_the_savepoint_holds_what_flink_printed(tmp_path: Path) -> None:
    """Lists, a union, and a broadcast state whose keys are POJOs."""
    held = open_snapshot(evolving_savepoint("operator-old", tmp_path / "old"))
    assert subtask_lines(held) == OLD_HOLDERS


def test_a_savepoint_of_the_new_job_is_judged_as_flink_does(lake: Catalog, tmp_path: Path) -> None:
    """Keys of a broadcast state, too, are migrated: the worse of both verdicts counts."""
    new = evolving_savepoint("operator-new", tmp_path / "new")
    assert judged(lake, "old", new) == verdicts_of_flink("new")


@pytest.mark.parametrize(("name", "types"), [("new", NEW_HOLDERS), ("refused", REFUSED_HOLDERS)])
def test_a_spec_is_judged_as_flink_judges_the_classes(
    name: str, types: dict[str, Any], lake: Catalog, tmp_path: Path
) -> None:
    """Elements and values; a spec leaves keys as they are."""
    found = judged(lake, "old", spec(types, tmp_path / "spec.json"))
    assert found == verdicts_of_flink(name, with_keys=False)


@pytest.mark.parametrize(("name", "said"), [("split", "mode of a list"), ("rules", "begins empty")])
def test_a_state_in_another_form_is_said_to_be_lost(name: str, said: str, lake: Catalog) -> None:
    """What was a union list, in a job that has the name for another list or a broadcast state."""
    record = import_as(lake, RULES.snapshot, "rules")
    meta = recorded(record, "union").meta_info.replace(b"\0\5union", name_bytes(name))
    recorded(record, name).meta_info = meta
    (bad,) = (verdict for verdict in check_against(record, str(RULES.snapshot)) if verdict.fault)
    assert bad.state == name
    assert said in bad.result.reasons[0].rule


def name_bytes(name: str) -> bytes:
    """As Java writes a text."""
    return len(name).to_bytes(2, "big") + name.encode()


def test_an_operator_with_operator_state_alone_may_not_be_gone(lake: Catalog) -> None:
    """As Flink refuses state that nothing claims, without the flag of that name."""
    old, others = lake.snapshot(JOB, "old"), str(RULES.snapshot)
    (gone,) = (verdict for verdict in check_against(old, others) if verdict.fault)
    assert (gone.operator, gone.result.reasons[0].old) == ("holders", "4 states")
    assert not any(verdict.fault for verdict in check_against(old, others, allow_missing=True))


def test_nor_may_one_whose_state_has_no_tables(lake: Catalog, tmp_path: Path) -> None:
    """Flink looks at raw state and at a coordinator's, too."""
    record = import_as(lake, raw_savepoint(tmp_path / "raw"), "raw")
    metadata = read_metadata(record.metadata)
    (source,) = (operator for operator in metadata.operators if operator.uid == "source")
    source.coordinator = InlineHandle("coordinator", b"any")
    record = replace(record, metadata=write_metadata(metadata), operators=record.operators[1:])
    found = check_against(record, str(tmp_path / "old"))
    gone = {verdict.operator: verdict.result.reasons[0].old for verdict in found if verdict.fault}
    assert gone == {"opstate": "raw state", "rules": "1 states"}
    nowhere = replace(record, operators=[])
    source.uid, source.operator_id = "gone", operator_id_of_uid("gone")
    nowhere = replace(nowhere, metadata=write_metadata(metadata))
    found = check_against(nowhere, str(tmp_path / "old"))
    gone = {verdict.operator: verdict.result.reasons[0].old for verdict in found if verdict.fault}
    assert gone == {"opstate": "raw state", "gone": "its coordinator's state"}


def test_only_some_operators_are_checked(lake: Catalog, tmp_path: Path) -> None:
    """By uid or id, against a savepoint or a file of types; one that is not there is refused."""
    record = import_as(lake, RULES.snapshot, "record")
    types = tmp_path / "types.yaml"
    types.write_text(str(open_snapshot(RULES.snapshot).types()))
    for against in (str(RULES.snapshot), str(types)):
        every = check_against(record, against)
        label = every[0].operator
        of_one = [each for each in every if each.operator == label]
        for name in (label, operator_id_of_uid(label)):
            assert check_against(record, against, [name]) == of_one
        with pytest.raises(NotFoundError, match="no operator 'rule' has state; these have: "):
            check_against(record, against, ["rule"])


def test_operators_are_found_by_the_hash_of_their_uid(lake: Catalog) -> None:
    """Before Flink 2.0, a snapshot holds no uids."""
    (unnamed,) = golden_cases("operator", form="canonical")[1:2]
    record = import_as(lake, unnamed.snapshot, "unnamed")
    assert not any(operator.uid for operator in record.operators)
    found = check_against(record, str(RULES.snapshot))
    assert {verdict.state for verdict in found} >= {"split", "union", "rules"}
    assert not any(verdict.fault for verdict in found)
