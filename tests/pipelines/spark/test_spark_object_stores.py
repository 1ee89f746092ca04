"""What Hadoop's S3A is told of a bucket, for Spark's own readers."""

from __future__ import annotations

import pytest

from pipelines.spark.object_stores import s3a_settings
from state_core.files.filesystem import Directory

MINIO = "s3://key:sec%2Fret@states/lake?endpoint_override=minio:9000&scheme=http&region=eu"


def test_what_a_location_says_is_said_to_s3a() -> None:
    """Address, region and keys; another store than Amazon's is asked by path."""
    assert s3a_settings(Directory(MINIO)) == {
        "endpoint": "http://minio:9000",
        "endpoint.region": "eu",
        "access.key": "key",
        "secret.key": "sec/ret",
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
