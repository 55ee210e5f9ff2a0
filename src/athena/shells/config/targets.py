"""The two little languages of a model rule: patterns on the client's side, `upstream/model` on the other."""

from __future__ import annotations

from athena.shells.config.model import ModelRule, SharedTarget

UNCHANGED = "{model}"


def patterns_of(rule: ModelRule) -> tuple[str, ...]:
    return (rule.match,) if isinstance(rule.match, str) else rule.match


def uses_of(rule: ModelRule) -> tuple[SharedTarget, ...]:
    """The targets that share a rule's requests, as they are written; where there is one, it takes them all."""
    written = (rule.use,) if isinstance(rule.use, str) else rule.use
    return tuple(SharedTarget(use=one) if isinstance(one, str) else one for one in written)


def leads_to(rule: ModelRule, use: str) -> bool:
    """Is this one of the rule's own targets, as written?"""
    return any(one.use == use for one in uses_of(rule))


def split_use(use: str) -> tuple[str, str]:
    """(upstream, model); the model may hold slashes, and is the client's own name where only the upstream is given."""
    upstream, slash, model = use.partition("/")
    return upstream, model if slash else UNCHANGED


def is_exact(pattern: str) -> bool:
    """Does the pattern stand for one name only?"""
    return "*" not in pattern and "?" not in pattern


def target_model(model: str, pattern: str, client_model: str) -> str:
    """The upstream's model name: `{model}` and `*` filled in."""
    if "*" in model:
        model = model.replace("*", _captured(pattern, client_model), 1)
    return model.replace(UNCHANGED, client_model)


def _captured(pattern: str, name: str) -> str:
    """What the pattern's only * stood for."""
    head, _, tail = pattern.partition("*")
    return name[len(head) : len(name) - len(tail)]
