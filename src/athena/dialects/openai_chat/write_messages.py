"""Turns to Chat messages.

Every result becomes a tool message, first and in order; what a tool message cannot hold (images, files) follows in a user
message that names the call. A turn that still has its own raw message goes out as that message.

Wire facts: docs/reference/wire-facts.md#rules-of-translation.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, assert_never

import msgspec

from athena.calls.arguments import arguments_text
from athena.dialects.openai_chat.details import call_extra_content, state_entries, text_entry
from athena.dialects.openai_chat.media import url_of_source
from athena.dialects.openai_chat.vocabulary import NAME, REASONING_FIELDS
from athena.dialects.openai_chat.write_controls import ControlWriter, mark_fields
from athena.dialects.recalled import Rewritten
from athena.errors import UnsupportedFeature
from athena.model.parts import (
    Audio,
    Base64,
    CacheMark,
    Citation,
    Document,
    FileRef,
    Foreign,
    Image,
    InlineText,
    Nested,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)  # fmt: skip
from athena.model.request import Turn
from athena.wire.recall import Recall

ERROR_MARK = "[tool error] "
UNSIGNED_CALL = "skip_thought_signature_validator"
"""Gemini takes this in place of a signature it never gave, at a cost in quality."""
EMPTY_TURN = "(empty)"
"""Said by a user whose message holds nothing: a message without content is refused or answered at random."""
BETWEEN = "."
"""Said by the assistant where an upstream refuses a user message right after results."""

WrittenMessage = dict[str, Any]
_about_result = attrgetter("name", "is_error", "extras")
_PLAIN_RESULT = _about_result(ToolResult(call_id=""))


class ChatMessageWriter:
    """Writes the messages of one request. `home`: the client spoke this dialect too."""

    def __init__(self, writer: ControlWriter, *, home: bool, recall: Recall | None = None) -> None:
        self._writer = writer
        self._profile = writer.profile
        self._called: dict[str, str] = {}
        """Names of the calls so far, by id."""
        self._home = home
        # Where results are named after their calls, what becomes of a turn depends on others. At home it stays what it is.
        pure = self._is_pure = not home and writer.profile.result_role != "function"
        self._rewritten = Rewritten(recall, writer.target, writer, NAME) if recall is not None and pure else None

    def system(self, parts: tuple[Part, ...]) -> WrittenMessage | None:
        """One leading message; blocks stay apart, in order, with their cache marks."""
        if not parts:
            return None
        role = "developer" if self._profile.developer_role else "system"
        texts = [part for part in parts if isinstance(part, Text)]
        if len(texts) < len(parts):
            self._writer.drop("system", "only text can stand in instructions")
        return {"role": role, "content": self._text_content(texts, "\n\n", "system")}

    def turns(self, turns: tuple[Turn, ...]) -> list[WrittenMessage]:
        """All messages after the leading instructions."""
        rewritten = self._rewritten
        if rewritten is not None and rewritten.has_runs:
            return self._arranged(self._run(rewritten, turns))
        messages: list[WrittenMessage] = []
        thinks = False
        for position, turn in enumerate(turns):
            path = f"messages[{position}]"
            if turn.role == "assistant":
                # From the first turn that thinks on: what was sent of the turns before it must not change.
                thinks = thinks or _thinks(turn)
                if rewritten is None:
                    messages += self._assistant(turn, path, thinks)
                else:
                    messages += rewritten.turn(turn, path, partial(self._assistant, turn, path, thinks), thinks)
            elif turn.role == "system":
                if turn.parts or self._home:
                    messages.append(self._system_turn(turn, path))
            elif rewritten is None:
                messages += self._user(turn, path)
            else:
                messages += rewritten.turn(turn, path, partial(self._user, turn, path))
        return self._arranged(messages)

    def _run(self, rewritten: Rewritten, turns: tuple[Turn, ...]) -> list[WrittenMessage]:
        """The same, with what turns became in the last request of the conversation."""
        run = rewritten.run(turns)
        found = self._writer.found
        for position, turn in run.missing():
            path, before = f"messages[{position}]", len(found)
            thinks = run.state
            messages: list[WrittenMessage] = []
            if turn.role == "assistant":
                thinks = thinks or _thinks(turn)
                messages = self._assistant(turn, path, thinks)
            elif turn.role != "system":
                messages = self._user(turn, path)
            elif turn.parts:
                messages = [self._system_turn(turn, path)]
            run.add(messages, bool(thinks), found[before:])
        rewritten.keep(run)
        return list(run.values)

    # -- assistant ---------------------------------------------------------------------------------------------------------

    def _assistant(self, turn: Turn, path: str, thinks: bool) -> list[WrittenMessage]:
        """One message; none where it would be empty and the upstream refuses that."""
        if self._home and turn.raw is not None:
            return [self._with_reasoning(turn, turn.raw)]
        plain = self._plain_assistant(turn) if self._is_pure and not thinks else None
        if plain is not None:
            return [plain]
        message: WrittenMessage = {"role": "assistant", "content": None}
        texts: list[Text] = []
        calls: list[WrittenMessage] = []
        refusals: list[str] = []
        for part in turn.parts:
            match part:
                case Text():
                    texts.append(part)
                    if part.citations and not self._home:
                        self._writer.hint(f"{path}.citations", "history has no citations here")
                case Refusal():
                    refusals.append(part.text)
                case ToolCall():
                    self._called[part.id] = part.name
                    calls.append(self._call(part, first=not calls))
                case Audio():
                    self._spoken(part, message, texts, path)
                case Foreign():
                    self._foreign(part, path)
                case Thinking():
                    pass  # written last, where the upstream takes it
                case Image() | Document() | Video() | ToolResult() | Citation():
                    self._writer.drop(path, f"{type(part).__name__.lower()} in an assistant message")
                case _:
                    assert_never(part)
        if refusals and not self._home:
            texts.extend(Text(text=text) for text in refusals)
        elif refusals:
            message["refusal"] = "".join(refusals)
        message["content"] = self._assistant_text(texts, bool(calls or refusals))
        if calls:
            message["tool_calls"] = calls
        if turn.name is not None:
            message["name"] = turn.name
        self._put_extras(message, turn.extras, path)
        self._put_thinking(message, turn, path, thinks)
        return [message] if calls or message["content"] != "" else self._unless_empty(message, turn, path)

    def _plain_assistant(self, turn: Turn) -> WrittenMessage | None:
        """The message of a turn of texts and calls of functions with nothing about them to be told; None for any other turn."""
        profile = self._profile
        if turn.name is not None or turn.extras or profile.signed_calls or profile.reasoning_filler is not None:
            return None
        texts: list[str] = []
        calls: list[WrittenMessage] = []
        for part in turn.parts:
            if type(part) is Text:
                if part.citations or (part.cache is not None and self._profile.cache_marks != "none"):
                    return None
                texts.append(part.text)
            elif type(part) is ToolCall and part.kind == "function" and part.signature is None:
                function = {"name": part.name, "arguments": part.arguments}
                calls.append({"id": part.id, "type": "function", "function": function})
            else:
                return None
        content = "\n".join(filter(None, texts))
        if calls:
            return {"role": "assistant", "content": content or None, "tool_calls": calls}
        return {"role": "assistant", "content": content} if content else None

    def _spoken(self, part: Audio, message: WrittenMessage, texts: list[Text], path: str) -> None:
        """Sound of an earlier answer: by its id where it was made, else what was said."""
        if part.id is not None and self._home:
            message["audio"] = {"id": part.id}
        elif part.transcript:
            texts.append(Text(text=part.transcript))
            self._writer.emulate(path, "audio of an earlier answer is sent as its transcript")
        else:
            self._writer.drop(path, "audio of an earlier answer cannot be sent")

    def _unless_empty(self, message: WrittenMessage, turn: Turn, path: str) -> list[WrittenMessage]:
        """A message without text and calls: only where the client itself wrote it so, or for the reasoning it carries."""
        if self._profile.empty_assistant and (self._home or not message.keys() <= {"role", "content", "name"}):
            return [message]
        if turn.parts:
            self._writer.repair(path, "the turn has nothing that this upstream takes")
        return []

    def _assistant_text(self, texts: list[Text], bare: bool) -> Any:
        found = [part for part in texts if part.text]
        if not found:
            return None if bare else ""
        if self._home and any(part.raw is not None for part in found):
            return [self._text_part(part) for part in found]
        if any(part.cache is not None for part in found) and self._profile.cache_marks != "none":
            return [self._text_part(part) for part in found]
        pieces = [found[0].text]
        for before, part in pairwise(found):
            # Blocks that carry citations are one text cut at its references; other blocks are texts of their own.
            pieces.append("" if before.citations or part.citations else "\n")
            pieces.append(part.text)
        return "".join(pieces)

    def _call(self, part: ToolCall, *, first: bool) -> WrittenMessage:
        if self._home and part.raw is not None:
            raw: WrittenMessage = part.raw
            return raw
        if part.kind == "custom":
            entry: WrittenMessage = {"id": part.id, "type": "custom", "custom": {"name": part.name, "input": part.arguments}}
        else:
            arguments = arguments_text(part.arguments)
            entry = {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments}}
        if part.signature is not None and self._profile.reasoning_replay != "details":
            entry["extra_content"] = call_extra_content(part.signature)
        elif first and self._profile.signed_calls and part.signature is None:
            entry["extra_content"] = {"google": {"thought_signature": UNSIGNED_CALL}}
        if part.extras and self._home:
            entry.update(part.extras)
        return entry

    # -- thinking in history -------------------------------------------------------------------------------------------------

    def _with_reasoning(self, turn: Turn, raw: WrittenMessage) -> WrittenMessage:
        """A client's own message: as it is, with the reasoning this upstream demands."""
        if not self._must_think(turn) or any(isinstance(raw.get(key), str | list) for key in REASONING_FIELDS):
            return raw
        filler = self._profile.reasoning_filler
        if filler is None or self._profile.reasoning_replay == "chunks":
            return raw
        return {**raw, self._profile.reasoning_field: filler}

    def _must_think(self, turn: Turn) -> bool:
        replay = self._profile.reasoning_replay
        if replay == "never":
            return False
        return replay != "calls" or any(isinstance(part, ToolCall) for part in turn.parts)

    def _put_thinking(self, message: WrittenMessage, turn: Turn, path: str, thinks: bool) -> None:
        thoughts = [part for part in turn.parts if isinstance(part, Thinking)]
        text = "\n".join(part.text for part in thoughts if part.text)
        profile = self._profile
        if profile.reasoning_replay == "never" and self._home and thoughts:
            # The client's own words to an unknown upstream: what it refuses stands in drop_fields.
            self._put_own_thinking(message, turn, thoughts, text)
        elif not self._must_think(turn):
            if text:
                self._writer.hint(path, "reasoning of earlier turns is not sent to this upstream")
        elif profile.reasoning_replay == "details":
            self._put_details(message, turn, thoughts, text)
        elif profile.reasoning_replay == "chunks":
            if text:
                self._put_chunk(message, text)
        elif text:
            message[profile.reasoning_field] = text
        elif profile.reasoning_filler is not None:
            message[profile.reasoning_field] = profile.reasoning_filler
        elif thinks and profile.reasoning_replay == "always":
            message[profile.reasoning_field] = ""

    def _put_own_thinking(self, message: WrittenMessage, turn: Turn, thoughts: list[Thinking], text: str) -> None:
        if any(part.signature is not None or part.raw is not None for part in thoughts):
            self._put_details(message, turn, thoughts, text)
        elif text:
            message[self._profile.reasoning_field] = text

    def _put_details(self, message: WrittenMessage, turn: Turn, thoughts: list[Thinking], text: str) -> None:
        """OpenRouter's array, verbatim where the client kept it; a plain string where nothing opaque is in it."""
        details: list[WrittenMessage] = []
        for part in thoughts:
            if self._home and isinstance(part.raw, dict):
                details.append(part.raw)
            elif part.signature is not None:
                details.extend(state_entries(part.signature, part.text, summary=part.summary, first=len(details)))
            elif part.text:
                details.append(text_entry(part.text, summary=part.summary, index=len(details)))
        states = [part for part in turn.parts if isinstance(part, ToolCall) and part.signature is not None]
        for call in states:
            assert call.signature is not None
            state = msgspec.structs.replace(call.signature, item_id=call.id)
            details.extend(state_entries(state, "", summary=False, first=len(details)))
        opaque = bool(states) or any(part.signature is not None or isinstance(part.raw, dict) for part in thoughts)
        if details and opaque:
            message["reasoning_details"] = details
        elif text:
            message[self._profile.reasoning_field] = text
        elif self._profile.reasoning_filler is not None:
            message[self._profile.reasoning_field] = self._profile.reasoning_filler

    def _put_chunk(self, message: WrittenMessage, text: str) -> None:
        chunk = {"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": True}
        content = message["content"]
        rest = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        message["content"] = [chunk, *rest]

    # -- user and results ----------------------------------------------------------------------------------------------------

    def _system_turn(self, turn: Turn, path: str) -> WrittenMessage:
        if self._home and turn.raw is not None:
            raw: WrittenMessage = turn.raw
            return raw
        role = "developer" if self._profile.developer_role or (self._home and turn.hint == "developer") else "system"
        texts = [part for part in turn.parts if isinstance(part, Text)]
        message: WrittenMessage = {"role": role, "content": self._text_content(texts, "\n\n", path)}
        self._put_extras(message, turn.extras, path)
        return message

    def _user(self, turn: Turn, path: str) -> list[WrittenMessage]:
        if self._home and turn.raw is not None:
            return [self._named(turn, turn.raw)]
        if len(turn.parts) == 1 and not self._home and turn.name is None and not turn.extras:
            plain = self._plain(turn.parts[0])
            if plain is not None:
                return [plain]
        messages: list[WrittenMessage] = []
        others: list[Part] = []
        behind: list[Part] = []
        for part in turn.parts:
            if isinstance(part, ToolResult):
                plain = self._plain(part) if not self._home else None
                messages.append(plain if plain is not None else self._result(part, path, behind))
            else:
                others.append(part)
        rest = self._content([*behind, *others], path) if behind or others else None
        if rest or (rest is not None and self._home):
            message: WrittenMessage = {"role": "user", "content": rest}
            if turn.name is not None:
                message["name"] = turn.name
            self._put_extras(message, turn.extras, path)
            messages.append(message)
        elif not messages:
            messages.append({"role": "user", "content": "" if self._home else EMPTY_TURN})
        return messages

    def _plain(self, part: Part) -> WrittenMessage | None:
        """The message of a part that is one text, or a result that is one, with nothing about it to be told: the most common
        messages of agents. None for any other part, and for those of upstreams that want results in another way."""
        if type(part) is Text:
            is_plain = part.text and (part.cache is None or self._profile.cache_marks == "none")
            return {"role": "user", "content": part.text} if is_plain else None
        if type(part) is not ToolResult or len(part.parts) != 1 or _about_result(part) != _PLAIN_RESULT or not self._is_pure:
            return None
        told = part.parts[0]
        if type(told) is not Text:
            return None
        if (part.cache is not None or told.cache is not None) and self._profile.cache_marks != "none":
            return None
        return {"role": "tool", "tool_call_id": part.call_id, "content": told.text}

    def _named(self, turn: Turn, raw: WrittenMessage) -> WrittenMessage:
        """A client's own tool message, with the tool's name where the upstream wants it."""
        part = turn.parts[0] if len(turn.parts) == 1 else None
        if not self._profile.name_in_results or not isinstance(part, ToolResult) or not part.name or raw.get("name"):
            return raw
        return {**raw, "name": part.name}

    def _result(self, part: ToolResult, path: str, behind: list[Part]) -> WrittenMessage:
        if self._home and part.raw is not None:
            raw: WrittenMessage = part.raw
            return raw
        shown: list[Part] = []
        for inner in part.parts:
            match inner:
                case Text():
                    shown.append(inner)
                case Refusal():
                    shown.append(Text(text=inner.text))
                case Document(source=InlineText() as source):
                    shown.append(Text(text=_titled(inner.title, source.text)))
                case Image() if self._profile.images_in_results:
                    shown.append(inner)
                case Image() | Document() | Audio() | Video():
                    kind = type(inner).__name__.lower()
                    shown.append(Text(text=f"[{kind}: see the next message]"))
                    behind += [Text(text=f"[{kind} from tool call {part.call_id}]"), inner]
                    self._writer.emulate(path, f"{kind} in a tool result follows in a user message")
                case Foreign():
                    self._foreign(inner, path)
                case Thinking() | ToolCall() | ToolResult() | Citation():
                    self._writer.drop(path, f"{type(inner).__name__.lower()} in a tool result")
                case _:
                    assert_never(inner)
        if not shown and part.structured is not None:
            shown.append(Text(text=msgspec.json.encode(part.structured).decode()))
        content = self._result_content(part, shown, path)
        if self._profile.result_role == "function":
            return {"role": "function", "name": part.name or self._called.get(part.call_id, ""), "content": content}
        message: WrittenMessage = {"role": "tool", "tool_call_id": part.call_id, "content": content}
        if part.name and (self._profile.name_in_results or self._home):
            message["name"] = part.name
        self._put_extras(message, part.extras, path)
        return message

    def _result_content(self, part: ToolResult, shown: list[Part], path: str) -> Any:
        mark = ERROR_MARK if part.is_error else ""
        if part.is_error:
            self._writer.emulate(path, "is_error is told by a prefix of the text")
        marked = part.cache is not None or any(isinstance(inner, Text) and inner.cache is not None for inner in shown)
        if any(not isinstance(inner, Text) for inner in shown) or (marked and self._profile.cache_marks != "none"):
            items = [self._part(inner, path) for inner in shown]
            if mark:
                items.insert(0, {"type": "text", "text": mark.strip()})
            if part.cache is not None and items:
                items[-1] = {**items[-1], **mark_fields(part.cache.ttl_seconds, self._profile)}
            return items
        return mark + "\n".join(inner.text for inner in shown if isinstance(inner, Text))

    # -- content -----------------------------------------------------------------------------------------------------------

    def _content(self, parts: list[Part], path: str) -> Any:
        """A string for one plain text, else a list of parts."""
        plain_texts = self._plain_texts(parts) if not self._home else None
        if plain_texts is not None:
            return plain_texts
        flat = [inner for part in parts for inner in _unnested(part)]
        kept = [part for part in flat if not isinstance(part, Text) or part.text or self._home]
        plain = [part for part in kept if isinstance(part, Text)]
        if len(plain) == len(kept) and (len(plain) <= 1 or self._profile.text_content):
            return self._text_content(plain, "\n\n", path)
        items = [item for part in kept if (item := self._part(part, path)) is not None]
        if self._profile.text_content and all(item.get("type") == "text" for item in items):
            return "\n\n".join(item["text"] for item in items)
        return items or ""

    def _plain_texts(self, parts: list[Part]) -> Any:
        """The same of texts that carry no mark; None where there is anything else."""
        texts = [
            part.text for part in parts if type(part) is Text and (part.cache is None or self._profile.cache_marks == "none")
        ]
        if len(texts) < len(parts):
            return None
        told = list(filter(None, texts))
        if len(told) <= 1 or self._profile.text_content:
            return "\n\n".join(told)
        return [{"type": "text", "text": text} for text in told]

    def _text_content(self, texts: list[Text], separator: str, path: str) -> Any:
        if len(texts) == 1 and texts[0].cache is None and not self._home:
            return texts[0].text  # what is joined below, of the most usual texts
        marked = self._profile.cache_marks != "none" and any(part.cache is not None for part in texts)
        if self._profile.text_content or (len(texts) <= 1 and not marked and not (self._home and texts and texts[0].raw)):
            return separator.join(part.text for part in texts)
        return [self._text_part(part) for part in texts]

    def _text_part(self, part: Text) -> WrittenMessage:
        if self._home and part.raw is not None:
            raw: WrittenMessage = part.raw
            return raw
        item: WrittenMessage = {"type": "text", "text": part.text, **self._mark(part.cache)}
        if self._home and part.extras:
            item.update(part.extras)
        return item

    def _mark(self, mark: CacheMark | None) -> WrittenMessage:
        return {} if mark is None else mark_fields(mark.ttl_seconds, self._profile)

    def _part(self, part: Part, path: str) -> Any:
        if self._home and part.raw is not None:
            return part.raw
        item = self._encoded(part, path)
        if item is not None and self._home and part.extras:
            item.update(part.extras)
        return item

    def _encoded(self, part: Part, path: str) -> WrittenMessage | None:
        match part:
            case Text():
                return self._text_part(part)
            case Refusal():
                return {"type": "text", "text": part.text}
            case Image(source=Base64() | Url()):
                return self._image(part, path)
            case Document(source=InlineText()):
                assert isinstance(part.source, InlineText)
                return {"type": "text", "text": _titled(part.title, part.source.text), **self._mark(part.cache)}
            case Document(source=Base64()):
                return self._file(part)
            case Audio(source=Base64()):
                assert isinstance(part.source, Base64)
                form = part.format or part.source.mime.rpartition("/")[2].replace("mpeg", "mp3").removeprefix("x-")
                return {"type": "input_audio", "input_audio": {"data": part.source.data, "format": form}}
            case Video(source=Base64() | Url()):
                if not self._profile.video:
                    raise UnsupportedFeature(f"{path}: this upstream takes no video", path=path)
                assert isinstance(part.source, Base64 | Url)
                return {"type": "video_url", "video_url": {"url": url_of_source(part.source)}}
            case Foreign():
                self._foreign(part, path)
                return None
            case Image() | Document() | Audio() | Video():
                kind = type(part).__name__.lower()
                stored = isinstance(part.source, FileRef)
                why = (
                    "a file stored at another provider cannot be sent" if stored else f"this {kind} has no form in this dialect"
                )
                raise UnsupportedFeature(f"{path}: {why}", path=path)
            case Citation() | Thinking():
                self._writer.hint(path, f"{type(part).__name__.lower()} in a user message")
                return None
            case ToolCall() | ToolResult():
                raise UnsupportedFeature(f"{path}: {type(part).__name__} has no place in a user message", path=path)
            case _:
                assert_never(part)

    def _image(self, part: Image, path: str) -> WrittenMessage:
        assert isinstance(part.source, Base64 | Url)
        if isinstance(part.source, Url) and not self._profile.image_urls:
            raise UnsupportedFeature(f"{path}: this upstream takes images as base64 only", path=path)
        inner: WrittenMessage = {"url": url_of_source(part.source)}
        if part.detail is not None:
            inner["detail"] = part.detail
        return {"type": "image_url", "image_url": inner, **self._mark(part.cache)}

    def _file(self, part: Document) -> WrittenMessage:
        assert isinstance(part.source, Base64)
        suffix = part.source.mime.rpartition("/")[2]
        name = part.title or f"document.{suffix if suffix.isalnum() else 'bin'}"
        inner = {"filename": name, "file_data": url_of_source(part.source)}
        return {"type": "file", "file": inner, **self._mark(part.cache)}

    def _foreign(self, part: Foreign, path: str) -> None:
        if part.kind.startswith("compaction"):
            raise UnsupportedFeature(f"{path}: compacted history can be read only by its own provider", path=path)
        self._writer.drop(path, f"{part.kind} means something only to {part.dialect}")

    def _put_extras(self, message: WrittenMessage, extras: dict[str, Any] | None, path: str) -> None:
        for key, value in (extras or {}).items():
            if self._home:
                message[key] = value
            else:
                self._writer.hint(f"{path}.{key}", "unknown to this upstream")

    # -- the whole list ------------------------------------------------------------------------------------------------------

    def _arranged(self, messages: list[WrittenMessage]) -> list[WrittenMessage]:
        profile = self._profile
        if profile.text_content:
            messages = [_as_string(message) for message in messages]
        if profile.merge_turns:
            messages = _merged(messages)
        if not profile.user_after_results:
            spread: list[WrittenMessage] = []
            for message in messages:
                if spread and spread[-1].get("role") == "tool" and message.get("role") == "user":
                    spread.append({"role": "assistant", "content": BETWEEN})
                spread.append(message)
            messages = spread
        return messages


def _thinks(turn: Turn) -> bool:
    """Is there readable reasoning?"""
    return Thinking in map(type, turn.parts) and any(isinstance(part, Thinking) and part.text for part in turn.parts)


def _titled(title: str | None, text: str) -> str:
    return f"{title}\n\n{text}" if title else text


def _unnested(part: Part) -> list[Part]:
    """The parts of a document made of parts, after its title."""
    if not isinstance(part, Document) or not isinstance(part.source, Nested):
        return [part]
    inner = [deeper for child in part.source.parts for deeper in _unnested(child)]
    return [Text(text=part.title), *inner] if part.title else inner


def _as_string(message: WrittenMessage) -> WrittenMessage:
    """A message whose content is text only, with the content as one string."""
    content = message.get("content")
    if not isinstance(content, list) or not all(isinstance(item, dict) and item.get("type") == "text" for item in content):
        return message
    return {**message, "content": "\n\n".join(str(item.get("text", "")) for item in content)}


def _merged(messages: list[WrittenMessage]) -> list[WrittenMessage]:
    """Messages of one role in a row as one; results and calls stay apart."""
    merged: list[WrittenMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and last.get("role") == message.get("role") == "user":
            merged[-1] = {**last, "content": _joined(last.get("content"), message.get("content"))}
        else:
            merged.append(message)
    return merged


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_items(first), *_items(second)]


def _items(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []
