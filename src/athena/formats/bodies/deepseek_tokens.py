"""The tokens DeepSeek V3 and V3.1 share, and the reader that tells their two heads apart after the separator.

V3 writes `function<SEP>NAME` and fences its JSON; V3.1 writes `NAME<SEP>` and the JSON. Either turns up under the other's
prompt.
"""

from __future__ import annotations

from athena.formats.bodies.headed import CallHead, Headed, HeadedReader
from athena.formats.machine.base import Opener
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter


def spellings(words: str) -> tuple[str, ...]:
    """A token as it is and as detokenisers damage it: ASCII bars, plain spaces or underscores for U+2581.

    With underscores these are Step 3's tokens too, whose calls look otherwise; with ASCII bars besides, some are Kimi's, so
    that such a token opens a call only where the format was named.
    """
    joined, underscored = words.replace(" ", "▁"), words.replace(" ", "_")
    return (f"<｜{joined}｜>", f"<|{joined}|>", f"<｜{words}｜>", f"<｜{underscored}｜>", f"<|{underscored}|>")


def _is_own(marker: str) -> bool:
    return not (marker.startswith("<|") and "_" in marker)


CALLS_BEGIN = spellings("tool calls begin")
CALLS_END = spellings("tool calls end")
CALL_BEGIN = spellings("tool call begin")
CALL_END = spellings("tool call end")
SEPARATOR = spellings("tool sep")
TURN_END = spellings("end of sentence")

_NAME_END = Lexer(("\n", "```", "{", *CALL_END, *CALLS_END, *CALL_BEGIN))


def _open_call(scan: Scanner, calls: CallWriter, before: str) -> Steps[None]:
    """Behind the separator: JSON means that the name stood before it, a line of text is the name itself."""
    yield from scan.space()
    head = yield from scan.peek(1)
    if not head:
        raise Cut
    if head == "{" or (head == "`" and before != "function"):
        calls.open(before)
        return
    if (yield from scan.follows(0, (*CALL_END, *CALLS_END, *CALL_BEGIN), end=False)) is not None:
        calls.open(before)
        return
    text, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD * 2)
    if not marker:
        raise Cut
    name = text.strip()
    if not name or len(name.split()) > 1:
        raise Declined
    calls.open(name)


def _head(text: str, calls: CallWriter) -> CallHead:
    return CallHead(text)


READ = HeadedReader(
    Headed(
        section_begin=CALLS_BEGIN,
        section_end=CALLS_END,
        call_begin=CALL_BEGIN,
        argument_begin=SEPARATOR,
        call_end=CALL_END,
        head=_head,
        open_call=_open_call,
    )
)
OPENERS = (
    *(Opener(marker, READ, never=READ.never_section, auto=_is_own(marker)) for marker in CALLS_BEGIN),
    *(Opener(marker, READ, auto=_is_own(marker)) for marker in CALL_BEGIN),
)
