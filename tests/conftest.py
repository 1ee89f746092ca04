"""What every test may use: golden data by name, and how hard Hypothesis tries."""

from __future__ import annotations

import os
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from statelake.state_core.serializers.framework import plugins, registry
from statelake.state_core.serializers.kryo import decoding
from statelake.state_core.serializers.opaque import decoders
from tests.support.savepoints.golden_cases import GOLDEN

settings.register_profile(
    "fast",
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("full", settings.get_profile("fast"), max_examples=40)
settings.register_profile("nightly", settings.get_profile("fast"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


# of these, which go through many snapshots or attacks, each test takes every so many in every run;
# of the others each second one is among the longest tests, and all are in those of the night
THINNED = {
    "test_arrow_api.py": 6,
    "test_backend_contract.py": 2,
    "test_backend_savepoints.py": 2,
    "test_bootstrap.py": 2,
    "test_bootstrap_restore.py": 2,
    "test_bootstrap_sources.py": 2,
    "test_byte_exactness.py": 2,
    "test_changelog.py": 3,
    "test_changelog_and_merging.py": 4,
    "test_checkpoints.py": 4,
    "test_command_completion.py": 2,
    "test_command_dump.py": 3,
    "test_command_get.py": 2,
    "test_command_inspect.py": 3,
    "test_command_migrate.py": 2,
    "test_command_sql.py": 2,
    "test_command_top.py": 3,
    "test_commit_simulation.py": 2,
    "test_dagster_erasure.py": 3,
    "test_dagster_jobs.py": 2,
    "test_erased_task_state.py": 2,
    "test_erasing.py": 3,
    "test_every_type.py": 2,
    "test_exact_entries.py": 3,
    "test_generated.py": 6,
    "test_golden_restores.py": 6,
    "test_hostile_names.py": 5,
    "test_hostile_snapshots.py": 4,
    "test_integrity_any_damage.py": 3,
    "test_integrity_golden.py": 3,
    "test_kafka.py": 2,
    "test_lake_committing.py": 2,
    "test_lake_concurrency.py": 2,
    "test_lake_confinement.py": 6,
    "test_lake_contradictions.py": 2,
    "test_lake_crashes.py": 3,
    "test_lake_decoders.py": 3,
    "test_lake_diffing.py": 2,
    "test_lake_dropping.py": 2,
    "test_lake_exporting.py": 4,
    "test_lake_importing.py": 4,
    "test_lake_parts.py": 8,
    "test_lake_record_rules.py": 2,
    "test_lake_state_backend.py": 2,
    "test_lake_unchanged.py": 2,
    "test_lake_whole.py": 4,
    "test_lakes.py": 8,
    "test_metadata_versions.py": 2,
    "test_nothing_lost.py": 3,
    "test_oversized.py": 2,
    "test_power_cuts.py": 10,
    "test_queries.py": 4,
    "test_restore_golden.py": 2,
    "test_restore_operator_state.py": 2,
    "test_restore_types.py": 4,
    "test_runs.py": 5,
    "test_s3.py": 2,
    "test_s3_lake.py": 2,
    "test_savepoints.py": 4,
    "test_spark_bootstrap.py": 3,
    "test_spark_data_source.py": 4,
    "test_spark_engine.py": 2,
    "test_spark_operator_state.py": 2,
    "test_sql_editing.py": 4,
}


# folders of tests that ask Spark, Dagster, Flink and other servers, or attack commands as a whole:
# they are among the longest tests
SERVERS = ("adversary/", "integration/", "pipelines/orchestration/", "pipelines/spark/")
# but for these, which show in every run that each of them works
IN_EVERY_RUN = {
    "test_dagster_definitions.py",
    "test_dagster_legality.py",
    "test_dagster_process.py",
    "test_edited_restored.py",
    "test_heap_timers_restored.py",
    "test_metadata.py",
    "test_oracle.py",
    "test_restore_golden.py",
    "test_s3.py",
    "test_savepoints.py",
    "test_spark_engine.py",
    "test_spark_operator_state.py",
    "test_spark_session.py",
}

# what takes long begins first, so that no worker waits for the other's last module in the end
FIRST = (
    "test_commit_simulation.py", "spark", "orchestration", "integration", "adversary", "pipelines"
)  # fmt: skip
# modules that use the same session of Spark, or the same server, stay with one worker
TOGETHER = {
    "spark": (
        "pipelines/spark/", "pipelines/orchestration/", "pipelines/runtime/test_runtime_on_spark",
        "pipelines/lake/edit/test_kryo_upgrading",
    ),
    "s3": ("integration/servers/test_s3",),
    "kafka": ("integration/servers/test_kafka",),
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest modules first, and say which tests are for the longest and the night's."""
    items.sort(key=lambda item: _rank(item.nodeid))
    seen: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for item in items:
        below = item.nodeid.removeprefix("tests/")
        if below.startswith(SERVERS) and item.path.name not in IN_EVERY_RUN:
            item.add_marker(pytest.mark.full)
        every = THINNED.get(item.path.name)
        if every is None or not hasattr(item, "callspec"):
            continue
        function = item.nodeid.partition("[")[0]
        if seen[function] % every:
            item.add_marker(pytest.mark.full)
            if left_out[function] % 2:
                item.add_marker(pytest.mark.nightly)
            left_out[function] += 1
        seen[function] += 1


def _rank(nodeid: str) -> int:
    folders = nodeid.partition("::")[0].split("/")
    return next((rank for rank, name in enumerate(FIRST) if name in folders), len(FIRST))


class _ModuleScheduling(LoadScopeScheduling):
    """Gives a worker module after module; those of `TOGETHER` are one."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        below = module.removeprefix("tests/")
        return next((name for name, of in TOGETHER.items() if below.startswith(of)), module)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Modules in the order of `FIRST`, and not by their number of tests."""
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return _ModuleScheduling(config, log)


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of small vectors computed by Flink's classes."""
    return GOLDEN / "vectors"


@pytest.fixture
def wordcount() -> Path:
    """A savepoint of 300 keys of one value state: heap backend, parallelism 2, max 128."""
    return GOLDEN / "flink" / "wordcount-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"


# what was derived from a registry is kept by its number of changes: no test has another's
_CHANGES = count(1_000_000, 1_000_000)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten behind it; no entry points, nothing was loaded yet."""
    monkeypatch.setattr(registry, "_classes", registry.registered_classes())
    monkeypatch.setattr(decoders, "_decoders", {})
    monkeypatch.setattr(decoding, "_declared", decoding._Declared())
    state = plugins._State()
    state.changes = next(_CHANGES)
    monkeypatch.setattr(plugins, "_state", state)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    monkeypatch.delenv(plugins.ENVIRONMENT, raising=False)
