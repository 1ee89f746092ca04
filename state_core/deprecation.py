"""Names that are deprecated: what replaces each, and the version that removes it.

`docs/stability.md` lists them, and a test fails in the version that promised to remove one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class Deprecation:
    """A deprecated name.

    Attributes:
        use: What replaces it.
        deprecated_in: The version that deprecated it.
        removed_in: The version that removes it.
    """

    use: str
    deprecated_in: str
    removed_in: str


DEPRECATIONS = {
    "pipelines.orchestration.component.StateLake": Deprecation(
        "statelake.dagster.StateLake", "0.1", "0.2"
    ),
    "statelake run --blobs": Deprecation("--commit-to blob=PLACE", "0.1", "0.2"),
    "statelake run --restore-from blob_store": Deprecation("--restore-from blob", "0.1", "0.2"),
    "statelake rescale": Deprecation("statelake plan-rescale", "0.1", "0.2"),
}


def deprecation_text(name: str) -> str:
    """Return the sentence that a use of a deprecated name gives."""
    known = DEPRECATIONS[name]
    return (
        f"{name} is deprecated since statelake {known.deprecated_in} and removed in"
        f" {known.removed_in}: use {known.use}"
    )


def warn_deprecated(name: str, stacklevel: int = 2) -> None:
    """Give a `FutureWarning` of a deprecated name.

    Args:
        name: The name, in `DEPRECATIONS`.
        stacklevel: As for `warnings.warn`, counted from the caller.
    """
    warnings.warn(deprecation_text(name), FutureWarning, stacklevel=stacklevel + 1)
