"""The check of a whole lake, in a run of its own."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from statelake.dagster import StateLake
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.verify.lake_checking import _LakeCheck
from statelake.pipelines.orchestration.progress import LoggedProgress
from statelake.pipelines.orchestration.settings import JobSettings, ScrubSettings
from tests.support.lakes import WORDS, import_golden


@pytest.mark.full
def test_it_goes_on_and_names_what_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import does not run it; one that was stopped does not read again what was whole."""
    lake = tmp_path / "lake"
    import_golden(Catalog(lake), ("monday", WORDS), partitions=8)
    (tmp_path / "savepoints").mkdir()
    settings = JobSettings(
        name="orders", savepoints=str(tmp_path / "savepoints"), scrub=ScrubSettings()
    )
    made = dg.build_defs_for_component(StateLake(lake=str(lake), jobs=[settings]))
    schedules = {each.name: each.job_name for each in made.get_repository_def().schedule_defs}
    assert schedules["orders_weekly_scrub"] == "orders_check_lake"
    archive = made.resolve_job_def("orders_archive_and_export")
    assert "lake" not in [node.name.removeprefix("orders_") for node in archive.nodes]
    read: list[str] = []
    fault = _LakeCheck._fault

    def counted(self: _LakeCheck, path: str) -> tuple[str, bool]:
        read.append(path)
        return fault(self, path)

    def stopped(*_: object) -> None:
        raise InterruptedError

    (tmp_path / "home").mkdir()
    temporary = dg.DagsterInstance.local_temp(
        str(tmp_path / "home"), {"telemetry": {"enabled": False}}
    )
    with temporary as instance:
        scrub = made.resolve_job_def("orders_check_lake")
        with monkeypatch.context() as patch:
            patch.setattr(LoggedProgress, "__call__", stopped)
            patch.setattr("statelake.pipelines.lake.verify.lake_checking.READERS", 1)
            scrub.execute_in_process(instance=instance, raise_on_error=False)
        monkeypatch.setattr(_LakeCheck, "_fault", counted)
        (judged,) = scrub.execute_in_process(instance=instance).get_asset_check_evaluations()
        assert (judged.check_name, judged.passed) == ("lake", True)
        assert len(read) == judged.metadata["files"].value - 1
        damaged = next(lake.glob("orders/keyed/**/*.parquet"))
        data = bytearray(damaged.read_bytes())
        data[len(data) // 3] ^= 1
        damaged.write_bytes(data)
        read.clear()
        (judged,) = scrub.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert not judged.passed
    assert len(set(read)) == judged.metadata["files"].value  # a damaged one is read again
    assert judged.metadata["damaged files"].value == 1
    assert damaged.name in judged.metadata["damaged"].value
    assert "orders/monday" in judged.metadata["damaged"].value
