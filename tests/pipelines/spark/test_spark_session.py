"""The session: one, set up for Delta; and what it needs before it can start."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statelake.pipelines import java
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.spark import class_archive, jars
from statelake.pipelines.spark.session import open_session
from statelake.pipelines.spark.worker_daemon import preload
from statelake.state_core.errors import StateError
from tests.support.fake_java import fake_java
from tests.support.lakes import DEMO

pytestmark = pytest.mark.spark


class TestClassArchive:
    """Classes that are kept parsed, and what a JVM does about them."""

    def test_it_is_named_only_if_it_is_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A JVM is not told of a file that nobody made."""
        monkeypatch.setattr(class_archive, "cache_directory", lambda: tmp_path)
        assert class_archive.sharing_options() == ()
        class_archive.class_archive().touch()
        assert class_archive.sharing_options()[0].endswith(".jsa")

    def test_a_file_that_is_damaged_is_no_matter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The JVM starts without it, and says nothing."""
        monkeypatch.setattr(class_archive, "cache_directory", lambda: tmp_path)
        class_archive.class_archive().write_bytes(b"no classes")
        command = [jars.java_command(), *class_archive.sharing_options(), "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "openjdk" in done.stderr.lower() or "java" in done.stderr.lower()
        assert "archive" not in done.stdout + done.stderr


@pytest.mark.full
class TestSession:
    """Everything shares one session."""

    def test_it_is_opened_once(self, spark: SparkSession) -> None:
        """Whoever asks gets the active one, from another thread too."""
        assert open_session("another") is spark
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(open_session).result()
        assert elsewhere.sparkContext is spark.sparkContext

    def test_an_engine_takes_it(self, spark: SparkSession) -> None:
        """`--engine spark` starts no second one; `auto` needs none that is on this machine."""
        assert choose_engine("spark").session is spark  # type: ignore[attr-defined]
        assert choose_engine("auto").name == choose_engine("local").name == "local"

    def test_it_speaks_delta(self, spark: SparkSession, tmp_path: Path) -> None:
        """A table that it writes is a Delta table."""
        spark.range(3).write.format("delta").save(str(tmp_path / "numbers"))
        assert (tmp_path / "numbers" / "_delta_log").is_dir()
        found = spark.read.format("delta").load(str(tmp_path / "numbers"))
        assert sorted(row.id for row in found.collect()) == [0, 1, 2]

    def test_it_leaves_nothing_where_it_was_started(self, spark: SparkSession) -> None:
        """Spark's own directory for tables lies in the cache."""
        place = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:").lstrip("/")
        assert place == f"{jars.cache_directory().resolve()}/warehouse".lstrip("/")

    def test_workers_are_forked_with_everything_loaded(self, spark: SparkSession) -> None:
        """Kernels are compiled before a worker's first task, not in it."""

        def loaded(_: object) -> list[bool]:
            import gc  # noqa: PLC0415 - what the worker has, not what is here
            import sys  # noqa: PLC0415 - the same

            return [
                "statelake.pipelines.lake.ingest.import_slice" in sys.modules,
                "llvmlite" in sys.modules,
                # what PySpark's collection after each task need not look at
                gc.get_freeze_count() > 10_000,
            ]

        assert (
            spark.conf.get("spark.python.daemon.module")
            == "statelake.pipelines.spark.worker_daemon"
        )
        assert spark.sparkContext.parallelize([0], 1).map(loaded).collect() == [[True, True, True]]
        assert preload() > 10


@pytest.mark.full
def test_where_spark_shows_itself_is_known() -> None:
    """Before and behind it nothing is; `statelake.pipelines.orchestration` links to it."""
    program = """
from statelake.pipelines.engine import spark_ui
before = spark_ui()
from statelake.pipelines.spark.session import open_session
session = open_session(ui=True)
import urllib.request
print(urllib.request.urlopen(spark_ui()).status, repr(before))
session.stop()
print(repr(spark_ui()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["200", "''", "''"], done.stderr


class TestJava:
    """A missing or old Java is told in one clear sentence, before anything starts."""

    @pytest.fixture(autouse=True)
    def _nowhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        monkeypatch.delenv("JAVA_HOME", raising=False)

    def test_none(self) -> None:
        """No Java on the path, and no JAVA_HOME."""
        with pytest.raises(jars.JavaError) as failed:
            jars.require_java()
        assert str(failed.value) == (
            "no Java found, and Spark needs one;"
            " install Java 17 and put it on the PATH, or set JAVA_HOME"
        )

    @pytest.mark.parametrize(
        ("says", "found"),
        [('openjdk version "11.0.22" 2024', "11.0.22"), ('java version "1.8.0_401"', "1.8.0_401")],
    )
    def test_old(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, found: str
    ) -> None:
        """The version that was found, and the one that is needed."""
        home = fake_java(tmp_path / "jdk", f"echo '{says}' >&2")
        monkeypatch.setenv("JAVA_HOME", str(home))
        with pytest.raises(jars.JavaError, match=rf"^Java {re.escape(found)} at {home}.* needs 17"):
            jars.require_java()

    @pytest.mark.parametrize("says", ['openjdk version "17.0.9"', 'openjdk version "25" 2025'])
    def test_new_enough(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
        """17 and later are fine, wherever they come from."""
        home = fake_java(tmp_path / "jdk", f"echo '{says}' >&2")
        monkeypatch.setenv("PATH", str(home / "bin"))
        jars.require_java()
        assert jars.java_command() == str(home / "bin" / "java")

    def test_one_that_does_not_answer(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """It is not waited for without end, and what it started ends too."""
        home = fake_java(tmp_path / "jdk", "sleep 1000; true")
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setattr(java, "VERSION_SECONDS", 0.2)
        with pytest.raises(jars.JavaError, match=rf"^{home}.* has not ended in 0 s; put a Java"):
            jars.require_java()

    def test_home_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """JAVA_HOME wins over the path, as it does for Spark."""
        homes = [fake_java(tmp_path / name, "exit 0") for name in ("path", "home")]
        monkeypatch.setenv("PATH", str(homes[0] / "bin"))
        monkeypatch.setenv("JAVA_HOME", str(homes[1]))
        assert jars.java_command() == str(homes[1] / "bin" / "java")


class TestJars:
    """Delta's JARs are resolved once."""

    def test_they_are_read_from_the_cache(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """What is there is not asked for again."""
        home = fake_java(tmp_path / "jdk", "echo 'openjdk version \"17.0.1\"' >&2")
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(jars, "_retrieve", pytest.fail)
        folder = tmp_path / "cache" / "jars" / f"delta-{jars.DELTA_VERSION}"
        folder.mkdir(parents=True)
        for coordinates in jars.DELTA_JARS:
            (folder / f"{coordinates.split(':')[1]}-{jars.DELTA_VERSION}.jar").touch()
        assert sorted(map(os.path.basename, jars.delta_jars())) == [
            f"delta-spark_4.2_2.13-{jars.DELTA_VERSION}.jar",
            f"delta-storage-{jars.DELTA_VERSION}.jar",
        ]

    def test_a_registry_out_of_reach(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """One sentence with the package that is missing and what to do; nothing half-made."""
        home = fake_java(tmp_path / "jdk", "echo '  :: a#b;1: not found'; exit 1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(jars, "RETRY_SECONDS", (0.0, 0.0))
        with pytest.raises(StateError, match=r"^JARs can't be downloaded: a#b;1: not found; check"):
            jars.resolve_jars("ab", ["a:b:1"])
        assert [path.name for path in (tmp_path / "cache").iterdir()] in ([], ["ivy.lock"])

    def test_a_registry_that_stumbles_is_asked_again(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A download that fails once does not fail the whole."""
        script = (
            f"test -e {tmp_path}/asked || {{ touch {tmp_path}/asked; exit 1; }}\n"
            'while [ "$1" != "-retrieve" ]; do shift; done\n'
            'mkdir -p "$(dirname "$2")" && touch "$(dirname "$2")/b-1.jar"'
        )
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", script)))
        monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(jars, "RETRY_SECONDS", (0.0,))
        assert [path.name for path in jars.resolve_jars("ab", ["a:b:1"]).iterdir()] == ["b-1.jar"]

    def test_jars_that_are_not_known_are_not_kept(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Not even in Ivy's cache, out of which the next attempt would get them again."""
        script = (
            f"mkdir -p {tmp_path}/cache/ivy-alone/io.delta\n"
            'while [ "$1" != "-retrieve" ]; do shift; done\n'
            'mkdir -p "$(dirname "$2")" && echo x > "$(dirname "$2")/b-1.jar"'
        )
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", script)))
        monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
        of_jar = hashlib.sha256(b"x\n").hexdigest()
        known = hashlib.sha256(f"{of_jar}  b-1.jar\n".encode())
        with pytest.raises(StateError, match="not those that statelake was tested with"):
            jars.resolve_jars("ab", alone=["a:b:1"], digest="0" * 64)
        assert [path.name for path in (tmp_path / "cache").iterdir()] in ([], ["ivy.lock"])
        kept = jars.resolve_jars("ab", alone=["a:b:1"], digest=known.hexdigest())
        assert [path.name for path in kept.iterdir()] == ["b-1.jar"]

    def test_the_digest_is_that_of_deltas_jars(self) -> None:
        """As `sha256sum` prints it, of those that other tests run."""
        paths = map(Path, jars.delta_jars())
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in paths]
        listed = "".join(f"{line}\n" for line in lines)
        assert hashlib.sha256(listed.encode()).hexdigest() == jars.DELTA_DIGEST

    def test_processes_at_once_download_one_after_another(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Ivy's cache is damaged by two that write it: the second finds what the first got."""
        script = (
            f"mkdir {tmp_path}/alone || exit 1; sleep 0.3; rmdir {tmp_path}/alone\n"
            'while [ "$1" != "-retrieve" ]; do shift; done\n'
            'mkdir -p "$(dirname "$2")" && touch "$(dirname "$2")/b-1.jar"'
        )
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", script)))
        monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(jars, "RETRY_SECONDS", ())
        with ThreadPoolExecutor(4) as threads:
            names = ["one", "one", "two", "three"]
            found = list(threads.map(lambda name: jars.resolve_jars(name, ["a:b:1"]), names))
        assert [len(list(path.glob("*.jar"))) for path in found] == [1, 1, 1, 1]

    def test_the_cache_can_be_anywhere(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """STATELAKE_CACHE, then the user's cache directory."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("STATELAKE_CACHE", raising=False)
        assert jars.cache_directory() == tmp_path / "statelake"
        monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "mine"))
        assert jars.cache_directory() == tmp_path / "mine"


@pytest.mark.full
def test_workers_import_nothing_of_a_strangers_working_directory(tmp_path: Path) -> None:
    """Unless this process does: a command in somebody's checkout runs no code of theirs."""
    marker = tmp_path / "it-ran"
    for name in ("numpy", "pyarrow", "pyspark", "statelake"):
        text = f"open({str(marker)!r}, 'w').close()\n"
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    command = [
        Path(sys.executable).parent / "statelake",
        "import",
        DEMO / "monday",
        "--engine",
        "spark",
    ]
    ran = subprocess.run(
        [*command, "--lake", "lake", "--job", "j"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
    )  # fmt: skip
    if sys.version_info >= (3, 11):  # earlier ones have no PYTHONSAFEPATH
        assert (ran.returncode, marker.exists()) == (0, False), ran.stderr
