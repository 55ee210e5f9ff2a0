"""What the answer of one attempt shows about its upstream, while it passes and when it is over."""

from __future__ import annotations

from athena.exchange import Exchange
from athena.model.events import Done, Event, Start, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart, WholePart
from athena.quality import AnswerOutcome, Found, findings
from athena.serving.record import RequestRecord, Said

_LOST = frozenset(("malformed_call", "truncated_call"))
"""Calls in text that could not be used and did not end the answer."""


class AnswerMarks:
    """What of an answer's events matters, beyond its calls."""

    first_byte_s: float | None = None
    began = has_text = has_reasoning = has_parts = False
    finish = ""

    def __init__(self, record: RequestRecord, turn: int, now: float) -> None:
        """The request is sent now. `turn` is that of its route's state. What the record counted before is not this answer's."""
        self.turn = turn
        self.sent_at = now
        self._said = record.details.said = Said()
        self._calls, self._repairs, self._bad = record.calls, record.repairs, dict(record.details.bad_calls)

    def note(self, event: Event) -> None:
        """One event. Text and reasoning need not be told again once there is some."""
        match event:
            case Start():
                self._said.id, self._said.model = event.id, event.model
            case Done():
                self.finish = event.finish.kind
                self._said.finishes += (event.finish.kind,)
            case ThinkingDelta():
                self.has_reasoning = bool(event.text.strip())
            case ToolCallStart():
                self.began = True
            case TextDelta():
                self.has_text = bool(event.text.strip())
            case WholePart():
                self.has_parts = True
            case _:
                pass

    def knows(self, event: Event) -> bool:
        """Would further pieces like this one change nothing here?"""
        if type(event) is ToolCallDelta:
            return True  # what its call brings is noted when that is complete
        return self.has_text if type(event) is TextDelta else self.has_reasoning

    @property
    def has_begun(self) -> bool:
        """Is there anything of the answer that means something?"""
        return self.began or self.has_text or self.has_reasoning or self.has_parts or bool(self.finish)

    def findings(self, exchange: Exchange, record: RequestRecord) -> tuple[Found, ...]:
        """The classes that the whole answer belongs to."""
        if (
            self.has_text
            and exchange.error is None
            and self.finish != "malformed"
            and not exchange.finds_calls
            and record.repairs == self._repairs
            and record.details.bad_calls == self._bad
        ):
            return ()  # nothing below could find anything
        bad = {name: count - self._bad.get(name, 0) for name, count in record.details.bad_calls.items()}
        lost = [note.code for note in exchange.notes if note.code in _LOST]
        error, calls = exchange.error, record.calls - self._calls
        return findings(
            AnswerOutcome(
                calls=calls,
                invalid_json=bad.get("malformed", 0) + lost.count("malformed_call"),
                unknown_names=bad.get("unknown_tool", 0),
                off_schema=bad.get("off_schema", 0),
                repaired=record.repairs - self._repairs,
                cut_calls=bad.get("truncated_call", 0) + lost.count("truncated_call"),
                echoes=exchange.echoes,
                # Calls in the text of a model that was taught to write them there are no leak.
                leaks=tuple(filter(None, exchange.format_found.split("+"))) if exchange.prompted is None else (),
                has_text=self.has_text,
                has_reasoning=self.has_reasoning,
                has_parts=self.has_parts,
                began=self.began or self.has_text or self.has_reasoning or calls > 0,
                finish=self.finish,
                error_kind=error.kind if error is not None else None,
                error_code=error.code if error is not None else "",
            )
        )
