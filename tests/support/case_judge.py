"""Does an SDK hold exactly what a case of `tests/cases/dialects` says, or did it raise an error of its own?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from athena.dialects import get_dialect
from support.canonical import FINISH_WORDS, Piece, Seen, expected_pieces
from support.cases import AnswerCase, Mode
from support.sdks import SDK_ERRORS

# The SDK's own stream helper refuses these endings by raising, whatever the server is.
_RAISES_ON_INCOMPLETE = {"openai_responses"}


def check_case(case: AnswerCase, mode: Mode, client: str, ask: Callable[[], Seen]) -> None:
    """Ask, and judge what came of it."""
    if case.error is not None or (case.finish == "malformed" and client != "gemini"):
        # A model that failed to call has a word only in the dialect it comes from; anywhere else it is an error.
        with pytest.raises(SDK_ERRORS[client]):
            ask()
        return
    assert case.finish is not None
    incomplete = FINISH_WORDS[client][case.finish][-1].startswith("incomplete")
    if mode == "stream" and client in _RAISES_ON_INCOMPLETE and incomplete:
        try:
            seen = ask()
        except SDK_ERRORS[client]:
            return
    else:
        seen = ask()
    check(case, client, seen)


def check(case: AnswerCase, client: str, seen: Seen) -> None:
    """The answer is the case's, piece by piece."""
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
