"""The protocol of all who write a lake, as specified: TLC explores every order of their steps.

The one before it is explored, too, and loses data in the three ways in which it did.
"""

from __future__ import annotations

import re
from pkgutil import resolve_name

import pytest

from tests.support.model_checking import PROTOCOL, explore

SECONDS = 1200  # on a busy machine; alone, a tenth of it
NIGHT = 6 * 3600
TWO_JOBS = {"Importers": "{i}", "Editors": "{i}", "Jobs": "{j, k}", "Names": "{n}"}
ERASERS = {"Editors": "{}", "Erasers": "{e1, e2}"}
HOLDS = {"Editors": "{}", "Holds": "TRUE"}
# rules of which each is needed, or one of two; what breaks without; who has to be there for that
NEEDED = [
    ("fence", "Whole", {}),
    ("own-look", "Whole", {}),
    ("name", "OneName", {}),
    ("reuse", "Whole", {}),
    ("basis", "Whole", TWO_JOBS),
    ("basis drop-base", "Whole", {}),
    ("drop-held", "HoldsKeep", HOLDS),
    ("switch-held", "HoldsKeep", HOLDS),
    ("no-attempt", "Gone", {}),
    ("begin-closed no-attempt", "Gone", {}),
    ("commit-closed planned", "Gone", {}),
    ("drop-closed planned", "Whole", {}),
    ("all-jobs", "Gone", TWO_JOBS),
    ("owner", "Whole", ERASERS),
    ("one-switch", "OneSwitch", ERASERS),
    ("give-up-look deletion-look", "Whole", ERASERS),
    ("list-first", "Whole", {}),
    ("sweep-look", "Whole", {}),
]
NEEDED_OF_AN_ENTRY = [
    ("read-back", "NotMade"),
    ("conclusive", "NotMade"),
    ("past", "Whole"),
    ("overtaken", "Made"),
    ("oldest-first", "Made"),
]
THREE = "{a, b, c}"
OF_NO_CODE = {"Lake": {"Crash"}, "Log": {"Arrive", "Vanish", "Crash"}}


def model(name: str, **constants: str) -> str:
    """A model of `docs/protocol`, with other constants."""
    text = (PROTOCOL / f"{name}.cfg").read_text("utf-8")
    for constant, value in constants.items():
        text, found = re.subn(rf"(?m)^    {constant} = .*$", f"    {constant} = {value}", text)
        assert found == 1
    return text


def rules(names: str) -> str:
    """The names of rules, as a set."""
    return "{" + ", ".join(f'"{name}"' for name in names.split()) + "}"


@pytest.mark.parametrize(
    ("name", "states"), [pytest.param("Lake", 50_000, marks=pytest.mark.full), ("LakeHolds", 2_000)]
)
def test_no_order_of_steps_and_crashes_loses_a_file_or_brings_back_what_was_erased(
    name: str, states: int
) -> None:
    """And none drops or changes what is held, or switches an erasure twice."""
    explored = explore("Lake", model(name), seconds=SECONDS)
    assert (explored.holds, explored.violated) == (True, "")
    assert explored.states > states


@pytest.mark.full
def test_what_was_left_behind_is_taken_back_and_deleted_in_the_end() -> None:
    """However often who does it crashes."""
    explored = explore("Lake", model("LakeInTheEnd"), seconds=SECONDS)
    assert explored.holds
    assert explored.states > 1_000


@pytest.mark.parametrize(
    "writers", ["{a, b}", pytest.param("{a, b, d}", marks=[pytest.mark.full, pytest.mark.nightly])]
)
def test_an_entry_of_the_log_is_written_once_or_not_at_all(writers: str) -> None:
    """And who was told that it was written, or that it was not, was told the truth."""
    explored = explore("Log", model("Log", Writers=writers), seconds=SECONDS)
    assert explored.holds
    assert explored.states > 1_000


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("name", "cause", "end"),
    [
        ("OldImportBesideErasure", "ReadPrevious", "Append"),
        ("OldEqualNumbers", "GoOn", "Switch"),
        ("OldAfterADay", "DayPasses", "Append"),
    ],
)
@pytest.mark.full
def test_the_old_protocol_loses_files_as_it_did(name: str, cause: str, end: str) -> None:
    """What the model of it can't see, that of the new one could not see either."""
    explored = explore("Old", model(name), seconds=SECONDS)
    assert explored.violated == "Whole"
    assert cause in explored.steps
    assert explored.steps[-1] == end
    assert explored.states > 100


@pytest.mark.full
def test_the_old_protocol_holds_where_its_guesses_are_right() -> None:
    """Imports alone, of which none takes a day."""
    explored = explore("Old", model("OldAfterADay", Late="FALSE"), seconds=SECONDS)
    assert explored.holds
    assert explored.states > 10_000


def test_every_rule_of_the_models_is_left_out_once() -> None:
    """So that none is there for nothing."""
    for module, left_out in (
        ("Lake", [row[0] for row in NEEDED]),
        ("Log", [row[0] for row in NEEDED_OF_AN_ENTRY]),
    ):
        text = (PROTOCOL / f"{module}.tla").read_text("utf-8")
        assert set(re.findall(r'Rule\("([\w-]+)"\)', text)) == set(" ".join(left_out).split())


@pytest.mark.parametrize("module", ["Lake", "Log"])
def test_each_step_of_a_model_is_in_the_code(module: str) -> None:
    """The page names a function of each, which exists; and no step that the model does not have."""
    text = (PROTOCOL / f"{module}.tla").read_text("utf-8")
    (following,) = re.findall(r"(?ms)^Next == (.*?)^Spec ==", text)
    actions = re.findall(r"\b[A-Z]\w*", re.sub(r"\\E [^:]*:", "", following))
    page = (PROTOCOL / "index.md").read_text("utf-8")
    (table,) = re.findall(rf"(?s)Steps of `{module}\.tla`:\n\n(.*?)\n\n", page)
    rows = [re.findall("`([^`]+)`", row) for row in table.splitlines()[2:]]
    assert sorted(row[0] for row in rows) == sorted(actions)
    assert {row[0] for row in rows if not row[1:]} == OF_NO_CODE[module]
    for name in (name for row in rows for name in row[1:]):
        assert resolve_name(f"statelake.pipelines.lake.{name}") is not None


@pytest.mark.thinned(3)
@pytest.mark.full
@pytest.mark.parametrize(("left_out", "violated", "constants"), NEEDED)
def test_without_a_rule_the_protocol_fails(
    left_out: str, violated: str, constants: dict[str, str]
) -> None:
    """Or without two, of which one is enough."""
    changed = model("Lake", Without=rules(left_out), **constants)
    explored = explore("Lake", changed, seconds=SECONDS)
    assert explored.violated == violated
    assert len(explored.steps) > 3


@pytest.mark.full
@pytest.mark.parametrize(("left_out", "violated"), NEEDED_OF_AN_ENTRY)
def test_without_a_rule_an_entry_of_the_log_fails(left_out: str, violated: str) -> None:
    """A change is made twice, is not what was told, or names a file that is gone."""
    changed = model("Log", Without=rules(left_out), Writers="{a, b, d}")
    explored = explore("Log", changed, seconds=SECONDS)
    assert explored.violated == violated
    assert len(explored.steps) > 3


@pytest.mark.full
@pytest.mark.parametrize(
    "constants",
    [
        ERASERS,
        TWO_JOBS,
        pytest.param({"Editors": "{}", "Importers": "{i, k}"}, marks=pytest.mark.nightly),
    ],
)
def test_no_order_of_steps_loses_anything_among_others(constants: dict[str, str]) -> None:
    """Two who erase, two jobs of which one takes from the other, two who import."""
    explored = explore("Lake", model("Lake", **constants), seconds=SECONDS)
    assert explored.holds
    assert explored.states > 30_000


@pytest.mark.full
@pytest.mark.nightly
@pytest.mark.parametrize(
    "constants",
    [
        dict.fromkeys(("Importers", "Editors", "Erasers", "Cleaners"), THREE),
        {"Editors": "{}", "Importers": "{i, k}", "Erasers": "{e1, e2}"},
    ],
)
def test_no_order_of_steps_loses_anything_among_many(constants: dict[str, str]) -> None:
    """Three processes that do whatever there is; two who import beside two who erase."""
    explored = explore("Lake", model("Lake", **constants), seconds=NIGHT)
    assert explored.holds
    assert explored.states > 200_000


@pytest.mark.full
@pytest.mark.nightly
def test_more_left_behind_is_taken_back_and_deleted_in_the_end() -> None:
    """Of three attempts and erasures."""
    explored = explore("Lake", model("LakeInTheEnd", MaxToken="3"), seconds=NIGHT)
    assert explored.holds
    assert explored.states > 10_000
