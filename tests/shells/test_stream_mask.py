"""Secrets in recorded frames and debug bodies: masked wherever the stream is cut."""

from __future__ import annotations

import json
import re
import stat
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.exchange import UpstreamCall
from athena.recording.room import Room
from athena.recording.tap import RecordingTap
from athena.serving.record import RequestRecord
from athena.shells import logs
from athena.shells.config import Config, Log, Secret, Upstream
from athena.shells.gateway.taps import BodyLines
from athena.shells.logs import log_body
from athena.shells.recorder.frames import Frames, FrameWriter
from athena.shells.stream_mask import StreamMask
from support.echoing_upstream import EchoingUpstream
from support.gateway_process import running_gateway
from support.patience import PATIENCE
from support.recorded import PLAIN, Recorded

KEY = 'sk-canary/5d41402a"bc'
FRAME = b'data: {"error": "no such key: ' + json.dumps(KEY).encode()[1:-1] + b' sk-canar"}\n\n'


def masked(secrets: list[str], pieces: list[bytes]) -> bytes:
    mask = StreamMask(secrets)
    return b"".join([*map(mask.feed, pieces), mask.close()])


def split(data: bytes, places: tuple[int, ...]) -> list[bytes]:
    edges = (0, *places, len(data))
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize(
    "text", [KEY.encode(), json.dumps(KEY).encode()[1:-1], json.dumps(KEY).encode()[1:-1].replace(b"/", b"\\/")]
)
def test_every_split_of_every_spelling(text: bytes) -> None:
    data = b"before sk-ca " + text + b" between " + text + text + b" after"
    wanted = b"before sk-ca *** between ****** after"
    for count in (1, 2):
        for places in combinations(range(len(data) + 1), count):
            assert masked([KEY], split(data, places)) == wanted, places
    assert masked([KEY], [data[at : at + 1] for at in range(len(data))]) == wanted


def test_one_secret_begins_like_another_or_ends_like_its_beginning() -> None:
    secrets = ["abcdef", "abcdefgh", "xxabcd"]
    for data, wanted in (
        (b"-abcdef-", b"-***-"),
        (b"-abcdefgh-", b"-***-"),
        (b"-abcdefgX-", b"-***gX-"),
        (b"-xxabcdef-", b"-***ef-"),
        (b"-xxabcabcdef-", b"-xxabc***-"),
    ):
        for places in combinations(range(len(data) + 1), 2):
            assert masked(secrets, split(data, places)) == wanted, (data, places)


def test_the_end_of_a_stream_may_cut_a_secret_off() -> None:
    assert masked(["abcdefgh"], [b"text abcdefg"]) == b"text ***"
    assert masked(["abcdefgh"], [b"text abc"]) == b"text abc", "too little to be one"


def test_no_more_is_held_than_a_secret_is_long() -> None:
    mask = StreamMask(["a" * 100])
    shown = b"".join(mask.feed(b"a" * 7 + b"b") for _ in range(1000))
    assert len(shown) >= 8000 - 100
    assert mask.feed(b"a" * 99) == b""
    assert mask.feed(b"b") == b"a" * 99 + b"b"


def test_short_values_are_no_secrets() -> None:
    assert masked(["key", ""], [b"the key"]) == b"the key"


@given(
    st.lists(st.text("ab", min_size=6, max_size=9), max_size=3),
    st.lists(st.text("abc", max_size=12).map(str.encode), max_size=8),
)
def test_cuts_change_nothing(secrets: list[str], pieces: list[bytes]) -> None:
    known = sorted({secret.encode() for secret in secrets}, key=len, reverse=True)
    data = b"".join(pieces) + b"c"  # nothing is cut off by the end
    wanted = re.sub(b"|".join(map(re.escape, known)), b"***", data) if known else data
    assert masked(secrets, [*pieces, b"c"]) == wanted


# -- where it is used ------------------------------------------------------------------------------------------------------


def streamed(request_id: str, *pieces: bytes) -> RecordingTap:
    """A request whose upstream answered with these pieces."""
    tap = RecordingTap(RequestRecord(request_id=request_id), None, Room(1 << 20), lambda tap: None, version="test")
    tap.upstream_head(200, {}, 0.0)
    for piece in pieces:
        tap.upstream_bytes(piece, 0.0)
    return tap


def test_a_recording_at_every_split(tmp_path: Path) -> None:
    writer = FrameWriter(1 << 20)
    for at in range(len(FRAME) + 1):
        writer.put(Frames(str(tmp_path / "frames"), streamed(f"r{at}", FRAME[:at], FRAME[at:]), (KEY,)))
    writer.close()
    files = list((tmp_path / "frames").iterdir())
    assert len(files) == len(FRAME) + 1
    assert {file.read_bytes() for file in files} == {b'data: {"error": "no such key: *** sk-canar"}\n\n'}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_debug_lines_at_every_split(tmp_path: Path) -> None:
    """Each piece is a line of its own, so a line's own redaction sees only half of a key."""
    file = tmp_path / "a.log"
    upstream = Upstream(base_url="http://127.0.0.1:9", api_key=Secret(KEY))
    config = Config(upstreams={"u": upstream}, log=Log(file=str(file), level="debug", format="json"))
    logs.configure(config, threaded=False)
    try:
        for at in range(len(FRAME) + 1):
            tap = BodyLines("r", (KEY,))
            tap.upstream_head(200, {}, 0.0)
            tap.upstream_bytes(FRAME[:at], 0.0)
            tap.upstream_bytes(FRAME[at:], 0.0)
            tap.answered()
    finally:
        logs.shut_down()
    bodies = "".join(json.loads(line)["body"] for line in file.read_text().splitlines())
    assert bodies == 'data: {"error": "no such key: *** sk-canar"}\n\n' * (len(FRAME) + 1)


def test_the_clients_key_in_the_bodies_of_requests(tmp_path: Path) -> None:
    """No configuration knows it, and it has no looks by which a line would tell it."""
    key, file = "open sesame, please", tmp_path / "a.log"
    world = Recorded()
    world.serve("openai_chat", "openai_chat/m", (200, [PLAIN]), text=f"my key is {key}")
    asked = world.keeper.taps[-1].asked_as
    assert asked is not None
    logs.configure(Config(log=Log(file=str(file), level="debug", format="json")), threaded=False)
    try:
        tap = BodyLines("r", (key,))
        tap.asked(asked)
        tap.sent(asked.targets[0], UpstreamCall("/v1/chat/completions", {}, asked.body), "/v1/chat/completions", [], 0.0)
    finally:
        logs.shut_down()
    assert len(file.read_text().splitlines()) == 2
    assert "my key is ***" in file.read_text()
    assert key not in file.read_text()


def test_a_body_that_is_cut_inside_a_key(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    upstream = Upstream(base_url="http://127.0.0.1:9", api_key=Secret("open sesame, please"))
    logs.configure(Config(upstreams={"u": upstream}, log=Log(file=str(file), level="debug", format="json")), threaded=False)
    try:
        for missing in range(1, 19):
            log_body("client request", "r", b" " * (16 * 1024 - missing) + b"open sesame, please" + b" " * 9)
    finally:
        logs.shut_down()
    assert not re.search("open s", file.read_text())


def test_what_waits_for_a_slow_disk_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = FrameWriter(len(FRAME))
    writer.put(Frames(str(tmp_path), streamed("large", FRAME, FRAME), ()))
    writer.put(Frames(str(tmp_path), streamed("small", FRAME), ()))
    writer.close()
    assert [file.name.rpartition("_")[2] for file in tmp_path.iterdir()] == ["small.log"]
    assert "request large is not in log.sse_dir: too many wait" in caplog.text


@pytest.mark.parametrize(("forwarded", "record"), [(False, {}), (True, {"record": False}), (True, {"record": True})])
def test_an_upstream_that_repeats_its_key(tmp_path: Path, forwarded: bool, record: dict[str, Any]) -> None:
    """Through a whole gateway, a byte at a time: the client's own key as well, where it is sent on."""
    key = "canary-5d41402abc4b2a76b9719d911017c592"
    with EchoingUpstream(piece=1) as upstream:
        settings = {"forward_client_key": True} if forwarded else {"api_key": key}
        value = {
            "upstreams": {"u": {"base_url": upstream.url, **settings}},
            "models": [{"match": "*", "use": "u"}],
            "log": {"sse_dir": str(tmp_path / "frames")},
            "envelope_key": "test",
            "state_dir": str(tmp_path / "state"),
            **record,
        }
        with running_gateway(value, tmp_path) as gateway:
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
            answer = httpx.post(
                f"{gateway.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE
            )
            assert answer.status_code == 200
        (file,) = (tmp_path / "frames").iterdir()
        assert upstream.visits[0].headers["authorization"] == f"Bearer {key}"
    recorded = file.read_bytes()
    assert b"your key is Bearer ***" in recorded
    assert recorded.endswith(b"data: [DONE]\n\n")
    said = "\n".join(gateway.logs.lines)
    shown = "".join(re.findall(r"'direction': 'upstream answer'.*?'body': '(.*?)'\}", said))
    assert "your key is Bearer ***" in shown
    assert key not in said
    assert key not in shown
