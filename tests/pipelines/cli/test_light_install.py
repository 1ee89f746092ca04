"""`pip install statelake` alone: no Spark, no Dagster, and what needs them says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "pipelines" / "cli" / "demo" / "savepoints" / "monday"
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "dagster", "confluent_kafka", "requests")))
from statelake.pipelines.cli.main import main
main()
"""
NEEDY = [
    (("sql", "--engine", "spark", "--lake", "lake", "SELECT 1"), "PySpark", "spark"),
    (("import", DEMO, "--lake", "lake", "--job", "j", "--engine", "spark"), "PySpark", "spark"),
    (("checkpoints", "list", "--log", "kafka://localhost:9/t"), "confluent-kafka", "kafka"),
    (("flink", "jobs", "--flink", "http://localhost:9"), "Requests", "flink"),
    (("demo",), "Dagster and PySpark", "dagster,spark"),
]


def run(*command: object, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds nothing of this process's environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [*map(str, command)], check=False, capture_output=True, text=True, cwd=directory, env=kept
    )


@pytest.mark.parametrize(("words", "package", "extra"), NEEDY, ids=[needy[2] for needy in NEEDY])
def test_a_missing_extra_is_named(
    words: tuple[object, ...], package: str, extra: str, tmp_path: Path
) -> None:
    """On one line, with exit code 3, and nothing was written."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WITHOUT}"
    ran = run(sys.executable, "-c", program, *words, directory=tmp_path)
    assert (ran.returncode, ran.stdout) == (3, "")
    verb = "are" if "," in extra else "is"
    assert ran.stderr == (
        f"error: this needs {package}, which {verb} not installed;"
        f" pip install 'statelake[{extra}]'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_rows_go_and_values_change_by_sql(tmp_path: Path) -> None:
    """A predicate and an expression need neither Spark nor Java; a wrong one makes nothing."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WITHOUT}"
    lake = ("--lake", "lake", "--job", "demo")

    def statelake(*words: object, code: int = 0) -> str:
        ran = run(sys.executable, "-c", program, *words, directory=tmp_path)
        assert ran.returncode == code, ran.stderr
        return ran.stderr if code else ran.stdout

    def migrate(expression: str, code: int = 0) -> str:
        types = {"states": {"kinds/total": {"type": "Double", "expressions": expression}}}
        (tmp_path / "types.yaml").write_text(json.dumps(types), "utf-8")
        return statelake(
            "migrate", *lake, "--snapshot", "less", "--to", "types.yaml", "--json", code=code
        )

    statelake("import", DEMO, *lake, "--snapshot", "monday")
    edit = ("edit", *lake, "--parent", "monday", "--snapshot", "less", "--purge", "kinds/total")
    assert "state kinds/total, value >" in statelake(*edit, "value >", code=3)
    statelake(*edit, "key < 0")
    assert "state kinds/total, old +" in migrate("old +", code=3)
    assert [done["outcome"] for done in json.loads(migrate("old / 2"))] == ["migrated"]
    told = statelake("snapshots", *lake, "--json")
    assert {row["snapshot_id"] for row in json.loads(told)} == {"monday", "less", "less-migrated"}
    query = "SELECT count(*) AS n, sum(value)::DOUBLE AS half FROM demo.kinds.total"
    held = [
        json.loads(statelake("sql", "--lake", "lake", "--as-of", name, "--json", query))
        for name in ("less", "less-migrated")
    ]
    assert held[1] == {"n": held[0]["n"], "half": held[0]["half"] / 2}
    assert 0 < held[0]["n"] < 120


@pytest.mark.full
def test_a_new_environment_has_all_that_reading_needs(tmp_path: Path) -> None:
    """Installed with nothing but its own dependencies, a savepoint goes in, out, and is sound."""
    bin_directory = tmp_path / "environment" / "bin"
    made = run(sys.executable, "-m", "venv", bin_directory.parent, directory=tmp_path)
    assert made.returncode == 0, made.stderr
    installed = run(
        bin_directory / "pip", "install", "-c", ROOT / "constraints.txt", ROOT, directory=tmp_path
    )
    assert installed.returncode == 0, installed.stderr
    listed = run(bin_directory / "pip", "list", "--format", "json", directory=tmp_path)
    names = {load["name"].lower() for load in json.loads(listed.stdout)}
    assert "deltalake" in names
    assert not names & {"pyspark", "delta-spark", "dagster", "matplotlib", "pandas"}

    def statelake(*words: object) -> str:
        ran = run(bin_directory / "statelake", *words, directory=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    held = statelake("inspect", DEMO, "--json")
    entries = statelake("dump", DEMO)
    job = ("--lake", "lake", "--job", "demo")
    statelake("import", DEMO, *job, "--snapshot", "monday", "--engine", "local")
    statelake("export", *job, "--snapshot", "monday", "--to", "out", "--engine", "local")
    assert "sound" in statelake("check", "integrity", "out")
    assert sorted(statelake("dump", "out").splitlines()) == sorted(entries.splitlines())
    assert len(json.loads(held)["operators"]) == 3
    query = "SELECT count(*) AS n FROM demo.kinds.total"
    assert json.loads(statelake("sql", "--lake", "lake", "--json", query)) == {"n": 120}
    refused = run(bin_directory / "statelake", "sql", "--lake", "lake", "--engine", "spark",
                  query, directory=tmp_path)  # fmt: skip
    assert refused.returncode == 3
    assert "pip install 'statelake[spark]'" in refused.stderr
    packages = (bin_directory.parent / "lib").glob("python*/site-packages")
    (shipped,) = packages
    assert (shipped / "state_core" / "py.typed").is_file()
    assert (shipped / "pipelines" / "py.typed").is_file()
    assert (shipped / "pyspark_flink_savepoint.py").is_file()
