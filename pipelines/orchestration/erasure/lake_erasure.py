"""The erasures of a lake as all their definitions know them: settings, places, names in Dagster."""

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
        settings: What the configuration says of them.
        locations: Where the lake is.
        pools: The pools of all steps that write tables of the lake.
    """

    settings: ErasureSettings
    locations: Locations
    pools: tuple[str, ...]

    def named(self, name: str) -> str:
        """The name of a job, schedule, sensor or partitions definition."""
        return f"{self.settings.prefix}_{name}" if self.settings.prefix else name

    def key(self, name: str) -> dg.AssetKey:
        """The key of an asset."""
        return dg.AssetKey([self.settings.prefix, name] if self.settings.prefix else [name])

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """A partition a request, added as it is seen."""
        return dg.DynamicPartitionsDefinition(name=self.named("erasure_requests"))

    @property
    def requests(self) -> RequestDirectory:
        """Where requests come in."""
        settings = self.settings
        blobs, changelogs = tuple(settings.blobs), tuple(settings.changelogs)
        return RequestDirectory(settings.requests, settings.promised_days, blobs, changelogs)

    def open_lake(self) -> Catalog:
        """The lake."""
        return self.locations.open_lake()

    def secret(self) -> bytes:
        """What hashes of requests are made with, so that nobody can compare them with guesses.

        Raises:
            DeclarationError: There is none, so that nobody could tell later what a plan was of.
        """
        secret = os.environ.get(SECRET, "").encode()
        if not secret:
            raise DeclarationError(
                "a plan is recorded with a keyed hash of its request, and there is no key",
                remedy=f"set {SECRET} where Dagster's runs work, and keep it",
            )
        return secret

    def materialized(self, name: str, request: str, metadata: dict[str, Any]) -> Any:
        """The event of an asset's partition."""
        return dg.AssetMaterialization(self.key(name), partition=request, metadata=metadata)
