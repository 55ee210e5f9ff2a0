"""The state of Responses for the requests of a gateway: what a request continues is loaded, and what came of it is kept.

    plan = state.plan(body, owner, decode)       read the request; where it refers to nothing stored, it is complete
    await state.load(plan)                       load what it refers to
    plan.request                                 the neutral request, whole
    plan.keep(final, written)                    before the client gets the end of its answer
    await plan.close()                           however it ended

What a connection itself remembers (`recent`) is asked before the store, and is never written there unless the request says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from athena.dialects.base import EncodeContext
from athena.dialects.openai_responses.response_object import echo
from athena.errors import InvalidRequest, UnsupportedFeature
from athena.model.events import Start
from athena.model.request import Kept, Request
from athena.shells.config import StoreSettings
from athena.shells.gateway.client import Recent
from athena.shells.sealing import Sealer
from athena.shells.store import Continued, Store
from athena.state.asked import AskedToKeep, is_reference, read_asked
from athena.state.compaction import covering, holds_compaction, opened_items, retained_messages, summary_request
from athena.state.errors import (
    StoreDown,
    conversation_locked,
    conversation_not_found,
    duplicate_item,
    item_not_found,
    previous_not_found,
)
from athena.state.ids import RANDOM_BYTES, RESPONSE, is_ours, new_id, place_of
from athena.state.remembered import PartMemory, RememberedItems, StoredPart, needed_responses, stored_size
from athena.state.resolve import Resolved, input_items, joined_chain, needed_parts, resolve
from athena.state.stored import conversation_items, listed_input, shown_fields, stored_response, with_ids
from athena.state.values import History, ResponseItem, StoredItem, StoredResponse
from athena.wire.recall import Recall
from athena.wire.response_json import ResponseJson
from athena.wire.surrogates import encode_json


class RequestDecode(Protocol):
    """A body's value as a request; `recall` knows what its parts were before."""

    def __call__(self, body: dict[str, Any], recall: Recall | None = None, /) -> Request: ...


Finish = Callable[[StoredResponse, list[StoredItem]], Coroutine[Any, Any, None]]
"""Keeps what became of a response that is made in the background, and the items of its conversation."""
Admit = Callable[[int], None]
"""Told how many bytes of history are loaded; raises where they are too many."""
_LOCK_S = 30.0
"""How long the lock on a conversation lasts when it is not renewed, as where its gateway was killed."""
_RENEW_EVERY_S = 5.0
_MOST_REFERENCES = 1000


class ResponsePlan:
    """One request: what is sent for it, and what is kept of its answer."""

    def __init__(
        self,
        state: ResponsesState,
        body: dict[str, Any],
        owner: str,
        asked: AskedToKeep,
        decode: RequestDecode,
        recall: Recall | None = None,
        remembered: PartMemory | None = None,
    ) -> None:
        self.body = body
        self.owner = owner
        self.asked = asked
        self.id = new_id(RESPONSE, state.now(), os.urandom(RANDOM_BYTES))
        self.decode = decode
        self.sent: dict[str, Any] = {}
        """The body that stands for itself, of which the request is made."""
        self.request: Request | None = None
        """Set once everything that it refers to is there."""
        self.recent: Recent | None = None
        self.recall = recall
        """What is remembered of the parts of the request, and of what it continues."""
        self.remembered = remembered
        self.compacts: Literal["", "response", "compaction"] = "response" if asked.compacts else ""
        self.stores = state.stores(asked)
        """Is the response to be written to the store?"""
        self.waits = self.stores or asked.conversation is not None
        """Is the end of the answer held back until `keep` is done?"""
        self.history: tuple[ResponseItem, ...] = ()
        """What was said before this request."""
        self.is_sent_form = False
        """Is the history as upstreams get it?"""
        self.position: int | None = None
        """Where the history is that of a conversation: the position behind its last item."""
        self.added: tuple[ResponseItem, ...] = ()
        """What this request adds."""
        self.most = sys.maxsize
        """Bytes of its history above which it is refused."""
        self.finish: Finish | None = None
        """Of a response that is made in the background: who makes it keeps its end, with the end of its stream."""
        self.continued: Continued | None = None
        """The stored response that it continues."""
        self._state = state
        self._renewing: asyncio.Task[None] | None = None
        """Renews the lock on the conversation for as long as this request holds it."""

    def whole(self, resolved: Resolved) -> None:
        """Everything that the request refers to is there: make the neutral request of it."""
        self.added = resolved.added
        body = self._state.opened(self.owner, resolved.body)
        retained: tuple[ResponseItem, ...] = ()
        if self.compacts:
            if self.compacts == "compaction":
                retained = tuple(with_ids(retained_messages(input_items(body)), self.id))
                body = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
            body = summary_request({**body, "input": input_items(body)})
        kept = Kept(
            id=self.id,
            shown=shown_fields(self.asked, stored=self.stores),
            waits=self.waits and self.compacts != "compaction",
            compacts=self.compacts,
            retained=retained,
        )
        self.sent = body
        self.request = msgspec.structs.replace(self.decode(body, self.recall), kept=kept)

    def send_instead(self, items: list[ResponseItem], leading: tuple[ResponseItem, ...] = ()) -> None:
        """Send these items and not the whole conversation; the answer begins with the `leading` ones."""
        assert self.request is not None
        assert self.request.kept is not None
        self.sent = {**self.sent, "input": items}
        kept = msgspec.structs.replace(self.request.kept, leading=leading)
        self.request = msgspec.structs.replace(self.decode(self.sent, self.recall), kept=kept)

    def shown(self) -> dict[str, Any]:
        """The response object before anything was said."""
        assert self.request is not None
        return echo(EncodeContext(self.request, created=int(self._state.now())), Start())

    def conversation(self, final: dict[str, Any]) -> list[ResponseItem]:
        """Everything that was said up to the end of this response: what a connection remembers of it."""
        return [*self.history, *with_ids(self.added, self.id), *final["output"]]

    def keep(self, response: dict[str, Any], written: ResponseJson) -> Coroutine[Any, Any, dict[str, Any] | None] | None:
        """Write the response, its items and those of its conversation. None where that is done. What is returned else is to be
        awaited: it returns what the response says otherwise when it could not be kept and need not be, and raises StoreDown
        where it must be."""
        asked = self.asked
        if not self.stores and asked.conversation is None:
            return None
        stored = self.stored(response, written)
        if self.continued is not None and self.stores and not asked.background:
            # One in the background has its row from the beginning.
            there = not self.continued.is_gone and self._state.store.glance_response(self.owner, self.continued.name)
            if there is None:
                return self._keep_looked_up(stored, self.continued.name)
            stored = stored if there else self._whole(stored)
        if asked.conversation is not None or self.finish is not None:
            items = conversation_items(response, asked=asked, added=self.added)
            return self._write(stored, items)
        putting = self._state.store.begin_put(stored)
        return None if putting is None else self._state.finish(putting, asked)

    def _whole(self, stored: StoredResponse) -> StoredResponse:
        """With the items of what it continues, which nobody else keeps: that was deleted meanwhile, or only the connection knew
        it."""
        return msgspec.structs.replace(stored, parent=None, input=encode_json([*self.history, *self.added]))

    async def _keep_looked_up(self, stored: StoredResponse, parent: str) -> dict[str, Any] | None:
        """Keep a response once it is looked up whether what it continues is still there: another gateway may delete that."""

        async def put() -> None:
            there = await self._state.store.has_response(self.owner, parent)
            await self._state.store.put_response(stored if there else self._whole(stored))

        return await self._state.finish(put(), self.asked)

    def stored(self, response: dict[str, Any], written: ResponseJson) -> StoredResponse:
        """What is to be kept of a response object."""
        return stored_response(
            response,
            written,
            owner=self.owner,
            created=self._state.now(),
            asked=self.asked,
            added=self.added,
            position=self.position,
        )

    async def _write(self, stored: StoredResponse, items: list[StoredItem]) -> None:
        if self.finish is not None:
            await self.finish(stored, items)
        else:
            await self._state.write(stored, items, stores=self.stores)
        self._stop_renewing()  # the lock ended with the same transaction: a client that has its answer may go on at once

    async def lock(self) -> None:
        """Be the only one that adds to the conversation. Raises where there is none, or another one does."""
        assert self.asked.conversation is not None
        got = await self._state.store.lock_conversation(self.owner, self.asked.conversation, self.id, _LOCK_S)
        if got is None:
            raise conversation_not_found(self.asked.conversation)
        if not got:
            raise conversation_locked()
        self._renewing = asyncio.create_task(self._renew(self.asked.conversation))

    async def _renew(self, conversation: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            with contextlib.suppress(StoreDown):  # it is tried again; the lock bears a while without
                if not await self._state.store.renew_lock(conversation, self.id, _LOCK_S):
                    return

    def _stop_renewing(self) -> bool:
        """Returns whether the lock was still held."""
        if self._renewing is None:
            return False
        self._renewing.cancel()
        self._renewing = None
        return True

    async def close(self) -> None:
        """The request is over, however it ended."""
        if self._stop_renewing() and self.asked.conversation is not None:
            with contextlib.suppress(StoreDown):  # the lock ends by itself
                await self._state.store.unlock_conversation(self.asked.conversation, self.id)


class ResponsesState:
    """What a gateway keeps of Responses. One for each configuration."""

    def __init__(
        self,
        store: Store,
        settings: StoreSettings,
        sealer: Sealer,
        *,
        clock: Callable[[], float] = time.time,
        on_unkept: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`on_unkept` is told of every response that was answered and could not be kept."""
        self.store = store
        self.settings = settings
        self._sealer = sealer
        self._clock = clock
        self._on_unkept = on_unkept

    def now(self) -> float:
        """The time of day."""
        return self._clock()

    def stores(self, asked: AskedToKeep) -> bool:
        """Is the response of such a request to be kept?"""
        return asked.background or (self.settings.by_default if asked.store is None else asked.store)

    def plan(
        self,
        body: dict[str, Any],
        owner: str,
        decode: RequestDecode,
        *,
        recent: Recent | None = None,
        compaction: bool = False,
        recall: Recall | None = None,
        remembered: PartMemory | None = None,
    ) -> ResponsePlan:
        """Read a request. Where it refers to nothing stored, the plan has its request at once; else `load` makes it.

        `recent`: what the connection remembers; then `keep` is called for every response, whether it is stored or not.
        `compaction`: the request came to the endpoint of compactions. `recall`: what is remembered of the body's parts;
        `remembered`: where the parts of what it continues are.
        """
        asked = read_asked(body)
        plan = ResponsePlan(self, body, owner, asked, decode, recall, remembered)
        plan.recent = recent
        plan.waits = plan.waits or recent is not None
        if compaction:
            plan.compacts, plan.stores, plan.waits = "compaction", False, False
        if not asked.needs_history:
            plan.whole(resolve(body, asked, History()))
        return plan

    def compaction_of(self, plan: ResponsePlan) -> ResponsePlan:
        """A plan that compacts the conversation of another one, as it would be sent."""
        body = {key: value for key, value in plan.sent.items() if key not in ("stream", "truncation")}
        return self.plan(body, plan.owner, plan.decode, compaction=True)

    async def load(self, plan: ResponsePlan, admit: Admit = lambda size: None, *, locks: bool = True) -> None:
        """Load what the request refers to. Raises in OpenAI's words where it is not there, and StoreDown. Without `locks`,
        nothing will be added to its conversation, and others may meanwhile."""
        asked = plan.asked
        items: list[ResponseItem] = []
        if asked.conversation is not None:
            items = await self._conversation(plan, admit, locks=locks)
        elif asked.previous is not None:
            items = await self._previous(plan, asked.previous, admit)
        references = await self.referred(plan.owner, asked.references, items)
        plan.history = tuple(items)
        plan.whole(resolve(plan.body, asked, History(plan.history, references, plan.is_sent_form)))

    async def _previous(self, plan: ResponsePlan, name: str, admit: Admit) -> list[ResponseItem]:
        plan.continued = self.store.continued(plan.owner, name)
        if plan.recent is not None:
            remembered = plan.recent(name)
            if remembered is not None:
                return remembered
        if not is_ours(name):
            raise previous_not_found(name)  # an id that no gateway of ours made is in no store of ours
        items = self._remembered_items(plan)
        if items is not None:
            beside: list[tuple[str, StoredPart]] | None = await self.store.chain_beside(
                plan.owner, name, items.known, plan.most
            )
            if beside is None:
                raise previous_not_found(name)
            beside = needed_responses(beside)
            admit(sum(stored_size(part) for _, part in beside))
            return items.chain(beside)
        parts = await self.store.chain(plan.owner, name, plan.most)
        if parts is None:
            raise previous_not_found(name)
        parts = needed_parts(parts)
        admit(sum(map(len, parts)))
        return joined_chain(parts)

    async def _conversation(self, plan: ResponsePlan, admit: Admit, *, locks: bool) -> list[ResponseItem]:
        name = plan.asked.conversation
        assert name is not None
        if locks:
            await plan.lock()
        elif await self.store.conversation(plan.owner, name) is None:
            raise conversation_not_found(name)
        stored, plan.position = await self.store.items_since_compaction(name, plan.most)
        admit(sum(len(item.body) for item in stored))
        await self._check_new_ids(plan, {each.id for each in stored})
        known = self._remembered_items(plan)
        return [msgspec.json.decode(each.body) if known is None else known.item(each.body) for each in stored]

    async def _check_new_ids(self, plan: ResponsePlan, loaded: set[str]) -> None:
        """Raises where an item of the request has an id that another item of the conversation has, before its last compaction
        as well."""
        name, given = plan.asked.conversation, input_items(plan.body)
        for item in given:
            known = item.get("id")
            if isinstance(known, str) and known not in loaded and await self.store.item(plan.owner, known, name) is not None:
                loaded.add(known)
        check_new_ids(given, loaded)

    def _remembered_items(self, plan: ResponsePlan) -> RememberedItems | None:
        """What reads the stored items of a request; None where they are needed as they are stored, with their ids: where the
        request refers to items, and where a connection remembers them."""
        if plan.remembered is None or not plan.remembered.fragments.limit or plan.asked.references or plan.recent is not None:
            return None
        items = RememberedItems(plan.remembered, plan.recall)
        plan.recall = items.recall
        plan.is_sent_form = True
        return items

    async def referred(self, owner: str, names: Iterable[str], items: Iterable[ResponseItem] = ()) -> dict[str, ResponseItem]:
        """The items of these ids, which may be among the given ones. Raises where one is not there."""
        wanted = dict.fromkeys(names)
        if not wanted:
            return {}
        if len(wanted) > _MOST_REFERENCES:
            raise InvalidRequest(f"input: more than {_MOST_REFERENCES} references to items", path="input")
        found = {str(item["id"]): item for item in items if item.get("id") in wanted}
        responses: dict[str, tuple[list[ResponseItem], list[ResponseItem]]] = {}
        for name in wanted:
            if name in found:
                continue
            place = place_of(name)
            if place is None or place.response not in responses:
                item = await self.store.item(owner, name)
                if item is not None:
                    found[name] = msgspec.json.decode(item[0].body)
                    continue
            if place is None:
                raise item_not_found(name)
            if place.response not in responses:
                stored = await self.store.response(owner, place.response)
                if stored is None:
                    raise item_not_found(name)
                responses[place.response] = listed_input(stored), msgspec.json.decode(stored.output)
            given, output = responses[place.response]
            side = given if place.side == "i" else output
            held = next((item for item in side if item.get("id") == name), None)
            if held is None:
                raise item_not_found(name)
            found[name] = held
        return found

    def opened(self, owner: str, body: dict[str, Any]) -> dict[str, Any]:
        """The body with compactions of ours readable, and without what the last of them stands for. Raises where one is another
        owner's."""
        items = body.get("input")
        if not isinstance(items, list) or not holds_compaction(items):  # `resolve` has seen that they are objects
            return body
        return {**body, "input": opened_items(items, partial(self._sealer.open, owner))}

    def covering(self, owner: str, sealed: str) -> str:
        """A sealed summary as that of a compaction by `context_management`, which stands for everything before it."""
        text = self._sealer.open(owner, sealed)
        return sealed if text is None else self._sealer.seal(owner, covering(text))

    async def write(self, stored: StoredResponse, items: list[StoredItem], *, stores: bool) -> None:
        """Write a response that belongs to a conversation; where it is not to be stored itself, its items. The lock on the
        conversation ends with that. Raises StoreDown, because this must be kept."""
        if stores:
            await self.store.put_response(stored, items=items)
        elif stored.conversation is not None:
            await self.store.add_items(stored.owner, stored.conversation, items, holder=stored.id)

    async def finish(self, putting: Coroutine[Any, Any, None], asked: AskedToKeep) -> dict[str, Any] | None:
        """Wait until a response is put. Returns what it says otherwise where it could not be and need not be."""
        try:
            await putting
        except StoreDown:
            if (self.settings.down_asked if asked.store else self.settings.down) == "fail":
                raise
            self._on_unkept("store_down")
            return {"store": False}
        return None


def check_new_ids(items: Iterable[ResponseItem], taken: set[str]) -> None:
    """Raises where an item that is to be added to a conversation has an id that another item has."""
    for item in items:
        name = item.get("id")
        if isinstance(name, str) and name and not is_reference(item):
            if name in taken:
                raise duplicate_item(name, "input")
            taken.add(name)


def remembered_request(
    body: dict[str, Any], decode: RequestDecode, recent: Recent, recall: Recall | None
) -> tuple[Request, dict[str, Any] | None]:
    """Where nothing is kept but what a connection remembers: the request with that in it, and the body that it is made of; None
    where the request does not continue anything."""
    asked = read_asked(body)
    items = recent(asked.previous) if asked.previous is not None else None
    if items is None:
        return decode(body, recall), None
    resolved = resolve(body, asked, History(tuple(items)))
    kept = Kept(id=new_id(RESPONSE, time.time(), os.urandom(RANDOM_BYTES)), shown=shown_fields(asked, stored=False))
    return msgspec.structs.replace(decode(resolved.body, recall), kept=kept), resolved.body


def refuse_state(body: dict[str, Any]) -> None:
    """Where nothing is kept. Raises for a request that cannot be answered without."""
    asked = read_asked(body)
    if asked.background:
        raise UnsupportedFeature("background: this gateway keeps no responses (store: false)", path="background")
