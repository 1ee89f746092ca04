"""What is installed only where it is wanted: the extras of the distribution, what each brings."""

from __future__ import annotations

from importlib.util import find_spec

from statelake.state_core.errors import MissingExtraError

__all__ = ["has_extra", "require_extra"]

# by the names in pyproject.toml: what is imported of it, and what people call that
_PACKAGES = {
    "spark": {"pyspark": "PySpark", "pandas": "pandas", "filelock": "filelock"},
    "connect": {"grpc_status": "grpcio-status", "zstandard": "zstandard"},
    "dagster": {"dagster": "Dagster"},
    "kafka": {"confluent_kafka": "confluent-kafka"},
    "flink": {"requests": "Requests"},
    "hdfs": {"hdfs_native": "hdfs-native"},
}


def _missing(extra: str) -> list[str]:
    return [name for module, name in _PACKAGES[extra].items() if find_spec(module) is None]


def has_extra(extra: str) -> bool:
    """Whether all that an extra brings is installed."""
    return not _missing(extra)


def require_extra(*extras: str) -> None:
    """Make sure that what some extras bring is installed.

    Raises:
        MissingExtraError: The extra is not installed; the message says what to install.
    """
    missing = {extra: names[0] for extra in extras if (names := _missing(extra))}
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise MissingExtraError(
            f"this needs {' and '.join(missing.values())}, which {verb} not installed",
            remedy=f"pip install 'statelake[{','.join(missing)}]'",
        )
