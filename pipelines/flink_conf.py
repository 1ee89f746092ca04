"""Flink's own configuration keys, where they say something about how a snapshot is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from state_core.errors import EncodeError

__all__ = ["COMPRESSION_KEY", "compression_of", "parse_conf"]

COMPRESSION_KEY = "execution.checkpointing.snapshot-compression"
_BOOLEANS = {"true": "snappy", "false": "none"}


def parse_conf(settings: Iterable[str]) -> dict[str, str]:
    """`key=value`, as `--conf` has it.

    Raises:
        EncodeError: Not of that form, or a key that nothing follows from here.
    """
    found = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise EncodeError(f"{setting!r} is not of the form KEY=VALUE", place="--conf")
        found[key] = value
    _check(found)
    return found


def _check(conf: Mapping[str, str]) -> None:
    unknown = sorted(set(conf) - {COMPRESSION_KEY})
    if unknown:
        raise EncodeError(
            f"{unknown[0]!r} has no meaning for a snapshot that is written here",
            remedy=f"what has: {COMPRESSION_KEY}=true|false",
        )


def compression_of(conf: Mapping[str, str], compression: str | None = None) -> str | None:
    """`snappy`, `none`, or nothing said.

    Args:
        conf: Flink's configuration.
        compression: What was said otherwise; it must not contradict.

    Raises:
        EncodeError: A value that is no boolean, an unknown key, or a contradiction.
    """
    _check(conf)
    if COMPRESSION_KEY not in conf:
        return compression
    wanted = _BOOLEANS.get(str(conf[COMPRESSION_KEY]).lower())
    if wanted is None:
        raise EncodeError(f"{COMPRESSION_KEY} is {conf[COMPRESSION_KEY]!r}: true or false")
    if compression not in (None, wanted):
        raise EncodeError(
            f"{COMPRESSION_KEY}={conf[COMPRESSION_KEY]} and compression {compression!r}",
            remedy="say one of them",
        )
    return wanted
