"""Token counts of Chat servers: where each hides cached, written and reasoning tokens.

Wire facts: docs/reference/wire-facts.md#usage.
"""

from __future__ import annotations

from typing import Any

from athena.dialects.decoders import token_count
from athena.model.events import Usage

_PLAIN = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""Of a server that counts nothing else."""
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")
_DETAILED = _PLAIN.union(_DETAILS)


def decode_usage(value: object) -> Usage | None:
    """The counts of a `usage` object; None for anything else."""
    if not isinstance(value, dict) or not value:
        return None
    if _PLAIN.issuperset(value) or (_DETAILED.issuperset(value) and not _has_details(value)):
        return Usage(
            input_total=token_count(value.get("prompt_tokens")),
            output_total=token_count(value.get("completion_tokens")),
            raw=value,
        )
    prompt = _mapping(value, "prompt_tokens_details", "input_tokens_details")
    completion = _mapping(value, "completion_tokens_details", "output_tokens_details")
    output = _count(value, "completion_tokens", "output_tokens")
    reasoning = _count(completion, "reasoning_tokens") or _count(value, "reasoning_tokens")
    if reasoning > output:
        # Some servers count reasoning beside the answer, not inside it.
        output += reasoning
    return Usage(
        input_total=_count(value, "prompt_tokens", "input_tokens"),
        output_total=output,
        cache_read=_count(prompt, "cached_tokens") or _count(value, "prompt_cache_hit_tokens", "cached_tokens"),
        cache_write=_count(prompt, "cache_write_tokens", "created_cache_tokens", "cache_creation_tokens"),
        reasoning=reasoning,
        audio_in=_count(prompt, "audio_tokens"),
        audio_out=_count(completion, "audio_tokens"),
        raw=value,
    )


def decode_timings(value: object) -> Usage | None:
    """llama.cpp's counts, for answers without `usage`."""
    if not isinstance(value, dict):
        return None
    cached = _count(value, "cache_n")
    return Usage(input_total=_count(value, "prompt_n") + cached, output_total=_count(value, "predicted_n"), cache_read=cached)


def encode_usage(usage: Usage, *, same_dialect: bool) -> dict[str, Any]:
    """A `usage` object: in the same dialect the upstream's own, with standard fields where it spells them otherwise."""
    standard = _standard(usage)
    if not same_dialect or usage.raw is None:
        return standard
    body = {**standard, **usage.raw}
    for key, wanted in (("prompt_tokens_details", usage.cache_read), ("completion_tokens_details", usage.reasoning)):
        own = usage.raw.get(key)
        if isinstance(own, dict):
            body[key] = {**own, **{name: count for name, count in standard[key].items() if count and not own.get(name)}}
        elif not wanted:
            body.pop(key)
            if key in usage.raw:
                body[key] = own
        else:
            body[key] = standard[key]
    return body


def _standard(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_total,
        "completion_tokens": usage.output_total,
        "total_tokens": usage.input_total + usage.output_total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": usage.audio_in,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": usage.audio_out},
    }


def _has_details(value: dict[str, Any]) -> bool:
    """Is anything counted besides the two totals?"""
    for name in _DETAILS:
        details = value.get(name)
        if type(details) is dict and any(details.values()):
            return True
    return False


def _mapping(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        if isinstance(value.get(key), dict):
            found: dict[str, Any] = value[key]
            return found
    return {}


def _count(value: dict[str, Any], *keys: str) -> int:
    for key in keys:
        number = value.get(key)
        if number and (found := token_count(number)):
            return found
    return 0
