"""Replicas of a gateway tell each other through the store what the answers of their upstreams were worth.

Every few seconds, beside the requests: what changed here is written, and what the others wrote is read. Where the store cannot
be reached, a replica goes on with what it knows, and takes up again when the store is back. Times are kept by the wall clock:
the clocks of replicas should agree within a few seconds.

Only routes that are or were left out, or that gave bad answers lately, are told: while all is well, nothing is written. Clients
may name models, so a row is known by a digest of its names, and a process has at most as many rows as it knows routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable
from functools import partial

import msgspec

from athena.serving.route_health import RouteAnswer, RouteEvidence, RouteHealth
from athena.shells.store.database import Query, SqlSteps
from athena.shells.store.store import Store
from athena.state.errors import StoreDown

EVERY_S = 2.0
_FORGOTTEN_S = 3600.0
"""What nobody wrote for so long is of no use to anyone."""
_MOST_ROWS = 4096
"""Rows of others that are read at once."""
_MOST_REPORTED = 256
"""Routes that one exchange writes; the others follow with the next."""
_LONGEST_NAME = 1000
"""Characters of a model's name; longer ones are a client's invention."""
_read_evidence = msgspec.json.Decoder(RouteEvidence).decode


class RouteExchange:
    """The task of one process. `source` gives its routes and the store that is shared; None: nothing is."""

    def __init__(self, source: Callable[[], tuple[RouteHealth, Store] | None], *, every_s: float = EVERY_S) -> None:
        self._source = source
        self._every_s = every_s
        self._replica = secrets.token_hex(8)
        self._written: dict[str, int] = {}
        """By route: the version that the others can read."""
        self._routes: RouteHealth | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; call it inside of the event loop."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End. What this process wrote stays for the others until it is old."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            with contextlib.suppress(StoreDown):  # the store has told it, and counted it
                await self.exchange()

    async def exchange(self) -> None:
        """Once: tell and hear. Raises StoreDown."""
        source = self._source()
        if source is None:
            return
        routes, store = source
        if routes is not self._routes:
            self._routes, self._written = routes, {}
        await self._tell(routes, store)
        since = time.time() - _FORGOTTEN_S
        bodies = await store.read(partial(_hear, self._replica, since), puts=False)
        moved_by = routes.now() - time.time()
        routes.hear(_moved(_read_evidence(body), moved_by) for body in bodies)

    async def _tell(self, routes: RouteHealth, store: Store) -> None:
        known = {_digest(one): one for one in routes.evidence() if _is_of_use(one)}
        told = [route for route, one in known.items() if self._written.get(route) != one.version][:_MOST_REPORTED]
        gone = [route for route in self._written if route not in known]
        if not told and not gone:
            return
        wall = time.time()
        moved_by = wall - routes.now()
        rows = [(route, msgspec.json.encode(_moved(known[route], moved_by))) for route in told]
        await store.write(partial(_tell, self._replica, wall, rows, gone))
        for route in gone:
            del self._written[route]
        self._written.update({route: known[route].version for route in told})


def _is_of_use(evidence: RouteEvidence) -> bool:
    if len(evidence.model) > _LONGEST_NAME:
        return False
    return evidence.turn > 0 or any(answer.is_bad for answer in evidence.answers)


def _digest(evidence: RouteEvidence) -> str:
    names = f"{evidence.upstream}\0{evidence.model}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(names, digest_size=16).hexdigest()


def _moved(evidence: RouteEvidence, by: float) -> RouteEvidence:
    """The same with the times of another clock."""
    answers = tuple(RouteAnswer(answer.at + by, answer.client, answer.bad) for answer in evidence.answers)
    return msgspec.structs.replace(evidence, answers=answers)


def _tell(replica: str, now: float, rows: list[tuple[str, bytes]], gone: list[str]) -> SqlSteps[None]:
    yield Query("DELETE FROM route_health WHERE written < $1", (now - _FORGOTTEN_S,))
    for route in gone:
        yield Query("DELETE FROM route_health WHERE replica = $1 AND route = $2", (replica, route))
    for route, body in rows:
        yield Query(
            "INSERT INTO route_health (replica, route, written, body) VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (replica, route) DO UPDATE SET written = excluded.written, body = excluded.body",
            (replica, route, now, body),
        )


def _hear(replica: str, since: float) -> SqlSteps[list[bytes]]:
    rows = yield Query(
        "SELECT body FROM route_health WHERE replica <> $1 AND written > $2 ORDER BY written DESC LIMIT $3",
        (replica, since, _MOST_ROWS),
    )
    return [bytes(body) for (body,) in rows]
