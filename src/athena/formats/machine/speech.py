"""What is said: text and reasoning, and the white space beside calls and reasoning that belongs to neither.

Behind a call, reasoning or the end of a turn white space is separation until words follow. Delimiters of reasoning and of turns
count outside code; whether a piece is shown as reasoning is decided here and nowhere else.
"""

from __future__ import annotations

from typing import Literal

from athena.formats.machine.code_spans import CodeSpans
from athena.formats.machine.policies import Policies
from athena.formats.machine.recognizer import Meaning, Recognizer
from athena.formats.machine.writer import EventBuffer

Channel = Literal["text", "reasoning"]

_NOTHING, _AFTER_CALL, _AFTER_TURN, _AFTER_THINKING = range(4)


class Speech:
    """The words of one parser, in the order in which they are said."""

    __slots__ = (
        "_channel", "_has_starters", "_mentioned", "_mode", "_output", "_policies", "_recognizer", "_remains",
        "_shown_as_thinking", "_stray_closer",
        "_tail", "_trim_newline", "begins", "spans", "table", "thinking", "visible",
    )  # fmt: skip

    def __init__(
        self,
        recognizer: Recognizer,
        output: EventBuffer,
        policies: Policies,
        *,
        channel: Channel,
        starts_in_thinking: bool,
        spans: CodeSpans,
        visible: bool,
    ) -> None:
        """`spans` followed what was said before this object was made; `visible`: words were among it."""
        self._recognizer = recognizer
        self._output = output
        self._policies = policies
        self._channel = channel
        self._has_starters = bool(recognizer.starters)
        self._mode = _NOTHING
        self._tail: list[str] = []
        """What is said only if words follow it."""
        self._trim_newline = False
        self._stray_closer = False
        self._remains = False
        """Were tokens said that words followed? Then those behind them are the remains of a call, not left over."""
        self._mentioned = 0
        """Delimiters that open reasoning and were words: as many that close it are words too."""
        self.spans = spans
        """Of what was said, the same object throughout."""
        self._set_thinking(channel == "reasoning" or starts_in_thinking)
        self.visible = visible

    def _set_thinking(self, thinking: bool) -> None:
        self.thinking = thinking
        self.table = self._recognizer.reasoning if thinking else self._recognizer.text
        """The markers that count now."""
        self._shown_as_thinking = thinking and (self._policies.thinking == "split" or self._channel == "reasoning")
        self._begin()

    def _begin(self) -> None:
        self.visible = False
        """Was anything said since text or reasoning began, or since the last call?"""
        self.begins = self._has_starters
        """Is it still unknown whether a call without a marker stands at this beginning?"""

    @property
    def lets_pass(self) -> bool:
        """Would words without a marker come out in the channel they came in, with nothing before them waiting?

        Reasoning that stands in visible text between delimiters comes out in another channel than it came in, so it never does.
        """
        as_it_came = self._shown_as_thinking == (self._channel == "reasoning")
        return as_it_came and self.is_in_words

    # -- words ---------------------------------------------------------------------------------------------------------------

    def say(self, piece: str) -> None:
        """Text comes out, unless it is white space whose meaning depends on what follows."""
        if self._mode or self._trim_newline:
            piece = self._parted(piece)
        if not piece:
            return
        self.spans.advance(piece)
        if not self.visible and not piece.isspace():
            self.visible = True
        self._output.say(piece, self._shown_as_thinking)

    @property
    def is_in_words(self) -> bool:
        """Were words said, and does nothing before this place wait for what follows?"""
        return self.visible and not (self._mode or self._trim_newline or self._tail)

    def say_copies(self, piece: str) -> None:
        """Text comes out behind which this kind of place comes again (`CodeSpans.place`)."""
        self.spans.said += len(piece)
        self._output.say(piece, self._shown_as_thinking)

    def say_ticks(self, run: str) -> None:
        """A run of backticks or tildes comes out."""
        if self._mode or self._trim_newline:
            run = self._parted(run)
        if run:
            self.spans.ticks(run)
            self.visible = True
            self._output.say(run, self._shown_as_thinking)

    def _parted(self, piece: str) -> str:
        """What of a piece is text, where it follows a call, reasoning or a turn's end."""
        if piece and self._trim_newline:
            self._trim_newline = False
            piece = piece.removeprefix("\n")
        if not piece or self._mode == _NOTHING:
            return piece
        if self._mode == _AFTER_CALL and self._policies.after_calls == "drop":
            return ""
        if piece.isspace():
            if self._mode != _AFTER_THINKING:
                self._tail.append(piece)
            return ""
        if self._mode == _AFTER_THINKING:
            piece = piece.lstrip()
        self._mode = _NOTHING
        if self._tail:
            tail = "".join(self._tail)
            self._remains = self._remains or not tail.isspace()
            self._tail.clear()
            self.spans.advance(tail)
            self._output.say(tail, self._shown_as_thinking)
        return piece

    # -- what parts them -----------------------------------------------------------------------------------------------------

    def say_delimiter(self, marker: str, meaning: Meaning) -> None:
        """A delimiter of reasoning or of a turn stands here: it has its effect, or is text."""
        if self.spans.in_code:
            self.say(marker)
        elif meaning.opens_thinking and self._may_open(meaning):
            self._open_thinking(marker)
        elif meaning.opens_thinking:
            self._mentioned += 1
            self.say(marker)
        elif meaning.closes_thinking and self._mentioned and not self.thinking:
            self._mentioned -= 1
            self.say(marker)
        elif meaning.closes_thinking and (self.thinking or not self.visible or not self._stray_closer):
            self._stray_closer = True
            self._close_thinking(marker)
        elif meaning.ends and (self._mode == _AFTER_CALL or meaning.turn_end):
            if self._mode != _AFTER_CALL:
                self._mode = _AFTER_TURN
                self._tail.append(marker)
        elif meaning.stray and not self._remains:
            self._mode = _AFTER_TURN
            self._tail.append(marker)
        else:
            self.say(marker)

    def _may_open(self, meaning: Meaning) -> bool:
        """Does a delimiter that opens reasoning do so here? Behind words, `<think>` must begin a line."""
        return self.thinking or not self.visible or meaning.unmistakable or self.spans.blank_line

    def _open_thinking(self, marker: str) -> None:
        if self._policies.thinking == "keep" and self._channel == "text":
            self.say(marker)
        else:
            self._tail.clear()
            self._mode = _NOTHING
            self._trim_newline = True
        if not self.thinking:
            self._set_thinking(True)

    def _close_thinking(self, marker: str) -> None:
        if self._channel == "reasoning":
            return
        if self._policies.thinking == "keep":
            self.say(marker)
        else:
            self._tail.clear()
            self._trim_newline = False
            self._mode = _AFTER_THINKING
        if self.thinking:
            self.spans.reset()
            self._set_thinking(False)

    def end_call(self) -> None:
        """Behind a call: reasoning is over, and white space is separation until text follows."""
        self._tail.clear()
        self._mode = _AFTER_CALL
        self._trim_newline = False
        if self.thinking and self._channel == "text":
            self._set_thinking(False)
        self._begin()
        self.spans.begin_line()
