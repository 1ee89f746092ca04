"""Programs and their JARs, uploaded for the duration of a call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from statelake.state_core.errors import ClusterError, DeclarationError, NotFoundError

if TYPE_CHECKING:
    from statelake.pipelines.live.cluster import FlinkCluster


@dataclass(frozen=True)
class JarRun:
    """A program to run.

    Attributes:
        jar: The JAR's file here, to be uploaded; or else:
        jar_id: The JAR's id on the cluster.
        entry_class: The class with `main`; by default that of the JAR's manifest.
        arguments: The program's arguments, which are stored nowhere.
        allow_non_restored: Whether state without an operator in the job may be skipped.
    """

    jar: str = ""
    jar_id: str = ""
    entry_class: str = ""
    arguments: tuple[str, ...] = field(default=(), repr=False)
    allow_non_restored: bool = False


class Jars:
    """JARs on a cluster, for the duration of a call: running jobs do not need them."""

    def __init__(self, cluster: FlinkCluster) -> None:
        self._cluster = cluster
        self._uploaded: dict[str, str] = {}

    def id_of(self, program: JarRun) -> str:
        """Return the id of a program's JAR, which is uploaded if needed."""
        if bool(program.jar) == bool(program.jar_id):
            raise DeclarationError("a program needs a JAR, or the id of one that was uploaded")
        if not program.jar:
            return program.jar_id
        if program.jar not in self._uploaded:
            self._uploaded[program.jar] = self._cluster.upload_jar(program.jar)
        return self._uploaded[program.jar]

    def run(
        self,
        program: JarRun,
        *,
        savepoint: str,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        claim_mode: str = "no_claim",
        job_id: str = "",
    ) -> str:
        """Submit a program, and return the job's id; other arguments as of `run_jar`."""
        return self._cluster.run_jar(
            self.id_of(program), savepoint=savepoint, claim_mode=claim_mode, job_id=job_id,
            parallelism=parallelism, max_parallelism=max_parallelism,
            entry_class=program.entry_class, arguments=program.arguments,
            allow_non_restored=program.allow_non_restored,
        )  # fmt: skip

    def forget(self) -> None:
        """Delete the uploaded JARs from the cluster."""
        for jar_id in self._uploaded.values():
            with suppress(ClusterError, NotFoundError):
                self._cluster.delete_jar(jar_id)
