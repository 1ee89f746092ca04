"""HDFS as a file system of Arrow, by hdfs-native: neither Java nor Hadoop's libraries are needed.

Name services, high availability and Kerberos come from Hadoop's own files, where
`HADOOP_CONF_DIR` or `HADOOP_HOME` leads to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from hdfs_native import Client, FileReader, FileStatus, FileWriter, WriteOptions
from pyarrow import fs

PERMISSION = 0o755  # mode of directories, with Hadoop's usual umask


def open_hdfs(uri: str) -> tuple[fs.FileSystem, str]:
    """Open the file system of a URI; return it and the path in it.

    Args:
        uri: `hdfs://namenode:8020/path`, or `hdfs://nameservice/path`, or of `viewfs://`.

    Raises:
        OSError: Hadoop's files don't define the name service.
    """
    parts = urlsplit(uri)
    return fs.PyFileSystem(_Hdfs(f"{parts.scheme}://{parts.netloc}")), unquote(parts.path) or "/"


class _Hdfs(fs.FileSystemHandler):  # type: ignore[misc]
    """The file system handler, written in Python, that Arrow calls.

    Args:
        url: The name node or name service.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        # a single name node is tried for 5 to 10 s; for a name service, Hadoop's files set the time
        config = {"dfs.client.failover.max.attempts": "3"} if urlsplit(url).port else None
        with _as_os_error():
            self.client = Client(url, config)

    def __reduce__(self) -> tuple[object, ...]:
        return (_Hdfs, (self.url,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hdfs) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _as_os_error():
                return _described(self.client.get_file_info(path))
        except (FileNotFoundError, NotADirectoryError):
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            with _as_os_error():
                listed = self.client.list_status(selector.base_dir, selector.recursive)
                return [_described(status) for status in listed]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def create_dir(self, path: str, recursive: bool) -> None:
        with _as_os_error():
            self.client.mkdirs(path, PERMISSION, recursive)

    def delete_dir(self, path: str) -> None:
        with _as_os_error():
            self.client.delete(path, True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        try:
            with _as_os_error():
                for status in self.client.list_status(path):
                    self.client.delete(status.path, True)
        except FileNotFoundError:
            if not missing_dir_ok:
                raise

    def delete_root_dir_contents(self) -> None:
        raise OSError("all of HDFS is not deleted at once")

    def delete_file(self, path: str) -> None:
        with _as_os_error():
            if not self.client.delete(path, False):
                raise FileNotFoundError(path)

    def move(self, src: str, dest: str) -> None:
        with _as_os_error():
            self.client.rename(src, dest, overwrite=True)

    def copy_file(self, src: str, dest: str) -> None:
        with self.open_input_stream(src) as source, self.open_output_stream(dest, None) as target:
            while data := source.read(1 << 20):
                target.write(data)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        with _as_os_error():
            return pa.PythonFile(_Opened(self.client.read(path)), "r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        with _as_os_error():
            return pa.PythonFile(_Created(self.client, path), "w")

    def write_new(self, path: str, data: bytes) -> bool:
        """Write a whole file if its name is free; return False if it is taken."""
        part = f"{path}.{token_hex(8)}.part"
        with _as_os_error():
            with self.client.create(part, WriteOptions(overwrite=False)) as file:
                file.write(data)
            try:
                self.client.rename(part, path, overwrite=False)
            except (FileExistsError, RuntimeError):
                if self._info(path).type == fs.FileType.NotFound:
                    raise
                self.client.delete(part, False)
                return False
        return True

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        raise NotImplementedError


class _Opened:
    """A readable file as Arrow's `PythonFile` calls it, whose errors are `OSError`.

    Args:
        file: The file.
    """

    def __init__(self, file: FileReader | FileWriter) -> None:
        self.file = file

    @property
    def closed(self) -> bool:
        return self.file.closed

    def read(self, size: int) -> bytes:
        with _as_os_error():
            return self.file.read(size) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def write(self, data: bytes) -> None:
        with _as_os_error():
            self.file.write(data)

    def flush(self) -> None:
        """Do nothing: no data is buffered here."""

    def close(self) -> None:
        with _as_os_error():
            self.file.close()


class _Created(_Opened):
    """A writable file that gets its name when it is closed, as HDFS shows unfinished files.

    Args:
        client: The client that creates it.
        path: Its name.
    """

    def __init__(self, client: Client, path: str) -> None:
        self.client, self.path = client, path
        self.part = f"{path}.{token_hex(8)}.part"
        super().__init__(client.create(self.part, WriteOptions(overwrite=False)))

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with _as_os_error():
            self.client.rename(self.part, self.path, overwrite=True)


def _described(status: FileStatus) -> fs.FileInfo:
    if status.isdir:
        return fs.FileInfo(status.path, fs.FileType.Directory)
    return fs.FileInfo(
        status.path,
        fs.FileType.File,
        size=status.length,
        mtime_ns=status.modification_time * 1_000_000,
    )


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise `OSError` for the `RuntimeError` that hdfs-native raises when a server refuses."""
    try:
        yield
    except RuntimeError as error:
        # the server's stack trace follows the first line
        raise OSError(str(error).partition("\\n")[0].partition("\n")[0]) from error
