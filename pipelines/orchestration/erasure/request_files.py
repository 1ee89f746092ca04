"""Requests for erasure: JSON files in a directory, named after their ids.

Whoever asks may write there, so that nothing in a file is believed: its bytes are bounded, each
value is held against a rule, and no message repeats one, as it may be what is to be erased.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from statelake.pipelines.lake.erase.requests import ErasureRequest, check_request, words_of
from statelake.state_core.errors import DeclarationError, LakeError, MissingFileError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import is_text

ENDING = ".json"
MOST_BYTES = 4 << 20
MOST_OF_A_TEXT = 200
EARLIER_CLOCK = timedelta(days=1)
# parts of keys with fields, and numbers in predicates
_PARTS = re.compile(r"[\w.@+-]{3,}")
_NUMBERS = re.compile(r"(?<!\w)[+-]?\d[\d.]{2,}")


@dataclass(frozen=True)
class RequestFile:
    """A request.

    Attributes:
        asked: The keys and predicates, and the request's id.
        jobs: The jobs whose snapshots are searched; all if empty.
        whole: Whether a predicate may be true of every row of a state.
        asked_at: When it was asked.
        promised: When it has to be done.
        requested_by: Who asked.
    """

    asked: ErasureRequest
    jobs: tuple[str, ...]
    whole: bool
    asked_at: datetime
    promised: datetime
    requested_by: str

    def digest(self, secret: bytes) -> str:
        """Return a hash of the request that only the secret makes comparable with a guess."""
        text = json.dumps(asdict(self), sort_keys=True, default=datetime.isoformat)
        return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class RequestDirectory:
    """A directory of requests.

    Attributes:
        location: A path or URI.
        promised_days: How many days an erasure may take if its request does not say.
        blobs: Blob stores of runs that are erased from, too.
        changelogs: Directories of changelogs that are.
    """

    location: str
    promised_days: float
    blobs: tuple[str, ...] = ()
    changelogs: tuple[str, ...] = ()

    def ids(self) -> tuple[list[str], list[StateError]]:
        """Return the ids of all requests, and the faults of files with an invalid name.

        Files that do not end in `.json` are ignored.

        Raises:
            MissingFileError: There is no such directory.
        """
        directory = Directory(self.location).confined()
        if not directory.exists():
            raise MissingFileError(
                "there is no such directory of requests",
                place=directory.uri,
                remedy="make it, or name another one in `erasure.requests`",
            )
        ids: list[str] = []
        faults: list[StateError] = []
        for name in directory.names():
            if name.endswith(ENDING):
                request = name.removesuffix(ENDING)
                try:
                    check_request(request)
                    ids.append(request)
                except LakeError as error:
                    faults.append(error.within(directory.uri))
        return ids, faults

    def read(self, request: str) -> RequestFile:
        """A request.

        Raises:
            MissingFileError: Its file does not exist.
            DeclarationError: The content is not a valid request.
            LakeError: The id is invalid.
        """
        check_request(request)
        directory, name = Directory(self.location).confined(), f"{request}{ENDING}"
        place = f"{directory.uri}/{name}"
        if not directory.is_file(name):
            raise MissingFileError(
                "there is no such request", place=place, remedy="write it as a file of that name"
            )
        if directory.size(name) > MOST_BYTES:
            raise DeclarationError(f"no request is longer than {MOST_BYTES >> 20} MiB", place=place)
        try:
            parsed = _parsed(request, directory.read(name), self.promised_days)
        except DeclarationError as error:
            raise error.within(place) from None
        if any(_is_named(word, request) for word in telling_words(parsed.asked)):
            raise DeclarationError(
                "a file there is called by what is to be erased, which would be recorded",
                place=directory.uri,
                remedy="call it by the number of a ticket",
            )
        erasure = replace(parsed.asked, blobs=self.blobs, changelogs=self.changelogs)
        return replace(parsed, asked=erasure)


def telling_words(request: ErasureRequest) -> set[str]:
    """Return the words that reveal what is erased: keys, their parts, literals of predicates."""
    words = set(words_of(request)).union(*map(_PARTS.findall, request.keys))
    return words.union(*map(_NUMBERS.findall, request.where.values()))


@dataclass(frozen=True)
class _Rule:
    kept: Callable[[Any], bool]
    wanted: str


def _is_text(value: object, most: int = MOST_BYTES) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= most and is_text(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_TIME = _Rule(
    lambda it: _is_text(it, MOST_OF_A_TEXT), "a time with its zone, as 2026-11-20T09:00:00Z"
)
_RULES = {
    "keys": _Rule(_are_texts, "a list of texts, each as `statelake dump` prints a key"),
    "where": _Rule(
        lambda it: isinstance(it, dict) and all(map(_is_text, (*it, *it.values()))),
        'an object of texts, as {"operator/state": "value = 7"}',
    ),
    "jobs": _Rule(_are_texts, "a list of names of jobs"),
    "carried": _Rule(lambda it: it in ("drop", "keep"), "drop or keep"),
    "all": _Rule(lambda it: isinstance(it, bool), "true or false"),
    "asked_at": _TIME,
    "promised": _TIME,
    "requested_by": _Rule(
        lambda it: _is_text(it, MOST_OF_A_TEXT), f"a text of at most {MOST_OF_A_TEXT} characters"
    ),
}


def _parsed(request: str, data: bytes, promised_days: float) -> RequestFile:
    """Parse a request from the bytes of its file.

    Raises:
        DeclarationError: The content is not a valid request.
    """
    try:
        values = json.loads(data, object_pairs_hook=_named_once)
    except DeclarationError:
        raise
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise DeclarationError(f"it is not JSON ({problem})") from None
    if not isinstance(values, dict) or not values.keys() <= _RULES.keys():
        raise DeclarationError(
            "it is no request", remedy=f"a request is an object of {', '.join(_RULES)}"
        )
    for name, value in values.items():
        if not _RULES[name].kept(value):
            raise DeclarationError(f"`{name}` is not {_RULES[name].wanted}")
    keys, where = values.get("keys", []), values.get("where", {})
    if not keys and not where:
        raise DeclarationError("it names nothing that is to go", remedy="give `keys` or `where`")
    asked_at = _time(values, "asked_at")
    if asked_at > datetime.now(timezone.utc) + EARLIER_CLOCK:
        raise DeclarationError("`asked_at` is in the future")
    promised = asked_at + timedelta(days=promised_days)
    erasure = ErasureRequest(request, tuple(dict.fromkeys(keys)), where, values.get("carried", ""))
    requested_by = values.get("requested_by", "")
    if any(_is_named(word, requested_by) for word in telling_words(erasure)):
        raise DeclarationError(
            "`requested_by` names what is to be erased, and would be recorded",
            remedy="give the number of a ticket, or a department",
        )
    return RequestFile(
        erasure,
        tuple(dict.fromkeys(values.get("jobs", []))),
        values.get("all", False),
        asked_at,
        _time(values, "promised") if "promised" in values else promised,
        requested_by,
    )


def _is_named(word: str, text: str) -> bool:
    """Return whether a text has a word, and not merely as a part of another."""
    if word.casefold() not in text.casefold():
        return False
    return bool(re.search(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", text, re.IGNORECASE))


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; a name that stands twice is refused, as either could be meant."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise DeclarationError("a name stands in it twice")
    return values


def _time(values: dict[str, Any], name: str) -> datetime:
    """Parse a time into UTC.

    Raises:
        DeclarationError: It is missing, malformed, or has no zone.
    """
    text = values.get(name, "")
    try:
        # Python 3.10 knows no Z
        moment = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", text))
        if moment.tzinfo is not None:
            return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        pass
    raise DeclarationError(f"`{name}` is not {_TIME.wanted}")
