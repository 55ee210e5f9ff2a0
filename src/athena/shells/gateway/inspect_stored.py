"""Stored Responses for the inspector: conversations and chains of responses, with the exchanges that made them.

What is stored belongs to the key that made it, and no client reads another's. Here the operator looks, who holds the database:
the caller lets nobody else in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from athena.shells.store.queries import ResponseFacts
from athena.shells.store.store import Store
from athena.state.values import ResponseItem, StoredResponse

MOST_RESPONSES = 1000
"""Responses that are looked at for the list, the newest first."""
_MOST_BYTES = 4 * 1024 * 1024
"""Bytes of items that one conversation shows."""


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation, or a chain of responses that continue each other."""

    id: str
    """The conversation's, else that of the first response of the chain that is there."""
    kind: str
    owner: str
    began: float
    last: float
    responses: list[str]
    """The oldest first."""
    status: str
    """Of the last response."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One response in a conversation."""

    id: str
    created: float
    status: str
    model: str
    parent: str
    exchange: str
    """The recorded exchange that made it; empty where there is none."""
    input: list[ResponseItem]
    output: list[ResponseItem]


class ToldTalk(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with what was said."""

    talk: Talk
    told: list[Told]
    is_whole: bool
    """False: it is longer than what is shown."""


def talks_of(responses: Iterable[ResponseFacts]) -> list[Talk]:
    """The conversations and chains that these responses belong to, the newest first."""
    known = {each.id: each for each in responses}
    groups: dict[tuple[str, str, str], list[ResponseFacts]] = {}
    roots: dict[str, str] = {}
    for each in sorted(known.values(), key=lambda facts: facts.created):
        if each.conversation:
            name = ("conversation", each.conversation, each.owner)
        else:
            parent = each.parent or ""
            roots[each.id] = roots.get(parent, each.id) if parent in known else each.id
            name = ("chain", roots[each.id], each.owner)
        groups.setdefault(name, []).append(each)
    talks = [
        Talk(
            id=name,
            kind=kind,
            owner=owner,
            began=parts[0].created,
            last=parts[-1].created,
            responses=[part.id for part in parts],
            status=parts[-1].status,
        )
        for (kind, name, owner), parts in groups.items()
    ]
    return sorted(talks, key=lambda talk: talk.last, reverse=True)


async def list_talks(store: Store) -> list[Talk]:
    """The newest conversations and chains."""
    return talks_of(await store.latest(MOST_RESPONSES))


async def told_talk(store: Store, name: str, exchanges: Mapping[str, str]) -> ToldTalk | None:
    """One of them with its items; None where it is not there. `exchanges` has the exchange that made a response."""
    talk = next((each for each in await list_talks(store) if name in (each.id, *each.responses)), None)
    if talk is None:
        return None
    told: list[Told] = []
    size = 0
    for number in talk.responses:
        response = await store.response(talk.owner, number)
        if response is None:
            continue
        size += len(response.input) + len(response.output)
        if told and size > _MOST_BYTES:
            return ToldTalk(talk=talk, told=told, is_whole=False)
        told.append(_told(response, exchanges.get(number, "")))
    return ToldTalk(talk=talk, told=told, is_whole=True)


def _told(response: StoredResponse, exchange: str) -> Told:
    model = msgspec.json.decode(response.body).get("model", "")
    return Told(
        id=response.id,
        created=response.created,
        status=response.status,
        model=str(model or ""),
        parent=response.parent or "",
        exchange=exchange,
        input=msgspec.json.decode(response.input),
        output=msgspec.json.decode(response.output),
    )
