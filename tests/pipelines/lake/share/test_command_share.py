"""`statelake export --sample` and `--mask`: what they take, print and refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import KINDS, entries, import_golden

ROOT = Path(__file__).parents[4]
SECRET = "a secret of the tests"  # noqa: S105 - for nobody
MASK = """
secret: {file: SECRET}
keys: {kinds: format}
states:
  kinds/name: format
  kinds/session: drop
others: keep
"""


@pytest.fixture
def place(tmp_path: Path) -> tuple[object, ...]:
    """Where a snapshot is, and where its export is to be."""
    import_golden(Catalog(tmp_path / "lake"), ("s", KINDS))
    return ("--lake", tmp_path / "lake", "--job", "orders", "--snapshot", "s",
            "--to", tmp_path / "out")  # fmt: skip


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    """A mask, with its secret in a file."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", "utf-8")
    path = tmp_path / "mask.yaml"
    path.write_text(MASK.replace("SECRET", str(secret)), "utf-8")
    return path


def test_a_savepoint_without_a_lake(
    place: tuple[object, ...], mask: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same comes of it as of a lake that it is in, and nothing else stays anywhere."""
    more = ("--sample", "50%", "--seed", "3", "--mask", mask, "--parallelism", "2", "--json")
    assert run("export", *place, *more).code == 0
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    done = run("export", KINDS, "--to", tmp_path / "straight", *more)
    assert (done.code, done.err) == (0, "")
    assert done.json["left_out"] == ["the state kinds/session"]
    assert entries(tmp_path / "straight") == entries(tmp_path / "out")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert run("export", KINDS, "--to", tmp_path / "wide", "--max-parallelism", "256").code == 0
    assert open_snapshot(tmp_path / "wide").operator("kinds").max_parallelism == 256
    assert run("export", "--to", tmp_path / "no").code == 2
    assert run("export", *place[:4], "--to", tmp_path / "newest").code == 0
    assert run("export", tmp_path / "nowhere", "--to", tmp_path / "no").code == 3


def test_a_masked_sample(place: tuple[object, ...], mask: Path, tmp_path: Path) -> None:
    """In one step; what is left out is said."""
    done = run("export", *place, "--sample", "50%", "--seed", "3", "--mask", mask, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["left_out"] == ["the state kinds/session"]
    operator = open_snapshot(tmp_path / "out").operator("kinds")
    before = set(
        open_snapshot(KINDS).operator("kinds").state("total").to_arrow()["key"].to_pylist()
    )
    after = set(operator.state("total").to_arrow()["key"].to_pylist())
    assert 30 < len(after) < 90
    assert not before & after
    shown = run("export", *place[:-1], tmp_path / "again", "--mask", mask)
    assert "left out: the state kinds/session" in shown.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--sample", "0"], 2, "'0' is no share above 0%"),
        (["--sample", "101%"], 2, "'101%' is no share"),
        (["--sample", "half"], 2, "'half' is no share"),
        (["--leave-out-opaque"], 2, "--leave-out-opaque is for --sample and --mask"),
        (["--mask", "missing.yaml"], 3, "missing.yaml: it can't be read"),
    ],
)
def test_refused(place: tuple[object, ...], options: list[str], code: int, said: str) -> None:
    """What makes no sense, before anything is written."""
    ran = run("export", *place, *options)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "it is no YAML"),
        ("- a", "it holds no mapping"),
        ("stats: {}\nkey: {}", "'key', 'stats': not a section of a mask"),
        ("others: yes", "others: True is neither keep nor drop"),
        ("states: [a]", "states: not a mapping"),
        ("states: {kinds/name: format}", "secret: format and hash need one"),
        ("secret: abc\nstates: {kinds/name: format}", "secret: it is neither {env: NAME} nor"),
        ("secret: {env: NOT_THERE}", "the environment variable NOT_THERE has no secret of 16"),
        ("secret: {file: /not/there}", "secret: /not/there can't be read"),
        ("states: {kinds/name: scramble}", "'scramble' is not one of format, hash, null, keep"),
        ("states: {kinds/name: {value: drop}}", "a part can't be dropped"),
        ("states: {kinds/name: {vlue: null}}", "it must begin with one of value, user_key"),
        ("states: {kinds/name: {'value[0]': null}}", "it must begin with one of value, user_key"),
        ("keys: {kinds: null}", "masked keys must stay different"),
        ("keys: {kinds: {constant: 1}}", "1 is not one of format, hash, null, keep"),
    ],
)
def test_what_is_no_mask(place: tuple[object, ...], tmp_path: Path, text: str, said: str) -> None:
    """The file and the part of it are named."""
    path = tmp_path / "bad.yaml"
    path.write_text(text, "utf-8")
    ran = run("export", *place, "--mask", path)
    assert (ran.code, ran.out) == (3, "")
    assert str(path) in ran.err
    assert said in ran.err
    assert not (tmp_path / "out").exists()


def test_the_secret_is_in_no_error(place: tuple[object, ...], tmp_path: Path) -> None:
    """Not even one that is too short, or written into the file."""
    path = tmp_path / "bad.yaml"
    for secret in ("hunter2", "{file: hunter2, env: hunter2}"):
        path.write_text(f"secret: {secret}\nstates: {{kinds/name: format}}", "utf-8")
        assert "hunter2" not in run("export", *place, "--mask", path).err


def test_the_page_shows_the_example() -> None:
    """What it says of the demo is what lies beside it."""
    page = (ROOT / "docs" / "share.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    example = (ROOT / "examples" / "mask.yaml").read_text("utf-8")
    assert yaml.safe_load(block) == yaml.safe_load(example)
