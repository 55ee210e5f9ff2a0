"""Writes requirements/sbom.cdx.json: what a default install of athena-gateway holds, as a CycloneDX bill of materials.

The components are the pinned packages of `requirements/run.txt`; their licences and descriptions are read
from the packages installed beside this interpreter. The wheel carries the file in its `.dist-info/sboms` (PEP 770). There is
no time and nothing random in it: the same pins give the same file.

Run `python requirements/generate_sbom.py` after `./dev lock` or a new version; `--check` only says whether it is current.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

import athena

HERE = Path(__file__).parent
FILE = HERE / "sbom.cdx.json"
_NAME = "athena-gateway"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Name to version, of a requirement file. Its hashes are one for each file of a release, not for the one installed."""
    return {name.lower(): version for name, version in _PIN.findall(text)}


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _licence(name: str) -> list[dict[str, Any]]:
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    expression = about.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    named = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License :: ")]
    return [{"license": {"name": text}} for text in named] or []


def document() -> dict[str, Any]:
    """The bill of materials."""
    known = pins((HERE / "run.txt").read_text(encoding="utf-8"))
    components = []
    for name, version in sorted(known.items()):
        row: dict[str, Any] = {
            "type": "library",
            "bom-ref": _purl(name, version),
            "name": name,
            "version": version,
            "purl": _purl(name, version),
            "scope": "required",
            "licenses": _licence(name),
        }
        components.append({key: value for key, value in row.items() if value})
    own = _purl(_NAME, athena.__version__)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + json.dumps(components, sort_keys=True))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": _NAME,
                "version": athena.__version__,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": own, "dependsOn": [row["bom-ref"] for row in components]},
            *({"ref": row["bom-ref"]} for row in components),
        ],
    }


def main(arguments: list[str]) -> int:
    """Write the file, or check it."""
    text = json.dumps(document(), indent=1) + "\n"
    if "--check" in arguments:
        return 0 if FILE.exists() and FILE.read_text(encoding="utf-8") == text else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
