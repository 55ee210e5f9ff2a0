"""Responses that an upstream keeps itself: which upstream has which, whose they are, and the way to them.

Their ids are the upstream's and their content stays there. The store notes only the id, the owner and the upstream, so that a
gateway with keys lets nobody at another one's responses, though one key of the upstream serves all of them. The items of their
answers are noted in the same way, where there are keys.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Container, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from athena.errors import AthenaError, ClientError, LimitExceeded
from athena.model.events import Event, Start
from athena.model.request import Request
from athena.profiles import profile_for
from athena.serving.network import upstream_url
from athena.serving.record import RequestRecord
from athena.serving.tap import Tap
from athena.serving.targets import credential_header
from athena.shells.config import Config, Upstream
from athena.shells.config.ready import upstream_headers, upstream_origin
from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.pieces import write_pieces
from athena.shells.store import Store
from athena.shells.upstream import PoolLimits, Timeouts, UpstreamClient, UpstreamResponse
from athena.state.asked import continues, referred_ids, referred_items
from athena.state.errors import StoreDown, conversation_not_found, item_not_found, previous_not_found
from athena.state.values import StoredResponse
from athena.wire.sse import SseDecoder

LOG = logging.getLogger("athena")
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")


class NativeResponses:
    """What upstreams keep, for one configuration."""

    def __init__(self, store: Store, config: Config, client: Callable[[], UpstreamClient]) -> None:
        self._store = store
        self._config = config
        self._client = client
        self._writing: set[asyncio.Task[None]] = set()

    # -- whose they are ------------------------------------------------------------------------------------------------------

    def wants_bodies(self) -> bool:
        """Never: events say the id."""
        return False

    def watch(self, record: RequestRecord, request: Request, key: str | None) -> Tap | None:
        """Note the owner of a response that an upstream is asked to keep."""
        if request.dialect != "openai_responses" or request.kept is not None or request.store is False:
            return None
        return _OwnerTap(self, record, notes_items=bool(self._config.keys))

    def note(self, name: str, record: RequestRecord) -> None:
        """The upstream named a response of this request, or an item of its answer."""
        if record.upstream_dialect == "openai_responses":
            task = asyncio.get_running_loop().create_task(self._note(name, record.key, record.upstream))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _note(self, name: str, owner: str, upstream: str) -> None:
        try:
            await self._store.put_response(StoredResponse(id=name, owner=owner, created=time.time(), upstream=upstream))
        except StoreDown:
            LOG.warning("the owner of a response at %s could not be noted: it cannot be continued with a key", upstream)

    async def settled(self) -> None:
        """Wait until everything is noted."""
        if self._writing:
            await asyncio.wait(tuple(self._writing))

    async def check_owner(self, owner: str, body: Mapping[str, Any]) -> None:
        """Raises where the body of a request to a gateway with keys names what another key, or nobody here, made."""
        if not self._config.keys or not continues(body):
            return
        await self.settled()
        refuse_references(body, await self._store.at_upstreams(owner, referred_ids(body)))

    async def _upstream_of(self, owner: str, name: str) -> str | None:
        found = await self._store.response(owner, name)
        return found.upstream if found is not None and found.upstream else None

    # -- the way to them -----------------------------------------------------------------------------------------------------

    async def forward(self, name: str, below: str, owner: str, key: str | None, client: Client, headers: Headers) -> bool:
        """Hand a request for a response to the upstream that has it. False: none is known to have it.

        `below` is the path after the response's own. `headers` are added to those of the answer.
        """
        await self.settled()
        place = await self._upstream_of(owner, name)
        if place is None and not self._config.keys:
            # A gateway of one person: the only upstream that can have it is asked.
            able = [each for each, upstream in self._config.upstreams.items() if _keeps(upstream)]
            place = able[0] if len(able) == 1 else None
        upstream = self._config.upstreams.get(place) if place is not None else None
        if place is None or upstream is None:
            return False
        profile = profile_for(upstream.profile, upstream.dialect)
        parts = urlsplit(upstream_url(upstream.base_url, f"/v1/responses/{quote(name, safe='')}{below}"))
        asked = [pair for pair in client.query.split("&") if not pair.startswith("key=")]  # the gateway's own key
        query = "&".join(part for part in (parts.query, *asked) if part)
        sent = [(b"accept", b"application/json, text/event-stream"), *upstream_headers(upstream, profile)]
        if key and upstream.forward_client_key:
            sent.append(credential_header(profile, key))
        limits = self._config.timeouts
        timeouts = Timeouts(connect=limits.connect_s, first_byte=limits.first_byte_s, idle=limits.idle_s, total=limits.total_s)
        pool = PoolLimits(name=f"{place} (stored responses)", max_connections=16, max_idle=1)
        response = await self._client().send(
            client.method,
            upstream_origin(upstream),
            f"{parts.path}?{query}" if query else parts.path,
            sent,
            b"",
            timeouts,
            pool,
        )
        try:
            if response.status in (401, 403) and self._config.keys:
                raise ClientError("the upstream refused the gateway's credentials", code="upstream_auth", status=502)
            shown = [
                (header.encode(), response.headers[header].encode("latin-1", "replace"))
                for header in _KEPT_HEADERS
                if header in response.headers
            ]
            client.start(response.status, [*headers, *shown], None)
            await write_pieces(_pieces(response), client, limits.client_write_s)
        finally:
            response.close()
        return True


async def _pieces(response: UpstreamResponse) -> AsyncIterator[bytes]:
    while data := await response.read():
        yield data


def refuse_references(body: Mapping[str, Any], own: Container[str] = ()) -> None:
    """Raises where a body names anything that an upstream may keep and that is not among the caller's `own`. Of conversations
    nobody notes whose they are."""
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    if previous is not None and not (isinstance(previous, str) and previous in own):
        raise previous_not_found(str(previous))
    if conversation is not None:
        raise conversation_not_found(next(iter(referred_ids({"conversation": conversation})), ""))
    for name in referred_items(body):
        if name not in own:
            raise item_not_found(name)


def _keeps(upstream: Upstream) -> bool:
    return upstream.dialect == "openai_responses" and profile_for(upstream.profile, upstream.dialect).store


class _Item(msgspec.Struct, frozen=True):
    """What is read of an item."""

    id: str = ""


class _ItemAdded(msgspec.Struct, frozen=True):
    """The event with which an item of an answer begins, and a whole answer: what is read of either."""

    type: str = ""
    item: _Item = _Item()
    output: list[_Item] = []


_read = msgspec.json.Decoder(_ItemAdded).decode
_ADDED = "response.output_item.added"


class _OwnerTap(Tap):
    """Waits for the id of one answer, and for those of its items as the upstream itself names them."""

    sees_bytes = True

    def __init__(self, natives: NativeResponses, record: RequestRecord, *, notes_items: bool) -> None:
        self._natives = natives
        self._record = record
        self._is_noted = False
        self._notes_items = notes_items
        self._stream: SseDecoder | None = None
        """Reads the answer; None: it comes as a whole."""
        self._whole: list[bytes] = []

    def upstream_head(self, status: int, headers: Mapping[str, str], now: float) -> None:
        self._whole = []
        self._stream = SseDecoder() if headers.get("content-type", "").startswith("text/event-stream") else None

    def upstream_bytes(self, data: bytes, now: float) -> None:
        if not self._notes_items:
            return
        if self._stream is None:
            self._whole.append(data)
            return
        try:
            records = self._stream.feed(data)
        except LimitExceeded:
            self._notes_items = False  # whoever reads the answer says so
            return
        for _, payload in records:
            if _ADDED.encode() in payload:
                self._note_items(payload)

    def upstream_end(self, failure: AthenaError | None, now: float) -> None:
        if self._whole:
            self._note_items(b"".join(self._whole))
        self._whole = []

    def _note_items(self, payload: bytes) -> None:
        try:
            read = _read(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # whoever reads the answer says so
        for item in [read.item] if read.type == _ADDED else read.output:
            if item.id:
                self._natives.note(item.id, self._record)

    def events(self, events: tuple[Event, ...]) -> None:
        if not self._is_noted:
            for event in events:
                if isinstance(event, Start) and event.id:
                    self._is_noted = True
                    self._natives.note(event.id, self._record)
