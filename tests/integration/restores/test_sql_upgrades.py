"""Real Flink goes on from an upgraded savepoint of a SQL job, with the numbers that were promised.

A job of an old query reads the first half of its tables and stops with a savepoint. That is
upgraded for a new query, whose job reads the second half. What its sink gets is held to what the
sink of a job gets that had the new query from the beginning; of a column that starts now, to that
of a job that reads the second half alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

import statelake as sl
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.changes import UpgradeSql
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade, upgrade_sql_job
from statelake.state_core.plans.matches import Fate
from tests.integration.flink.generated_queries import (
    COLUMNS,
    FIRING,
    SET_KEYS,
    TIMED,
    Query,
    drawn_pair,
    folded_pair,
    keyed_pair,
    merged_pair,
    noded_pair,
    write_tables,
)
from tests.integration.flink.oracle import FlinkError
from tests.integration.flink.sql_jobs import SqlFlink
from tests.integration.flink.sql_versions import write_rows
from tests.integration.flink.whole_nodes import NODES, WholeNode

pytestmark = [pytest.mark.flink, pytest.mark.full]

ENGINE = LocalEngine()
ACCEPTED = ("partly", "filter")
SOURCES_OF_ROWS = ("o", "p", "inner2")  # whose rows are never updated, and held nowhere
REFUSED = (Fate.UNKNOWN.value, Fate.LOST.value)
# Flink 1.20 can't run what it compiles, and 2.3 can't load it: not a matter of state
OF_FLINK = ("does not support retraction", "Could not resolve internal system function")
# a savepoint of Flink 1 has hashes alone: the uids of the tests' sources
UIDS = [f"{number}_{name}" for number in range(60) for name in ("numbers", "rows")]


@dataclass
class Judged:
    """What came of the pairs of queries: how many had which fate, and what was wrong.

    Also of how many of each shape with windows a window was over after the upgrade.
    """

    fates: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def judge(
    old: SqlFlink,
    new: SqlFlink,
    seed: int,
    to: Path,
    judged: Judged,
    *,
    plain: bool | Literal["old"] = False,
    pair: tuple[Query, Query] | None = None,
    draw: Callable[[Random], tuple[Query, Query, str]] = drawn_pair,
) -> None:
    """Try a pair of queries, or draw one and an edit.

    Args:
        old: The Flink of the old job.
        new: That of the new one.
        seed: By which is drawn what is not given.
        to: A directory for files.
        judged: What came of pairs.
        plain: Whether jobs run without their plans; `old` if the old one alone does.
        pair: The queries.
        draw: By which they are drawn, with the names of the edits, if they are not given.
    """
    random = Random(seed)
    directory = to / f"pair-{seed}"
    directory.mkdir()
    tables = write_tables(directory, random)
    query, changed, names = draw(random) if pair is None else (*pair, "given")
    parallelism, backend = random.choice([1, 3]), random.choice(["hashmap", "rocksdb"])
    other = random.choice(["hashmap", "rocksdb"]), random.choice([1, 3])
    # without uids the topology has the parallelism in it: operators chain if theirs is equal
    again = (other[0], parallelism) if plain else other

    def half(of: dict[str, Any], part: int) -> dict[str, tuple[int, int]]:
        # a plan may read less tables than its query: a join that adds nothing is left out
        scans = [node["scanTableSource"] for node in of["nodes"] if "scanTableSource" in node]
        names = {scan["table"]["identifier"].rpartition(".")[2].strip("`") for scan in scans}
        sizes = {name: len((directory / f"{name}.rows").read_text().splitlines())
                 for name in sorted(names)}  # fmt: skip
        return {
            name: (part * (size // 2), size if part else size // 2) for name, size in sizes.items()
        }

    try:
        old_plan, old_nodes = old.compile(tables.replace(COLUMNS, query.columns) + query.sql)
        new_plan, new_nodes = new.compile(tables.replace(COLUMNS, changed.columns) + changed.sql)
        old_job = old_plan.with_suffix(".sql") if plain else old_plan
        new_job = new_plan.with_suffix(".sql") if plain is True else new_plan
        taken, first = old.run(old_job, half(old_nodes, 0), "", backend, parallelism)
        begun, all_first = new.run(new_job, half(new_nodes, 0), "", backend, parallelism)
    except FlinkError as error:
        if any(words in str(error) for words in OF_FLINK):
            return
        raise
    lake = Catalog(directory / "lake")
    import_snapshot(lake, str(taken), "job", Import(uids=UIDS), snapshot_id="old", engine=ENGINE)
    request = UpgradeSql(
        old_plan, new_plan, accept=ACCEPTED, no_uids=plain,
        like=begun if plain == "old" else None, suffix="-new",
    )  # fmt: skip
    upgrade = upgrade_sql_job(ChildSnapshot(lake, "job", "old", "old-new", engine=ENGINE), request)
    fate = _worst(upgrade)
    judged.fates[fate.value] += 1
    judged.served[f"{names}: {fate.value}"] += 1
    if fate.value in REFUSED:
        assert not upgrade.made
        assert not lake.has("job", "old-new")
        return
    assert upgrade.made, upgrade.refused
    exported = directory / "exported"
    export_snapshot(lake, "job", "old-new", exported, engine=ENGINE)
    _, got = new.run(new_job, half(new_nodes, 1), exported, *again)
    # Flink holds stateless operators to the maximum parallelism that they had at another one
    _, wanted = new.run(new_job, half(new_nodes, 1), begun, backend, parallelism)
    limited = any("come as they change" in why for each in upgrade.operators for why in each.why)
    begun_now = any(not each.goes_on_from for each in upgrade.operators)
    if changed.shape in FIRING:
        judged.fired[changed.shape] += bool(got)
    waits = any("rows by event time wait" in why for each in upgrade.operators for why in each.why)
    same_columns = {*changed.labels} <= {*query.labels}
    if same_columns and (
        waits  # and 2.3 sends these rows later
        # before or after the savepoint, as the watermark had come
        or (
            changed.shape in TIMED and fate is Fate.KEEPS
            and (query.where, {*query.keys}) == (changed.where, {*changed.keys})
        )
    ):  # fmt: skip
        got, wanted = [*_as(first, query, changed), *got], [*all_first, *wanted]
    # rows of before lack a new column, and can't be compared
    if fate is Fate.FILTER or limited or begun_now or (waits and not same_columns):
        return

    def now() -> Sequence[str]:
        return new.run(new_job, half(new_nodes, 1), "", backend, parallelism)[1]

    if _differs(query, changed, fate, got, wanted, now):
        judged.wrong.append(f"{seed}, {names}, {fate.value}:\n{query.sql}\n{changed.sql}")


def _as(lines: Sequence[str], query: Query, changed: Query) -> list[str]:
    """Return rows of a query as those of another one, which has no other columns."""
    at = [2 + query.labels.index(label) for label in changed.labels]
    rows = (line.split("|") for line in lines)
    return ["|".join([*row[:2], *(row[index] for index in at)]) for row in rows]


def _differs(
    query: Query,
    changed: Query,
    fate: Fate,
    got: Sequence[str],
    wanted: Sequence[str],
    now: Callable[[], Sequence[str]],
) -> bool:
    """Return whether rows are not those that were promised.

    Args:
        query: The old query.
        changed: The new one.
        fate: What was promised.
        got: The rows.
        wanted: Those of a job that had the new query from the beginning.
        now: Returns those of a job that has it from now on.
    """
    if query.shape == "sets":
        got, wanted = (_of_sets(lines, _grouping_sets(query)) for lines in (got, wanted))
    counted = fate is Fate.STARTS_NOW and _begins_with_rows(changed)
    kept = [
        index for index, label in enumerate(changed.labels)
        if fate in (Fate.KEEPS, Fate.FULL)
        # of other rows the same text is another column
        or (label in query.labels and (_same_rows(query, changed) or not counted))
    ]  # fmt: skip
    wrong = _net(got, kept) != _net(wanted, kept)
    if counted:
        begun = now()
        begun = _of_sets(begun, _grouping_sets(query)) if query.shape == "sets" else begun
        others = set(range(len(changed.labels))) - set(kept)
        wrong |= not all(_begins(changed, column, got, begun, wanted) for column in others)
    return wrong


def _begins_with_rows(query: Query) -> bool:
    """Return whether what starts now is what a job has that reads from now on."""
    if query.shape == "window":  # a session begins with rows that came before
        return not query.setting.startswith("SESSION")
    # an OVER has rows that wait for their time
    return query.shape in ("agg", "sets") and query.source in SOURCES_OF_ROWS


def _same_rows(query: Query, changed: Query) -> bool:
    return (query.source, changed.source) in ((changed.source, query.source), ("inner", "inner2"))


def _grouping_sets(query: Query) -> set[tuple[str, ...]]:
    """Return the grouping sets of a query, each by whether its keys are not in it."""
    name, of = query.setting.partition("(")[::2]
    if "CUBE" in name:
        return {(a, b) for a in "01" for b in "01"}
    if "ROLLUP" in name:
        return {("0", "0"), ("0", "1"), ("1", "1")}
    sets = re.findall(r"\(([^()]*)\)", of)
    return {tuple("01"[key not in each.split(", ")] for key in SET_KEYS) for each in sets}


def _of_sets(lines: Sequence[str], sets: set[tuple[str, ...]]) -> list[str]:
    """Return the rows of some grouping sets; others began with the new query."""
    return [line for line in lines if tuple(line.split("|")[4:6]) in sets]


def _begins(
    query: Query, column: int, got: Sequence[str], now: Sequence[str], wanted: Sequence[str]
) -> bool:
    """Return whether a new column is that of a job that reads the second half, or all."""
    held = [at for at, label in enumerate(query.labels) if "(" not in label]
    results, now_counted, all_counted = (
        _net(lines, [*held, column]) for lines in (got, now, wanted)
    )
    # windows that no later row is in have what a new column is before the first row
    known = {row[:-1] for row in now_counted}
    left = {row for row, count in results.items() if count > 0 and row[:-1] in known}
    return left <= set(now_counted) or results == all_counted


def _worst(upgrade: SqlUpgrade) -> Fate:
    return max(
        (Fate(each.fate) for each in upgrade.operators), key=lambda fate: fate.rank,
        default=Fate.KEEPS,
    )  # fmt: skip


def _net(lines: Sequence[str], columns: Sequence[int]) -> dict[tuple[str, ...], int]:
    """What a sink's rows come to in some columns: how often each came, less how often it went."""
    count: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        _, kind, *values = line.split("|")
        count[tuple(values[column] for column in columns)] += 1 if kind[0] == "+" else -1
    return {row: number for row, number in count.items() if number}


@pytest.fixture
def flinks(tmp_path: Path) -> Iterator[dict[str, SqlFlink]]:
    """Flink 1.20 and 2.3, started when asked."""
    with ExitStack() as stack:

        class Started(dict[str, SqlFlink]):
            def __missing__(self, version: str) -> SqlFlink:
                self[version] = stack.enter_context(SqlFlink(version, tmp_path / version))
                return self[version]

        yield Started()


@pytest.mark.parametrize(
    ("old", "new", "seeds", "plain"),
    [
        ("2.3.0", "2.3.0", range(6), False),
        ("2.3.0", "2.3.0", range(200, 203), True),
        ("1.20.0", "2.3.0", range(100, 103), False),
        pytest.param("2.3.0", "2.3.0", range(6, 300), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "1.20.0", range(2000, 2150), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "2.3.0", range(103, 250), False, marks=pytest.mark.nightly),
        pytest.param("2.3.0", "2.3.0", range(203, 300), True, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "1.20.0", range(5000, 5050), True, marks=pytest.mark.nightly),
    ],
)
def test_jobs_of_changed_queries_have_the_numbers_that_were_promised(
    old: str, new: str, seeds: range, plain: bool, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """Pairs of queries, at two parallelisms, in either backend, over tables with updates or not."""
    judged = Judged()
    for seed in seeds:
        judge(flinks[old], flinks[new], seed, tmp_path, judged, plain=plain)
    for line in sorted(judged.served.items()):
        print(*line)  # noqa: T201 - with -s it is what the documentation counts
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert any(judged.fates[fate.value] for fate in Fate if fate.value not in REFUSED)


@pytest.mark.parametrize(
    ("old", "new", "seeds"),
    [
        ("2.3.0", "2.3.0", range(5)),
        ("1.20.0", "1.20.0", range(100, 102)),
        pytest.param("2.3.0", "2.3.0", range(5, 150), marks=pytest.mark.nightly),
        pytest.param("1.20.0", "1.20.0", range(102, 200), marks=pytest.mark.nightly),
        pytest.param("1.20.0", "2.3.0", range(8000, 8050), marks=pytest.mark.nightly),
    ],
)
def test_groups_that_merge_have_the_numbers_that_were_promised(
    old: str, new: str, seeds: range, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """Of a key that is removed, with and without another edit."""
    judged = Judged()
    for seed in seeds:
        judge(flinks[old], flinks[new], seed, tmp_path, judged, draw=merged_pair)
    for line in sorted(judged.served.items()):
        print(*line)  # noqa: T201 - with -s it is what the documentation counts
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert judged.fates[Fate.KEEPS.value]


@pytest.mark.parametrize(
    ("version", "seeds", "plain"),
    [
        ("2.3.0", range(6), False),
        ("1.20.0", range(100, 103), False),
        pytest.param("2.3.0", range(6, 120), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", range(103, 200), False, marks=pytest.mark.nightly),
        pytest.param("2.3.0", range(8000, 8020), True, marks=pytest.mark.nightly),
    ],
)
def test_what_is_computed_in_full_has_the_numbers_of_a_job_that_never_stopped(
    version: str, seeds: range, plain: bool, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """New aggregates above a table's changes, a deduplication, another aggregate, a join."""
    judged = Judged()
    for seed in seeds:
        judge(
            flinks[version], flinks[version], seed, tmp_path, judged, plain=plain, draw=folded_pair
        )
    for line in sorted(judged.served.items()):
        print(*line)  # noqa: T201 - with -s it is what the documentation counts
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert judged.fates[Fate.FULL.value]


@pytest.mark.parametrize(
    ("old", "new", "seeds", "plain"),
    [
        ("2.3.0", "2.3.0", range(6), False),
        ("1.20.0", "1.20.0", range(100, 103), True),
        pytest.param("2.3.0", "2.3.0", range(6, 250), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "1.20.0", range(7000, 7150), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "2.3.0", range(8000, 8050), False, marks=pytest.mark.nightly),
        pytest.param("2.3.0", "2.3.0", range(9000, 9050), True, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "1.20.0", range(103, 105), True, marks=pytest.mark.nightly),
    ],
)
def test_keys_that_move_have_the_numbers_that_were_promised(
    old: str, new: str, seeds: range, plain: bool, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """Keys in another order, of wider types or cast to one, at any node that has a key."""
    judged = Judged()
    for seed in seeds:
        judge(flinks[old], flinks[new], seed, tmp_path, judged, plain=plain, draw=keyed_pair)
    for line in sorted(judged.served.items()):
        print(*line)  # noqa: T201 - with -s it is what the documentation counts
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert judged.fates[Fate.KEEPS.value]


@pytest.mark.parametrize(
    ("old", "new", "seeds", "plain"),
    [
        ("2.3.0", "2.3.0", range(2), False),
        pytest.param("2.3.0", "2.3.0", range(2, 90), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "2.3.0", range(11000, 11070), False, marks=pytest.mark.nightly),
        pytest.param("1.20.0", "1.20.0", range(12000, 12030), False, marks=pytest.mark.nightly),
        pytest.param("2.3.0", "2.3.0", range(13000, 13020), "old", marks=pytest.mark.nightly),
    ],
)
def test_other_nodes_have_the_numbers_that_were_promised(
    old: str,
    new: str,
    seeds: range,
    plain: bool | Literal["old"],
    flinks: dict[str, SqlFlink],
    tmp_path: Path,
) -> None:
    """Grouping sets, functions of users, LATERAL, changes of each kind, all windows, nested ones.

    Windows are over in both halves: what they send is compared, too.
    """
    judged = Judged()
    for seed in seeds:
        judge(flinks[old], flinks[new], seed, tmp_path, judged, plain=plain, draw=noded_pair)
    for line in (*sorted(judged.served.items()), ("fired", dict(judged.fired))):
        print(*line)  # noqa: T201 - with -s it is what the documentation counts
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert any(judged.fates[fate.value] for fate in Fate if fate.value not in REFUSED)
    assert all(judged.fired.values())


def _grouped(*items: str) -> Query:
    return Query("agg", "o", (), ("g",), items)


def _upserted(g: str, key: str) -> Query:
    """Groups in a table of a primary key, whose changes come by another or none."""
    columns = COLUMNS.replace("g BIGINT", f"g {g}")
    options = (
        "SET 'table.exec.sink.not-null-enforcer' = 'DROP';\n"
        "SET 'table.exec.sink.upsert-materialize' = 'FORCE';\n"
        f"CREATE TABLE s (g {g}, name STRING, c BIGINT, m BIGINT, PRIMARY KEY ({key}) NOT ENFORCED)"
        " WITH ('connector' = 'halves', 'upserts' = 'true');\nINSERT INTO s "
    )
    items = ("COUNT(*)", "MAX(v)")
    return Query("agg", "o", (), ("g", "name"), items, options=options, columns=columns)


@pytest.mark.parametrize("version", ["2.3.0", "1.20.0"])
def test_keys_of_a_table_that_is_written_move(
    version: str, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """With the rows that its sink holds by them; another primary key is refused."""
    judged, flink = Judged(), flinks[version]
    for seed, (old, new) in enumerate(
        [
            (_upserted("SMALLINT", "g, name"), _upserted("BIGINT", "g, name")),
            (_upserted("SMALLINT", "name, g"), _upserted("SMALLINT", "g, name")),
            (_upserted("SMALLINT", "name, g"), _upserted("BIGINT", "g, name")),
            (_upserted("SMALLINT", "name, g"), _upserted("SMALLINT", "name")),
        ]
    ):
        judge(flink, flink, seed, tmp_path, judged, pair=(old, new))
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert judged.fates == {"keeps": 3, "lost": 1}


SUM, BOTH = _grouped("SUM(v)", "COUNT(v)"), _grouped("SUM(v)", "COUNT(v)", "AVG(v)")
SHORT = ("MIN(CAST(name AS VARCHAR(10)))", "MAX(CAST(name AS CHAR(3)))")
RETYPED = COLUMNS.replace("g BIGINT", "g BIGINT NOT NULL").replace("STRING", "VARCHAR(10)")
DISTINCT = ("COUNT(DISTINCT v)", "SUM(DISTINCT v)", "AVG(DISTINCT v)")
BITS = ((slice(1), slice(2)), (slice(2), slice(1, 2)), (slice(3), slice(2)))
FILTERED = tuple(f"COUNT(DISTINCT v) FILTER (WHERE id > {least})" for least in (10, 20))
BEGUN = (
    (("SUM(v)",), ("AVG(v)", "SUM(v)")),
    (("COUNT(v)",), ("AVG(v)",)),
    (("SUM(DISTINCT v)",), ("COUNT(DISTINCT v)",)),
    (("SUM(DISTINCT v)",), ("COUNT(DISTINCT v)", "SUM(DISTINCT v)")),
    (("SUM(DISTINCT v)", "COUNT(DISTINCT v)"), (FILTERED[0], "COUNT(DISTINCT v)")),
    (FILTERED, (FILTERED[1], "MAX(v)", FILTERED[0])),
)
REMADE = (
    (FILTERED, FILTERED[::-1]),
    (("SUM(DISTINCT v)", "COUNT(DISTINCT v)"), ("AVG(DISTINCT v)", "COUNT(DISTINCT v)")),
)
NOT_NULL = COLUMNS.replace("id BIGINT", "id BIGINT NOT NULL")
MIXED = (
    (("SUM(v)",), ("SUM(v)", "AVG(v)", "COUNT(v)")),
    (("COUNT(v)",), ("COUNT(v)", "SUM(v)", "AVG(v)")),
    (("SUM(id)",), ("SUM(id)", "AVG(id)", "COUNT(*)")),
    (("MAX(id)",), ("MAX(id)", "SUM(id)", "AVG(id)", "COUNT(*)")),
    (("MAX(v)",), ("MAX(v)", "100 / COUNT(*)")),
)
HOP = Query("window", "o", (), ("g",), ("COUNT(DISTINCT v)", "AVG(DISTINCT v)"),
            "HOP INTERVAL '5' SECOND, INTERVAL '10' SECOND")  # fmt: skip
SELF = Query("join", "u+u", (), ("g",), ("a.id", "a.v", "b.name"), "INNER")


def test_pairs_that_are_not_drawn_have_the_numbers_that_were_promised(
    flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """Sums that the planner holds otherwise, averages, DISTINCT, hopping windows, texts, types."""
    judged = Judged()
    short = _grouped("COUNT(*)", *SHORT)
    pairs = [
        (SUM, BOTH),
        (BOTH, SUM),
        (_grouped("COUNT(*)"), short),
        (short, _grouped(*reversed(short.items))),
        (SELF, Query(**{**vars(SELF), "items": ("b.name", "a.v", "a.id")})),
        *((_grouped(*DISTINCT[old]), _grouped(*DISTINCT[new])) for old, new in BITS),
        *((_grouped(*old), _grouped(*new)) for old, new in (*BEGUN, *REMADE)),
        *(tuple(replace(_grouped(*items), columns=NOT_NULL) for items in mixed) for mixed in MIXED),
        (HOP, replace(HOP, items=HOP.items[::-1])),
        (replace(HOP, items=HOP.items[:1]), replace(HOP, items=HOP.items[1:])),
        (replace(HOP, items=HOP.items[:1]), HOP),
    ]
    for seed, pair in enumerate(pairs):
        judge(flinks["2.3.0"], flinks["2.3.0"], seed, tmp_path, judged, pair=pair)
    named = Query("agg", "o", (), ("g", "name"), ("COUNT(*)",))
    for seed, columns in enumerate([(COLUMNS, RETYPED), (RETYPED, COLUMNS)], len(pairs)):
        pair = (replace(named, columns=columns[0]), replace(named, columns=columns[1]))
        judge(flinks["2.3.0"], flinks["2.3.0"], seed, tmp_path, judged, pair=pair)
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert judged.fates == {"keeps": 11, "starts now": 9, "unknown": len(MIXED) + 1}


@pytest.mark.nightly
def test_first_rows_and_tops_of_one_row_have_the_numbers_that_were_promised(
    flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """First rows by event time of 1.20 are not sent again by 2.3; a TopN of one row has columns."""
    judged = Judged()
    early = Query("early", "p", (), ("g", "name"), ("id", "v"))
    top = Query("top", "o", (), ("g",), ("id", "v"), "1")
    pairs = [
        (early, early),
        (early, replace(early, items=("v",))),
        (top, replace(top, items=("v", "id", "name"))),
    ]
    for seed, pair in enumerate(pairs):
        judge(flinks["1.20.0"], flinks["2.3.0"], seed, tmp_path, judged, pair=pair)
    assert not judged.wrong, "\n\n".join(judged.wrong)
    assert judged.fates == {"starts now": 2, "keeps": 1}


def _scanned(plan: dict[str, Any], part: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """The rows that each table of a plan is to read; of tables beside the query none."""
    scans = [node["scanTableSource"] for node in plan["nodes"] if "scanTableSource" in node]
    names = {scan["table"]["identifier"].rpartition(".")[2].strip("`") for scan in scans}
    return {name: (0, 0) if name == "Aside" else part for name in sorted(names)}


def _of_query(lines: Sequence[str], sink: str) -> dict[str, int]:
    """What a sink got, as far as it was not taken back: tables are read side by side."""
    count: Counter[str] = Counter()
    for line in lines:
        name, kind, row = line.split("|", 2)
        count[row] += (name == sink) * (1 if kind[0] == "+" else -1)
    return {row: number for row, number in count.items() if number}


def _bytes_of(operator: sl.Operator) -> dict[str, list[tuple[bytes, ...]]]:
    """The bytes of all keyed state of an operator, and of its operator state."""
    held: dict[str, list[tuple[bytes, ...]]] = {}
    for state in operator.keyed_states:
        table = state.to_arrow()
        names = [name for name in table.schema.names if name.startswith("raw_")]
        held[state.name] = sorted(tuple(row.values()) for row in table.select(names).to_pylist())
    for other in operator.operator_states:
        held[other.name] = [(each,) for part in other.parts for each in part.encoded()]
    return held


@pytest.mark.parametrize(
    ("version", "plain"), [("2.3.0", False), ("2.3.0", True), ("1.20.0", False)]
)
def test_state_that_is_known_as_a_whole_goes_on_byte_for_byte(
    version: str, plain: bool, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """Behind another query, under other ids, with all results; of a changed query it is refused."""
    for number, node in enumerate(NODES):
        if node.since <= version:
            to = tmp_path / str(number)
            to.mkdir()
            (to / "Aside").touch()
            judge_whole(flinks[version], node, to, plain=plain)


def judge_whole(flink: SqlFlink, node: WholeNode, to: Path, *, plain: bool) -> None:
    """Upgrade a job of a node whose state is known as a whole, and hold it to one that stays."""

    def compiled(sql: str) -> tuple[Path, dict[str, Any]]:
        return flink.compile(write_rows(sql, to).replace("'none'", f"'{to / 'Aside'}'"))

    (old, nodes), (new, more), (changed, _) = map(
        compiled, (node.old(), node.new(), node.old(node.changed))
    )
    jobs = [each.with_suffix(".sql") if plain else each for each in (old, new)]
    taken, _ = flink.run(jobs[0], _scanned(nodes, (0, 12)))
    words: Any = {"no_uids": plain, "uids": [] if plain else UIDS}
    upgraded = sl.sql_upgrade(taken, to / "upgraded", old, new, **words)
    assert {each.fate for each in upgraded.operators} == {"keeps"}, str(upgraded)
    (whole,) = (each for each in upgraded.operators if each.operator.startswith(_label(node)))
    assert whole.operator != whole.goes_on_from
    assert whole.entries
    held = []
    for at, plan, label in (
        (taken, old, whole.goes_on_from), (to / "upgraded", new, whole.operator),
    ):  # fmt: skip
        snapshot = sl.open_snapshot(at, plan=plan, uids=words["uids"])
        (operator,) = (each for each in snapshot.operators if each.node == label)
        held.append(_bytes_of(operator))
        if node.keys:
            key = operator.keyed_states[0].schema.field("key").type
            keys = (flink.version.startswith("1.") and node.old_keys) or node.keys
            assert tuple(field.name for field in key) == keys
    assert held[0] == held[1]
    assert any(held[0].values())
    rest = (12, 25)
    _, wanted = flink.run(jobs[0], _scanned(nodes, rest), taken)
    _, got = flink.run(jobs[1], _scanned(more, rest), to / "upgraded")
    assert _of_query(got, "sink_1") == _of_query(wanted, "sink_0") != {}
    verdict = sl.check_sql(taken, old, changed, **words)
    (refused,) = (each for each in verdict.operators if each.fate != "keeps")
    assert (refused.fate, refused.goes_on_from) == ("unknown", whole.goes_on_from)
    assert node.says in refused.why[-1]
    assert f"--accept lost={refused.operator}" in refused.why[-1]


def _label(node: WholeNode) -> str:
    return f"{''.join(part.capitalize() for part in node.kind.split('-'))}["
