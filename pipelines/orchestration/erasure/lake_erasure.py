"""The erasures of a lake, as their definitions use them: settings, locations, names in Dagster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import dagster as dg

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.erase.requests import SECRET
from statelake.pipelines.orchestration.erasure.request_files import RequestDirectory
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import ErasureSettings
from statelake.state_core.errors import DeclarationError


@dataclass(frozen=True)
class LakeErasure:
    """The erasures of a lake.

    Attributes:
        settings: Their configuration.
        locations: The location of the lake.
        pools: The pools of all steps that write tables of the lake.
    """

    settings: ErasureSettings
    locations: Locations
    pools: tuple[str, ...]

    def named(self, name: str) -> str:
        """Return the name of a job, schedule, sensor or partitions definition."""
        return f"{self.settings.prefix}_{name}" if self.settings.prefix else name

    def key(self, name: str) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([self.settings.prefix, name] if self.settings.prefix else [name])

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """Return the partitions: one for each request, added when it is found."""
        return dg.DynamicPartitionsDefinition(name=self.named("erasure_requests"))

    @property
    def requests(self) -> RequestDirectory:
        """Return the directory of requests."""
        settings = self.settings
        blobs, changelogs = tuple(settings.blobs), tuple(settings.changelogs)
        return RequestDirectory(settings.requests, settings.promised_days, blobs, changelogs)

    def open_lake(self) -> Catalog:
        """Open the lake."""
        return self.locations.open_lake().catalog

    def secret(self) -> bytes:
        """Return the key of hashes of requests, which can't be compared with guesses without it.

        Raises:
            DeclarationError: It is not set, and plans could not be recognised later.
        """
        secret = os.environ.get(SECRET, "").encode()
        if not secret:
            raise DeclarationError(
                "a plan is recorded with a keyed hash of its request, and there is no key",
                remedy=f"set {SECRET} where Dagster's runs work, and keep it",
            )
        return secret

    def materialized(self, name: str, request: str, metadata: dict[str, Any]) -> Any:
        """Return the event of an asset's partition."""
        return dg.AssetMaterialization(self.key(name), partition=request, metadata=metadata)
