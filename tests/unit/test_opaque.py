"""Envelopes: what was sealed comes back, nothing else does. The store: bounded, per tenant."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena.model.parts import Opaque, Thinking
from athena.opaque import PREFIX, Envelope, Memory, OpaqueStore, is_envelope

_KINDS = st.sampled_from(["signature", "redacted", "encrypted", "thought_signature"])
_OPAQUES = st.builds(
    Opaque,
    family=st.sampled_from(["anthropic", "openai", "gemini", "unknown"]),
    kind=_KINDS,
    payload=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60),
    item_id=st.none() | st.text(alphabet="rs_0", max_size=5),
    format=st.none() | st.just("anthropic-claude-v1"),
)


@given(_OPAQUES, st.binary(min_size=1, max_size=40))
def test_what_is_sealed_comes_back(opaque: Opaque, key: bytes) -> None:
    sealed = Envelope(key).seal(opaque)
    assert is_envelope(sealed)
    assert Envelope(key).open(sealed) == opaque
    assert sealed == Envelope(key).seal(opaque), "history is replayed: the bytes must not change"
    assert set(sealed) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(_OPAQUES)
def test_another_key_opens_nothing(opaque: Opaque) -> None:
    assert Envelope(b"other").open(Envelope(b"key").seal(opaque)) is None


@given(_OPAQUES, st.data())
def test_altered_envelopes_open_as_nothing(opaque: Opaque, data: st.DataObject) -> None:
    sealed = Envelope(b"key").seal(opaque)
    place = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.sampled_from("Aa0-_.é\ud800"))
    altered = sealed[:place] + other + sealed[place + 1 :]
    if altered != sealed:
        assert Envelope(b"key").open(altered) is None
    assert Envelope(b"key").open(sealed[:place]) is None


@given(st.text(max_size=40))
def test_any_text_is_safe_to_open(text: str) -> None:
    assert Envelope(b"key").open(text) is None
    assert Envelope(b"key").open(PREFIX + text) is None


@pytest.mark.parametrize("text", ["", "ErcBCkgIAxABGAIiQ", "gw1", "gw2.a.b", " gw1.a.b"])
def test_foreign_state_is_no_envelope(text: str) -> None:
    assert not is_envelope(text)


def test_well_signed_nonsense_opens_as_nothing() -> None:
    envelope = Envelope(b"key")
    for body in (b"not json", b'{"family": 1}', b"[]"):
        text = base64.urlsafe_b64encode(body).rstrip(b"=")
        assert envelope.open(f"{PREFIX}{text.decode()}.{envelope._mac(text)}") is None


def _memory(payload: str) -> Memory:
    state = Opaque("anthropic", "signature", payload)
    return Memory(thinking=(Thinking(text="hm", signature=state),), signature=state)


def test_store_remembers_by_tenant_and_call() -> None:
    store = OpaqueStore()
    store.put("a", "call_1", _memory("x"))
    assert store.get("a", "call_1") == _memory("x")
    assert store.get("b", "call_1") is None
    assert store.get("a", "call_2") is None
    store.put("a", "call_1", _memory("y"))
    assert store.get("a", "call_1") == _memory("y")


def test_store_forgets_the_oldest_first() -> None:
    store = OpaqueStore(limit=3)
    for name in ("1", "2", "3"):
        store.put("t", name, _memory(name))
    store.put("t", "1", _memory("again"))
    store.put("t", "4", _memory("4"))
    assert store.get("t", "2") is None
    assert [name for name in "1234" if store.get("t", name) is not None] == ["1", "3", "4"]


def test_store_is_bounded_in_size_too() -> None:
    store = OpaqueStore(most_chars=102)
    for name in "1234":
        store.put("t", name, Memory(thinking=(Thinking(text="x" * 40),)))
    assert [name for name in "1234" if store.get("t", name) is not None] == ["3", "4"]
    store.put("t", "4", Memory(thinking=(Thinking(text="y" * 60),)))
    assert [name for name in "1234" if store.get("t", name) is not None] == ["3", "4"]
    store.put("t", "5", Memory(thinking=(Thinking(text="z" * 102),)))
    assert [name for name in "12345" if store.get("t", name) is not None] == []
