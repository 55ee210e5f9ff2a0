"""What each operation of the store does to the database: transactions as generators, the same for every database.

Every look-up names the owner beside the id: what belongs to another owner is not there. All of them may be run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from athena.shells.store.database import Query, SqlRow, SqlSteps, Value
from athena.state.values import OPEN, Conversation, StoredEvent, StoredItem, StoredResponse

_Known = TypeVar("_Known")

LONGEST_CHAIN = 10_000
"""Responses that one continuation may go back."""
SHORT_CHAIN = 200
"""Responses that the event loop may look up itself, for as long as it takes."""
_ITEMS = 500
"""Items of a conversation that are read together."""
_SEALED = 32
"""Bytes of an item that may be its encryption's and not its own: no more than that."""
_NO_END = 1 << 62
"""More than there are positions, or bytes."""
_COLUMNS = "id, owner, created, parent, conversation, status, background, body, input, output, upstream, compacts, position"


def _response(row: SqlRow) -> StoredResponse:
    name, owner, created, parent, conversation, status, background, body, given, output, upstream, compacts, position = row
    return StoredResponse(
        id=name,
        owner=owner,
        created=created,
        parent=parent,
        conversation=conversation,
        position=position,
        status=status,
        background=bool(background),
        body=body,
        input=given,
        output=output,
        upstream=upstream,
        compacts=bool(compacts),
    )


# -- responses ---------------------------------------------------------------------------------------------------------------


_PUT = (
    "INSERT INTO responses (id, owner, created, parent, conversation, status, background, body, input, output, upstream, "
    "lease, size, compacts, position) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) "
    "ON CONFLICT (id) DO NOTHING"
)


def put_response(response: StoredResponse, lease: float) -> Query:
    """Keep it. One that is there already stays as it is."""
    size = len(response.body) + len(response.input) + len(response.output)
    return Query(
        _PUT,
        (
            response.id, response.owner, response.created, response.parent, response.conversation, response.status,
            int(response.background), response.body, response.input, response.output, response.upstream, lease, size,
            int(response.compacts), response.position,
        ),
    )  # fmt: skip


def put_part(query: Query, owner: str) -> tuple[str | None, bytes, bytes] | None:
    """What a chain needs of a response that a statement puts: what it goes on from, its input and its output. None where that
    is another owner's, nothing that can be continued, or follows the items of a conversation."""
    if query.sql != _PUT:
        return None
    _, whose, _, parent, conversation, status, _, _, given, output, upstream, _, _, compacts, _ = query.values
    if whose != owner or upstream or status in OPEN or (conversation is not None and not compacts):
        return None
    return None if compacts else parent, given, output  # type: ignore[return-value]  # as `put_response` has put them there


def finish_response(response: StoredResponse) -> SqlSteps[bool]:
    """What became of a response that was open. False: it is open no longer, or gone."""
    rows = yield Query(
        "UPDATE responses SET status = $3, body = $4, output = $5, compacts = $6, lease = 0 "
        "WHERE id = $1 AND owner = $2 AND status IN ('queued', 'in_progress') AND deleted = 0 RETURNING id",
        (response.id, response.owner, response.status, response.body, response.output, int(response.compacts)),
    )
    return bool(rows)


def weigh_response(name: str) -> SqlSteps[None]:
    """Note the size of a response with its stream, which is larger than itself."""
    yield Query(
        "UPDATE responses SET size = length(body) + length(input) + length(output) + "
        "(SELECT coalesce(sum(length(events.body)), 0) FROM events WHERE response = $1) WHERE id = $1",
        (name,),
    )


def begin_response(owner: str, name: str, lease: float) -> SqlSteps[bool]:
    """A queued response is being made from now on. False: it was cancelled or deleted meanwhile."""
    rows = yield Query(
        "UPDATE responses SET status = 'in_progress', lease = $3 "
        "WHERE id = $1 AND owner = $2 AND status = 'queued' AND deleted = 0 RETURNING id",
        (name, owner, lease),
    )
    return bool(rows)


def renew_lease(owner: str, name: str, lease: float) -> SqlSteps[bool]:
    """Whoever makes the response is alive. False: it is to stop, because the response was cancelled or deleted."""
    rows = yield Query(
        "UPDATE responses SET lease = $3 WHERE id = $1 AND owner = $2 AND cancelled = 0 AND deleted = 0 "
        "AND status IN ('queued', 'in_progress') RETURNING id",
        (name, owner, lease),
    )
    return bool(rows)


def cancel_response(owner: str, name: str) -> SqlSteps[None]:
    """Tell whoever makes it, in whichever process, to stop."""
    yield Query("UPDATE responses SET cancelled = 1 WHERE id = $1 AND owner = $2 AND deleted = 0", (name, owner))


def get_response(owner: str, name: str) -> SqlSteps[tuple[StoredResponse, float] | None]:
    """The response, and until when its maker is taken for alive."""
    rows = yield Query(f"SELECT {_COLUMNS}, lease FROM responses WHERE id = $1 AND owner = $2 AND deleted = 0", (name, owner))
    return (_response(rows[0][:-1]), rows[0][-1]) if rows else None


def get_status(owner: str, name: str) -> SqlSteps[tuple[str, float] | None]:
    """How far a response is, and until when its maker is taken for alive: without its content."""
    rows = yield Query("SELECT status, lease FROM responses WHERE id = $1 AND owner = $2 AND deleted = 0", (name, owner))
    return (rows[0][0], rows[0][1]) if rows else None


def has_response(owner: str, name: str) -> SqlSteps[bool]:
    """Can a response be built on it? Also on a deleted one that others are built on."""
    rows = yield Query("SELECT 1 FROM responses WHERE id = $1 AND owner = $2 AND upstream = ''", (name, owner))
    return bool(rows)


def get_at_upstreams(owner: str, names: Iterable[str]) -> SqlSteps[set[str]]:
    """Which of these responses and items an upstream keeps for the owner."""
    found: set[str] = set()
    for name in names:
        rows = yield Query("SELECT 1 FROM responses WHERE id = $1 AND owner = $2 AND upstream <> ''", (name, owner))
        if rows:
            found.add(name)
    return found


class ResponseFacts(NamedTuple):
    """What is known of a response without its content."""

    id: str
    owner: str
    created: float
    parent: str | None
    conversation: str | None
    status: str


def latest_responses(limit: int) -> SqlSteps[list[ResponseFacts]]:
    """The newest responses of all owners: for the operator alone, never for a client."""
    rows = yield Query(
        "SELECT id, owner, created, parent, conversation, status FROM responses WHERE deleted = 0 AND upstream = '' "
        "ORDER BY created DESC LIMIT $1",
        (limit,),
    )
    return [ResponseFacts(*row) for row in rows]


class Chain(NamedTuple):
    """The responses that a continuation is built on."""

    parts: list[tuple[str, bytes, bytes]]
    """The id, input and output of each, the oldest first."""
    is_whole: bool
    """False: the beginning is gone, or there are too many."""
    before: list[StoredItem]
    """The items of a conversation that the oldest of them follows."""


def _items_before(
    owner: str, conversation: str | None, position: int | None, is_first: Callable[[StoredItem], bool], most: int
) -> SqlSteps[list[StoredItem] | None]:
    """The items of its conversation that a response follows, as `get_items_since` reads them; None where the conversation is
    gone, or where an earlier version kept the response, which did not note the position."""
    if conversation is None:
        return []
    there = yield Query("SELECT 1 FROM conversations WHERE id = $1 AND owner = $2", (conversation, owner))
    if not there or position is None:
        return None
    items, _ = yield from get_items_since(conversation, is_first, most, position)
    return items


_GOES_ON_FROM = "CASE WHEN r.compacts = 1 THEN NULL ELSE r.parent END"
"""The response before one in the history of its continuations: none where its own compaction stands for everything before."""
_FOLLOWS = "CASE WHEN r.compacts = 1 THEN NULL ELSE r.conversation END"
"""The conversation whose items stand before it there."""


def get_chain(
    owner: str, name: str, is_first: Callable[[StoredItem], bool], most: int = _NO_END, *, shown: bool = False
) -> SqlSteps[Chain | None]:
    """The response and everything it continues, from the last compaction on; None where the response itself is not there, or
    is not finished. `shown`: everything from the beginning, also of a response that is not finished. The items of a
    conversation that it follows are read from the last one on that `is_first`, and up to `most` bytes."""
    only, goes_on_from, follows = "AND r.status NOT IN ('queued', 'in_progress') ", _GOES_ON_FROM, _FOLLOWS
    if shown:
        only, goes_on_from, follows = "", "r.parent", "r.conversation"
    rows = yield Query(
        "WITH RECURSIVE chain (id, parent, depth) AS ("
        f"SELECT r.id, {goes_on_from}, 0 FROM responses r WHERE r.id = $1 AND r.owner = $2 AND r.deleted = 0 "
        f"AND r.upstream = '' {only}"
        f"UNION ALL SELECT r.id, {goes_on_from}, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.parent "
        f"WHERE r.owner = $2 AND chain.depth < {LONGEST_CHAIN}) "
        f"SELECT r.id, r.input, r.output, chain.parent, {follows}, r.position FROM chain JOIN responses r "
        "ON r.id = chain.id ORDER BY chain.depth DESC",
        (name, owner),
    )
    if not rows:
        return None
    parent, conversation, position = rows[0][3:]
    before = yield from _items_before(owner, conversation, position, is_first, most)
    return Chain([(row[0], row[1], row[2]) for row in rows], parent is None and before is not None, before or [])


_SMALL = 64 * 1024
"""Bytes of responses that the event loop may read itself."""
_FEW = 8
"""Responses whose contents are asked for one by one."""


class ChainBeside(NamedTuple, Generic[_Known]):
    """The responses that a continuation is built on, of which some were known before."""

    parts: list[tuple[str, tuple[bytes, bytes] | _Known]]
    """The id of each, the oldest first, and its input and output, or what was known of it."""
    is_whole: bool
    before: list[StoredItem]


def get_chain_beside(
    owner: str,
    name: str,
    known: Callable[[str], _Known | None],
    is_first: Callable[[StoredItem], bool],
    most: int = _NO_END,
) -> SqlSteps[ChainBeside[_Known] | None]:
    """The same of a finished response, without the contents of what is `known` already; that it is there, and whose it is, is
    looked up all the same."""
    rows = yield Query(
        "WITH RECURSIVE chain (id, parent, conversation, position, depth) AS ("
        f"SELECT r.id, {_GOES_ON_FROM}, {_FOLLOWS}, r.position, 0 FROM responses r WHERE r.id = $1 AND r.owner = $2 "
        "AND r.deleted = 0 AND r.upstream = '' AND r.status NOT IN ('queued', 'in_progress') "
        f"UNION ALL SELECT r.id, {_GOES_ON_FROM}, {_FOLLOWS}, r.position, chain.depth + 1 FROM responses r "
        f"JOIN chain ON r.id = chain.parent WHERE r.owner = $2 AND chain.depth < {LONGEST_CHAIN}) "
        "SELECT id, parent, conversation, position FROM chain ORDER BY depth DESC",
        (name, owner),
    )
    if not rows:
        return None
    found = {row[0]: known(row[0]) for row in rows}
    missing = [each for each, value in found.items() if value is None]
    contents: dict[str, tuple[bytes, bytes]] = {}
    if len(missing) <= _FEW:
        for each in missing:
            content = yield Query("SELECT input, output FROM responses WHERE id = $1 AND owner = $2", (each, owner))
            if content:
                contents[each] = (content[0][0], content[0][1])
    if len(contents) < len(missing):  # there are many, or somebody deletes them at this moment
        chain = yield from get_chain(owner, name, is_first, most)
        if chain is None:
            return None
        return ChainBeside([(each, (given, output)) for each, given, output in chain.parts], chain.is_whole, chain.before)
    parts: list[tuple[str, tuple[bytes, bytes] | _Known]] = []
    for each, value in found.items():
        parts.append((each, contents[each] if value is None else value))
    parent, conversation, position = rows[0][1:]
    before = yield from _items_before(owner, conversation, position, is_first, most)
    return ChainBeside(parts, parent is None and before is not None, before or [])


def get_known_chain(
    owner: str, name: str, known: Callable[[str], _Known | None], *, is_continued: bool = False
) -> SqlSteps[list[tuple[str, tuple[bytes, bytes] | _Known]] | None]:
    """The same of responses that are `known`, but for a few small ones, by one look at the table; None for any others, and
    where the oldest follows the items of a conversation.
    `is_continued`: a response that is there continues this one, whether it is deleted or not."""
    only = "" if is_continued else "AND r.deleted = 0 AND r.upstream = '' AND r.status NOT IN ('queued', 'in_progress') "
    rows = yield Query(
        "WITH RECURSIVE chain (id, parent, conversation, size, depth) AS ("
        f"SELECT r.id, {_GOES_ON_FROM}, {_FOLLOWS}, r.size, 0 FROM responses r WHERE r.id = $1 AND r.owner = $2 {only}"
        f"UNION ALL SELECT r.id, {_GOES_ON_FROM}, {_FOLLOWS}, r.size, chain.depth + 1 FROM responses r "
        f"JOIN chain ON r.id = chain.parent WHERE r.owner = $2 AND chain.depth < {SHORT_CHAIN}) "
        "SELECT id, parent, size, conversation FROM chain ORDER BY depth DESC",
        (name, owner),
    )
    if not rows or rows[0][1] is not None or rows[0][3] is not None:
        return None
    parts: list[tuple[str, tuple[bytes, bytes] | _Known]] = []
    missing = 0
    for each, _, size, _ in rows:
        value: tuple[bytes, bytes] | _Known | None = known(each)
        if value is None:
            missing += size
            if missing > _SMALL:
                return None
            content = yield Query("SELECT input, output FROM responses WHERE id = $1 AND owner = $2", (each, owner))
            if not content:
                return None
            value = (content[0][0], content[0][1])
        parts.append((each, value))
    return parts


def delete_response(owner: str, name: str) -> SqlSteps[bool]:
    """Forget it, and every deleted one before it that nothing is built on any more. False: it is not there."""
    rows = yield Query(
        "UPDATE responses SET deleted = 1, cancelled = 1, body = $3, size = length(input) + length(output) "
        "WHERE id = $1 AND owner = $2 AND deleted = 0 RETURNING id",
        (name, owner, b"{}"),
    )
    if not rows:
        return False
    yield Query("DELETE FROM events WHERE response = $1", (name,))
    yield from _let_go(name)
    return True


def _let_go(name: str | None) -> SqlSteps[None]:
    """Remove a deleted response that nothing is built on, then likewise the one before it."""
    while name is not None:
        rows = yield Query(
            "DELETE FROM responses WHERE id = $1 AND deleted = 1 "
            "AND NOT EXISTS (SELECT 1 FROM responses later WHERE later.parent = $1) RETURNING parent",
            (name,),
        )
        name = rows[0][0] if rows else None


# -- the streams of background responses -------------------------------------------------------------------------------------


def add_events(name: str, events: Sequence[StoredEvent]) -> SqlSteps[bool]:
    """Add to the stream of a response that is still being made. False: it is over, and its stream has its end."""
    # The row is written so that its response cannot end before this transaction does.
    rows = yield Query(
        "UPDATE responses SET lease = lease WHERE id = $1 AND status IN ('queued', 'in_progress') AND deleted = 0 RETURNING id",
        (name,),
    )
    if rows:
        yield from put_events(name, events)
    return bool(rows)


def next_event(name: str) -> SqlSteps[int]:
    """The number of the event that comes after those that are there."""
    rows = yield Query("SELECT max(number) FROM events WHERE response = $1", (name,))
    last: int | None = rows[0][0]
    return 0 if last is None else last + 1


def put_events(name: str, events: Sequence[StoredEvent]) -> SqlSteps[None]:
    for event in events:
        yield Query(
            "INSERT INTO events (response, number, body) VALUES ($1, $2, $3) ON CONFLICT (response, number) DO NOTHING",
            (name, event.number, event.body),
        )


def get_events(name: str, after: int, limit: int) -> SqlSteps[list[StoredEvent]]:
    """Those after a number, in order. The caller has looked whose response it is."""
    rows = yield Query(
        "SELECT number, body FROM events WHERE response = $1 AND number > $2 ORDER BY number LIMIT $3", (name, after, limit)
    )
    return [StoredEvent(number, body) for number, body in rows]


# -- conversations -----------------------------------------------------------------------------------------------------------


def put_conversation(conversation: Conversation, items: list[StoredItem]) -> SqlSteps[None]:
    rows = yield Query(
        "INSERT INTO conversations (id, owner, created, used, metadata) VALUES ($1, $2, $3, $3, $4) "
        "ON CONFLICT (id) DO NOTHING RETURNING id",
        (conversation.id, conversation.owner, conversation.created, conversation.metadata),
    )
    if rows:
        yield from add_items(conversation.owner, conversation.id, items, conversation.created)


def get_conversation(owner: str, name: str) -> SqlSteps[Conversation | None]:
    rows = yield Query("SELECT created, metadata FROM conversations WHERE id = $1 AND owner = $2", (name, owner))
    return Conversation(id=name, owner=owner, created=rows[0][0], metadata=rows[0][1]) if rows else None


def set_metadata(owner: str, name: str, metadata: bytes, now: float) -> SqlSteps[bool]:
    rows = yield Query(
        "UPDATE conversations SET metadata = $3, used = $4 WHERE id = $1 AND owner = $2 RETURNING id",
        (name, owner, metadata, now),
    )
    return bool(rows)


def delete_conversation(owner: str, name: str) -> SqlSteps[bool]:
    rows = yield Query("DELETE FROM conversations WHERE id = $1 AND owner = $2 RETURNING id", (name, owner))
    if rows:
        yield Query("DELETE FROM items WHERE conversation = $1", (name,))
    return bool(rows)


def lock_conversation(owner: str, name: str, holder: str, now: float, until: float) -> SqlSteps[bool | None]:
    """Only one response at a time is added to a conversation. False: another one is; None: there is no such conversation."""
    rows = yield Query(
        "UPDATE conversations SET lock = $3, locked_until = $5 "
        "WHERE id = $1 AND owner = $2 AND (lock = '' OR lock = $3 OR locked_until < $4) RETURNING id",
        (name, owner, holder, now, until),
    )
    if rows:
        return True
    rows = yield Query("SELECT 1 FROM conversations WHERE id = $1 AND owner = $2", (name, owner))
    return False if rows else None


def renew_lock(name: str, holder: str, until: float) -> SqlSteps[bool]:
    """Whoever holds the lock is alive. False: it holds it no longer."""
    rows = yield Query(
        "UPDATE conversations SET locked_until = $3 WHERE id = $1 AND lock = $2 RETURNING id", (name, holder, until)
    )
    return bool(rows)


def unlock_conversation(name: str, holder: str) -> SqlSteps[None]:
    yield Query("UPDATE conversations SET lock = '', locked_until = 0 WHERE id = $1 AND lock = $2", (name, holder))


def add_items(owner: str, name: str, items: list[StoredItem], now: float) -> SqlSteps[bool]:
    """Behind those that are there; an item whose id is there already is not added again. False: no such conversation."""
    rows = yield Query(
        "UPDATE conversations SET next = next + $3, used = $4 WHERE id = $1 AND owner = $2 RETURNING next",
        (name, owner, len(items), now),
    )
    if not rows:
        return False
    position = rows[0][0] - len(items)
    for offset, item in enumerate(items):
        yield Query(
            "INSERT INTO items (conversation, position, owner, id, size, body) SELECT $1, $2, $3, $4, $5, $6 "
            "WHERE NOT EXISTS (SELECT 1 FROM items WHERE conversation = $1 AND id = $4)",
            (name, position + offset, owner, item.id, len(item.body), item.body),
        )
    return True


def add_new_items(owner: str, name: str, items: list[StoredItem], now: float) -> SqlSteps[bool | str]:
    """The same, where no id may be that of another item. Returns that id where one is: then nothing is added."""
    there = yield Query("UPDATE conversations SET used = $3 WHERE id = $1 AND owner = $2 RETURNING id", (name, owner, now))
    if not there:
        return False
    for item in items:
        rows = yield Query("SELECT body FROM items WHERE conversation = $1 AND id = $2", (name, item.id))
        if rows and rows[0][0] != item.body:  # the same body is there when this is run for the second time
            return item.id
    return (yield from add_items(owner, name, items, now))


def get_items(name: str, after: int | None, limit: int, *, newest_first: bool) -> SqlSteps[list[StoredItem]]:
    """Those after a position, in the order that is asked for. The caller has looked whose conversation it is."""
    order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
    start = after if after is not None else (1 << 62 if newest_first else -1)
    rows = yield Query(
        f"SELECT id, body FROM items WHERE conversation = $1 AND position {sign} $2 ORDER BY position {order} LIMIT $3",
        (name, start, limit),
    )
    return [StoredItem(item, body) for item, body in rows]


def get_items_since(
    name: str, is_first: Callable[[StoredItem], bool], most: int = _NO_END, before: int = _NO_END
) -> SqlSteps[tuple[list[StoredItem], int]]:
    """The newest items in front of a position, in their order, from the last one on that `is_first`, or from the beginning, and
    the position behind the last of them. No more are read once they hold more than `most` bytes. The caller has looked whose
    conversation it is."""
    found: list[StoredItem] = []
    behind = size = 0
    while size <= most:
        # Their sizes first: a few of them may be larger than all that may be read.
        places = yield Query(
            "SELECT position, size FROM items WHERE conversation = $1 AND position < $2 ORDER BY position DESC LIMIT $3",
            (name, before, _ITEMS),
        )
        if not places:
            break
        if not found:
            behind = places[0][0] + 1
        first = places[-1][0]
        for position, each in places:
            size += each - _SEALED
            if size > most:
                first = position
                break
        rows = yield Query(
            "SELECT id, body FROM items WHERE conversation = $1 AND position >= $2 AND position < $3 ORDER BY position DESC",
            (name, first, before),
        )
        for item, body in rows:
            found.append(StoredItem(item, body))
            if is_first(found[-1]):
                return found[::-1], behind
        if len(places) < _ITEMS:
            break
        before = first
    return found[::-1], behind


def get_item(owner: str, name: str, conversation: str | None) -> SqlSteps[tuple[StoredItem, int] | None]:
    """An item by its id, in one conversation or in any of the owner's, and its position."""
    where, values = ("", (name, owner)) if conversation is None else (" AND conversation = $3", (name, owner, conversation))
    rows = yield Query(f"SELECT id, body, position FROM items WHERE id = $1 AND owner = $2{where}", values)
    return (StoredItem(rows[0][0], rows[0][1]), rows[0][2]) if rows else None


def delete_item(owner: str, conversation: str, name: str) -> SqlSteps[bool]:
    rows = yield Query(
        "DELETE FROM items WHERE conversation = $1 AND owner = $2 AND id = $3 RETURNING id", (conversation, owner, name)
    )
    return bool(rows)


# -- limits ------------------------------------------------------------------------------------------------------------------


def get_size() -> SqlSteps[int]:
    """Bytes of everything that is kept, without what the database itself needs."""
    responses = yield Query("SELECT coalesce(sum(size), 0) FROM responses")
    conversations = yield Query("SELECT coalesce(sum(length(metadata)), 0) FROM conversations")
    items = yield Query("SELECT coalesce(sum(size), 0) FROM items")
    return int(responses[0][0]) + int(conversations[0][0]) + int(items[0][0])


def forget_old(before: float, limit: int) -> SqlSteps[int]:
    """Delete responses that were made, and conversations that were last used, before a time. Returns how many went."""
    old = yield Query(
        "SELECT id, owner FROM responses WHERE created < $1 AND deleted = 0 ORDER BY created LIMIT $2", (before, limit)
    )
    for name, owner in old:
        yield from delete_response(owner, name)
    unused = yield Query("SELECT id, owner FROM conversations WHERE used < $1 ORDER BY used LIMIT $2", (before, limit))
    for name, owner in unused:
        yield from delete_conversation(owner, name)
    return len(old) + len(unused)


def forget_oldest(excess: int, limit: int) -> SqlSteps[int]:
    """Remove what was made or last used longest ago until that many bytes are free: responses, also those that others are built
    on, which cannot be continued then, and conversations. Returns how many went."""
    responses = yield Query("SELECT created, id, size FROM responses ORDER BY created LIMIT $1", (limit,))
    conversations = yield Query(
        "SELECT used, id, owner, length(metadata) + "
        "(SELECT coalesce(sum(size), 0) FROM items WHERE conversation = conversations.id) "
        "FROM conversations ORDER BY used LIMIT $1",
        (limit,),
    )
    gone = 0
    for _, name, *owner, size in sorted([*responses, *conversations]):
        if excess <= 0:
            break
        if owner:
            yield from delete_conversation(owner[0], name)
        else:
            yield Query("DELETE FROM events WHERE response = $1", (name,))
            yield Query("DELETE FROM responses WHERE id = $1", (name,))
        excess -= size
        gone += 1
    return gone


CONTENTS = {
    "responses": ("body", "id"),
    "conversations": ("metadata", "id"),
    "items": ("body", "conversation, position"),
    "batches": ("body", "id"),
    "files": ("body", "id"),
}
"""Tables of objects with content that may be encrypted: the column that tells, and what orders the rows."""


def get_contents(table: str, after: tuple[Value, ...], limit: int) -> SqlSteps[list[tuple[str, bytes, tuple[Value, ...]]]]:
    """The rows after one, in order: the id of each, its content, and what marks its place."""
    column, order = CONTENTS[table]
    places = ", ".join(f"${number}" for number in range(2, 2 + len(after)))
    where = f"WHERE ({order}) > ({places})" if after else ""
    rows = yield Query(f"SELECT id, {column}, {order} FROM {table} {where} ORDER BY {order} LIMIT $1", (limit, *after))
    return [(str(row[0]), row[1], tuple(row[2:])) for row in rows]


def count() -> SqlSteps[dict[str, int]]:
    """How many objects of each kind there are."""
    found: dict[str, int] = {}
    for table in ("responses", "conversations", "items", "events", "batches", "files"):
        rows = yield Query(f"SELECT count(*) FROM {table}")
        found[table] = int(rows[0][0])
    return found
