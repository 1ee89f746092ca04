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
