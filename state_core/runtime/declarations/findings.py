"""Findings of checks of a job: faults and warnings, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from statelake.state_core.printable import JsonFields, Printed, Table, count_text
from statelake.state_core.runtime.declarations.jobs import OperatorDeclaration
from statelake.state_core.runtime.declarations.states import StateDeclaration


class Severity(Enum):
    """Severity of a finding: it stops the job, or is only a warning."""

    FAULT = "fault"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding(JsonFields):
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

    @classmethod
    def of(
        cls,
        severity: Severity,
        rule: str,
        operator: OperatorDeclaration,
        problem: str,
        remedy: str,
        state: StateDeclaration | None = None,
    ) -> Finding:
        """Return a finding about an operator with its inputs, or about one of its states."""
        name = "" if state is None else state.name
        return cls(
            severity, rule, operator.uid, problem, remedy, operator.function, name, operator.streams
        )

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

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}{self.remedy and '; ' + self.remedy}"


class JobFindings(Printed, list[Finding]):
    """All findings about a job."""

    JSON = ("legal=!faults", "findings=.")

    @property
    def faults(self) -> int:
        """The number of faults among them."""
        return sum(finding.fault for finding in self)

    @property
    def table(self) -> Table:
        """The findings below their number, as people read them."""
        warnings = count_text(len(self) - self.faults, "warning")
        rows = [
            (each.severity.value, each.rule,
             f"{each.operator} ({each.function})" if each.function else each.operator,
             each.state, [each.problem, *([f"→ {each.remedy}"] if each.remedy else [])])
            for each in self
        ]  # fmt: skip
        title = f"{count_text(self.faults, 'fault')}, {warnings}"
        return Table(title, ("<severity", "<rule", "<operator", "<state", "<what"), rows)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        yield self.table if self else self.table.title
