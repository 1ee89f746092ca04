"""Fields that several requests have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelake.pipelines.requests.request import Request, option, refuse
from statelake.pipelines.shown import parse_duration

if TYPE_CHECKING:
    import os

    from statelake.pipelines.lake.share.mask_file import Mask

MAX_PARALLELISM = 1 << 15


def seconds(text: str) -> float:
    """Parse a duration, and return its seconds."""
    return parse_duration(text).total_seconds()


def share(text: str) -> float:
    """Parse a share of all keys."""
    from statelake.pipelines.lake.share.sampling import parse_share  # noqa: PLC0415 - not for --help

    return parse_share(text)


def path_map_option() -> Any:
    """Return the field of the paths of a cluster, and of this machine."""
    return option(
        "The name of a directory of the cluster on this machine: s3://bucket=/mnt/bucket.",
        "CLUSTER=HERE", default=(), variable="STATELAKE_FLINK_PATH_MAP",
    )  # fmt: skip


def parallelism_option(default: str) -> Any:
    """Return the field of a parallelism, which is by default as a sentence says."""
    return option(default, default=None, least=1)


def max_parallelism_option(default: str) -> Any:
    """Return the field of a maximum parallelism, which is by default as a sentence says."""
    return option(default, default=None, least=1, most=MAX_PARALLELISM)


def timeout_option(default: str, what: str) -> Any:
    """Return the field of a time until something must be over."""
    return option(f"{what}.", "DURATION", default=default, parse=seconds)


class Sharing(Request):
    """A sample of keys, and a mask of keys and values."""

    sample: float | None = option(
        "A share of the keys: 1%; all by default.", "SHARE", default=None, parse=share
    )
    seed: int = option("Another seed samples other keys.", default=0)
    mask: Mask | str | os.PathLike[str] | None = option(
        "A YAML file with the rules for masking.", "FILE", default=None
    )
    leave_out_opaque: bool = option("Leave out what can't be sampled or masked.", default=False)
    inexact: bool = option(
        "Go by what columns show of values that they don't hold in full; otherwise refused.",
        default=False,
    )

    def check(self) -> None:
        """Refuse what is for a sample or a mask without one."""
        if self.inexact and self.mask is None:
            refuse("--inexact is for --mask")
        if self.leave_out_opaque and self.sample is None and self.mask is None:
            refuse("--leave-out-opaque is for --sample and --mask")
