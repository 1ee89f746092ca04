"""The unaligned checkpoints under `golden/unaligned`: a job whose exchanges are full of records."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statelake.state_core.connectors.sources import sources_of
from statelake.state_core.formats.channels import channels_of, read_channels, value_serializer
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = [
    "BACKLOGS",
    "RECORDS",
    "UIDS",
    "elements_in",
    "next_number",
    "numbers_in_flight",
    "numbers_seen",
    "unpack_backlog",
]

RECORDS = 8000
BACKLOGS = ("flink-1.20.0", "flink-2.3.0")
UIDS = ("numbers", "texts", "times", "seen")
BETWEEN_NUMBERS = ("numbers", "texts")  # the exchange of numbers; the other one is of pairs


def unpack_backlog(name: str, to: Path) -> Path:
    """The checkpoint of that name, unpacked."""
    with tarfile.open(GOLDEN / "unaligned" / f"{name}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    (checkpoint,) = to.iterdir()
    return checkpoint


def elements_in(snapshot: Snapshot, operators: Iterable[str] = UIDS) -> list[dict[str, Any]]:
    """The decoded elements in flight of some operators, channel after channel."""
    long, pair = parse_type("Long").restore_serializer(), value_serializer(snapshot, "seen", "last")
    return [
        row
        for elements in read_channels(channels_of(snapshot))
        if elements.channel.operator in operators
        for row in elements.decode(
            long if elements.channel.operator in BETWEEN_NUMBERS else pair
        ).to_pylist()
    ]


def numbers_in_flight(snapshot: Snapshot) -> Counter[int]:
    """The numbers of the records in flight."""
    values = [row["value"] for row in elements_in(snapshot) if row["element"] == "record"]
    return Counter(value if isinstance(value, int) else value["f0"] for value in values)


def numbers_seen(snapshot: Snapshot) -> Counter[int]:
    """The numbers that the slow operator has in its state."""
    lists = snapshot.operator("seen").state("numbers").to_arrow().column("value").to_pylist()
    return Counter(number for numbers in lists for number in numbers)


def next_number(snapshot: Snapshot) -> int:
    """Where the source goes on; behind the last number if it has sent all of them."""
    splits = [split for source in sources_of(snapshot) for _, _, split in source.splits()]
    (number,) = [split.columns()["next_number"] for split in splits] or [RECORDS]
    return int(str(number))
