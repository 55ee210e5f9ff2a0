"""What is to be served, and what came of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from athena.shells.config import Config, Loaded, ModelRule, Sources, Upstream, is_loopback
from athena.shells.demo import MODEL as DEMO_MODEL
from athena.shells.demo import PROMPTED_MODEL


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway that listens."""

    host: str
    port: int
    demo: bool
    """The built-in demo upstream answers."""
    config: Config
    inspector: str = ""
    """The inspector's path, with its token where no keys are asked for; empty where there is none."""

    @property
    def url(self) -> str:
        """Where a client on this machine finds it."""
        host = self.host if is_loopback(self.host) or self.host not in ("", "0.0.0.0", "::") else "127.0.0.1"
        scheme = "https" if self.config.tls.cert else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `serve` needs to know before it starts a process."""

    sources: Sources
    loaded: Loaded
    demo: bool = False
    """Answer with the demo upstream, whatever is configured."""
    default_log_file: str = ""
    """Where to log when the configuration names no file; empty: standard error."""
    greets: bool = False
    """What `on_started` prints is read by whoever reads the log: that it listens is not said a second time there."""
    on_started: Callable[[Started], None] = lambda started: None
    """Called once, when clients can connect."""

    @property
    def wants_demo(self) -> bool:
        return self.demo or self.loaded.is_empty


def with_demo(config: Config, url: str) -> Config:
    """The configuration with the demo as its only upstream."""
    upstream = Upstream(base_url=url, dialect="openai_chat")
    native = f"demo/{DEMO_MODEL}"
    rules = (
        # First in the list that clients are shown: agents without a model of their own take it.
        ModelRule(match=DEMO_MODEL, use=native, format="kimi_k2"),
        ModelRule(match=PROMPTED_MODEL, use=f"demo/{PROMPTED_MODEL}", tools="prompted"),
        ModelRule(match="*", use=native, format="kimi_k2"),
    )
    return msgspec.structs.replace(config, upstreams={"demo": upstream}, models=rules)
