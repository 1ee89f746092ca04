"""`pip install statelake` alone: no Spark, no Dagster, and what needs them says what to install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from statelake import open_snapshot
from statelake.pipelines.cli.demo.run import ERASED

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
]


def run(
    *command: object, directory: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that finds nothing of this process's Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [*map(str, command)], check=False, capture_output=True, text=True, cwd=directory,
        env={**kept, **(environment or {})},
    )  # fmt: skip


@pytest.mark.parametrize(("words", "package", "extra"), NEEDY, ids=[needy[2] for needy in NEEDY])
def test_a_missing_extra_is_named(
    words: tuple[object, ...], package: str, extra: str, tmp_path: Path
) -> None:
    """On one line, with exit code 3, and nothing was written."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WITHOUT}"
    ran = run(sys.executable, "-c", program, *words, directory=tmp_path)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr == (
        f"error: this needs {package}, which is not installed; pip install 'statelake[{extra}]'\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
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
    statelake(*edit, "key % 2 = 0")
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
def test_the_demo_goes_the_whole_way_without_extras(tmp_path: Path) -> None:
    """It ends with a savepoint of both states, and says what an extra would show."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WITHOUT}"
    ran = run(sys.executable, "-c", program, "demo", "--dir", "here", directory=tmp_path)
    assert ran.returncode == 0, ran.stderr
    done, dagster, spark = ran.stdout.splitlines()[-3:]
    assert done.startswith("done in ")
    assert dagster.startswith("with the extra `dagster`")
    assert spark.startswith("with the extra `spark`")
    held = open_snapshot(tmp_path / "here" / "exports" / "tuesday-erased")["kinds"]
    assert (held.parallelism, held.max_parallelism) == (5, 256)
    keys = held["total"].to_arrow()["key"].to_pylist()
    assert len(keys) > 100
    assert ERASED not in keys


def test_the_demos_savepoints_can_be_copied_alone(tmp_path: Path) -> None:
    """Into a new directory; one that exists is left as it is."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WITHOUT}"
    command = (sys.executable, "-c", program, "demo", "--savepoints", "copies")
    ran = run(*command, directory=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    copied = tmp_path / "copies" / "monday" / "_metadata"
    assert copied.read_bytes() == (DEMO / "_metadata").read_bytes()
    again = run(*command, directory=tmp_path)
    assert again.returncode == 3
    assert "copies" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["copies"]


@dataclass(frozen=True)
class Installed:
    """A new environment with the wheel, and a directory that has packages of other people's.

    Attributes:
        programs: The environment's `bin`.
        directory: Where programs are called; it is on `PYTHONPATH`.
    """

    programs: Path
    directory: Path

    def run(self, program: str, *words: object) -> str:
        """What a program of the environment prints."""
        ran = self.call(program, *words)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def call(self, program: str, *words: object) -> subprocess.CompletedProcess[str]:
        """How a program of the environment ends."""
        home = self.directory / "dagster_home"
        home.mkdir(exist_ok=True)
        (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        environment = {
            "PYTHONPATH": str(self.directory), "DAGSTER_HOME": str(home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        command = self.programs / program, *words
        return run(*command, directory=self.directory, environment=environment)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is to be released, of `STATELAKE_DIST`; else one of this tree."""
    directory = Path(os.environ.get("STATELAKE_DIST") or tmp_path_factory.mktemp("wheel"))
    if not list(directory.glob("*.whl")):
        words = (sys.executable, "-m", "build", "--outdir", directory, ROOT)
        built = run(*words, directory=directory)
        assert built.returncode == 0, built.stderr
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel with what it needs and no extras, beside an empty `pipelines` and `state_core`."""
    directory = tmp_path_factory.mktemp("installed")
    programs = directory / "environment" / "bin"
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))  # it copies what is there already
    pip = (uv, "pip", "install", "--python", programs / "python") if uv else (
        programs / "pip", "install", "--no-compile"
    )  # fmt: skip
    for command in (
        (sys.executable, "-m", "venv", programs.parent),
        (*pip, "-c", ROOT / "constraints.txt", wheel),
    ):
        ran = run(*command, directory=directory)
        assert ran.returncode == 0, ran.stderr
    work = directory / "work"
    for package in ("pipelines", "state_core"):
        (work / package).mkdir(parents=True)
        (work / package / "__init__.py").touch()
    yield Installed(programs, work)
    shutil.rmtree(directory)  # 700 MB, which may be in memory


@pytest.fixture(scope="module")
def with_extras(installed: Installed) -> Installed:
    """The same, with Spark and Dagster as the tests' own environment has them."""
    (packages,) = (installed.programs.parent / "lib").glob("python*/site-packages")
    (packages / "extras.pth").write_text(sysconfig.get_path("purelib"))
    return installed


@pytest.mark.full
def test_one_package_is_installed(wheel: Path) -> None:
    """Beside it is the module that Spark looks for."""
    names = {name for name in ZipFile(wheel).namelist() if not name.startswith("statelake-")}
    assert {name for name in names if not name.startswith("statelake/")} == {
        "pyspark_flink_savepoint.py",
    }
    assert {"statelake/state_core/py.typed", "statelake/pipelines/py.typed"} <= names
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.full
def test_a_second_build_has_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """By another program, of the tree instead of the source distribution."""
    words = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, ROOT)
    built = run(*words, directory=tmp_path)
    assert built.returncode == 0, built.stderr
    (again,) = tmp_path.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.full
def test_a_wheel_says_what_it_needs(wheel: Path) -> None:
    """Its bill of materials names each package, at the version that the tests use."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/sboms/" in name)
        bill = json.loads(archive.read(name))
    needed = {part["name"]: part for part in bill["components"]}
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert f"pyspark=={needed['pyspark']['version']}" in pins
    assert needed["deltalake"]["scope"] == "required"
    assert needed["pyspark"]["scope"] == "optional"
    assert "pytest" not in needed


@pytest.mark.full
def test_a_new_environment_has_all_that_reading_needs(installed: Installed) -> None:
    """Installed with nothing but its own dependencies, a savepoint goes in, out, and is sound."""
    listed = installed.run("pip", "list", "--format", "json")
    names = {load["name"].lower() for load in json.loads(listed)}
    assert "deltalake" in names
    assert not names & {"pyspark", "delta-spark", "dagster", "pandas"}

    def statelake(*words: object) -> str:
        return installed.run("statelake", *words)

    assert statelake("--version").startswith("statelake, version ")
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
    refused = installed.call("statelake", "sql", "--lake", "lake", "--engine", "spark", query)
    assert refused.returncode == 3
    assert "pip install 'statelake[spark]'" in refused.stderr
    door = (
        "import statelake as sl;"
        f"print(len(sl.open_snapshot({str(DEMO)!r}).operator('kinds').state('total').to_arrow()))"
    )
    assert installed.run("python", "-c", door).strip() == "120"
    assert "with the extra `spark`" in installed.run("statelake", "demo")


@pytest.mark.full
@pytest.mark.spark
def test_spark_beside_a_package_called_pipelines(with_extras: Installed) -> None:
    """Workers find statelake, though others' packages have the names of its folders."""
    job = ("--lake", "spark-lake", "--job", "demo", "--snapshot", "monday", "--engine", "spark")
    with_extras.run("statelake", "import", DEMO, *job)
    with_extras.run("statelake", "export", *job, "--to", "spark-out")
    assert "sound" in with_extras.run("statelake", "check", "integrity", "spark-out")


PROJECT = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{name}"
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def everything() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
COMPONENT = """\
type: {name}
attributes:
  lake: {lake}
  jobs:
    - name: demo
      savepoints: savepoints
"""


def project(directory: Path, name: str) -> Path:
    """The folder of definitions of a Dagster project whose root module is called that."""
    definitions = directory / name / "defs"
    definitions.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PROJECT.format(name=name))
    for package in (definitions.parent, definitions):
        (package / "__init__.py").touch()
    (definitions.parent / "definitions.py").write_text(DEFINITIONS)
    return definitions


@pytest.mark.full
def test_dagster_beside_a_package_called_pipelines(with_extras: Installed, tmp_path: Path) -> None:
    """`dg` scaffolds and checks the component in a project whose own root is `pipelines`."""
    definitions = project(tmp_path, "pipelines")
    here = Installed(with_extras.programs, tmp_path)
    dg = "import sys; from dagster_dg_cli.cli import main; sys.argv[0] = 'dg'; main()"
    name = "statelake.dagster.StateLake"
    here.run("python", "-c", dg, "scaffold", "defs", name, "lake", "--job", "demo")
    (written,) = definitions.rglob("defs.yaml")
    assert f"type: {name}" in written.read_text()
    written.write_text(COMPONENT.format(name=name, lake=tmp_path / "lake"))
    assert "loaded successfully" in here.run("python", "-c", dg, "check", "defs")
