"""Content parts of messages that are not plain text: images, files, sound, video, citations.

Wire facts: docs/reference/wire-facts.md#chat-messages.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote_to_bytes

from athena.dialects.openai_chat.vocabulary import NAME
from athena.model.parts import (
    Audio,
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    Opaque,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    Url,
    Video,
)
from athena.wire.fields import Fields

_MIME_OF_SUFFIX = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "json": "application/json",
    "html": "text/html",
}


def source_of_url(url: str) -> Source:
    """A web address, or the bytes a data URL holds."""
    if not url.startswith("data:"):
        return Url(url)
    head, _, data = url[5:].partition(",")
    mime, _, encoding = head.partition(";")
    if encoding.rpartition(";")[2] != "base64" and encoding != "base64":
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return Base64(mime or "application/octet-stream", data)


def url_of_source(source: Base64 | Url) -> str:
    """The address of a source; bytes become a data URL."""
    return source.url if isinstance(source, Url) else f"data:{source.mime};base64,{source.data}"


def cache_mark(fields: Fields) -> CacheMark | None:
    """A cache breakpoint on a part, in either spelling (OpenRouter takes both)."""
    for key in ("cache_control", "prompt_cache_breakpoint"):
        value = fields.mapping(key)
        if value is not None:
            seconds = {"1h": 3600, "30m": 1800, "12h": 43200}.get(str(value.get("ttl")), 300)
            return CacheMark(ttl_seconds=seconds, raw={key: value})
    return None


def decode_part(fields: Fields) -> Part:
    """One entry of a content list. Unknown kinds are kept for their own dialect."""
    kind = fields.text("type")
    if kind is None and fields.has("text"):
        kind = "text"
    if kind is None:
        raise fields.wrong("type", "the type of the content part")
    read = _READERS.get(kind)
    if read is None:
        return Foreign(kind=kind, dialect=NAME, raw=fields.value)
    return read(fields)


def _text(fields: Fields) -> Part:
    return Text(text=fields.needed_text("text"), cache=cache_mark(fields), raw=fields.value, extras=fields.rest())


def _refusal(fields: Fields) -> Part:
    return Refusal(text=fields.needed_text("refusal"), raw=fields.value, extras=fields.rest())


def _image(fields: Fields) -> Part:
    value = fields.any("image_url")
    detail = None
    if isinstance(value, str):
        url = value
    else:
        inner = fields.child("image_url")
        if inner is None:
            raise fields.wrong("image_url", "an object with a url")
        url, detail = inner.needed_text("url", allow_empty=False), inner.text("detail")
    return Image(source=source_of_url(url), detail=detail, cache=cache_mark(fields), raw=fields.value, extras=fields.rest())


def _audio(fields: Fields) -> Part:
    value = fields.any("input_audio")
    if isinstance(value, str):
        return Audio(source=Base64("audio/wav", value), raw=fields.value, extras=fields.rest())
    inner = fields.child("input_audio")
    if inner is None:
        raise fields.wrong("input_audio", "an object with data and format")
    form = inner.text("format") or "wav"
    mime = "audio/mpeg" if form == "mp3" else f"audio/{form}"
    return Audio(source=Base64(mime, inner.needed_text("data")), format=form, raw=fields.value, extras=fields.rest())


def _file(fields: Fields) -> Part:
    inner = fields.child("file")
    if inner is None:
        raise fields.wrong("file", "an object with file_id or file_data")
    name, data, identity = inner.text("filename"), inner.text("file_data"), inner.text("file_id")
    source: Source
    if data is not None:
        suffix = (name or "").rpartition(".")[2].lower()
        plain = Base64(_MIME_OF_SUFFIX.get(suffix, "application/pdf"), data)
        source = source_of_url(data) if data.startswith(("data:", "http:", "https:")) else plain
    elif identity is not None:
        source = FileRef(identity)
    else:
        raise inner.wrong("file_data", "file_data or file_id")
    return Document(source=source, title=name, cache=cache_mark(fields), raw=fields.value, extras=fields.rest())


def _video(fields: Fields) -> Part:
    value = fields.any("video_url")
    inner = None if isinstance(value, str) else fields.child("video_url")
    url = value if isinstance(value, str) else inner.text("url") if inner is not None else None
    if not url:
        raise fields.wrong("video_url", "an object with a url")
    return Video(source=source_of_url(url), raw=fields.value, extras=fields.rest())


def _document_url(fields: Fields) -> Part:
    url = fields.needed_text("document_url", allow_empty=False)
    return Document(source=source_of_url(url), title=fields.text("document_name"), raw=fields.value, extras=fields.rest())


def _thinking(fields: Fields) -> Part:
    """Mistral's chunk: a list of texts, with a signature once it is closed."""
    value = fields.any("thinking")
    pieces = value if isinstance(value, list) else [value]
    texts = [piece.get("text") if isinstance(piece, dict) else piece for piece in pieces]
    signature = fields.text("signature")
    fields.any("closed")
    return Thinking(
        text="".join(text for text in texts if isinstance(text, str)),
        signature=Opaque(family="mistral", kind="signature", payload=signature) if signature else None,
        raw=fields.value,
        extras=fields.rest(),
    )


_READERS = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
    "video_url": _video,
    "document_url": _document_url,
    "thinking": _thinking,
}


def image_of(entry: dict[str, Any]) -> Image | None:
    """An image the model made (OpenRouter's `images`)."""
    value = entry.get("image_url")
    url = value.get("url") if isinstance(value, dict) else value
    return Image(source=source_of_url(url), raw=entry) if isinstance(url, str) and url else None


def citation_of(entry: dict[str, Any]) -> Citation:
    """An entry of `annotations`."""
    kind = entry.get("type")
    inner = entry.get(kind) if isinstance(kind, str) else None
    if not isinstance(inner, dict):
        inner = entry
    url, title, quote = inner.get("url"), inner.get("title"), inner.get("content")
    start, end = inner.get("start_index"), inner.get("end_index")
    return Citation(
        kind="url" if kind == "url_citation" else str(kind),
        url=url if isinstance(url, str) else None,
        title=title if isinstance(title, str) else None,
        quote=quote if isinstance(quote, str) else None,
        start=start if isinstance(start, int) else None,
        end=end if isinstance(end, int) else None,
        raw=entry,
    )


def annotation_of(citation: Citation, position: int, *, same_dialect: bool) -> dict[str, Any] | None:
    """A citation as an annotation; None when it names no address."""
    if same_dialect and isinstance(citation.raw, dict):
        return citation.raw
    if citation.url is None:
        return None
    inner: dict[str, Any] = {
        "url": citation.url,
        "title": citation.title or citation.url,
        "start_index": citation.start if citation.start is not None else position,
        "end_index": citation.end if citation.end is not None else position,
    }
    return {"type": "url_citation", "url_citation": inner}
