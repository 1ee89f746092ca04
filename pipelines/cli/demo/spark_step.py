"""The demo's one step on Spark, in a process that starts its JVM while other steps run.

Run as `python -m pipelines.cli.demo.spark_step ARGUMENTS...`: it opens a session, waits for a line
on standard input, which says that the lake is there, and calls `statelake sql` with the arguments.
"""

from __future__ import annotations

import sys

from pipelines.cli.commands.queries.sql import sql
from pipelines.spark.session import open_session


def main() -> None:
    """Start Spark, and run the query once it is asked for: not if the input ends before that."""
    session = open_session()
    session.range(1).count()
    if sys.stdin.readline():
        sql.main(sys.argv[1:])


if __name__ == "__main__":
    main()
