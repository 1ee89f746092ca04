"""What real Flink's Kryo wrote: values of many classes by both versions, and a savepoint of 1.20.

Written by `KryoVectors.java` and `KryoJobs.java`; `EVENT` and `BASKET` are their classes as a user
would declare them.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import yaml

from tests.support.savepoints.golden_cases import GOLDEN

__all__ = [
    "BASKET",
    "EVENT",
    "KRYO_KEYS",
    "POJO_KEYS",
    "jdk_savepoint",
    "kryo_classes",
    "kryo_lines",
    "kryo_vectors",
]

KRYO_KEYS = 40
POJO_KEYS = 30
EVENT: dict[str, Any] = yaml.safe_load("""
classes:
  KryoVectors$Base: {fields: {owner: String}}
  KryoVectors$Event:
    fields:
      owner: String
      live: boolean
      small: byte
      brief: short
      letter: char
      count: int
      total: long
      share: float
      rate: double
      boxed: Long
      none: Integer
      name: String
      any: Object
      tier: KryoVectors$Tier
      tiers: KryoVectors$Tier[]
      point: KryoVectors$Point
      points: KryoVectors$Point[]
      numbers: int[]
      words: String[]
      tags: List<String>
      path: List<KryoVectors$Point>
      bases: List<KryoVectors$Base>
      sums: Map<String, Long>
      groups: Map<String, List<Long>>
      ids: Set<Integer>
      price: BigDecimal
  KryoVectors$Point: {fields: {x: int, y: int}, final: true}
  KryoVectors$Ring: {fields: {next: KryoVectors$Ring, name: String}}
  KryoVectors$Tier: {enum: [GOLD, SILVER], final: false}
""")
# with fields of classes of the JDK and of Flink, and types with arguments within collections
_ODD = yaml.safe_load("""
KryoVectors$Odd:
  fields:
    before: String
    count: OptionalInt
    distance: OptionalLong
    empty: Object
    from: ZonedDateTime
    none: OptionalInt
    seen: java.util.concurrent.atomic.AtomicLong
    share: OptionalDouble
    site: java.net.URL
    zone: ZoneId
    last: String
KryoVectors$Within:
  fields:
    pairs: List<org.apache.flink.api.java.tuple.Tuple2<String, Long>>
    byName: Map<String, org.apache.flink.api.java.tuple.Tuple2<Integer, String>>
    entries: List<java.util.Map$Entry<String, Integer>>
    maybe: List<Optional<String>>
    either: List<org.apache.flink.types.Either<String, Long>>
    deep: List<List<org.apache.flink.api.java.tuple.Tuple1<String>>>
    array: org.apache.flink.api.java.tuple.Tuple2[]
    any: Object
    last: OptionalInt
""")
# with fields whose own types have arguments, so that Kryo 2.24 writes other objects of these
# classes in a form that depends on what was before
_TYPED = yaml.safe_load("""
KryoVectors$Direct:
  fields:
    pair: org.apache.flink.api.java.tuple.Tuple2<String, Long>
    mixed: org.apache.flink.api.java.tuple.Tuple3<List<String>, Object, Integer>
    entry: java.util.Map$Entry<String, Integer>
    known: java.util.AbstractMap$SimpleImmutableEntry<String, Integer>
    reference: java.util.concurrent.atomic.AtomicReference<String>
    left: org.apache.flink.types.Either<String, Long>
    right: org.apache.flink.types.Either<String, Long>
    long1: org.apache.flink.types.Either<List<String>, Long>
    last: String
KryoVectors$Generic:
  fields:
    pair: org.apache.flink.api.java.tuple.Tuple2<String, Long>
    pairs: List<org.apache.flink.api.java.tuple.Tuple2<String, Long>>
    byName: Map<String, org.apache.flink.api.java.tuple.Tuple2<Integer, String>>
    mixed: org.apache.flink.api.java.tuple.Tuple2<List<String>, Object>
    entry: java.util.Map$Entry<String, Integer>
    known: java.util.AbstractMap$SimpleEntry<String, Integer>
    reference: java.util.concurrent.atomic.AtomicReference<String>
    any: Object
    last: String
KryoVectors$Maybe:
  fields:
    some: Optional<String>
    zero: Optional<Long>
    none: Optional<Long>
    list: Optional<List<String>>
    any: Optional<Object>
    missing: Optional<String>
    last: String
""")
BASKET = """\
flink: 1
classes:
  KryoJobs$Basket:
    fields:
      id: long
      owner: String
      tier: KryoJobs$Tier
      items: List<String>
      prices: Map<String, BigDecimal>
      at: KryoJobs$Point
      anything: List<Object>
      since: Date
      counts: int[]
      again: String
  KryoJobs$Point:
    final: true
    fields: {x: int, y: double}
  KryoJobs$Tier: {enum: [GOLD, SILVER]}
"""


def kryo_vectors(flink: int) -> dict[str, dict[str, str]]:
    """What that Flink wrote, by name: `type`, `snapshot` and `value`, both in hexadecimal."""
    name = {1: "kryo-1.20", 2: "kryo-2.3"}[flink]
    text = lzma.decompress((GOLDEN / "vectors" / f"{name}.jsonl.xz").read_bytes())
    return {line["name"]: line for line in map(json.loads, text.splitlines())}


def kryo_classes(name: str, flink: int) -> dict[str, Any]:
    """The file for `--kryo` of the job that has the value of that name."""
    typed = _TYPED if name.startswith(("Direct", "Generic", "Maybe")) else {}
    return {"flink": flink, "classes": {**EVENT["classes"], **_ODD, **typed}}


def jdk_savepoint(to: Path, name: str = "flink-1.20") -> Path:
    """A savepoint of Flink 1.20, unpacked: also `pojos-1.20`, `pojos-native-1.20`, `windows-1.20`.

    The last is of four keys and the types of `drawn_types(7, 1)`, see `generated_types.py`. Of 1.20
    and 2.3 there are `keys-canonical-2.3`, `keys-native-2.3`, `keys-native-compressed-2.3`.
    """
    to.mkdir(parents=True)
    packed = (GOLDEN / "kryo" / f"{name}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


def kryo_lines(name: str = "lines") -> list[dict[str, Any]]:
    """What Flink 1.20 printed of each key, having restored it; `pojos` and `keys` of those."""
    text = lzma.decompress((GOLDEN / "kryo" / f"{name}.jsonl.xz").read_bytes())
    return [json.loads(line) for line in text.splitlines()]
