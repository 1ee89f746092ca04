"""`statelake run`: a job of a file, again and again; and the same job checked before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.cli.main import main
from tests.support.jobs.alert_orders import EXAMPLE, expected, feed, sink_rows

pytestmark = pytest.mark.usefixtures("own_registry")

JOB = f"{EXAMPLE}:JOB"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Options, with the example's data below a directory of the test's."""
    monkeypatch.chdir(tmp_path)
    return JOB, "--lake", tmp_path / "lake", "--engine", "local"


def test_run_by_run(
    of: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came in, what went out, and when there is nothing to do."""
    data = tmp_path / "alerts-data"
    feed(data, 0)
    code, out, _ = run(capsys, "run", *of, "--json")
    done: dict[str, Any] = json.loads(out)
    assert (code, done["run"], done["records"], done["snapshot_id"]) == (0, 1, 302, "run-00000001")
    assert done["rows"]["alerts"] == len(expected([0])[0]) == len(sink_rows(data / "alerts"))
    feed(data, 1)
    code, out, _ = run(capsys, "run", *of, "--parallelism", 3, "--backend", "rocksdb")
    assert (code, "run 2: 300 records in" in out) == (0, True)
    code, out, _ = run(capsys, "run", *of)
    assert (code, "nothing new" in out) == (0, True)


def test_a_job_that_can_be_run_can_be_checked(
    of: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the rules, and against the state that its runs left."""
    feed(tmp_path / "alerts-data", 0)
    assert run(capsys, "run", *of)[0] == 0
    lake = ("--lake", tmp_path / "lake", "--job", "alerts", "--snapshot", "run-00000001")
    code, out, _ = run(capsys, "check", "legality", JOB, *lake, "--json")
    assert (code, json.loads(out)) == (0, {"legal": True, "findings": []})


def test_a_function_that_fails(
    of: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Says where, commits nothing, and the next run is the same one."""
    data = tmp_path / "alerts-data"
    feed(data, 0)
    bad = data / "orders" / "001.jsonl"
    bad.write_text(json.dumps({"customer": 1, "amount": None, "at": 1}) + "\n")
    code, _, err = run(capsys, "run", *of)
    assert code == 3
    assert "operator 'alert'" in err
    assert "TypeError" in err
    assert "line" in err
    assert sink_rows(data / "alerts") == []


def test_no_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A name that is none, and a job that is only declared."""
    lake = ("--lake", tmp_path / "lake")
    code, _, err = run(capsys, "run", f"{EXAMPLE}:NONE", *lake)
    assert (code, "no" in err) == (3, True)


def test_sources_that_are_not_there(
    of: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source without a directory has not just got nothing: it says where, and what to do."""
    code, out, _ = run(capsys, "run", *of)
    assert code == 1
    assert out.splitlines() == [
        "nothing to read:",
        "source orders: there is nothing at alerts-data/orders",
        "source rules: there is nothing at alerts-data/rules",
        "put input there, or correct the paths of the job's sources, and run it again",
    ]
    (tmp_path / "alerts-data" / "orders").mkdir(parents=True)
    assert run(capsys, "run", *of)[0] == 0  # one is there, and may get something
    (tmp_path / "alerts-data" / "orders").rmdir()
    feed(tmp_path / "alerts-data", 0)
    code, out, _ = run(capsys, "run", *of, "--json")
    assert (code, json.loads(out)["absent"]) == (0, {})
    (tmp_path / "alerts-data" / "rules").rename(tmp_path / "elsewhere")
    code, out, _ = run(capsys, "run", *of, "--json")
    assert code == 3  # what was there is gone


def test_sources_that_are_empty(
    of: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Directories without a file are there, and have got nothing."""
    for name in ("orders", "rules"):
        (tmp_path / "alerts-data" / name).mkdir(parents=True)
    code, out, _ = run(capsys, "run", *of)
    assert (code, out.splitlines()) == (
        0, ["nothing new: no source has got anything since the last run"]
    )  # fmt: skip
