"""`statelake types`: what it prints, the check and migrations read, and find no change."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from statelake import Lake, diff_types, open_snapshot
from statelake.pipelines.lake.change.changes import read_changes
from statelake.state_core.errors import EncodeError, IncompatibleError, NotFoundError
from statelake.state_core.serializers.framework.compatibility import Verdict
from tests.support.command import run
from tests.support.lakes import DEMO
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases

pytestmark = pytest.mark.thinned(2)

POJO = GOLDEN / "flink" / "pojo-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"
UID = ("--uid", "customers")


@pytest.fixture
def customers(tmp_path: Path) -> Path:
    """The types of a job's customers, as a file."""
    path = tmp_path / "types.yaml"
    path.write_text(open_snapshot(POJO, uids=["customers"]).types().to_yaml(), "utf-8")
    return path


def changed(path: Path, *replacements: tuple[str, str]) -> str:
    """A file of types with other types."""
    text = path.read_text("utf-8")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    other = path.with_name("new.yaml")
    other.write_text(text, "utf-8")
    return str(other)


@pytest.mark.parametrize("golden", golden_cases(), ids=lambda golden: golden.name)
def test_types_fed_back_change_nothing(golden: GoldenCase, tmp_path: Path) -> None:
    """Of each golden snapshot: the check finds all states as they are, a migration has no work."""
    printed = open_snapshot(golden.snapshot).types()
    orders = Lake(tmp_path / "lake").job("orders", engine="local")
    orders.import_snapshot(golden.snapshot, "one")
    stored = orders["one"]
    assert stored.types() == printed
    path = tmp_path / "types.yaml"
    path.write_text(printed.to_yaml(), "utf-8")
    if not printed.content()["states"]:
        return
    verdicts = stored.check_compatibility(str(path))
    assert {each.result.verdict for each in verdicts} <= {
        Verdict.COMPATIBLE_AS_IS,
        Verdict.UNKNOWN,  # of a class that only Java knows, and that is not in the file
    }
    assert stored.migrate(str(path)).outcome == "compatible as it is"
    assert len(read_changes(str(path))) == len(printed.content()["states"])


def test_the_command_prints_what_python_returns(customers: Path) -> None:
    """As YAML and as JSON, of a savepoint; only some operators, if they are named."""
    types = open_snapshot(POJO, uids=["customers"]).types("customers")
    assert run("types", POJO, *UID).out == customers.read_text("utf-8") == types.to_yaml()
    assert run("types", POJO, *UID, "--operator", "customers", "--json").json == types.to_json()
    assert yaml.safe_load(types.to_yaml())["keys"] == {"customers": "String"}
    with pytest.raises(NotFoundError, match="customers"):
        open_snapshot(POJO, uids=["customers"]).types("customer")


def test_differences_are_told_in_words(customers: Path) -> None:
    """Fields added, removed and widened, constants in another order; or that there is none."""
    new = changed(
        customers,
        ("        id: Long", "        id: Long\n        country: String\n        points: int"),
        ("        balance: Double\n", ""),
        ("zip: Integer", "zip: Long"),
        ("RED\n          - GREEN", "GREEN\n          - RED"),
    )
    said = run("types", new, "--diff", customers).out.splitlines()
    assert said == [
        "`customers/customer`: field `country: String` added, null for all",
        "`customers/customer`: field `points: int` added, 0 for all",
        "`customers/customer`: field `address.zip`: Integer to Long, widened",
        "`customers/customer`: field `balance: Double` removed, its values are dropped",
        "`customers/customer`: field `color`: constants in another order",
        "`customers/past`: field `zip`: Integer to Long, widened",
    ]
    assert [f"`{each.state}`: {each.words}" for each in diff_types(customers, new)] == said
    assert run("types", POJO, *UID, "--diff", customers).out == "no difference\n"
    assert run("types", POJO, *UID, "--diff", customers, "--json").json == {"differences": []}


def test_states_that_are_new_or_gone_are_told(tmp_path: Path) -> None:
    """Of two snapshots in the same way as of two files."""
    monday = open_snapshot(DEMO / "monday").types()
    without = tmp_path / "types.yaml"
    content = monday.content()
    del content["states"]["kinds/total"]
    content["states"]["kinds/new"] = {"type": "List<String>", "kind": "keyed value"}
    without.write_text(yaml.safe_dump(content), "utf-8")
    assert [str(each.state) for each in diff_types(monday, monday)] == []
    assert [(each.state, each.words) for each in diff_types(monday, without)] == [
        ("kinds/new", "added, List<String>"),
        ("kinds/total", "removed, Long"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: keyed list", "kind: keyed value", "its kind is keyed list"),
        ("customers: String", "customers: Long", "its key is String, and Long in the file"),
        ("kind: keyed value", "kind: keyed value\n    ttl: true", "its ttl is none"),
    ],
)
def test_what_no_migration_changes_is_held_to_the_snapshot(
    old: str, new: str, said: str, customers: Path, tmp_path: Path
) -> None:
    """A file that says another kind, key or time to live is refused, by check and migration."""
    orders = Lake(tmp_path / "lake").job("orders", engine="local")
    orders.import_snapshot(POJO, "one", uids=["customers"])
    path = changed(customers, (old, new))
    with pytest.raises(IncompatibleError, match=said):
        orders["one"].check_compatibility(path)
    with pytest.raises(IncompatibleError, match=said):
        orders["one"].migrate(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("states:", "state:", "`state` is no entry"),
        ("    kind: keyed list", "    knd: keyed list", "`knd` is no entry here.*kind"),
        (
            "pojo: Judge$Customer",
            "pojo: Judge$Customer\n      feld: x",
            "'feld' is no entry of the type 'pojo'",
        ),
    ],
)
def test_an_unknown_entry_is_refused(old: str, new: str, said: str, customers: Path) -> None:
    """At the top, of a state and of a type: it would otherwise be without effect."""
    with pytest.raises(EncodeError, match=said):
        read_changes(changed(customers, (old, new)))
