"""Plugins: users' code that registers serializers and decoders, here and in other processes.

There are three sources: modules or files that a user names (`load_plugin`), those in the
environment variable `STATELAKE_PLUGINS`, separated by commas, and the entry points of installed
distributions in the group `statelake.serializers`. The latter two are loaded at the first unknown
class. An entry point names a module, which registers on import, or a function without arguments
that does.

Other processes (Spark's workers) load the same plugins: `loaded_plugins` returns them, by name or,
for a file, with its text, and `restore_plugins` loads them there.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statelake.state_core.errors import PluginError, StateError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "statelake.serializers"
ENVIRONMENT = "STATELAKE_PLUGINS"
_PREFIX = "statelake_plugin_"


@dataclass(frozen=True)
class Plugin:
    """The code that another process needs to load the same plugin.

    Attributes:
        name: The module's name.
        path: Its file; empty for a module that Python finds by its name.
        text: The content of that file.
        declares: Whether `forget_declarations` forgets it, so that it can be loaded again.
    """

    name: str
    path: str = ""
    text: bytes = b""
    declares: bool = False


class _State:
    """The plugins that this process has loaded."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.plugins: dict[str, Plugin] = {}
        self.installed = False
        self.failures: list[str] = []
        self.changes = 0


_state = _State()
_forgetting: list[Callable[[], None]] = []  # functions that make modules forget declarations


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of a group of all installed distributions."""
    from importlib import metadata  # noqa: PLC0415 - it takes time, and few types are unknown

    return metadata.entry_points(group=group)


def note_change() -> None:
    """Note that something was registered."""
    _state.changes += 1


def changes() -> int:
    """Return the number of registrations so far."""
    return _state.changes


def failures() -> tuple[str, ...]:
    """Return the failures of entry points; each was also reported as a warning."""
    return tuple(_state.failures)


def load_plugin(named: str) -> types.ModuleType:
    """Import a module, or run a Python file as one; once, however often this is called.

    Args:
        named: The module, such as `acme.flink_types`, or the path of a file that ends in `.py`.

    Raises:
        PluginError: The module does not exist, or fails when imported.
    """
    if not named.endswith(".py"):
        return _load(Plugin(named))
    try:
        text = Path(named).read_bytes()
    except OSError as error:
        raise PluginError(f"it can't be read ({error.strerror})", place=named) from error
    return load_text(named, text)


def has_same_text(module: str, other: str) -> bool:
    """Return whether two modules are the same, or run the same text: one may be a plugin's."""
    digest = _digest(module)
    return module == other or (digest != "" and digest == _digest(other))


def _digest(module: str) -> str:
    """Return the digest of a module's text as in a plugin's name; empty if it has no file."""
    if module.startswith(_PREFIX):
        return module.rpartition("_")[2]
    try:
        file = sys.modules[module].__file__ or ""
        return _digest_of(Path(file).read_bytes())
    except (AttributeError, KeyError, OSError):
        return ""


def _digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:12]


def load_text(path: str, text: bytes, *, declares: bool = False) -> types.ModuleType:
    """Run the text of a file as a module; once, however often this is called.

    Args:
        path: The file, for messages.
        text: Its content, which is Python.
        declares: As in `Plugin`.

    Raises:
        PluginError: The module fails while it runs.
    """
    # by content, so that equal files are one module in all processes
    name = f"{_PREFIX}{Path(path).stem}_{_digest_of(text)}"
    return _load(Plugin(name, path, text, declares))


def forget_with(forget: Callable[[], None]) -> None:
    """Register a function that `forget_declarations` calls."""
    _forgetting.append(forget)


def forget_declarations() -> None:
    """Forget all declarations, and the plugins that made them."""
    with _state.lock:
        for plugin in _declaring(_state.plugins.values()):
            del _state.plugins[plugin.name]
        for forget in _forgetting:
            forget()
        note_change()


def _declaring(plugins: Iterable[Plugin]) -> list[Plugin]:
    return [plugin for plugin in plugins if plugin.declares]


def loaded_plugins() -> tuple[Plugin, ...]:
    """Return the plugins that were loaded by name, in order, without entry points."""
    if os.environ.get(ENVIRONMENT):
        load_installed()
    return tuple(_state.plugins.values())


def restore_plugins(plugins: Iterable[Plugin]) -> None:
    """Load the plugins of another process; forget other declarations.

    Raises:
        PluginError: A plugin does not exist here, or it fails.
    """
    names = tuple(plugins)
    with _state.lock:
        if _declaring(names) != _declaring(_state.plugins.values()):
            forget_declarations()
        for plugin in names:
            _load(plugin)


def load_installed() -> None:
    """Load the plugins of the environment and of installed distributions, once.

    A failing entry point gives a warning; the other ones are still loaded.

    Raises:
        PluginError: A plugin that `STATELAKE_PLUGINS` names can't be loaded.
    """
    with _state.lock:
        if _state.installed:
            return
        _state.installed = True  # set first, as plugins may meet unknown classes themselves
        try:
            for named in os.environ.get(ENVIRONMENT, "").split(","):
                if named.strip():
                    load_plugin(named.strip())
        except PluginError:
            _state.installed = False
            raise
        for entry_point in entry_points(group=GROUP):
            _load_entry_point(entry_point)


def _load_entry_point(entry_point: EntryPoint) -> None:
    whose = entry_point.dist.name if entry_point.dist is not None else "an unknown distribution"
    try:
        loaded = entry_point.load()
        if isinstance(loaded, types.FunctionType):
            loaded()
        elif not isinstance(loaded, types.ModuleType):
            kind = type(loaded).__name__
            raise PluginError(f"it is a {kind}, neither a module nor a function")  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - it is anybody's code
        message = (
            str(error) if isinstance(error, StateError) else f"{type(error).__name__}: {error}"
        )
        named = f"{entry_point.name} = {entry_point.value}"
        problem = f"entry point {named} of distribution {whose} failed: {message}"
        _state.failures.append(problem)
        warnings.warn(
            f"{problem}; types that it would register stay unknown", RuntimeWarning, stacklevel=4
        )


def _load(plugin: Plugin) -> types.ModuleType:
    with _state.lock:
        if plugin.name in _state.plugins and plugin.name in sys.modules:
            return sys.modules[plugin.name]
        try:
            module = _run(plugin) if plugin.path else importlib.import_module(plugin.name)
        except StateError as error:
            raise error.within(plugin.path or plugin.name) from error
        except Exception as error:
            raise PluginError(
                f"it can't be loaded ({type(error).__name__}: {' '.join(str(error).split())})",
                place=plugin.path or plugin.name,
                remedy="give an importable module, or a file that ends in .py",
            ) from error
        _state.plugins[plugin.name] = plugin
        return module


def _run(plugin: Plugin) -> types.ModuleType:
    """Run a file as its own module, which pickling finds by name."""
    module = types.ModuleType(plugin.name)
    module.__file__ = plugin.path
    code = compile(plugin.text, plugin.path, "exec")
    sys.modules[plugin.name] = module
    try:
        exec(code, vars(module))  # noqa: S102 - the user asks for just this
    except BaseException:
        del sys.modules[plugin.name]
        raise
    return module
