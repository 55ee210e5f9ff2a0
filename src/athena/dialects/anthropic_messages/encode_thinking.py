"""How much to think, in the words this model takes.

Wire facts: docs/reference/wire-facts.md#anthropic-tools-and-thinking.
"""

from __future__ import annotations

from typing import Any

import msgspec

from athena.dialects.anthropic_messages.encode_blocks import MessageDraft
from athena.dialects.losses import Losses
from athena.model.profile import Profile
from athena.model.request import Reasoning

DEFAULT_MAX_TOKENS = 8192
LEAST_BUDGET = 1024

_BUDGETS = {"minimal": LEAST_BUDGET, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 32000, "max": 32000}


class ThinkingFields(msgspec.Struct, frozen=True):
    """The fields that decide about thinking, as they go out."""

    thinking: dict[str, Any] | None
    effort: str | None
    max_tokens: int


def write_thinking(reasoning: Reasoning, limit: int | None, profile: Profile, report: Losses, *, same: bool) -> ThinkingFields:
    """`limit` is the client's own bound on the answer; a budget may have to raise it."""
    max_tokens = limit if limit is not None else profile.max_tokens_default or DEFAULT_MAX_TOKENS
    effort = _effort(reasoning, profile)
    if reasoning.mode == "off" or reasoning.effort == "none" or reasoning.budget == 0:
        return _off(effort if same else None, max_tokens, profile, report)
    if reasoning.mode == "between_tools":
        return ThinkingFields({"type": "between_tools"}, effort, max_tokens)
    if reasoning.mode == "default" and (same or (reasoning.effort is None and not reasoning.budget)):
        return ThinkingFields(None, effort, max_tokens)
    if profile.thinking_adaptive and not (same and reasoning.mode == "on" and profile.thinking_budget):
        budget = _asked_budget(reasoning)
        if effort is None and budget is not None:
            effort = _effort_of_budget(budget, profile)
            report.emulate("reasoning.budget", f"this model takes an effort, not a budget: {effort}")
        return ThinkingFields({"type": "adaptive", **_display(reasoning)}, effort, max_tokens)
    if profile.thinking_budget:
        return _budget(reasoning, effort if same else None, limit, max_tokens, report)
    report.drop("reasoning", "this model's thinking cannot be controlled")
    return ThinkingFields(None, None, max_tokens)


def lacks_thinking(messages: list[MessageDraft]) -> bool:
    """Is this a tool loop whose last assistant message was written anew and does not begin with its thinking?

    With a thinking budget the API refuses that; a foreign model's turn can never have the block it wants.
    """
    if len(messages) < 2 or messages[-1].first_type != "tool_result":
        return False
    step = messages[-2]
    return step.role == "assistant" and step.raw is None and step.first_type not in ("thinking", "redacted_thinking")


def _asked_budget(reasoning: Reasoning) -> int | None:
    """The client's budget; a negative one leaves it to the model."""
    return reasoning.budget if reasoning.budget is not None and reasoning.budget > 0 else None


def _effort(reasoning: Reasoning, profile: Profile) -> str | None:
    effort = reasoning.effort
    if effort is None or effort == "none":
        return None
    word = profile.effort_map.get(effort, effort)
    return "low" if word == "minimal" else word


def _effort_of_budget(budget: int, profile: Profile) -> str:
    effort = "low" if budget < 2000 else "medium" if budget < 10000 else "high" if budget < 32000 else "xhigh"
    if effort == "xhigh" and "xhigh" not in profile.efforts:
        return "high"
    return effort


def _off(effort: str | None, max_tokens: int, profile: Profile, report: Losses) -> ThinkingFields:
    if profile.thinking_off == "disabled":
        return ThinkingFields({"type": "disabled"}, effort, max_tokens)
    if profile.thinking_off == "between_tools":
        report.emulate("reasoning", "this model cannot stop thinking between tool calls")
        return ThinkingFields({"type": "between_tools"}, effort, max_tokens)
    report.emulate("reasoning", "this model cannot stop thinking; it is asked for the least effort")
    return ThinkingFields({"type": "adaptive"}, "low", max_tokens)


def _budget(reasoning: Reasoning, effort: str | None, limit: int | None, max_tokens: int, report: Losses) -> ThinkingFields:
    wanted = _asked_budget(reasoning)
    budget = max(wanted or _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"]), LEAST_BUDGET)
    if wanted is None and limit is not None and limit > 2 * LEAST_BUDGET:
        # Our own translation of an effort leaves room for the answer; a client's own budget is its own decision.
        budget = min(budget, limit - LEAST_BUDGET)
    if limit is None:
        # The answer has no length limit: thinking must not eat the room the default leaves for it.
        max_tokens += budget
    elif budget >= limit:
        if limit > LEAST_BUDGET:
            budget = limit - 1
            report.repair("reasoning.budget", f"lowered to {budget}: it must be smaller than the answer's bound")
        else:
            budget, max_tokens = LEAST_BUDGET, limit + LEAST_BUDGET
            report.repair("max_tokens", f"raised to {max_tokens}: thinking needs at least {LEAST_BUDGET} tokens of it")
    return ThinkingFields({"type": "enabled", "budget_tokens": budget, **_display(reasoning)}, effort, max_tokens)


def _display(reasoning: Reasoning) -> dict[str, str]:
    if reasoning.display is not None:
        return {"display": reasoning.display}
    if reasoning.visible is None and reasoning.summary is None:
        return {}
    return {"display": "omitted" if reasoning.visible is False else "summarized"}
