"""The page of a report: what is in it, that all of it is escaped, and that it ends somewhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.pipelines.find.growth import (
    GroupGrowth,
    Growth,
    MeasuredSnapshot,
    Size,
    StateGrowth,
    Trend,
)
from statelake.pipelines.report.contents import (
    DETAILED,
    DETAILED_STATES,
    GrowthStep,
    Integrity,
    Report,
    ReportedFault,
)
from statelake.pipelines.report.gathering import savepoint_report
from statelake.pipelines.report.markup import content_policy, data_text, tag, text
from statelake.pipelines.report.page import page_of
from statelake.pipelines.requests.reading import SavepointPage
from statelake.pipelines.shown import json_text
from statelake.state_core.formats.description import (
    OperatorDescription,
    StateDescription,
)
from statelake.state_core.formats.key_weights import HeavyKey
from statelake.state_core.model.redistribution import held_groups
from statelake.state_core.printable import printable
from tests.support.lakes import DEMO
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.hostile_names import HOSTILE, hostile_savepoint

OURS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "dl", "div", "dt",
    "dd", "p", "a", "code", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure",
    "figcaption", "svg", "rect", "polyline", "form", "label", "input", "script",
}  # fmt: skip
COLOUR = re.compile(r"--(\w+): #(\w{6})")


class Read(HTMLParser):
    """What a browser would find: tags with their attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.texts.append(data)


def reported(savepoint: str, limit: int, *, check: bool = False) -> Report:
    """The report of a savepoint."""
    return savepoint_report(SavepointPage(savepoint, "page.html", limit=limit, check=check))


def operator(label: str, states: int = 1, keys: int = 0, groups: int = 128) -> OperatorDescription:
    """An operator with a byte in each key group."""
    heavy = tuple(HeavyKey(f"key {index}", 0, 1, 1) for index in range(keys))
    held = tuple(
        StateDescription(
            f"state {index}",
            "value",
            "String",
            "VoidNamespace",
            "Long",
            schema=pa.schema({"value": pa.int64()}),
            entries=1,
            size=1,
            heaviest=heavy,
        )
        for index in range(states)
    )
    ones = np.ones(groups, np.int64)
    return OperatorDescription(
        "0" * 32, label, "", 2, groups, groups, keyed_states=held,
        key_groups=held_groups(ones, ones), counted=True,
    )  # fmt: skip


def growth(name: str, snapshots: int) -> Growth:
    """A job that grew by a byte a day, in states, snapshots and an operator of that name."""
    begins = datetime(2026, 1, 1, tzinfo=timezone.utc)
    steps = [
        MeasuredSnapshot(name, begins + timedelta(days=day), Size(1, day + 1), day + 1)
        for day in range(snapshots)
    ]
    trend = Trend(1.0, 0.0, snapshots - 1, snapshots / 2, 1, snapshots)
    state = StateGrowth(
        name, name, "value", name, False, steps[0].total, steps[-1].total, trend, cause=name,
        because=name, hint=name,
    )  # fmt: skip
    return Growth(steps, trend, [state], [GroupGrowth(name, 7, 1, snapshots)], (1.0, 1.0), 30)


def page(*operators: OperatorDescription, integrity: Integrity | None = None) -> str:
    """The page of some operators."""
    return page_of(Report("a", (("Snapshot", "a"),), operators, integrity))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_and_attributes_are_escaped(hostile: str) -> None:
    """Whatever a name is, it is the text of one element, and the value of one attribute."""
    made = tag("p", hostile, title=hostile)
    read = Read(made)
    assert [name for name, _ in read.tags] == ["p"]
    assert read.tags[0][1] == {"title": printable(hostile)}
    assert "".join(read.texts) == printable(hostile)
    assert made.isascii() or not re.search("[\x00-\x1f\u2028-\u202e]", made)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_data_stays_within_its_script(hostile: str) -> None:
    """It is the same value, and holds nothing that ends a script or a line."""
    made = data_text({hostile: [hostile, 1]})
    assert json.loads(made) == {hostile: [hostile, 1]}
    assert made.isascii()
    assert not set(made) & set("<>&\n")


def test_long_text_is_cut() -> None:
    """A name is no book."""
    assert text("x" * 5000) == "x" * 1000 + "…"


def test_a_hostile_snapshot_is_text(tmp_path: Path) -> None:
    """Its names and keys are shown, and make no tag, no attribute and no identifier of theirs."""
    made = page_of(
        savepoint_report(
            SavepointPage(
                str(hostile_savepoint(tmp_path / "sp")), "page.html", limit=20, check=True
            )
        )
    )
    read = Read(made)
    assert {name for name, _ in read.tags} <= OURS | {"title"}
    named = {key for _, attributes in read.tags for key in attributes}
    assert not [key for key in named if key.startswith("on") or key in ("src", "style")]
    links = [attributes["href"] for name, attributes in read.tags if name == "a"]
    assert links == [f"#operator-{number}" for number in range(len(HOSTILE))]
    assert sum(name == "script" for name, _ in read.tags) == 2
    for hostile in HOSTILE:
        assert printable(hostile) in read.texts
        assert json_text(hostile) in read.texts  # as a key
    assert not re.search("[\x00-\x09\x0b-\x1f\u2028-\u202e]", made)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_that_is_told_is_markup(hostile: str) -> None:
    """Titles, facts, snapshots of a lake, faults, what was not checked, and errors neither."""
    taken = datetime(2026, 11, 22, tzinfo=timezone.utc)
    (state,) = operator(hostile).keyed_states
    named = replace(operator(hostile), keyed_states=(replace(state, key_type=hostile),))
    made = page_of(
        Report(
            hostile,
            ((hostile, hostile),),
            (replace(named, problem=hostile),),
            Integrity((ReportedFault(hostile, hostile, hostile, hostile),), (hostile,)),
            (GrowthStep(hostile, taken, 1, 1, 1),),
            hostile,
            growth(hostile, 2),
            hostile,
        )
    )
    read = Read(made)
    assert {name for name, _ in read.tags} <= OURS
    assert sum(name in {"script", "style", "title"} for name, _ in read.tags) == 4 + 2 + 128
    assert read.texts.count(printable(hostile)) >= 10
    assert made.count("</script>") == 2


def test_nothing_is_loaded_from_anywhere() -> None:
    """There is no address in the page, and its policy lets nothing run but its own two parts."""
    made = page_of(reported(str(DEMO / "monday"), 5, check=True))
    assert "://" not in made
    assert "url(" not in made
    assert "@import" not in made
    style = resources.files("statelake.pipelines.report").joinpath("page.css").read_text("utf-8")
    script = resources.files("statelake.pipelines.report").joinpath("page.js").read_text("utf-8")
    policy = dict(Read(made).tags[3][1])
    assert policy == {
        "http-equiv": "Content-Security-Policy",
        "content": content_policy(style, script),
    }
    assert str(policy["content"]).startswith("default-src 'none'; style-src 'sha256-")
    assert f"<style>{style}</style>" in made
    assert f"<script>{script}</script>" in made


def test_the_same_snapshot_makes_the_same_page() -> None:
    """To the byte: reports can be compared."""
    first, second = (page_of(reported(str(DEMO / "monday"), 5)) for _ in range(2))
    assert first == second


def test_states_types_sizes_and_keys_are_there() -> None:
    """What `inspect` and `top` say of the demo's savepoint."""
    read = Read(page_of(reported(str(DEMO / "monday"), 2)))
    said = "|".join(read.texts)
    assert "kinds|kinds|2|128|45.4 KiB|" in said
    assert "scores|map|VoidNamespace|String → Double|double|180|3.7 KiB" in said
    assert "session|value|VoidNamespace|String (ttl)|string|120|3.3 KiB" in said
    assert "row|value|VoidNamespace|Row<Long, String, Double>|struct<f0: int64, f1: string" in said
    weights = open_snapshot(DEMO / "monday").operator("kinds").state("total").to_arrow()
    heaviest = [key for key in weights.column("key").to_pylist() if f"{key}|total|" in said]
    assert len(heaviest) == 2


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_every_golden_snapshot_has_a_page(case: GoldenCase) -> None:
    """Whatever its states and keys are: each has a row, and each key group its bytes in a bar."""
    gathered = reported(str(case.snapshot), 3)
    read = Read(page_of(gathered))
    assert {name for name, _ in read.tags} <= OURS
    for shown in gathered.operators:
        assert all(state.name in read.texts for state in shown.states)
        keyed = sum(state.size or 0 for state in shown.keyed_states)
        assert keyed == int(shown.sizes.sum())
        heavy = [state.heaviest[0] for state in shown.states if state.heaviest]
        assert all(0 < key.size <= shown.sizes[key.key_group] for key in heavy)


def test_every_table_can_be_read_aloud() -> None:
    """A caption, columns and rows with a scope, one first headline, none left out, no id twice."""
    made = page_of(reported(str(DEMO / "monday"), 5, check=True))
    tags = Read(made).tags
    names = [name for name, _ in tags]
    assert names.count("table") == names.count("caption") > 3
    assert {attributes.get("scope") for name, attributes in tags if name == "th"} == {"col", "row"}
    levels = [int(name[1]) for name in names if name in ("h1", "h2", "h3")]
    assert levels[0] == 1 < min(levels[1:])
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    referred = [
        attributes[key] for _, attributes in tags for key in ("for", "aria-labelledby")
        if key in attributes
    ]  # fmt: skip
    assert len(referred) == 2
    assert set(referred) <= set(ids)


def luminance(colour: str) -> float:
    """Of a colour, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_suffices(scheme: int) -> None:
    """Text has at least 4.5 to 1 on what it stands on, as WCAG AA asks, and bars 3 to 1."""
    style = resources.files("statelake.pipelines.report").joinpath("page.css").read_text("utf-8")
    colours = dict(COLOUR.findall(style.split("@media", 2)[scheme]))
    for name, least in (
        ("ink", 7.0), ("quiet", 4.5), ("first", 4.5), ("bad", 4.5), ("good", 4.5), ("second", 3.0),
    ):  # fmt: skip
        for under in ("paper", "panel"):
            bright, dim = sorted(map(luminance, (colours[name], colours[under])), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= least, (name, under)


def test_rows_end_somewhere() -> None:
    """Of operators, keys, subtasks and faults there are so many, and it says how many more."""
    wide = replace(operator("wide", states=3, keys=400, groups=32768), parallelism=32768)
    many = [operator(f"o{index}") for index in range(600)]
    fault = ReportedFault("key", "o1", "it is wrong", "mend it")
    lines = tuple(f"line {index}" for index in range(700))
    made = page(wide, *many, integrity=Integrity((fault,) * 900, lines))
    for left in (101, 700, 32668, 400, 200):
        assert f"… and {left:,} more" in made
    assert made.count("<h2 id=") == DETAILED
    assert made.count("<rect") == 256 + (DETAILED - 1) * 128
    assert len(made) < 2_000_000


def test_growth_is_a_line_through_all_snapshots() -> None:
    """By time, however many there are; of states there are so many, and it says how many more."""
    found = growth("a", 300)
    found.states *= 700
    made = page_of(Report("a", (), (), growth=(GrowthStep("b", found.steps[0].taken_at, 1, 1, 1),),
                          grown=found))  # fmt: skip
    (line,) = (attributes for name, attributes in Read(made).tags if name == "polyline")
    points = [tuple(map(float, each.split(","))) for each in str(line["points"]).split()]
    assert len(points) == 300
    assert (points[0], points[-1]) == ((0, 996.7), (1000, 0))
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))
    assert "… and 200 more" in made
    assert "<rect" not in made  # none of them is that of the report


def test_states_that_are_left_out_are_counted() -> None:
    """An operator may have more than a page can show."""
    made = page(operator("o", states=DETAILED_STATES + 1000))
    assert "… and 1,000 more" in made


def test_an_operator_that_could_not_be_read() -> None:
    """It is told, and so are the others."""
    broken = OperatorDescription("b", "", "", 1, 128, 7, problem="f1: the file <ends> early")
    read = Read(page(broken, operator("o")))
    assert "Not all of its state could be read: f1: the file <ends> early" in read.texts
    assert "o, keyed by" not in read.texts
    assert any(said.endswith("keyed by String, parallelism 2, max parallelism 128")
               for said in read.texts)  # fmt: skip
