"""Root causes out of stack traces, and paths of a cluster as paths of this machine."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.live.root_causes import LONGEST, root_cause
from statelake.state_core.errors import DeclarationError, MissingFileError, UnsafePathError
from statelake.state_core.files.filesystem import Directory

RESTORE = """Internal server error.
<Exception on server side:
org.apache.flink.client.program.ProgramInvocationException: The main method caused an error
\tat org.apache.flink.client.program.PackagedProgram.callMainMethod(PackagedProgram.java:372)
\t... 11 more
Caused by: java.lang.RuntimeException: Could not initialize
\tat a.B.lambda$c$0(B.java:1) ~[?:?]
Caused by: org.apache.flink.util.StateMigrationException: The new serializer
 must not be incompatible.
\tat a.B.c(B.java:1)
\tSuppressed: java.io.IOException: closed
\t\tat a.B.c(B.java:1)
\t... 3 more
End of exception on server side>"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            RESTORE,
            "StateMigrationException: The new serializer must not be incompatible.",
        ),
        ("a.b.C$D: what\n\tat a.b(C.java:1)", "C$D: what"),
        ("org.apache.flink.X\n\tat a.b(C.java:1)", "X"),
        ("Job not found", "Job not found"),
        ("", ""),
        ("\n\tat a.b(C.java:1)\n", ""),
        ("see file.txt for http://a.b.c/d", "see file.txt for http://a.b.c/d"),
    ],
)
def test_the_innermost_cause_is_one_sentence(text: str, cause: str) -> None:
    """Without packages, frames and what was suppressed."""
    assert root_cause(text) == cause


def test_a_cause_has_an_end() -> None:
    """However long the message is."""
    assert len(root_cause("x" * 10_000)) <= LONGEST + 3


@pytest.mark.parametrize(
    ("path", "here"),
    [
        ("s3://bucket/flink/savepoint-1", "/mnt/flink/savepoint-1"),
        ("s3://bucket/flink", "/mnt/flink"),
        ("s3://bucket/other/sp", "/mnt/bucket/other/sp"),
        ("s3://bucket-2/sp", "s3://bucket-2/sp"),
        ("file:/data/sp", "/local/sp"),
        ("file:///data/sp/", "/local/sp"),
        ("/data/sp", "/local/sp"),
        ("file:///other/sp", "/other/sp"),
        ("hdfs://nn/sp", "hdfs://nn/sp"),
    ],
)
def test_paths_are_mapped_by_the_longest_prefix(path: str, here: str) -> None:
    """Of whole names."""
    paths = PathMap.parse(
        ["s3://bucket=/mnt/bucket", "s3://bucket/flink=/mnt/flink/", "file:///data=/local"]
    )
    assert paths.here(path) == here


def test_paths_are_mapped_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what was written here, and is to be read there."""
    monkeypatch.chdir(tmp_path)
    for here in ("mounted", str(tmp_path / "mounted"), f"file://{tmp_path}/mounted/"):
        paths = PathMap({"s3://bucket/flink": here})
        for path in ("mounted/1", f"{tmp_path}/mounted/1"):
            assert paths.there(path) == "s3://bucket/flink/1"
        assert paths.there("/elsewhere/1") == "/elsewhere/1"


def test_credentials_of_this_machine_are_not_the_clusters() -> None:
    """Nor are the options by which an object store is reached from here."""
    there = PathMap({"s3a://bucket": "s3://bucket"}).there(
        "s3://key:s3cret@bucket/exports/1?region=eu-central-1&endpoint_override=proxy%3A8080"
    )
    assert there == "s3a://bucket/exports/1"


def test_a_store_here_keeps_its_options_behind_the_path() -> None:
    """Flink's names are as they are; in a URI they are spelled. Nobody is shown keys."""
    here = "s3://key:s3cret@bucket/flink?region=eu&endpoint_override=proxy:8080"
    paths = PathMap({"s3a://flink": here})
    path = paths.here("s3a://flink/sp-1/50% of #1?")
    assert path == here.replace("?", "/sp-1/50%25%20of%20%231%3F?", 1)
    assert Directory(path).root == "bucket/flink/sp-1/50% of #1?"
    assert paths.there(path) == "s3a://flink/sp-1/50% of #1?"
    assert "s3cret" not in repr(paths)


def test_no_path_leads_out_of_what_is_mapped() -> None:
    """A cluster is asked where its savepoint is, not for the files of this machine."""
    with pytest.raises(UnsafePathError):
        PathMap({"s3://a": "/mnt/a"}).here("s3://a/../../etc")


@pytest.mark.parametrize("pair", ["s3://a", "=/mnt", "s3://a="])
def test_what_maps_nothing_is_refused(pair: str) -> None:
    """With how it is written."""
    with pytest.raises(DeclarationError, match="CLUSTER=HERE"):
        PathMap.parse([pair])


@pytest.mark.parametrize("options", ["?endpoint_override=127.0.0.1:9&scheme=http", "#x", "?"])
def test_a_cluster_says_no_options_of_a_store(options: str) -> None:
    """They would say to which server this machine's keys go."""
    for paths in (PathMap(), PathMap({"s3://other": "s3://here"})):
        with pytest.raises(UnsafePathError, match=r"s3://bucket/sp.* has options"):
            paths.readable(f"s3://bucket/sp{options}")
    mapped = PathMap({"s3://bucket": "s3://here?region=x"}).here(f"s3://bucket/sp{options}")
    assert urlsplit(mapped).query == "region=x"


@pytest.mark.parametrize(
    "location",
    ["abfs://account@evil.example/files/sp", "ABFSS://files@account.evil.example/sp",
     "abfs://files@account.dfs.core.windows.net.evil/sp", "abfs://account.dfs.core.windows.net:1/files/sp",
     "abfs://files@evil.example%2f.dfs.core.windows.net/sp"],
)  # fmt: skip
def test_a_cluster_says_no_server_of_a_store(location: str) -> None:
    """A location of Azure's may name any server, which would be shown this machine's tokens."""
    with pytest.raises(UnsafePathError, match="names a server"):
        PathMap().readable(location)
    above = location.rpartition("/")[0]
    assert PathMap({above: "/mnt"}).here(location) == "/mnt/sp"
    plain = "abfss://files@account.dfs.core.windows.net/sp"
    assert PathMap().here(plain) == plain


def test_a_snapshot_that_can_not_be_read_names_both_paths(tmp_path: Path) -> None:
    """What the cluster wrote, where it was looked for, and how to map it."""
    paths = PathMap({"s3://bucket": str(tmp_path)})
    with pytest.raises(MissingFileError) as raised:
        paths.readable("s3://bucket/sp")
    said = str(raised.value)
    assert "the cluster wrote s3://bucket/sp" in said
    assert f"here {tmp_path}/sp" in said
    assert "--path-map 's3://bucket=/where/it/is/here'" in said
    with pytest.raises(MissingFileError, match=r"hdfs://nn/a, which can't be read"):
        PathMap().readable("hdfs://nn/a")
    (tmp_path / "sp").mkdir()
    (tmp_path / "sp" / "_metadata").touch()
    assert paths.readable("s3://bucket/sp") == f"{tmp_path}/sp"
