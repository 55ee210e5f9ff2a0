"""Events folded into a whole answer, so that streamed and whole answers share every line of code before this one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from athena.model.answer import Answer, Choice
from athena.model.events import (
    Done,
    Error,
    Event,
    Extra,
    Finish,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallComplete,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    WholePart,
)  # fmt: skip
from athena.model.parts import Citation, Opaque, Part, Refusal, Text, Thinking, ToolCall


class _Open:
    """A part that is still growing, or a place kept for a call that has begun."""

    __slots__ = ("citations", "kind", "pieces", "signature", "summary", "whole")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature: Opaque | None = None
        self.summary = False
        self.citations: list[Citation] = []
        self.whole: Part | None = None

    def part(self) -> Part | None:
        if self.kind == "whole":
            return self.whole
        text = "".join(self.pieces)
        if self.kind == "text":
            if not text and not self.signature and not self.citations:
                return None
            return Text(text=text, citations=tuple(self.citations), signature=self.signature)
        if self.kind == "refusal":
            return Refusal(text=text) if text else None
        if not text and not self.signature:
            return None
        return Thinking(text=text, signature=self.signature, summary=self.summary)


class _BuiltChoice:
    __slots__ = ("calls", "delta_extras", "extras", "finish", "parts")

    def __init__(self) -> None:
        self.parts: list[_Open] = []
        self.calls: dict[int, _Open] = {}
        self.finish: Finish | None = None
        self.extras: dict[str, Any] = {}
        self.delta_extras: dict[str, Any] = {}


class AnswerBuilder:
    """Folds events as they come: feed them in any batches, ask for the answer at any time.

    Examples:
        >>> builder = AnswerBuilder()
        >>> builder.feed([TextDelta("Hel")])
        >>> builder.feed([TextDelta("lo.")])
        >>> builder.answer().text
        'Hello.'
    """

    def __init__(self) -> None:
        self._start = Start()
        self._choices: dict[int, _BuiltChoice] = {}
        self._usage: Usage | None = None
        self._extras: dict[str, Any] = {}
        self._error: Error | None = None
        self._notes: list[Error] = []

    def feed(self, events: Iterable[Event]) -> None:
        """Add `events`, in the order in which they came."""
        for event in events:
            if isinstance(event, TextDelta):
                self._text(event)
            elif isinstance(event, ThinkingDelta):
                self._thinking(event)
            elif isinstance(event, ToolCallStart):
                place = _Open("whole")
                choice = self._choice(event.choice)
                choice.parts.append(place)
                choice.calls[event.call] = place
            elif isinstance(event, ToolCallComplete):
                self._complete(event)
            elif isinstance(event, WholePart):
                self._whole(event)
            elif isinstance(event, Start):
                self._start = event
                self._usage = self._usage or event.usage
            elif isinstance(event, Done):
                self._choice(event.choice).finish = event.finish
                self._usage = event.usage or self._usage
            elif isinstance(event, Error):
                if event.fatal:
                    self._error = event
                else:
                    self._notes.append(event)
            elif isinstance(event, Extra):
                self._extra(event)

    def answer(self) -> Answer:
        """What the events so far add up to. Calls that never completed are not in it."""
        extras = {**(self._start.extras or {}), **self._extras}
        return Answer(
            id=self._start.id,
            model=self._start.model,
            created=self._start.created,
            choices=tuple(
                Choice(
                    index=index,
                    parts=tuple(part for place in choice.parts if (part := place.part()) is not None),
                    finish=choice.finish,
                    extras=choice.extras or None,
                    delta_extras=choice.delta_extras or None,
                )
                for index, choice in sorted(self._choices.items())
            ),
            usage=self._usage,
            extras=extras or None,
            error=self._error,
            notes=tuple(self._notes),
        )

    def _choice(self, index: int) -> _BuiltChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _BuiltChoice()
        return choice

    def _growing(self, choice: _BuiltChoice, kind: str) -> _Open:
        if choice.parts and choice.parts[-1].kind == kind:
            return choice.parts[-1]
        place = _Open(kind)
        choice.parts.append(place)
        return place

    def _text(self, event: TextDelta) -> None:
        if not event.text and event.signature is None:
            return
        place = self._growing(self._choice(event.choice), "refusal" if event.refusal else "text")
        place.pieces.append(event.text)
        if event.signature is not None:
            place.signature = event.signature

    def _thinking(self, event: ThinkingDelta) -> None:
        if not event.text and event.signature is None:
            return
        choice = self._choice(event.choice)
        last = choice.parts[-1] if choice.parts else None
        redacted = event.signature is not None and event.signature.kind == "redacted"
        if last is None or last.kind != "thinking" or last.signature is not None or redacted:
            last = _Open("thinking")
            choice.parts.append(last)
        last.pieces.append(event.text)
        last.summary = last.summary or event.summary
        last.signature = event.signature

    def _complete(self, event: ToolCallComplete) -> None:
        choice = self._choice(event.choice)
        place = choice.calls.get(event.call)
        if place is None:
            place = _Open("whole")
            choice.parts.append(place)
            choice.calls[event.call] = place
        place.whole = _called(event)

    def _whole(self, event: WholePart) -> None:
        choice = self._choice(event.choice)
        if isinstance(event.part, Citation) and choice.parts and choice.parts[-1].kind == "text":
            choice.parts[-1].citations.append(event.part)
            return
        place = _Open("whole")
        place.whole = event.part
        choice.parts.append(place)

    def _extra(self, event: Extra) -> None:
        if event.choice is None:
            self._extras.update(event.fields)
            return
        choice = self._choice(event.choice)
        (choice.delta_extras if event.delta else choice.extras).update(event.fields)


def _called(event: ToolCallComplete) -> ToolCall:
    return ToolCall(
        id=event.id, name=event.name, arguments=event.arguments, kind=event.kind, namespace=event.namespace,
        item_id=event.item_id, signature=event.signature,
    )  # fmt: skip


def folded_plain(events: Sequence[Event]) -> Answer | None:
    """The answer that these events are if they are all of one that is a text, calls, or a text and then calls; None for any
    others."""
    if len(events) < 3:
        return None
    start, done = events[0], events[-1]
    if type(start) is not Start or type(done) is not Done or not done.last:
        return None
    parts: list[Part] = []
    begun = -1
    for event in events[1:-1]:
        if isinstance(event, TextDelta):
            if parts or begun >= 0 or not event.text or event.refusal or event.choice != done.choice:
                return None
            parts.append(Text(text=event.text, signature=event.signature))
        elif isinstance(event, ToolCallDelta):
            continue
        elif isinstance(event, ToolCallStart):
            begun = event.call
        elif isinstance(event, ToolCallComplete):
            if event.call != begun or event.choice != done.choice:
                return None
            parts.append(_called(event))
        else:
            return None
    choice = Choice(index=done.choice, parts=tuple(parts), finish=done.finish)
    usage = done.usage or start.usage
    return Answer(
        id=start.id, model=start.model, created=start.created, choices=(choice,), usage=usage, extras=start.extras or None
    )


def fold(events: Iterable[Event]) -> Answer:
    """All `events` of one answer as the answer they add up to. Calls that never completed are not in it.

    Examples:
        >>> answer = fold([TextDelta("Hel"), TextDelta("lo."), Done(Finish("stop"))])
        >>> answer.text, answer.calls, answer.finish.kind
        ('Hello.', (), 'stop')
    """
    builder = AnswerBuilder()
    builder.feed(events)
    return builder.answer()


def unfold(answer: Answer) -> list[Event]:
    """An answer as the events it could have come in: the reverse of `fold`, but for where the pieces were cut."""
    out: list[Event] = [
        Start(id=answer.id, model=answer.model, created=answer.created, usage=answer.usage, extras=answer.extras)
    ]
    number = 0
    for choice in answer.choices:
        for part in choice.parts:
            if isinstance(part, ToolCall):
                _unfold_call(part, number, choice.index, out)
                number += 1
            elif isinstance(part, Text):
                out.append(TextDelta(part.text, choice.index, signature=part.signature))
                out += [WholePart(citation, choice.index) for citation in part.citations]
            elif isinstance(part, Refusal):
                out.append(TextDelta(part.text, choice.index, refusal=True))
            elif isinstance(part, Thinking):
                out.append(ThinkingDelta(part.text, choice.index, part.signature, part.summary))
            else:
                out.append(WholePart(part, choice.index))
        if choice.extras:
            out.append(Extra(choice.extras, choice.index))
        if choice.delta_extras:
            out.append(Extra(choice.delta_extras, choice.index, delta=True))
    out += answer.notes
    if answer.error is not None:
        return [*out, answer.error]
    ended = [choice for choice in answer.choices if choice.finish is not None]
    for choice in ended:
        assert choice.finish is not None
        last = choice is ended[-1]
        out.append(Done(choice.finish, choice.index, answer.usage if last else None, last))
    return out


def _unfold_call(part: ToolCall, number: int, choice: int, out: list[Event]) -> None:
    out.append(ToolCallStart(
        number, part.id, part.name, choice, part.kind, part.namespace, part.signature, part.item_id
    ))  # fmt: skip
    out.append(ToolCallDelta(number, part.arguments, choice))
    out.append(ToolCallComplete(
        number, part.id, part.name, part.arguments, choice, part.kind, part.namespace, part.signature, part.item_id
    ))  # fmt: skip
