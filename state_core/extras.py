"""Optional dependencies: the extras of the distribution, and the packages of each."""

from __future__ import annotations

from importlib.util import find_spec

from statelake.state_core.errors import MissingExtraError

# by the names in pyproject.toml: the module to import, and the name that people know
_PACKAGES = {
    "spark": {"pyspark": "PySpark", "pandas": "pandas", "filelock": "filelock"},
    "connect": {"grpc_status": "grpcio-status", "zstandard": "zstandard"},
    "dagster": {"dagster": "Dagster"},
    "kafka": {"confluent_kafka": "confluent-kafka"},
    "flink": {"requests": "Requests"},
    "hdfs": {"hdfs_native": "hdfs-native"},
    "mcp": {"mcp": "mcp"},
    "ui": {"starlette": "Starlette", "uvicorn": "uvicorn"},
}


def _missing(extra: str) -> list[str]:
    return [name for module, name in _PACKAGES[extra].items() if find_spec(module) is None]


def has_extra(extra: str) -> bool:
    """Return whether all packages of an extra are installed."""
    return not _missing(extra)


def require_extra(*extras: str) -> None:
    """Make sure that the packages of some extras are installed.

    Raises:
        MissingExtraError: The extra is not installed; the message has the command to install it.
    """
    missing = {extra: names[0] for extra in extras if (names := _missing(extra))}
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise MissingExtraError(
            f"this needs {' and '.join(missing.values())}, which {verb} not installed",
            remedy=f"pip install 'statelake[{','.join(missing)}]'",
        )
