"""JSON that holds a call's name and its arguments: `{"name": ..., "arguments": {...}}`, alone, in an array, or several in a
row. A broken one never takes the others with it (`broken_json`).

Fields come in any order. Once the name is known the arguments pass through as they arrive; arguments that come first wait for
it.
"""

from __future__ import annotations

import re

import msgspec

from athena.formats.bodies.arguments import decoded_arguments, json_arguments, json_value
from athena.formats.bodies.broken_json import BrokenJson
from athena.formats.machine.scanner import LOOK_AHEAD, Cut, Declined, Lexer, Scanner, Steps, lexer_of
from athena.formats.machine.writer import CallWriter


class CallKeys(msgspec.Struct, frozen=True):
    """Which keys mean what."""

    name: tuple[str, ...] = ("name", "tool_name", "function", "tool", "recipient_name")
    arguments: tuple[str, ...] = ("arguments", "parameters", "args", "input", "arguments_json", "action_input")
    id: tuple[str, ...] = ("id", "tool_call_id", "call_id")
    wrappers: tuple[str, ...] = ("function", "function_call", "tool_call")
    """Keys under which the object with name and arguments may stand."""
    others: tuple[str, ...] | None = None
    """Other keys a call may have; None: any, and they are ignored. A key outside makes it no call."""
    needs_arguments: bool = False
    """Without an arguments key it is no call."""
    name_is_key: bool = False
    """`{"NAME": {arguments}}`."""
    nothing: tuple[str, ...] = ()
    """Names by which the model says that it calls nothing: their objects are left out."""
    lists: tuple[str, ...] = ()
    """Keys under which an array of calls may stand."""
    code_behind: bool = False
    """The code of an interpreter may stand in `<code>` behind its object, with a placeholder in the arguments (Qwen-Agent)."""


ANY_FIELDS = CallKeys()
_KEY_END = Lexer((":",))
_WHOLE_STRING = re.compile(r'"[^"\\\x00-\x1f]*+"(?=[\s\S])')
_WHOLE_KEY = re.compile(r'"[^"\\\x00-\x1f]*+"[ \t\r\n]*+:[ \t\r\n]*+(?=[^ \t\r\n])')
"""What is there as a rule, and needs no reader that waits."""
_PLACEHOLDER = '{"code":""}'
_CODE = "<code>"
_CODE_END = Lexer(("</code>", "\n</code>", "\r\n</code>"))
CODE_TOOLS = ("python", "code_interpreter", "ipython")
"""Names under which an interpreter is declared."""


class _Unreadable(Exception):
    """Not JSON, or JSON that is no call."""


class _Call:
    __slots__ = ("arguments", "by_key", "closed", "code_follows", "depth", "failed", "id", "name", "nothing", "seen")

    def __init__(self) -> None:
        self.name = ""
        self.id = ""
        self.arguments: str | None = None
        self.by_key = False
        self.closed = False
        self.code_follows = False
        self.depth = 0
        """How many of its braces are open."""
        self.failed = False
        self.nothing = False
        self.seen = False


def read_named_calls(scan: Scanner, calls: CallWriter, ends: tuple[str, ...] = (), fields: CallKeys = ANY_FIELDS) -> Steps[int]:
    """All calls that stand here: objects and arrays of them, with white space, commas or semicolons between.

    Answers how many there were. Stops before anything else. A broken call is dropped to its end as its brackets tell it, or to
    one of `ends`; what follows it is read.
    """
    depth = 0
    found = 0
    while True:
        # White space and commas behind the last call belong to the text that follows it.
        if found and not depth and not (yield from _goes_on(scan, ends)):
            return found
        yield from scan.space()
        head = yield from scan.peek(1)
        if head == "[" and not depth and not (yield from _is_end(scan, ends)):
            scan.take(1)
            depth += 1
        elif head == "]" and depth:
            scan.take(1)
            depth -= 1
            if found:
                calls.settle()
        elif head and head in ",;" and found:
            scan.take(1)
        elif head == "{":
            # Inside brackets the end of a line ends nothing.
            yield from _object(scan, calls, fields, tuple(end for end in ends if end != "\n") if depth else ends)
            found += 1
        elif not head and depth and not found:
            raise Cut
        else:
            return found


def _goes_on(scan: Scanner, ends: tuple[str, ...]) -> Steps[bool]:
    """Does another call stand behind this one? Nothing is taken."""
    blanks = yield from scan.blanks()
    head = (yield from scan.peek(blanks + 1))[blanks:]
    if head not in (",", ";"):
        return head in ("{", "[")
    return (yield from scan.follows(blanks + 1, ("{", "[", ",", ";", *ends))) is not None


def _is_end(scan: Scanner, ends: tuple[str, ...]) -> Steps[bool]:
    return (yield from scan.follows(0, ends, end=False)) is not None if ends else False


def _object(scan: Scanner, calls: CallWriter, fields: CallKeys, ends: tuple[str, ...]) -> Steps[None]:
    call = _Call()
    calls.broken = (0, False)
    try:
        yield from _whole_object(scan, calls, fields, call, ends)
    except _Unreadable:
        if fields.others is not None:
            # Ordinary JSON, where only some keys make a call of it.
            raise Declined from None
        calls.bad_head("a tool call that cannot be read", scan.recorded)
        call.failed = True
    if not call.failed:
        return
    depth, in_string = calls.broken
    rest = BrokenJson(lexer_of(ends), call.depth + depth, in_string=in_string)
    while call.depth and not rest.done:
        end = rest.feed(scan.text, scan.at, scan.final)
        calls.noise(scan.take(end - scan.at))
        calls.settle()
        if not rest.done:
            if scan.final:
                return
            yield


def _whole_object(scan: Scanner, calls: CallWriter, fields: CallKeys, call: _Call, ends: tuple[str, ...]) -> Steps[None]:
    yield from _fields(scan, calls, fields, call, ends)
    if call.failed:
        return
    if call.closed:
        calls.settle()
    elif call.code_follows and (yield from scan.follows(0, (_CODE,), end=False)) is not None:
        yield from scan.space()
        scan.take(len(_CODE))
        yield from _code(scan, calls, call)
    else:
        _late(calls, fields, call)


def _late(calls: CallWriter, fields: CallKeys, call: _Call) -> None:
    """The object ended and its arguments were not streamed: they came before the name, or there are none."""
    if call.nothing:
        calls.settle()
        return
    if not call.name or (fields.needs_arguments and not call.seen):
        raise _Unreadable
    calls.open(call.name, call.id)
    if call.arguments is not None:
        arguments = decoded_arguments(call.arguments, lenient=calls.lenient)
        if arguments is None:
            calls.fail(f"the arguments of {call.name} are not a JSON object")
            return
        if not call.arguments.lstrip().startswith("{"):
            calls.repaired()
        calls.write(arguments)
    calls.close()


def _fields(scan: Scanner, calls: CallWriter, fields: CallKeys, call: _Call, ends: tuple[str, ...]) -> Steps[None]:
    """The fields of one object, to its closing brace."""
    scan.take(1)
    call.depth += 1
    yield from scan.space()
    doubled = calls.lenient and (yield from scan.found("{")) == "{"
    call.depth += doubled
    while not call.failed:
        yield from scan.space()
        head = yield from scan.peek(1)
        if head == "}":
            scan.take(1)
            call.depth -= 1
            if doubled:
                yield from scan.space()
                yield from scan.found("}")
                call.depth -= 1
            return
        if head == ",":
            scan.take(1)
            continue
        if call.closed and head not in ("", '"', "'"):
            # The call is whole; what its object lacks at the end does not matter.
            return
        key = yield from _key(scan, calls)
        yield from _field(scan, calls, fields, call, key, ends)


def _key(scan: Scanner, calls: CallWriter) -> Steps[str]:
    whole = scan.whole(_WHOLE_KEY)
    if whole:
        return whole[1 : whole.index('"', 1)]
    if calls.lenient and (yield from scan.peek(1)) not in ("", '"', "'"):
        return (yield from _bare_key(scan, calls))
    text = yield from json_value(scan, calls)
    if text is None or not text.startswith('"'):
        raise _Unreadable
    yield from scan.space()
    if not (yield from scan.found(":")):
        raise _Unreadable
    yield from scan.space()
    return _string(text)


def _bare_key(scan: Scanner, calls: CallWriter) -> Steps[str]:
    text, marker = yield from scan.upto(_KEY_END, LOOK_AHEAD)
    key = text.strip()
    if not key.isidentifier():
        raise _Unreadable
    if not marker:
        raise Cut
    scan.take(1)
    yield from scan.space()
    calls.repaired_later(1)
    return key


def _field(scan: Scanner, calls: CallWriter, fields: CallKeys, call: _Call, key: str, ends: tuple[str, ...]) -> Steps[None]:
    head = yield from scan.peek(1)
    if head == "{" and key in fields.wrappers:
        yield from _fields(scan, calls, fields, call, ends)
        return
    if head == "[" and key in fields.lists:
        if not (yield from read_named_calls(scan, calls, ends, fields)):
            raise _Unreadable
        call.closed = True
        return
    if key in fields.arguments and not call.closed:
        yield from _arguments(scan, calls, fields, call, ends)
        return
    if head == "{" and _names_a_call(calls, fields, call, key):
        call.name = key
        call.by_key = True
        yield from _arguments(scan, calls, fields, call, ends)
        return
    if fields.others is not None and key not in (*fields.name, *fields.id, *fields.arguments, *fields.others):
        raise _Unreadable
    text = scan.whole(_WHOLE_STRING) or (yield from json_value(scan, calls))
    if text is None:
        raise _Unreadable
    if key in fields.name and not call.name:
        if not text.startswith('"'):
            raise _Unreadable
        call.name = _string(text)
        call.nothing = call.name in fields.nothing and not calls.book.declared(call.name)
        if not call.nothing and not calls.admits(call.name):
            raise Declined
    elif key in fields.id:
        call.id = _string(text) if text.startswith('"') else text


def _names_a_call(calls: CallWriter, fields: CallKeys, call: _Call, key: str) -> bool:
    """Is the key a tool's name? One object may hold several."""
    return fields.name_is_key and (call.by_key or not call.name) and key not in fields.name and calls.admits(key)


def _arguments(scan: Scanner, calls: CallWriter, fields: CallKeys, call: _Call, ends: tuple[str, ...]) -> Steps[None]:
    call.seen = True
    if fields.code_behind and call.name in CODE_TOOLS and _takes_code(calls, call.name):
        call.code_follows = yield from _goes_on_with(scan, _PLACEHOLDER)
    if not call.name or call.nothing or call.code_follows:
        call.arguments = yield from json_value(scan, calls)
        if call.arguments is None:
            raise _Unreadable
        return
    calls.open(call.name, call.id)
    if (yield from json_arguments(scan, calls, ends)):
        call.closed = True
    else:
        call.failed = True


def _takes_code(calls: CallWriter, name: str) -> bool:
    return calls.book.open or "code" in calls.book.parameters(name)


def _goes_on_with(scan: Scanner, words: str) -> Steps[bool]:
    """Does the text go on with these words, white space aside? Nothing is taken."""
    while True:
        ahead = "".join((yield from scan.peek(min(LOOK_AHEAD, len(scan.text) - scan.at))).split())
        if ahead.startswith(words):
            return True
        if not words.startswith(ahead) or scan.final or len(scan.text) - scan.at >= LOOK_AHEAD:
            return False
        yield


def _code(scan: Scanner, calls: CallWriter, call: _Call) -> Steps[None]:
    """The code as it arrives; one line break at each end belongs to the tags."""
    yield from scan.found("\n", "\r\n")
    calls.open(call.name, call.id)
    calls.write('{"code": "')
    marker = yield from scan.flow(_CODE_END, calls.write_text)
    if not marker:
        raise Cut
    scan.take(len(marker))
    calls.write('"}')
    calls.close()


def _string(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise _Unreadable from None
