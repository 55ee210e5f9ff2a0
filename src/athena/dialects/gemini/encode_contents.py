"""Turns as Gemini's `contents`.

A turn or part that still has the JSON its Gemini client wrote goes out as that JSON. Everything else is written here: roles
alternate, the first content is the user's, the results of a step stand together, signatures sit on the part they came on and
thoughts are not sent back.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, assert_never

from athena.calls.arguments import arguments_object
from athena.dialects.base import EncodeTarget
from athena.dialects.gemini.decode_contents import NAME, RawContents
from athena.dialects.gemini.signatures import PLACEHOLDER
from athena.dialects.gemini.spelling import EitherCase, spelled
from athena.dialects.losses import Losses
from athena.dialects.recalled import Rewritten
from athena.errors import UnsupportedFeature
from athena.model.parts import (
    Audio,
    Base64,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    InlineText,
    Nested,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.model.request import Request, Turn
from athena.wire.recall import Recall

_PLACEHOLDER_TEXT = "."
_AUDIO_MIMES = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_GOOGLE = ("gs://", "https://generativelanguage.googleapis.com/", "https://www.youtube.com/", "https://youtu.be/")


class ContentsEncoder:
    """One request's conversation. `losses` collects what did not survive."""

    def __init__(self, request: Request, target: EncodeTarget, losses: Losses, recall: Recall | None = None) -> None:
        self._home = request.dialect == NAME
        self._target = target
        self._losses = losses
        self._turns = request.turns
        self._with_ids = target.profile.ids != "none"
        self._without_id = _ids_left_out(request.turns) if self._home else frozenset()
        self._names = {part.id: part.name for turn in request.turns for part in turn.parts if isinstance(part, ToolCall)}
        self._rewritten = Rewritten(recall if not self._home else None, target, losses, NAME)

    def encode(self) -> list[Any]:
        contents: list[Any] = []
        for position, turn in enumerate(self._turns):
            if self._home and turn.raw is not None:
                contents.extend(turn.raw if isinstance(turn.raw, RawContents) else [turn.raw])
                continue
            if turn.name is not None:
                self._losses.hint(f"turns[{position}].name", "messages have no names here")
            path = f"turns[{position}]"
            answered = tuple(self._names.get(part.call_id) for part in turn.parts if isinstance(part, ToolResult))
            parts = self._rewritten.turn(turn, path, partial(self._parts, turn, path), answered)
            if parts:
                self._add(contents, "model" if turn.role == "assistant" else "user", parts, turn)
        if not self._home:
            self._check_ends(contents)
        if self._target.profile.signed_calls:
            sign_calls(contents, home=self._home)
        return contents

    def _add(self, contents: list[Any], role: str, parts: list[Any], turn: Turn) -> None:
        last = contents[-1] if contents else None
        if not self._home and last is not None and last["role"] == role:
            last["parts"].extend(parts)
        else:
            contents.append(_Written(role=role, parts=parts, **((turn.extras or {}) if self._home else {})))

    def _check_ends(self, contents: list[Any]) -> None:
        if not contents or contents[0]["role"] == "model":
            contents.insert(0, {"role": "user", "parts": [{"text": _PLACEHOLDER_TEXT}]})
            self._losses.repair("turns[0]", "the conversation must begin with the user")
        if contents[-1]["role"] == "model" and not self._target.profile.prefill:
            path = f"turns[{len(self._turns) - 1}]"
            raise UnsupportedFeature(f"{path}: this upstream does not continue an answer that was begun", path=path)

    # -- parts ---------------------------------------------------------------------------------------------------------------

    def _parts(self, turn: Turn, path: str) -> list[Any]:
        parts: list[Any] = []
        behind: list[Any] = []
        """What belongs to results but has no room in them: it follows all of them."""
        state: Opaque | None = None
        for index, part in enumerate(turn.parts):
            where = f"{path}.parts[{index}]"
            if self._home and part.raw is not None:
                parts.append(part.raw)
                continue
            if isinstance(part, Thinking):
                state = part.signature or state
                if part.text and not self._home:
                    self._losses.hint(where, "the text of earlier reasoning is not sent to this upstream")
                continue
            if isinstance(part, ToolResult):
                parts.append(self._result(part, where, behind))
                continue
            if behind and not isinstance(part, ToolResult):
                parts.extend(behind)
                behind = []
            if isinstance(part, Text) and part.citations and not self._home:
                self._losses.hint(f"{where}.citations", "history has no citations here")
            written = self._part(part, where)
            if not written and not (isinstance(part, Text) and part.signature is not None):
                continue
            written = written or {"text": ""}
            signature = getattr(part, "signature", None) or (state if isinstance(part, Text | ToolCall) else None)
            if signature is not None:
                written["thoughtSignature"] = signature.payload
                state = None
            if part.extras and self._home:
                written.update(part.extras)
            parts.append(written)
        parts.extend(behind)
        if state is not None and turn.role == "assistant":
            # Nothing to sign came after the thoughts: an empty part carries their signature, as the model sends it itself.
            parts.append({"text": "", "thoughtSignature": state.payload})
        return parts

    def _part(self, part: Part, path: str) -> dict[str, Any]:
        """One part; empty when there is nothing to say."""
        match part:
            case Text() | Refusal():
                return {"text": part.text} if part.text else {}
            case ToolCall():
                call: dict[str, Any] = {"name": part.name, "args": arguments_object(part.arguments)}
                if part.kind == "custom":
                    call["args"] = {"input": part.arguments}
                if self._with_ids and part.id not in self._without_id:
                    call = {"id": part.id, **call}
                return {"functionCall": call}
            case Image() | Document() | Audio() | Video():
                return self._media(part, path)
            case Foreign(dialect="gemini", raw=dict() as own):
                return dict(own)
            case Foreign() | Thinking() | ToolResult() | Citation():
                self._losses.drop(path, f"{type(part).__name__.lower()} parts of another provider have no place here")
                return {}
            case _:
                assert_never(part)

    def _result(self, part: ToolResult, path: str, behind: list[Any]) -> dict[str, Any]:
        name = part.name or self._names.get(part.call_id) or "unknown"
        response: dict[str, Any] = {"name": name}
        if self._with_ids and part.call_id not in self._without_id:
            response = {"id": part.call_id, **response}
        media: list[dict[str, Any]] = []
        texts: list[str] = []
        for index, inner in enumerate(part.parts):
            written = self._part(inner, f"{path}.parts[{index}]")
            if "text" in written:
                texts.append(written["text"])
            elif written:
                media.append(written)
        if self._home and isinstance(part.structured, dict):
            response["response"] = part.structured
        else:
            response["response"] = {"error" if part.is_error else "output": "\n".join(texts)}
        if media and self._target.profile.images_in_results:
            response["parts"] = media
        elif media:
            self._losses.emulate(path, "media of a tool result follow it as user content")
            behind.append({"text": f"[content of the result of {name}, call {part.call_id}]"})
            behind.extend(media)
        result: dict[str, Any] = {"functionResponse": response}
        if part.extras and self._home:
            result.update(part.extras)
        return result

    def _media(self, part: Image | Document | Audio | Video, path: str) -> dict[str, Any]:
        source = part.source
        if isinstance(part, Document) and part.title and not isinstance(source, InlineText) and not self._home:
            self._losses.hint(f"{path}.title", "files have no names here")
        if isinstance(source, Base64):
            mime = source.mime or (audio_mime(part) if isinstance(part, Audio) else "application/octet-stream")
            return {"inlineData": {"mimeType": mime, "data": source.data}}
        if isinstance(source, InlineText):
            title = getattr(part, "title", None)
            return {"text": f"{title}\n{source.text}" if title else source.text}
        if isinstance(source, Nested):
            texts = [inner.text for inner in source.parts if isinstance(inner, Text)]
            if len(texts) != len(source.parts):
                self._losses.drop(path, "a document made of other parts keeps only its text")
            return {"text": "\n".join(texts)} if texts else {}
        if isinstance(source, FileRef):
            if self._home:
                return {"fileData": {"fileUri": source.id}}
            raise UnsupportedFeature(f"{path}: a file stored at another provider cannot be read here", path=path)
        if isinstance(source, Url):
            if not self._home and not source.url.startswith(_GOOGLE):
                raise UnsupportedFeature(
                    f"{path}: this upstream reads files by address only from Google's storage; send the bytes", path=path
                )
            data = {"fileUri": source.url} if source.mime is None else {"mimeType": source.mime, "fileUri": source.url}
            return {"fileData": data}
        if isinstance(part, Audio) and part.transcript:
            return {"text": part.transcript}
        raise UnsupportedFeature(f"{path}: audio kept at another provider cannot be read here", path=path)


def audio_mime(part: Audio) -> str:
    """The MIME type that a format name stands for."""
    return _AUDIO_MIMES.get(part.format or "", f"audio/{part.format or 'wav'}")


def _ids_left_out(turns: Iterable[Turn]) -> frozenset[str]:
    """Calls whose client wrote no id, on the call or on its result: the other half must then have none either."""
    bare: set[str] = set()
    for turn in turns:
        for part in turn.parts:
            if not isinstance(part, ToolCall | ToolResult) or not isinstance(part.raw, dict):
                continue
            key = "functionCall" if isinstance(part, ToolCall) else "functionResponse"
            inner = EitherCase(part.raw).any(key)
            if isinstance(inner, dict) and inner.get("id") is None:
                bare.add(part.id if isinstance(part, ToolCall) else part.call_id)
    return frozenset(bare)


def sign_calls(contents: list[Any], *, home: bool) -> None:
    """Give the first call of each step the placeholder, if it is unsigned.

    The model asks for signatures only since the last user text. Steps before it keep theirs, because what was sent once must be
    sent again: prompt caches know a conversation by its beginning. What a Gemini client wrote and Athena did not change is its
    own business.
    """
    for position, content in enumerate(contents):
        parts = content.get("parts") if isinstance(content, dict) else None
        if isinstance(parts, list) and content.get("role") == "model" and (isinstance(content, _Written) or not home):
            signed = _signed(parts)
            if signed is not None:
                contents[position] = {**content, "parts": signed}


class _Written(dict[str, Any]):
    """A content of ours, as opposed to one that a client wrote."""


def _signed(parts: list[Any]) -> list[Any] | None:
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get(spelled(part, "functionCall")) is not None:
            if part.get(spelled(part, "thoughtSignature")):
                return None
            return [*parts[:index], {**part, "thoughtSignature": PLACEHOLDER}, *parts[index + 1 :]]
    return None
