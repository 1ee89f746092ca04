"""Values of Flink 1's Kryo rewritten for Flink 2: `python -m benchmarks.kryo_upgrade`."""

from __future__ import annotations

import argparse
import itertools
import tempfile
import uuid
from pathlib import Path
from random import Random

import pyarrow as pa

from benchmarks.measuring import Row, print_table, rate, seconds
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.kryo_upgrading import upgrade_kryo
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.decoders import undecoded
from statelake.state_core.serializers.kryo.decoding import declare_classes
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.kryo_savepoint import kryo_snapshot

VALUES = 200_000
JOB = "bench"
UUID, LIST, TEXT = "java.util.UUID", "java.util.ArrayList", "java.lang.String"
MAP, LONG, SHOP = "java.util.HashMap", "java.lang.Long", "com.acme.Shop"
FIELDS = {"id": "long", "name": "String", "opened": "Instant", "tags": "List<String>"}
ONE_CORE = LocalEngine(1)


def _written(java_class: str, value: object) -> bytes:
    """Return an object as Flink 1 writes it."""
    version = KryoVersion.FLINK_1
    return (
        kryo_snapshot().of_class(java_class).values(version).write(Item(java_class, value), version)
    )


def _texts(number: int) -> list[Item]:
    """Return three texts, each by itself."""
    return [Item(TEXT, f"tag-{number % 1000}-{place}") for place in range(3)]


def _states(count: int) -> dict[str, tuple[TypeSerializerSnapshot, pa.Array]]:
    """Return the type, and the values, of each state."""
    random = Random(31)  # noqa: S311 - values that are the same in each run
    uuids = [_written(UUID, str(uuid.UUID(int=random.getrandbits(128)))) for _ in range(count)]
    lists = [_written(LIST, _texts(each)) for each in range(count)]
    maps = [
        _written(MAP, [(text, Item(LONG, each)) for text in _texts(each)]) for each in range(count)
    ]
    objects = [
        _written(SHOP, {"id": each, "name": Item(TEXT, f"shop {each}"), "opened": Item(
            "java.time.Instant", (each, 0)), "tags": Item(LIST, _texts(each))})
        for each in range(count)
    ]  # fmt: skip
    pair = TupleSerializerSnapshot.around(parse_type("Long"), kryo_snapshot().of_class(UUID))
    pair.tuple_class = "org.apache.flink.api.java.tuple.Tuple2"
    pairs = [number.to_bytes(8, "big") + each for number, each in enumerate(uuids)]
    return {
        "UUIDs": (kryo_snapshot().of_class(UUID), pa.array(uuids)),
        "tuples of a long and a UUID": (pair, pa.array(pairs)),
        "lists of three texts": (kryo_snapshot().of_class(LIST), pa.array(lists)),
        "maps of three texts": (kryo_snapshot().of_class(MAP), pa.array(maps)),
        "objects of four fields": (kryo_snapshot().of_class(SHOP), pa.array(objects)),
    }


def measure(work: Path, count: int) -> list[Row]:
    """All on one core: the plan, the values and the commit of an upgrade, beside an export.

    Values are bytes in the lake, as `upgrade SAVEPOINT --to` has them on its way.
    """
    with undecoded():
        return [
            _measured(work / str(number), what, kind, values)
            for number, (what, (kind, values)) in enumerate(_states(count).items())
        ]


def _measured(work: Path, what: str, kind: TypeSerializerSnapshot, values: pa.Array) -> Row:
    count = len(values)
    table = pa.table({"key": pa.array(range(count)), "value": values})
    operator = NewOperator("operator", "Long", (NewKeyedState("state", table, value=kind),))
    write_snapshot(work / "savepoint", [operator])
    lake = Catalog(work / "lake")
    import_snapshot(lake, str(work / "savepoint"), JOB, snapshot_id="old", engine=ONE_CORE)
    names = itertools.count()
    upgrade = seconds(lambda: upgrade_kryo(lake, JOB, "old", f"new{next(names)}", engine=ONE_CORE))
    export = seconds(
        lambda: export_snapshot(lake, JOB, "new0", work / f"to{next(names)}", engine=ONE_CORE)
    )
    return Row(what, rate(count, upgrade), f"export {rate(count, export)}", export / upgrade)


def measure_columns(work: Path, count: int) -> list[Row]:
    """All on one core: an import that makes columns, beside one of the bytes, and its export."""
    rows = []
    for number, (what, (kind, values)) in enumerate(_states(count).items()):
        place, names = work / f"columns-{number}", itertools.count()
        table = pa.table({"key": pa.array(range(count)), "value": values})
        operator = NewOperator("operator", "Long", (NewKeyedState("state", table, value=kind),))
        with undecoded():
            write_snapshot(place / "savepoint", [operator])
        lake = Catalog(place / "lake")

        def imported(job: str, lake: Catalog = lake, place: Path = place) -> None:
            import_snapshot(lake, str(place / "savepoint"), job, snapshot_id="s", engine=ONE_CORE)

        with undecoded():
            as_bytes = seconds(lambda: imported(f"bytes{next(names)}"))  # noqa: B023 - called here
        as_columns = seconds(lambda: imported(f"columns{next(names)}"))  # noqa: B023 - likewise
        job = max(each for each in lake.jobs() if each.startswith("columns"))
        export = seconds(
            lambda: export_snapshot(lake, job, "s", place / f"to{next(names)}", engine=ONE_CORE)  # noqa: B023
        )
        beside = f"bytes {rate(count, as_bytes)}, export {rate(count, export)}"
        rows.append(Row(what, rate(count, as_columns), beside, as_bytes / as_columns))
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=VALUES)
    given = parser.parse_args()
    declare_classes({"flink": 1, "classes": {SHOP: {"fields": FIELDS}}})
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.values)
        columns = measure_columns(Path(name), given.values)
    print_table(f"{given.values:,} values of Flink 1's Kryo, on one core", rows)
    print_table(f"{given.values:,} values as columns of a lake, on one core", columns)


if __name__ == "__main__":
    main()
