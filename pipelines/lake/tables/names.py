"""What things are called in a lake: ids of snapshots, and names as path segments."""

from __future__ import annotations

import hashlib
import posixpath
import re
import secrets
import uuid
from urllib.parse import quote

from statelake.state_core.errors import LakeError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import is_text

SNAPSHOTS, KEYED, TIMERS, OPERATOR = "snapshots", "keyed", "timers", "operator"
ERASURE_RECORDS = "_statelake/erasure_records"
AREAS = (KEYED, TIMERS, OPERATOR)
STORES, CHANGELOGS = "stores", "changelogs"
CHECKPOINTS, COMMITS, RUNS = "_checkpoints", "_commits", "_runs"
LONGEST = 110  # two of them, and what tells a table from an older one, are a name of 255
LONGEST_JOB = 200  # in the catalog it is part of a directory's name, percent-encoded
FLINK_SAVEPOINT = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")
FLINK_CHECKPOINT = re.compile(r"chk-\d+")
# a job's newest snapshot, or so many before it: no snapshot is called so
KEY_GROUPS_FILE = "key-groups-"
LATEST = re.compile(r"latest(?:~(\d{1,9}))?", re.ASCII)
_TOKEN = re.compile("[0-9a-f]{16}")
_CARRIED = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?", re.ASCII)
_UNIT = re.compile(r"_data/([0-9a-f]{16})/(\d+/)?(key-groups?|subtask)-\d{5}\.parquet", re.ASCII)
# what Spark and delta-rs write into a table, and what Hadoop keeps of each file beside it
_ENGINES_FILE = r"(\.?part-[\w.-]+\.parquet(\.crc)?|\.?_SUCCESS(\.crc)?)"
_STAGED = re.compile(
    r"_data/([0-9a-f]{16})/staged/((?!\.\.?/)[\w=.-]+/)*[\w.-]*(\.parquet|_SUCCESS)(\.crc)?",
    re.ASCII,
)
_EDITED = re.compile(rf"([a-z_]+=[\w-]+/)?{_ENGINES_FILE}", re.ASCII)
_VERSIONED = re.compile(r"part-(\d{5,20})-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")
_PATH_SEGMENT = re.compile(r"[A-Za-z0-9~-][A-Za-z0-9_.~-]{0,254}")
# behind the name of a table where another of that name is partitioned otherwise
_OTHERWISE = re.compile(r"(~(key_group|key_group_bucket|whole))*")
_PLAIN = re.compile(r"[A-Za-z0-9.-][A-Za-z0-9_.-]*")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


def path_segment(name: str) -> str:
    """A name as one path segment that every file system and engine takes literally.

    Letters, digits, `_`, `-` and `.` stay; any other byte becomes `~` and two hex digits. So does
    an underscore or dot in front, which would hide the directory, and an empty name. What gets too
    long for a file system ends in digits of its digest instead.
    """
    if _PLAIN.fullmatch(name) and not name.startswith("."):
        segment = name
    else:
        head = _escape(name[:1]) if name[:1] in ("", ".", "_") else _escape_others(name[0])
        segment = (head or "~") + _escape_others(name[1:])
    if len(segment) <= LONGEST:
        return segment
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{segment[: LONGEST - 18]}~~{digest[:16]}"


def default_snapshot_id(source: str, digest: str, checkpoint_id: int) -> str:
    """An id that the same snapshot always gets, and another never.

    Flink's own name of a savepoint's directory is unique; `chk-21` is not, and a renamed directory
    can be called anything: those get eight digits of the digest of `_metadata`.
    """
    name: str = posixpath.basename(Directory(source).root)
    if FLINK_SAVEPOINT.fullmatch(name):
        return name
    stem = name if FLINK_CHECKPOINT.fullmatch(name) else f"sp-{checkpoint_id}"
    return f"{stem}-{digest[:8]}"


def check_names(job: str, snapshot_id: str | None) -> None:
    """Refuse names by which nothing could be found again.

    Raises:
        LakeError: A name is empty, no text, too long for a directory's, or means another snapshot.
    """
    for name in (job, snapshot_id or ""):
        if not is_text(name):
            raise LakeError(f"{name!r} is no text", remedy="give a name in UTF-8")
    if not job or snapshot_id == "":
        raise LakeError(f"a {'snapshot' if job else 'job'} needs a name", remedy="give one")
    if snapshot_id and (snapshot_id + "~").startswith("latest~"):
        raise LakeError(
            f"no snapshot can be called {snapshot_id!r}: that is how the newest is asked for",
            remedy="give another name",
        )
    if len(quote(job)) > LONGEST_JOB:
        raise LakeError(f"the job's name is too long: {job[:40]}...", remedy="give a shorter one")


def _escape_others(text: str) -> str:
    return _OTHER.sub(lambda match: _escape(match[0]), text)


def _escape(text: str) -> str:
    return "".join(f"~{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def _job_directory(job: str) -> str:
    """No table may lie in another: a job that is called like the catalog lies beside it."""
    name = path_segment(job)
    return _escape(name[0]) + name[1:] if name == SNAPSHOTS else name


def areas_of(job: str) -> tuple[str, str, str]:
    """The directories of a job's tables: of keyed state, of timers, and of operator state.

    Below the second is a table an operator; below the others, one for each operator and state.
    """
    within = _job_directory(job)
    return f"{within}/{KEYED}", f"{within}/{TIMERS}", f"{within}/{OPERATOR}"


def keyed_table(job: str, operator: str, state: str) -> str:
    """The path of a keyed state's table below the lake."""
    return "/".join((areas_of(job)[0], path_segment(operator), path_segment(state)))


def operator_table(job: str, operator: str, state: str) -> str:
    """The path of an operator state's table below the lake."""
    return "/".join((areas_of(job)[2], path_segment(operator), path_segment(state)))


def timers_table(job: str, operator: str) -> str:
    """The path of an operator's timers below the lake."""
    return "/".join((areas_of(job)[1], path_segment(operator)))


def queue_table(job: str, operator: str, queue: str) -> str:
    """The path of one queue of timers, where an operator's queues are not alike."""
    return f"{timers_table(job, operator)}~{path_segment(queue)}"


def store_table(job: str, store: str) -> str:
    """The path of the table that a store's tasks commit to."""
    return f"{_job_directory(job)}/{STORES}/{path_segment(store)}"


def changelog_table(job: str, stream: str) -> str:
    """The path of the table of a stream of changes."""
    return f"{_job_directory(job)}/{CHANGELOGS}/{path_segment(stream)}"


def checkpoint_log_table(job: str) -> str:
    """The path of a job's checkpoint log."""
    return f"{_job_directory(job)}/{CHECKPOINTS}"


def commits_table(job: str) -> str:
    """The path of what a job's commits cost."""
    return f"{_job_directory(job)}/{COMMITS}"


def is_token(text: str) -> bool:
    """Whether an attempt is called like that."""
    return _TOKEN.fullmatch(text) is not None


def carried_name(digest: str, token: str) -> str:
    """The name of a carried file: its SHA-256, and the attempt that wrote it."""
    return f"{digest}.{token}"


def is_carried_name(text: str) -> bool:
    """Whether a carried file is called so; older lakes have no attempt in the name."""
    return _CARRIED.fullmatch(text) is not None


def digest_in(name: str) -> str:
    """The SHA-256 in the name of a carried file."""
    return name.partition(".")[0]


def token_in(name: str) -> str:
    """The attempt in the name of a carried file; empty in older lakes."""
    return name.partition(".")[2]


def is_unit_path(path: str) -> bool:
    """Whether a file of ours that a snapshot names is at such a path below its table."""
    return _UNIT.fullmatch(path) is not None


def names_key_groups(path: str) -> bool:
    """Whether a file of ours has rows of the first and of the last key group that it is said to.

    Those of statelake's first lakes are said to have all key groups that they might have.
    """
    return posixpath.basename(path).startswith(KEY_GROUPS_FILE)


def new_folder(attempt: str) -> str:
    """A folder of an attempt's that nobody else writes to.

    A task may run twice at once, where Spark takes its executor for lost or slow. Each run has
    files of its own then, and those of the run whose result came are the table's.
    """
    return f"{attempt}/{secrets.randbits(40)}"


def token_of(path: str) -> str:
    """The attempt that wrote a file of ours, by its path below its table; empty if none did."""
    match = _UNIT.fullmatch(path) or _STAGED.fullmatch(path)
    return "" if match is None else match[1]


def is_edited_file(path: str) -> bool:
    """Whether an edit with Spark or delta-rs leaves a file at such a path below its table."""
    return _EDITED.fullmatch(path) is not None


def new_edited_file(version: int = 0) -> str:
    """A name that no file has, as Spark and delta-rs give one.

    Args:
        version: The only version of the table's log that may name it. Once the log has that
            version and does not name the file, nothing ever will.
    """
    return f"part-{version:05d}-{uuid.uuid4()}.parquet"


def version_in(path: str) -> int | None:
    """The version of a log that may name a file of `new_edited_file`; None for other files."""
    match = _VERSIONED.fullmatch(posixpath.basename(path))
    return None if match is None else int(match[1])


def is_table_path(path: str) -> bool:
    """Whether a table of some job is at such a path below the lake."""
    _, _, rest = path.partition("/")
    area, *names = rest.split("/")
    expected = {KEYED: 2, TIMERS: 1, OPERATOR: 2}.get(area)
    return len(names) == expected and all(map(_PATH_SEGMENT.fullmatch, names))


def is_table_of(job: str, path: str, state: str | None = None, *, area: str = "") -> bool:
    """Whether a table of a job is at such a path below the lake.

    The operator may be called anything, as it may have been renamed since.

    Args:
        job: The job.
        path: The path.
        state: The state whose table it is to be; any by default.
        area: `keyed`, `timers` or `operator`; any by default.
    """
    within, _, rest = path.partition("/")
    own_area, *names = rest.split("/")
    if within != _job_directory(job) or own_area not in (KEYED, TIMERS, OPERATOR):
        return False
    if area not in ("", own_area) or len(names) != (1 if own_area == TIMERS else 2):
        return False
    if not all(map(_PATH_SEGMENT.fullmatch, names)):
        return False
    if state is None or own_area == TIMERS:
        return True
    segment = path_segment(state)
    return names[-1].startswith(segment) and bool(
        _OTHERWISE.fullmatch(names[-1].removeprefix(segment))
    )
