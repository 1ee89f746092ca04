"""Root causes of failures on a Flink cluster, from Java's stack traces."""

from __future__ import annotations

import re

LONGEST = 600
"""The largest number of characters of a cause."""

_CAUSE = re.compile(r"^\s*(?:Caused by: |<?Exception on server side:\s*)?(.*)$")
_FRAME = re.compile(r"^\s*(?:at\s+[\w.$<>/@-]+\(|\.\.\. \d+ (?:more|common))")
_END = re.compile(r"^\s*End of exception on server side>?\s*$")
_CLASS = re.compile(r"\b(?:[a-z_][\w]*\.)+(?:[A-Za-z_$][\w$]*)(?=:|$)")
_WRAPPED = ("Internal server error.", "<Exception on server side:")


def root_cause(text: str) -> str:
    """Return the innermost cause of a stack trace, as `ClassName: message` on one line.

    Args:
        text: A stack trace as Java prints it, a message of Flink's REST API, or any other text, of
            which the first line is taken.
    """
    causes: list[list[str]] = [[]]
    behind_frames = False
    for line in text.splitlines():
        if line.strip() in _WRAPPED or _END.match(line) or not line.strip():
            continue
        if _FRAME.match(line):
            behind_frames = True
            continue
        if line.lstrip().startswith("Caused by: "):
            causes.append([])
        elif behind_frames and causes[-1]:
            continue  # `Suppressed:` and other lines after the frames
        behind_frames = False
        match = _CAUSE.match(line)
        causes[-1].append(match[1].strip() if match else line.strip())
    innermost = next((" ".join(cause) for cause in reversed(causes) if any(cause)), "")
    short = _CLASS.sub(lambda match: match[0].rpartition(".")[2], innermost, count=1)
    short = " ".join(short.split())
    return short if len(short) <= LONGEST else f"{short[:LONGEST]}..."
