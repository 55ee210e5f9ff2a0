"""A whole answer that is nothing but one text, from its body to the client's in a few steps.

Most whole answers hold one text in which nothing can be found, repaired or restored. For them none of the stages of
`answer_path` is made: the upstream's dialect reads the body as three events, the search for markers passes over the text, and
the client's dialect writes them. Everything else is `answer_path`'s, which says the same of these answers too; the tests of
`tests/exchange/test_plain_answer.py` hold both against each other.
"""

from __future__ import annotations

from athena.answer_path import Options, Route
from athena.calls.choice import ChoiceGuard
from athena.dialects.base import Dialect, EncodeContext
from athena.formats.machine.stage import may_hold_call
from athena.model.events import Event, TextDelta
from athena.model.request import Request
from athena.prepare import Prepared

PLAIN_BYTES = 16 * 1024
"""A body above this is none of these: it may be worked on in a thread, by the stages."""


def may_be_plain(request: Request, route: Route, options: Options, prepared: Prepared, upstream: Dialect) -> bool:
    """Can the answer to this request be taken so, if it is one text?"""
    if upstream.plain_answer is None or request.stream or route.prompted is not None or request.kept is not None:
        return False
    if prepared.stops or options.array or ChoiceGuard.of(request) is not None:
        return False
    reading = route.format if request.tools else None
    if reading is None:
        return upstream.name != request.dialect  # else it may pass byte for byte
    return reading.policies.text == "pass" and not reading.begins_in_thinking


def plain_answer(
    body: bytes, request: Request, route: Route, options: Options, prepared: Prepared, client: Dialect, upstream: Dialect
) -> tuple[list[Event], bytes] | None:
    """The events of this body and the client's body; None where it is more than one text, or not even that."""
    same = client is upstream
    events = upstream.plain_answer(body, same) if upstream.plain_answer is not None else None
    if events is None:
        return None
    text = events[1]
    assert isinstance(text, TextDelta)
    if route.format is not None and request.tools:
        names = tuple([tool.name for tool in prepared.request.tools if tool.kind != "hosted"])
        if may_hold_call(route.format.recognizer(), names, text.text):
            return None
    context = EncodeContext(
        request=request,
        seed=options.seed,
        created=options.created,
        envelope=options.envelope,
        same_dialect=same,
        input_tokens=options.input_tokens,
        stream_error_stop=options.stream_error_stop,
        reasoning_fields=options.reasoning_fields,
    )
    output = client.whole_encoder(context).feed(events)
    return None if context.losses.found else (events, output)
