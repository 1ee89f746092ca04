"""What may be registered, what may not, and how code that registers is found."""

from __future__ import annotations

import sys
import types
import warnings
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake.state_core.errors import (
    EncodeError,
    PluginError,
    StateError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers import (
    SimpleTypeSerializerSnapshot,
    TypeSerializer,
    TypeSerializerSnapshot,
    register,
    registered_classes,
)
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import ListSerializerSnapshot
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.framework.snapshots import (
    COMPOSITE_MAGIC,
    OUTER,
    CompositeTypeSerializerSnapshot,
)
from statelake.state_core.serializers.type_spec import parse_type

pytestmark = pytest.mark.usefixtures("own_registry")

STRING = "org.apache.flink.api.common.typeutils.base.StringSerializer$StringSerializerSnapshot"


class OwnSerializer(StringSerializer):
    """A serializer of a user's."""

    name = "Own"


class Own(SimpleTypeSerializerSnapshot):
    """Its snapshot."""

    java_class = "com.acme.OwnSnapshot"
    serializer_class = OwnSerializer


class Older(TypeSerializerSnapshot):
    """A snapshot class with the direction of before Flink 1.19 only."""

    java_class = "com.acme.OlderSnapshot"
    current_version = 4

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """No payload."""
        self.check_version(version, source)

    def write_snapshot(self, out: DataOutput) -> None:
        """No payload."""

    def restore_serializer(self) -> TypeSerializer:
        """A string."""
        return OwnSerializer()

    def resolve_new_serializer(self, new: TypeSerializer) -> Compatibility:
        """Only the same serializer may follow."""
        if isinstance(new, OwnSerializer):
            return as_is()
        return incompatible(self.type_name, new.name, "the older direction was asked")


class OlderSimple(Own):
    """The older direction in a class that inherits the newer one."""

    java_class = "com.acme.OlderSimpleSnapshot"

    def resolve_new_serializer(self, new: TypeSerializer) -> Compatibility:
        """Never."""
        return incompatible(self.type_name, new.name, "the older direction was asked")


def changed(base: type = Own, name: str = "Changed", **held: Any) -> Any:
    """A class like another, but for these attributes."""
    held = {"__module__": __name__, "__qualname__": name} | held
    return type(name, (base,), held)


def needing(argument: str) -> type:
    """A class whose constructor wants something."""

    def __init__(self: Any, wanted: str) -> None:  # noqa: N807
        self.wanted = wanted + argument

    return changed(__init__=__init__)


def snapshot_bytes(java_class: str, version: int = 3) -> DataInput:
    """A serializer snapshot without a payload."""
    out = DataOutput()
    out.write_utf(java_class)
    out.write_int(version)
    return DataInput(out.to_bytes(), "file")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (changed(java_class=""), "no `java_class`"),
        (changed(java_class=7), "no `java_class`"),
        (changed(current_version=None), "no `current_version`"),
        (changed(current_version="3"), "'3', which is no int"),
        (changed(current_version=True), "True, which is no int"),
        (changed(name="test.<locals>.Changed"), "inside a function"),
        (changed(name="Outer.Changed"), "inside another class"),
        (changed(TypeSerializerSnapshot, java_class="a", current_version=1), "lacks read_snapshot"),
        (needing("more"), "can't be made without arguments"),
        (changed(java_class=STRING), "which is built in; .* replace=True"),
        (changed(java_class="a", serializer_class=LongSerializer), "LongSerializer, and so is"),
        (changed(java_class="a", serializer_class=dict), "is no TypeSerializer: dict"),
        (changed(java_class="a", serializer_class=TypeSerializer), "can't be made"),
        (changed(Older, java_class="a", resolve_new_serializer=TypeSerializerSnapshot
                 .resolve_new_serializer), "lacks resolve_schema_compatibility"),
        (dict, "no subclass of TypeSerializerSnapshot"),
    ],
)  # fmt: skip
def test_what_can_not_be_registered(made: Any, why: str) -> None:
    """Each is refused with the class and the reason, and nothing is registered."""
    before = registered_classes()
    with pytest.raises(EncodeError, match=f"snapshot class .*{why}"):
        register(made)
    assert registered_classes() == before


def test_a_serializer_without_an_arrow_type() -> None:
    """Found at once, not when the first column is decoded."""
    held = {"name": "Bare", "read": lambda *_: 1, "write": lambda *_: None}
    bare = type("Bare", (TypeSerializer,), held)
    with pytest.raises(EncodeError, match="is for Bare, which has no `arrow_type`"):
        register(changed(serializer_class=bare))


def test_one_snapshot_class_a_serializer() -> None:
    """Two classes of a user's may not share one, either."""
    register(Own)
    with pytest.raises(EncodeError, match="OwnSerializer, and so is Own: a serializer has one"):
        register(changed(java_class="com.acme.Another"))


def test_a_name_is_taken() -> None:
    """By another class; but a module that ran again has the same class anew."""
    register(Own)
    register(Own)
    again = changed(Own, "Own")
    assert register(again) is again
    with pytest.raises(EncodeError, match=r"claims com\.acme\.OwnSnapshot, which Own has already"):
        register(changed())


def test_replacing_what_is_built_in() -> None:
    """On request a user's class reads what Flink's own name stands for."""
    made = changed(java_class=STRING)
    register(made, replace=True)
    assert read_serializer_snapshot(snapshot_bytes(STRING)).restore_serializer().name == "Own"


def test_registered_types_have_a_name_in_specs() -> None:
    """What a migration's file may say follows the registry."""
    with pytest.raises(EncodeError, match="Own is no known type"):
        parse_type("List<Own>")
    register(Own)
    assert parse_type("List<Own>").type_name == "List<Own>"


class TestOlderDirection:
    """Classes that have only what was there before Flink 1.19."""

    def test_it_is_accepted_with_a_warning(self) -> None:
        """At registration, naming the class and what to define instead."""
        with pytest.warns(DeprecationWarning, match=r"Older has only.*resolve_schema_compatib"):
            register(Older)
        assert read_serializer_snapshot(snapshot_bytes(Older.java_class, 4)).version == 4

    def test_other_versions_are_refused(self) -> None:
        """Without `versions` it reads its current one."""
        with pytest.warns(DeprecationWarning, match="Older has only"):
            register(Older)
        with pytest.raises(StateError, match="OlderSnapshot version 3; 4 can be read"):
            read_serializer_snapshot(snapshot_bytes(Older.java_class, 3))

    @pytest.mark.parametrize("old", [Older(), OlderSimple()])
    def test_the_old_snapshot_is_asked(self, old: TypeSerializerSnapshot) -> None:
        """Even where the class inherits the newer direction."""
        with pytest.warns(DeprecationWarning, match="resolve_new_serializer"):
            found = type(old)().resolve_schema_compatibility(old)
        asked = old.resolve_new_serializer(OwnSerializer())
        assert found == asked

    def test_its_verdict_counts(self) -> None:
        """Here that nothing may follow."""
        with pytest.warns(DeprecationWarning, match="OlderSimple.resolve_new_serializer"):
            found = OlderSimple().resolve_schema_compatibility(OlderSimple())
        assert found.verdict is Verdict.INCOMPATIBLE
        assert "the older direction was asked" in str(found.reasons[0])

    def test_the_newer_direction_does_not_warn(self) -> None:
        """Who has it is left alone."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            register(Own)
            assert Own().resolve_schema_compatibility(Own()).verdict is Verdict.COMPATIBLE_AS_IS


PLUGIN = """
from statelake.state_core.serializers import SimpleTypeSerializerSnapshot, register
from statelake.state_core.serializers.basic.text import StringSerializer

class PluggedSerializer(StringSerializer):
    name = "Plugged"

@register
class Plugged(SimpleTypeSerializerSnapshot):
    java_class = "com.acme.PluggedSnapshot"
    serializer_class = PluggedSerializer
"""


class _Distribution:
    """A distribution with a name."""

    name = "acme-flink-types"


def entry(value: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let there be one entry point; the groups that were asked for."""
    asked: list[str] = []
    one = EntryPoint("acme", value, plugins.GROUP)
    vars(one).update(dist=_Distribution())

    def found(group: str) -> tuple[EntryPoint, ...]:
        asked.append(group)
        return (one,)

    monkeypatch.setattr(plugins, "entry_points", found)
    return asked


class TestEntryPoints:
    """The group `statelake.serializers`."""

    def test_loaded_once_when_a_class_is_unknown(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Not before, and not again; it registers, and the class is known."""
        (tmp_path / "acme_plugged.py").write_text(PLUGIN)
        monkeypatch.syspath_prepend(tmp_path)
        asked = entry("acme_plugged", monkeypatch)
        read_serializer_snapshot(snapshot_bytes(STRING))
        assert asked == []
        for _ in range(2):
            found = read_serializer_snapshot(snapshot_bytes("com.acme.PluggedSnapshot"))
            assert found.type_name == "Plugged"
        with pytest.raises(UnknownSerializerError):
            read_serializer_snapshot(snapshot_bytes("com.acme.OtherSnapshot"))
        assert asked == ["statelake.serializers"]
        monkeypatch.delitem(sys.modules, "acme_plugged")

    def test_a_function_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`module:function`."""
        module = types.ModuleType("acme_function")
        vars(module)["add"] = lambda: register(Own)
        monkeypatch.setitem(sys.modules, "acme_function", module)
        entry("acme_function:add", monkeypatch)
        assert read_serializer_snapshot(snapshot_bytes(Own.java_class)).type_name == "Own"

    @pytest.mark.parametrize(
        ("value", "why"),
        [("acme_not_there", "ModuleNotFoundError"), ("math:pi", "neither a module nor a function")],
    )
    def test_a_broken_one_is_told(
        self, monkeypatch: pytest.MonkeyPatch, value: str, why: str
    ) -> None:
        """By a warning that names the distribution, and in the error of what stays unknown."""
        entry(value, monkeypatch)
        with (
            pytest.warns(RuntimeWarning, match=f"of distribution acme-flink-types failed: .*{why}"),
            pytest.raises(UnknownSerializerError, match="acme-flink-types"),
        ):
            read_serializer_snapshot(snapshot_bytes("com.acme.OtherSnapshot"))


class TestPlugins:
    """Modules and files that a user names."""

    def test_a_file_is_run_once(self, tmp_path: Path) -> None:
        """However often it is named."""
        path = tmp_path / "types.py"
        path.write_text(PLUGIN)
        first = plugins.load_plugin(str(path))
        assert plugins.load_plugin(str(path)) is first
        assert "com.acme.PluggedSnapshot" in registered_classes()
        assert [loaded_plugin.path for loaded_plugin in plugins.loaded_plugins()] == [str(path)]

    def test_a_job_may_import_the_module_that_a_plugin_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In either order: both register the same text; another text of that name is refused."""
        for first, name in enumerate(("own_types_a", "own_types_b")):
            java_class = f"com.acme.Plugged{first}"
            path = tmp_path / f"{name}.py"
            path.write_text(PLUGIN.replace("com.acme.PluggedSnapshot", java_class))
            monkeypatch.syspath_prepend(str(tmp_path))
            loads = [lambda path=path: plugins.load_plugin(str(path)), partial(import_module, name)]
            for load in loads if first else loads[::-1]:
                load()
            assert java_class in registered_classes()
            other = tmp_path / "other.py"
            other.write_text(path.read_text() + "\n# another")
            with pytest.raises(EncodeError, match=f"claims {java_class}"):
                plugins.load_plugin(str(other))

    def test_another_process_needs_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file's text travels."""
        path = tmp_path / "types.py"
        path.write_text(PLUGIN)
        plugins.load_plugin(str(path))
        travelling = plugins.loaded_plugins()
        path.unlink()
        monkeypatch.setattr(plugins, "_state", plugins._State())
        plugins.restore_plugins(travelling)
        assert registered_classes()["com.acme.PluggedSnapshot"].__module__ == travelling[0].name

    def test_the_environment_names_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When a class is unknown."""
        path = tmp_path / "types.py"
        path.write_text(PLUGIN)
        monkeypatch.setenv("STATELAKE_PLUGINS", f" {path},")
        found = read_serializer_snapshot(snapshot_bytes("com.acme.PluggedSnapshot"))
        assert found.type_name == "Plugged"

    def test_what_the_environment_names_must_be_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An error each time, not only the first."""
        monkeypatch.setenv("STATELAKE_PLUGINS", "acme_not_there")
        for _ in range(2):
            with pytest.raises(PluginError, match="acme_not_there: it can't be loaded"):
                read_serializer_snapshot(snapshot_bytes("com.acme.PluggedSnapshot"))

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("def broken(:", "SyntaxError"),
            ("1 / 0", "ZeroDivisionError"),
            (PLUGIN.replace("java_class", "name"), "no `java_class`"),
        ],
    )
    def test_a_broken_file(self, tmp_path: Path, text: str, why: str) -> None:
        """Our error, with the file, and no half of a module left."""
        path = tmp_path / "types.py"
        path.write_text(text)
        with pytest.raises(StateError, match=f"types.py.*{why}"):
            plugins.load_plugin(str(path))
        assert plugins.loaded_plugins() == ()

    def test_a_missing_file(self, tmp_path: Path) -> None:
        """Our error."""
        with pytest.raises(PluginError, match="can't be read"):
            plugins.load_plugin(str(tmp_path / "none.py"))


class Hasty(Own):
    """A snapshot class whose code fails."""

    java_class = "com.acme.HastySnapshot"

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """As a careless class does it."""
        raise IndexError(version)


def test_errors_of_a_snapshot_class() -> None:
    """They come out as ours, with the class and the place."""
    register(Hasty)
    with pytest.raises(StateError, match=r"file, offset .*Hasty\.read_snapshot failed \(IndexErr"):
        read_serializer_snapshot(snapshot_bytes(Hasty.java_class))


def test_arrow_types_of_registered_serializers() -> None:
    """A user's serializer is one like any other."""
    register(Own)
    held = read_serializer_snapshot(snapshot_bytes(Own.java_class)).restore_serializer()
    assert held.arrow_type == pa.string()


@pytest.mark.parametrize("has", [1, 2])
def test_an_outer_payload_needs_all_of_its_methods(has: int) -> None:
    """What is read and not written is lost, and what is not compared is called compatible."""
    methods = dict.fromkeys(("compose", *OUTER[:has]), lambda *_: None)
    with pytest.raises(EncodeError, match=f"has an outer payload, and lacks {OUTER[has]}"):
        register(changed(CompositeTypeSerializerSnapshot, java_class="a", **methods))


def test_an_outer_version_to_come_is_no_damage() -> None:
    """It is told as the version that it is."""
    out = DataOutput()
    for number in (3, COMPOSITE_MAGIC, 7):
        out.write_int(number)
    source = DataInput(out.to_bytes(), "file")
    with pytest.raises(UnsupportedFormatError, match="outer version 7; 1 can be read"):
        ListSerializerSnapshot().read_snapshot(source.read_int(), source)
