"""Settings that go together, by name. `log_level` and `log_format` are for whoever
writes the log: the core has none."""

from __future__ import annotations

import msgspec

from athena.errors import ConfigProblem
from athena.prompted.errors import ToolConfigurationError
from athena.prompted.options import PromptedOptions


class Preset(msgspec.Struct, frozen=True):
    """Options and how much to log."""

    options: PromptedOptions
    log_level: str = "info"
    log_format: str = "text"


PRESETS = {
    "production": Preset(PromptedOptions(policy="stop_on_first", max_calls=5), log_format="json"),
    "development": Preset(PromptedOptions(policy="allow_mixed"), log_level="debug"),
    "quiet": Preset(PromptedOptions(policy="stop_on_first"), log_level="error"),
    "batch": Preset(PromptedOptions(policy="drain_all", max_calls=0, collect_bytes=1024 * 1024)),
    "chat": Preset(PromptedOptions(policy="allow_mixed", max_calls=5)),
    "edge": Preset(
        PromptedOptions(
            policy="stop_on_first", collect_bytes=1024 * 1024, stream_buffer_bytes=1024 * 1024, prompt_bytes=256 * 1024
        )
    ),
}


def preset(name: str) -> Preset:
    found = PRESETS.get(name)
    if found is None:
        problem = ConfigProblem(f"{name!r} is unknown", key="preset", remedy="known: " + ", ".join(PRESETS))
        raise ToolConfigurationError.of((problem,))
    return found
