"""One job, as its definitions use it: settings, locations, names in Dagster."""

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
    """A job with definitions.

    Attributes:
        settings: Its configuration.
        locations: Its locations.
        tables: Its tables when definitions are made: by path, a sentence that describes it.
    """

    settings: JobSettings
    locations: Locations
    tables: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Return the prefix of its names, in Dagster's characters; empty if there is one job."""
        prefix = self.settings.prefix
        return _NO_NAME.sub("_", self.settings.name if prefix is None else prefix)

    def named(self, name: str) -> str:
        """Return the name of a job, schedule, sensor, resource or partitions definition."""
        return f"{self.prefix}_{name}" if self.prefix else name

    @property
    def group(self) -> str:
        """Return the group of its assets."""
        return self.prefix or "state"

    @property
    def key_prefix(self) -> list[str]:
        """Return the prefix of its assets' keys."""
        return [self.prefix] if self.prefix else []

    def key(self, name: str) -> dg.AssetKey:
        """Return the key of one of its assets."""
        return dg.AssetKey([*self.key_prefix, name])

    @property
    def snapshots(self) -> dg.DynamicPartitionsDefinition:
        """Return the partitions: one for each snapshot, added when it is found."""
        return dg.DynamicPartitionsDefinition(name=self.named("snapshots"))

    @property
    def checkpoint_logs(self) -> dg.DynamicPartitionsDefinition:
        """Return the partitions: one for each checkpoint log."""
        return dg.DynamicPartitionsDefinition(name=self.named("checkpoint_logs"))

    @property
    def resource(self) -> str:
        """Return the key of the resource with the locations."""
        return self.named("locations")

    def places(self, context: Any) -> Locations:
        """Return the locations in a run, a sensor or a schedule."""
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
        """Return the arguments that the decorators of its assets over snapshots share."""
        return {
            "partitions_def": self.snapshots,
            "group_name": self.group,
            "required_resource_keys": {self.resource},
            "backfill_policy": self.backfill_policy,
        }


def table_key(path: str) -> dg.AssetKey:
    """Return the key of a table's asset: `orders / counter / count`.

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
