"""What Hadoop's S3A is told of a bucket, for Spark's own readers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelake.pipelines.spark import object_stores
from statelake.pipelines.spark.object_stores import s3a_settings, spark_path
from statelake.state_core.errors import StateError
from statelake.state_core.files.filesystem import Directory

pytestmark = pytest.mark.full

MINIO = "s3://key:sec%2Fret@states/lake?endpoint_override=minio:9000&scheme=http&region=eu"

SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"


class Session:
    """A session as Spark Connect has it: its settings alone.

    Args:
        settings: Those that it was told before.
    """

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = SimpleNamespace(getAll=settings, set=settings.__setitem__)


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that has opened no bucket, of a user without settings."""
    monkeypatch.setattr(object_stores, "_OPENED", {})
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))


def told(location: str, **before: str) -> dict[str, str]:
    """What a session is told of a bucket beside what it was told before."""
    session: Any = Session(**before)
    spark_path(session, Directory(location))
    return {name: value for name, value in session.settings.items() if name not in before}


def test_what_a_location_says_is_said_to_s3a() -> None:
    """Address, region and keys; another store than Amazon's is asked by path."""
    assert s3a_settings(Directory(MINIO)) == {
        "endpoint": "http://minio:9000",
        "endpoint.region": "eu",
        "access.key": "key",
        "secret.key": "sec/ret",
        "aws.credentials.provider": SIMPLE,
        "path.style.access": "true",
    }


def test_the_environment_says_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for keys, which Spark finds there itself; and nobody's keys are used where none are."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    told = {"endpoint": "https://store", "endpoint.region": "eu", "path.style.access": "true"}
    assert s3a_settings(Directory("s3://states/lake")) == told
    anonymous = s3a_settings(Directory("s3://states/lake?anonymous=true"))
    provider = anonymous.pop("aws.credentials.provider")
    assert provider.endswith("AnonymousAWSCredentialsProvider")
    assert anonymous == told


def test_keys_go_with_no_token_but_their_own() -> None:
    """A token of the environment's, which Spark takes for every bucket, is of other keys."""
    location = "s3://key:secret{}@states/lake?region=eu"
    assert s3a_settings(Directory(location.format("")))["aws.credentials.provider"] == SIMPLE
    temporary = s3a_settings(Directory(location.format(":token")))
    assert temporary["session.token"] == "token"
    assert temporary["aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")


def test_a_profile_says_what_variables_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hadoop does not read AWS's files; keys of variables and of the location go before."""
    Path(tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(
        "[flink]\naws_access_key_id = a\naws_secret_access_key = b\naws_session_token = c\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "flink")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://of-all")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://of-s3")
    keys = ("access.key", "secret.key", "session.token", "endpoint")
    settings = s3a_settings(Directory("s3://states/lake"))
    assert [settings[name] for name in keys] == ["a", "b", "c", "https://of-s3"]
    settings = s3a_settings(Directory("s3://x:y@states/lake"))
    assert [settings.get(name) for name in keys] == ["x", "y", None, "https://of-s3"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    assert "access.key" not in s3a_settings(Directory("s3://states/lake"))


def test_what_a_session_was_told_itself_wins() -> None:
    """One key of its own, and none of another place's goes with it."""
    of_all = {"spark.hadoop.fs.s3a.session.token": "its", "spark.hadoop.fs.s3a.endpoint": "there"}
    assert told(MINIO, **of_all) == {
        "fs.s3a.bucket.states.endpoint.region": "eu",
        "fs.s3a.bucket.states.path.style.access": "true",
    }


def test_a_bucket_is_opened_in_one_way() -> None:
    """Hadoop keeps the first: what comes with other keys is not opened as somebody else."""
    first = "s3://key:secret@my.states/{}?region=eu"
    assert told(first.format("lake"))["fs.s3a.bucket.my.states.access.key"] == "key"
    assert told(first.format("other"))["fs.s3a.bucket.my.states.secret.key"] == "secret"
    with pytest.raises(
        StateError, match=r"s3://my\.states: Spark has opened this bucket"
    ) as raised:
        told(first.replace("key:", "another:").format("lake"))
    assert "secret" not in str(raised.value)
    assert told(first.replace("key:", "another:").replace("my.", "").format("lake"))
