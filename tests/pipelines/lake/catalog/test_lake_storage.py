"""What delta-rs is told of a remote file system, and what makes a directory again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.lake.tables.storage import storage_options
from state_core.errors import SnapshotError
from state_core.files.filesystem import Directory

QUERY = "endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"


def test_options_of_a_uri() -> None:
    """In delta-rs's spelling."""
    assert storage_options(Directory(f"s3://bucket/lake?{QUERY}")) == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def test_credentials_of_a_uri() -> None:
    """As they are without a URI's escapes."""
    given = storage_options(Directory("s3://key:a%2Fb@bucket/lake?region=us-east-1"))
    assert given == {
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "a/b",
    }


def test_without_any(tmp_path: Path) -> None:
    """The environment decides."""
    assert storage_options(Directory(tmp_path)) is None


def test_a_file_system_that_is_none() -> None:
    """Refused with its name, without what is secret in it."""
    for location in ("none://key:secret@bucket/lake", "s3://key:secret@bucket/lake?nonsense=1"):
        with pytest.raises(SnapshotError, match=r"://bucket/lake: the file system") as error:
            Directory(location)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "location", [f"s3://bucket/lake?{QUERY}", "s3://key:a%2Fb@bucket/lake?region=us-east-1"]
)
def test_a_directory_is_made_again_of_its_location(location: str) -> None:
    """Nothing that the URI said is lost, also of one below; what is shown has no secrets."""
    directory = Directory(location)
    assert directory.location == location
    below = Directory(directory.child("a/b").location)
    assert below.location == location.replace("lake", "lake/a/b")
    assert below.uri == "s3://bucket/lake/a/b"
    assert "key" not in repr(directory)
    assert storage_options(below) == storage_options(directory)
    assert below.filesystem.equals(directory.filesystem)


def test_the_location_of_a_local_directory(tmp_path: Path) -> None:
    """Its path, however it was given."""
    for one in (str(tmp_path), tmp_path.as_uri()):
        assert Directory(one).child("a").location == f"{tmp_path}/a"
