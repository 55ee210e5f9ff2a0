"""Gemini's `contents` as turns: parts of every kind, ids for calls that have none, results paired with their calls.

Wire facts: docs/reference/wire-facts.md#gemini-requests.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

import msgspec

from athena.calls.arguments import arguments_text
from athena.calls.ids import hashed
from athena.dialects.gemini.signatures import ThinkingState, read_slot
from athena.dialects.gemini.spelling import EitherCase, camel
from athena.errors import InvalidRequest
from athena.model.parts import (
    Audio,
    Base64,
    Document,
    FileRef,
    Foreign,
    Image,
    Opaque,
    Part,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
    changed,
)
from athena.model.request import Role, Turn
from athena.wire.recall import Recall

NAME = "gemini"
_ROLES: dict[str, Role] = {
    "": "user", "user": "user", "function": "user", "tool": "user", "model": "assistant", "assistant": "assistant",
    "system": "system", "developer": "system",
}  # fmt: skip
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_TO_STANDARD = str.maketrans("-_", "+/")
_GOOGLE_FILE = re.compile(r"gs://|files/|https://generativelanguage\.googleapis\.com/")
_KINDS = ("text", "functionCall", "functionResponse", "inlineData", "fileData")
_BESIDE = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata", "mediaProcessing"})
_WRAPPERS = ("output", "result", "content")
_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}


def decode_contents(body: EitherCase) -> tuple[Turn, ...]:
    """All turns of a conversation. `contents` is a list, one content, or plain text."""
    value = body.any("contents")
    path = body.at("contents")
    if value is None or value == []:
        raise InvalidRequest(f"{path}: field required", path=path)
    single = not isinstance(value, list)
    calls = _Calls()
    turns: list[Turn] = []
    answer: list[_Content] = []
    for index, item in enumerate([value] if single else value):
        known: _Content | Turn | None = body.recalled(item)
        if known is None or not calls.may_follow(known):
            known = _read_content(body, item, path if single else f"{path}[{index}]", calls)
        if isinstance(known, _Content):
            answer.append(known)
        else:
            _end_answer(turns, answer, body.recall)
            turns.append(known)
    _end_answer(turns, answer, body.recall)
    return tuple(turns)


def _read_content(body: EitherCase, item: Any, path: str, calls: _Calls) -> _Content | Turn:
    """The turn that one element of `contents` is, or its part of the model's turn; remembered where it depends on no other."""
    before, guesses = body.reading, calls.guesses
    content = _content(body, item, path, calls)
    made: _Content | Turn = content
    if content.role != "assistant":
        made = Turn(
            role=content.role,
            parts=tuple(map(_unowed, content.parts)),
            hint=content.hint,
            raw=None if content.has_envelope else item,
            extras=content.extras,
        )
    if calls.guesses == guesses and not content.has_envelope:
        content.is_remembered = body.remember(item, made, before)
    return made


class _Content(msgspec.Struct):
    """One element of `contents`, read but not yet a turn."""

    role: Role
    parts: list[Any]
    raw: Any
    hint: str | None = None
    extras: dict[str, Any] | None = None
    is_remembered: bool = False
    """It depends on no other content, and is known when its bytes come again."""

    @property
    def has_envelope(self) -> bool:
        """Our own envelope must never reach an upstream: a content that carries one is written anew."""
        return any(isinstance(part, _Owed) for part in self.parts)


class RawContents(list[Any]):
    """The JSON of several contents that make one turn: the SDK's chats replay every streamed chunk as a content of its own."""


def _end_answer(turns: list[Turn], answer: list[_Content], recall: Recall | None) -> None:
    """All model contents in a row as one turn."""
    if not answer:
        return
    make = partial(_answer_turn, tuple(answer))
    if recall is not None and all(content.is_remembered for content in answer):
        turns.append(recall.together([content.raw for content in answer], make))
    else:
        turns.append(make())
    answer.clear()


def _answer_turn(answer: tuple[_Content, ...]) -> Turn:
    extras: dict[str, Any] = {}
    for content in answer:
        extras.update(content.extras or {})
    raw = answer[0].raw if len(answer) == 1 else RawContents(content.raw for content in answer)
    return Turn(
        role="assistant",
        parts=tuple(_joined([part for content in answer for part in content.parts])),
        raw=None if any(content.has_envelope for content in answer) else raw,
        extras=extras or None,
    )


def decode_instruction(body: EitherCase) -> tuple[Part, ...]:
    """`systemInstruction`: a content, a list of parts, or plain text."""
    value = body.any("systemInstruction")
    if value is None:
        return ()
    path = body.at("systemInstruction")
    if isinstance(value, dict) and "parts" not in value and "text" in value:
        value = [value]
    parts = _parts_of({"parts": value} if isinstance(value, list) else value, path)
    return tuple(_unowed(_part(body.inner(item, where), _Calls(), "user")) for item, where in parts)


def _content(body: EitherCase, item: Any, path: str, calls: _Calls) -> _Content:
    if isinstance(item, str):
        return _Content("user", [Text(text=item)], item)
    fields = body.inner(item, path)
    word = (fields.text("role") or "").lower()
    role = _ROLES.get(word)
    if role is None:
        raise fields.wrong("role", "user or model")
    fields.any("parts")
    if role == "assistant":
        calls.step()
    parts = [_part(fields.inner(value, where), calls, role) for value, where in _parts_of(item, path)]
    hint = word if word in ("function", "tool", "developer") else None
    return _Content(role, parts, item, hint, fields.rest())


def _parts_of(content: Any, path: str) -> list[tuple[Any, str]]:
    """The parts of a content with their paths; one part or text may stand for the list."""
    if isinstance(content, str):
        return [({"text": content}, path)]
    value = EitherCase(content, path).any("parts")
    where = f"{path}.parts" if path else "parts"
    if value is None:
        return []
    if isinstance(value, list):
        return [({"text": item} if isinstance(item, str) else item, f"{where}[{index}]") for index, item in enumerate(value)]
    return [({"text": value} if isinstance(value, str) else value, where)]


class _Owed:
    """A decoded part together with state that belongs to the thinking before it."""

    __slots__ = ("part", "state")

    def __init__(self, part: Part, state: ThinkingState) -> None:
        self.part = part
        self.state = state


def _part(fields: EitherCase, calls: _Calls, role: Role) -> Part | _Owed:
    value, path = fields.value, fields.path
    if not value:
        raise InvalidRequest(f"{path}: a part needs one of text, functionCall, functionResponse, inlineData, ...", path=path)
    slot = read_slot(fields.text("thoughtSignature"))
    signature = slot if isinstance(slot, Opaque) else None
    thought = fields.flag("thought") is True
    kind = next((kind for kind in _KINDS if fields.has(kind)), None)
    part: Part
    if kind == "text":
        text = fields.text("text") or ""
        if thought and role == "assistant":
            part = Thinking(text=text, signature=signature, raw=value, extras=fields.rest())
        else:
            part = Text(text=text, signature=signature, raw=value, extras=fields.rest())
    elif kind == "functionCall":
        part = _call(fields, calls, signature)
    elif kind == "functionResponse":
        part = _result(fields, calls)
    elif kind in ("inlineData", "fileData"):
        part = decode_media(fields, kind)
    elif signature is not None and not (set(map(camel, fields.value)) - _BESIDE):
        part = Thinking(signature=signature, raw=value) if thought else Text(text="", signature=signature, raw=value)
    else:
        part = foreign(fields.whole())
    return _Owed(part, slot) if isinstance(slot, ThinkingState) else part


def foreign(value: dict[str, Any]) -> Foreign:
    """A part only Gemini understands: server tools, executed code, kinds of the future."""
    kinds = [camel(key) for key in value if camel(key) not in _BESIDE]
    return Foreign(kind=kinds[0] if kinds else "part", dialect=NAME, raw=value)


# -- calls and results -------------------------------------------------------------------------------------------------------


class _Waiting(NamedTuple):
    id: str
    name: str
    has_own_id: bool


class _Calls:
    """The calls of a conversation: ids for those without, and who still waits for a result."""

    def __init__(self) -> None:
        self._count = 0
        self._ids: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._answered = False
        self.guesses = 0
        """Ids that were made or chosen by what came before."""

    def may_follow(self, known: _Content | Turn) -> bool:
        """May a remembered content stand here, with the same ids? If so it counts as read."""
        parts = [part for part in known.parts if isinstance(part, ToolCall | ToolResult)]
        own: set[str] = set()
        for part in parts:
            if isinstance(part, ToolCall):
                own.add(part.id)
            elif part.call_id not in self._ids and part.call_id not in own:
                return False
        if known.role == "assistant":
            self.step()
        for part in parts:
            if isinstance(part, ToolCall):
                self.add(part.id, part.name)
            else:
                self.answer(part.call_id, part.name or "")
        return True

    def step(self) -> None:
        """A model content begins: after results, the calls before them wait no longer."""
        if self._answered:
            self._waiting.clear()
            self._answered = False

    def add(self, call_id: str | None, name: str) -> str:
        """The call's id: its own, or one that is the same each time this conversation is sent."""
        known = call_id or f"call_{hashed(f'gemini/{name}/{self._count}')}"
        self.guesses += not call_id
        self._count += 1
        self._ids.add(known)
        self._waiting.append(_Waiting(known, name, bool(call_id)))
        return known

    def answer(self, call_id: str | None, name: str) -> str:
        """The id of the call that a result answers: by id, else the first waiting one of that name, else the first."""
        self._answered = True
        if call_id and call_id in self._ids:
            self._waiting = [entry for entry in self._waiting if entry.id != call_id]
            return call_id
        self.guesses += 1
        open_to_all = [entry for entry in self._waiting if not (call_id and entry.has_own_id)]
        found = next((entry for entry in open_to_all if entry.name == name), open_to_all[0] if open_to_all else None)
        if found is None:
            return call_id or f"call_{hashed(f'gemini/result/{name}/{self._count}')}"
        self._waiting.remove(found)
        return found.id


def _call(fields: EitherCase, calls: _Calls, signature: Opaque | None) -> ToolCall:
    call = fields.child("functionCall")
    assert call is not None
    name = call.needed_text("name", allow_empty=False)
    arguments = arguments_text(call.mapping("args"))
    return ToolCall(
        id=calls.add(call.text("id"), name),
        name=name,
        arguments=arguments,
        signature=signature,
        raw=fields.value,
        extras=fields.rest(),
    )


def _result(fields: EitherCase, calls: _Calls) -> ToolResult:
    result = fields.child("functionResponse")
    assert result is not None
    name = result.needed_text("name", allow_empty=False)
    response = result.mapping("response")
    parts, is_error = _read_response(response)
    media = tuple(decode_media(item, kind) for item in result.children("parts") for kind in _media_kinds(item))
    return ToolResult(
        call_id=calls.answer(result.text("id"), name),
        name=name,
        parts=parts + media,
        is_error=is_error,
        structured=response,
        raw=fields.value,
        extras=fields.rest(),
    )


def _media_kinds(item: EitherCase) -> tuple[str, ...]:
    return tuple(kind for kind in ("inlineData", "fileData") if item.has(kind))


def _read_response(response: dict[str, Any] | None) -> tuple[tuple[Part, ...], bool]:
    """The text of a result object and whether it reports an error."""
    if not response:
        return (), False
    present = {key: value for key, value in response.items() if value is not None}
    if present.get("error") and not any(present.get(key) for key in _WRAPPERS):
        return (Text(text=_plain(present["error"])),), True
    is_error = present.get("isError") is True
    inner = {key: value for key, value in present.items() if key not in ("isError", "error")}
    if len(inner) == 1:
        key, value = next(iter(inner.items()))
        if key in _WRAPPERS:
            texts = _texts(value)
            if texts is not None:
                return tuple(Text(text=text) for text in texts), is_error
    return (Text(text=msgspec.json.encode(response).decode()),), is_error


def _texts(value: Any) -> list[str] | None:
    """Plain text, `{text}`, or a list of text blocks as tool servers write them; None for anything else."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, dict):
        text = value.get("text")
        return [text] if isinstance(text, str) and not set(value) - {"text", "type"} else None
    if isinstance(value, list) and value:
        found = [_texts(item) if isinstance(item, dict) else None for item in value]
        if all(texts is not None for texts in found):
            return [text for texts in found if texts for text in texts]
    return None


def _plain(value: Any) -> str:
    texts = _texts(value)
    if texts is not None:
        return "\n".join(texts)
    if isinstance(value, dict) and isinstance(value.get("message"), str) and len(value) == 1:
        return str(value["message"])
    return msgspec.json.encode(value).decode()


# -- media -------------------------------------------------------------------------------------------------------------------


def decode_media(fields: EitherCase, kind: str) -> Part:
    """`inlineData` or `fileData` as the part its MIME type says."""
    data = fields.child(kind)
    assert data is not None
    mime = (data.text("mimeType") or "").lower()
    source: Source
    if kind == "inlineData":
        if not mime:
            raise InvalidRequest(f"{data.at('mimeType')}: field required", path=data.at("mimeType"))
        source = Base64(mime, _standard_base64(data))
    else:
        address = data.needed_text("fileUri", allow_empty=False)
        source = FileRef(address) if _GOOGLE_FILE.match(address) else Url(address, mime or None)
    part = media_part(source, mime, raw=fields.value, extras=fields.rest(), title=data.text("displayName"))
    if not isinstance(part, Document):
        data.forget("displayName")  # only documents have titles elsewhere
    return part


def media_part(
    source: Source, mime: str, *, raw: Any = None, extras: dict[str, Any] | None = None, title: str | None = None
) -> Part:
    """The kind of part that a MIME type means; what is not image, sound or film is a document."""
    major, _, minor = mime.partition("/")
    if major == "image":
        return Image(source=source, raw=raw, extras=extras)
    if major == "audio":
        return Audio(source=source, format=_AUDIO_FORMATS.get(minor, minor), raw=raw, extras=extras)
    if major == "video" or (isinstance(source, Url) and re.match(r"https://(www\.)?(youtube\.com|youtu\.be)/", source.url)):
        return Video(source=source, raw=raw, extras=extras)
    return Document(source=source, title=title, raw=raw, extras=extras)


def _standard_base64(data: EitherCase) -> str:
    """Bytes in the alphabet every other dialect uses; the python SDK sends the URL-safe one, without padding at times."""
    text = data.text("data") or ""
    if "-" in text or "_" in text:
        text = text.translate(_TO_STANDARD)
    if len(text) % 4:
        text += "=" * (-len(text) % 4)
    if not _BASE64.fullmatch(text):
        raise InvalidRequest(f"{data.at('data')}: not base64", path=data.at("data"))
    return text


# -- the model's own turns ---------------------------------------------------------------------------------------------------


def _joined(parts: list[Part | _Owed]) -> list[Part]:
    """The model's parts with streamed pieces put together again, and state put back on the thinking that owns it.

    SDKs replay each streamed piece as a part of its own. Only plain pieces are joined: a signature binds to its exact part.
    """
    joined: list[Part] = []
    pieces: list[Text | Thinking] = []
    for entry in parts:
        part = _unowed(entry)
        if isinstance(entry, _Owed):
            _flush(joined, pieces)
            _give_back(joined, entry.state)
            if isinstance(part, Text | Thinking) and not part.text:
                continue
        if isinstance(part, Text | Thinking) and part.signature is None and part.extras is None:
            if pieces and type(pieces[0]) is not type(part):
                _flush(joined, pieces)
            pieces.append(part)
        else:
            _flush(joined, pieces)
            joined.append(part)
    _flush(joined, pieces)
    return joined


def _unowed(entry: Part | _Owed) -> Part:
    return changed(entry.part) if isinstance(entry, _Owed) else entry


def _flush(joined: list[Part], pieces: list[Text | Thinking]) -> None:
    """The pieces so far as one part; the empty last chunk of a stream is none."""
    text = "".join(piece.text for piece in pieces)
    if text:
        joined.append(pieces[0] if len(pieces) == 1 else changed(pieces[0], text=text))
    pieces.clear()


def _give_back(joined: list[Part], owed: ThinkingState) -> None:
    last = joined[-1] if joined else None
    if isinstance(last, Thinking) and last.signature is None and owed.fits(last.text):
        joined[-1] = changed(last, signature=owed.state)
    elif owed.fits(""):
        joined.append(Thinking(signature=owed.state))
