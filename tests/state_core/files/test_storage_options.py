"""What delta-rs is told of a remote file system, and what makes a directory again."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.storage_options import STORES, storage_options, with_storage_options

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


def test_a_path_is_spelled_in_its_location() -> None:
    """What means something in a URI is a part of the path here."""
    directory = Directory("s3://bucket/50%25%20of%20%231%3F/%2541?region=eu")
    assert directory.root == "bucket/50% of #1?/%41"
    assert Directory(directory.location).root == directory.root
    assert Directory(directory.child("a%62").location).root == f"{directory.root}/a%62"


def test_the_location_of_a_local_directory(tmp_path: Path) -> None:
    """Its path, however it was given."""
    for location in (str(tmp_path), tmp_path.as_uri()):
        assert Directory(location).child("a").location == f"{tmp_path}/a"


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
        ("s3://bucket/lake", {"AWS_COLOUR": "x"}, "'AWS_COLOUR' is not known"),
        ("s3://bucket/lake", {"AWS_ACCESS_KEY_ID": "x"}, "access key and secret together"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    location: str, options: dict[str, str], problem: str
) -> None:
    """Nothing that a user says is dropped in silence."""
    with pytest.raises(SnapshotError, match=problem):
        with_storage_options(location, options)


@pytest.mark.parametrize(
    "location",
    [
        "abfs://container@account.dfs.core.windows.net/lake",
        "abfss://account.dfs.core.windows.net/container/lake",
        "abfss://:a2V5@account.dfs.core.windows.net/container/lake",
    ],
)
def test_locations_of_azure(location: str) -> None:
    """Made again they are the same place; engines get the form that all of them know."""
    directory = Directory(location)
    again = Directory(directory.child("a").location)
    assert (directory.root, again.root) == ("container/lake", "container/lake/a")
    assert again.filesystem.equals(directory.filesystem)
    scheme = location.partition("://")[0]
    assert again.uri == f"{scheme}://container@account.dfs.core.windows.net/lake/a"
    assert storage_options(again) is None


def test_s3_by_the_schemes_of_hadoop() -> None:
    """`s3a://` is S3, with the same options."""
    directory = Directory(f"s3a://bucket/lake?{QUERY}")
    assert directory.filesystem.equals(Directory(f"s3://bucket/lake?{QUERY}").filesystem)
    assert directory.uri == "s3a://bucket/lake"


# ------------------------------------------------------------------------- the environment


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """AWS's files of a user who has none; where the first would be."""
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.mark.parametrize(
    ("variables", "query", "expected"),
    [
        ({"AWS_ENDPOINT_URL": "http://a:1"}, "", "endpoint_override=a:1&scheme=http"),
        ({"AWS_ENDPOINT_URL": "a:1"}, "", "endpoint_override=a:1"),
        (
            {"AWS_ENDPOINT_URL": "a:1", "AWS_ALLOW_HTTP": "true"}, "",
            "endpoint_override=a:1&scheme=http",
        ),
        (
            {"AWS_ENDPOINT_URL": "https://a", "AWS_ALLOW_HTTP": "true"}, "",
            "endpoint_override=a&scheme=https",
        ),
        (
            {"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_S3": "http://b/"}, "",
            "endpoint_override=b&scheme=http",
        ),
        ({"AWS_ENDPOINT": "http://a"}, "", "endpoint_override=a&scheme=http"),
        ({"AWS_ALLOW_HTTP": "true", "AWS_REGION": "x"}, "", "region=x"),
        ({"AWS_DEFAULT_REGION": "y"}, "", "region=y"),
        ({"AWS_DEFAULT_REGION": "y", "AWS_REGION": "x"}, "", "region=x"),
        ({"AWS_ENDPOINT_URL": "http://a"}, "endpoint_override=b:1", "endpoint_override=b:1"),
        ({"AWS_REGION": "x"}, "region=y", "region=y"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("config")
def test_the_environment_becomes_part_of_the_location(
    variables: dict[str, str], query: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client and each process is told the same; what is kept says what the user said."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    directory = Directory(f"s3://bucket/lake?{query}")
    assert directory.query == expected
    assert directory.given_location == f"s3://bucket/lake{query and '?'}{query}"
    for name in variables:
        monkeypatch.delenv(name)
    again = Directory(directory.location)
    assert again.filesystem.equals(directory.filesystem)
    assert storage_options(again) == storage_options(directory)


def test_a_profile_says_address_and_keys(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the section of its services, if it has one; its keys are in no location."""
    config.write_text(
        "[profile a]\nservices = b\nregion = eu\naws_access_key_id = K\n"
        "aws_secret_access_key = hidden\nendpoint_url = http://other\n"
        "[services b]\ndynamodb =\n  endpoint_url = http://third\n"
        "s3 =\n  addressing_style = path\n  endpoint_url = https://a:1\n",
        "utf-8",
    )
    monkeypatch.setenv("AWS_PROFILE", "a")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    directory = Directory("s3://bucket/lake")
    assert storage_options(directory) == {
        "AWS_ENDPOINT_URL": "https://a:1", "AWS_REGION": "eu",
        "AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "hidden",
    }  # fmt: skip
    assert "hidden" not in directory.location
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    assert "AWS_ACCESS_KEY_ID" not in (storage_options(Directory("s3://bucket/lake")) or {})


@pytest.mark.parametrize(
    ("location", "variable"),
    [
        ("gs://bucket/lake", "STORAGE_EMULATOR_HOST"),
        ("gs://bucket/lake", "GOOGLE_BASE_URL"),
        ("abfss://c@a.dfs.core.windows.net/lake", "AZURE_STORAGE_ENDPOINT"),
    ],
)
def test_an_address_that_not_every_client_knows(
    location: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused: rows would go to one store, and the tables' logs to another."""
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    with pytest.raises(SnapshotError, match=f"{variable}: it has an address"):
        Directory(location)


def test_an_address_that_only_arrow_is_told() -> None:
    """Refused for the log of a table."""
    directory = Directory("gs://anonymous@bucket/lake?endpoint_override=127.0.0.1:1&scheme=http")
    with pytest.raises(SnapshotError, match="can't be opened with the option 'endpoint_override'"):
        storage_options(directory)


@pytest.mark.usefixtures("config")
def test_an_address_that_is_to_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, as delta-rs would not ignore it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    with pytest.raises(SnapshotError, match="is to be ignored"):
        Directory("s3://bucket/lake")


# ------------------------------------------------------------------------- options by place


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Options of two places, of which one lies in the other, and AWS's files."""
    (tmp_path / "credentials").write_text(
        "[flink]\naws_access_key_id = FK\naws_secret_access_key = F/S\naws_session_token = F:T\n"
        "[role]\nrole_arn = arn:aws:iam::1:role/x\n",
        "utf-8",
    )
    (tmp_path / "config").write_text("[profile flink]\nregion = eu-west-1\n", "utf-8")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    file = tmp_path / "stores.toml"
    file.write_text(
        '["s3://flink"]\nAWS_PROFILE = "flink"\n'
        '["s3://flink/minio"]\nAWS_ENDPOINT_URL = "http://127.0.0.1:1"\n'
        'AWS_ACCESS_KEY_ID = "MK"\nAWS_SECRET_ACCESS_KEY = "MS"\nAWS_ALLOW_HTTP = "true"\n',
        "utf-8",
    )
    monkeypatch.setenv(STORES, str(file))
    return file


@pytest.mark.usefixtures("stores")
def test_options_by_place() -> None:
    """The longest place counts, whole names of it alone; another place has none."""
    flink = {
        "AWS_ACCESS_KEY_ID": "FK", "AWS_SECRET_ACCESS_KEY": "F/S", "AWS_SESSION_TOKEN": "F:T",
        "AWS_REGION": "eu-west-1",
    }  # fmt: skip
    minio = {
        "AWS_ACCESS_KEY_ID": "MK", "AWS_SECRET_ACCESS_KEY": "MS", "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }  # fmt: skip
    assert storage_options(Directory("s3://flink/savepoints/1")) == flink
    assert storage_options(Directory("s3a://flink/minio-2")) == flink
    assert storage_options(Directory("s3://flink/minio/lake")) == minio
    assert storage_options(Directory("s3://flink-2/lake?region=x")) == {"AWS_REGION": "x"}


@pytest.mark.usefixtures("stores")
def test_what_a_location_says_itself_counts() -> None:
    """Its own keys are not mixed with those of the file."""
    given = storage_options(Directory("s3://key:secret@flink/a?region=us-east-2"))
    assert given == {
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "location", "expected"),
    [
        (
            'AWS_ENDPOINT_URL = "https://127.0.0.1:1"', "s3://place/a?scheme=http",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true"},
        ),
        (
            'AWS_ACCESS_KEY_ID = "K"\nAWS_SECRET_ACCESS_KEY = "S"',
            "s3://place/a?anonymous=true&region=x",
            {"AWS_REGION": "x", "AWS_SKIP_SIGNATURE": "true"},
        ),
    ],
)  # fmt: skip
def test_what_a_location_says_of_scheme_and_identity_counts(
    stores: Path, text: str, location: str, expected: dict[str, str]
) -> None:
    """Whatever the file says."""
    stores.write_text(f'["s3://place"]\n{text}\n', "utf-8")
    assert storage_options(Directory(location)) == expected


def test_places_are_written_as_locations_are(stores: Path) -> None:
    """In any scheme of S3, and with escapes or without."""
    stores.write_text('["s3a://place/my lake"]\nAWS_REGION = "here"\n', "utf-8")
    for location in ("s3://place/my%20lake/a", "s3a://place/my lake"):
        assert storage_options(Directory(location)) == {"AWS_REGION": "here"}


def test_a_location_that_says_all_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing could be added to it."""
    monkeypatch.setenv(STORES, "/not/there.toml")
    assert Directory(f"s3://key:secret@bucket/a?{QUERY}").root == "bucket/a"


@pytest.mark.parametrize(
    "option",
    [
        pytest.param("role_arn=arn:aws:iam::1:role/x", marks=pytest.mark.full),  # it asks AWS
        "tls_ca_file_path=/ca.pem",
    ],
)
def test_options_that_the_log_of_a_table_can_not_be_opened_with(option: str) -> None:
    """Refused for lakes: their rows and their logs would be asked for by different identities."""
    directory = Directory(f"s3://bucket/lake?region=x&{option}")
    with pytest.raises(SnapshotError, match=option.partition("=")[0]):
        storage_options(directory)


def test_what_is_no_uri() -> None:
    """Said, without its keys."""
    with pytest.raises(SnapshotError, match="this is no URI") as error:
        Directory("s3://key:secret@[b/x")
    assert "secret" not in str(error.value)


def test_a_secret_with_a_slash_is_no_buckets_name() -> None:
    """Nobody is asked for it, and no message has it."""
    with pytest.raises(SnapshotError, match="write the slash as %2F") as error:
        Directory("s3://key:secret/more@bucket/lake")
    assert "secret/" not in str(error.value)
    assert "more" not in str(error.value)


@pytest.mark.usefixtures("stores")
def test_options_by_place_go_to_other_processes_and_into_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The location has them, as executors have no such file; what is shown has not."""
    directory = Directory("s3://flink/savepoints")
    assert "F%2FS" not in f"{directory!r} {directory.uri} {directory.given} {directory.full('a')}"
    location = directory.child("1").location
    monkeypatch.delenv(STORES)
    again = Directory(location)
    assert storage_options(again) == storage_options(directory)
    assert again.filesystem.equals(directory.filesystem)


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("query", ["", "?region=us-east-2"])
def test_the_location_of_a_result_has_nothing_of_the_file(query: str) -> None:
    """It says what its user said; opened again here, it gets the options once more."""
    exports = Directory(f"s3://flink/exports{query}").confined()
    location = exports.child("words").checked_location("1")
    assert location == f"s3://flink/exports/words/1{query}"
    again = Directory(location)
    assert again.filesystem.equals(exports.filesystem)
    assert again.location == exports.child("words/1").location


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "it is no TOML"),
        ('["gs://x"]\n', "'gs://x' must begin with s3://"),
        ('["s3://flink"]\nAWS_REGION = 1\n', "s3://flink: each option must be a quoted string"),
        ('["s3://flink"]\nAWS_COLOUR = "red"\n', "'AWS_COLOUR' is not known"),
        ('["s3://flink"]\nAWS_ACCESS_KEY_ID = "a"\n', "access key and secret together"),
        ('["s3://flink"]\nAWS_PROFILE = "role"\n', "the profile 'role' has no keys"),
        ('["s3://flink"]\nAWS_PROFILE = "none"\n', "the profile 'none' has no keys"),
    ],
)
def test_a_file_of_stores_that_can_not_be_used(stores: Path, text: str, problem: str) -> None:
    """Said with its name, and nothing of it is left out in silence."""
    stores.write_text(text, "utf-8")
    with pytest.raises(SnapshotError, match=problem) as error:
        Directory("s3://flink/a")
    assert "stores.toml" in str(error.value)


def test_a_file_of_stores_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said; other places do not ask for it."""
    monkeypatch.setenv(STORES, "/not/there.toml")
    with pytest.raises(SnapshotError, match=r"/not/there\.toml: it can.t be read"):
        Directory("s3://flink/a")
    monkeypatch.setenv(STORES, "~no-such-user-here/there.toml")
    with pytest.raises(SnapshotError, match=r"there\.toml: it can.t be read"):
        Directory("s3://flink/a")
    assert Directory("/tmp").local  # noqa: S108 - nothing is written
