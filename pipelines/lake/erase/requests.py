"""Requests of erasures: keys, and predicates over single states."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from statelake.pipelines.lake.query.literals import text_literals
from statelake.state_core.errors import LakeError

SECRET = "STATELAKE_ERASE_SECRET"  # noqa: S105 - the name of a variable
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.])\d{5,}(?!\w)", re.ASCII)


@dataclass(frozen=True)
class ErasureRequest:
    """A request: the keys and rows to erase.

    Attributes:
        request: The id under which it is recorded.
        keys: Keys as text, for `pipelines.keys.key_from_text`, of all operators with such keys.
        where: By state (`operator/state`), an SQL predicate of the rows to erase.
        carried: Whether to `drop` or `keep` state without tables; empty to refuse it.
        snapshots: Ids of the only snapshots from which is erased; empty for all.
        blobs: Blob stores of runs: directories, or URIs.
        changelogs: Directories of changelogs.
    """

    request: str
    keys: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    carried: str = ""
    snapshots: Sequence[str] = ()
    blobs: Sequence[str] = ()
    changelogs: Sequence[str] = ()

    def of_snapshot(self, snapshot_id: str) -> bool:
        """Return whether a snapshot is part of the request."""
        return not self.snapshots or snapshot_id in self.snapshots


def check_request(request: str) -> None:
    """Refuse an id that can't be the name of a file.

    Raises:
        LakeError: The id can't be a file's name.
    """
    if not _REQUEST.fullmatch(request):
        raise LakeError(
            f"{request!r:.100} is not a valid request id",
            remedy="use up to 80 letters, digits, `.`, `_` and `-`, beginning with a letter or "
            "digit",
        )


def words_of(request: ErasureRequest, *, parts: bool = False) -> list[str]:
    """Return the words of a request: its keys, and the texts of its predicates.

    Args:
        request: The request.
        parts: Whether the fields of its keys, and numbers of five digits or more in predicates,
            are words, too: they are meaningful in a note, but not among bytes.
    """
    words = list(request.keys)
    for key in request.keys:
        with suppress(ValueError, RecursionError):
            value = json.loads(key) if key[:1] in '"[{' else None
            words += _texts_in(value) if parts or isinstance(value, str) else []
    for predicate in request.where.values():
        words += text_literals(predicate)
        words += _NUMBER.findall(predicate) if parts else []
    return sorted({word for word in words if word.strip()}, key=len, reverse=True)


def only_field(key: str) -> list[str]:
    """Return the only field of a key, if it is a text or a longer number; otherwise nothing."""
    try:
        value = json.loads(key) if key[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return []
    while isinstance(value, dict | list) and len(value) == 1:
        (value,) = value.values() if isinstance(value, dict) else value
    return [] if isinstance(value, dict | list) else _texts_in(value)


def _texts_in(value: Any) -> list[str]:
    """Return the texts, and the longer numbers, in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for each in value for text in _texts_in(each)]
    return [value] if isinstance(value, str) else _NUMBER.findall(str(value))


def keyed_digest(request: ErasureRequest, secret: bytes) -> str:
    """Return a hash of a request that can't be compared with a guess without the secret.

    Args:
        request: The request.
        secret: The key of the hash, known to its user only; without one the hash is empty.
    """
    if not secret:
        return ""
    message = json.dumps([sorted(request.keys), sorted(request.where.items())]).encode()
    return hmac.new(secret, message, hashlib.sha256).hexdigest()
