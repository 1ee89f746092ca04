"""`--kryo`, and `upgrade`: a savepoint of Flink 1.20, typed and for Flink 2."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
import yaml

import statelake as sl
from statelake import open_snapshot
from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change import kryo_upgrading, migrations
from statelake.pipelines.lake.change.migrating import value_type
from statelake.pipelines.lake.change.migrations import values_as_bytes
from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    NotFoundError,
    UnsupportedFormatError,
)
from statelake.state_core.formats.layout.keyed_layout import NAMESPACE
from statelake.state_core.formats.layout.keyed_states import key_parts
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.model.handles import ChannelHandle, InlineHandle, MergedChannelPart
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.serializers import Decoder, register_decoder
from statelake.state_core.serializers.avro.serializer import AvroSerializerSnapshot
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.optionals import NullableSerializerSnapshot
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import is_undecoded, undecoded
from statelake.state_core.serializers.framework.plugins import loaded_plugins
from statelake.state_core.serializers.framework.registry import registered_classes
from statelake.state_core.serializers.kryo import decoding
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.command import run as run_apart
from tests.support.lakes import entries
from tests.support.savepoints.avro_beside_kryo import (
    AVRO_STATES,
    avro_savepoint,
    order,
    other_schemas,
    protobuf_savepoint,
)
from tests.support.savepoints.evolving_savepoints import evolving_savepoint
from tests.support.savepoints.golden_cases import GOLDEN, golden_cases
from tests.support.savepoints.kryo_jobs import BASKET, jdk_savepoint, kryo_lines
from tests.support.savepoints.kryo_meaning import states_that_differ
from tests.support.savepoints.kryo_savepoint import kryo_snapshot, with_serializers
from tests.support.savepoints.snapshot_damage import cut_or_moved, some_damage
from tests.support.steps import do_at

pytestmark = pytest.mark.usefixtures("own_registry")

KRYO = {"basket", "mixed", "ids", "moments", "tier", "point", "path", "seen"}


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """Flink 1.20's."""
    return jdk_savepoint(tmp_path / "savepoint")


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """The job's classes, as a user declares them."""
    path = tmp_path / "classes.yaml"
    path.write_text(BASKET)
    return path


def run(*words: str | Path) -> int:
    """The command's exit code."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def operator_of(savepoint: Path) -> Operator:
    """The one with Kryo's values."""
    return next(
        operator for operator in open_snapshot(savepoint).operators
        if any(state.name == "basket" for state in operator.keyed_states)
    )  # fmt: skip


def rows_of(savepoint: Path, state: str) -> dict[int, Any]:
    """The values of each key."""
    table = operator_of(savepoint).state(state).to_arrow()
    return dict(
        zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)
    )


def test_values_are_typed(savepoint: Path, classes: Path) -> None:
    """Objects by their fields, collections, enums and dates: what Flink itself prints of them."""
    assert run("inspect", savepoint, "--kryo", classes) == 0
    lines = {line["key"]: line for line in kryo_lines()}
    baskets = rows_of(savepoint, "basket")
    assert len(baskets) == 40
    for key, basket in baskets.items():
        said = lines[key]["basket"]
        start = f"{basket['id']} {basket['owner']} {basket['tier']} [{', '.join(basket['items'])}]"
        assert said.startswith(start)
        prices = ", ".join(f"{name}={price}" for name, price in sorted(basket["prices"]))
        assert f"{{{prices}}}" in said
        counts = ", ".join(map(str, basket["counts"]))
        assert f"{int(basket['since'].timestamp() * 1000)}[{counts}]" in said
    assert rows_of(savepoint, "tier") == {key: line["tier"] for key, line in lines.items()}
    points = rows_of(savepoint, "point")
    assert {key: f"{point['x']}/{point['y']}" for key, point in points.items()} == {
        key: line["point"] for key, line in lines.items()
    }
    ids = rows_of(savepoint, "ids")
    assert ids == {key: line["ids"] for key, line in lines.items() if line["ids"]}


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=(pytest.mark.spark, pytest.mark.full))]
)
def test_for_flink_2(
    engine: str,
    savepoint: Path,
    classes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every state is rewritten, says the same, and goes out as Flink 2 reads it."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    known = ("--kryo", classes)
    assert run("import", savepoint, *of, "--snapshot", "one", "--engine", engine, *known) == 0
    words = ("upgrade", *of, "--snapshot", "one", "--engine", engine, *known)
    capsys.readouterr()
    assert run(*words, "--dry-run", "--json") == 1
    (plan,) = json.loads(capsys.readouterr().out)
    assert {state["state"] for state in plan["states"]} == KRYO
    assert {state["outcome"] for state in plan["states"]} == {"for Flink 2"}
    assert run(*words, "--suffix", "-2") == 0
    assert "8 states that Flink 2 can't restore, now one-2" in capsys.readouterr().out
    out = tmp_path / "out"
    assert run("export", *of, "--snapshot", "one-2", "--to", out, "--engine", engine, *known) == 0
    for state in ("basket", "mixed", "ids", "moments", "tier", "point", "path", "count"):
        assert rows_of(out, state) == rows_of(savepoint, state)
    assert b"flink 2" in operator_of(out).state("tier").meta_info
    # what is edited is written for Flink 2, whatever the file says of what was read
    again = ("upgrade", *of, "--snapshot", "one-2", *known, "--json")
    capsys.readouterr()
    assert run(*again) == 0
    (again_made,) = json.loads(capsys.readouterr().out)
    assert {state["left"] for state in again_made["states"]} == {"Flink 2 wrote it"}


def test_without_a_file(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Classes of the JDK are known; what nobody declared is carried as it is, and named."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    assert run("import", savepoint, *of, "--snapshot", "one", "--engine", "local") == 0
    words = ("upgrade", *of, "--snapshot", "one", "--json")
    capsys.readouterr()
    assert run(*words, "--dry-run") == 1
    (plan,) = json.loads(capsys.readouterr().out)
    left = {state["state"]: state["left"] for state in plan["states"]}
    assert set(left) == KRYO
    assert {name for name, reason in left.items() if not reason} == {"ids", "mixed", "moments"}
    for state in ("basket", "seen", "path", "point", "tier"):
        assert "whose form is not known; declare the class in a file for --kryo" in left[state]
    out = tmp_path / "out"
    assert run("export", *of, "--snapshot", "one", "--to", out, "--engine", "local") == 0
    assert entries(out) == entries(savepoint)


def test_other_processes_get_the_classes(classes: Path, savepoint: Path) -> None:
    """They go along as a plugin, whose text says them."""
    assert run("inspect", savepoint, "--kryo", classes) == 0
    (plugin,) = loaded_plugins()
    assert plugin.path == str(classes)
    assert b"KryoJobs$Basket" in plugin.text


def test_another_declaration_than_at_the_import(
    savepoint: Path, classes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would write other values, or the texts of values as their bytes."""
    of = ("--lake", tmp_path / "lake", "--job", "shop", "--snapshot", "one")
    assert run("import", savepoint, *of, "--engine", "local", "--kryo", classes) == 0
    out = tmp_path / "out"
    words = ("export", *of, "--to", out, "--engine", "local")
    other = tmp_path / "other.yaml"
    other.write_text(BASKET.replace("[GOLD, SILVER]", "[SILVER, GOLD]"))
    newer = tmp_path / "newer.yaml"
    newer.write_text(BASKET.replace("flink: 1", "flink: 2"))
    for given in ((), ("--kryo", other), ("--kryo", newer)):
        capsys.readouterr()
        assert run(*words, *given) == 3
        said = " ".join(capsys.readouterr().err.split())
        assert "/basket: its values are KryoJobs$Basket as" in said
        assert "the same file for --kryo as then" in said
        assert not out.exists()
    again = ("import", savepoint, *of[:-1], "two", "--engine", "local", "--kryo", other)
    assert run(*again) == 0
    two = ("export", *of[:-1], "two", "--to", out, "--engine", "local", "--kryo", other)
    assert run(*two) == 0
    assert entries(out) == entries(savepoint)


def test_a_declaration_ends_with_its_command(savepoint: Path, tmp_path: Path) -> None:
    """What one command was told no other knows, in one process."""
    file, newer = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text("flink: 1\n")
    newer.write_text("flink: 2\n")
    for given, version in (((file,), 1), ((), None), ((newer,), 2), ((file,), 1)):
        words = [word for path in given for word in ("--kryo", path)]
        assert run("inspect", savepoint, *words) in (0, 3)
        assert decoding._declared.version == version
    assert run("inspect", savepoint, "--kryo", file, "--kryo", newer) == 3


def test_mistakes(
    classes: Path, savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is named, and both ways of migrating at once are none."""
    classes.write_text(BASKET.replace("flink: 1", "flink: 9"))
    assert run("inspect", savepoint, "--kryo", classes) == 3
    assert "classes.yaml: flink: 9 is neither 1 nor 2" in capsys.readouterr().err
    of = ("--lake", tmp_path / "lake", "--job", "shop", "--all")
    assert run("upgrade", *of, "--snapshot", "one") == 2
    assert run("upgrade", savepoint, "--to", "x", "--dry-run") == 2
    assert run("upgrade", savepoint, "--to-flink", "1.20") == 3
    assert run("upgrade", savepoint, "--collection", "basket") == 3
    assert run("upgrade", savepoint, "--collection", "b/x.y=List<String>") == 3
    assert run("migrate", *of) == 2
    assert run("migrate", *of, "--state", "a/b") == 2


def test_the_file_of_the_docs(tmp_path: Path, savepoint: Path) -> None:
    """What `docs/types.md` shows is understood."""
    text = (Path(__file__).parents[4] / "docs" / "types.md").read_text("utf-8")
    (shown,) = (part for part in text.split("```") if part.startswith("yaml\nflink:"))
    path = tmp_path / "classes.yaml"
    path.write_text(shown.removeprefix("yaml\n"))
    assert run("inspect", savepoint, "--kryo", path) == 0


def test_records_in_flight_are_named(
    savepoint: Path, classes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stay as Flink 1 wrote them, and may be Kryo's: the answer is no."""
    file = savepoint / "_metadata"
    metadata = read_metadata(file.read_bytes())
    uid = operator_of(savepoint).operator_id
    operator = next(each for each in metadata.operators if each.operator_id == uid)
    assert operator.subtasks is not None
    buffer = InlineHandle("buffers", bytes(8))
    part = MergedChannelPart(0, 0, 4, (4,))
    operator.subtasks[0].inputs = (ChannelHandle(1, 0, (part,), 4, buffer),)
    file.write_bytes(write_metadata(metadata))
    lake = ("--lake", tmp_path / "lake", "--job", "shop", "--snapshot", "s", "--kryo", classes)
    assert run("import", savepoint, *lake, "--engine", "local") == 0
    capsys.readouterr()
    assert run("upgrade", *lake, "--dry-run", "--json") == 1
    (done,) = json.loads(capsys.readouterr().out)
    (found,) = [each for each in done["states"] if each["state"] == "records in flight"]
    assert found["outcome"] == "as it was"
    assert "--drop-channel-state" in found["left"]


@pytest.mark.full
def test_collections_are_declared_or_found_or_like_those_of_the_new_job(tmp_path: Path) -> None:
    """Within POJOs; what a snapshot of the new job has wins, and Flink 2's own bytes are read."""
    savepoint = jdk_savepoint(tmp_path / "pojos", "pojos-1.20")
    found = {"scores": "Map<String, Integer>", "seen": "Set<Long>", "tags": "List<String>"}
    told = {"scores": "Map<String, Integer>", "seen": "Set", "tags": "List<Object>"}
    words = ("customers/customer.tags=List<Object>", "customers/customer.seen=Set")
    for given, expected in (((), found), (words, told)):
        planned = sl.upgrade(savepoint, collection=given, uids=["customers"])
        (customer,) = (each for each in planned.states if each.state == "customer")
        assert customer.types == expected
        assert not planned.made
        assert not planned.restorable
    made = sl.upgrade(savepoint, tmp_path / "new", uids=["customers"], partly=True)
    assert made.made == str(tmp_path / "new")
    state = sl.open_snapshot(made.made, uids=["customers"])["customers"]["customer"]
    before = sl.open_snapshot(savepoint, uids=["customers"])["customers"]["customer"]
    assert pa.types.is_list(state.schema.field("value").type.field("tags").type)
    for old, new in zip(before.to_arrow().to_pylist(), state.to_arrow().to_pylist(), strict=True):
        assert new["value"]["token"] == old["value"]["token"]
        tags = json.loads(old["value"]["tags"])
        assert new["value"]["tags"] == (tags["value"] if isinstance(tags, dict) else tags)
        assert dict(new["value"]["scores"]) == json.loads(old["value"]["scores"])
    like = sl.upgrade(savepoint, collection=words, like=made.made, uids=["customers"])
    (customer,) = (each for each in like.states if each.state == "customer")
    assert customer.types == {"scores": "as in the new job"} | {
        name: told[name] for name in ("seen", "tags")
    }
    assert {each.left for each in sl.upgrade(made.made, uids=["customers"]).states} == {
        "Flink 2 wrote it", *(each.left for each in made.states if each.left)
    }  # fmt: skip


def test_a_collection_that_is_not_there(tmp_path: Path) -> None:
    """Names those that are; a type of another class is refused with its state."""
    savepoint = jdk_savepoint(tmp_path / "pojos", "pojos-1.20")
    with pytest.raises(NotFoundError, match=r"no collection by Kryo is at customers/customer\.id"):
        sl.upgrade(savepoint, collection="customers/customer.id=List<String>", uids=["customers"])
    planned = sl.upgrade(
        savepoint, collection="customers/customer.tags=Set<String>", uids=["customers"]
    )
    (customer,) = (each for each in planned.states if each.state == "customer")
    assert customer.left == "Set<String> is no java.util.List"
    planned = sl.upgrade(
        savepoint, collection="customers/customer.tags=List<com.acme.Tag>", uids=["customers"]
    )
    (customer,) = (each for each in planned.states if each.state == "customer")
    assert "com.acme.Tag, which Flink 2 may take for a POJO; name a savepoint" in customer.left


@pytest.mark.full
def test_an_upgrade_of_all_snapshots_of_a_job(
    savepoint: Path, classes: Path, tmp_path: Path
) -> None:
    """Those that were not upgraded yet; a second call finds nothing."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    for name in ("one", "two"):
        assert run("import", savepoint, *of, "--snapshot", name, "--engine", "local",
                   "--kryo", classes) == 0  # fmt: skip
    assert run("upgrade", *of, "--all", "--kryo", classes) == 0
    names = [each.snapshot_id for each in sl.Lake(tmp_path / "lake").snapshots("shop")]
    assert names == ["one", "two", "one-flink-2", "two-flink-2"]
    assert run("upgrade", *of, "--all", "--kryo", classes) == 0
    assert len(sl.Lake(tmp_path / "lake").snapshots("shop")) == 4


@pytest.mark.full
def test_a_snapshot_that_cannot_be_upgraded_keeps_no_other_from_it(
    savepoint: Path, classes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all: the others are made and said, then comes the error; again it makes no more."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    for name in ("one", "one-flink-2", "two"):  # the second one is imported, as beside the command
        assert run("import", savepoint, *of, "--snapshot", name, "--engine", "local",
                   "--kryo", classes) == 0  # fmt: skip
    made = ["one", "one-flink-2", "two", "one-flink-2-flink-2", "two-flink-2"]
    for _ in range(2):
        capsys.readouterr()
        assert run("upgrade", *of, "--all", "--kryo", classes, "--json") == 3
        told = capsys.readouterr()
        assert [each["made"] for each in json.loads(told.out)] == made[3:]
        assert "has a snapshot 'one-flink-2' already" in told.err
        names = [each.snapshot_id for each in sl.Lake(tmp_path / "lake").snapshots("shop")]
        assert names == made


@pytest.mark.parametrize("command", ["upgrade", "migrate"])
@pytest.mark.full
def test_a_snapshot_that_another_drops_meanwhile_is_none_of_all(
    savepoint: Path, classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It ends as if it had begun after the drop."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    for name in ("one", "two"):
        assert run("import", savepoint, *of, "--snapshot", name, "--engine", "local",
                   "--kryo", classes) == 0  # fmt: skip
    listed = migrations.not_migrated

    def dropped_then(lake: Catalog, job: str, suffix: str) -> list[str]:
        names = listed(lake, job, suffix)
        assert run("drop", *of, "--snapshot", "one", "--yes") == 0
        return names

    monkeypatch.setattr(migrations, "not_migrated", dropped_then)
    record = sl.Lake(tmp_path / "lake").job("shop")["two"].record
    operator = next(each for each in record.operators if each.states)
    ttl = ("--ttl", f"{operator.label}/{operator.states[0].name}=on")
    words = ttl if command == "migrate" else ()
    assert run(command, *of, "--all", "--kryo", classes, *words) == 0
    names = [each.snapshot_id for each in sl.Lake(tmp_path / "lake").snapshots("shop")]
    assert names == ["two", "two-flink-2" if command == "upgrade" else "two-migrated"]


@pytest.mark.parametrize("every", [True, False])
def test_what_was_upgraded_in_part_is_not_whole_the_second_time(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], every: bool
) -> None:
    """The states that were left are said again, and the exit code is that of the first time."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    assert run("import", savepoint, *of, "--snapshot", "one", "--engine", "local") == 0
    left = []
    for _ in range(2):
        capsys.readouterr()
        which = ("--all",) if every else ("--snapshot", "one")
        assert run("upgrade", *of, *which, "--partly", "--json") == 1
        (told,) = json.loads(capsys.readouterr().out)
        assert told["made"] == "one-flink-2"
        left.append([each["state"] for each in told["states"] if each["outcome"] == "as it was"])
    assert left[0] == left[1] != []


@pytest.mark.parametrize("command", ["upgrade", "migrate"])
@pytest.mark.full
def test_a_snapshot_that_another_makes_meanwhile_was_made_before(
    savepoint: Path,
    classes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    """Two commands over all at once: each snapshot is made once, and both have done it."""
    of = ("--lake", tmp_path / "lake", "--job", "shop")
    for name in ("one", "two"):
        assert run("import", savepoint, *of, "--snapshot", name, "--engine", "local",
                   "--kryo", classes) == 0  # fmt: skip
    record = sl.Lake(tmp_path / "lake").job("shop")["one"].record
    operator = next(each for each in record.operators if each.states)
    ttl = ("--ttl", f"{operator.label}/{operator.states[0].name}=on")
    words = (command, *of, "--all", "--kryo", classes, *(ttl if command == "migrate" else ()))
    do_at(monkeypatch, (Attempt, "commit", "before", 1), lambda: run_apart(*words))
    done = run_apart(*words, "--json")
    assert done.code == 0, done.err
    ending = "flink-2" if command == "upgrade" else "migrated"
    assert [each["made"] for each in done.json] == [f"one-{ending}", f"two-{ending}"]
    if command == "migrate":
        assert {each["outcome"] for each in done.json} == {"migrated before"}
    names = [each.snapshot_id for each in sl.Lake(tmp_path / "lake").snapshots("shop")]
    assert names == ["one", "two", f"one-{ending}", f"two-{ending}"]


def test_a_damaged_value_is_named(tmp_path: Path) -> None:
    """Its state and its offset; nothing is written."""
    savepoint = jdk_savepoint(tmp_path / "pojos", "pojos-1.20")
    metadata = savepoint / "_metadata"
    data = metadata.read_bytes()
    assert data.count(b"tag \xb0") > 3  # the last character of a text has another bit
    damaged = data.replace(b"tag \xb0", b"tag 0", 1)
    metadata.write_bytes(damaged)
    with pytest.raises(CorruptSnapshotError, match=r"state 'customer', .*key group 1, offset"):
        sl.upgrade(savepoint, tmp_path / "new", uids=["customers"])
    assert not (tmp_path / "new").exists()


def test_a_savepoint_of_flink_1_is_like_no_new_job(tmp_path: Path) -> None:
    """It has the old types."""
    savepoint = jdk_savepoint(tmp_path / "pojos", "pojos-1.20")
    with pytest.raises(EncodeError, match="it is of Flink 1, and has the old types"):
        sl.upgrade(savepoint, like=savepoint)


def test_types_that_flink_2_does_not_have(tmp_path: Path) -> None:
    """Those of the Scala API are named, and a savepoint without Kryo may have them."""
    scala = "org.apache.flink.api.scala.typeutils.ScalaCaseClassSerializerSnapshot"
    total = registered_classes()[scala]()
    total.text, total.nested = "com.acme.Total", (parse_type("Long"),)  # type: ignore[attr-defined]
    rows = pa.table({"key": [1], "value": pa.array([5], pa.int64())})
    values = pa.table({"key": [1], "value": [{"f0": 5}]})
    state = sl.NewKeyedState("total", values, value=total)
    sl.write_snapshot(tmp_path / "sp", [sl.NewOperator("o", "Long", (state,), parallelism=1)])
    (planned,) = sl.upgrade(tmp_path / "sp", uids=["o"]).states
    assert planned.state == "total"
    assert "a type of Flink's Scala API, which Flink 2 does not have" in planned.left
    plain = sl.NewKeyedState("plain", rows, value="Long")
    sl.write_snapshot(tmp_path / "other", [sl.NewOperator("o", "Long", (plain,), parallelism=1)])
    assert sl.upgrade(tmp_path / "other").restorable


def broadcast(to: Path, key: Any, value: Any, keys: list[Any], values: list[Any]) -> Path:
    """A savepoint with a broadcast state."""
    with undecoded():
        state = sl.NewOperatorState(
            "rules", pa.table({"key": keys, "value": values}), "broadcast", value, key
        )
        operator = sl.NewOperator("o", "Long", operator_states=(state,), parallelism=2)
    sl.write_snapshot(to, [operator])
    return to


def test_keys_and_values_of_a_broadcast_state_are_upgraded(tmp_path: Path) -> None:
    """Both by Kryo, whose ends Kryo alone knows; a copy has one behind the other."""
    held = operator_of(jdk_savepoint(tmp_path / "jdk")).state("ids")
    kryo = value_type(held.meta_info).of_class("java.util.UUID")  # type: ignore[attr-defined]
    old, new = kryo.values(KryoVersion.FLINK_1), kryo.values(KryoVersion.FLINK_2)
    items = [Item("java.util.UUID", str(uuid.UUID(int=at << 60))) for at in range(5)]
    written = [old.write(item, KryoVersion.FLINK_1) for item in items]
    savepoint = broadcast(tmp_path / "old", kryo, kryo, written, written[::-1])
    done = sl.upgrade(savepoint, tmp_path / "new", uids=["o"])
    assert [state.left for state in done.states] == [""]
    rows = sl.open_snapshot(tmp_path / "new", uids=["o"])["o"]["rules"].to_arrow()
    expected = [new.write(item, KryoVersion.FLINK_2) for item in items]
    pairs = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
    assert sorted(pairs) == sorted(zip(expected, expected[::-1], strict=True))


def text(value: str) -> Item:
    """A text."""
    return Item("java.lang.String", value)


def with_itself() -> Item:
    """A list that contains itself, behind a text."""
    item = Item("java.util.ArrayList", [text("x")])
    item.value.append(item)
    return item


@pytest.mark.parametrize(
    ("java_class", "items", "collection", "why"),
    [
        ("java.util.List", [with_itself()], "o/rules=List<String>",
         "a java.util.ArrayList where there should be a String"),
        ("java.util.ArrayList", [with_itself()], "", ""),
        ("java.util.ArrayList", [Item("java.util.ImmutableCollections$ListN", [None])], "",
         r"a java.util.ImmutableCollections$ListN with null in it"),
        ("java.util.Locale", [Item("java.util.Locale", ("zh", "CN", "", "Hans", ""))], "",
         "a java.util.Locale with a script or extensions, zh-CN-Hans"),
    ],
)  # fmt: skip
def test_a_value_that_flink_2_can_not_have_is_named_in_the_plan(
    java_class: str, items: list[Item], collection: str, why: str, tmp_path: Path
) -> None:
    """Before anything is written; a list that contains itself is one for Kryo."""
    held = operator_of(jdk_savepoint(tmp_path / "jdk")).state("ids")
    kryo = value_type(held.meta_info).of_class(java_class)  # type: ignore[attr-defined]
    old = kryo.values(KryoVersion.FLINK_1)
    written = [old.write(item, KryoVersion.FLINK_1) for item in items]
    savepoint = broadcast(tmp_path / "old", "Long", kryo, list(range(len(items))), written)
    words = (collection,) if collection else ()
    (planned,) = sl.upgrade(savepoint, uids=["o"], collection=words).states
    assert re.match(rf"(row \d+: )?{re.escape(why)}", planned.left)
    done = sl.upgrade(savepoint, tmp_path / "new", uids=["o"], collection=words)
    assert bool(done.made) == (tmp_path / "new").exists() == (not why)


def test_a_savepoint_that_needs_nothing_was_not_upgraded_before(tmp_path: Path) -> None:
    """It is copied, as it was to be written, and the second time as the first."""
    rows = pa.table({"key": [1], "value": pa.array([5], pa.int64())})
    plain = sl.NewKeyedState("plain", rows, value="Long")
    sl.write_snapshot(tmp_path / "sp", [sl.NewOperator("o", "Long", (plain,), parallelism=1)])
    done = sl.upgrade(tmp_path / "sp", tmp_path / "new")
    (line,) = done.lines()
    assert str(line).endswith(f"Flink 2 can't restore; {tmp_path / 'new'} has the same state")
    assert entries(tmp_path / "new") == entries(tmp_path / "sp")


@pytest.mark.parametrize("by_kryo", ["key", "value"])
def test_a_serializer_without_registrations_is_left_with_its_state(
    by_kryo: str, tmp_path: Path
) -> None:
    """In keys of a map as in values: there is no place for the mark of Flink 2 in it."""
    kryo = kryo_snapshot("java.util.UUID")
    item = Item("java.util.UUID", str(uuid.UUID(int=5)))
    stored = [kryo.values(KryoVersion.FLINK_1).write(item, KryoVersion.FLINK_1)]
    types = (kryo, "String") if by_kryo == "key" else ("String", kryo)
    rows = (stored, ["a"]) if by_kryo == "key" else (["a"], stored)
    (state,) = sl.upgrade(broadcast(tmp_path / "old", *types, *rows), uids=["o"]).states
    assert (state.operator, state.state) == ("o", "rules")
    assert "that registers no class" in state.left


def test_a_broadcast_state_of_unknown_ends_is_named(tmp_path: Path) -> None:
    """It is not damaged: only its class knows where a value ends."""
    unknown = kryo_snapshot().of_class("com.acme.Rule")
    one = broadcast(tmp_path / "one", "String", unknown, ["a"], [b"\1\2"])
    rows = sl.open_snapshot(one, uids=["o"])["o"]["rules"].to_arrow()
    assert rows.column("value").to_pylist() == [b"\1\2"]
    two = broadcast(tmp_path / "two", "String", unknown, ["a", "b"], [b"\1\2", b"\1\3"])
    rules = sl.open_snapshot(two, uids=["o"])["o"]["rules"]
    with pytest.raises(UnsupportedFormatError, match=r"Rule\), of which nobody") as told:
        rules.to_arrow()
    assert "--kryo" in told.value.remedy


class Dates(Decoder):
    """Says only where one ends."""

    arrow_type = pa.binary()

    def decode(self, data: bytes) -> bytes:
        """Nothing is known of it."""
        return data

    def length(self, data: memoryview) -> int:
        """Of two bytes."""
        return 2


def test_a_broadcast_state_of_a_form_that_only_the_job_knows_is_left(tmp_path: Path) -> None:
    """Once a decoder says where its values end; the plan says why, and the other is upgraded."""
    kryo = operator_kryo(tmp_path)
    own = with_serializers(kryo.of_class("java.util.Date"), java__util__Date="com.acme.Dates")
    one = kryo.values(KryoVersion.FLINK_1).write(
        Item("java.util.UUID", str(uuid.UUID(int=1))), KryoVersion.FLINK_1
    )
    with undecoded():
        rules = sl.NewOperatorState(
            "rules", pa.table({"key": ["a", "b"], "value": [b"\1\2", b"\1\3"]}), "broadcast", own,
            "String",
        )  # fmt: skip
        ids = sl.NewOperatorState("ids", pa.table({"value": [one]}), "split", kryo)
        operator = sl.NewOperator("o", "Long", operator_states=(ids, rules), parallelism=2)
        sl.write_snapshot(tmp_path / "old", [operator])
    words: Any = {"uids": ["o"], "partly": True}
    said = "^operator state 'rules', .* only a decoder with the length of a value tells"
    with pytest.raises(UnsupportedFormatError, match=said):
        sl.upgrade(tmp_path / "old", tmp_path / "new", **words)
    register_decoder("java.util.Date", Dates())
    done = sl.upgrade(tmp_path / "old", tmp_path / "new", **words)
    left = {state.state: state.left for state in done.states}
    assert (bool(done.made), left["ids"]) == (True, "")
    assert "default serializers of the job's own for types of the JDK" in left["rules"]


SPAN = "PojoJobs$Span"
SPANS = {
    "flink": 1,
    "classes": {SPAN: {"fields": {"from": "long", "until": "long", "kind": "UUID"}}},
}
WINDOWS = ("sessions", "hours", "global", "spans", "listed")
OWNERS = ("customers", "places", "o", *WINDOWS)
STAY = [  # collections that stay Kryo's so that values can be compared
    f"customers/{state}.{field}"
    for state in ("customer", "listed", "mapped")
    for field in ("tags=List", "seen=Set", "scores=Map")
]


def swept(name: str, to: Path) -> tuple[Path, list[str]]:
    """A savepoint in one piece, and its collections; its classes are declared."""
    if name == "protobuf":
        return protobuf_savepoint(to), []
    declared = yaml.safe_load(BASKET)
    decoding.declare_classes(declared | {"classes": declared["classes"] | SPANS["classes"]})
    if name == "avro":
        return avro_savepoint(to), []
    if name.startswith("scala"):
        shutil.copytree(GOLDEN / "flinkx" / name.removeprefix("scala-"), to)
        return to, []
    if name == "evolving":
        return evolving_savepoint("old-hashmap", to), []
    return jdk_savepoint(to, name), STAY if name.startswith("pojos") else []


# of the savepoints: how many damaged ones are in CI, and how many are nightly
SWEPT = {
    "flink-1.20": (8, 400), "keys-canonical-1.20": (8, 400), "pojos-1.20": (8, 400),
    "avro": (2, 300), "protobuf": (1, 300), "scala-first": (1, 300), "scala-last": (0, 100),
    "pojos-native-1.20": (0, 200), "keys-native-1.20": (0, 200), "evolving": (0, 200),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        pytest.param(name, seeds, marks=pytest.mark.nightly if seeds.start else ())
        for name, (few, most) in SWEPT.items()
        for seeds in (range(few), range(max(1, few), most))
        if seeds
    ],
)
def test_a_damaged_savepoint_is_upgraded_as_it_reads_or_refused(
    name: str, seeds: range, tmp_path: Path
) -> None:
    """Values are those of the damaged one as it is read, or nothing is written.

    It takes no time out of proportion, whatever numbers are damaged.
    """
    savepoint, collections = swept(name, tmp_path / "old")
    made = tmp_path / "new"
    whole = (savepoint / "_metadata").read_bytes()
    words: Any = {"collection": collections, "uids": OWNERS, "partly": True}
    begun = process_time()
    assert sl.upgrade(savepoint, made, **words).made
    most = 10 + 10 * (process_time() - begun)
    assert states_that_differ(savepoint, made, OWNERS) == []
    shutil.rmtree(made)
    upgraded = 0
    for seed in seeds:
        random = Random(seed)
        damage = cut_or_moved if seed % 8 == 7 else some_damage
        if name == "avro" and seed % 4 == 1:
            damage = other_schemas
        (savepoint / "_metadata").write_bytes(damage(whole, random))
        refused: sl.StateError | None = None
        begun = process_time()
        try:
            is_made = bool(sl.upgrade(savepoint, made, **words).made)
        except sl.StateError as error:
            is_made, refused = False, error
        assert process_time() - begun < most, seed
        assert made.exists() == is_made, seed
        if refused is not None:
            assert refused.remedy, seed
            assert re.search("offset|operator|state|snapshot|_metadata", str(refused)), seed
        assert {each.name for each in tmp_path.iterdir()} <= {"old", "new"}, seed
        if made.exists():
            upgraded += 1
            assert states_that_differ(savepoint, made, OWNERS) == [], seed
            shutil.rmtree(made)
    assert upgraded > len(seeds) // 8 or len(seeds) < 8


def test_avro_is_as_it_was_beside_what_kryo_wrote(tmp_path: Path) -> None:
    """By reflection, generated or generic: in tuples, lists, maps, POJOs; and within itself."""
    savepoint = avro_savepoint(tmp_path / "old")
    done = sl.upgrade(savepoint, tmp_path / "new", uids=["o"])
    upgraded = {"parts", *AVRO_STATES} - {"link", "order"}  # which Kryo has no part in
    assert {each.state: each.left for each in done.states} == dict.fromkeys(upgraded, "")
    assert states_that_differ(savepoint, tmp_path / "new", ["o"]) == []
    operator = sl.open_snapshot(tmp_path / "new", uids=["o"])["o"]
    orders = operator["order"].to_arrow().sort_by("key")
    assert orders.column("value").to_pylist() == [order(number) for number in range(12)]
    pairs = operator["pair"].to_arrow().sort_by("key").column("value").to_pylist()
    assert [pair["f0"] for pair in pairs] == [order(number) for number in range(12)]


TIMERS = "_timer_state/event_window-timers"
# what stands before a window in a key's bytes: a Long; a text of five letters, and its length
BEFORE_WINDOW = {"spans": 8, "listed": 7}


def spans_of(savepoint: Path, uid: str, version: KryoVersion) -> list[tuple[Any, ...]]:
    """The windows by Kryo in the contents of windows, each with its key group and key."""
    state = open_snapshot(savepoint, uids=WINDOWS)[uid]["window-contents"]
    namespace = key_parts(state.meta_info)[NAMESPACE]
    assert isinstance(namespace, KryoSerializerSnapshot)
    found, start = [], BEFORE_WINDOW[uid]
    for row in state.to_arrow().select(["key_group", "key"]).to_pylist():
        data = row["key"]
        if uid == "listed":  # a key without a fixed length: that of the window stands behind it
            assert data[-1] == len(data) - start - 1
            data = data[:-1]
        item = namespace.values(version).read(data[start:])
        assert item is not None
        found.append((row["key_group"], data[:start], repr(item.value)))
    return sorted(found)


def timers_of(savepoint: Path, uid: str) -> list[str]:
    """The timers of windows by Kryo, as texts."""
    rows = open_snapshot(savepoint, uids=WINDOWS)[uid][TIMERS].to_arrow().drop_columns("raw_key")
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.full
def test_windows_by_kryo_are_upgraded(tmp_path: Path) -> None:
    """Namespaces and timers of a job's own windows, and the set of those that were merged."""
    savepoint = jdk_savepoint(tmp_path / "old", "windows-1.20")
    named = sl.upgrade(savepoint, uids=WINDOWS)
    left = {
        (each.operator, each.state): each.left
        for each in named.states
        if each.left and each.operator in WINDOWS
    }
    assert set(left) == {
        (uid, name)
        for uid in BEFORE_WINDOW
        for name in ("window-contents", "merging-window-set", TIMERS)
    }
    for why in left.values():
        assert f"a value of {SPAN}, whose form is not known; declare the class" in why
    decoding.declare_classes(SPANS)
    done = sl.upgrade(savepoint, tmp_path / "new", uids=WINDOWS, partly=True)
    assert not [state for state in done.states if state.left and state.operator in WINDOWS]
    for uid in BEFORE_WINDOW:
        before = spans_of(savepoint, uid, KryoVersion.FLINK_1)
        assert len(before) == 8
        assert spans_of(tmp_path / "new", uid, KryoVersion.FLINK_2) == before
        timers = timers_of(savepoint, uid)
        assert len(timers) == 8
        assert timers_of(tmp_path / "new", uid) == timers
    again = sl.upgrade(tmp_path / "new", uids=WINDOWS)
    assert {state.left for state in again.states if state.operator in WINDOWS} == {
        "Flink 2 wrote it"
    }


def test_a_damaged_window_is_named(tmp_path: Path) -> None:
    """Its state and its key group; nothing is written."""
    savepoint = jdk_savepoint(tmp_path / "old", "windows-1.20")
    metadata = savepoint / "_metadata"
    data = metadata.read_bytes()
    for until in (b"\x90N", b"\xe0]"):  # of the first element, and of the merged ones
        window = b"W\1\0\1\x0e\x16" + until
        assert window in data
        data = data.replace(window, b"W\7\0\1\x0e\x16" + until)
    metadata.write_bytes(data)
    decoding.declare_classes(SPANS)
    states = sl.upgrade(savepoint, tmp_path / "new", uids=WINDOWS).states
    left = {state.state: state.left for state in states if state.operator == "listed"}
    assert left.pop("_timer_state/processing_window-timers") == ""
    assert set(left) == {"window-contents", "merging-window-set", TIMERS}
    for why in left.values():
        said = r"key group \d+, row 0, offset \d+: object 5, of 0 read; the file is damaged"
        assert re.match(said, why)
    assert not (tmp_path / "new").exists()


def test_classes_that_flink_2_lacks_are_named(savepoint: Path, tmp_path: Path) -> None:
    """Of the snapshots in Flink 1.20 and not in 2.3; what is in both can be restored."""
    of = ("--lake", tmp_path / "lake", "--job", "shop", "--snapshot", "one")
    assert run("import", savepoint, *of, "--engine", "local") == 0
    record = Catalog(tmp_path / "lake").snapshot("shop", "one")
    operator = next(each for each in record.operators if any(each.all_states))
    for java_class, why in (
        ("cep.nfa.sharedbuffer.SharedBufferNode$SharedBufferNodeSerializer", "an old Flink"),
        ("cep.nfa.SharedBuffer$SharedBufferSerializerSnapshot", "an old Flink"),
        ("cep.nfa.NFA$MigratedNFASerializerSnapshot", "an old Flink"),
        ("formats.avro.typeutils.AvroSerializer$AvroSchemaSerializerConfigSnapshot", "an old"),
        ("api.java.typeutils.runtime.EitherSerializerSnapshot", "an old Flink"),
        ("api.scala.typeutils.ScalaOptionSerializerSnapshot", "Scala"),
        ("cep.nfa.sharedbuffer.SharedBufferNodeSerializerSnapshotV2", ""),
        ("cep.nfa.NFAStateSerializerSnapshot", ""),
        ("formats.avro.typeutils.AvroSerializerSnapshot", ""),
        ("api.java.typeutils.runtime.JavaEitherSerializerSnapshot", ""),
    ):  # fmt: skip
        name = f"org.apache.flink.{java_class}".encode()
        state = replace(next(iter(operator.all_states)), meta_info=name)
        told = kryo_upgrading._gone(operator, state)
        assert (why in told, bool(told)) == (True, bool(why)), java_class


@pytest.mark.parametrize("there", ["savepoint", "file", "link", "dangling", "source"])
def test_what_is_at_the_target_is_never_written_over(there: str, tmp_path: Path) -> None:
    """It is refused before the savepoint is read; nothing is changed, nor left beside it."""
    savepoint, target = jdk_savepoint(tmp_path / "pojos", "pojos-1.20"), tmp_path / "new"
    words: Any = {"uids": ["customers"], "partly": True}
    if there == "savepoint":
        sl.upgrade(savepoint, target, **words)
    elif there == "file":
        target.write_text("of mine")
    elif there == "source":
        target = savepoint
    else:
        target.symlink_to(savepoint if there == "link" else "nowhere")

    def held() -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}

    before, names = held(), sorted(tmp_path.iterdir())
    problem = "not empty" if there in ("savepoint", "source") else "a file or a link is there"
    with pytest.raises(sl.StateError, match=problem):
        sl.upgrade(savepoint, target, **words)
    assert (held(), sorted(tmp_path.iterdir())) == (before, names)


def test_values_are_read_as_bytes_where_no_key_needs_its_decoder(tmp_path: Path) -> None:
    """Nor where the end of a value is known to its serializer alone, as in the heap's own form."""

    def as_bytes(savepoint: Path) -> bool:
        with values_as_bytes(lambda: open_snapshot(savepoint)):
            return is_undecoded()

    kryo = kryo_snapshot().of_class("java.util.UUID")
    stored = kryo.values(KryoVersion.FLINK_1).write(
        Item("java.util.UUID", str(uuid.UUID(int=1))), KryoVersion.FLINK_1
    )
    pair = TupleSerializerSnapshot.around(kryo, kryo)
    pair.tuple_class = "org.apache.flink.api.java.tuple.Tuple2"

    def written(name: str, rows: dict[str, list[Any]], **types: Any) -> Path:
        with undecoded():
            state = sl.NewKeyedState("state", pa.table({"key": [1], **rows}), **types)
            sl.write_snapshot(tmp_path / name, [sl.NewOperator("o", "Long", (state,))])
        return tmp_path / name

    values = written("values", {"value": [stored * 2]}, value=pair)
    keys = written("keys", {"user_key": [stored * 2], "value": [1]}, kind="map",
                   user_key=pair, value="Long")  # fmt: skip
    assert (as_bytes(values), as_bytes(keys), is_undecoded()) == (True, False, False)
    assert not as_bytes(golden_cases("wordcount", form="native")[0].snapshot)


def test_an_upgraded_savepoint_is_upgraded_to_itself(
    savepoint: Path, classes: Path, tmp_path: Path
) -> None:
    """Flink 2 can restore it already: the same entries come out, with the same meta infos."""
    once, twice = tmp_path / "once", tmp_path / "twice"
    assert run("upgrade", savepoint, "--to", once, "--kryo", classes) == 0
    assert run("upgrade", once, "--to", twice, "--kryo", classes, "--json") == 0
    assert entries(twice) == entries(once)
    metas = [
        {state.name: state.meta_info for state in operator_of(each).keyed_states}
        for each in (once, twice)
    ]
    assert metas[0] == metas[1]


ANIMAL, DOG = "com.acme.Animal", "com.acme.Dog"
ANIMALS: dict[str, Any] = {
    "flink": 1,
    "classes": {
        ANIMAL: {"fields": {"name": "String"}},
        DOG: {"fields": {"name": "String", "age": "int"}},
    },
}
SPOT = Item(DOG, {"name": Item("java.lang.String", "b"), "age": 3})
TOM = Item(ANIMAL, {"name": Item("java.lang.String", "a")})
ODD_DURATION = bytes.fromhex("80a8d6b90702")  # a second, and 2,000,000,000 ns


def zoo(to: Path, kryo: KryoSerializerSnapshot, *, odd: bool = False) -> Path:
    """A savepoint of Flink 1 with a list of animals by Kryo, UUIDs and durations by Kryo."""
    decoding.declare_classes(ANIMALS)

    def state(name: str, java_class: str, *items: Item, data: bytes = b"") -> sl.NewKeyedState:
        of_class = kryo.of_class(java_class)
        values = of_class.values(KryoVersion.FLINK_1)
        stored = [values.write(item, KryoVersion.FLINK_1) for item in items]
        if data:
            stored.append(bytes([values.classes.numbers[java_class] + 2, 1]) + data)
        rows = pa.table({"key": list(range(len(stored))), "value": stored})
        return sl.NewKeyedState(name, rows, value=of_class)

    one = uuid.UUID(int=1)
    with undecoded():
        states = [
            state("zoo", "java.util.List", Item("java.util.ArrayList", [TOM, SPOT])),
            state("ids", "java.util.UUID", Item("java.util.UUID", str(one))),
        ]
        if odd:
            states.append(state("times", "java.time.Duration", data=ODD_DURATION))
        operator = sl.NewOperator("o", "Long", tuple(states), parallelism=1, max_parallelism=4)
        sl.write_snapshot(to, [operator])
    return to


def operator_o(savepoint: Path) -> Operator:
    """The only one."""
    return open_snapshot(savepoint, uids=["o"])["o"]


def like_zoo(to: Path, **subclasses: Any) -> Path:
    """A savepoint of the new job, whose list is of POJOs that may have a subclass."""
    name = {"name": parse_type("String")}
    dog = PojoSerializerSnapshot.of(DOG, name | {"age": parse_type("Integer")})
    known = {how: {DOG: dog} for how, is_known in subclasses.items() if is_known}
    element = NullableSerializerSnapshot.of(PojoSerializerSnapshot.of(ANIMAL, name, **known))
    animals = NullableSerializerSnapshot.of(ListSerializerSnapshot.around(element))
    rows = pa.table({"key": pa.array([], pa.int64()), "value": pa.array([], pa.null())})
    state = sl.NewKeyedState("zoo", rows, value=animals)
    operator = sl.NewOperator("o", "Long", (state,), parallelism=1, max_parallelism=4)
    sl.write_snapshot(to, [operator], metadata_version=5)
    return to


@pytest.mark.parametrize(
    ("how", "head"),
    [
        ("non_registered", b"\4" + len(DOG).to_bytes(2, "big") + DOG.encode()),
        ("registered", b"\x08\0"),
    ],
)
def test_subclasses_in_a_list_are_written_as_the_new_job_has_them(
    how: str, head: bytes, tmp_path: Path
) -> None:
    """By name, or by the tag of a registered class; each with the fields of its own class."""
    savepoint = zoo(tmp_path / "old", operator_kryo(tmp_path))
    like = like_zoo(tmp_path / "like", **{how: True})
    done = sl.upgrade(savepoint, tmp_path / "new", "2.3", like=like, uids=["o"])
    assert [state.left for state in done.states] == ["", ""]
    with undecoded():
        state = open_snapshot(tmp_path / "new", uids=["o"])["o"]["zoo"]
    (file, index), *_ = state.files
    (stored,) = (
        bytes(held.data[held.value_start[0] : held.value_end[0]])
        for held in (each.of_state(index) for each in file.entries())
        if len(held)
    )
    tom, spot = b"\2\0\2a", b"\2\0\0\0\0\3\0\2b"  # flags; a null flag before each field
    assert stored == b"\0" + (2).to_bytes(4, "big") + b"\0" + tom + b"\0" + head + spot


READING = "com.acme.Reading"
READINGS: dict[str, Any] = {
    "flink": 1,
    "classes": {
        "com.acme.Tier": {"enum": ["GOLD", "SILVER"]},
        READING: {
            "fields": {
                "at": "long", "place": "String", "tier": "com.acme.Tier",
                "values": "List<Double>", "by": "Map<String, Integer>",
            },
        },
    },
}  # fmt: skip
PLACE = {"type": "record", "name": "Reading", "namespace": "com.acme", "fields": [
    {"name": "at", "type": "long"},
    {"name": "place", "type": ["null", "string"]},
    {"name": "tier", "type": {"type": "enum", "name": "Tier", "symbols": ["GOLD", "SILVER"]}},
    {"name": "values", "type": {"type": "array", "items": "double"}},
    {"name": "by", "type": {"type": "map", "values": "int"}},
]}  # fmt: skip


def reading(place: str | None, *values: float) -> Item:
    """A generated record, as Kryo writes it field by field."""
    return Item(READING, {
        "at": 7, "place": None if place is None else text(place),
        "tier": Item("com.acme.Tier", "SILVER"),
        "values": Item("java.util.ArrayList", [Item("java.lang.Double", held) for held in values]),
        "by": Item("java.util.HashMap", [(text("a"), Item("java.lang.Integer", 5))]),
    })  # fmt: skip


@pytest.mark.parametrize("kind", ["java.util.List", "java.util.Map"])
def test_records_of_avro_in_collections_become_those_of_the_new_job(
    kind: str, tmp_path: Path
) -> None:
    """Kryo wrote their fields; Flink 2 has Avro write those of a collection, by its schema."""
    decoding.declare_classes(READINGS)
    kryo = operator_kryo(tmp_path).of_class(kind)
    held = [reading("here", 0.5, 2.0), reading(None)]
    item = Item("java.util.ArrayList", held)
    record: Any = AvroSerializerSnapshot.of(PLACE, READING)
    element: Any = NullableSerializerSnapshot.of(record)
    new: Any = ListSerializerSnapshot.around(element)
    if kind == "java.util.Map":
        item = Item("java.util.HashMap", [(text(str(at)), each) for at, each in enumerate(held)])
        key = NullableSerializerSnapshot.of(parse_type("String"))
        new = MapSerializerSnapshot.around(key, record)

    def written(to: Path, value: Any, rows: list[Any], **words: Any) -> Path:
        with undecoded():
            table = pa.table({"key": pa.array(range(len(rows)), pa.int64()), "value": rows})
            state = sl.NewKeyedState("readings", table, value=value)
            sl.write_snapshot(to, [sl.NewOperator("o", "Long", (state,), parallelism=1)], **words)
        return to

    stored = [kryo.values(KryoVersion.FLINK_1).write(item, KryoVersion.FLINK_1)]
    savepoint = written(tmp_path / "old", kryo, stored)
    like = written(tmp_path / "like", NullableSerializerSnapshot.of(new), [], metadata_version=5)
    done = sl.upgrade(savepoint, tmp_path / "new", "2.3", like=like, uids=["o"])
    assert [state.left for state in done.states] == [""]
    (row,) = operator_o(tmp_path / "new")["readings"].to_arrow().to_pylist()
    both = {"at": 7, "tier": "SILVER", "by": [("a", 5)]}
    expected = [
        both | {"place": "here", "values": [0.5, 2.0]},
        both | {"place": None, "values": []},
    ]
    if kind == "java.util.Map":
        assert row["value"] == [(str(at), each) for at, each in enumerate(expected)]
    else:
        assert row["value"] == expected


def test_a_state_that_keeps_flink_2_from_its_operator_says_so(tmp_path: Path) -> None:
    """With flink-avro on the class path its snapshot names a class of Flink 1's."""
    plain = operator_kryo(tmp_path)
    for kryo, stops in ((plain, False), (with_serializers(plain), True)):
        savepoint = zoo(tmp_path / f"old-{stops}", kryo, odd=True)
        done = sl.upgrade(savepoint, tmp_path / f"new-{stops}", uids=["o"], partly=True)
        left = {state.state: state.left for state in done.states}
        assert left["ids"] == ""
        assert ("as it is, Flink 2 restores nothing of the operator" in left["times"]) == stops


def operator_kryo(tmp_path: Path) -> KryoSerializerSnapshot:
    """Kryo's snapshot of real Flink 1.20, with its registrations."""
    kryo = value_type(operator_of(jdk_savepoint(tmp_path / "jdk")).state("ids").meta_info)
    assert isinstance(kryo, KryoSerializerSnapshot)
    return kryo


@pytest.mark.full
def test_a_state_that_flink_2_has_no_form_for_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A subclass that nobody describes, a duration that no Java has: all others are upgraded."""
    savepoint = zoo(tmp_path / "old", operator_kryo(tmp_path), odd=True)
    like = like_zoo(tmp_path / "like")
    words: Any = {"like": like, "uids": ["o"]}
    plan = sl.upgrade(savepoint, **words)
    left = {state.state: state.left for state in plan.states}
    assert left["ids"] == ""
    assert re.match(
        r"key group \d, row 0: a com\.acme\.Dog where there should be a com\.acme\.Animal, whose"
        r" serializer in the new job does not describe such a subclass; name a savepoint",
        left["zoo"],
    )
    assert re.match(r"key group \d, row 0: .* is no java\.time\.Duration", left["times"])
    refused = sl.upgrade(savepoint, tmp_path / "new", **words)
    assert (refused.made, refused.states) == ("", plan.states)
    assert not (tmp_path / "new").exists()
    done = sl.upgrade(savepoint, tmp_path / "new", partly=True, **words)
    assert {state.state: state.left for state in done.states} == left
    assert (bool(done.made), done.complete) == (True, False)
    with undecoded():
        before, after = (
            {held.name: held.to_arrow() for held in operator_o(each).keyed_states}
            for each in (savepoint, tmp_path / "new")
        )
    assert {name for name in before if before[name] != after[name]} == {"ids"}
    # in a lake, and a second time: the same words, and the exit code of what was left
    classes = tmp_path / "animals.yaml"
    classes.write_text(yaml.safe_dump(ANIMALS))
    of = ("--lake", tmp_path / "lake", "--job", "zoo", "--snapshot", "one", "--kryo", classes)
    assert run("import", savepoint, *of, "--engine", "local", "--uid", "o") == 0
    for way, told in (
        ("--dry-run", "a dry run"),
        ("--note=a", "--partly leaves these states as they are"),
        ("--partly", "3 states that Flink 2 can't restore, now one-flink-2"),
        ("--partly", "2 states that Flink 2 can't restore, now one-flink-2"),
    ):
        capsys.readouterr()
        assert run("upgrade", *of, "--like", like, way) == 1
        assert told in " ".join(capsys.readouterr().out.split())
    made = sl.Lake(tmp_path / "lake").job("zoo")["one-flink-2"]
    assert made.record.parent == "one"
