"""Names in a lake: ids of snapshots, paths of tables, and names as path segments."""

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
COMMITS, RUNS = "_commits", "_runs"
OLD_AREAS = ("stores", "changelogs", "_checkpoints")  # of jobs in older lakes; nothing reads them
LONGEST = 110  # two of them and a suffix are a name of at most 255
LONGEST_JOB = 200  # part of the name of a directory in the catalog, percent-encoded
FLINK_SAVEPOINT = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")
FLINK_CHECKPOINT = re.compile(r"chk-\d+")
# a job's newest snapshot, or one before it: reserved, not an id
KEY_GROUPS_FILE = "key-groups-"
LATEST = re.compile(r"latest(?:~(\d{1,9}))?", re.ASCII)
_TOKEN = re.compile("[0-9a-f]{16}")
_CARRIED = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?", re.ASCII)
_UNIT = re.compile(r"_data/([0-9a-f]{16})/(\d+/)?(key-groups?|subtask)-\d{5}\.parquet", re.ASCII)
# the files that Spark and delta-rs write into a table, and Hadoop's checksums beside them
_ENGINES_FILE = r"(\.?part-[\w.-]+\.parquet(\.crc)?|\.?_SUCCESS(\.crc)?)"
_STAGED = re.compile(
    r"_data/([0-9a-f]{16})/staged/((?!\.\.?/)[\w=.-]+/)*[\w.-]*(\.parquet|_SUCCESS)(\.crc)?",
    re.ASCII,
)
_EDITED = re.compile(rf"([a-z_]+=[\w-]+/)?{_ENGINES_FILE}", re.ASCII)
_VERSIONED = re.compile(r"part-(\d{5,20})-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")
_PATH_SEGMENT = re.compile(r"[A-Za-z0-9~-][A-Za-z0-9_.~-]{0,254}")
# a suffix for a table if another one of that name has other partitions
_OTHERWISE = re.compile(r"(~(key_group|key_group_bucket|whole))*")
_PLAIN = re.compile(r"[A-Za-z0-9.-][A-Za-z0-9_.-]*")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


def path_segment(name: str) -> str:
    """Return a name as one path segment that every file system and engine takes literally.

    Letters, digits, `_`, `-` and `.` stay; any other byte becomes `~` and two hex digits. So does
    an underscore or dot in front, which would hide the directory, and an empty name. A result that
    is too long for a file system ends in digits of its digest instead.
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
    """Return an id that the same snapshot always gets, and no other snapshot.

    Flink's own name of a savepoint's directory is unique; `chk-21` is not, and a renamed directory
    can have any name: those get eight digits of the digest of `_metadata`.
    """
    name: str = posixpath.basename(Directory(source).root)
    if FLINK_SAVEPOINT.fullmatch(name):
        return name
    stem = name if FLINK_CHECKPOINT.fullmatch(name) else f"sp-{checkpoint_id}"
    return f"{stem}-{digest[:8]}"


def check_names(job: str, snapshot_id: str | None) -> None:
    """Refuse names by which a job or snapshot could not be found again.

    Raises:
        LakeError: A name is empty, not valid text, too long for a directory, or reserved.
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


def job_directory(job: str) -> str:
    """Return the directory of a job: another one if it has the name of the catalog's."""
    name = path_segment(job)
    return _escape(name[0]) + name[1:] if name == SNAPSHOTS else name


def areas_of(job: str) -> tuple[str, str, str]:
    """Return the directories of a job's tables: of keyed state, of timers, and of operator state.

    The second has one table for each operator; the others, one for each operator and state.
    """
    within = job_directory(job)
    return f"{within}/{KEYED}", f"{within}/{TIMERS}", f"{within}/{OPERATOR}"


def keyed_table(job: str, operator: str, state: str) -> str:
    """Return the path of a keyed state's table below the lake."""
    return "/".join((areas_of(job)[0], path_segment(operator), path_segment(state)))


def operator_table(job: str, operator: str, state: str) -> str:
    """Return the path of an operator state's table below the lake."""
    return "/".join((areas_of(job)[2], path_segment(operator), path_segment(state)))


def timers_table(job: str, operator: str) -> str:
    """Return the path of an operator's table of timers below the lake."""
    return "/".join((areas_of(job)[1], path_segment(operator)))


def queue_table(job: str, operator: str, queue: str) -> str:
    """Return the path of one queue of timers, for an operator whose queues are not alike."""
    return f"{timers_table(job, operator)}~{path_segment(queue)}"


def commits_table(job: str) -> str:
    """Return the path of the table with the costs of a job's commits."""
    return f"{job_directory(job)}/{COMMITS}"


def is_token(text: str) -> bool:
    """Return whether a text is a valid token of an attempt."""
    return _TOKEN.fullmatch(text) is not None


def unmanaged_name(digest: str, token: str) -> str:
    """Return the name of a carried file: its SHA-256, and the attempt that wrote it."""
    return f"{digest}.{token}"


def is_unmanaged_name(text: str) -> bool:
    """Return whether a text is a valid name of a carried file; in older lakes, without attempt."""
    return _CARRIED.fullmatch(text) is not None


def digest_in(name: str) -> str:
    """Return the SHA-256 in the name of a carried file."""
    return name.partition(".")[0]


def token_in(name: str) -> str:
    """Return the attempt in the name of a carried file; empty in older lakes."""
    return name.partition(".")[2]


def is_unit_path(path: str) -> bool:
    """Return whether a path below a table is a valid path of a snapshot's file."""
    return _UNIT.fullmatch(path) is not None


def names_key_groups(path: str) -> bool:
    """Return whether a file's record names the first and the last key group of its rows.

    In statelake's first lakes a record names all key groups that the file might have.
    """
    return posixpath.basename(path).startswith(KEY_GROUPS_FILE)


def new_folder(attempt: str) -> str:
    """Return a new folder of an attempt, for one run of a task only.

    A task may run twice at once, if Spark takes its executor for lost or slow. Each run then has
    its own files, and the table gets those of the run whose result arrived.
    """
    return f"{attempt}/{secrets.randbits(40)}"


def token_of(path: str) -> str:
    """Return the attempt that wrote a file, by its path below its table; empty for other files."""
    match = _UNIT.fullmatch(path) or _STAGED.fullmatch(path)
    return "" if match is None else match[1]


def is_edited_file(path: str) -> bool:
    """Return whether a path below a table is one of an edit with Spark or delta-rs."""
    return _EDITED.fullmatch(path) is not None


def new_edited_file(version: int = 0) -> str:
    """Return an unused name of a file, in the form of Spark and delta-rs.

    Args:
        version: The only version of the table's log that may name it. Once the log has that
            version and does not name the file, no version ever will.
    """
    return f"part-{version:05d}-{uuid.uuid4()}.parquet"


def version_in(path: str) -> int | None:
    """Return the version of a log that may name a `new_edited_file`; None for other files."""
    match = _VERSIONED.fullmatch(posixpath.basename(path))
    return None if match is None else int(match[1])


def is_table_path(path: str) -> bool:
    """Return whether a path below the lake is one of a table of some job."""
    _, _, rest = path.partition("/")
    area, *names = rest.split("/")
    expected = {KEYED: 2, TIMERS: 1, OPERATOR: 2}.get(area)
    return len(names) == expected and all(map(_PATH_SEGMENT.fullmatch, names))


def is_table_of(job: str, path: str, state: str | None = None, *, area: str = "") -> bool:
    """Return whether a path below the lake is one of a table of a job.

    The operator may have any name, since it may have been renamed.

    Args:
        job: The job.
        path: The path.
        state: The state of the table; any by default.
        area: `keyed`, `timers` or `operator`; any by default.
    """
    within, _, rest = path.partition("/")
    own_area, *names = rest.split("/")
    if within != job_directory(job) or not is_table_path(path) or area not in ("", own_area):
        return False
    if state is None or own_area == TIMERS:
        return True
    segment = path_segment(state)
    return names[-1].startswith(segment) and bool(
        _OTHERWISE.fullmatch(names[-1].removeprefix(segment))
    )


def _underscored(match: re.Match[str]) -> str:
    return "_" if match[0] == "%" else f"_{ord(match[0]):02X}"


def stream_of(job: str, uid: str) -> str:
    """Return the stream of an operator's changelogs of runs: a valid name of a topic in Kafka.

    It has no dots, since Samza can't read the marker of a stream with some.

    Args:
        job: The job.
        uid: The operator; of an empty one it is what all streams of the job begin with.
    """
    names = [re.sub("[._~%]", _underscored, quote(name, safe="")) for name in (job, uid)]
    return "__".join((*names, "state") if uid else names)
