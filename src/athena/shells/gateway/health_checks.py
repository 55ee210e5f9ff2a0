"""Asking upstreams from time to time whether they are well, where `health_check` says so.

A check tells the upstream's breaker, and only when it says something new: so many failures in a row, or a success.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from athena.errors import AthenaError
from athena.profiles import profile_for
from athena.serving.breaker import Breaker
from athena.shells.config import Config, HealthCheck, Upstream
from athena.shells.config.ready import upstream_headers, upstream_origin
from athena.shells.upstream import PoolLimits, Timeouts, UpstreamClient


class HealthChecks:
    """The checks of one gateway. `client` and `breaker` are asked for anew at each check."""

    def __init__(self, client: Callable[[], UpstreamClient], breaker: Callable[[str], Breaker]) -> None:
        self._client = client
        self._breaker = breaker
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._checked: dict[str, Upstream] = {}

    def use(self, config: Config) -> None:
        """Check the upstreams of this configuration from now on; those that did not change are not disturbed."""
        wanted = {name: upstream for name, upstream in config.upstreams.items() if upstream.health_check is not None}
        for name in [name for name, upstream in self._checked.items() if wanted.get(name) != upstream]:
            self._tasks.pop(name).cancel()
            del self._checked[name]
        for name, upstream in wanted.items():
            if name not in self._checked and upstream.health_check is not None:
                self._checked[name] = upstream
                self._tasks[name] = asyncio.ensure_future(self._run(name, upstream, upstream.health_check))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._checked.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str, upstream: Upstream, check: HealthCheck) -> None:
        failures = 0
        while True:
            problem = await self._problem(name, upstream, check)
            failures = failures + 1 if problem else 0
            if not problem:
                self._breaker(name).up()
            elif failures >= check.failures:
                self._breaker(name).down(f"its health check fails: {problem}")
            await asyncio.sleep(check.interval_s)

    async def _problem(self, name: str, upstream: Upstream, check: HealthCheck) -> str:
        """Why the upstream is not well; empty when it is."""
        profile = profile_for(upstream.profile, upstream.dialect)
        seconds = check.timeout_s
        try:
            response = await self._client().send(
                "GET",
                upstream_origin(upstream),
                check.path,
                upstream_headers(upstream, profile),
                timeouts=Timeouts(connect=seconds, first_byte=seconds, idle=seconds, total=seconds),
                # A pool of its own: a check must not wait behind requests, nor take a place from them.
                limits=PoolLimits(name=f"{name} (health check)", max_connections=1, max_idle=0),
            )
        except AthenaError as failure:
            return failure.message
        with contextlib.closing(response):
            return f"status {response.status}" if response.status >= 400 else ""
