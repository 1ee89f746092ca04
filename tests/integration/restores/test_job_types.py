"""Types of a job that has never run: those of a savepoint that it took later."""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import statelake as sl
from statelake.pipelines.sql_jobs.job_types import manifest_class
from statelake.state_core.errors import DeclarationError, FlinkJobError, MissingFileError
from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_home, flink_jars
from tests.integration.flink.oracle import NEW_SOURCES, SOURCES, FlinkOracle, modules_of
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full]

CASES = ("kinds", "operator")
WRITERS = {"2.3.0": "flink", "1.20.0": "old_flink"}
COMMAND = "from statelake.pipelines.cli.main import main; main()"


def program(version: str, to: Path, entry_class: str = "EntryJobs") -> Path:
    """The JAR of the tests' jobs."""
    names = [*SOURCES, "EntryJobs.java", *(() if version.startswith("1.") else NEW_SOURCES)]
    jars = flink_jars(version, modules_of(version))
    classes = compiled([JAVA_SOURCES / each for each in names], jars, f"flink-{version}")
    with zipfile.ZipFile(to, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Main-Class: {entry_class}\n")
        for path in classes.glob("*.class"):
            archive.write(path, path.name)
    return to


def installed(version: str, root: Path) -> tuple[Path, Path]:
    """That JAR, and a Flink with what it needs."""
    home = flink_home(version, root / "flink", modules_of(version))
    return program(version, root / "jobs.jar"), home


@pytest.mark.parametrize("version", ["2.3.0", "1.20.0"])
def test_types_of_a_jar_are_those_of_the_jobs_savepoints(
    version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """To the letter: keyed and operator state, timers, broadcast state; whatever it prints."""
    flink: FlinkOracle = request.getfixturevalue(WRITERS[version])
    jar, home = installed(version, tmp_path)
    for case in CASES:
        savepoint = flink.generate(case, tmp_path / case, keys=20)
        types = sl.job_types(jar, home, arguments=[case])
        assert types.to_yaml() == sl.open_snapshot(savepoint).types().to_yaml()


def test_a_job_that_can_not_be_started_is_named_with_its_own_words(tmp_path: Path) -> None:
    """What `main` throws, that it submits nothing, and a class that is not there."""
    jar, home = installed("2.3.0", tmp_path)
    for arguments, entry_class, says in (
        (["kinds", "x"], "", "no such shop: x"),
        (["none"], "", "submitted no streaming job"),
        (["kinds"], "com.acme.Nothing", "com.acme.Nothing"),
    ):
        with pytest.raises(FlinkJobError, match=says):
            sl.job_types(jar, home, entry_class=entry_class, arguments=arguments)


def test_java_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    """Also where the job's `main` would go on for ever."""
    jar, home = installed("2.3.0", tmp_path)
    alive = tmp_path / "alive"
    words = ["types", jar, "--flink-home", home, "--arg", "never", "--arg", alive]
    with subprocess.Popen([sys.executable, "-c", COMMAND, *map(str, words)]) as command:
        wait_until(alive.exists)
        command.kill()
    wait_until(lambda: unchanged(alive))


def wait_until(done: Callable[[], bool]) -> None:
    """Fails after a minute."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def unchanged(file: Path) -> bool:
    """Whether nobody writes a file within a second."""
    before = file.read_bytes()
    time.sleep(1)
    return file.read_bytes() == before


@pytest.mark.parametrize(
    ("manifest", "entry"),
    [
        (b"Main-Class: a.B\r\n", "a.B"),
        (b"main-class:a.B", "a.B"),
        (b"Main-Class: com.acme.stream\r\n s.Job\r\nprogram-class: \n", "com.acme.streams.Job"),
        ("Main-Class: stra\N{LATIN SMALL LETTER SHARP S}".encode()[:-1] + b"\n \x9fe", "stra\xdfe"),
        (b"Main-Class: a.B\nprogram-class: c.D\n\nName: x\nMain-Class: e.F\n", "c.D"),
    ],
)
def test_the_class_with_main_is_that_of_the_manifest(
    manifest: bytes, entry: str, tmp_path: Path
) -> None:
    """As Java reads it: long lines go on in the next, names have any case, a section ends."""
    jar = tmp_path / "a.jar"
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/MANIFEST.MF", manifest)
    assert manifest_class(jar) == entry
    whole = jar.read_bytes()
    for at in range(len(whole)):
        jar.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with suppress(DeclarationError):
            manifest_class(jar)


def test_a_jar_or_a_flink_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is started."""
    home = flink_home("2.3.0", tmp_path / "flink", modules_of("2.3.0"))
    empty = tmp_path / "empty.jar"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("a.txt", "")
    with pytest.raises(MissingFileError):
        sl.job_types(tmp_path / "none.jar", home)
    with pytest.raises(DeclarationError, match="--entry-class"):
        sl.job_types(empty, home)
    with pytest.raises(MissingFileError, match="--flink-home"):
        sl.job_types(empty, tmp_path, entry_class="Job")
    assert run("types", empty).code == 2
    assert run("types", tmp_path, "--flink-home", home).code == 2
