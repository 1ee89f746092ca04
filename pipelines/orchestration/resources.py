"""The locations of savepoints, of the lake, and of exports."""

import os

import dagster as dg

from statelake.pipelines.api import Job, Lake, LakeSnapshot
from statelake.pipelines.engine import Progress
from statelake.pipelines.lake.catalog.snapshot_names import SnapshotId
from statelake.state_core.files.confinement import relative_path
from statelake.state_core.files.storage_options import location_below

DEFAULTS = {
    "STATELAKE_SAVEPOINTS": "savepoints",
    "STATELAKE_LAKE": "lake",
    "STATELAKE_EXPORTS": "exports",
    "STATELAKE_JOB": "job",
    "STATELAKE_AGAINST": "",
    "STATELAKE_DECLARED": "",
    "STATELAKE_CHECKPOINTS": "checkpoints",
}


class Locations(dg.ConfigurableResource[None]):
    """Paths or URIs. Empty ones come from the environment when a run needs them.

    A URI may have credentials: `public_location` is shown instead.

    Attributes:
        savepoints: A directory of savepoints, each in a directory of its own
            (`STATELAKE_SAVEPOINTS`).
        lake: The lake (`STATELAKE_LAKE`).
        exports: Where exported savepoints go (`STATELAKE_EXPORTS`).
        job: The job's name in the lake (`STATELAKE_JOB`).
        against: What snapshots are checked against: a savepoint of the job that is to restore
            them, or a file that says what states become (`STATELAKE_AGAINST`).
        declared: The job that is to restore them, as it declares its states: `MODULE:JOB`
            (`STATELAKE_DECLARED`).
        checkpoints: A directory of checkpoint logs, each in a directory of its own
            (`STATELAKE_CHECKPOINTS`).
        from_environment: Whether what is left empty comes from there.
    """

    savepoints: str = ""
    lake: str = ""
    exports: str = ""
    job: str = ""
    against: str = ""
    declared: str = ""
    checkpoints: str = ""
    from_environment: bool = True

    def _given(self, value: str, variable: str) -> str:
        if value or not self.from_environment:
            return value
        return os.environ.get(variable, DEFAULTS[variable])

    @property
    def savepoints_location(self) -> str:
        """Return the directory of savepoints."""
        return self._given(self.savepoints, "STATELAKE_SAVEPOINTS")

    @property
    def exports_location(self) -> str:
        """Return the directory of exports."""
        return self._given(self.exports, "STATELAKE_EXPORTS")

    @property
    def job_name(self) -> str:
        """Return the job's name in the lake."""
        return self._given(self.job, "STATELAKE_JOB")

    @property
    def against_location(self) -> str:
        """Return the location for the check of compatibility; empty if it is not set."""
        return self._given(self.against, "STATELAKE_AGAINST")

    @property
    def declared_job(self) -> str:
        """Return the job that declares its states; empty if it is not given."""
        return self._given(self.declared, "STATELAKE_DECLARED")

    def checkpoint_log(self, name: str) -> str:
        """Open the checkpoint log of that name."""
        location = self._given(self.checkpoints, "STATELAKE_CHECKPOINTS")
        return location_below(location, name)

    def open_lake(self) -> Lake:
        """Open the lake."""
        return Lake(self._given(self.lake, "STATELAKE_LAKE"))

    def open_job(self, engine: str = "auto", progress: Progress | None = None) -> Job:
        """Open the job in the lake."""
        return self.open_lake().job(self.job_name, engine=engine, progress=progress)

    def open_snapshot(
        self, name: str, engine: str = "auto", progress: Progress | None = None
    ) -> LakeSnapshot:
        """Open the job's snapshot of exactly that id, which is a partition's key."""
        return self.open_job(engine, progress)[SnapshotId(name)]

    def savepoint(self, name: str) -> str:
        """Return the location of the savepoint with that name, which is a partition's key."""
        relative_path(name, what="a savepoint", inside="the directory of savepoints")
        return location_below(self.savepoints_location, name)
