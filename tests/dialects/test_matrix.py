"""The promise, judged by outsiders: every upstream answer of every dialect, read by every official SDK.

Each case of each upstream dialect goes through the exchange to a client of each dialect over a real socket. The SDK must hold
exactly what the case says, or raise an error of its own. Nothing in between.
"""

from __future__ import annotations

import msgspec
import pytest

from athena.dialects import dialect_names, get_dialect
from athena.model.profile import Profile
from support.canonical import Piece, Seen, expected_pieces
from support.cases import AnswerCase, Mode, answer_modes, case_bytes
from support.loopback import Loopback, Script
from support.sdks import FINISH_WORDS, SDK_ERRORS, ask

PAIRS = [
    pytest.param(upstream, case, mode, client, id=f"{upstream}-to-{client}-{case.name}-{mode}")
    for upstream in dialect_names()
    for case, mode in answer_modes(upstream)
    for client in dialect_names()
]

# The SDK's own stream helper refuses these two endings by raising, whatever the server is.
RAISES_ON_INCOMPLETE = {"openai_responses"}


@pytest.mark.parametrize(("upstream", "case", "mode", "client"), PAIRS)
def test_sdk_holds_the_answer_or_raises(upstream: str, case: AnswerCase, mode: Mode, client: str, loopback: Loopback) -> None:
    model = f"{upstream}-{case.name}-{mode}-{client}"
    profile = msgspec.convert({"dialect": upstream, **case.profile}, Profile)
    script = Script(dialect=upstream, body=case_bytes(case, mode), stream=mode == "stream", profile=profile, exchanges=[])
    loopback.scripts[model] = script
    streamed = mode == "stream"
    if case.error is not None:
        with pytest.raises(SDK_ERRORS[client]):
            ask(client, loopback.url, model, stream=streamed)
        return
    assert case.finish is not None
    if streamed and client in RAISES_ON_INCOMPLETE and FINISH_WORDS[client][case.finish][-1].startswith("incomplete"):
        try:
            seen = ask(client, loopback.url, model, stream=streamed)
        except SDK_ERRORS[client]:
            return
    else:
        seen = ask(client, loopback.url, model, stream=streamed)
    check(case, mode, client, seen)


def check(case: AnswerCase, mode: Mode, client: str, seen: Seen) -> None:
    assert case.finish is not None
    if not any(part.choice for part in case.parts):
        assert seen.finish in FINISH_WORDS[client][case.finish]
    expected = [_as_client_sees(piece, client) for piece in expected_pieces(case)]
    calls = [piece for piece in expected if piece.kind == "call"]
    shown = seen.calls()
    if case.name.startswith("length_cut"):
        # The cut call is visible in streams that show arguments as they come; the finish says that it is not whole.
        shown = shown[: len(calls)]
    assert shown == calls
    if client == "openai_chat":
        for kind in ("thinking", "text"):
            assert seen.joined(kind) == "".join(piece.text for piece in expected if piece.kind == kind)
    elif not case.name.startswith("length_cut"):
        assert seen.pieces == expected
    assert len(set(seen.ids)) == len(seen.ids), "two calls with one id"
    if case.usage is not None and seen.usage is not None:
        assert {key: seen.usage[key] for key in case.usage if key in seen.usage} == {
            key: value for key, value in case.usage.items() if key in seen.usage
        }


def _as_client_sees(piece: Piece, client: str) -> Piece:
    """A free-form call reaches clients without such calls under the one key of an emulated tool."""
    if piece.kind == "call" and isinstance(piece.arguments, str) and not get_dialect(client).custom_calls:
        return Piece("call", piece.text, {"input": piece.arguments})
    return piece
