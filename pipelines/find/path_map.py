"""Convert paths of a cluster to paths of this machine, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote, urlsplit

from statelake.state_core.errors import (
    DeclarationError,
    MissingFileError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import relative_path
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.object_stores import AZURE_SCHEMES
from statelake.state_core.files.storage_options import location_below

METADATA = "_metadata"
# an Azure account; any other host is a server
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}\.(dfs|blob)\.core\.windows\.net", re.ASCII)
_LOCAL = re.compile(r"file:(?://)?(?=/)", re.IGNORECASE)


class PathMap:
    """A map from directories of the cluster to directories of this machine.

    Args:
        prefixes: By the directory on the cluster (`s3://bucket/flink`), the same directory on this
            machine (`/mnt/bucket/flink`). The longest matching prefix counts.
    """

    def __init__(self, prefixes: Mapping[str, str] | None = None) -> None:
        self._prefixes = {
            _plain(cluster): here.rstrip("/") or "/" for cluster, here in (prefixes or {}).items()
        }

    def __repr__(self) -> str:
        shown = {cluster: _resolved(here) for cluster, here in self._prefixes.items()}
        return f"PathMap({shown!r})"

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> PathMap:
        """Parse a map from texts like `s3://bucket/flink=/mnt/bucket/flink`.

        Raises:
            DeclarationError: A mapping is not of that form.
        """
        prefixes = {}
        for pair in pairs:
            cluster, equals, here = pair.partition("=")
            if not (cluster and equals and here):
                raise DeclarationError(
                    f"{pair!r} is not a valid mapping",
                    remedy="give CLUSTER=HERE: s3://bucket=/mnt/bucket",
                )
            prefixes[cluster] = here
        return cls(prefixes)

    def here(self, path: str) -> str:
        """Return the path on this machine of a path on the cluster.

        Raises:
            UnsafePathError: The path leads out of the mapped directory, or names a server, which
                would get this machine's keys.
        """
        plain = _plain(path)
        here = _moved(plain, self._prefixes, location_below)
        if here == plain and (says := _says_server(plain)):
            raise UnsafePathError(
                f"the cluster wrote {plain}, which {says}",
                remedy="map the directory to its path on this machine: --path-map CLUSTER=HERE",
            )
        return here

    def there(self, path: str) -> str:
        """Return the path on the cluster of a path on this machine.

        Relative paths become absolute. Options and credentials of a URI are this machine's.

        Raises:
            UnsafePathError: The path leads out of the mapped directory.
        """
        prefixes = {_resolved(here): there for there, here in self._prefixes.items()}
        return _moved(_resolved(path), prefixes, lambda above, below: f"{above}/{below}")

    def readable(self, path: str) -> str:
        """Return the path on this machine of a snapshot on the cluster, if it can be read.

        Raises:
            MissingFileError: It can't be read; the message has the cluster's path, and how to map
                it.
        """
        here = self.here(path)
        why = "there is no such snapshot here"
        try:
            if Directory(here).is_file(METADATA):
                return here
        except (StateError, OSError) as error:
            why = error.problem if isinstance(error, StateError) else str(error)
        looked = "" if here == _plain(path) else f", here {_resolved(here)}"
        above = path.rstrip("/").rpartition("/")[0] or path
        raise MissingFileError(
            f"the cluster wrote {path}{looked}, which can't be read ({why})",
            remedy="give the path of that directory on this machine:"
            f" --path-map '{above}=/where/it/is/here' (STATELAKE_FLINK_PATH_MAP, path_map)",
        )


def _says_server(path: str) -> str:
    """Return why a path would send this machine's keys to a server; empty if it would not."""
    if "://" not in path:
        return ""
    if "?" in path or "#" in path:
        return "has options"
    try:
        parts = urlsplit(path)
        is_azures = bool(_ACCOUNT.fullmatch(parts.hostname or "")) and parts.port is None
    except ValueError:
        return "is not a URI"
    return "names a server" if parts.scheme in AZURE_SCHEMES and not is_azures else ""


def _plain(path: str) -> str:
    """Return a path without Flink's `file:` prefix, and without a slash at the end."""
    return _LOCAL.sub("", path).rstrip("/") or "/"


def _resolved(path: str) -> str:
    """Return a path of this machine in absolute form for other programs."""
    plain = _plain(path)
    if "://" not in plain:
        return Directory(plain).uri
    parts = urlsplit(plain)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}".rstrip("/")


def _moved(path: str, prefixes: Mapping[str, str], joined: Callable[[str, str], str]) -> str:
    for prefix in sorted(prefixes, key=len, reverse=True):
        if path == prefix:
            return prefixes[prefix]
        above = prefix if prefix.endswith("/") else f"{prefix}/"
        if path.startswith(above):
            below = relative_path(path[len(above) :], what="a path of the cluster's", inside=prefix)
            return joined(prefixes[prefix].rstrip("/"), below)
    return path
