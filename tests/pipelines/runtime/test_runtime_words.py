"""The example job `words`: it counts, run after run, and goes on where Flink's word count ended."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.runtime import RunOptions, run_job
from tests.support.jobs.alert_orders import example_module, sink_rows, state_rows
from tests.support.savepoints.expected_contents import UIDS
from tests.support.savepoints.golden_cases import golden_cases

EXAMPLE = Path(__file__).parents[3] / "examples" / "words.py"
WORDS = ["größe", "to", "be", "or", "not", "Question", "slings"]


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The example, as a module that can be imported by its name."""
    module = example_module(EXAMPLE)
    yield module
    del sys.modules["words"]


def feed(data: Path, part: int) -> Counter[str]:
    """Some lines more, and how often each word is in them."""
    chance = random.Random(part)
    lines = [" ".join(chance.choices(WORDS, k=7)) for _ in range(40)]
    (data / "lines").mkdir(parents=True, exist_ok=True)
    path = data / "lines" / f"{part}.jsonl"
    path.write_text("".join(json.dumps({"line": line}) + "\n" for line in lines), "utf-8")
    return Counter(word for line in lines for word in line.lower().split())


def test_words_are_counted(example: ModuleType, tmp_path: Path) -> None:
    """At any parallelism, in either backend; the sink has the counts as they grew."""
    lake, counts = Catalog(tmp_path / "lake"), Counter[str]()
    for part, (parallelism, backend) in enumerate(((2, "heap"), (3, "rocksdb"), (1, "heap"))):
        counts += feed(tmp_path, part)
        options = RunOptions(parallelism=parallelism, backend=backend, engine="local")
        assert run_job(example.words(str(tmp_path)), lake, options).run == part + 1
    assert state_rows(lake, 3, "counter", "count", tmp_path, "words") == dict(counts)
    newest: dict[str, int] = {}
    for row in sink_rows(tmp_path / "counts"):
        newest[row["word"]] = max(row["count"], newest.get(row["word"], 0))
    assert newest == dict(counts)


def test_flinks_counts_go_on(example: ModuleType, tmp_path: Path) -> None:
    """Of a real savepoint: its words, and those that came since."""
    golden = golden_cases("wordcount")[0]
    lake = Catalog(tmp_path / "lake")
    import_snapshot(
        lake, str(golden.snapshot), "words", Import(uids=UIDS.get("wordcount", ())),
        snapshot_id="flink", engine="local",
)  # fmt: skip
    held = {entry["key"]: entry["count"] for entry in golden.expected()}
    word = next(word for word in held if word == word.lower() and word.split() == [word])
    came = feed(tmp_path, 0)
    (tmp_path / "lines" / "more.jsonl").write_text(json.dumps({"line": word}) + "\n", "utf-8")
    job = example.words(str(tmp_path), golden.facts["max_parallelism"])
    run_job(job, lake, RunOptions(parallelism=2, engine="local", restore="flink"))
    wanted = Counter(held)
    wanted.update(came)
    wanted.update([word])
    assert state_rows(lake, 1, "counter", "count", tmp_path, "words") == dict(wanted)
