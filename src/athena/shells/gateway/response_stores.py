"""Where Responses are kept under the present configuration, and by which upstreams."""

from __future__ import annotations

from athena.shells.config import Config
from athena.shells.gateway.native_state import NativeResponses
from athena.shells.gateway.resources import Resources
from athena.shells.gateway.responses_state import ResponsesState
from athena.shells.store import Store, open_store, store_settings


class ResponseStores:
    """Opens another store where another one is configured; the old one is left to the requests that use it."""

    def __init__(self, resources: Resources) -> None:
        self.responses: ResponsesState | None = None
        """None: nothing is kept."""
        self.natives: NativeResponses | None = None
        """What upstreams keep themselves; None where none of them can."""
        self._resources = resources
        self._old: list[Store] = []

    def use(self, config: Config) -> None:
        """Keep Responses as this configuration says. Raises ConfigError where the packages for it are missing."""
        settings = store_settings(config)
        if self.responses is not None and settings == self.responses.settings:
            self._know_natives(self.responses.store, config)
            return
        old, self.responses = self.responses, None
        if settings is not None:
            metrics = self._resources.metrics
            store = open_store(config, lambda: metrics.store_failures.inc())
            assert store is not None
            self.responses = ResponsesState(
                store, settings, self._resources.sealer, on_unkept=lambda reason: metrics.unkept.labels(reason).inc()
            )
            self._know_natives(store, config)
        if old is not None:
            self._old.append(old.store)

    def _know_natives(self, store: Store, config: Config) -> None:
        """Note whose the responses are that upstreams keep, where any upstream speaks their dialect."""
        speaks = any(upstream.dialect == "openai_responses" for upstream in config.upstreams.values())
        self.natives = NativeResponses(store, config, lambda: self._resources.client) if speaks else None

    async def close(self) -> None:
        """Wait for what is being written, then close every store."""
        if self.natives is not None:
            await self.natives.settled()
        for store in (*self._old, *((self.responses.store,) if self.responses is not None else ())):
            await store.close()
        self._old.clear()
