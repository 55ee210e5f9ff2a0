"""The recorder of the present configuration, and the inspector that shows what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from athena.shells.config import Config, RecordSettings, verify
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.inspect_api import InspectApi
from athena.shells.gateway.resources import Resources
from athena.shells.recorder.recorder import Recorder, record_mode
from athena.shells.recorder.token import inspector_token
from athena.shells.store import Store


class Inspection:
    """Makes another recorder where another one is configured; what the old one kept in memory goes with it."""

    def __init__(self, resources: Resources, bound: tuple[str, ...] | None, present: Callable[[], Configured]) -> None:
        """`bound` are the addresses that our own server listens on; `present` gives the configuration that holds now."""
        self.recorder = Recorder(RecordSettings(mode="off"), "off", Path(), tuple)
        self._resources = resources
        self._bound = bound
        self._present = present
        self._api: InspectApi | None = None

    def use(self, config: Config) -> Recorder:
        """Record by this configuration from now on."""
        settings, mode = record_mode(config, self._bound)
        recorder = self.recorder
        if (recorder.settings, recorder.mode) != (settings, mode):
            recorder.close()
            if self._api is not None:
                self._api.close()
                self._api = None
            count = self._resources.metrics.recordings.labels
            recorder = self.recorder = Recorder(
                settings,
                mode,
                Path(config.state_dir).expanduser(),
                lambda: self._present().secrets,
                count("kept").inc,
                count("dropped").inc,
            )
        recorder.sse_dir = config.log.sse_dir
        return recorder

    @property
    def api(self) -> InspectApi | None:
        """What answers below /inspect/api; None where nothing is recorded, or the inspector is switched off."""
        recorder = self.recorder
        if not recorder.has_inspector:
            return None
        if self._api is None:
            self._api = InspectApi(
                recorder,
                inspector_token(Path(self._present().config.state_dir).expanduser()),
                self._is_key,
                self._up,
                lambda: self._present().learnt.lessons(),
                lambda: self._resources.routes.report(),
                self._models,
                self._store,
            )
        return self._api

    def _is_key(self, key: str) -> bool:
        keys = self._present().config.keys
        return bool(keys) and verify(key, keys) is not None

    def _up(self) -> dict[str, bool]:
        return {name: self._resources.health.is_up(name) for name in self._present().config.upstreams}

    async def _models(self) -> list[str]:
        return [model.id for model in (await self._resources.lists.listing(None)).models]

    def _store(self) -> Store | None:
        kept = self._present().responses
        return kept.store if kept is not None else None

    def stop(self) -> None:
        """End the inspector's live answers."""
        if self._api is not None:
            self._api.close()

    async def close(self) -> None:
        """End the recorder, too, once what it has to write is written."""
        self.stop()
        await asyncio.to_thread(self.recorder.close)
