"""What the tests download once, fetched while they run: `make test` calls it.

Nothing depends on it: what can't be had here is fetched, or missed, by the tests that need it.
"""

from __future__ import annotations

import sys

from statelake.state_core.errors import StateError
from tests.integration.flink.distribution import flink_jars
from tests.integration.flink.evolving import MODULES
from tests.integration.flink.live_cluster import cluster_jars
from tests.integration.flink.oracle import modules_of
from tests.integration.flink.sources import MODULES as SOURCE_MODULES
from tests.integration.flink.sources import NEW, OLD, connector_jars
from tests.integration.flink.sql_jobs import MODULES as SQL_MODULES
from tests.integration.hdfs.cluster import hadoop_jars
from tests.integration.kafka.broker import kafka_jars
from tests.integration.s3.proxy import s3proxy_jars
from tests.integration.samza.distribution import samza_jars
from tests.support.model_checking import tlc_jars

__all__ = ["fetch"]


def fetch() -> None:
    """Download the JARs of every server and of Flink, one after another: Ivy has one lock."""
    try:
        for version in ("2.3.0", "1.20.0"):
            flink_jars(version)
            flink_jars(version, modules_of(version))
        s3proxy_jars()
        tlc_jars()
        kafka_jars()
        hadoop_jars()
        for version in (NEW, OLD):
            flink_jars(version, SOURCE_MODULES)
            connector_jars(version)
        samza_jars()
        flink_jars("2.3.0", MODULES)
        flink_jars("2.3.0", ["flink-datastream"])
        cluster_jars()
        for version in ("2.3.0", "1.20.0"):
            flink_jars(version, SQL_MODULES)
        cluster_jars(extra=SQL_MODULES)
        cluster_jars("1.18.1")
    except StateError as error:
        sys.stderr.write(f"not fetched before the tests: {error}\n")


if __name__ == "__main__":
    fetch()
