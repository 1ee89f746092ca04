"""Requests for snapshots with new types, for Flink 2, or for a changed query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from statelake.pipelines.requests.request import Request, given, option, refuse
from statelake.pipelines.requests.shared import (
    INEXACT,
    TARGET,
    NewSavepoint,
    Noted,
    Savepoint,
    Tried,
    suffix_option,
)

if TYPE_CHECKING:
    from statelake.pipelines.lake.change.sql_upgrading import NoUids
    from statelake.state_core.plans.plan import Plan

WORDS = ("add_field", "default", "rename_field", "drop_field", "change", "expression")


class Migrate(Noted, Tried):
    """States with new types, as one new snapshot."""

    state: Sequence[str] = option(
        "Only this state of the file's; may be repeated.", "OPERATOR/STATE", default=()
    )
    to: Sequence[str] = option(
        "A file that says what states become. With several files, the first --state is of the"
        " first file, and so on.",
        "FILE", default=(), kw_only=False,
    )  # fmt: skip
    add_field: Sequence[str] = option("Add a field.", "STATE.FIELD=TYPE", default=())
    default: Sequence[str] = option(
        "The value of an added field; one for each --add-field, in their order.", "SQL", default=()
    )
    rename_field: Sequence[str] = option(
        "Rename a field, which keeps its values.", "STATE.OLD=NEW", default=()
    )
    drop_field: Sequence[str] = option(
        "Drop a field, or let it go that a file leaves out.", "STATE.FIELD", default=()
    )
    change: Sequence[str] = option(
        "Give a field, or the value, another type.", "STATE[.FIELD]=TYPE", default=()
    )
    expression: Sequence[str] = option(
        "What a field, or the value, becomes: SQL over the value `old`.", "STATE[.FIELD]=SQL",
        default=(),
    )  # fmt: skip
    ttl: Sequence[str] = option(
        "Switch a keyed state's time to live; may be repeated, and go with --to.",
        "OPERATOR/STATE=on|off", default=(),
    )  # fmt: skip
    last_access: str = option(
        "The time of last access that values get with --ttl: now, when the snapshot was taken, or"
        " a field of the values.",
        "now|taken_at|FIELD", default="now",
    )  # fmt: skip
    suffix: str = suffix_option("-migrated")
    inexact: bool = option(INEXACT, default=False, more=True)

    @property
    def has_words(self) -> bool:
        """Return whether a change is given in words, beside those in files."""
        return any(getattr(self, name) for name in WORDS)

    def check_fields(self) -> None:
        """Refuse to migrate nothing, and what goes with nothing that is given."""
        if not (self.to or self.ttl or self.has_words) or (self.state and not self.to):
            refuse(
                "give --to, and --state if need be, words such as --add-field, or --ttl, or"
                " several of these"
            )
        if self.last_access != "now" and not any(text.endswith("=on") for text in self.ttl):
            refuse("--last-access is for --ttl OPERATOR/STATE=on")
        if self.state and len(self.to) > 1 and len(self.state) != len(self.to):
            refuse("give one --state for each --to, in their order, or none")


class MigrateSnapshots(Migrate):
    """Each of several snapshots with new types of states, or all not migrated yet."""

    snapshots: Sequence[str] = option(
        "A snapshot to migrate.", default=(), flag="--snapshot", names="snapshot"
    )


class Upgrading(Request):
    """The upgrade of a snapshot of Flink 1 to state that Flink 2 restores."""

    to_flink: str = option(
        "The Flink that is to restore it.", "VERSION", default="2", kw_only=False
    )
    collection: Sequence[str] = option(
        "The type of a collection that no value tells: List<String>.",
        "OPERATOR/STATE.FIELD=TYPE", default=(),
    )  # fmt: skip
    like: str | os.PathLike[str] | None = option(
        "A savepoint of the new job in Flink 2, whose types are taken.", "SAVEPOINT", default=None
    )
    partly: bool = option("Leave states that can't be upgraded as they are.", default=False)


class Upgrade(Noted, Tried, Upgrading):
    """A snapshot for Flink 2, beside that of Flink 1."""

    suffix: str = suffix_option("-flink-2")


class UpgradeSavepoint(Upgrading, NewSavepoint):
    """A savepoint for Flink 2."""

    to: str | os.PathLike[str] | None = option(TARGET, "DIRECTORY", default=None, kw_only=False)


def no_uids_field() -> Any:
    """Return the field of whether operators of a SQL job have the uids of its plan."""
    return given(
        "Whether both jobs run without a compiled plan, so that operators have no uids; `old` if"
        " the old one alone does.",
        default=False,
    )


class Plans(Request):
    """The plans of an old query and of a new one."""

    old_plan: str | os.PathLike[str] | Plan = option(
        "The compiled plan of the job that took it, a file of JSON, or what `compile_sql` returns.",
        kw_only=False,
    )
    new_plan: str | os.PathLike[str] | Plan = option(
        "That of the job that is to go on from it.", kw_only=False
    )
    no_uids: NoUids = no_uids_field()


class Matching(Request):
    """What plans can't tell of operators that are the same."""

    map: Sequence[str] = option(
        "Two nodes that are the same, where plans can't tell.", "OLD=NEW", default=()
    )
    like: str | os.PathLike[str] | None = option(
        "A savepoint of the new job, whose types are taken.", "SAVEPOINT", default=None
    )


class Accepted(Request):
    """The accepted fates of state for a changed query."""

    accept: Sequence[str] = option("partly, filter, or lost=OPERATOR.", "WHAT", default=())


class AcceptMore(Accepted):
    """The other accepted fates of state, and the name of the new snapshot."""

    suffix: str = suffix_option("-sql")


class Accepting(Accepted, Matching):
    """The accepted fates of state, and facts that plans do not have."""

    inexact: bool = option(INEXACT, default=False, more=True)


class GoingOn(Noted, Tried, AcceptMore, Accepting):
    """A snapshot from which the job of a changed query goes on."""


class CheckSql(Matching, Plans):
    """The verdict on a changed query."""


class CheckSqlOfSavepoint(CheckSql, Savepoint):
    """The verdict on a changed query for the job of a savepoint."""


class UpgradeSql(GoingOn, CheckSql):
    """A snapshot for a changed query."""


class UpgradeSqlSavepoint(Accepting, CheckSql, NewSavepoint):
    """A savepoint for a changed query."""
