"""`<tool_call>` blocks: one pair of tags, three bodies. JSON (Hermes, Qwen2.5, Qwen3), `<function=...>` (Qwen3-Coder), or a
bare name with `<arg_key>` (GLM). Models served with another's prompt mix them, so each of these formats reads all three; each
reader declines the bodies that are not its own.
"""

from __future__ import annotations

import re
from functools import lru_cache

from athena.formats.bodies.arguments import end_of_block
from athena.formats.bodies.named import CallKeys, read_named_calls
from athena.formats.bodies.near_misses import no_json, no_name, unlike
from athena.formats.bodies.tagged import TaggedArguments, TagParameter, Tags
from athena.formats.machine.base import Opener
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps
from athena.formats.machine.writer import CallWriter

BEGIN = "<tool_call>"
END = "</tool_call>"
TURN_ENDS = ("<|observation|>", "<|user|>")
"""What ends a turn of GLM, and with it a call that was not closed."""
_NAME = re.compile(r"""\s*=?\s*(?:name\s*=\s*)?["']?([^"'<>=\s{}]+)["']?\s*""")
_PLAIN_NAME = re.compile(r"[^\s<>{}\[\]\"'=]+")

# -- JSON ----------------------------------------------------------------------------------------------------------------------

_JSON_ENDS = (END, BEGIN, "</function_call>", "</tool_calls>", "</tools>")
_JSON_CLOSERS = Lexer(_JSON_ENDS)
_JSON_TAKEN = (END, "</function_call>", "</tool_calls>", "</tools>")
_JSON_FIELDS = CallKeys(code_behind=True)
_FENCE_LINE = Lexer(("\n",))


def read_json_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """JSON with name and arguments, one or several, perhaps in a code fence."""
    yield from scan.space()
    if (yield from scan.found("```")):
        _, marker = yield from scan.upto(_FENCE_LINE, 16)
        if not marker:
            raise Cut
        yield from scan.space()
    head = yield from scan.peek(1)
    if not head:
        raise Cut
    if head not in "{[" or not (yield from read_named_calls(scan, calls, _JSON_ENDS, _JSON_FIELDS)):
        raise Declined
    yield from end_of_block(scan, calls, _JSON_CLOSERS, _JSON_TAKEN)


def read_bare_json(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """The whole answer is one JSON call whose tags are missing. Only for a declared name with arguments."""
    yield from scan.space()
    if (yield from scan.peek(1)) != "{":
        raise Declined
    if calls.book.open or not (yield from read_named_calls(scan, calls, _JSON_ENDS)):
        raise Declined
    yield from end_of_block(scan, calls, _JSON_CLOSERS, _JSON_TAKEN)


# -- <function=...> ------------------------------------------------------------------------------------------------------------


def tag_name(text: str) -> str | None:
    """NAME in `=NAME`, ` = "NAME"`, ` name='NAME'`."""
    found = _NAME.fullmatch(text)
    return found.group(1) if found else None


def _tag_parameter(text: str) -> TagParameter | None:
    key = tag_name(text)
    return TagParameter(key) if key else None


FUNCTION_BEGIN = ("<function=", "<function =", "< function=", "< function =", "<function name=")
FUNCTION_TAGS = Tags(
    parameter=(
        "<parameter=",
        "<parameter =",
        "< parameter=",
        "< parameter =",
        "<parameter name=",
        '<parameter"',
        "<parameter>",
    ),
    parameter_end=("</parameter>", "</ parameter>", "< /parameter>"),
    call_end=("</function>", "</ function>", "< /function>"),
    section_end=(END,),
    next_call=(BEGIN, *FUNCTION_BEGIN),
    newline=True,
    read_tag=_tag_parameter,
)
_FUNCTION_ARGUMENTS = TaggedArguments(FUNCTION_TAGS)
_TAG_END = Lexer((">", "\n", "{"))
NO_TAG_NAME = r"[ \t\r\n]*+(?:[<>{}]|[\"']?+[^\"'<>=\s{}]++[\"']?+[ \t]*+[^>{=\s])"
"""What cannot follow the beginning of a function's tag: no name, or something else than the tag's end behind it."""
_BODY = ("<parameter", "< parameter", "</function>", "</ function>", "{")


def read_function_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """`<function=NAME>` with parameters, one or several, after the opening tag."""
    yield from scan.space()
    begin = yield from scan.found(*FUNCTION_BEGIN, "function=", "<function>")
    if not begin:
        if scan.ended():
            raise Cut
        raise Declined
    if begin == "<function>":
        yield from _element_function(scan, calls)
    else:
        yield from _functions(scan, calls)
    yield from scan.space()
    yield from scan.found(END)
    calls.settle()


def read_bare_function(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """`<function=NAME>` whose `<tool_call>` is missing: the commonest slip of Qwen3-Coder. Only with a body that fits."""
    yield from _functions(scan, calls)
    yield from scan.space()
    yield from scan.found(END)
    calls.settle()


def _parameter_tags(scan: Scanner, calls: CallWriter, name: str) -> Steps[TaggedArguments | None]:
    """The reader of parameters that stand in tags of their own names, where such a tag comes next (Qwen2.5, GLM)."""
    declared = calls.book.parameters(name)
    tags = tuple(f"<{key}>" for key in declared)
    if not tags or (yield from scan.follows(0, tags, end=False)) is None:
        return None
    return _named_tags(name, declared)


@lru_cache(maxsize=64)
def _named_tags(name: str, declared: tuple[str, ...]) -> TaggedArguments:
    return TaggedArguments(
        Tags(
            parameter=("<",),
            parameter_end=tuple(f"</{key}>" for key in declared),
            call_end=(*FUNCTION_TAGS.call_end, f"</{name}>"),
            section_end=(END,),
            next_call=FUNCTION_TAGS.next_call,
            newline=True,
            read_tag=lambda text: TagParameter(text) if text in declared else None,
        )
    )


_ELEMENT_ARGUMENTS = TaggedArguments(
    Tags(
        parameter=("<parameter>",),
        tag_end="</parameter>",
        parameter_end=(),
        call_end=FUNCTION_TAGS.call_end,
        section_end=(END,),
        next_call=FUNCTION_TAGS.next_call,
        newline=True,
    )
)
_ELEMENT_NAME = Lexer(FUNCTION_TAGS.call_end)


def _element_function(scan: Scanner, calls: CallWriter) -> Steps[None]:
    """`<function>NAME</function>` and `<parameter>KEY</parameter>`, each value behind it (Llama 3.1 under Qwen's prompt)."""
    text, marker = yield from scan.upto(_ELEMENT_NAME, LOOK_AHEAD * 2)
    name = text.strip()
    if not marker or not _PLAIN_NAME.fullmatch(name) or not calls.admits(name):
        raise Declined
    scan.take(len(marker))
    if (yield from scan.follows(0, ("<parameter>", END), end=False)) is None:
        raise Declined
    calls.open(name)
    yield from _ELEMENT_ARGUMENTS.read(scan, calls)


def _functions(scan: Scanner, calls: CallWriter) -> Steps[None]:
    while True:
        text, marker = yield from scan.upto(_TAG_END, LOOK_AHEAD * 2)
        if not marker:
            raise Cut
        name = tag_name(text)
        if name is None:
            raise Declined
        if marker == ">":
            scan.take(1)
        if not calls.admits(name):
            raise Declined
        arguments = yield from _parameter_tags(scan, calls, name)
        if arguments is None and (yield from scan.follows(0, _BODY)) is None:
            raise Declined
        calls.open(name)
        yield from (arguments or _FUNCTION_ARGUMENTS).read(scan, calls)
        again = yield from scan.follows(0, FUNCTION_BEGIN, end=False)
        if again is None:
            return
        yield from scan.space()
        yield from scan.found(*FUNCTION_BEGIN)


# -- NAME <arg_key> ------------------------------------------------------------------------------------------------------------

KEYED_TAGS = Tags(
    parameter=("<arg_key>",),
    tag_end="</arg_key>",
    value_begin=("<arg_value>",),
    parameter_end=("</arg_value>",),
    call_end=(END,),
    section_end=TURN_ENDS,
    next_call=(BEGIN,),
)
_KEYED_ARGUMENTS = TaggedArguments(KEYED_TAGS)
_NAME_END = Lexer(("\n", "<arg_key>", "<parameter", END, BEGIN, *TURN_ENDS))
_AFTER_NAME = ("<arg_key>", END, BEGIN, "<parameter=", *TURN_ENDS)


def read_keyed_block(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A bare name, then keys and values. The name ends with its line or at the first tag, never earlier."""
    yield from scan.space()
    text, marker = yield from scan.upto(_NAME_END, LOOK_AHEAD * 2)
    name = text.strip().removesuffix("\\n").strip()
    if not _PLAIN_NAME.fullmatch(name):
        raise Declined
    tags = (yield from _parameter_tags(scan, calls, name)) if marker == "\n" else None
    if not marker or (tags is None and marker == "\n" and (yield from scan.follows(0, _AFTER_NAME, end=False)) is None):
        if scan.final and not scan.text[scan.at :].strip():
            raise Cut
        raise Declined
    calls.open(name)
    if tags is not None:
        yield from tags.read(scan, calls)
        yield from scan.found(END)
        calls.settle()
    elif (yield from scan.follows(0, ("<parameter=",), end=False)) is not None:
        # The tags of Qwen under a bare name, closed by </name>.
        yield from _FUNCTION_ARGUMENTS.read(scan, calls)
        yield from scan.found(END)
        calls.settle()
    else:
        yield from _KEYED_ARGUMENTS.read(scan, calls)


def read_keyed_body(scan: Scanner, calls: CallWriter, opener: str) -> Steps[None]:
    """A name and its first `<arg_key>` without `<tool_call>` before it; the opener holds both."""
    name = opener.removesuffix("<arg_key>").rstrip()
    calls.open(name)
    yield from _KEYED_ARGUMENTS.read_from_parameter(scan, calls)


JSON_OPENER = Opener(BEGIN, read_json_block, never=no_json())
FUNCTION_OPENER = Opener(BEGIN, read_function_block, rank=1, never=unlike(*FUNCTION_BEGIN, "function=", "<function>"))
KEYED_OPENER = Opener(BEGIN, read_keyed_block, rank=2, never=no_name("<", "\\n"))
