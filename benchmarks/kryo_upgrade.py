"""Values of Kryo rewritten for Flink 2, and as columns: `python -m benchmarks.kryo_upgrade`."""

from __future__ import annotations

import argparse
import itertools
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa

from benchmarks.measuring import Row, print_table, rate, seconds
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.kryo_upgrading import upgrade_kryo
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.kernels.skip import IS_EXACT
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import undecoded
from statelake.state_core.serializers.framework.plugins import forget_declarations
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
RECEIPT = "com.acme.Receipt"
SUMS = {"price": "BigDecimal", "day": "LocalDate", "at": "LocalDateTime", "count": "int"}
ONE_CORE = LocalEngine(1)


def _written(java_class: str, value: object, version: KryoVersion, declared: str = "") -> bytes:
    """Return an object as a Flink writes it, whose type has a class of its own if it is given."""
    values = kryo_snapshot().of_class(declared or java_class).values(version)
    return values.write(Item(java_class, value), version)


def _texts(number: int) -> list[Item]:
    """Return three texts, each by itself."""
    return [Item(TEXT, f"tag-{number % 1000}-{place}") for place in range(3)]


def _states(count: int, version: KryoVersion) -> dict[str, tuple[TypeSerializerSnapshot, pa.Array]]:
    """Return the type, and the values, of each state."""
    random = Random(31)  # noqa: S311 - values that are the same in each run

    def written(java_class: str, value: Callable[[int], object], declared: str = "") -> list[bytes]:
        return [_written(java_class, value(each), version, declared) for each in range(count)]

    def entries(each: int) -> list[tuple[Item, Item]]:
        return [(text, Item(LONG, each)) for text in _texts(each)]

    uuids = written(UUID, lambda _: str(uuid.UUID(int=random.getrandbits(128))))
    lists = written(LIST, _texts)
    maps = written(MAP, entries)
    objects = written(SHOP, lambda each: {
        "id": each, "name": Item(TEXT, f"shop {each}"),
        "opened": Item("java.time.Instant", (each, 0)), "tags": Item(LIST, _texts(each)),
    })  # fmt: skip
    receipts = written(RECEIPT, lambda each: {
        "price": Item("java.math.BigDecimal", (each, 2)), "count": each,
        "day": Item("java.time.LocalDate", (2024, 2, each % 28 + 1)),
        "at": Item("java.time.LocalDateTime", (2024, 2, 1, each % 24, each % 60, 0, 0)),
    })  # fmt: skip
    pair = TupleSerializerSnapshot.around(parse_type("Long"), kryo_snapshot().of_class(UUID))
    pair.tuple_class = "org.apache.flink.api.java.tuple.Tuple2"
    pairs = [number.to_bytes(8, "big") + each for number, each in enumerate(uuids)]
    names = {"scores": "java.util.Map", "seen": "java.util.Collection", "tags": "java.util.List"}
    parts = [
        written(MAP, entries, names["scores"]),
        written(LIST, lambda each: [Item("java.time.Instant", (each, 1000))], names["seen"]),
        written(LIST, _texts, names["tags"]),
        uuids,
    ]
    kinds = {
        name: kryo_snapshot().of_class(each) for name, each in {**names, "token": UUID}.items()
    }
    pojo = PojoSerializerSnapshot.of("com.acme.Customer", kinds)
    pojos = [
        bytes([IS_EXACT]) + b"".join(b"\0" + part for part in row)
        for row in zip(*parts, strict=True)
    ]
    return {
        "UUIDs": (kryo_snapshot().of_class(UUID), pa.array(uuids)),
        "tuples of a long and a UUID": (pair, pa.array(pairs)),
        "lists of three texts": (kryo_snapshot().of_class(LIST), pa.array(lists)),
        "maps of three texts": (kryo_snapshot().of_class(MAP), pa.array(maps)),
        "objects of four fields": (kryo_snapshot().of_class(SHOP), pa.array(objects)),
        "objects of sums and dates": (kryo_snapshot().of_class(RECEIPT), pa.array(receipts)),
        "POJOs of four parts by Kryo": (pojo, pa.array(pojos)),
    }


def measure(work: Path, count: int) -> list[Row]:
    """All on one core: the plan, the values and the commit of an upgrade, beside an export.

    Values are bytes in the lake, as `upgrade SAVEPOINT --to` has them on its way.
    """
    with undecoded():
        return [
            _measured(work / str(number), what, kind, values)
            for number, (what, (kind, values)) in enumerate(
                _states(count, KryoVersion.FLINK_1).items()
            )
        ]


def _measured(work: Path, what: str, kind: TypeSerializerSnapshot, values: pa.Array) -> Row:
    count = len(values)
    table = pa.table({"key": pa.array(range(count)), "value": values})
    operator = NewOperator("operator", "Long", (NewKeyedState("state", table, value=kind),))
    write_snapshot(work / "savepoint", [operator])
    lake = Catalog(work / "lake")
    import_snapshot(lake, str(work / "savepoint"), JOB, snapshot_id="old", engine=ONE_CORE)
    names = itertools.count()
    upgrade = seconds(
        lambda: upgrade_kryo(ChildSnapshot(lake, JOB, "old", f"new{next(names)}", engine=ONE_CORE))
    )
    export = seconds(
        lambda: export_snapshot(lake, JOB, "new0", work / f"to{next(names)}", engine=ONE_CORE)
    )
    return Row(what, rate(count, upgrade), f"export {rate(count, export)}", export / upgrade)


def measure_columns(work: Path, count: int, version: KryoVersion) -> list[Row]:
    """All on one core: an import that makes columns, beside one of the bytes, and its export."""
    rows = []
    for number, (what, (kind, values)) in enumerate(_states(count, version).items()):
        place, names = work / f"columns-{version.value}-{number}", itertools.count()
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
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=VALUES)
    count = parser.parse_args().values
    classes = {SHOP: {"fields": FIELDS}, RECEIPT: {"fields": SUMS}}
    with tempfile.TemporaryDirectory() as name:
        declare_classes({"flink": 1, "classes": classes})
        upgraded = measure(Path(name), count)
        columns = {}
        for version in KryoVersion:
            forget_declarations()
            declare_classes({"flink": version.value, "classes": classes})
            columns[version] = measure_columns(Path(name), count, version)
    print_table(f"{count:,} values of Flink 1's Kryo, on one core", upgraded)
    for version, rows in columns.items():
        what = f"{count:,} values of Flink {version.value}'s Kryo as columns of a lake, on one core"
        print_table(what, rows)


if __name__ == "__main__":
    main()
