"""The options for showing keys and values, reading snapshots, and limiting queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelake.pipelines.requests.request import given, option, refuse
from statelake.pipelines.requests.shared import Masking, TypedReading, parse_size

if TYPE_CHECKING:
    from statelake.pipelines.lake.query.limits import QueryLimits


class Options(Masking, TypedReading):
    """The options for showing values, reading snapshots, and limiting queries."""

    values: bool = given("Whether keys and values are shown, and SQL runs.", default=True)
    audit: str = option(
        "Write a line to this file for each look at keys and values.", "FILE", default=""
    )
    query_memory: int | None = option(
        "How much memory a query may take, such as 2GiB; by default a quarter of the machine's,"
        " divided by --queries.",
        "SIZE", default=None, parse=parse_size, more=True,
    )  # fmt: skip
    query_seconds: int = option(
        "How long one may run; a download ten times as long.",
        default=60, least=1, most=86_400, more=True,
    )  # fmt: skip
    queries: int | None = option(
        "How many run at once; by default one for each core, up to 4.", "N",
        default=None, least=1, most=64, more=True,
    )  # fmt: skip

    def check_fields(self) -> None:
        """Refuse what is shown of nothing."""
        if self.leave_out_opaque and self.mask is None:
            refuse("--leave-out-opaque is for --mask")
        if (self.mask or self.audit) and not self.values:
            refuse("--mask and --audit are for --values, not for --no-values")

    @property
    def limits(self) -> QueryLimits:
        """Return the limits of queries."""
        from statelake.pipelines.lake.query.limits import QueryLimits  # noqa: PLC0415 - not for --help

        return QueryLimits.of_server(self.query_memory, self.query_seconds, self.queries)

    @property
    def reading(self) -> dict[str, Any]:
        """Return the arguments for opening or importing a savepoint or checkpoint."""
        return self.words(TypedReading)
