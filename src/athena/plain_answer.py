"""A whole answer of one text and well-formed calls, from its body to the client's in a few steps.

In most whole answers nothing can be found, repaired or restored. For them none of the stages of `answer_path` is made: the
upstream's dialect reads the body as events, the search for markers passes over the text, every call is looked at once, and the
client's dialect writes them. Everything else is `answer_path`'s, which says the same of these answers too; the tests of
`tests/exchange/test_plain_answer.py` hold both against each other.
"""

from __future__ import annotations

from itertools import chain, compress
from operator import attrgetter
from typing import Any

import msgspec

from athena.answer_path import Options, Route, encode_context, repair_level
from athena.calls.choice import ChoiceGuard
from athena.calls.ids import fitting_id
from athena.dialects.base import AnswerLosses, Dialect
from athena.dialects.decoders import UNREADABLE
from athena.formats.machine.repair import WRAPPER_KEYS
from athena.formats.machine.stage import may_hold_call
from athena.model.events import Event, TextDelta, ToolCallComplete
from athena.model.parts import Part, ToolCall
from athena.model.request import Request, has_kind
from athena.prepare import Prepared
from athena.wire.json_span import is_json_object

PLAIN_BYTES = 16 * 1024
"""A body above this is none of these: it may be worked on in a thread, by the stages."""


def may_be_plain(request: Request, route: Route, options: Options, prepared: Prepared, upstream: Dialect) -> bool:
    """Can the answer to this request be taken so, if it is that plain?"""
    if upstream.plain_answer is None or request.stream or route.prompted is not None or request.kept is not None:
        return False
    if prepared.stops or options.array or ChoiceGuard.of(request) is not None:
        return False
    reading = route.format if request.tools else None
    if reading is None:
        return upstream.name != request.dialect  # else it may pass byte for byte
    return reading.policies.text == "pass" and not reading.begins_in_thinking


_name_of = attrgetter("name")
_parts_of = attrgetter("parts")
_id_of = attrgetter("id")
_is_call = frozenset((ToolCall,)).__contains__
_is_complete = frozenset((ToolCallComplete,)).__contains__


def plain_answer(
    body: bytes, request: Request, route: Route, options: Options, prepared: Prepared, client: Dialect, upstream: Dialect
) -> tuple[list[Event], bytes] | None:
    """The events of this body and the client's body; None where it has to be looked at more closely."""
    same = client is upstream
    events = upstream.plain_answer(body, same) if upstream.plain_answer is not None else None
    if events is None:
        return None
    first = events[1]
    if type(first) is TextDelta and route.format is not None and request.tools:
        tools = prepared.request.tools
        if has_kind(tools, "hosted"):
            tools = tuple(tool for tool in tools if tool.kind != "hosted")
        names = tuple(map(_name_of, tools))
        if may_hold_call(route.format.recognizer(), names, first.text):
            return None
    if len(events) > 3 and not _calls_stay(events, request, route, options, prepared, client):
        return None
    context = encode_context(request, options, AnswerLosses(), same_dialect=same)
    output = client.whole_encoder(context).feed(events)
    return None if context.losses.found else (events, output)


_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _calls_stay(
    events: list[Event], request: Request, route: Route, options: Options, prepared: Prepared, client: Dialect
) -> bool:
    """Would these calls reach the client as they came: names, ids and arguments?"""
    if prepared.names or prepared.custom.names or repair_level(route) == "schema":
        return False
    calls: list[Any] = list(compress(events, map(_is_complete, map(type, events))))
    ids = set(map(_id_of, calls))
    if len(ids) < len(calls) or len(calls) > options.limits.calls:
        return False
    # An id of the history would be made unique. A history is long: none of its parts takes a step of Python's.
    told: list[Part] = list(chain.from_iterable(map(_parts_of, request.turns)))
    if not ids.isdisjoint(map(_id_of, compress(told, map(_is_call, map(type, told))))):
        return False
    return all([_call_stays(call, options, client) for call in calls])  # noqa: C419  # a list is faster here


def _call_stays(call: ToolCallComplete, options: Options, client: Dialect) -> bool:
    arguments = call.arguments
    if arguments[0] != "{" or arguments[-1] != "}" or len(arguments) > options.limits.argument_chars:
        return False
    try:
        if not is_json_object(arguments):
            return False
        fields = _fields_of(arguments)
    except UNREADABLE:
        return False
    is_wrapped = len(fields) == 1 and next(iter(fields)) in WRAPPER_KEYS
    return not is_wrapped and fitting_id(call.id, client.id_style) == call.id
