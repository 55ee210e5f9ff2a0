"""Sources of an answer: Gemini's grounding and citation metadata as citations and back.

Only what names an address travels. Offsets do not: they count bytes of one part, other dialects count characters.

Wire facts: docs/reference/wire-facts.md#content.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from athena.model.parts import Citation


def citations_of(metadata: Any) -> list[Citation]:
    """The addresses in a `groundingMetadata` or `citationMetadata`, with the text they support where it is given."""
    if not isinstance(metadata, dict):
        return []
    plain = metadata.get("citationSources", metadata.get("citations"))
    if isinstance(plain, list):
        return [found for entry in plain if (found := _citation(entry, None)) is not None]
    chunks = metadata.get("groundingChunks")
    if not isinstance(chunks, list):
        return []
    sources = [_source(chunk) for chunk in chunks]
    supported: list[Citation] = []
    used: set[int] = set()
    supports = metadata.get("groundingSupports")
    for support in supports if isinstance(supports, list) else ():
        if not isinstance(support, dict):
            continue
        segment = support.get("segment")
        quote = segment.get("text") if isinstance(segment, dict) else None
        indices = support.get("groundingChunkIndices")
        for index in indices if isinstance(indices, list) else ():
            if isinstance(index, int) and 0 <= index < len(sources):
                used.add(index)
                found = _citation(sources[index], quote if isinstance(quote, str) else None)
                if found is not None:
                    supported.append(found)
    alone = [_citation(source, None) for index, source in enumerate(sources) if index not in used]
    return supported + [found for found in alone if found is not None]


def _source(chunk: Any) -> Any:
    if not isinstance(chunk, dict):
        return None
    return next(
        (chunk[kind] for kind in ("web", "retrievedContext", "maps", "image") if isinstance(chunk.get(kind), dict)), None
    )


def _citation(entry: Any, quote: str | None) -> Citation | None:
    if not isinstance(entry, dict):
        return None
    url = entry.get("uri", entry.get("sourceUri"))
    title = entry.get("title")
    if not isinstance(url, str) or not url:
        return None
    return Citation(url=url, title=title if isinstance(title, str) else None, quote=quote)


def grounding_of(citations: Iterable[Citation]) -> dict[str, Any] | None:
    """Citations that name an address as `groundingMetadata`."""
    chunks: list[dict[str, Any]] = []
    supports: list[dict[str, Any]] = []
    places: dict[tuple[str, str | None], int] = {}
    for citation in citations:
        if not citation.url:
            continue
        key = (citation.url, citation.title)
        if key not in places:
            places[key] = len(chunks)
            chunks.append({"web": {"uri": citation.url, **({"title": citation.title} if citation.title else {})}})
        if citation.quote:
            supports.append({"segment": {"text": citation.quote}, "groundingChunkIndices": [places[key]]})
    if not chunks:
        return None
    return {"groundingChunks": chunks, **({"groundingSupports": supports} if supports else {})}
