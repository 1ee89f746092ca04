"""Run a check of statelake's in a CI job, and write what it found to the job's page.

`action.yml` and the pre-commit hook call it::

    python release/check_in_ci.py compatibility --savepoint savepoints/monday --against types.yaml
    python release/check_in_ci.py integrity --savepoint savepoints/monday
    python release/check_in_ci.py legality --declared jobs.py:ORDERS --savepoint savepoints/monday

It ends as the check does: 0, 1 if the answer is no, 3 for bad input. The page is the file that
`GITHUB_STEP_SUMMARY` names; without one it is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MARKS = {"compatible_as_is": "✅", "compatible_after_migration": "🔁", "incompatible": "❌"}


def main() -> int:
    """Check, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=("compatibility", "integrity", "legality"))
    parser.add_argument("--savepoint", default="")
    parser.add_argument("--against", default="")
    parser.add_argument("--declared", default="", metavar="MODULE:JOB")
    parser.add_argument("--allow-non-restored-state", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="statelake-check-") as directory:
        ended = _run(_words(asked, Path(directory)))
    if ended.returncode not in (0, 1):
        said = "\n".join(map(_cell, ended.stderr.strip().splitlines()))
        page = f"<pre>\n{said}\n</pre>\n"
    else:
        page = _PAGES[asked.check](json.loads(ended.stdout))
    verdict = {0: "passed", 1: "failed"}.get(ended.returncode, "could not run")
    _publish(f"### statelake check {asked.check}: {verdict}\n\n{page}")
    return ended.returncode


def _words(asked: argparse.Namespace, directory: Path) -> list[str]:
    """The words of the check; a savepoint is imported where the check is of a lake's snapshot."""
    lenient = ["--allow-non-restored-state"] if asked.allow_non_restored_state else []
    if asked.check == "integrity":
        return ["check", "integrity", asked.savepoint, "--json"]
    if asked.check == "legality":
        held = ["--savepoint", asked.savepoint] if asked.savepoint else []
        return ["check", "legality", asked.declared, *held, *lenient, "--json"]
    job = ["--lake", str(directory / "lake"), "--job", "job", "--snapshot", "snapshot"]
    imported = _run(["import", asked.savepoint, *job])
    if imported.returncode:
        sys.stderr.write(imported.stderr)
        raise SystemExit(imported.returncode)
    return ["check", "compatibility", *job, "--against", asked.against, *lenient, "--json"]


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["statelake", *words], capture_output=True, text=True, check=False)


def _compatibility(found: dict[str, Any]) -> str:
    rows = []
    for state in found["states"]:
        reasons = "; ".join(
            f"{reason['path']}: {reason['old']} → {reason['new']}, {reason['rule']}"
            for reason in state["reasons"]
        )
        mark = MARKS.get(state["verdict"], "❔")
        verdict = state["verdict"].replace("_", " ")
        rows.append((mark, state["operator"], state["state"] or "(key)", verdict, reasons))
    return _table(("", "operator", "state", "verdict", "why"), rows)


def _integrity(found: dict[str, Any]) -> str:
    counted = ", ".join(f"{count:,} {what}" for what, count in found["checked"].items())
    rows = [tuple(str(value) for value in fault.values()) for fault in found["faults"]]
    heads = tuple(found["faults"][0]) if found["faults"] else ()
    return f"Read: {counted}.\n\n" + (_table(heads, rows) if rows else "")


def _legality(found: dict[str, Any]) -> str:
    return f"```json\n{json.dumps(found, indent=2)}\n```\n"


_PAGES = {"compatibility": _compatibility, "integrity": _integrity, "legality": _legality}


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown; no name out of a savepoint ends a cell, a row or a code span."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text as it is, whatever it holds: Markdown and HTML have no meaning in it."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return "".join(f"&#{ord(char)};" if char in "|`<>&*_[]\\!" else char for char in shown)


def _publish(page: str) -> None:
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(page)
    sys.stdout.write(page)


if __name__ == "__main__":
    raise SystemExit(main())
