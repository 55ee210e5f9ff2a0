"""Content blocks of a client's messages as parts.

A block keeps its JSON as `raw`, so it goes back to its own dialect untouched. Blocks that only the provider's own services
understand, and unknown types, become `Foreign`.

Wire facts: docs/reference/wire-facts.md#anthropic-messages-and-blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from athena.calls.arguments import arguments_text
from athena.dialects.anthropic_messages.vocabulary import FAMILY, NAME
from athena.errors import InvalidRequest
from athena.model.parts import (
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    InlineText,
    Nested,
    Opaque,
    Part,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
)
from athena.wire.fields import Fields


def read_content(fields: Fields, key: str) -> tuple[Part, ...]:
    """A string or an array of blocks. The text of a string keeps that string as its raw JSON."""
    value = fields.any(key)
    if isinstance(value, str):
        return (Text(text=value, raw=value),)
    return fields.each(key, read_block)


# -- the usual blocks ---------------------------------------------------------------------------------------------------------

_field_of: Callable[[dict[str, Any], str], Any] = dict.get
"""Raises TypeError for what is no object."""
_call_fields = itemgetter("id", "name", "input")
_CALL_TYPES = (str, str, dict)


def plain_content(content: Any) -> tuple[Part, ...] | None:
    """The content of a message of nothing but the usual text, calls and results, each with its usual fields; None for any
    other, which `read_content` reads or refuses. Both read the same out of what both can read.
    """
    if type(content) is str:
        return (Text(text=content, raw=content),)
    if type(content) is not list:
        return None
    try:
        return tuple([_PLAIN_READERS[_field_of(block, "type")](block) for block in content])
    except (KeyError, TypeError):  # a field is missing, is one too many or is not what it should be
        return None


def plain_text(block: dict[str, Any]) -> Text:
    """A text with nothing else about it but a mark for the cache. Raises KeyError or TypeError for any other."""
    text = block["text"]
    if type(text) is not str:
        raise TypeError
    return Text(text=text, raw=block) if len(block) == 2 else Text(text=text, cache=_plain_cache(block, 3), raw=block)


def _plain_cache(block: dict[str, Any], fields: int) -> CacheMark:
    """The mark of a block that has so many fields and this as the last one that may be there."""
    control = block["cache_control"]
    if type(control) is not dict or len(block) != fields:
        raise TypeError
    return cache_mark(control)


def _plain_call(block: dict[str, Any]) -> ToolCall:
    fields = call_id, name, given = _call_fields(block)
    if tuple(map(type, fields)) != _CALL_TYPES or not call_id or not name:
        raise TypeError
    arguments = arguments_text(given)
    if len(block) == 4:
        return ToolCall(id=call_id, name=name, arguments=arguments, raw=block)
    return ToolCall(id=call_id, name=name, arguments=arguments, cache=_plain_cache(block, 5), raw=block)


def _plain_result(block: dict[str, Any]) -> ToolResult:
    call_id, failed = block["tool_use_id"], block.get("is_error", False)
    shown = plain_content(block["content"])
    if shown is None or type(call_id) is not str or not call_id or type(failed) is not bool:
        raise TypeError
    count = 4 if "is_error" in block else 3
    if len(block) == count:
        return ToolResult(call_id=call_id, parts=shown, is_error=failed, raw=block)
    return ToolResult(call_id=call_id, parts=shown, is_error=failed, cache=_plain_cache(block, count + 1), raw=block)


_PLAIN_READERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    "text": plain_text,
    "tool_use": _plain_call,
    "tool_result": _plain_result,
}


# -- all blocks ---------------------------------------------------------------------------------------------------------------


def read_block(block: Fields) -> Part:
    kind = block.needed_text("type", allow_empty=False)
    read = _READERS.get(kind)
    return foreign(block) if read is None else read(block)


def foreign(block: Fields) -> Foreign:
    """A block only its own provider understands, or a known one with content of an unknown kind."""
    return Foreign(kind=str(block.value.get("type")), dialect=NAME, raw=block.whole())


def read_cache(fields: Fields, key: str = "cache_control") -> CacheMark | None:
    """A cache breakpoint; what stands in it beside the lifetime survives in its raw form."""
    control = fields.mapping(key)
    if control is None:
        return None
    return cache_mark(control)


def cache_mark(control: dict[str, Any]) -> CacheMark:
    """What an object of a cache breakpoint means."""
    return CacheMark(ttl_seconds=3600 if control.get("ttl") == "1h" else 300, raw=control)


def is_own_citation(citation: Any) -> bool:
    """Did our answer encoder make it up for a web citation of another family? The provider would refuse it."""
    return isinstance(citation, dict) and citation.get("encrypted_index") == ""


def _text(block: Fields) -> Part:
    text = block.needed_text("text")
    cache = read_cache(block)
    given = block.sequence("citations") or []
    kept = [citation for citation in given if not is_own_citation(citation)]
    return Text(
        text=text,
        citations=tuple(citation_part(citation) for citation in kept),
        cache=cache,
        raw=block.value if len(kept) == len(given) else None,
        extras=block.rest(),
    )


def citation_part(citation: Any) -> Citation:
    """A citation of an answer or of a message, with its own JSON kept."""
    if not isinstance(citation, dict):
        return Citation(kind="unknown", raw=citation)
    url, title, quote = citation.get("url"), citation.get("title"), citation.get("cited_text")
    return Citation(
        kind="url" if isinstance(url, str) else str(citation.get("type", "unknown")),
        url=url if isinstance(url, str) else None,
        title=title if isinstance(title, str) else None,
        quote=quote if isinstance(quote, str) else None,
        raw=citation,
    )


def _image(block: Fields) -> Part:
    source = _source(block)
    if source is None:
        return foreign(block)
    return Image(source=source, cache=read_cache(block), raw=block.value, extras=block.rest())


def _document(block: Fields) -> Part:
    source = _source(block)
    if source is None:
        return foreign(block)
    citations = block.child("citations")
    return Document(
        source=source,
        title=block.text("title"),
        context=block.text("context"),
        citations=citations is not None and citations.flag("enabled") is True,
        cache=read_cache(block),
        raw=block.value,
        extras=block.rest(),
    )


def _search_result(block: Fields) -> Part:
    """For other dialects a document made of its texts, with its address as the context."""
    citations = block.child("citations")
    return Document(
        source=Nested(block.each("content", read_block)),
        title=block.needed_text("title"),
        context=block.needed_text("source"),
        citations=citations is not None and citations.flag("enabled") is True,
        cache=read_cache(block),
        raw=block.value,
        extras=block.rest(),
    )


def _source(block: Fields) -> Source | None:
    """Where the content comes from; None for an unknown kind of place."""
    source = block.child("source")
    if source is None:
        raise InvalidRequest(f"{block.at('source')}: field required", path=block.at("source"))
    kind = source.needed_text("type")
    if kind == "base64":
        return Base64(mime=source.needed_text("media_type"), data=source.needed_text("data"))
    if kind == "url":
        return Url(url=source.needed_text("url"))
    if kind == "file":
        return FileRef(id=source.needed_text("file_id"))
    if kind == "text":
        source.text("media_type")
        return InlineText(text=source.needed_text("data"))
    if kind == "content":
        return Nested(read_content(source, "content"))
    return None


def _thinking(block: Fields) -> Part:
    text = block.needed_text("thinking")
    signature = block.text("signature")
    state = Opaque(family=FAMILY, kind="signature", payload=signature) if signature else None
    return Thinking(text=text, signature=state, raw=block.value, extras=block.rest())


def _redacted(block: Fields) -> Part:
    state = Opaque(family=FAMILY, kind="redacted", payload=block.needed_text("data"))
    return Thinking(signature=state, raw=block.value, extras=block.rest())


def _tool_use(block: Fields) -> Part:
    return ToolCall(
        id=block.needed_text("id", allow_empty=False),
        name=block.needed_text("name", allow_empty=False),
        arguments=arguments_text(_needed_object(block, "input")),
        namespace=block.text("toolset_name"),
        cache=read_cache(block),
        raw=block.value,
        extras=block.rest(),
    )


def _needed_object(block: Fields, key: str) -> dict[str, Any]:
    value = block.mapping(key)
    if value is None:
        raise InvalidRequest(f"{block.at(key)}: field required", path=block.at(key))
    return value


def _tool_result(block: Fields) -> Part:
    return ToolResult(
        call_id=block.needed_text("tool_use_id", allow_empty=False),
        parts=read_content(block, "content"),
        is_error=block.flag("is_error") is True,
        cache=read_cache(block),
        raw=block.value,
        extras=block.rest(),
    )


_READERS: dict[str, Callable[[Fields], Part]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}
