"""`--plugins`: code of a user's, from the command line to the last file."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from statelake import open_snapshot
from statelake.pipelines.cli.main import COMMANDS, main, statelake
from statelake.state_core.serializers.framework import plugins
from tests.support.lakes import entries
from tests.support.savepoints.kryo_savepoint import CAR_TYPE, kryo_savepoint

pytestmark = pytest.mark.usefixtures("own_registry")

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_types.py"
STATE = "kinds/name"
TYPE = '{"pojo": "com.acme.Auto", "fields": {"id": "long", "places": "List<Short>"}}'
SPEC = f"""
from statelake.state_core.serializers.framework.plugins import load_plugin

load_plugin({str(EXAMPLE)!r})
states = {{"{STATE}": {{"type": {TYPE}}}}}
"""


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint with values of Kryo's."""
    return kryo_savepoint(tmp_path_factory.mktemp("kryo") / "savepoint")


def run(*words: str | Path) -> int:
    """The command's exit code."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def imported(tmp_path: Path, savepoint: Path, *more: str | Path) -> tuple[str, ...]:
    """Options of a lake and job into which the savepoint was imported as `one`."""
    of = ("--lake", str(tmp_path / "lake"), "--job", "cars")
    assert run("import", savepoint, *of, "--snapshot", "one", "--engine", "local", *more) == 0
    return of


def spec_of(tmp_path: Path, text: str, suffix: str = ".py") -> Path:
    """A file for `--to`."""
    path = tmp_path / f"spec{suffix}"
    path.write_text(text)
    return path


@pytest.mark.parametrize("how", ["option", "environment"])
def test_import_and_export(
    savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Typed, told so, and back to the very bytes."""
    more: tuple[str | Path, ...] = ("--plugins", EXAMPLE)
    if how == "environment":
        monkeypatch.setenv(plugins.ENVIRONMENT, str(EXAMPLE))
        more = ()
    of = imported(tmp_path, savepoint, *more)
    assert "com.acme.Car as struct<id: int64" in " ".join(capsys.readouterr().out.split())
    out = tmp_path / "out"
    assert run("export", *of, "--snapshot", "one", "--to", out, "--engine", "local") == 0
    assert entries(out) == entries(savepoint)


@pytest.mark.parametrize("how", ["in the spec", "option"])
def test_migrate(savepoint: Path, tmp_path: Path, how: str) -> None:
    """Imported as bytes, and a POJO in the end: the decoder comes with the migration."""
    of = imported(tmp_path, savepoint)
    more: tuple[str | Path, ...] = ("--to", spec_of(tmp_path, SPEC))
    if how == "option":
        held = json.dumps({"states": {STATE: {"type": json.loads(TYPE)}}})
        more = ("--to", spec_of(tmp_path, held, ".json"), "--plugins", EXAMPLE)
    words = (*of, "--snapshot", "one", "--state", STATE, *more)
    assert run("migrate", *words, "--engine", "local") == 0
    out = tmp_path / "out"
    migrated = (*of, "--snapshot", "one-migrated", "--to", out, "--engine", "local")
    assert run("export", *migrated) == 0
    state = open_snapshot(out).operator("kinds").state("name")
    assert state.value_type == "com.acme.Auto"
    assert set(state.schema.field("value").type) == set(CAR_TYPE)


def test_migrate_without_a_decoder(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The preview says `unknown` and what would settle it; doing it is refused."""
    of = imported(tmp_path, savepoint)
    spec = spec_of(tmp_path, json.dumps({"states": {STATE: {"type": json.loads(TYPE)}}}), ".json")
    words = (*of, "--snapshot", "one", "--state", STATE, "--to", spec, "--engine", "local")
    capsys.readouterr()
    assert run("migrate", *words, "--dry-run", "--json") == 1
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["outcome"] == "unknown"
    assert "register_decoder" in outcome["why"]
    assert run("migrate", *words) == 1
    capsys.readouterr()
    assert run("migrate", *words, "--dry-run", "--json", "--plugins", EXAMPLE) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["outcome"] == "compatible_after_migration"


def test_check_knows_them(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A type of a user's in the file of a check; Flink itself would not restore Kryo's as it."""
    of = imported(tmp_path, savepoint)
    spec = spec_of(tmp_path, json.dumps({"states": {STATE: {"type": "Point"}}}), ".json")
    words = ("check", "compatibility", *of, "--snapshot", "one", "--against", spec, "--json")
    assert run(*words) == 3
    capsys.readouterr()
    assert run(*words, "--plugins", EXAMPLE) == 1
    states = json.loads(capsys.readouterr().out)["states"]
    (found,) = (state for state in states if state["state"] == "name")
    assert found["verdict"] == "incompatible"
    assert found["reasons"][0]["new"] == "Point"


@pytest.mark.parametrize("named", ["acme_not_there", "none.py"])
def test_a_plugin_that_is_not_there(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    """Bad input, in one line, and nothing was imported."""
    of = ("--lake", str(tmp_path / "lake"), "--job", "cars", "--plugins", named)
    assert run("import", savepoint, *of, "--engine", "local") == 3
    assert named in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


# what reads no value and no key, only counts of them, or bytes
WITHOUT = {
    "snapshots", "hold", "release", "retain", "drop", "lake", "demo", "checkpoints", "spark",
    "warm", "orphans", "copy",
}  # fmt: skip
WITHOUT_OF = {"flink": {"jobs", "checkpoints", "run", "cancel", "dispose"}, "audit": {"records"}}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT))
def test_every_command_that_reads_state_takes_them(name: str) -> None:
    """`--plugins` is an option of each, as the docs say."""
    command = statelake.get_command(click.Context(statelake), name)
    commands = command.commands if isinstance(command, click.Group) else {name: command}
    with_state = commands.keys() - WITHOUT_OF.get(name, set())
    assert with_state
    for each in with_state:
        found = commands[each]
        assert found is not None
        assert any("--plugins" in param.opts for param in found.params), each


def test_dump_and_inspect_type_values(savepoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is bytes without the plugin has fields with it."""
    words = (savepoint, "--operator", "kinds", "--state", "name", "--limit", "1")
    assert run("dump", *words) == 0
    bare = json.loads(capsys.readouterr().out)["value"]
    assert run("inspect", savepoint, "--schema", "--plugins", EXAMPLE) == 0
    assert "name.value.id: int64" in capsys.readouterr().out
    assert run("dump", *words, "--plugins", EXAMPLE) == 0
    typed = json.loads(capsys.readouterr().out)["value"]
    assert isinstance(bare, str)
    assert set(typed) == {field.name for field in CAR_TYPE}


def test_lake_commands_take_them(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lake that was imported typed is compared, edited and exported in a process without them."""
    of = imported(tmp_path, savepoint, "--plugins", EXAMPLE)
    words = [
        ("diff", *of, "one", "one"),
        ("edit", *of, "--parent", "one", "--snapshot", "two", "--expire", "kinds/session", "0s"),
        ("export", *of, "--snapshot", "one", "--to", str(tmp_path / "out")),
    ]
    for command in words:
        assert run(*command, "--plugins", EXAMPLE) == 0, capsys.readouterr().err
    assert entries(tmp_path / "out") == entries(savepoint)
