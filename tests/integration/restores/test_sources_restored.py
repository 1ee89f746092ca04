"""Real Flink's file source and number sequence: what is decoded of them is where they go on."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.connectors.files import FileSplit, PendingFiles
from statelake.state_core.connectors.sequences import SequenceSplit
from statelake.state_core.connectors.sources import sources_of
from tests.integration.flink.sources import Run, run_sources

pytestmark = [pytest.mark.flink, pytest.mark.full]


def test_what_is_left_is_what_the_splits_say(tmp_path: Path) -> None:
    """Lines and numbers that were told, and those that the splits have left, are all there are."""
    texts = tmp_path / "texts"
    texts.mkdir()
    written = [[f"{name}-{number}" for number in range(200)] for name in "abcd"]
    for name, lines in zip("abcd", written, strict=True):
        (texts / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (told, of_numbers), (lines, of_files) = run_sources(
        [
            Run(("numbers", 1, 400), 40, to=tmp_path / "numbers", pause=5),
            Run(("files", texts.as_uri()), 40, to=tmp_path / "files", pause=5),
        ]
    )
    assert of_numbers is not None
    assert of_files is not None
    (source,) = sources_of(open_snapshot(of_numbers))
    left: list[int] = []
    for split in [*(element.split for element in source.elements), *source.waiting]:
        assert isinstance(split, SequenceSplit)
        left += range(split.next_number, split.last_number + 1)
    assert Counter(left) + Counter(map(int, told)) == Counter(range(1, 401))
    (source,) = sources_of(open_snapshot(of_files))
    assert isinstance(source.enumerator, PendingFiles)
    assert {path.rpartition("/")[2] for path in source.enumerator.processed} == set("abcd")
    splits = [*(element.split for element in source.elements), *source.waiting]
    unread: list[str] = []
    for split in splits:
        assert isinstance(split, FileSplit)
        assert split.path is not None
        assert str(split.path).startswith("file:")
        whole = written["abcd".index(str(split.path)[-1])]
        skipped = 0 if split.position is None else split.position[1]
        unread += whole[skipped:]
    assert Counter(unread) + Counter(lines) == Counter(chain(*written))
