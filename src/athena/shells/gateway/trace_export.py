"""The export of traces that the present configuration asks for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from athena.shells.config import Telemetry
from athena.shells.logs.redactor import Redactor

if TYPE_CHECKING:
    from athena.shells.gateway.telemetry import Traces


class TraceExport:
    """Makes another exporter where the settings change."""

    def __init__(self) -> None:
        self.traces: Traces | None = None
        """None: no traces are exported."""
        self._settings = Telemetry()

    def use(self, settings: Telemetry, secrets: Iterable[str]) -> None:
        """Export as these settings say, and never one of these secrets. Raises ConfigError where its packages are missing."""
        if settings == self._settings:
            if self.traces is not None:
                self.traces.redact = Redactor(secrets)
            return
        traces = None
        if settings.endpoint:
            from athena.shells.gateway.telemetry import Traces  # its packages are an extra

            traces = Traces(settings, secrets)
        if self.traces is not None:
            # Aside: it waits for a collector that may be away.
            threading.Thread(target=self.traces.close, daemon=True).start()
        self._settings, self.traces = settings, traces

    async def close(self) -> None:
        """Send the spans that wait, and end."""
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)
            self.traces = None
