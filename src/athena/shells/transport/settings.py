"""The keyword arguments of the transports, so that editors complete them and type checkers know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from athena.model.names import DialectName


class TransportSettings(TypedDict, total=False):
    """Keys of the configuration file, which win over the file."""

    base_url: str
    """Address of the one upstream, with or without /v1."""
    api_key: str
    """Its key."""
    api_key_env: str
    """Name of the environment variable that holds the key."""
    api_key_file: str
    """File that holds the key."""
    model: str
    """Model for every name without a slash; left out: names pass unchanged."""
    opus_model: str
    sonnet_model: str
    haiku_model: str
    """Models for names that contain these words."""
    dialect: DialectName
    """The API that the upstream speaks; left out: what its address implies."""
    profile: str
    """Its quirks, by name (`athena config profiles`)."""
    upstreams: Mapping[str, Mapping[str, Any]]
    """The full form: several upstreams by name."""
    models: Sequence[Mapping[str, Any]]
    """The full form: which model name leads where."""
    timeouts: Mapping[str, float]
    limits: Mapping[str, Any]
    retries: Mapping[str, Any]
    health: Mapping[str, Any]
    strict: bool
    """Refuse what cannot be represented instead of dropping it with a warning."""
    echo: Literal["text", "error", "allow"]
    """What becomes of calls that the model only quotes."""
    log: Mapping[str, Any]
    state_dir: str
    envelope_key: str
