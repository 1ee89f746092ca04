"""Files that people write: whatever is in them, what comes out is an error of ours with a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake.pipelines.bootstrap.bootstrap_spec import read_bootstrap_spec
from statelake.pipelines.lake.change.changes import read_changes
from statelake.pipelines.lake.tables.names import check_names
from statelake.state_core.errors import LakeError, StateError
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.command import run
from tests.support.lakes import WORDS

BAD_TEXTS = [
    b"", b"\xff\xfe\0", b"\0", b"states: [", b"a: b: c", b"- 1", b"null", b"states:", b"states: 3",
    b"states: {1: {type: Long}}", b"states: {a/b: Long}", b"states: {a/b: {type: }}",
    b"states: {a/b: {type: Nope}}", b"states: {a/b: {type: [1]}}", b"states: {a/b: {type: {}}}",
    b"states: {a/b: {type: {1: 2, x: 3}}}", b"states: {a/b: {type: {pojo: 1}}}",
    b"states: {a/b: {type: {avro: {type: fixed, name: F, size: .inf}}}}",
    b"states: {a/b: {type: {avro: .nan}}}", b"states: {a/b: {type: {avro: 2001-01-01}}}",
    b"states: {a/b: {type: {enum: E, constants: 3}}}",
    b'states: {a/b: {type: {enum: E, constants: ["\\ud800"]}}}',
    b'states: {a/b: {type: {pojo: P, fields: {"\\ud800": Long}}}}',
    b"states: {a/b: {type: Long, expressions: [1]}}", b"states: {a/b: {type: 2001-99-99}}",
    b"states: " + b"[" * 5000, b"a: &a [*a]", b"? [1]\n: 2", b"!!python/object:os.system {}",
    b"states: {a/b: {type: {map: [Long]}}}", b"states: {a/b: {type: {list: []}}}",
]  # fmt: skip


def read_as_types(path: Path) -> None:
    """What `check compatibility --against` and `migrate --to` do with a file."""
    for change in read_changes(str(path)):
        change.value.restore_serializer()


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda text: repr(text)[:50])
@pytest.mark.parametrize("read", [read_as_types, read_bootstrap_spec])
def test_a_file_that_is_none(text: bytes, read: Callable[[Path], Any], tmp_path: Path) -> None:
    """What is wrong is said, in text that can be shown."""
    path = tmp_path / "types.yaml"
    path.write_bytes(text)
    with pytest.raises(StateError) as refused:
        read(path)
    assert refused.value.problem
    assert str(refused.value).encode()


parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    | st.sampled_from(["Long", "String", "List<Long>", "value", "a.csv"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                "states", "a/b", "type", "expressions", "pojo", "fields", "enum", "constants",
                "avro", "map", "list", "array", "row_data", "operators", "key", "value", "source",
            ]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=14,
)  # fmt: skip


def refusal_of(read: Callable[[Any], Any], argument: Any) -> StateError | None:
    """Return what is said against it; None if it is read."""
    try:
        read(argument)
    except StateError as error:
        return error
    return None


@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(parts)
def test_any_file_is_read_or_refused(tmp_path: Path, held: Any) -> None:
    """Nothing but an error of ours comes out of what people could have written."""
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(held))
    of_files = [refusal_of(read, path) for read in (read_as_types, read_bootstrap_spec)]
    for refused in filter(None, (refusal_of(parse_type, held), *of_files)):
        assert refused.problem
        assert str(refused).encode()
    assert all(str(path) in str(refused) for refused in of_files if refused is not None)


@pytest.mark.parametrize(("job", "snapshot"), [("\udcff", "a"), ("a", "b\ud800")])
def test_names_that_are_no_text(job: str, snapshot: str) -> None:
    """No catalog could hold them."""
    with pytest.raises(LakeError, match="is no text"):
        check_names(job, snapshot)


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "/tmp/sp\udcff"),  # noqa: S108 - it is not there
        ("import", WORDS, "--lake", "lake", "--job", "j\udcff"),
        ("import", WORDS, "--lake", "lake", "--job", "j", "--note", "\udcff"),
        ("dump", WORDS, "--uid", "\udcff"),
    ],
    ids=lambda words: words[-2],
)
def test_an_argument_that_is_no_text(words: tuple[object, ...]) -> None:
    """Bytes that are no UTF-8 are a mistake in the call, and are shown escaped."""
    ran = run(*words)
    assert ran.code == 2
    assert "\\udcff is no UTF-8" in ran.err
