"""Which recorded answer a request gets, and how the server that plays them speaks HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from athena.recording import file, lines
from athena.recording.lines import Payload, Recording
from athena.recording.playback import Playlist
from athena.testing import ReplayedUpstream, replayed_upstream
from support.patience import PATIENCE

CHAT = "/v1/chat/completions"


def asked(model: str = "m", text: str = "Hi", **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], **more}).encode()


def recorded(name: str, body: bytes, at: float = 0.0) -> Recording:
    """An exchange whose upstream was asked this and answered with the name of the exchange."""
    kind = "text/event-stream" if json.loads(body).get("stream") else "application/json"
    return Recording(
        header=lines.Header(name, at=at),
        request=lines.ClientRequest(Payload.of(b"{}"), path="/v1/messages", dialect="anthropic_messages"),
        happened=(
            lines.Attempt(0.0, 0, CHAT, {}, Payload.of(body)),
            lines.UpstreamHead(0.1, 200, {"content-type": kind}),
            lines.Read(0.2, Payload.of(name.encode())),
            lines.AttemptEnd(0.3),
        ),
    )


def played(recordings: list[Recording], *bodies: bytes) -> list[str]:
    playlist = Playlist(recordings)
    return [found.id for body in bodies if (found := playlist.answer(CHAT, body)) is not None]


@contextmanager
def upstream_of(path: Path, *recordings: Recording) -> Iterator[ReplayedUpstream]:
    path.write_bytes(b"".join(file.encode(recording) for recording in recordings))
    with replayed_upstream(path) as upstream:
        yield upstream


def test_answers_come_in_the_order_of_the_recorded_times() -> None:
    newest_first = [recorded(name, asked(), at) for name, at in (("third", 30.0), ("second", 20.0), ("first", 10.0))]
    assert played(newest_first, asked(), asked(), asked()) == ["first", "second", "third"]
    assert played(newest_first, *[asked(text="something else")] * 3) == ["first", "second", "third"]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_stream_answers_a_stream_and_a_whole_answer_the_rest(is_reversed: bool) -> None:
    streamed, whole = recorded("streamed", asked("m-true", stream=True)), recorded("whole", asked("m-false", stream=False))
    both = [whole, streamed] if is_reversed else [streamed, whole]
    assert played(both, *[asked("m-true", stream=True, temperature=0)] * 2) == ["streamed"] * 2
    assert played(both, *[asked("m-false", temperature=0)] * 2) == ["whole"] * 2
    other_turn = recorded("whole", asked("m", stream=False, text="the words that are asked for"))
    wanted = asked("m", stream=True, text="the words that are asked for")
    assert played([other_turn, streamed], wanted) == ["streamed"], "a client that reads a stream cannot read a whole answer"
    assert played([whole], asked(stream=True)) == ["whole"], "nothing else is there"


def test_the_model_counts_among_answers_that_fit_equally() -> None:
    both = [recorded("of a", asked("a")), recorded("of b", asked("b"))]
    assert played(both, asked("b", temperature=0), asked("a", temperature=0)) == ["of b", "of a"]
    assert played(both, asked("c"), asked("c")) == ["of a", "of b"]
    talks = [recorded("of a", asked("a", text="one")), recorded("of b", asked("b", text="two"))]
    assert played(talks, asked("b", text="one")) == ["of a"], "what is said counts more"


def test_a_connection_that_the_client_wants_closed_is_closed(tmp_path: Path) -> None:
    with upstream_of(tmp_path / "one.athena", recorded("one", asked())) as upstream:
        host, port = upstream.url.removeprefix("http://").split(":")
        for head, last in (
            (f"POST {CHAT}", b"0\r\n\r\n"),
            ("POST /nothing", b"}"),
            ("GET /v1/models", b"}"),
        ):
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as opened:
                body = asked()
                opened.sendall(f"{head} HTTP/1.1\r\nConnection: Close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
                answer = b"".join(iter(lambda: opened.recv(65536), b""))
            assert b"\r\nconnection: close\r\n" in answer
            assert answer.endswith(last)


def test_only_lists_of_models_are_read_and_nothing_is_played_for_a_head(tmp_path: Path) -> None:
    with upstream_of(tmp_path / "one.athena", recorded("one", asked())) as upstream:
        with closing(http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=PATIENCE)) as connection:

            def ask(method: str, path: str) -> tuple[int, bytes]:
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.read()

            for path in ("/", "/v1/models", "/v1/models?limit=20"):
                assert ask("HEAD", path) == (200, b"")
                assert ask("GET", path)[0] == 200
            assert json.loads(ask("GET", "/v1/models")[1])["object"] == "list"
            for path in ("/nope", CHAT):
                assert ask("HEAD", path) == (404, b"")
                assert b"no_recording" in ask("GET", path)[1]
        assert upstream.requests == []


def test_an_agent_gets_what_the_gateway_told_and_a_gateway_what_the_upstream_said() -> None:
    """The same was asked of both at the same path, as in Chat over Chat: the headers tell who asks, again and again."""
    sent = {"content-type": "application/json", "accept": "application/json", "user-agent": "OpenAI/Python"}
    own = {**sent, "host": "localhost", "accept-encoding": "gzip", "x-stainless-lang": "python", "x-stainless-os": "Linux"}
    both = [
        Recording(
            header=lines.Header(name, at=at),
            request=lines.ClientRequest(Payload.of(asked()), path=CHAT, dialect="openai_chat", headers=own),
            happened=(
                lines.Attempt(0.0, 0, CHAT, sent, Payload.of(asked())),
                lines.UpstreamHead(0.1, 200, {}),
                lines.Read(0.2, Payload.of(b"the upstream")),
                lines.ClientHead(0.2, 200, {}),
                lines.Write(0.2, Payload.of(b"the gateway")),
                lines.AttemptEnd(0.3),
            ),
        )
        for name, at in (("first", 1.0), ("second", 2.0))
    ]
    for headers, words in ((own, b"the gateway"), (sent, b"the upstream")):
        playlist = Playlist(both)
        got = [playlist.answer(CHAT, asked(), {*headers, "authorization", "content-length"}) for _ in range(3)]
        assert [each.pieces[0][1] for each in got if each is not None] == [words] * 3
        assert [each.id for each in got if each is not None] == ["first", "second", "first"]
