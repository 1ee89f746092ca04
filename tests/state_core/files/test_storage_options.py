"""What delta-rs is told of a remote file system, and what makes a directory again."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_core.errors import SnapshotError
from state_core.files.filesystem import Directory
from state_core.files.storage_options import storage_options, with_storage_options

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


@pytest.mark.parametrize(
    ("location", "options", "expected"),
    [
        (
            "s3://bucket/lake",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "aws_region": "us-east-1"},
            "s3://bucket/lake?endpoint_override=127.0.0.1:1&region=us-east-1&scheme=http",
        ),
        (
            "s3://bucket/lake?region=us-east-1",
            {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "a/b"},
            "s3://key:a%2Fb@bucket/lake?region=us-east-1",
        ),
        ("/data/lake", {}, "/data/lake"),
    ],
)
def test_options_become_part_of_the_location(
    location: str, options: dict[str, str], expected: str
) -> None:
    """One text says all, and delta-rs gets back what was given."""
    whole = with_storage_options(location, options)
    assert whole == expected
    told = storage_options(Directory(whole)) or {}
    assert {name.upper(): value for name, value in options.items()}.items() <= told.items()


@pytest.mark.parametrize(
    ("location", "options", "problem"),
    [
        ("/data/lake", {"AWS_REGION": "x"}, "storage options are for s3:// locations"),
        ("s3://bucket/lake", {"AWS_SESSION_TOKEN": "x"}, "'AWS_SESSION_TOKEN' is not known"),
        ("s3://bucket/lake", {"AWS_ACCESS_KEY_ID": "x"}, "access key and secret together"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    location: str, options: dict[str, str], problem: str
) -> None:
    """Nothing that a user says is dropped in silence."""
    with pytest.raises(SnapshotError, match=problem):
        with_storage_options(location, options)
