"""Sampling, length, reasoning effort and stop sequences as the target takes them.

Wire facts: docs/reference/wire-facts.md#reasoning-controls.
"""

from __future__ import annotations

from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import Any

import msgspec

from athena.dialects.base import EncodeTarget
from athena.errors import UnsupportedFeature
from athena.model.profile import Profile
from athena.model.request import Effort, Loss, Reasoning, Request
from athena.prepare.tools import is_thinking

_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "logprobs",
)
_sampling_of = attrgetter(*_SAMPLING)
_EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def fit_controls(request: Request, target: EncodeTarget, *, same: bool, losses: list[Loss]) -> tuple[Request, tuple[str, ...]]:
    """The request with the controls the target takes, and the stop sequences that are left for us to match."""
    profile = target.profile
    if request.n > 1 and not profile.choices:
        raise UnsupportedFeature(f"n: this upstream gives one answer per request, not {request.n}", path="n")
    changes: dict[str, Any] = {}
    taken = () if not profile.sampling_while_thinking and is_thinking(request, profile) else profile.sampling
    for field in compress(_SAMPLING, map(is_not, _sampling_of(request), repeat(None))):
        portable = field != "logit_bias" or same
        if field not in taken or not portable:
            if target.strict:
                raise UnsupportedFeature(f"{field}: this upstream does not take it", path=field)
            changes[field] = None
            losses.append(Loss(field, "not taken by this upstream"))
    if request.temperature is not None:
        _fit_temperature(request, profile, changes, losses)
    if request.parallel is False and not profile.parallel_switch:
        changes["parallel"] = None
        losses.append(Loss("parallel_tool_calls", "this upstream cannot switch parallel calls off"))
    reasoning = _fit_effort(request.reasoning, profile) if request.reasoning.effort is not None else request.reasoning
    if reasoning is not request.reasoning:
        changes["reasoning"] = reasoning
        losses.append(
            Loss(
                "reasoning.effort",
                f"{request.reasoning.effort} is sent as {reasoning.effort}, the nearest it knows",
                "repaired",
            )
        )
    stops = request.stop[profile.stop_limit :]
    if stops:
        changes["stop"] = request.stop[: profile.stop_limit]
        losses.append(Loss("stop", "matched by the gateway", "emulated"))
    return (msgspec.structs.replace(request, **changes) if changes else request), stops


def _fit_temperature(request: Request, profile: Profile, changes: dict[str, Any], losses: list[Loss]) -> None:
    if request.temperature is None or "temperature" in changes:
        return
    if profile.temperature_max is not None and request.temperature > profile.temperature_max:
        changes["temperature"] = profile.temperature_max
        losses.append(Loss("temperature", f"lowered to {profile.temperature_max}, the most this upstream takes", "repaired"))
    if not profile.temperature_and_top_p and request.top_p is not None and "top_p" not in changes:
        changes["top_p"] = None
        losses.append(Loss("top_p", "this upstream takes it only without temperature"))


def _fit_effort(reasoning: Reasoning, profile: Profile) -> Reasoning:
    effort = reasoning.effort
    if effort in profile.effort_map:
        # The target's own word, which may be none of ours.
        return msgspec.structs.replace(reasoning, effort=profile.effort_map[effort])
    if effort is None or effort in profile.efforts or not profile.efforts:
        return reasoning
    position = _EFFORTS.index(effort)
    known = [candidate for candidate in _EFFORTS if candidate in profile.efforts]
    if not known:
        return reasoning
    lower = [candidate for candidate in known if _EFFORTS.index(candidate) < position and candidate != "none"]
    return msgspec.structs.replace(reasoning, effort=lower[-1] if lower else known[0])
