"""Claims: what writers of a lake say in the catalog's log beside its snapshots.

A claim is a property of the `snapshots` table, so that one entry of the log changes snapshots and
claims at once, and rows stay snapshots alone.

===================================  =========================================================
`statelake.attempt.<token>`          someone writes files below that token
`statelake.erasure.<request>`        rows of some jobs are being erased
`statelake.deletion.<token>`         files that are no snapshot's any more are about to be deleted
===================================  =========================================================

Who can write into the lake can write a claim, too. One that breaks a rule is refused by name before
anything is written; snapshots are read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from statelake.pipelines.lake.catalog.processes import PROCESS_RULES
from statelake.pipelines.lake.tables.names import (
    is_carried_name,
    is_edited_file,
    is_table_of,
    is_token,
    is_unit_path,
    token_of,
)
from statelake.pipelines.lake.tables.record_rules import TEXT, TEXTS, Rule, broken_rule
from statelake.state_core.errors import DamagedLakeError

PREFIX = "statelake."
LONGEST = 64 << 20
_TEXT_MAP = Rule(
    lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
    "texts by name",
)
_FILES = Rule(
    lambda value: isinstance(value, dict) and all(map(TEXTS.kept, value.values())),
    "files by table",
)
_IS_SWITCH = Rule(lambda value: isinstance(value, bool), "true or false")
_NUMBERS = ("partition", "first", "last", "rows", "size")
_NEW_FILE = Rule(
    lambda value: (
        value is None
        or (
            isinstance(value, dict)
            and value.keys() == {"path", *_NUMBERS}
            and is_unit_path(str(value["path"]))
            and all(type(value[name]) is int for name in _NUMBERS)
        )
    ),
    "a file of ours",
)
_REPLACED = Rule(
    lambda value: (
        isinstance(value, dict)
        and all(
            isinstance(files, dict) and all(map(_NEW_FILE.kept, files.values()))
            for files in value.values()
        )
    ),
    "new files by table and old file",
)
_PROCESS = Rule(
    lambda value: isinstance(value, dict) and broken_rule(value, PROCESS_RULES) is None, "a process"
)


@dataclass(frozen=True)
class AttemptClaim:
    """Work that ends with a snapshot, or leaves nothing.

    Attributes:
        job: The job.
        snapshot_id: The snapshot that is to come of it; empty if it only keeps others.
        operation: `import`, `edit` and the like, for messages.
        builds_on: The snapshots whose files it keeps: by job and id, the digest of their files.
        tables: The tables that it may write into.
        process: Who: says how long to wait, and decides nothing.
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
        jobs: The jobs that nobody else may write to.
        every_job: Whether jobs that come later are closed as well.
        token: The token of the process that does it, below which its new files lie.
        switched: Whether snapshots name the new files, so that it can only be gone on with.
        replaced: By table and old file, the fields of the new one; None if no row is left.
        said: What will be recorded; empty before the switch.
        process: Who: says how long to wait, and decides nothing.
    """

    jobs: Sequence[str]
    every_job: bool
    token: str
    switched: bool
    replaced: Mapping[str, Mapping[str, Mapping[str, Any] | None]]
    said: Mapping[str, Any]
    process: Mapping[str, Any]


@dataclass(frozen=True)
class DeletionClaim:
    """Files that are about to be deleted, unless a snapshot or an attempt has them.

    Attributes:
        job: The job.
        files: By the path of a table, files below it.
        tokens: Of attempts that were taken back: all below these goes.
        carried: Carried files, by their names.
        tables: The tables in which files below these tokens may lie.
        shown: Tables whose newest version shows a snapshot that is gone.
    """

    job: str
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tokens: Sequence[str] = ()
    carried: Sequence[str] = ()
    tables: Sequence[str] = ()
    shown: Sequence[str] = ()


Claim: TypeAlias = AttemptClaim | ErasureClaim | DeletionClaim

_RULES: Mapping[type, Mapping[str, Rule]] = {
    AttemptClaim: {
        "job": TEXT, "snapshot_id": TEXT, "operation": TEXT, "builds_on": _TEXT_MAP,
        "tables": TEXTS, "process": _PROCESS,
    },
    ErasureClaim: {
        "jobs": TEXTS, "every_job": _IS_SWITCH,
        "token": Rule(lambda value: is_token(str(value)), "a token"),
        "switched": _IS_SWITCH, "replaced": _REPLACED,
        "said": Rule(lambda value: isinstance(value, dict), "what was found"), "process": _PROCESS,
    },
    DeletionClaim: {
        "job": TEXT, "files": _FILES, "tokens": TEXTS, "carried": TEXTS, "tables": TEXTS,
        "shown": TEXTS,
    },
}  # fmt: skip
_KINDS: Mapping[str, type] = {
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
        """These, with an attempt more."""
        return replace(self, attempts={**self.attempts, token: claim})

    def without_attempt(self, token: str) -> Claims:
        """These, without an attempt."""
        return replace(self, attempts=_without(self.attempts, token))

    def with_erasure(self, request: str, claim: ErasureClaim) -> Claims:
        """These, with an erasure more, or with another state of it."""
        return replace(self, erasures={**self.erasures, request: claim})

    def without_erasure(self, request: str) -> Claims:
        """These, without an erasure."""
        return replace(self, erasures=_without(self.erasures, request))

    def with_deletion(self, token: str, claim: DeletionClaim) -> Claims:
        """These, with a deletion more, if it is of anything."""
        if not (claim.files or claim.tokens or claim.carried or claim.shown):
            return self
        return replace(self, deletions={**self.deletions, token: claim})

    def without_deletion(self, token: str) -> Claims:
        """These, without a deletion."""
        return replace(self, deletions=_without(self.deletions, token))

    def erasures_of(self, job: str) -> dict[str, ErasureClaim]:
        """The erasures of a job, by their requests."""
        return {
            request: claim
            for request, claim in self.erasures.items()
            if claim.every_job or job in claim.jobs
        }

    def attempts_on(self, jobs: Iterable[str]) -> dict[str, AttemptClaim]:
        """The attempts that write to some jobs, or keep files of theirs, by their tokens."""
        among = set(jobs)
        return {
            token: claim
            for token, claim in self.attempts.items()
            if among & {claim.job, *map(job_of, claim.builds_on)}
        }

    def builders_on(self, job: str, snapshot_id: str) -> dict[str, AttemptClaim]:
        """The attempts that keep files of a snapshot, by their tokens."""
        name = base_name(job, snapshot_id)
        return {token: claim for token, claim in self.attempts.items() if name in claim.builds_on}

    def tokens(self) -> set[str]:
        """The tokens below which files may lie that no snapshot names."""
        named = {token for claim in self.deletions.values() for token in claim.tokens}
        return named | set(self.attempts) | {claim.token for claim in self.erasures.values()}

    def to_properties(self) -> dict[str, str]:
        """The properties of the catalog that say these."""
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
    """The claims that the catalog's properties say.

    Args:
        properties: The properties.
        place: The catalog, for the error.

    Raises:
        DamagedLakeError: One breaks a rule: no writer of ours said that.
    """
    claims: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for key, text in sorted(properties.items()):
        kind, _, name = key.removeprefix(PREFIX).partition(".")
        if key.startswith(PREFIX) and kind in _KINDS:
            claims[kind][name] = _read_claim(kind, name, text or "", f"{place}, property {key}")
    return Claims(claims["attempt"], claims["erasure"], claims["deletion"])


def base_name(job: str, snapshot_id: str) -> str:
    """How a claim names a snapshot of a job."""
    return json.dumps([job, snapshot_id], ensure_ascii=False)


def job_of(base: str) -> str:
    """The job in a `base_name`; empty for other texts."""
    try:
        job, _ = json.loads(base)
    except (ValueError, TypeError, RecursionError):
        return ""
    return str(job)


def is_claim(key: str) -> bool:
    """Whether a property of the catalog is a claim."""
    return key.startswith(PREFIX) and key.removeprefix(PREFIX).partition(".")[0] in _KINDS


def _read_claim(kind: str, name: str, text: str, place: str) -> Claim:
    cls = _KINDS[kind]
    try:
        values = json.loads(text) if len(text) <= LONGEST else None
    except (ValueError, RecursionError) as error:
        raise _foreign(f"malformed JSON ({error})", place) from error
    if not isinstance(values, dict) or values.keys() != _RULES[cls].keys():
        raise _foreign("it has not the fields of a claim", place)
    fault = broken_rule(values, _RULES[cls])
    if fault is not None:
        raise _foreign(f"{fault[0]}: {fault[1]}", place)
    claim: Claim = cls(**values)
    problem = _problem_of(name, claim)
    if problem:
        raise _foreign(problem, place)
    return claim


def _problem_of(name: str, claim: Claim) -> str:
    """What a claim says that could not be; empty if all could be.

    What is deleted by a claim must be a file of ours in a table of its job: that is all that a
    forged one can reach, and no snapshot has it then.
    """
    if not isinstance(claim, ErasureClaim) and not is_token(name):
        return f"{name!r:.200} is no token"
    if isinstance(claim, AttemptClaim):
        others = [table for table in claim.tables if not is_table_of(claim.job, table)]
        return f"{others[0]!r:.200} is no table of job {claim.job!r}" if others else ""
    if isinstance(claim, ErasureClaim):
        others = [
            table
            for table in claim.replaced
            if not any(is_table_of(job, table) for job in claim.jobs)
        ]
        return f"{others[0]!r:.200} is no table of its jobs" if others else ""
    others = [
        table
        for table in (*claim.files, *claim.tables, *claim.shown)
        if not is_table_of(claim.job, table)
    ]
    others += [
        path
        for paths in claim.files.values()
        for path in paths
        if not (token_of(path) or is_edited_file(path))
    ]
    others += [token for token in claim.tokens if not is_token(token)]
    others += [name for name in claim.carried if not is_carried_name(name)]
    return f"{others[0]!r:.200} is no file or table of job {claim.job!r}" if others else ""


def _foreign(problem: str, place: str) -> DamagedLakeError:
    return DamagedLakeError(
        problem,
        place=place,
        remedy="statelake did not write that: see who else writes into the lake, and take the"
        " property out with ALTER TABLE ... UNSET TBLPROPERTIES",
    )


def _plain(claim: Claim) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(claim).items()
    }


def _without(claims: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key != name}
