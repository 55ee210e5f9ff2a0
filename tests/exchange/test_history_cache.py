"""What is remembered of earlier requests changes nothing: the upstream gets the same bytes, the same is reported as lost."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from athena.dialects import anthropic_messages, dialect_names, get_dialect, openai_chat
from athena.errors import AthenaError
from athena.exchange import Exchange, Options, Route
from athena.model.parts import Opaque, Thinking
from athena.opaque import Envelope, Memory, OpaqueStore
from athena.profiles import default_profiles
from athena.prompted.options import PromptedOptions
from athena.serving.endpoints import gateway_endpoint
from athena.serving.tokens import TokenCounter
from athena.wire import opening
from athena.wire.fragments import Fragments
from athena.wire.opening import open_body
from athena.wire.recall import Recall
from athena.wire.shape import Shape, shape_of
from support.examples import IS_DEEP, SEED
from support.sessions import Step, body, session

CAPTURES = Path(os.environ.get("ATHENA_CAPTURES") or Path(__file__).parent.parent / "recordings" / "requests")
"""Requests that agents sent; the variable names a folder of more."""
UPSTREAMS = (
    ("anthropic_messages", "anthropic", "claude-sonnet-4-5"),
    ("anthropic_messages", "anthropic_compatible", "m"),
    ("openai_chat", "openai", "gpt-4.1"),
    ("openai_chat", "generic", "m"),
    ("openai_chat", "moonshot", "kimi-k2-thinking"),
    ("openai_chat", "deepseek", "deepseek-v4"),
    ("openai_chat", "mistral", "mistral-large-latest"),
    ("openai_chat", "openrouter", "anthropic/claude-sonnet-4.5"),
    ("openai_responses", "openai_responses", "gpt-5.1"),
    ("openai_responses", "responses_compatible", "m"),
    ("gemini", "gemini", "gemini-3-pro"),
    ("gemini", "gemini", "gemini-2.5-pro"),
)
ROUTES = [
    Route(dialect=dialect, model=model, profile=default_profiles().get(profile, model), pairing="repair")
    for dialect, profile, model in UPSTREAMS
]
"""Made once, as by a gateway: what was written is remembered for a profile."""
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"strict": True},
    {"pairing": "strict"},
    {"prompted": PromptedOptions()},
)
PATHS = {
    "anthropic_messages": "/v1/messages",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}
BATCHES = 50 if IS_DEEP else 2
"""Of 200 conversations each; in the gate of 20."""
CONVERSATIONS = 200 if IS_DEEP else 20
DISTINCT = 100_000 if os.environ.get("ATHENA_SOAK") else 500


def _store() -> OpaqueStore:
    store = OpaqueStore()
    for number in range(3):
        remembered = Memory((Thinking(text="remembered"),), Opaque("gemini", "thought_signature", "signed"))
        store.put("tenant", f"call_{number}", remembered)
    return store


OPTIONS = (
    Options(envelope=Envelope(b"key")),
    Options(envelope=Envelope(b"key"), store=_store(), tenant="tenant"),
)


def sent(path: str, data: bytes, route: Route, options: Options, remembered: tuple[Fragments, str] | None) -> object:
    """What goes upstream for a client's body, what of it is lost, and what it measures; or the error that the client gets."""
    endpoint = gateway_endpoint("POST", path.partition("?")[0], "", {})
    assert endpoint is not None
    dialect = get_dialect(endpoint.dialect)
    recall: Recall | None = None
    try:
        value = msgspec.json.decode(data)
        if remembered is not None:
            fragments, space = remembered
            opened = open_body(data, fragments, (dialect.name, space))
            assert opened is not None
            read = opened.read()
            assert read is not None
            assert read[0] == value
            assert list(read[0]) == list(value)
            at_most(read[2], value)
            value, recall, _ = read
            recall = None if recall.is_empty else recall
        request = dialect.decode_request(value, model=endpoint.model, recall=recall)
        exchange = Exchange(request, route, options, recall)
    except AthenaError as error:
        return type(error), str(error), error.code
    plain = msgspec.structs.replace(request, raw=None)
    measured = TokenCounter().measure(request, recall)
    return exchange.call.body, exchange.call.path, exchange.request_losses, msgspec.json.encode(plain), measured


def at_most(shape: Shape, value: Any) -> None:
    """A body's shape bounds what its value holds: a limit that the bound keeps is kept."""
    exact = shape_of(value)
    assert exact is not None
    assert shape.keys >= exact.keys
    assert shape.values >= exact.values
    assert shape.depth >= exact.depth
    assert shape.objects >= exact.objects


_VALUES = some.recursive(
    some.none() | some.integers(0, 3), lambda inner: some.lists(inner, max_size=12) | some.dictionaries(some.text("ab"), inner)
)


@given(value=_VALUES)
def test_a_shape_is_what_counting_says(value: Any) -> None:
    def counted(node: Any) -> tuple[int, int, int, int]:
        inner = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else None
        if inner is None:
            return 0, 0, 0, 0
        below = [counted(one) for one in inner]
        keys = len(node) if isinstance(node, dict) else 0
        return (
            keys + sum(one[0] for one in below),
            len(inner) + sum(one[1] for one in below),
            1 + max((one[2] for one in below), default=0),
            isinstance(node, dict) + sum(one[3] for one in below),
        )

    assert shape_of(value) == Shape(*counted(value))
    wide = [value] * 20
    assert shape_of(wide) == Shape(*counted(wide))


def check(path: str, data: bytes, route: Route, options: Options, fragments: Fragments, space: str) -> None:
    """The same bytes and losses as without a memory: when it is noted, when its parts are kept, and when they are known."""
    expected = sent(path, data, route, options, None)
    for _ in range(3):
        assert sent(path, data, route, options, (fragments, space)) == expected


def untouched(fragments: Fragments) -> None:
    """Nobody changed what is remembered: its value is still that of its bytes."""
    for parts in (fragments._young, fragments._old):
        for (_, raw), fragment in parts.items():
            assert fragment.value == msgspec.json.decode(raw)
            if fragment.text is not None:
                assert bytes(fragment.text) == msgspec.json.encode(fragment.value)
            for form in fragment.forms.values():
                for value, text in zip(form.values, form.texts, strict=True):
                    assert text is None or bytes(text) == msgspec.json.encode(value)


def test_captures() -> None:
    fragments = Fragments(1 << 26)
    for file in sorted(CAPTURES.glob("*.json")):
        capture = json.loads(file.read_text(encoding="utf-8"))
        data = msgspec.json.encode(capture["body"])
        for route in ROUTES:
            check(capture["path"], data, route, OPTIONS[0], fragments, "space")
    untouched(fragments)


# -- conversations that grow and are edited -----------------------------------------------------------------------------------


def conversation(seed: int) -> Iterator[tuple[str, bytes]]:
    """The requests of one client, each after the other: it goes on, marks what is to be cached, edits, forgets, repeats."""
    rng = random.Random(seed)
    dialect = rng.choice(dialect_names())
    steps = session(seed, rng.randint(4, 12))
    asked = _grown(dialect, steps[: len(steps) // 2])
    for grown in (asked, _grown(dialect, steps), _grown(dialect, steps)):
        changed = copy.deepcopy(grown)
        for _ in range(rng.randint(0, 3)):
            _CHANGES[rng.randrange(len(_CHANGES))](rng, changed)
        yield PATHS[dialect], msgspec.json.encode(changed)


def _grown(dialect: str, steps: list[Step]) -> dict[str, Any]:
    return body(dialect, steps)


def _messages(asked: dict[str, Any]) -> list[dict[str, Any]]:
    return next(asked[name] for name in ("messages", "input", "contents") if name in asked)


def _content(rng: random.Random, asked: dict[str, Any]) -> list[Any]:
    message = rng.choice(_messages(asked))
    content = message.get("content", message.get("parts"))
    return content if isinstance(content, list) else []


def _mark(rng: random.Random, asked: dict[str, Any]) -> None:
    for block in _content(rng, asked)[-1:]:
        block["cache_control"] = {"type": "ephemeral"}


def _mark_many(rng: random.Random, asked: dict[str, Any]) -> None:
    for _ in range(6):
        _mark(rng, asked)


def _drop(rng: random.Random, asked: dict[str, Any]) -> None:
    messages = _messages(asked)
    if len(messages) > 2:
        del messages[rng.randrange(len(messages))]


def _swap(rng: random.Random, asked: dict[str, Any]) -> None:
    messages = _messages(asked)
    at = rng.randrange(len(messages))
    messages[at - 1], messages[at] = messages[at], messages[at - 1]


def _repeat(rng: random.Random, asked: dict[str, Any]) -> None:
    messages = _messages(asked)
    messages.insert(rng.randrange(len(messages)), copy.deepcopy(rng.choice(messages)))


def _word_between(rng: random.Random, asked: dict[str, Any]) -> None:
    """What is a turn or none by its place, and what ends the turn before it."""
    messages = _messages(asked)
    between: list[dict[str, Any]] = [
        {"role": "developer", "content": "From now on be brief."},
        {"role": "assistant", "content": "I look.", "phase": rng.choice(("commentary", "final_answer"))},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "late", "parameters": {}}]},
    ]
    messages.insert(rng.randrange(len(messages)), rng.choice(between))


def _unknown_field(rng: random.Random, asked: dict[str, Any]) -> None:
    rng.choice(_messages(asked))["unheard_of"] = {"a": [1]}


def _odd_part(rng: random.Random, asked: dict[str, Any]) -> None:
    odd: list[dict[str, Any]] = [
        {"type": "text", "text": " "},
        {"type": "text", "text": "cited", "citations": [{"type": "page", "url": "https://a.example"}]},
        {"type": "document", "source": {"type": "text", "data": "d", "media_type": "text/plain"}, "context": "c"},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "unheard_of", "a": 1},
        {"type": "tool_result", "tool_use_id": "nobody", "content": []},
        {"text": "said", "unheard_of": None},
    ]
    _content(rng, asked).append(rng.choice(odd))


def _broken_arguments(rng: random.Random, asked: dict[str, Any]) -> None:
    written = rng.choice(("{", "[1]", "", '{"a":1}', '{"a":"\\ud800"}'))
    for message in _messages(asked):
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = written
        if message.get("type") == "function_call":
            message["arguments"] = written


def _other_tools(rng: random.Random, asked: dict[str, Any]) -> None:
    rng.shuffle(asked["tools"])
    if rng.random() < 0.5:
        asked["tools"].append({"type": "web_search_20250305", "name": "web_search"})


def _older_form(rng: random.Random, asked: dict[str, Any]) -> None:
    for message in _messages(asked):
        if message.get("role") == "tool":
            message.update(role="function", name="read_file")
            del message["tool_call_id"]
        if message.get("tool_calls"):
            message["function_call"] = message.pop("tool_calls")[0]["function"]


def _gemini_ids(rng: random.Random, asked: dict[str, Any]) -> None:
    """Gemini's calls and results may have ids or none."""
    for message in _messages(asked):
        for part in message.get("parts") or ():
            for kind in ("functionCall", "functionResponse"):
                if kind in part and rng.random() < 0.5:
                    part[kind].pop("id", None)
                elif kind in part:
                    part[kind]["id"] = f"own_{rng.randrange(3)}"


def _answer_in_pieces(rng: random.Random, asked: dict[str, Any]) -> None:
    """The SDK's chats send every chunk of the model as a content of its own."""
    messages = _messages(asked)
    for at in range(len(messages) - 1, -1, -1):
        parts = messages[at].get("parts")
        if messages[at].get("role") == "model" and isinstance(parts, list) and len(parts) > 1 and rng.random() < 0.7:
            messages[at : at + 1] = [{**messages[at], "parts": [part]} for part in parts]


_CHANGES = (
    _mark, _mark_many, _drop, _swap, _repeat, _word_between, _unknown_field, _odd_part, _broken_arguments, _other_tools,
    _older_form, _gemini_ids, _answer_in_pieces,
)  # fmt: skip


@pytest.mark.fuzz
@pytest.mark.parametrize("batch", range(BATCHES))
def test_conversations(batch: int) -> None:
    # Small enough to be filled several times over.
    fragments = Fragments(1 << 20)
    for number in range(CONVERSATIONS):
        seed = SEED + batch * CONVERSATIONS + number
        rng = random.Random(seed)
        routes = rng.sample(ROUTES, 2)
        for path, data in conversation(seed):
            for route in routes:
                variant = msgspec.structs.replace(route, **rng.choice(VARIANTS))
                for space in ("one", "two"):
                    check(path, data, variant, rng.choice(OPTIONS), fragments, space)
        assert fragments.used <= fragments.limit * 1.1
    untouched(fragments)


def test_a_result_of_gemini_is_known_only_behind_its_call() -> None:
    asked = {"role": "user", "parts": [{"text": "Look at both files."}]}
    others = {"role": "model", "parts": [{"functionCall": {"name": "read_file", "args": {"path": "b"}}}]}
    calls = {"role": "model", "parts": [{"functionCall": {"id": "own", "name": "read_file", "args": {"path": "a"}}}]}
    result = {"role": "user", "parts": [{"functionResponse": {"id": "own", "name": "read_file", "response": {"output": "x"}}}]}
    fragments = Fragments(1 << 20)
    for contents in ([asked, calls, result], [asked, others, result], [asked, result], [asked, calls, others, result, result]):
        data = msgspec.json.encode({"contents": contents})
        for route in ROUTES:
            check(PATHS["gemini"], data, route, OPTIONS[0], fragments, "space")
    untouched(fragments)


# -- what is remembered -------------------------------------------------------------------------------------------------------

VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
BODIES = some.fixed_dictionaries(
    {"messages": some.lists(VALUES, max_size=5)},
    optional={"tools": VALUES, "system": VALUES, "model": VALUES, "other": VALUES},
)


@given(value=BODIES)
def test_any_body_is_read_as_it_is(value: dict[str, Any]) -> None:
    fragments = Fragments(1 << 20)
    data = msgspec.json.encode(value)
    for _ in range(3):
        opened = open_body(data, fragments, None)
        assert opened is not None
        read = opened.read()
        assert read is not None
        assert read[0] == value
        at_most(read[2], value)


@given(messages=some.lists(VALUES, max_size=3), spaced=some.booleans(), ascii_only=some.booleans())
def test_a_long_list_of_messages_begins_as_all_of_it_says(messages: list[Any], spaced: bool, ascii_only: bool) -> None:
    """The memory notes a conversation by its first two messages, which are found without reading a long rest."""
    separators = (" , ", " : ") if spaced else (",", ":")
    long = [*messages, "x" * 70_000, "end"]
    data = json.dumps(long, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    first = tuple(json.dumps(one, separators=separators, ensure_ascii=ascii_only) for one in long[:2])
    found = opening._first_two(memoryview(data))
    if len(messages) >= 2:
        assert found == tuple(one.encode("utf-8", "surrogatepass") for one in first)
    else:
        assert found == (), "the second of them is long"
    assert opening._first_two(memoryview(json.dumps("1,2," + "x" * 70_000).encode())) == (), "no list at all"


def _kept(data: bytes) -> Fragments:
    """A memory that knows this body."""
    fragments = Fragments(1 << 20)
    for _ in range(3):
        _known(fragments, data, None)
    return fragments


def _read_as_it_is(data: bytes, fragments: Fragments) -> None:
    """Cut or not, a body is read as what its JSON says, or as a whole by others."""
    try:
        expected = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        expected = None
    opened = open_body(data, fragments, None)
    read = opened.read() if opened is not None else None
    if read is not None:
        assert expected is not None
        assert read[0] == expected
        assert list(read[0]) == list(expected)
        at_most(read[2], expected)


MESSAGES = some.lists(
    some.fixed_dictionaries({"role": some.sampled_from(("user", "assistant")), "content": VALUES}), max_size=6
)
LEADING = some.dictionaries(some.sampled_from(("model", "system", "tools", "a")), VALUES, max_size=3)
TRAILING = some.dictionaries(some.sampled_from(("max_tokens", "instructions", "b", "c")), VALUES, max_size=3)


@given(before=LEADING, messages=MESSAGES, after=TRAILING, others=MESSAGES, at=some.integers(0, 6), spaced=some.booleans())
def test_a_conversation_that_goes_on_is_read_as_it_is(
    before: dict[str, Any], messages: list[Any], after: dict[str, Any], others: list[Any], at: int, spaced: bool
) -> None:
    def written(history: list[Any]) -> bytes:
        asked = {**before, "messages": history, **after}
        return json.dumps(asked).encode() if spaced else msgspec.json.encode(asked)

    fragments = _kept(written(messages))
    for history in (messages + others, messages[:at] + others, messages + others + messages, messages[:at], messages):
        _read_as_it_is(written(history), fragments)


@given(
    before=LEADING,
    messages=MESSAGES,
    after=TRAILING,
    at=some.integers(0, 400),
    gone=some.integers(0, 3),
    added=some.sampled_from(
        (b"", b",", b" ", b"]", b"[", b"}", b"{", b'"', b"\\", b",,", b'],"b":[', b"{}", b",{}", b"1", b"\xff")
    ),
)
def test_a_body_that_is_nearly_a_known_one_is_read_as_it_is(
    before: dict[str, Any], messages: list[Any], after: dict[str, Any], at: int, gone: int, added: bytes
) -> None:
    data = msgspec.json.encode({**before, "messages": messages, **after})
    _read_as_it_is(data[:at] + added + data[at + gone :], _kept(data))


@pytest.mark.parametrize(
    ("known", "data"),
    [
        (b'{"messages":[{"a":1},{"b":1}]}', b'{"messages":[{"a":1},]}'),
        (b'{"messages":[{"a":1},{"b":1}]}', b'{"messages":[{"a":1},{"b":1}, ]}'),
        (b'{"messages":[{"a":1},{"b":1}]}', b'{"messages":[{"a":1}{"b":2}]}'),
        (b'{"messages":[{"a":1},{"b":1}]}', b'{"messages":[{"a":1},{"b":1}],"c":[{"d":1}]}'),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1}1{"b":2}]}'),
        (b'{"messages":[{"a":1}],"b":1}', b'{"messages":[{"a":1}],"b":2}'),
        (b'{"messages":[{"a":[1]}]}', b'{"messages":[{"a":[1]}'),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1}]}]}'),
        (b'{"a":{"messages":[{"a":1}]},"messages":[{"a":1}]}', b'{"a":{"messages":[{"a":1},{"b":1}]},"messages":[{"a":1}]}'),
        (b'{"a":"messages","messages":[{"a":1}],"b":1}', b'{"a":"messages","messages":[{"a":1},{"b":1}],"b":1}'),
        (b'{"messages":[{"a":1}],"messages":[{"a":1}]}', b'{"messages":[{"a":1},{"b":1}],"messages":[{"a":1}]}'),
        (b'{"messages":[{"a":1}],"b":1,"b":[{}]}', b'{"messages":[{"a":1},{"b":1}],"b":1,"b":[{}]}'),
        (b'{"messages":[{"a":1},1,{"b":1}]}', b'{"messages":[{"a":1},12,{"b":1}]}'),
        (b'{"messages":[1]}', b'{"messages":[12]}'),
        (b'{"messages":[{"a":1},{"a":1}]}', b'{"messages":[{"a":1},{"a":1},{"a":1}]}'),
        (b'{"\\u006dessages":[{"a":1}]}', b'{"\\u006dessages":[{"a":1},{"b":1}]}'),
    ],
)  # fmt: skip
def test_bodies_that_only_look_like_the_next_one(known: bytes, data: bytes) -> None:
    fragments = _kept(known)
    for _ in range(3):
        _read_as_it_is(data, fragments)
        _read_as_it_is(known, fragments)


@pytest.mark.parametrize(
    "data",
    [
        b"[]", b"1", b"{", b'{"messages":[1,]}', b'{"messages":"text"}', b'{"model":"m"}', b'{"messages":[1e999]}',
        b'{"messages":["\xff"]}', b'{"messages":[' + b"[" * 100 + b"]" * 100 + b"]}",
    ],
)  # fmt: skip
def test_what_is_no_usual_request_is_read_as_a_whole(data: bytes) -> None:
    opened = open_body(data, Fragments(1 << 20), None)
    assert opened is None or opened.read() is None


def _known(fragments: Fragments, data: bytes, space: str | None) -> tuple[int, int]:
    opened = open_body(data, fragments, space)
    assert opened is not None
    read = opened.read()
    assert read is not None
    return read[1].known, read[1].new


def test_callers_do_not_find_what_others_sent() -> None:
    fragments = Fragments(1 << 20)
    data = msgspec.json.encode(body("anthropic_messages", session(1)))
    known, new = _known(fragments, data, "one")
    assert (known, new > 5) == (0, True)
    assert _known(fragments, data, "one") == (0, new)
    assert _known(fragments, data, "one") == (new, 0)
    kept = len(fragments)
    assert _known(fragments, data, "two") == (0, new)
    assert len(fragments) == kept
    assert _known(fragments, data, "two") == (0, new)
    assert _known(fragments, data, "two") == (new, 0)


@pytest.mark.parametrize("fields", [("system", "tools"), ("tools", "system")])
def test_a_field_does_not_mean_what_another_one_meant(fields: tuple[str, str]) -> None:
    blocks = [{"type": "custom", "name": "look_up", "description": "d" * 40, "input_schema": {"type": "object"}}]
    fragments = Fragments(1 << 20)

    def sent(field: str, fragments: Fragments) -> bytes:
        said = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], field: blocks}
        opened = open_body(json.dumps(said).encode(), fragments, "space")
        read = opened.read() if opened is not None else None
        assert read is not None
        value, recall, _ = read
        known = None if recall.is_empty else recall
        request = get_dialect("anthropic_messages").decode_request(value, recall=known)
        return Exchange(request, ROUTES[3], Options(), known).call.body

    for _ in range(3):
        sent(fields[0], fragments)
    assert sent(fields[1], fragments) == sent(fields[1], Fragments(1 << 20))


def test_what_comes_once_is_only_noted() -> None:
    fragments = Fragments(1 << 20)
    asked = body("anthropic_messages", session(1))
    for number in range(5):
        asked["messages"][0] = {"role": "user", "content": f"Conversation {number}"}
        asked["system"] = f"The instructions of conversation number {number}. You are a tester."
        known, _ = _known(fragments, msgspec.json.encode(asked), "one")
        # The tools are the same in all of them.
        assert known == (number > 1)
    assert len(fragments) == 1


def test_a_conversation_is_known_by_its_beginning() -> None:
    fragments = Fragments(1 << 20)
    asked = body("anthropic_messages", session(1))
    first, *others = asked["messages"]
    beginning = {**asked, "messages": [first]}
    _known(fragments, msgspec.json.encode(beginning), "one")
    assert len(fragments) == 0
    _known(fragments, msgspec.json.encode({**asked, "messages": [first, *others[:2]]}), "one")
    known, _ = _known(fragments, msgspec.json.encode(asked), "one")
    assert known >= 3


def test_a_conversation_that_goes_on_outlives_the_turn_of_generations() -> None:
    """As a whole: it would be cut and its parts looked up again otherwise, each time that others have filled the memory."""
    fragments = Fragments(1 << 20)
    data = msgspec.json.encode(body("anthropic_messages", session(1)))
    for _ in range(2):
        _known(fragments, data, "one")
    others = iter(range(10**6))
    for turn in range(1, 4):
        while fragments.turned_over < turn:
            other = msgspec.json.encode({"messages": [{"role": "user", "content": f"{next(others)} " * 200}] * 3})
            for _ in range(2):
                _known(fragments, other, "two")
        assert [one.body for one in fragments.conversations("one")] == [data]
        assert _known(fragments, data, "one")[1] == 0
        assert fragments.conversations("one")[0].generation == fragments.turned_over
        assert fragments.used <= fragments.limit


def test_a_conversation_that_fills_a_generation_is_not_kept_as_a_whole() -> None:
    fragments = Fragments(1 << 20)
    messages = [{"role": "user", "content": f"{number} {'x' * 60}"} for number in range(400)]
    data = msgspec.json.encode({"messages": messages})
    for _ in range(4):
        _known(fragments, data, "one")
    assert fragments.conversations("one") == ()
    assert fragments.turned_over < 10


def test_a_memory_without_room_remembers_nothing() -> None:
    fragments = Fragments(1 << 20)
    data = msgspec.json.encode(body("anthropic_messages", session(1)))
    for _ in range(3):
        _known(fragments, data, "one")
    assert fragments.used
    fragments.set_limit(0)
    assert (len(fragments), fragments.used) == (0, 0)
    assert _known(fragments, data, "one")[0] == 0


def test_a_part_that_comes_twice_is_two_objects() -> None:
    fragments = Fragments(1 << 20)
    message = {"role": "user", "content": [{"type": "text", "text": "again", "cache_control": {"type": "ephemeral"}}]}
    data = msgspec.json.encode({"messages": [message, message]})
    _known(fragments, data, None)
    for _ in range(2):
        opened = open_body(data, fragments, None)
        assert opened is not None
        read = opened.read()
        assert read is not None
        first, second = read[0]["messages"]
        assert first == second == message
        assert first is not second
        assert read[1].of(first) is not read[1].of(second)


def test_whatever_comes_memory_stays_within_its_bound() -> None:
    """100,000 conversations under `./dev soak`, 500 in the gate."""
    fragments = Fragments(160 * DISTINCT)
    asked = body("anthropic_messages", session(3, 5))
    asked["messages"] = [message for message in asked["messages"] if message["role"] != "system"]
    template = msgspec.json.encode(asked)
    settled = 0
    for number in range(DISTINCT):
        data = template.replace(b"You are a tester.", b"You are tester number %d." % number)
        data = data.replace(b'"text":"', b'"text":"%d ' % number).replace(b'"content":"', b'"content":"%d ' % number)
        for _ in range(2):
            got = sent(PATHS["anthropic_messages"], data, ROUTES[3], OPTIONS[0], (fragments, str(number % 7)))
        assert isinstance(got, tuple)
        assert isinstance(got[0], bytes)
        assert fragments.used <= fragments.limit
        if number == DISTINCT // 5:
            settled = _resident()
    grown = _resident() - settled
    print(f"\n  {len(fragments)} parts, {fragments.used >> 10} KiB by count; grown by {grown >> 10} KiB after the first fifth")
    assert grown < 8 << 20


def _resident() -> int:
    gc.collect()
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_body_of_a_generation_that_has_gone_is_not_taken_from_the_next() -> None:
    fragments = Fragments(1 << 24)

    def send(messages: list[dict[str, str]], space: str) -> None:
        said = {"model": "m", "max_tokens": 9, "messages": messages}
        opened = open_body(json.dumps(said).encode(), fragments, space)
        read = opened.read() if opened is not None else None
        assert read is not None
        recall = None if read[1].is_empty else read[1]
        Exchange(get_dialect("anthropic_messages").decode_request(read[0], recall=recall), ROUTES[3], Options(), recall)

    short = [{"role": "user" if number % 2 == 0 else "assistant", "content": f"message {number}"} for number in range(3)]
    for _ in range(3):
        send(short, "one")
    send([*short, {"role": "assistant", "content": "on"}, {"role": "user", "content": "x" * 900_000}], "one")
    for number in range(200):
        if fragments.turned_over:
            break
        for _ in range(2):
            send([{"role": "user", "content": f"{number} " + "y" * 200_000}], f"other {number}")
    assert fragments.turned_over == 1
    before = fragments._size
    send(short, "one")
    assert fragments._size >= before


def test_many_conversations_stay_within_the_bound() -> None:
    fragments = Fragments(1 << 20)
    for number in range(2000):
        data = msgspec.json.encode(
            {"messages": [{"role": "user", "content": f"{number} " * 50}, {"role": "user", "content": "x"}]}
        )
        for _ in range(2):
            _known(fragments, data, "one")
        assert fragments.used <= fragments.limit
    assert len(fragments) > 10


# -- the short readers of usual messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [anthropic_messages, openai_chat])
def test_usual_messages_are_read_as_by_the_general_reader(dialect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = dialect.DIALECT.name
    bodies = [data for seed in range(300) for path, data in conversation(seed) if path == PATHS[name]]
    bodies += [
        msgspec.json.encode(json.loads(file.read_text(encoding="utf-8"))["body"])
        for file in sorted(CAPTURES.glob("*.json"))
        if json.loads(file.read_text(encoding="utf-8"))["path"].startswith(PATHS[name])
    ]

    def read(data: bytes) -> object:
        try:
            return dialect.DIALECT.decode_request(msgspec.json.decode(data))
        except AthenaError as error:
            return type(error), str(error)

    short = [read(data) for data in bodies]
    module = __import__(f"athena.dialects.{name}.decode_request", fromlist=["_plain_turn"])
    taken = [message for data in bodies for message in msgspec.json.decode(data)["messages"] if module._plain_turn(message)]
    assert len(taken) > 500
    monkeypatch.setattr(module, "_plain_turn", lambda message: None)
    assert [read(data) for data in bodies] == short


# -- what surrounds the messages ----------------------------------------------------------------------------------------------

_SAID = {"role": "user", "content": "Look at the first of these files, and then at the others."}
_TOOLS = [{"name": "read_file", "description": "Reads a file.", "input_schema": {"type": "object"}}]
_ADDED = {"name": "added", "description": "Added later.", "input_schema": {"type": "object"}}
_FOLLOWING: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"role": "assistant", "content": "I look."}],
    [{"role": "user", "content": [{"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]}],
    [{"role": "user", "content": [{"type": "text", "text": "Go on.", "unknown": 1}], "strange": {"a": 1}}],
    [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x", "strange": 1}}]}],
    [{"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": _ADDED}}]}],
    [{"role": "nobody", "content": "x"}],
    [{"role": "assistant", "content": "I look."}, {"role": "user", "content": "Go on."}],
)
_AROUND: tuple[dict[str, Any], ...] = (
    {},
    {"system": "Be brief, and say what you do before you do it.", "stream": True},
    {"thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u"}, "stop_sequences": ["END"]},
    {"output_config": {"effort": "low", "strange": 1}, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    {"unknown": {"a": [1]}, "context_management": {"edits": []}, "temperature": 0.5, "top_k": 3, "service_tier": "auto"},
    {"max_tokens": None},
    {"model": ""},
    {"tools": [*_TOOLS, {"type": "web_search_20250305", "name": "web_search", "strange": 1}]},
)


@pytest.mark.parametrize("around", _AROUND)
def test_what_surrounds_a_conversation_means_what_it_did(around: dict[str, Any]) -> None:
    dialect = get_dialect("anthropic_messages")
    fragments = Fragments(1 << 20)

    def read(value: dict[str, Any], version: str | None, recall: Recall | None) -> object:
        try:
            request = dialect.decode_request(value, version=version, recall=recall)
        except AthenaError as error:
            return type(error), str(error)
        return request, TokenCounter().measure(request, recall)

    for version in ("2023-06-01", None):
        for following in _FOLLOWING * 3:
            asked = {"model": "m", "max_tokens": 99, "tools": _TOOLS, "messages": [_SAID, *following], **around}
            data = msgspec.json.encode(asked)
            opened = open_body(data, fragments, None)
            assert opened is not None
            known = opened.read()
            assert known is not None
            value, recall, _ = known
            assert read(value, version, None if recall.is_empty else recall) == read(asked, version, None)
    untouched(fragments)


def test_what_surrounds_a_conversation_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = __import__("athena.dialects.anthropic_messages.decode_request", fromlist=["_next_request"])
    taken: list[object] = []
    following = module._next_request

    def noted(*given: object) -> object:
        taken.append(following(*given))
        return taken[-1]

    monkeypatch.setattr(module, "_next_request", noted)
    fragments = Fragments(1 << 20)
    history = [_SAID, {"role": "assistant", "content": "I look."}]
    for number in range(6):
        history = [*history, {"role": "user", "content": f"Go on with number {number}."}]
        data = msgspec.json.encode({"model": "m", "max_tokens": 99, "tools": _TOOLS, "messages": history, "metadata": {}})
        opened = open_body(data, fragments, None)
        assert opened is not None
        read = opened.read()
        assert read is not None
        recall = None if read[1].is_empty else read[1]
        request = get_dialect("anthropic_messages").decode_request(read[0], recall=recall)
        assert len(request.turns) == len(history)
    assert len([one for one in taken if one is not None]) == 3, "noted, kept, read, and then known"
