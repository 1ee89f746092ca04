"""Claims: announcements of a lake's writers in the catalog's log, beside its snapshots.

A claim is a property of the `snapshots` table, so that one entry of the log changes snapshots and
claims at once, and rows are snapshots only.

===================================  =========================================================
`statelake.attempt.<token>`          a process writes files below that token
`statelake.erasure.<request>`        rows of some jobs are being erased
`statelake.deletion.<token>`         files that no snapshot needs are about to be deleted
===================================  =========================================================

Whoever can write into the lake can write a claim, too. One that breaks a rule is refused by name
before anything is written; snapshots can still be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from statelake.pipelines.lake.catalog.processes import Process
from statelake.pipelines.lake.tables.names import (
    is_edited_file,
    is_table_of,
    is_token,
    is_unit_path,
    is_unmanaged_name,
    token_of,
)
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.outside import checked, parse_json

PREFIX = "statelake."
LONGEST = 64 << 20


class NewFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that an erasure puts in an old one's place, as in `DataFile`."""

    path: str
    partition: int
    first: int
    last: int
    rows: int
    size: int


@dataclass(frozen=True)
class AttemptClaim:
    """Work that ends with a snapshot, or leaves nothing.

    Attributes:
        job: The job.
        snapshot_id: The snapshot to create; empty if it only keeps others.
        operation: `import`, `edit` and the like, for messages.
        builds_on: The snapshots whose files it keeps: by job and id, the digest of their files.
        tables: The tables that it may write.
        process: Its process, by which others know how long to wait; nothing else depends on it.
    """

    job: str
    snapshot_id: str
    operation: str
    builds_on: Mapping[str, str]
    tables: Sequence[str]
    process: Mapping[str, Any]


@dataclass(frozen=True)
class ErasureClaim:
    """An erasure that has not ended.

    Attributes:
        jobs: The jobs to which no other writer may write.
        every_job: Whether jobs that are created later are closed as well.
        token: The token of its process, below which its new files are.
        switched: Whether snapshots name the new files, so that it can only be continued.
        replaced: By table and old file, the fields of the new one; None if no row is left.
        said: The record that will be written; empty before the switch.
        process: Its process, by which others know how long to wait; nothing else depends on it.
    """

    jobs: Sequence[str]
    every_job: bool
    token: str
    switched: bool
    replaced: Mapping[str, Mapping[str, NewFile | None]]
    said: Mapping[str, Any]
    process: Mapping[str, Any]


@dataclass(frozen=True)
class DeletionClaim:
    """Files that are about to be deleted, unless a snapshot or an attempt needs them.

    Attributes:
        job: The job.
        files: By the path of a table, files below it.
        tokens: The tokens of attempts that were taken back: all files below these are deleted.
        carried: Carried files, by their names.
        tables: The tables in which files below these tokens may lie.
        shown: Tables whose newest version shows a dropped snapshot.
        logs: By the path of a table, the version before which its log is no longer needed.
    """

    job: str
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tokens: Sequence[str] = ()
    carried: Sequence[str] = ()
    tables: Sequence[str] = ()
    shown: Sequence[str] = ()
    logs: Mapping[str, Annotated[int, Meta(ge=0, lt=1 << 62)]] = field(default_factory=dict)


Claim: TypeAlias = AttemptClaim | ErasureClaim | DeletionClaim

_KINDS: Mapping[str, type[Claim]] = {
    "attempt": AttemptClaim, "erasure": ErasureClaim, "deletion": DeletionClaim,
}  # fmt: skip


@dataclass(frozen=True)
class Claims:
    """The claims of one version of the catalog.

    Attributes:
        attempts: By their tokens.
        erasures: By their requests.
        deletions: By their tokens.
    """

    attempts: Mapping[str, AttemptClaim] = field(default_factory=dict)
    erasures: Mapping[str, ErasureClaim] = field(default_factory=dict)
    deletions: Mapping[str, DeletionClaim] = field(default_factory=dict)

    def with_attempt(self, token: str, claim: AttemptClaim) -> Claims:
        """Return these claims with one more attempt."""
        return replace(self, attempts={**self.attempts, token: claim})

    def without_attempt(self, token: str) -> Claims:
        """Return these claims without an attempt."""
        return replace(self, attempts=_without(self.attempts, token))

    def with_erasure(self, request: str, claim: ErasureClaim) -> Claims:
        """Return these claims with one more erasure, or with its new state."""
        return replace(self, erasures={**self.erasures, request: claim})

    def without_erasure(self, request: str) -> Claims:
        """Return these claims without an erasure."""
        return replace(self, erasures=_without(self.erasures, request))

    def with_deletion(self, token: str, claim: DeletionClaim) -> Claims:
        """Return these claims with one more deletion, unless it is empty."""
        if not (claim.files or claim.tokens or claim.carried or claim.shown or claim.logs):
            return self
        return replace(self, deletions={**self.deletions, token: claim})

    def without_deletion(self, token: str) -> Claims:
        """Return these claims without a deletion."""
        return replace(self, deletions=_without(self.deletions, token))

    def erasures_of(self, job: str) -> dict[str, ErasureClaim]:
        """Return the erasures of a job, by their requests."""
        return {
            request: claim
            for request, claim in self.erasures.items()
            if claim.every_job or job in claim.jobs
        }

    def attempts_on(self, jobs: Iterable[str]) -> dict[str, AttemptClaim]:
        """Return the attempts that write to some jobs, or keep their files, by their tokens."""
        among = set(jobs)
        return {
            token: claim
            for token, claim in self.attempts.items()
            if among & {claim.job, *map(job_of, claim.builds_on)}
        }

    def builders_on(self, job: str, snapshot_id: str) -> dict[str, AttemptClaim]:
        """Return the attempts that keep files of a snapshot, by their tokens."""
        name = base_name(job, snapshot_id)
        return {token: claim for token, claim in self.attempts.items() if name in claim.builds_on}

    def running(self) -> set[str]:
        """Return the tokens of attempts and erasures that may still write files, or name them."""
        return {*self.attempts, *(claim.token for claim in self.erasures.values())}

    def to_properties(self) -> dict[str, str]:
        """Return the properties of the catalog that hold these claims."""
        return {
            f"{PREFIX}{kind}.{name}": json.dumps(_plain(claim), separators=(",", ":"))
            for kind, claims in self._by_kind()
            for name, claim in claims.items()
        }

    def _by_kind(self) -> Iterator[tuple[str, Mapping[str, Claim]]]:
        yield "attempt", self.attempts
        yield "erasure", self.erasures
        yield "deletion", self.deletions


def read_claims(properties: Mapping[str, str | None], place: str) -> Claims:
    """Read the claims in the catalog's properties.

    Args:
        properties: The properties.
        place: The catalog, for the error.

    Raises:
        DamagedLakeError: One breaks a rule: statelake did not write it.
    """
    claims: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for key, text in sorted(properties.items()):
        kind, _, name = key.removeprefix(PREFIX).partition(".")
        if key.startswith(PREFIX) and kind in _KINDS:
            claims[kind][name] = _read_claim(kind, name, text or "", f"{place}, property {key}")
    return Claims(claims["attempt"], claims["erasure"], claims["deletion"])


def base_name(job: str, snapshot_id: str) -> str:
    """Return the name of a job's snapshot in claims."""
    return json.dumps([job, snapshot_id], ensure_ascii=False)


def job_of(base: str) -> str:
    """Return the job in a `base_name`; empty for other texts."""
    try:
        job, _ = json.loads(base)
    except (ValueError, TypeError, RecursionError):
        return ""
    return str(job)


def is_claim(key: str) -> bool:
    """Return whether a property of the catalog is a claim."""
    return key.startswith(PREFIX) and key.removeprefix(PREFIX).partition(".")[0] in _KINDS


def _read_claim(kind: str, name: str, text: str, place: str) -> Claim:
    refused = partial(
        DamagedLakeError,
        place=place,
        remedy="statelake did not write that: see who else writes into the lake, and take the"
        " property out with ALTER TABLE ... UNSET TBLPROPERTIES",
    )
    cls = _KINDS[kind]
    values = parse_json(text, refused, LONGEST)
    if cls is DeletionClaim and isinstance(values, dict):
        values = {"logs": {}, **values}  # not in those of older versions of statelake
    if not isinstance(values, dict) or values.keys() != cls.__dataclass_fields__.keys():
        raise refused("it has not the fields of a claim")
    claim: Claim = checked(values, cls, refused)
    if not isinstance(claim, DeletionClaim):
        checked(claim.process, Process, lambda problem: refused(f"process: {problem}"))
    problem = _problem_of(name, claim)
    if problem:
        raise refused(problem)
    return claim


def _problem_of(name: str, claim: Claim) -> str:
    """Return the rule that a claim breaks; empty if it is valid.

    A claim may only delete files that statelake wrote in tables of its job: a forged one can reach
    no others, and these only if no snapshot needs them.
    """
    if not isinstance(claim, ErasureClaim) and not is_token(name):
        return f"{name!r:.200} is no token"
    if isinstance(claim, AttemptClaim):
        others = [table for table in claim.tables if not is_table_of(claim.job, table)]
        return f"{others[0]!r:.200} is no table of job {claim.job!r}" if others else ""
    if isinstance(claim, ErasureClaim):
        if not is_token(claim.token):
            return f"{claim.token!r:.200} is no token"
        new = [file.path for files in claim.replaced.values() for file in files.values() if file]
        others = [path for path in new if not is_unit_path(path)]
        others += [
            table
            for table in claim.replaced
            if not any(is_table_of(job, table) for job in claim.jobs)
        ]
        return f"{others[0]!r:.200} is no file of ours, or no table of its jobs" if others else ""
    others = [
        table
        for table in (*claim.files, *claim.tables, *claim.shown, *claim.logs)
        if not is_table_of(claim.job, table)
    ]
    others += [
        path
        for paths in claim.files.values()
        for path in paths
        if not (token_of(path) or is_edited_file(path))
    ]
    others += [token for token in claim.tokens if not is_token(token)]
    others += [name for name in claim.carried if not is_unmanaged_name(name)]
    return f"{others[0]!r:.200} is no file or table of job {claim.job!r}" if others else ""


def _plain(claim: Claim) -> dict[str, Any]:
    return {
        key: value
        for key, value in msgspec.to_builtins(claim).items()
        if key != "logs" or value  # which older versions of statelake don't know
    }


def _without(claims: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key != name}
