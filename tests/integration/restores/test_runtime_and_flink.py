"""State of real Flink's goes on in a job of process functions, and that job's in real Flink."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import Lake, open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.declarations.states import RedistributionStrategy
from statelake.state_core.runtime.process import (
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
    TwoInputBroadcastStreamProcessFunction,
)
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.jobs.committed_runs import assert_alike
from tests.support.savepoints.expected_contents import UIDS
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]

COUNT = StateDeclarations.value_state("count", "Long")
CASES = golden_cases("wordcount")


class Adding(OneInputStreamProcessFunction):
    """Adds to a word's count."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """The count, as the Java job declares it."""
        return {COUNT}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """So many more."""
        count = ctx.get_state(COUNT)
        count.update((count.value() or 0) + record["more"])


def job_over(data: Path, max_parallelism: int) -> StreamJob:
    """The word count, over words and how many more."""
    job = StreamJob("words", max_parallelism)
    schema = pa.schema({"word": pa.string(), "more": pa.int64()})
    words = job.source("words", str(data), format="json", schema=schema).key_by("word", "String")
    words.process(Adding(), uid="counter", output={"word": pa.string()})
    return job


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_there_and_back(backend: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Flink's counts, more of them here at 3, still more at 1; Flink has the sums, at 2."""
    golden = next(case for case in CASES if case.facts["backend"] == "rocksdb")
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "words"
    data.mkdir()
    import_snapshot(
        lake, str(golden.snapshot), "words", Import(uids=UIDS.get("wordcount", ())),
        snapshot_id="flink", engine="local",
)  # fmt: skip
    expected = {entry["key"]: entry for entry in golden.expected()}
    job = job_over(data, golden.facts["max_parallelism"])
    for run, parallelism in enumerate((3, 1)):
        lines = [json.dumps({"word": word, "more": run + 1}) for word in sorted(expected)[:50]]
        (data / f"{run}.jsonl").write_text("\n".join(lines) + "\n")
        options = RunOptions(
            parallelism=parallelism, backend=backend, engine="local", restore="flink"
        )
        assert run_job(job, lake, options).records == 50
    for word in sorted(expected)[:50]:
        expected[word]["count"] += 3
    savepoint = tmp_path / "export"
    export_snapshot(lake, "words", "run-00000002", savepoint, parallelism=2, engine="local")
    restored = flink.restore("wordcount", savepoint, keys=golden.facts["keys"], parallelism=2)
    assert sorted_lines(restored) == sorted_lines(expected.values())


OF = StateDeclarations
NAME = OF.value_state("name", "String")
ITEMS = OF.list_state("items", "Long")
SCORES = OF.map_state("scores", "String", "Integer")
TOTAL = OF.reducing_state("total", "Long", f"{__name__}:add")
LARGEST = OF.aggregating_state("largest", f"{__name__}:Largest", "Long")
RULES = OF.broadcast_state("rules", "Long", "String")
# Flink 2.3 registers a declared union list as one that is split, and refuses another
SPLIT, UNION = (
    OF.list_state_builder(name, type_).redistribute_by(RedistributionStrategy.SPLIT).build()
    for name, type_ in (("split", "Long"), ("union", "String"))
)
FAR = 4_000_000_000_000
KEYS, MORE, RULE_COUNT = 40, 10, 5


def add(first: int, second: int) -> int:
    """Of the reducing state."""
    return first + second


class Largest:
    """Of the aggregating state, as the Java job has it."""

    def create_accumulator(self) -> int:
        """The least."""
        return -(1 << 63)

    def add(self, value: int, accumulator: int) -> int:
        """The larger one."""
        return max(value, accumulator)

    def get_result(self, accumulator: int) -> int:
        """Itself."""
        return accumulator

    def merge(self, a: int, b: int) -> int:
        """The larger one."""
        return max(a, b)


class Declared(TwoInputBroadcastStreamProcessFunction):
    """The function `declared` of real Flink's job."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """All kinds over keys, and the broadcast one."""
        return {NAME, ITEMS, SCORES, TOTAL, LARGEST, RULES}

    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: NonPartitionedContext
    ) -> None:
        """A rule."""
        ctx.get_state(RULES).put(record["n"], f"rule {record['n']}")

    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """A number."""
        k = record["n"]
        ctx.get_state(NAME).update(f"name {k}")
        for item in (k, -k):
            ctx.get_state(ITEMS).add(item)
        ctx.get_state(SCORES).put("s", k)
        ctx.get_state(SCORES).put("t", 1)
        for value in (k, k * k):
            ctx.get_state(TOTAL).add(value)
        for value in (k, 100):
            ctx.get_state(LARGEST).add(value)
        ctx.timers.register_processing_time(FAR + k)


class Parts(OneInputStreamProcessFunction):
    """The function `parts` of real Flink's job."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """Lists that are dealt out, and given to everyone."""
        return {SPLIT, UNION}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """A number."""
        ctx.get_state(SPLIT).add(record["n"])
        ctx.get_state(UNION).add(f"of {record['n']}")


def declared_job(data: Path, timers: str) -> StreamJob:
    """Real Flink's job `declared`, over files of numbers."""
    job = StreamJob("declared", timers=timers)
    schema = pa.schema({"n": pa.int64()})
    numbers = job.source("numbers", str(data / "numbers"), format="json", schema=schema)
    rules = job.source("rules", str(data / "rules"), format="json", schema=schema)
    rules.broadcast().connect_and_process(
        numbers.key_by(key_of, "Long"), Declared(), uid="declared", output={"n": pa.int64()}
    )
    numbers.shuffle().process(Parts(), uid="parts", output={"n": pa.int64()})
    return job


def key_of(record: Any) -> int:
    """As in the Java job."""
    return int(record["n"]) * 31 - 7


def declared_lines(count: int) -> list[dict[str, Any]]:
    """What real Flink says of the state over so many numbers."""
    rules = {str(n): f"rule {n}" for n in range(RULE_COUNT)}
    keyed = [
        {
            "key": k * 31 - 7, "name": f"name {k}", "items": [k, -k], "score": k,
            "total": k + k * k, "largest": max(k, 100), "rules": rules,
        }
        for k in range(count)
    ]  # fmt: skip
    lists = [line for k in range(count) for line in ({"split": k}, {"union": f"of {k}"})]
    return [*keyed, *lists]


@pytest.mark.parametrize("begins", ["in Flink", "here"])
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_every_kind_of_declared_state_there_and_back(
    begins: str, backend: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Values, lists, maps, folds, broadcast and redistributed lists, and timers.

    A run goes on from Flink's savepoint, or from nothing; the next is restored from the changelog
    that it committed to, at another parallelism; Flink has all of it, at a third.
    """
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    # a restored state's timers keep their name
    job = declared_job(data, "user-timers" if begins == "in Flink" else "processing timer")
    restore = ""
    if begins == "in Flink":
        savepoint = flink.generate(
            "declared", tmp_path / "sp", keys=KEYS, backend="hashmap", format="native"
        )
        import_snapshot(
            lake, str(savepoint), "declared", Import(uids=("declared", "parts")),
            snapshot_id="flink", engine="local",
)  # fmt: skip
        edit = Lake(tmp_path / "lake").job("declared")["flink"].edit("without-sources")
        for source in ("numbers-source", "rules-source"):
            edit = edit.drop_operator(source)
        edit.save()
        restore = "without-sources"
    for run, parallelism in enumerate((2, 3)):
        begun = run > 0 or restore
        more = range(KEYS + run * MORE if begun else 0, KEYS + (run + 1) * MORE)
        for name, of in (("numbers", more), ("rules", range(0 if begun else RULE_COUNT))):
            (data / name).mkdir(parents=True, exist_ok=True)
            if of:
                lines = "".join(json.dumps({"n": n}) + "\n" for n in of)
                (data / name / f"{run}.jsonl").write_text(lines)
        options = RunOptions(
            parallelism=parallelism, backend=backend, engine="local", restore=restore,
            commit_to=(f"changelog={tmp_path / 'changelogs'}", f"blob={tmp_path / 'blobs'}"),
            restore_from="changelog" if run else "lake",
        )  # fmt: skip
        run_job(job, lake, options)
        assert_alike(job, tmp_path / "lake", options.commit_to)
    target = tmp_path / "export"
    export_snapshot(lake, "declared", "run-00000002", target, parallelism=4, engine="local")
    times = (
        open_snapshot(target)
        .operator("declared")
        .state("_timer_state/processing_processing timer")
        .to_arrow()["timestamp"]
    )
    assert sorted(times.to_pylist()) == [FAR + k for k in range(KEYS + 2 * MORE)]
    restored = flink.restore("declared", target, keys=KEYS + 2 * MORE, parallelism=4)
    assert sorted_lines(restored) == sorted_lines(declared_lines(KEYS + 2 * MORE))


YEARS = timedelta(days=3650)
KINDS = {
    "name": OF.value_state("name", "String"), "items": OF.list_state("items", "Integer"),
    "scores": OF.map_state("scores", "String", "Double"),
    "total": OF.reducing_state("total", "Long", f"{__name__}:add"),
    "avg": OF.aggregating_state("avg", f"{__name__}:Average", "Tuple2<Long, Long>"),
    "triple": OF.value_state("triple", "Tuple3<Integer, String, Boolean>"),
    "row": OF.value_state("row", "Row<Long, String, Double>"),
    "session": OF.value_state_builder("session", "String").with_state_ttl(YEARS).build(),
}  # fmt: skip


class Average:
    """Of the aggregating state of `kinds`."""

    def create_accumulator(self) -> tuple[int, int]:
        """Sum and count."""
        return 0, 0

    def add(self, value: int, accumulator: Any) -> tuple[int, int]:
        """One more."""
        total, count = accumulator
        return total + value, count + 1

    def get_result(self, accumulator: Any) -> float:
        """The average."""
        total, count = accumulator
        return total / count if count else 0.0

    def merge(self, a: Any, b: Any) -> tuple[int, int]:
        """Of both."""
        return a[0] + b[0], a[1] + b[1]


class Kinds(OneInputStreamProcessFunction):
    """Changes some states of real Flink's job `kinds`, with time to live and with timers."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """All of them."""
        return set(KINDS.values())

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """One more of each."""
        ctx.get_state(KINDS["total"]).add(record["more"])
        ctx.get_state(KINDS["items"]).add(record["more"])
        ctx.get_state(KINDS["scores"]).put("more", float(record["more"]))
        ctx.get_state(KINDS["session"]).update(f"session again {record['more']}")


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_state_with_time_to_live_and_both_timers_there_and_back(
    backend: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """A `KeyedProcessFunction`'s, changed by two runs of which one is restored from a changelog."""
    golden = next(case for case in golden_cases("kinds", form="canonical"))
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    import_snapshot(
        lake, str(golden.snapshot), "kinds", Import(uids=UIDS["kinds"]), snapshot_id="flink",
        engine="local",
)  # fmt: skip
    job = StreamJob("kinds", golden.facts["max_parallelism"])
    schema = pa.schema({"key": pa.int64(), "more": pa.int64()})
    stream = job.source("records", str(data), format="json", schema=schema)
    stream.key_by("key", "Long").process(Kinds(), uid="kinds", output={"key": pa.int64()})
    lines = {line["key"]: line for line in golden.expected() if "timer" not in line}
    commit_to = (f"changelog={tmp_path / 'changelogs'}",)
    data.mkdir()
    for run, parallelism in enumerate((3, 2)):
        changed = sorted(lines)[run:60:2]
        text = "".join(json.dumps({"key": key, "more": run + 1}) + "\n" for key in changed)
        (data / f"{run}.jsonl").write_text(text)
        for key in changed:
            line = lines[key]
            line["total"] += run + 1
            line["items"] = [*line["items"], run + 1]
            line["scores"]["more"] = float(run + 1)
            line["session"] = f"session again {run + 1}"
        options = RunOptions(
            parallelism=parallelism, backend=backend, engine="local", restore="flink",
            commit_to=commit_to,
            restore_from="changelog" if run else "lake",
        )  # fmt: skip
        run_job(job, lake, options)
        assert_alike(job, tmp_path / "lake", commit_to)
    target = tmp_path / "export"
    export_snapshot(lake, "kinds", "run-00000002", target, parallelism=4, engine="local")
    restored = flink.restore("kinds", target, keys=golden.facts["keys"], parallelism=4)
    assert sorted_lines(line for line in restored if "timer" not in line) == sorted_lines(
        lines.values()
    )
    for queue in open_snapshot(golden.snapshot).operator(operator_id_of_uid("kinds")).timers:
        other = open_snapshot(target).operator("kinds").state(queue.name).to_arrow()
        kept = [sorted(table["timestamp"].to_pylist()) for table in (queue.to_arrow(), other)]
        assert kept[0] == kept[1]
