"""Findings of checks of a job: faults and warnings, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum


class Severity(Enum):
    """Severity of a finding: it stops the job, or is only a warning."""

    FAULT = "fault"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One finding about a job.

    Attributes:
        severity: Whether it stops the job.
        rule: A short name of the rule, for programs: `mode`.
        operator: The operator's uid.
        problem: The problem, as a sentence without a period.
        remedy: The remedy; may be empty.
        function: The function's name, if it is known.
        state: The state's name; empty for the operator as a whole.
        streams: The operator's inputs: `B + NK`; empty if they do not matter.
    """

    severity: Severity
    rule: str
    operator: str
    problem: str
    remedy: str = ""
    function: str = ""
    state: str = ""
    streams: str = ""

    @property
    def fault(self) -> bool:
        """Return whether it stops the job."""
        return self.severity is Severity.FAULT

    @property
    def place(self) -> str:
        """The operator, function and state, for messages."""
        function = f" ({self.function})" if self.function else ""
        state = f", state {self.state!r}" if self.state else ""
        return f"operator {self.operator!r}{function}{state}"

    def as_json(self) -> dict[str, str]:
        """Return the finding for JSON."""
        return {**asdict(self), "severity": self.severity.value}

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}{self.remedy and '; ' + self.remedy}"
