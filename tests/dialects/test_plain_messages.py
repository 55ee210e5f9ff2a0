"""The short way of the most common messages to a Chat upstream writes what the long way writes."""

from __future__ import annotations

import pytest

from athena.dialects import get_dialect
from athena.dialects.base import Encoded, EncodeTarget
from athena.dialects.openai_chat.write_messages import ChatMessageWriter
from athena.model.parts import Base64, CacheMark, Image, Part, Text, ToolCall, ToolResult, changed
from athena.model.profile import Profile
from athena.model.request import Request, Turn

TEXTS = (
    Text(text="Hi"),
    Text(text=""),
    Text(text="Hi", cache=CacheMark()),
    Text(text="Hi", extras={"unknown": 1}),
)
PLAIN_RESULT = ToolResult(call_id="c1", parts=(Text(text="42"),))
RESULTS = (
    PLAIN_RESULT,
    *(changed(PLAIN_RESULT, parts=(text,)) for text in TEXTS),
    changed(PLAIN_RESULT, parts=()),
    changed(PLAIN_RESULT, parts=(*TEXTS[:1], *TEXTS[:1])),
    changed(PLAIN_RESULT, parts=(Image(source=Base64("image/png", "eA==")),)),
    changed(PLAIN_RESULT, name="look"),
    changed(PLAIN_RESULT, is_error=True),
    changed(PLAIN_RESULT, cache=CacheMark()),
    changed(PLAIN_RESULT, extras={"unknown": 1}),
    changed(PLAIN_RESULT, parts=(), structured={"degrees": 42}),
)
PARTS: tuple[Part, ...] = (*TEXTS, *RESULTS)
PROFILES = {
    "plain": Profile(),
    "names in results": Profile(name_in_results=True),
    "function messages": Profile(result_role="function"),
    "cache marks": Profile(cache_marks="cache_control"),
    "text only": Profile(text_content=True),
}
CALLS = Turn(role="assistant", parts=(ToolCall(id="c1", name="look", arguments="{}"),))


def written(part: Part, profile: Profile, **about: object) -> Encoded:
    turn = changed(Turn(role="user", parts=(part,)), **about)
    turns = (CALLS, turn) if isinstance(part, ToolResult) else (turn,)
    request = Request(dialect="anthropic_messages", model="m", turns=turns)
    return get_dialect("openai_chat").encode_request(request, EncodeTarget("m", profile))


@pytest.mark.parametrize("about", [{}, {"name": "Ann"}, {"extras": {"unknown": 1}}], ids=["bare", "named", "extras"])
@pytest.mark.parametrize("profile", PROFILES)
def test_the_short_way_writes_what_the_long_way_writes(
    profile: str, about: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_written() -> list[Encoded]:
        return [written(part, PROFILES[profile], **about) for part in PARTS]

    short = all_written()
    monkeypatch.setattr(ChatMessageWriter, "_plain", lambda self, part: None)
    assert short == all_written()


def test_it_is_taken_by_what_agents_send_most(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(self: ChatMessageWriter, *_: object) -> object:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(ChatMessageWriter, "_content", not_here)
    monkeypatch.setattr(ChatMessageWriter, "_result", not_here)
    written(TEXTS[0], PROFILES["plain"])
    written(PLAIN_RESULT, PROFILES["plain"])
