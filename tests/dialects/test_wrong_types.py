"""Requests with a value of another type anywhere in them: accepted, or refused with the field's name, never an exception."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from athena.dialects import dialect_names, get_dialect
from athena.errors import ClientError, InvalidRequest
from athena.exchange import Exchange, Options, Route
from support.cases import dialect_cases
from support.fault_judge import request_body

OTHERS: tuple[Any, ...] = (None, 7, "x", [], {}, [None], {"type": None}, True)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of every object and list, as its holder and the key in it."""
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in list(members):
        yield value, key
        yield from _places(member)


def _variants(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for place in range(sum(1 for _ in _places(body))):
        for other in OTHERS:
            variant = copy.deepcopy(body)
            holder, key = list(_places(variant))[place]
            holder[key] = copy.deepcopy(other)
            yield variant


@pytest.mark.parametrize("dialect", dialect_names())
def test_no_wrong_type_raises(dialect: str) -> None:
    native = dialect == "gemini"
    bodies = [json.loads(case.body) for case in dialect_cases(dialect).request]
    bodies.append(request_body(dialect, "m", stream=False)[1])
    for number, variant in enumerate(variant for body in bodies for variant in _variants(body)):
        target = dialect_names()[number % len(dialect_names())]
        try:
            request = get_dialect(dialect).decode_request(
                variant, model="m" if native else None, stream=False if native else None
            )
            Exchange(request, Route(dialect=target, model="m"), Options())
        except ClientError:
            continue
        except Exception as error:
            error.add_note(f"to {target}: {json.dumps(variant)[:2000]}")
            raise


def test_an_item_reference_may_leave_its_type_null() -> None:
    request = get_dialect("openai_responses").decode_request({"model": "m", "input": [{"type": None, "id": "x"}]})
    home = Exchange(request, Route(dialect="openai_responses", model="m"), Options())
    assert json.loads(home.call.body)["input"] == [{"type": None, "id": "x"}]
    with pytest.raises(ClientError) as refused:
        Exchange(request, Route(dialect="openai_chat", model="m", strict=True), Options())
    assert "[0]" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([{"type": None, "id": "x"}], "turns[0]"),
        ([{"type": "item_reference", "id": "x"}], "turns[0]"),
        ([{"type": "reasoning", "id": "x", "summary": [{"type": "summary_text", "text": "Hm."}]}], "turns"),
        ([], "turns"),
    ],
)
@pytest.mark.parametrize("target", [name for name in dialect_names() if name != "openai_responses"])
def test_a_conversation_of_which_nothing_is_left_is_refused(given: list[Any], place: str, target: str) -> None:
    """The model would be asked nothing, and answer all the same."""
    request = get_dialect("openai_responses").decode_request({"model": "m", "input": given})
    with pytest.raises(InvalidRequest) as refused:
        Exchange(request, Route(dialect=target, model="m"), Options())
    assert str(refused.value).startswith(place)
    told = get_dialect("openai_responses").decode_request({"model": "m", "input": given, "instructions": "Say hello."})
    Exchange(told, Route(dialect=target, model="m"), Options())
