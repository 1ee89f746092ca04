"""Messages for Dagster, which keeps its logs for ever, without the words of a request."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable
from itertools import takewhile
from typing import TypeVar

import dagster as dg

from statelake.pipelines.lake.erase.needles import REDACTED, spellings
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.query.session import QueryError
from statelake.pipelines.orchestration.erasure.request_files import telling_words
from statelake.state_core.errors import StateError
from statelake.state_core.printable import printable

Result = TypeVar("Result")
LONGEST_WORD_SHOWN = 24  # characters: messages may cut off longer words
TRACEBACK_CALLS = 8


class Redaction:
    """Remove the words of a request from texts.

    Args:
        request: The request.
    """

    def __init__(self, request: ErasureRequest) -> None:
        forms = {form for word in telling_words(request) for form in _forms(word) if form.strip()}
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, original: str) -> str:
        """Return a text without words of the request, and without beginnings of long ones."""
        for form in self._forms:
            if len(form) <= LONGEST_WORD_SHOWN and form in original:
                original = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", REDACTED, original)
            while len(form) > LONGEST_WORD_SHOWN and form[:LONGEST_WORD_SHOWN] in original:
                at = original.index(form[:LONGEST_WORD_SHOWN])
                alike = takewhile(
                    lambda pair: pair[0] == pair[1], zip(original[at:], form, strict=False)
                )
                original = original[:at] + REDACTED + original[at + sum(1 for _ in alike) :]
        return original

    def run(self, work: Callable[[], Result]) -> Result:
        """Run some work, and return its result.

        Raises:
            Failure: It failed. Messages of statelake's errors are kept; those of other libraries
                and of DuckDB are left out, as they repeat their input.
        """
        try:
            return work()
        except dg.Failure:
            raise
        except Exception as error:  # noqa: BLE001 - Dagster would keep all of it
            failure = self._failure(error)
        raise failure  # outside of `except`: Dagster keeps the context of an error, too

    def _failure(self, error: Exception) -> dg.Failure:
        name = type(error).__name__
        if isinstance(error, StateError) and not isinstance(error, QueryError):
            return dg.Failure(self.text(str(error)), metadata={"error": name}, allow_retries=False)
        calls = [
            f"{frame.name}, line {frame.lineno} of {frame.filename}"
            for frame in traceback.extract_tb(error.__traceback__)[-TRACEBACK_CALLS:]
        ]
        return dg.Failure(
            f"{name}; its message may contain keys to erase, and is not shown. Run the same"
            " `statelake erase` without --yes to see it",
            metadata={"error": name, "where": "\n".join(calls)},
            allow_retries=False,
        )


def _forms(word: str) -> set[str]:
    """Return the forms in which messages may have a word."""
    return {
        word, printable(word), repr(word)[1:-1], json.dumps(word)[1:-1],
        *(text for _, text in spellings(word)),
    }  # fmt: skip
