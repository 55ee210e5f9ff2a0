"""The store: what is kept of responses and conversations, whose it is, and for how long."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import msgspec

from athena.shells.store import queries
from athena.shells.store.database import ENCRYPTED, Database, Query, SqlSteps, Value
from athena.state.errors import StoreDown, StoreUnreadable, previous_not_found
from athena.state.resolve import is_compaction
from athena.state.stored import last_event
from athena.state.values import OPEN, Conversation, StoredEvent, StoredItem, StoredResponse

LOG = logging.getLogger("athena")
_DAY = 86400.0
_TRIM_EVERY_S = 60.0
_TRIMMED = 200
"""Objects that one transaction deletes: others get their turn between two of them."""
_LOOKED_AT = 100
"""Objects that are in memory at a time while all of them are looked at."""
_SAY_AGAIN_S = 60.0

_Result = TypeVar("_Result")
_Known = TypeVar("_Known")


def _never(item: StoredItem) -> bool:
    return False


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept, and for how long."""

    max_age_s: float
    max_bytes: int


class Continued:
    """A stored response that a request continues, for as long as somebody holds this."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name
        self.is_gone = False
        """Was it deleted meanwhile, by a request to this process?"""


class Store:
    """Responses and conversations in a database. Every method that takes an `owner` sees only what that owner made.

    Whatever writes returns when it is kept: a process that is killed then loses nothing of it. All methods raise StoreDown
    where the database cannot be used, whose cause says why, and StoreUnreadable where an object was encrypted with another key.
    """

    def __init__(
        self,
        database: Database,
        limits: StoreLimits,
        *,
        key: str | None = None,
        clock: Callable[[], float] = time.time,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`key` encrypts contents; `on_failure` is called for every operation that failed."""
        self.database = database
        self.limits = limits
        self._cipher = None
        if key:
            from athena.shells.store.cipher import Cipher  # its library takes long to import, and few need it

            self._cipher = Cipher(key)
        self._clock = clock
        self._on_failure = on_failure
        self._trimmed_at = time.monotonic()
        self._trimming: asyncio.Task[None] | None = None
        self._said_at = 0.0
        self._continued: WeakSet[Continued] = WeakSet()

    # -- transactions, for other rooms that keep something here --------------------------------------------------------------

    async def write(self, steps: Callable[[], SqlSteps[_Result]]) -> _Result:
        """Run a transaction of one's own, on tables of one's own; see `database`."""
        try:
            result = await self.database.write(steps)
        except StoreDown as error:
            raise self._failed(error) from error
        self._trim_in_time()
        return result

    async def put(self, query: Query) -> None:
        """The same for one statement that returns nothing."""
        try:
            await self.database.put(query)
        except StoreDown as error:
            raise self._failed(error) from error
        self._trim_in_time()

    def _trim_in_time(self) -> None:
        now = time.monotonic()
        if now - self._trimmed_at > _TRIM_EVERY_S:
            self._trimmed_at = now
            self._trimming = asyncio.create_task(self._trim_quietly())

    async def read(self, steps: Callable[[], SqlSteps[_Result]], *, puts: bool = True) -> _Result:
        """The same for one that changes nothing. It sees everything that was kept before; without `puts`, what transactions
        wrote: enough for tables that nothing is `put` into, of which those who look every second need not have the rest
        written."""
        try:
            if puts:
                await self.database.settle()
            return await self.database.read(steps)
        except StoreDown as error:
            raise self._failed(error) from error

    async def _found(self, name: str, steps: Callable[[], SqlSteps[_Result | None]]) -> _Result | None:
        """The same for one that looks for the row of this name, which never changes once it is there: only where it is not
        found may it have been kept a moment ago."""
        try:
            found = None if self.database.is_put_off(name) else await self.database.read(steps)
            if found is None:
                await self.database.settle()
                found = await self.database.read(steps)
        except StoreDown as error:
            raise self._failed(error) from error
        return found

    async def _settle(self) -> None:
        try:
            await self.database.settle()
        except StoreDown as error:
            raise self._failed(error) from error

    def _failed(self, error: StoreDown) -> StoreDown:
        """Count and log a failure. Returns what whoever asked is told: where the store is, only the operator is to know."""
        self._on_failure()
        now = time.monotonic()
        if not self._said_at or now - self._said_at > _SAY_AGAIN_S:
            self._said_at = now
            LOG.error("%s", error.message)
        return StoreDown("the store of this gateway cannot be used at the moment; its operator finds the reason in its log")

    def sealed(self, content: bytes, place: str) -> bytes:
        """Content as it is stored; `place` names its row, in which alone it can be read again."""
        return content if self._cipher is None else self._cipher.seal(content, place)

    def opened(self, content: bytes, place: str) -> bytes:
        """What was sealed for this place."""
        if self._cipher is not None:
            return self._cipher.open(content, place)
        if content[:1] == ENCRYPTED:
            raise StoreUnreadable(f"{place} is encrypted, and store.encryption_key is not set")
        return content

    # -- responses -----------------------------------------------------------------------------------------------------------

    async def put_response(
        self,
        response: StoredResponse,
        *,
        items: Sequence[StoredItem] | None = None,
        events: Sequence[StoredEvent] = (),
        lease: float = 0.0,
    ) -> None:
        """Keep a response. `items`: it is finished, so with it they are added to its conversation, and its lock on that ends.
        `events`: its stream begins with them. `lease`: until when the maker of an open response is taken for alive."""
        query = queries.put_response(self._sealed_response(response), lease)
        owner, conversation = response.owner, response.conversation
        if not events and (items is None or conversation is None):
            await self.put(query)
            return
        kept, shown, now = self._sealed_items(items or ()), self._sealed_events(response.id, events), self._clock()

        def steps() -> SqlSteps[None]:
            yield query
            yield from queries.put_events(response.id, shown)
            if items is not None and conversation is not None:
                yield from queries.add_items(owner, conversation, kept, now)
                yield from queries.unlock_conversation(conversation, response.id)

        await self.write(steps)

    def begin_put(self, response: StoredResponse) -> Coroutine[Any, Any, None] | None:
        """Keep a response: None where that needed no waiting, else it is kept once what is returned was awaited."""
        if self._cipher is not None:
            response = self._sealed_response(response)
        query = queries.put_response(response, 0.0)
        if not self.database.put_at_once(query):
            return self.put(query)
        self._trim_in_time()
        return None

    async def finish_response(
        self, response: StoredResponse, *, items: Sequence[StoredItem] = (), events: Sequence[StoredEvent] = ()
    ) -> bool:
        """What became of an open response, whose lock on its conversation ends. With it, `events` and a last one that says what
        became of it end its stream, so that whoever finds a response that is over finds the end of its stream. False: it was
        cancelled or deleted meanwhile, and stays so."""
        sealed, kept, now = self._sealed_response(response), self._sealed_items(items), self._clock()
        shown = self._sealed_events(response.id, events)

        def steps() -> SqlSteps[bool]:
            finished = yield from queries.finish_response(sealed)
            if sealed.conversation is not None:
                yield from queries.unlock_conversation(sealed.conversation, sealed.id)
            if not finished:
                return False
            yield from queries.put_events(response.id, shown)
            number = yield from queries.next_event(response.id)
            end = StoredEvent(number, last_event(response, number))
            yield from queries.put_events(response.id, self._sealed_events(response.id, (end,)))
            yield from queries.weigh_response(response.id)
            if kept and sealed.conversation is not None:
                yield from queries.add_items(sealed.owner, sealed.conversation, kept, now)
            return True

        return await self.write(steps)

    async def response(self, owner: str, name: str) -> StoredResponse | None:
        """The response; one whose maker died is `failed`."""
        found = await self._found(name, partial(queries.get_response, owner, name))
        if found is None:
            return None
        response, lease = found
        return msgspec.structs.replace(
            response,
            status="failed" if self._is_lost(response.status, lease) else response.status,
            body=self.opened(response.body, name),
            input=self.opened(response.input, name),
            output=self.opened(response.output, name),
        )

    async def is_open(self, owner: str, name: str) -> bool:
        """Is it still being made? Who asks again and again need not have all of it read each time."""
        found = await self.read(partial(queries.get_status, owner, name))
        return found is not None and found[0] in OPEN and not self._is_lost(*found)

    def _is_lost(self, status: str, lease: float) -> bool:
        return status in OPEN and lease < self._clock()

    def glance_response(self, owner: str, name: str) -> bool | None:
        """Can a response be built on it? None where that takes longer to say than a glance, as `has_response` does."""
        waits = self.database.waiting(name) is not None
        return waits or self.database.glance(partial(queries.has_response, owner, name))

    async def has_response(self, owner: str, name: str) -> bool:
        """The same for sure."""
        return await self.read(partial(queries.has_response, owner, name))

    async def at_upstreams(self, owner: str, names: Iterable[str]) -> set[str]:
        """Which of these responses and items an upstream keeps for the owner."""
        return await self.read(partial(queries.get_at_upstreams, owner, set(names)))

    async def latest(self, limit: int) -> list[queries.ResponseFacts]:
        """The newest responses of all owners: for the operator alone, never for a client."""
        return await self.read(partial(queries.latest_responses, limit))

    async def chain(self, owner: str, name: str, most: int = sys.maxsize) -> list[bytes] | None:
        """The items of a response and of all that it continues, from the last compaction on, in order, as JSON arrays: the
        input and the output of each in turn. The items of a conversation that it follows stand as an output before all of
        them, from their last compaction on; where they are more than `most` bytes, only the newest, which are more than that.
        None where it is not there.

        Raises the error of a response that is not found where the beginning is gone: the model would miss it.
        """
        found = await self._found(name, partial(queries.get_chain, owner, name, self._compacts, most))
        if found is None:
            return None
        if not found.is_whole:
            raise previous_not_found(name)
        parts = [self.opened(content, each) for each, given, output in found.parts for content in (given, output)]
        return [b"[]", self._joined(found.before), *parts] if found.before else parts

    async def chain_beside(
        self, owner: str, name: str, known: Callable[[str], _Known | None], most: int = sys.maxsize
    ) -> list[tuple[str, tuple[bytes, bytes] | _Known]] | None:
        """The same as the id of each response with its two arrays, or with what is `known` of it already, which is asked in
        another thread. Items of a conversation, which may change, stand under a name that is made of what they are."""
        parts = self._glanced_chain(owner, name, known)
        before: list[tuple[str, tuple[bytes, bytes] | _Known]] = []
        if parts is None:
            look = partial(queries.get_chain_beside, owner, name, known, self._compacts, most)
            found = await self._found(name, look)
            if found is None:
                return None
            if not found.is_whole:
                raise previous_not_found(name)
            parts = found.parts
            if found.before:
                joined = self._joined(found.before)
                before = [(hashlib.blake2b(joined).hexdigest(), (b"[]", joined))]
        return before + [
            (each, (self.opened(part[0], each), self.opened(part[1], each)) if type(part) is tuple else part)
            for each, part in parts
        ]

    def _glanced_chain(
        self, owner: str, name: str, known: Callable[[str], _Known | None]
    ) -> list[tuple[str, tuple[bytes, bytes] | _Known]] | None:
        """The same without another thread, as an agent's next request finds it: what was put a moment ago, and what is known
        of the responses before. None where that takes longer, and where something is not there."""
        parts: list[tuple[str, tuple[bytes, bytes] | _Known]] = []
        at: str | None = name
        while at is not None and (query := self.database.waiting(at)) is not None:
            part = queries.put_part(query, owner)
            if part is None:
                return None
            parent, given, output = part
            parts.append((at, known(at) or (given, output)))
            if len(parts) > queries.SHORT_CHAIN:
                return None
            at = parent
        parts.reverse()
        if at is None:
            return parts
        if self.database.is_put_off(at):
            return None
        before = self.database.glance(partial(queries.get_known_chain, owner, at, known, is_continued=bool(parts)))
        return None if before is None else before + parts

    async def turns(self, owner: str, name: str) -> list[tuple[str, bytes, bytes]] | None:
        """The id, input and output of each response that one is built on, in order, itself the last; also of one that is not
        finished, and where the beginning is gone. The items of a conversation that they follow stand as an input before them,
        under no id. None: it is not there."""
        found = await self.read(partial(queries.get_chain, owner, name, _never, shown=True))
        if found is None:
            return None
        turns = [(each, self.opened(given, each), self.opened(output, each)) for each, given, output in found.parts]
        return [("", self._joined(found.before), b"[]"), *turns] if found.before else turns

    def _compacts(self, item: StoredItem) -> bool:
        return is_compaction(self.opened(item.body, item.id))

    def _joined(self, items: list[StoredItem]) -> bytes:
        """Items of a conversation as a JSON array."""
        return b"[%b]" % b",".join([self.opened(item.body, item.id) for item in items])

    def continued(self, owner: str, name: str) -> Continued:
        """Notes that a request continues this response: whoever keeps the continuation is told whether it is still there."""
        continued = Continued(owner, name)
        self._continued.add(continued)
        return continued

    async def begin_response(self, owner: str, name: str, lease: float) -> bool:
        """A queued response is being made from now on. False: it was cancelled or deleted meanwhile."""
        return await self.write(partial(queries.begin_response, owner, name, lease))

    async def renew_lease(self, owner: str, name: str, lease: float) -> bool:
        """Its maker is alive. False: it was cancelled or deleted, so its maker is to stop."""
        return await self.write(partial(queries.renew_lease, owner, name, lease))

    async def cancel_response(self, owner: str, name: str) -> None:
        """Tell whoever makes it, in whichever process, to stop."""
        await self._settle()
        await self.write(partial(queries.cancel_response, owner, name))

    async def delete_response(self, owner: str, name: str) -> bool:
        """Forget it. What later responses are built on stays until they go. False: it is not there."""
        for continued in self._continued:
            if continued.name == name and continued.owner == owner:
                continued.is_gone = True
        await self._settle()  # whoever continues it is to be seen
        return await self.write(partial(queries.delete_response, owner, name))

    async def add_events(self, name: str, events: Sequence[StoredEvent]) -> bool:
        """Keep events of the stream of a background response. False: it was ended or deleted, so its maker is to stop."""
        return await self.write(partial(queries.add_events, name, self._sealed_events(name, events)))

    async def events(self, name: str, after: int, limit: int = 1000) -> list[StoredEvent]:
        """Those after a number. Whose response it is, the caller has looked."""
        found = await self.read(partial(queries.get_events, name, after, limit))
        return [StoredEvent(event.number, self.opened(event.body, f"{name}#{event.number}")) for event in found]

    # -- conversations -------------------------------------------------------------------------------------------------------

    async def put_conversation(self, conversation: Conversation, items: Sequence[StoredItem]) -> None:
        sealed = msgspec.structs.replace(conversation, metadata=self.sealed(conversation.metadata, conversation.id))
        await self.write(partial(queries.put_conversation, sealed, self._sealed_items(items)))

    async def conversation(self, owner: str, name: str) -> Conversation | None:
        found = await self.read(partial(queries.get_conversation, owner, name))
        return found and msgspec.structs.replace(found, metadata=self.opened(found.metadata, name))

    async def set_metadata(self, owner: str, name: str, metadata: bytes) -> bool:
        """False: there is no such conversation."""
        return await self.write(partial(queries.set_metadata, owner, name, self.sealed(metadata, name), self._clock()))

    async def delete_conversation(self, owner: str, name: str) -> bool:
        """Forget it and its items. False: it is not there."""
        return await self.write(partial(queries.delete_conversation, owner, name))

    async def lock_conversation(self, owner: str, name: str, holder: str, for_s: float) -> bool | None:
        """Only one response at a time is added. False: another one is being added; None: there is no such conversation."""
        now = self._clock()
        return await self.write(partial(queries.lock_conversation, owner, name, holder, now, now + for_s))

    async def renew_lock(self, name: str, holder: str, for_s: float) -> bool:
        """Whoever holds the lock is alive. False: it holds it no longer."""
        return await self.write(partial(queries.renew_lock, name, holder, self._clock() + for_s))

    async def unlock_conversation(self, name: str, holder: str) -> None:
        await self.write(partial(queries.unlock_conversation, name, holder))

    async def add_items(self, owner: str, name: str, items: Sequence[StoredItem], *, holder: str = "") -> bool:
        """Behind those that are there; the lock of the `holder` ends. False: there is no such conversation."""
        kept, now = self._sealed_items(items), self._clock()

        def steps() -> SqlSteps[bool]:
            added = yield from queries.add_items(owner, name, kept, now)
            if holder:
                yield from queries.unlock_conversation(name, holder)
            return added

        return await self.write(steps)

    async def add_new_items(self, owner: str, name: str, items: Sequence[StoredItem]) -> bool | str:
        """The same, where no id may be that of another item. Returns that id where one is: then nothing is added."""
        return await self.write(partial(queries.add_new_items, owner, name, self._sealed_items(items), self._clock()))

    async def items(self, name: str, *, after: int | None, limit: int, newest_first: bool) -> list[StoredItem]:
        """Those after a position. Whose conversation it is, the caller has looked."""
        found = await self.read(partial(queries.get_items, name, after, limit, newest_first=newest_first))
        return [StoredItem(item.id, self.opened(item.body, item.id)) for item in found]

    async def items_since_compaction(self, name: str, most: int = sys.maxsize) -> tuple[list[StoredItem], int]:
        """The newest items in their order, from the last compaction on, or from the beginning, and the position behind the last
        of them; where they are more than `most` bytes, only the newest, which are more than that. Whose conversation it is, the
        caller has looked."""
        found, behind = await self.read(partial(queries.get_items_since, name, self._compacts, most))
        return [StoredItem(item.id, self.opened(item.body, item.id)) for item in found], behind

    async def item(self, owner: str, name: str, conversation: str | None = None) -> tuple[StoredItem, int] | None:
        """An item of a conversation, or of any of the owner's, and its position."""
        found = await self.read(partial(queries.get_item, owner, name, conversation))
        if found is None:
            return None
        item, position = found
        return StoredItem(item.id, self.opened(item.body, item.id)), position

    async def delete_item(self, owner: str, conversation: str, name: str) -> bool:
        return await self.write(partial(queries.delete_item, owner, conversation, name))

    # -- limits and the end --------------------------------------------------------------------------------------------------

    async def trim(self) -> int:
        """Delete what is too old or too much; returns how many objects went."""
        gone = 0
        while True:
            old = await self.database.write(partial(queries.forget_old, self._clock() - self.limits.max_age_s, _TRIMMED))
            gone += old
            if old < _TRIMMED:
                break
        while (excess := await self.database.read(queries.get_size) - self.limits.max_bytes) > 0:
            most = await self.database.write(partial(queries.forget_oldest, excess, _TRIMMED))
            gone += most
            if not most:
                break
        return gone

    async def unreadable(self) -> dict[str, tuple[int, int]]:
        """Of each kind of which some cannot be decrypted: how many that are, and of how many."""
        found: dict[str, tuple[int, int]] = {}
        for table in queries.CONTENTS:
            bad = total = 0
            after: tuple[Value, ...] = ()
            while rows := await self.read(partial(queries.get_contents, table, after, _LOOKED_AT)):
                total += len(rows)
                after = rows[-1][2]
                for name, content, _ in rows:
                    try:
                        self.opened(content, name)
                    except StoreUnreadable:
                        bad += 1
            if bad:
                found[table] = bad, total
        return found

    async def _trim_quietly(self) -> None:
        try:
            await self.trim()
        except StoreDown as error:
            self._failed(error)

    async def close(self) -> None:
        """Wait until old entries are deleted, and close the database."""
        if self._trimming is not None:
            await asyncio.wait([self._trimming])
        await self.database.close()

    def _sealed_response(self, response: StoredResponse) -> StoredResponse:
        if self._cipher is None:
            return response
        return msgspec.structs.replace(
            response,
            body=self.sealed(response.body, response.id),
            input=self.sealed(response.input, response.id),
            output=self.sealed(response.output, response.id),
        )

    def _sealed_events(self, name: str, events: Sequence[StoredEvent]) -> list[StoredEvent]:
        return [StoredEvent(event.number, self.sealed(event.body, f"{name}#{event.number}")) for event in events]

    def _sealed_items(self, items: Sequence[StoredItem]) -> list[StoredItem]:
        return [StoredItem(item.id, self.sealed(item.body, item.id)) for item in items]
