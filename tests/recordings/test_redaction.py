"""What must not be in a recording: credentials never, and the words of people not after it is redacted."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import UpstreamClosed
from athena.model.parts import Opaque, Thinking
from athena.opaque import Memory
from athena.recording import file, lines
from athena.recording.compare import difference
from athena.recording.redact import redacted
from athena.recording.replay import replay
from athena.recording.secrets import PLACEHOLDERS, Mask, plain_headers, plain_mapping, plain_pairs, plain_query
from athena.recording.shapes import shape, still_reproduces
from athena.serving.actions import Send
from athena.shells.agent_run import ANY_KEY
from support.examples import examples
from support.recorded import DIALECTS, KEY, PLAIN, Recorded, answers, cut
from support.serving_values import next_send


def test_credentials_never_enter() -> None:
    world = Recorded()
    secrets = ("sk-client-445566", "sk-upstream-7788990011", "sk-cookie-112233")
    said = json.dumps({"error": {"message": f"bad key {secrets[0]} and {secrets[1]}", "type": "auth"}}).encode()
    pieces = [said[:30], said[30:40], said[40:]]
    recording = world.serve(
        "anthropic_messages", "openai_chat/m", (401, pieces), stream=False, cookie="a=b", text=f"my {secrets[0]}"
    )
    text = file.encode(recording).decode()
    for secret in secrets:
        assert secret not in text
    assert recording.upstream_bytes == said.replace(secrets[0].encode(), b"***").replace(secrets[1].encode(), b"***")
    assert difference(recording, replay(recording)).differences == []
    assert plain_headers([("X-Api-Key", "k"), ("Accept", "a"), ("x-auth-token", "t"), ("Cookie", "c")]) == {"accept": "a"}
    assert plain_query("alt=sse&key=secret&token=x") == "alt=sse"


@pytest.mark.parametrize("secret", ["sk-plain-1122334455", 'sk-"quoted"\\-112233', "sk-\u00fcml\u00e4ut-112233"])
@pytest.mark.parametrize("place", ["x-session-id", "x-agent-id", "user-agent", "x-other", "failure", "nowhere"])
def test_a_secret_is_masked_in_every_part(secret: str, place: str) -> None:
    world = Recorded()
    headers: dict[str, Any] = {place: f"of {secret}"} if "-" in place else {}
    serving = world.begin("openai_chat", "openai_chat/m", stream=False, **headers)
    assert isinstance(next_send(serving), Send)
    serving.sending(world.house.now)
    said = f"refused {secret}" if place == "failure" else "the connection broke"
    serving.failed(UpstreamClosed(said, code="upstream_closed"), world.house.now)
    serving.stop("client_closed", world.house.now)
    serving.close(world.house.now)
    (tap,) = world.keeper.taps
    bare, hidden = tap.made(()), tap.made((secret,))
    written = json.dumps(secret, ensure_ascii=False)[1:-1].encode()
    assert (written in file.encode(bare)) == (place != "nowhere")
    assert written not in file.encode(hidden)
    if place == "nowhere":
        assert hidden == bare


def test_a_secret_is_masked_however_a_server_writes_it() -> None:
    """Some escape slashes and all letters but those of ASCII, and arguments are JSON inside of JSON."""
    secret = 'sk/slashed/"quoted"-\u00fcml-112233'
    once = json.dumps(secret)[1:-1]
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    slashed = once.replace("/", "\\/")
    for written in (
        secret,
        once,
        plain,
        slashed,
        plain.replace("/", "\\/"),
        *(json.dumps(each)[1:-1] for each in (once, slashed, plain)),
    ):
        assert Mask((secret,)).data(f"a {written} b".encode()) == b"a *** b", written
    said = b'{"error":{"message":"bad key sk-client\\/445566","type":"auth"}}'
    world = Recorded()
    world.serve("openai_chat", "openai_chat/m", (401, [said]), stream=False)
    (tap,) = world.keeper.taps
    kept = file.encode(tap.made(("sk-client/445566",)))
    assert b"445566" not in kept


@given(st.lists(st.binary(max_size=12), max_size=12), st.sampled_from((b"secret-1", b"another-secret")))
def test_a_secret_is_masked_wherever_it_is_cut(parts: list[bytes], secret: bytes) -> None:
    whole = secret.join(parts)
    pieces = [whole[at : at + 5] for at in range(0, len(whole), 5)]
    masked = Mask(("secret-1", "another-secret")).pieces(pieces)
    assert len(masked) == len(pieces)
    assert secret not in b"".join(masked) or b"***" in secret
    assert b"".join(masked) == whole.replace(b"another-secret", b"***").replace(b"secret-1", b"***") or b"***" in whole


def plants(dice: random.Random) -> dict[str, str]:
    """Secrets of every kind, no two alike, by where they are planted."""

    def code(length: int, letters: str = "0123456789abcdef") -> str:
        return "".join(dice.choice(letters) for _ in range(length))

    def private_key(kind: str) -> str:
        return f"-----BEGIN {kind}PRIVATE KEY-----\nMIIEv{code(40)}Qz\n-----END {kind}PRIVATE KEY-----"

    return {
        "header key": f"sk-ant-{code(24)}",
        "header mail": f"otto.{code(6)}@{code(6)}.example.org",
        "header session": f"Ilse Grünwald-{code(8)}",
        "cookie": f"sid={code(32)}",
        "url query": f"AIza{code(35)}",
        "prompt key": f"sk-proj-{code(32)}",
        "prompt mail": f"kasimir.{code(6)}@{code(6)}.example.org",
        "prompt url": f"https://bob:{code(16)}@host.example/x?token={code(24)}",
        "prompt private key": private_key("RSA "),
        "prompt card": code(16, "123456789"),
        "prompt bearer": f"Bearer {code(20)}.{code(20)}.{code(20)}",
        "answer mail": f"berta+{code(6)}@{code(6)}.example.com",
        "answer key": f"ghp_{code(36)}",
        "thought private key": private_key("EC "),
        "argument url": f"postgres://amy:{code(12)}@db.example:5432/x",
        "argument key": f"AKIA{code(16, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567')}",
    }


def joined_plants(secret: dict[str, str], place: str) -> str:
    return "\n".join(value for name, value in secret.items() if name.startswith(place))


def test_500_secrets_are_gone_and_events_stay() -> None:
    """Planted in URLs, headers, cookies, prompts, systems, tools' descriptions, answers' texts, reasoning and arguments, for
    clients and upstreams of all dialects."""
    world, dice = Recorded(), random.Random(15)
    planted: set[str] = set()
    for number, (upstream, client) in enumerate(itertools.product(DIALECTS, DIALECTS)):
        for round_ in range(2):
            secret = plants(dice)
            arguments = json.dumps({"city": joined_plants(secret, "argument"), "days": 3}, ensure_ascii=False)
            body = stream_of(upstream, joined_plants(secret, "answer"), joined_plants(secret, "thought"), arguments)
            headers: dict[str, Any] = {
                "x-custom-token": secret["header key"],
                "x-note": secret["header mail"],
                "x-session-id": secret["header session"],
                "cookie": secret["cookie"],
            }
            recording = world.serve(
                client,
                f"{upstream}/m",
                (200, cut(body, number * 2 + round_)),
                text=joined_plants(secret, "prompt"),
                query=f"alt=sse&key={secret['url query']}",
                **headers,
            )
            kept = file.encode(recording).decode()
            missing = {
                name
                for name, value in secret.items()
                if not any(each in kept for each in spellings(value)) and not joined_bytes(recording, value)
            }
            assert missing == {"header key", "cookie", "url query"}, "credentials by their place, which enter no recording"
            assert difference(recording, replay(recording)).differences == []
            clean = redacted(recording, KEY)
            text = file.encode(clean).decode()
            for name, value in secret.items():
                assert not any(each in text for each in spellings(value)), (name, value)
                assert not joined_bytes(clean, value), (name, value)
                for part in value.split():
                    if len(part) >= 6 and part not in ("PRIVATE", "KEY-----", "-----BEGIN", "-----END", "Bearer"):
                        assert part not in text, (name, part)
            planted.update(secret.values())
            assert clean.header.redacted
            assert still_reproduces(clean), clean.header.notes
            assert shape(replay(clean).events, ["get_weather"]) == shape(replay(recording).events, ["get_weather"])
            assert difference(clean, replay(clean)).differences == []
            sizes = [len(line.body.data) for line in recording.happened if isinstance(line, lines.Read)]
            assert [len(line.body.data) for line in clean.happened if isinstance(line, lines.Read)] == sizes
    assert len(planted) >= 500


def test_what_the_line_of_a_request_says_is_redacted() -> None:
    """A failure quotes what a person or an upstream wrote, and a warning names fields that a client made up."""
    said = json.dumps({"error": {"message": "mail joe.miller@corpzebra.example, number 078051120", "code": "zweisteincode"}})
    recording = Recorded().serve(
        "anthropic_messages", "openai_chat/m", (400, [said.encode()]), stream=False, query="user=zweistein&beta=true"
    )
    assert "corpzebra" in recording.outcome.record["error_message"]
    record = {
        **recording.outcome.record,
        "path": "/zweistein/v1/messages",
        "url": "https://zweistein.example/tenant-zweistein/v1/chat/completions",
        "warning_text": "zweisteinfield dropped: not known here",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "new_field": "of zweistein",
    }
    loss = {"path": "messages[0].zweisteinfield", "reason": 'got "zweistein"', "action": "dropped"}
    details = {**recording.outcome.details, "losses": [loss], "answer_losses": [loss], "new_detail": ["zweistein"]}
    recording = msgspec.structs.replace(
        recording,
        request=msgspec.structs.replace(recording.request, path="/zweistein/v1/messages"),
        outcome=lines.RecordedOutcome(record, details),
    )
    clean = redacted(recording, KEY)
    text = file.encode(clean).decode()
    for word in ("joe", "corpzebra", "078051120", "zweistein", "0af7651916cd43dd8448eb211c80319c"):
        assert word not in text, word
    assert clean.request.query == "beta=true"
    assert clean.outcome.record["status"] == recording.outcome.record["status"]
    assert clean.outcome.record["outcome"] == recording.outcome.record["outcome"]
    assert clean.outcome.record["upstream"] == "openai_chat"
    assert clean.outcome.details["losses"][0]["action"] == "dropped"
    assert clean.outcome.details["attempts"] == recording.outcome.details["attempts"]


def spellings(value: str) -> tuple[str, ...]:
    """A secret as it may stand in a file: plain, in a JSON string, and in a JSON string inside of one."""
    once = json.dumps(value, ensure_ascii=False)[1:-1]
    return value, once, json.dumps(once, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]


def joined_bytes(recording: lines.Recording, value: str) -> bool:
    """Does it stand in what came or left, however that was cut? Arguments are strings inside of strings."""
    whole = (recording.request.body.data + recording.upstream_bytes + recording.client_bytes).decode("utf-8", "replace")
    return any(each in whole for each in spellings(value))


def stream_of(dialect: str, said: str, thought: str, arguments: str) -> bytes:
    """An answer with text, reasoning and a call, written by the dialect's own encoder from another one's stream."""
    records = [
        {"reasoning_content": thought},
        {"content": said},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
            ]
        },
    ]
    chunks = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
               "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in records]  # fmt: skip
    chunks.append({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                   "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})  # fmt: skip
    body = (
        b"".join(b"data: " + json.dumps(each, ensure_ascii=False).encode() + b"\n\n" for each in chunks) + b"data: [DONE]\n\n"
    )
    if dialect == "openai_chat":
        return body
    return Recorded().serve(dialect, "openai_chat/m", (200, [body])).client_bytes


def test_every_answer_of_every_dialect_stays_itself_when_redacted() -> None:
    world, clients = Recorded(), itertools.cycle(DIALECTS)
    unlike = []
    total = 0
    for upstream in DIALECTS:
        for number, (name, stream, whole) in enumerate(answers(upstream)):
            client = next(clients)
            streamed = number % 2 == 0
            recording = world.serve(client, f"{upstream}/m", (200, cut(stream if streamed else whole, number)), stream=streamed)
            clean = redacted(recording, KEY)
            total += 1
            if not still_reproduces(clean):
                unlike.append((upstream, name, client, clean.header.notes))
    assert not unlike, f"{len(unlike)} of {total}: {unlike[:3]}"


@pytest.mark.parametrize("odd", [b"\\ud83d", b"\xff\xfe"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_with_half_a_character_stays_itself_when_redacted(dialect: str, odd: bytes) -> None:
    """At home, where the answer's own fields reach the client."""
    world, tried = Recorded(), 0
    for name, stream, whole in answers(dialect):
        for streamed, data in ((True, stream), (False, whole)):
            broken = data.replace(b"Paris", b"Pa" + odd + b"ris").replace(b"Hello", b"Hel" + odd + b"lo")
            if broken == data:
                continue
            tried += 1
            recording = world.serve(dialect, f"{dialect}/m", (200, cut(broken, tried)), stream=streamed)
            clean = redacted(recording, KEY)
            assert still_reproduces(clean), (name, clean.header.notes)
    assert tried


def test_a_key_that_is_none_is_not_masked() -> None:
    """An agent without a key sends `athena`, a word that errors of Gemini's style hold."""
    assert ANY_KEY in PLACEHOLDERS
    world = Recorded()
    begun = world.begin("gemini", "openai_chat/m")
    next_send(begun)
    begun.sending(1000.5)
    begun.head(200, {"content-type": "text/event-stream"}, 1000.75)
    begun.data(PLAIN, 1001.0)
    begun.end(None, 1002.0)
    begun.close(1002.5)
    tap = world.keeper.taps[-1]
    tap._key = ANY_KEY
    recording = tap.made(())
    assert b'"domain":"athena"' in recording.client_bytes
    assert difference(recording, replay(recording)).equal
    tap._key = "a-true-key-of-somebody"
    assert tap.asked_as is not None
    body = tap.body.replace(b"}", b',"x":"a-true-key-of-somebody"}', 1)
    tap.asked_as = msgspec.structs.replace(tap.asked_as, body=body)
    assert b"a-true-key-of-somebody" not in file.encode(tap.made(()))


def test_what_is_remembered_of_earlier_turns_can_be_read_when_it_is_redacted() -> None:
    world = Recorded()
    recording = world.serve("openai_chat", "openai_chat/m", (200, [next(answers("openai_chat"))[1]]))
    state = Opaque(family="anthropic", kind="signature", payload="c2VjcmV0IHdvcmRz", format="anthropic-claude-v1")
    memory = Memory(thinking=(Thinking(text="secret words", signature=state),), signature=state)
    remembered = {"call_1": msgspec.to_builtins(memory)}
    clean = redacted(
        msgspec.structs.replace(recording, seals=msgspec.structs.replace(recording.seals, remembered=remembered)), b"k" * 32
    )
    (kept,) = clean.seals.remembered.values()
    read = msgspec.convert(kept, Memory)
    assert read.signature is not None
    assert (read.signature.family, read.signature.kind, read.signature.format) == (state.family, state.kind, state.format)
    assert b"secret" not in file.encode(clean)
    assert difference(clean, replay(clean)).equal


HEADER_NAMES = st.sampled_from(["accept", "Accept", "x-api-key", "authorization", "user-agent", "X-Token", "cookie", "date"])


@examples(60)
@given(st.lists(st.tuples(HEADER_NAMES, st.text(st.characters(max_codepoint=255), max_size=4)), max_size=6))
def test_headers_lose_the_same_credentials_however_they_are_given(pairs: list[tuple[str, str]]) -> None:
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    assert plain_pairs(sent) == plain_headers(pairs)
    assert plain_mapping(dict(pairs)) == plain_headers(dict(pairs).items())
