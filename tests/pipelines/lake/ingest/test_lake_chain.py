"""Incremental checkpoints of one job in a lake: what each added, what differs, what goes out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import assert_whole, exported, import_as
from tests.support.savepoints.checkpoint_chains import (
    STATES,
    Chain,
    Moment,
    differences,
    golden_chain,
    vanished,
)
from tests.support.savepoints.expected_contents import contents_of, same_lines, tables_of


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The golden chain."""
    return golden_chain(tmp_path_factory.mktemp("chain") / "moved")


@pytest.fixture(scope="module")
def lake(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with every moment of it, one after another."""
    lake = Catalog(tmp_path_factory.mktemp("lake") / "lake")
    for moment in chain.moments:
        import_as(lake, moment.snapshot, moment.snapshot.name)
    return lake


def name_of(moment: Moment) -> str:
    """Its id in the lake."""
    return moment.snapshot.name


@pytest.mark.full
def test_differences_are_those_of_the_contents(chain: Chain, lake: Catalog) -> None:
    """`statelake diff` between generations, and over several of them in both directions."""
    ends = (chain.checkpoints[0], chain.checkpoints[-1])
    for earlier, later in [*pairwise(chain.checkpoints), ends, ends[::-1]]:
        ran = run(
            "diff", "--lake", lake.location, "--job", "orders", "--json", "--engine", "local",
            name_of(earlier), name_of(later),
        )  # fmt: skip
        assert ran.code == 0
        found = {
            difference["state"]: (difference["added"], difference["removed"], difference["changed"])
            for difference in ran.json
            if difference["operator"] == "chain"
        }
        wanted = differences(earlier, later)
        assert {name: found[name] for name in STATES} == wanted
        assert set(found) - set(STATES) == {"_timer_state/processing_user-timers"}


@pytest.mark.full
def test_the_savepoints_differ_in_nothing(chain: Chain, lake: Catalog) -> None:
    """A checkpoint and both savepoints of its moment are the same to a lake, and cost nothing."""
    last = name_of(chain.checkpoints[-1])
    for form in chain.savepoints:
        ran = run("diff", "--lake", lake.location, "--job", "orders", last, form, "--json")
        assert {
            difference["status"] for difference in ran.json if difference["operator"] == "chain"
        } == {"same"}
        record = lake.snapshot("orders", form)
        units = [u.path for op in record.operators for t in op.keyed_tables for u in t.units]
        before = lake.snapshot("orders", last)
        assert units == [
            u.path for op in before.operators for t in op.keyed_tables for u in t.units
        ]


@pytest.mark.full
def test_every_generation_goes_out_as_it_was(chain: Chain, lake: Catalog, tmp_path: Path) -> None:
    """Later imports changed nothing of earlier ones; deleted keys do not come back."""
    assert vanished(chain)
    assert_whole(lake)
    for moment in chain.moments:
        target = tmp_path / name_of(moment)
        exported(lake, name_of(moment), target, parallelism=3)
        same_lines(contents_of("chain", tables_of(open_snapshot(target))), moment.held)
