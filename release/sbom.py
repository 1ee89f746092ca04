"""Write the wheel's bill of materials (PEP 770): what it needs, at the versions that were tested.

A build hook of hatchling's: the file is `sboms/statelake.cdx.json` in the wheel's metadata. A wheel
of statelake holds no code of other projects; the list is of the packages that it declares.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "statelake.cdx.json"
_PINNED = re.compile(r"^([\w.-]+)==([^\s;]+)")
_REQUIRED = re.compile(r"^[\w.-]+")


class SbomHook(BuildHookInterface):  # type: ignore[type-arg]
    """Add the bill of materials to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file before the wheel is packed."""
        if version == "editable":
            return
        root = Path(self.root)
        text = json.dumps(bill_of_materials(root, self.metadata.core), indent=2) + "\n"
        path = Path(self.directory) / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the file, which is in the wheel by now."""
        (Path(self.directory) / NAME).unlink(missing_ok=True)


def bill_of_materials(root: Path, project: Any) -> dict[str, Any]:
    """CycloneDX 1.6: the package, and each that it or an extra requires.

    Args:
        root: The directory of `constraints.txt`, whose first pin of a package is its version.
        project: The project's metadata, with `dependencies` and `optional_dependencies`.
    """
    pins: dict[str, str] = {}
    for line in (root / "constraints.txt").read_text("utf-8").splitlines():
        if pinned := _PINNED.match(line):
            pins.setdefault(_normal(pinned[1]), pinned[2])
    extras = [("", project.dependencies), *sorted(project.optional_dependencies.items())]
    components: dict[str, dict[str, Any]] = {}
    for extra, requirements in extras:
        for requirement in requirements:
            match = _REQUIRED.match(requirement)
            name = _normal(match[0]) if match else ""
            if extra == "dev" or name not in pins or name in components:
                continue
            components[name] = {
                "type": "library", "bom-ref": f"pkg:pypi/{name}@{pins[name]}", "name": name,
                "version": pins[name], "purl": f"pkg:pypi/{name}@{pins[name]}",
                "scope": "optional" if extra else "required",
            }  # fmt: skip
    subject = f"pkg:pypi/{project.name}@{project.version}"
    ordered = [components[name] for name in sorted(components)]
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {
            "type": "library", "bom-ref": subject, "name": project.name,
            "version": project.version, "purl": subject,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }},
        "components": ordered,
        "dependencies": [{"ref": subject, "dependsOn": [each["bom-ref"] for each in ordered]}],
    }  # fmt: skip


def _normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
