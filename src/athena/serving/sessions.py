"""Which session, agent and sub-agent a request belongs to, from what clients themselves say.

| client | session | agent, and who started it |
|---|---|---|
| Claude Code | `x-claude-code-session-id`, else `metadata.user_id` | `x-claude-code-agent-id`, `...-parent-agent-id` |
| Codex | `session-id` or `session_id` | `thread-id`, `x-codex-parent-thread-id` |
| OpenCode | `x-parent-session-id` of a sub-agent, else `x-session-id` | `x-session-id` of a sub-agent |
| any client of Chat and Responses | `prompt_cache_key` in the body | |
| others | `x-session-id`, `x-session-affinity`, `x-conversation-id` | `x-agent-id`, `x-parent-agent-id` |

A request in which nobody says it belongs to no session.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

import msgspec

from athena.model.request import Request

_SESSION = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-session-affinity", "x-conversation-id")
_AGENT = ("x-claude-code-agent-id", "thread-id", "thread_id", "x-agent-id", "x-openai-subagent")
_PARENT = ("x-claude-code-parent-agent-id", "x-codex-parent-thread-id", "x-parent-agent-id")
_ROOT = "x-parent-session-id"
_NAMES = frozenset((*_SESSION, *_AGENT, *_PARENT, _ROOT))
_LONGEST = 128
_CHOSEN = b'"session_id"', b'"prompt_cache_key"'
_WORDS = (*_CHOSEN, b'"user_id"')
_END = 4096
"""Bytes at the end of a body in which its metadata is looked for."""
_IN_USER_ID = re.compile(r'session_(?:id"[ ]{0,1}:[ ]{0,1}")?([0-9a-fA-F-]{8,64})')
_PROGRAM = re.compile(r"[A-Za-z0-9._@+-]{1,64}(?:/[A-Za-z0-9._+-]{1,40})?")


class Belonging(msgspec.Struct, frozen=True):
    """The client and the session that a request belongs to."""

    program: str = ""
    session: str = ""
    agent: str = ""
    parent: str = ""


class _Metadata(msgspec.Struct):
    user_id: str | None = None
    session_id: str | None = None


class _Body(msgspec.Struct):
    prompt_cache_key: str | None = None
    session_id: str | None = None
    metadata: _Metadata | None = None


_decode = msgspec.json.Decoder(_Body).decode


def belonging(headers: Mapping[str, str], body: bytes) -> Belonging:
    """Whose request this is. `headers` are by lower-case name."""
    said = said_by(headers)
    return said if said.session else msgspec.structs.replace(said, session=session_in(body))


def said_by(headers: Mapping[str, str]) -> Belonging:
    """The same without a look at the body."""
    found = _PROGRAM.match(headers.get("user-agent", ""))
    if _NAMES.isdisjoint(headers):
        return Belonging(found.group() if found else "")
    session, agent = _first(headers, _SESSION), _first(headers, _AGENT)
    if session and not agent and (root := _first(headers, (_ROOT,))):
        # A sub-agent that has a session of its own: it stands below the one that started it.
        session, agent = root, session
    return Belonging(found.group() if found else "", session, agent, _first(headers, _PARENT))


def session_of(headers: Mapping[str, str], request: Request) -> str:
    """The session of a request that is decoded already, by the same rules; a sub-agent's own where it has one."""
    if found := _first(headers, _SESSION):
        return found
    metadata, extras = request.metadata or {}, request.extras or {}
    if request.end_user and (named := _IN_USER_ID.search(request.end_user)):
        return named.group(1)
    for said in (request.cache.key, extras.get("session_id"), metadata.get("session_id")):
        if isinstance(said, str) and said:
            return said[:_LONGEST]
    return ""


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if value := headers.get(name):
            return value[:_LONGEST]
    return ""


def session_in(body: bytes, holds: Callable[[bytes], bool] | None = None) -> str:
    """The session that a body names; empty where it names none. `holds` tells whether a word is in the body, for whoever knows
    a faster way to find it."""
    if holds is None:
        holds = body.__contains__
    said = _said_at_end(body, holds)
    if said is None:
        # To look for a few words takes a fraction of what reading a long body does.
        if not any(map(holds, _WORDS)):
            return ""
        try:
            said = _decode(body)
        except (msgspec.MsgspecError, ValueError):
            return ""
    return _named(said.metadata) or _chosen(said)


def _named(metadata: _Metadata | None) -> str:
    """The session that a user's id names."""
    found = _IN_USER_ID.search(metadata.user_id) if metadata is not None and metadata.user_id else None
    return found.group(1) if found else ""


def _chosen(said: _Body) -> str:
    found = said.prompt_cache_key or said.session_id or (said.metadata.session_id if said.metadata is not None else None)
    return found[:_LONGEST] if found else ""


def _said_at_end(body: bytes, holds: Callable[[bytes], bool]) -> _Body | None:
    """What a body says, where nothing but its last fields says it: agents write the metadata behind a long history, and to read
    that takes many times as long. None: the body has to be read."""
    at = body.rfind(b',"metadata":', max(0, len(body) - _END))
    if at < 0:
        return None
    # A comma before a name stands in an object. What follows is the rest of the body's own object, and not of one inside of it,
    # exactly if it is whole with the beginning of an object before it. Of equal names the last one counts.
    try:
        said = _decode(b"{" + body[at + 1 :])
    except (msgspec.MsgspecError, ValueError):
        return None
    return said if _named(said.metadata) or not any(map(holds, _CHOSEN)) else None


def hidden(name: str) -> str:
    """A name that tells the same sessions apart and nothing else."""
    return "s" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:11] if name else ""
