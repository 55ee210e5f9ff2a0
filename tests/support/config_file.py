"""A configuration as users write it, read as the gateway reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from athena.shells.config import Config, Sources, load


def load_config(value: dict[str, Any], directory: Path) -> Config:
    """A configuration as the gateway itself would read it."""
    file = directory / "athena.yml"
    file.write_text(json.dumps({"state_dir": str(directory / "athena-state"), **value}))
    return load(Sources(environment={}, home=directory, directory=directory, config_file=file)).config
