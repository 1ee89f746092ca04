"""Requests to object stores that Arrow's file systems don't have.

An object is written only if its name is free, so that one of several writers wins; and an object
whose size is known from a listing is read in one request, where Arrow asks for its size first.
obstore is built on the same Rust library as delta-rs, and takes the same options.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from statelake.state_core.errors import MissingFileError, SnapshotError, UnreachableFileError
from statelake.state_core.files.object_stores import STORE_REMEDY, first_line
from statelake.state_core.files.storage_options import storage_options

if TYPE_CHECKING:
    from statelake.state_core.files.filesystem import Directory

_HTTP = "AWS_ALLOW_HTTP"


def put_new(directory: Directory, path: str, data: bytes) -> bool:
    """Write an object unless its name is taken.

    Args:
        directory: A directory of a store.
        path: The object's path below it.
        data: Its bytes.

    Returns:
        Whether it was written. It can be False although this request wrote the object, if the
        answer to a first attempt was lost.

    Raises:
        SnapshotError: The store can't be reached, refuses, or does not support conditional
            requests.
    """
    import obstore  # noqa: PLC0415 - who reads a snapshot on a disk needs no store
    from obstore.exceptions import (  # noqa: PLC0415 - the same
        AlreadyExistsError,
        BaseError,
        NotSupportedError,
        PreconditionError,
    )

    try:
        obstore.put(_store(directory), path, data, mode="create")
    except (AlreadyExistsError, PreconditionError):
        return False
    except NotSupportedError as error:
        raise SnapshotError(
            "the store does not support conditional writes, so that two writers could overwrite"
            f" each other ({first_line(error)})",
            place=directory.full(path),
            remedy="keep the lake in a store that has them, or on a disk",
        ) from error
    except (BaseError, OSError, ValueError) as error:
        raise SnapshotError(
            f"can't be written: {first_line(error)}",
            place=directory.full(path),
            remedy=STORE_REMEDY,
        ) from error
    return True


def get(directory: Directory, path: str, size: int) -> bytes:
    """Return the first `size` bytes of an object, by one request.

    Args:
        directory: A directory of a store.
        path: The object's path below it.
        size: The size that a listing gave, at least 1.

    Raises:
        MissingFileError: The object does not exist.
        UnreachableFileError: The store can't be reached, or refuses.
    """
    import obstore  # noqa: PLC0415 - who reads a snapshot on a disk needs no store
    from obstore.exceptions import BaseError, NotFoundError  # noqa: PLC0415 - the same

    try:
        return bytes(obstore.get_range(_store(directory), path, start=0, length=size))
    except (NotFoundError, FileNotFoundError) as error:
        raise MissingFileError("no such file", place=directory.full(path)) from error
    except (BaseError, OSError, ValueError) as error:
        raise UnreachableFileError(
            f"can't be read: {first_line(error)}",
            place=directory.full(path),
            remedy=STORE_REMEDY,
        ) from error


def delete_all(directory: Directory, paths: Sequence[str]) -> None:
    """Remove objects, those that exist.

    Args:
        directory: A directory of a store.
        paths: The objects' paths below it.

    Raises:
        SnapshotError: The store can't be reached, or refuses.
    """
    import obstore  # noqa: PLC0415 - who reads a snapshot on a disk needs no store
    from obstore.exceptions import BaseError, NotFoundError  # noqa: PLC0415 - the same

    try:
        store = _store(directory)
        try:
            obstore.delete(store, list(paths))
        except (NotFoundError, FileNotFoundError):  # of stores that delete one by one
            for path in paths:
                with suppress(NotFoundError, FileNotFoundError):
                    obstore.delete(store, path)
    except (BaseError, OSError, ValueError) as error:
        raise SnapshotError(
            f"can't be removed: {first_line(error)}", place=directory.full(), remedy=STORE_REMEDY
        ) from error


def _store(directory: Directory) -> Any:
    """Return the store whose root is a directory."""
    options = storage_options(directory) or {}
    return _opened(directory.uri, tuple(sorted(options.items())))


@lru_cache(maxsize=64)
def _opened(uri: str, options: tuple[tuple[str, str], ...]) -> Any:
    """Return a store whose root is a directory."""
    from obstore.store import from_url  # noqa: PLC0415 - the same

    given = dict(options)
    client: Any = {"allow_http": True} if given.pop(_HTTP, "").lower() in {"1", "true"} else None
    config: Any = {name.lower(): value for name, value in given.items()}
    return from_url(uri, config=config, client_options=client)
