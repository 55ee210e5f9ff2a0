"""Setting Athena up for a person: the providers it knows, what runs on this machine, and the configuration that comes of it."""

from __future__ import annotations

from athena.shells.setup.found import LocalOffer, ask_models, find_local
from athena.shells.setup.providers import Provider, known_providers, own_provider
from athena.shells.setup.writing import Answers, KeyPlace, configuration_text

__all__ = [
    "Answers",
    "KeyPlace",
    "LocalOffer",
    "Provider",
    "ask_models",
    "configuration_text",
    "find_local",
    "known_providers",
    "own_provider",
]
