"""Pack statelake with its requirements as one archive, for executors that only have Python.

::

    bin/python   starts the node's own Python, of the version that made the archive
    site/        the packages: all that `pip install statelake` brings and what is installed of
                 the extras `hdfs` and `kafka`, and compiled kernels

Spark unpacks it on each node, and starts that Python: `pipelines.spark.session` sets it. PySpark
itself is not part of it: nodes have it with Spark.
"""

from __future__ import annotations

import io
import os
import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import statelake
from statelake.pipelines.spark.worker_daemon import preload
from statelake.state_core.errors import StateError
from statelake.state_core.kernels.machine_code import MACHINE_CODE

_OF_SPARK = {"pyspark", "py4j", "delta-spark"}  # their JARs come with Spark
_EXTRAS = ("", "spark", "hdfs", "kafka")  # extras that tasks may need, if installed
_SCRIPT = """\
#!/bin/sh
# The node's Python {version}, with the packages beside it.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/site${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
check='import sys; print("%d.%d" % sys.version_info[:2])'
for python in "$STATELAKE_PYTHON" python{version} python3 python; do
  if [ -n "$python" ] && [ "$("$python" -c "$check" 2>/dev/null)" = {version} ]; then
    exec "$python" "$@"
  fi
done
echo "statelake's archive needs Python {version}, which this node does not have:" \\
  "install it, or set STATELAKE_PYTHON to where it is" >&2
exit 1
"""
_VERSION = "{}.{}".format(*sys.version_info[:2])


def pack(to: Path) -> int:
    """Write the archive, with compiled kernels, and return its bytes.

    Args:
        to: The file, a `.tar.gz`; the nodes must run the same system and processor as this machine.

    Raises:
        StateError: The archive can't be written, or its name does not end in `.tar.gz`.
    """
    if not to.name.endswith((".tar.gz", ".tgz")):
        raise StateError(
            "Spark tells an archive's type by its name",
            place=str(to),
            remedy="choose a name that ends in .tar.gz",
        )
    preload()
    part = to.with_name(f".{to.name}.part")
    try:
        with tarfile.open(part, "w:gz", compresslevel=1, dereference=True) as archive:
            _add_script(archive)
            for path, name in _files():
                archive.add(path, f"site/{name}", recursive=False)
        size = part.stat().st_size
        part.replace(to)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StateError(
            f"the archive can't be written ({error.strerror})",
            place=str(to),
            remedy="name a file in a directory that can be written to",
        ) from error
    return size


def _add_script(archive: tarfile.TarFile) -> None:
    script = _SCRIPT.format(version=_VERSION).encode()
    entry = tarfile.TarInfo("bin/python")
    entry.mode, entry.size = 0o755, len(script)
    archive.addfile(entry, io.BytesIO(script))


def _files() -> Iterator[tuple[Path, str]]:
    """Yield each file of each package, with its path in the archive."""
    (home,) = statelake.__path__
    yield from _own_files(Path(home))
    for name in sorted(_required("statelake") - {"statelake"}):
        for file in metadata.files(name) or ():
            place = Path(str(file.locate()))
            if not {"..", "__pycache__"} & set(file.parts) and place.is_file():
                yield place, str(file)


def _own_files(home: Path) -> Iterator[tuple[Path, str]]:
    for folder, _, names in os.walk(home, followlinks=True):  # a checkout has links in it
        for name in sorted(names):
            path = Path(folder, name)
            if path.parent.name != "__pycache__" or path.suffix == MACHINE_CODE:
                yield path, str(path.relative_to(home.parent))


def _required(name: str) -> set[str]:
    """Return a distribution and all installed distributions that its tasks need."""
    packages = set(_OF_SPARK)
    left = [name]
    while left:
        distribution = re.split(r"[^\w.-]", left.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if distribution in packages:
            continue
        try:
            needs = metadata.requires(distribution) or []
        except metadata.PackageNotFoundError:
            continue  # for another system or version of Python
        packages.add(distribution)
        extras = _EXTRAS if distribution == name else _EXTRAS[:1]
        left += [need for need in needs if _extra_of(need) in extras]
    return packages - _OF_SPARK


def _extra_of(requirement: str) -> str:
    """Return the extra of a requirement; empty without one."""
    match = re.search(r"extra\s*==\s*['\"]([\w-]+)", requirement)
    return match[1] if match else ""


def described() -> str:
    """Return the system, processor and Python version that nodes must share with this machine."""
    return f"Python {_VERSION} on {platform.system()} {platform.machine()}"
