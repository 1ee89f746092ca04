"""One job as all its definitions know it: its settings, its places, its names in Dagster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

import dagster as dg

from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import JobSettings

_NO_NAME = re.compile(r"[^A-Za-z0-9_]")


class OverSnapshots(TypedDict):
    """Arguments of `dagster.asset`."""

    partitions_def: dg.PartitionsDefinition[str]
    group_name: str
    required_resource_keys: set[str]
    backfill_policy: dg.BackfillPolicy


@dataclass(frozen=True)
class StateJob:
    """A job that definitions are made for.

    Attributes:
        settings: What the configuration says of it.
        locations: Where things are.
        tables: What is known of its tables when definitions are made: by the path of each, a
            sentence that describes it.
    """

    settings: JobSettings
    locations: Locations
    tables: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """What its names begin with, as Dagster allows names; empty where there is one job."""
        prefix = self.settings.prefix
        return _NO_NAME.sub("_", self.settings.name if prefix is None else prefix)

    def named(self, name: str) -> str:
        """The name of a job, schedule, sensor, resource or partitions definition."""
        return f"{self.prefix}_{name}" if self.prefix else name

    @property
    def group(self) -> str:
        """The group of its assets."""
        return self.prefix or "state"

    @property
    def key_prefix(self) -> list[str]:
        """What the keys of its assets begin with."""
        return [self.prefix] if self.prefix else []

    def key(self, name: str) -> dg.AssetKey:
        """The key of one of its assets."""
        return dg.AssetKey([*self.key_prefix, name])

    @property
    def snapshots(self) -> dg.DynamicPartitionsDefinition:
        """A partition a snapshot, added as it is found."""
        return dg.DynamicPartitionsDefinition(name=self.named("snapshots"))

    @property
    def checkpoint_logs(self) -> dg.DynamicPartitionsDefinition:
        """A partition a checkpoint log."""
        return dg.DynamicPartitionsDefinition(name=self.named("checkpoint_logs"))

    @property
    def resource(self) -> str:
        """The key of the resource that says where things are."""
        return self.named("locations")

    def places(self, context: Any) -> Locations:
        """Where things are, in a run, a sensor or a schedule."""
        return cast("Locations", getattr(context.resources, self.resource))

    @property
    def pool(self) -> str:
        """Of what writes the job's tables: one run at a time, if the instance limits pools to 1."""
        return self.named("lake")

    @property
    def backfill_policy(self) -> dg.BackfillPolicy:
        """Ranges of partitions in one run: it starts once, and what it did stays if it ends."""
        return dg.BackfillPolicy.multi_run(self.settings.partitions_per_run)

    def of_snapshots(self) -> OverSnapshots:
        """What all its assets over snapshots have in common, as arguments of their decorators."""
        return {
            "partitions_def": self.snapshots,
            "group_name": self.group,
            "required_resource_keys": {self.resource},
            "backfill_policy": self.backfill_policy,
        }


def table_key(path: str) -> dg.AssetKey:
    """The key of a table's asset: `orders / counter / count`.

    No two tables of a lake have the same: no job, operator or state begins with an underscore in
    the path of a table, so timers are `_timers` and operator state is below `_operator`.

    Args:
        path: The table's path below the lake.
    """
    job, area, *names = path.split("/")
    if area == "timers":
        names = [*names, "_timers"]
    elif area == "operator":
        names = [names[0], "_operator", *names[1:]]
    return dg.AssetKey([job, *names])
