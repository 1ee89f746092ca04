"""What README and the docs tell people to type can be typed, and prints what stands there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelake import Lake
from statelake.pipelines.cli import demo
from tests.support.command import Ran, run
from tests.support.savepoints.checkpoint_trees import made_tree
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.kryo_jobs import jdk_savepoint
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans

ROOT = Path(__file__).parents[3]
POJO = GOLDEN / "flink" / "pojo-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"
UIDS = ("customers", "places")
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md"))]
TASKS = [
    README,
    *(
        DOCS / f"{name}.md"
        for name in ("archive", "retention", "change", "share", "rescale", "upgrade")
    ),
]
SHOWN = [
    DOCS / f"{name}.md" for name in ("tutorial", "which-change", "without-statelake", "lake-format")
]
MADE = {"commands.md", "examples.md"}  # when the site is built

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like a clone's, in which the demo was run."""
    shutil.copytree(Path(demo.__file__).parent / "savepoints", tmp_path / "demo" / "savepoints")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("STATELAKE_LAKE", "STATELAKE_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASK_SECRET", "a secret of the tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fenced(page: Path) -> list[tuple[str, str]]:
    """The verbatim blocks of a page, each with its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def blocks(page: Path, kind: str) -> list[str]:
    """The verbatim blocks of a page in one language."""
    return [text for name, text in fenced(page) if name == kind]


def typed(page: Path) -> Iterator[list[str]]:
    """The words of each call of statelake in a page's blocks of commands."""
    for block in blocks(page, "sh"):
        yield from typed_in(block)


def typed_in(block: str) -> Iterator[list[str]]:
    """The words of each call of statelake in a block of commands."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "statelake":
            yield words[1:]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_what_a_page_says_can_be_typed(page: Path, clone: Path) -> None:
    """Its commands, one after another, on the savepoints that come with statelake."""
    (jobs,) = (
        block for block in blocks(DOCS / "upgrade.md", "python") if block.startswith("# jobs.py")
    )
    (clone / "jobs.py").write_text(jobs, "utf-8")
    called = list(typed(page))
    assert len(called) >= 2
    if not any(words[0] == "import" for words in called):  # README's first steps come before
        called = [words for words in typed(README) if words[0] == "import"] + called
    for words in called:
        ran = run(*words)
        assert ran.code in {0, 1}, (words, ran.err)
        assert ran.code == 0 or words[0] == "check", (words, ran.out)
    if page == README:
        assert (clone / "savepoints" / "erased" / "_metadata").is_file()


@pytest.mark.full
def test_what_the_page_on_python_says_can_be_run(clone: Path) -> None:
    """All its blocks, one after another, do README's five minutes."""
    program = "".join(blocks(DOCS / "python.md", "python"))
    exec(compile(program, "python.md", "exec"), {})  # noqa: S102 - our own page
    for name in ("erased", "salvaged", "wide"):
        assert (clone / "savepoints" / name / "_metadata").is_file()
    records = run("snapshots", "--lake", clone / "lake", "--job", "orders", "--json").json
    assert [each["snapshot_id"] for each in records] == ["monday", "tuesday", "smaller", "fewer"]
    (python,) = (
        block for block in blocks(DOCS / "one-key.md", "python") if "import statelake" in block
    )
    exec(compile(python.replace('"demo")', '"orders")'), "one-key.md", "exec"), {})  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_are_named_are_there(page: Path) -> None:
    """Examples, and pages that a page leads to."""
    text = page.read_text("utf-8")
    named = set(re.findall(r"\bexamples/\w+\.\w+", text))
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^):]+)\)", text)}
    missing = [name for name in named if not (ROOT / name).is_file()]
    missing += [
        name for name in linked if name and name not in MADE and not (page.parent / name).exists()
    ]
    assert missing == []


@pytest.mark.thinned(2)
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
@pytest.mark.full
def test_a_page_shows_what_its_blocks_print(
    page: Path, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands and Python, one block after another; `...` stands for what differs."""
    if page.stem != "tutorial":  # which imports them itself
        for name in ("monday", "tuesday"):
            options = ("--lake", "lake", "--job", "demo", "--snapshot", name)
            assert run("import", clone / "demo" / "savepoints" / name, *options).code == 0
    names: dict[str, object] = {}
    printed = ""
    shown = 0
    for language, block in fenced(page):
        if language == "sh":
            assert [run(*words).code for words in typed_in(block)] == [0] * block.count("statelake")
        elif language == "python" and "spark." not in block:  # see tests/pipelines/spark
            exec(block, names)  # noqa: S102 - what the page says
            printed = capsys.readouterr().out
        elif printed:
            assert_printed(block, printed)
            printed, shown = "", shown + 1
        else:
            for call in block.replace("\\\n", " ").split("$ statelake ")[1:]:
                command, _, expected = call.partition("\n")
                words = shlex.split(command)
                ran = run(*words)
                assert ran.code == 0, ran.err
                assert_printed(expected, ran.out)
                shown += 1
    assert shown > 2


@pytest.mark.parametrize("page", [README, DOCS / "change.md"], ids=lambda page: page.stem)
def test_a_sample_is_what_is_printed(page: Path, clone: Path) -> None:
    """Of pages whose other blocks are commands alone."""
    monday = clone / "demo" / "savepoints" / "monday"
    run("import", monday, "--lake", "lake", "--job", "kinds", "--snapshot", "monday")
    samples = [block for block in blocks(page, "") if block.startswith("$ statelake ")]
    assert samples
    for sample in samples:
        command, _, expected = sample.replace("\\\n", " ").partition("\n")
        ran = run(*shlex.split(command)[2:])
        assert ran.code == 0, ran.err
        assert_printed(expected, ran.out)


def test_types_and_words_print_what_the_page_on_upgrades_says(clone: Path) -> None:
    """Of customers that are POJOs, whose savepoint and files the page names; TTL of the demo's."""
    monday = clone / "demo" / "savepoints" / "monday"
    run("import", monday, "--lake", "lake", "--job", "kinds", "--snapshot", "monday")
    shop = Lake("lake").job("shop", engine="local")
    shop.import_snapshot(POJO, "monday", uids=["customers"])
    (clone / "savepoint-1.20").symlink_to(POJO)
    text = shop["monday"].types().to_yaml()
    (clone / "types.yaml").write_text(text, "utf-8")
    new = text.replace("        id: Long", "        country: String\n        id: Long")
    (clone / "new-types.yaml").write_text(new.replace("zip: Integer", "zip: Long"), "utf-8")
    calls = [
        call
        for block in blocks(DOCS / "upgrade.md", "")
        for call in block.replace("\\\n", " ").split("$ statelake ")[1:]
    ]
    assert len(calls) == 4
    for call in calls:
        command, _, expected = call.partition("\n")
        ran = run(*shlex.split(command))
        assert ran.code == 0, ran.err
        assert_printed(expected, ran.out)


def test_the_page_on_flink_2_shows_a_plan(clone: Path) -> None:
    """Of customers as Flink 1.20 wrote them, without the operator whose keys are Kryo's."""
    shop = Lake("lake").job("shop", engine="local")
    shop.import_snapshot(jdk_savepoint(clone / "pojos", "pojos-1.20"), "s", uids=UIDS)
    shop["s"].edit("customers").drop_operator("places").save()
    shop["customers"].export(clone / "savepoint-1.20")
    own = "flink: 1\nclasses:\n  PojoJobs$Own: {fields: {number: long}}\n"
    (clone / "own.yaml").write_text(own, "utf-8")
    (shown,) = (block for block in blocks(DOCS / "flink-2.md", "") if block.startswith("$"))
    command, _, expected = shown.partition("\n")
    ran = run(*shlex.split(command)[2:])
    assert ran.code == 1
    assert_printed(expected, ran.out)


def test_the_page_on_flink_sql_shows_what_is_printed(clone: Path) -> None:
    """Of the job whose plans and savepoint real Flink wrote: a verdict, and state in its words."""
    unpack_sql_job("shop", clone / "savepoint-5f1e2c")
    unpack_sql_plans(clone)
    unpack_sql_job("payments", clone / "savepoint-77ab90")
    unpack_sql_plans(clone, "payments-")
    shown = [
        call.partition("\n")
        for block in blocks(DOCS / "flink-sql.md", "")
        for call in block.removeprefix("$ ").split("\n$ ")
        if block.startswith("$")
    ]
    assert len(shown) == 8
    for command, _, expected in shown:
        ran = run(*shlex.split(command)[1:])
        assert ran.code == (3 if expected.startswith("error") else 0), (command, ran.err)
        assert_printed(expected, ran.out + ran.err)


def assert_printed(expected: str, printed: str) -> None:
    """Compare but for blanks, and for what stands as `...`."""
    pattern = re.escape(squeezed(expected)).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, squeezed(printed)), printed


def timeless(text: str) -> str:
    """With the same figures for all that differs from run to run."""
    text = re.sub(r"\b\d{13}-\d\b", "1700000000000-0", text)
    text = re.sub(r"[\d,]+ records/s|\b\d+\.\d\d\b", "0", text)
    return re.sub(r"\b\d+ s\b", "1 s", text)


def squeezed(text: str) -> str:
    """Without the blanks that a table is set with."""
    return " ".join(text.split())


def test_the_wrong_job_is_told_as_the_page_says(clone: Path) -> None:
    """The fault that the page shows is what the check prints of the example."""
    assert clone.is_dir()
    page = ROOT / "docs" / "process-functions.md"
    (block,) = (block for block in blocks(page, "") if "check legality examples/wrong.py" in block)
    ran = run("check", "legality", "examples/wrong.py:JOB")
    assert ran.code == 1
    assert squeezed(ran.out) == squeezed(block.partition("\n")[2])


def feed_example(clone: Path) -> list[tuple[str, str]]:
    """Write the rules of the page's example; the names and lines of its two files of orders."""
    page = (ROOT / "docs" / "process-functions.md").read_text("utf-8")
    for name in ("orders", "rules"):
        (clone / "alerts-data" / name).mkdir(parents=True)
    (clone / "alerts-data" / "rules" / "1.jsonl").write_text('{"rule": "much", "limit": 100}\n')
    return re.findall(r"orders/(\d\.jsonl) <<END\n(.*?)^END$", page, re.DOTALL | re.MULTILINE)


def test_commits_print_what_the_page_says(clone: Path) -> None:
    """Two runs that commit to every backend, and a check of what they committed."""
    orders = feed_example(clone)
    (block,) = (
        block
        for block in blocks(ROOT / "docs" / "commit.md", "")
        if block.startswith("$ statelake")
    )
    samples = block.split("$ ")[1:]
    assert len(samples) == 3
    for sample in samples:
        if orders:
            name, lines = orders.pop(0)
            (clone / "alerts-data" / "orders" / name).write_text(lines, "utf-8")
        command, _, expected = sample.partition("\n")
        ran = run(*shlex.split(command)[1:])
        assert ran.code == 0, ran.err
        assert_printed(expected, ran.out)


def test_runs_print_what_the_page_says(clone: Path) -> None:
    """Two runs, one without new input, and a query of the first one's state."""
    orders = feed_example(clone)
    page = ROOT / "docs" / "process-functions.md"
    (block,) = (block for block in blocks(page, "") if block.startswith("$ mkdir"))
    samples = [part for part in block.split("$ ") if part.startswith("statelake")]
    assert len(samples) == 4
    for sample in samples:
        if orders:
            name, lines = orders.pop(0)
            (clone / "alerts-data" / "orders" / name).write_text(lines, "utf-8")
        command, _, expected = sample.partition("\n")
        ran = run(*shlex.split(command)[1:])
        assert ran.code == 0, ran.err
        assert_printed(timeless(expected), timeless(ran.out))


def test_metrics_are_those_of_the_page(clone: Path) -> None:
    """Line by line, but for times."""
    (name, lines), _ = feed_example(clone)
    (clone / "alerts-data" / "orders" / name).write_text(lines, "utf-8")
    page = ROOT / "docs" / "process-functions.md"
    (block,) = (block for block in blocks(page, "") if "--metrics" in block)
    command, _, shown = block.split("\n", 2)
    assert run(*shlex.split(command)[2:]).code == 0
    written = (clone / "alerts.prom").read_text("utf-8")
    samples = "".join(line for line in written.splitlines(True) if not line.startswith("#"))
    times = re.compile(r"(_seconds|_second)({.*}) .*")
    assert times.sub(r"\1\2", samples) == times.sub(r"\1\2", shown)


def test_the_log_that_a_run_writes_is_where_the_page_says(clone: Path) -> None:
    """The example is run as the pages have it, and its log is listed, verified and dropped from."""
    orders, more = feed_example(clone)
    samples = [
        block.partition("\n")
        for block in blocks(ROOT / "docs" / "checkpoints.md", "")
        if block.startswith("$ statelake") and "old-log" not in block
    ]
    called = [shlex.split(line)[2:] for line, _, _ in samples]
    assert [words[0] for words in called] == ["run", *["checkpoints"] * 3]
    for name, lines in (orders, more):
        (clone / "alerts-data" / "orders" / name).write_text(lines, "utf-8")
        ran: Ran = run(*called[0])
        assert ran.code == 0, ran.err
    said = [run(*words) for words in called[1:]]
    assert [ran.code for ran in said] == [0, 0, 0]
    for (_, _, expected), ran in zip(samples[1:], said, strict=True):
        assert_printed(timeless(expected), timeless(ran.out))


def test_the_page_on_scans_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two jobs, with a checkpoint that lost a file, one that failed, and what that left."""
    root = tmp_path / "checkpoints"
    tree = made_tree(f"file:{root}", 2, 3, families=("incremental", "changelog"))
    tree.write(root)
    job = root / tree.snapshots[0].job
    min(path for path in (job / "chk-3").iterdir() if path.name != "_metadata").unlink()
    (job / "chk-4").mkdir()
    for number, directory in enumerate(("chk-4", "shared"), 1):
        left = job / directory / f"f3a1c2d4-000{number}-4000-8000-00000000000{number}"
        left.write_bytes(bytes(70_000))
        os.utime(left, (1.7e9 + 900, 1.7e9 + 900))
    monkeypatch.chdir(tmp_path)
    samples = [block for block in blocks(DOCS / "scan.md", "") if block.startswith("$ statelake ")]
    assert len(samples) == 3
    for sample in samples:
        command, _, expected = sample.partition("\n")
        ran = run(*shlex.split(command)[2:])
        assert ran.code == 0, ran.err
        assert_printed(expected, ran.out)


def test_the_page_on_copies_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a checkpoint, and of a job's, some and then the others."""
    root = tmp_path / "checkpoints"
    made_tree(f"file:{root}", 2, 3, families=("incremental", "changelog")).write(root)
    monkeypatch.chdir(tmp_path)
    samples = [block for block in blocks(DOCS / "copy.md", "") if block.startswith("$ statelake ")]
    assert len(samples) == 3
    for sample in samples:
        command, _, expected = sample.partition("\n")
        ran = run(*shlex.split(command)[2:])
        assert ran.code == 0, ran.err
        assert_printed(expected, ran.out)
