"""Who is asked for state in S3: each client asks the store that the user's settings name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelake.pipelines.spark.object_stores import s3_jars
from tests.support.fake_store import FakeStore
from tests.support.lakes import WORDS

SHIM = Path(__file__).parents[2] / "support" / "only_loopback.c"
KEYS = {"AWS_ACCESS_KEY_ID": "OURKEY", "AWS_SECRET_ACCESS_KEY": "secret"}
KEYS_IN_FILE = "aws_access_key_id = OURKEY\naws_secret_access_key = secret\n"
COMMANDS = """
import json, sys
from statelake.pipelines.cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as left:
        if left.code:
            raise
"""


@pytest.fixture
def store() -> Iterator[FakeStore]:
    """A store with a savepoint."""
    with FakeStore() as made:
        for path in WORDS.iterdir():
            made.objects[f"flink/savepoint/{path.name}"] = path.read_bytes()
        yield made


def run_below(tmp_path: Path, environment: dict[str, str], *commands: list[str]) -> str:
    """Run commands in one process that reaches loopback alone; return what else it tried."""
    library, tried = tmp_path / "only_loopback.so", tmp_path / "tried"
    subprocess.run(
        ["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], check=True
    )
    kept = {name: os.environ[name] for name in ("PATH", "STATELAKE_CACHE") if name in os.environ}
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)], capture_output=True, text=True,
        check=False, timeout=300, cwd=Path(__file__).parents[3],
        env={**kept, "HOME": str(tmp_path), "LD_PRELOAD": str(library),
             "ONLY_LOOPBACK": str(tried), "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
             "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )  # fmt: skip
    told = tried.read_text("utf-8") if tried.exists() else ""
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}{told}"
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux")
@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({"AWS_ENDPOINT_URL": "http://{host}", "AWS_REGION": "eu-west-3", **KEYS}, ""),
        pytest.param(
            {"AWS_ENDPOINT_URL_S3": "http://{host}/", "AWS_ENDPOINT_URL": "https://other.test",
             "AWS_DEFAULT_REGION": "eu-west-3", **KEYS}, "", marks=pytest.mark.full,
        ),
        pytest.param(
            {"AWS_ENDPOINT": "{host}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-west-3", **KEYS},
            "", marks=pytest.mark.full,
        ),
        (
            {"AWS_PROFILE": "flink"},
            "[default]\nregion = us-west-1\n[profile flink]\nregion = eu-west-3\n"
            "endpoint_url = http://{host}\n" + KEYS_IN_FILE,
        ),
        pytest.param(
            {},
            "[default]\nservices = mine\nregion = eu-west-3\nendpoint_url = https://other.test\n"
            + KEYS_IN_FILE + "[services mine]\ns3 =\n  endpoint_url = http://{host}\n",
            marks=pytest.mark.full,
        ),
    ],
    ids=["variable", "variable-of-s3", "variable-of-delta", "profile", "services"],
)  # fmt: skip
def test_no_store_is_asked_but_the_one_that_is_named(
    environment: dict[str, str], config: str, store: FakeStore, tmp_path: Path
) -> None:
    """By variables and AWS's files alone: Arrow, delta-rs and obstore, with its keys and region."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(config.format(host=store.host), "utf-8")
    job = ["--lake", "s3://lakes/words", "--job", "words"]
    local = ["--engine", "local"]
    tried = run_below(
        tmp_path, {name: value.format(host=store.host) for name, value in environment.items()},
        ["import", "s3://flink/savepoint", *job, "--snapshot", "one", *local],
        ["sql", *job, "SELECT count(*) FROM counter.count"],
        ["export", *job, "--snapshot", "one", "--to", "s3://flink/back", *local],
        ["drop", *job, "--snapshot", "one", "--yes"],
    )  # fmt: skip
    assert tried == ""
    assert {asked.host for asked in store.asked} == {store.host}
    assert {asked.signed_by for asked in store.asked} == {("OURKEY", "eu-west-3")}
    assert {asked.agent.partition("/")[0] for asked in store.asked} >= {"aws-sdk-cpp"}
    written = [asked.path for asked in store.asked if asked.method == "PUT"]
    assert any("/_delta_log/" in path for path in written)
    assert any(path.endswith(".parquet") for path in written)
    assert "flink/back/_metadata" in store.objects


@pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux")
@pytest.mark.nightly
def test_spark_asks_the_same_store(store: FakeStore, tmp_path: Path) -> None:
    """By Hadoop's S3A, in a JVM."""
    s3_jars()
    job = ["--lake", "s3://lakes/words", "--job", "words"]
    tried = run_below(
        tmp_path, {"AWS_ENDPOINT_URL": f"http://{store.host}", "AWS_REGION": "eu-west-3", **KEYS},
        ["import", "s3://flink/savepoint", *job, "--snapshot", "one", "--engine", "local"],
        ["sql", *job, "--engine", "spark", "SELECT count(*) FROM counter.count"],
    )  # fmt: skip
    assert tried == ""
    assert any("hadoop" in asked.agent.lower() for asked in store.asked)
    assert {asked.signed_by for asked in store.asked} == {("OURKEY", "eu-west-3")}
