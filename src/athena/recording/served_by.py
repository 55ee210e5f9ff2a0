"""The settings by which a request was served, as a recording has them. Most requests have the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from athena.recording import lines
from athena.recording.secrets import Mask, plain_query
from athena.serving.settings import Retries
from athena.serving.shared import AnswerSettings
from athena.serving.targets import Target

_KEPT = 64
"""Settings that are remembered as they are written."""
SettingsMemo: TypeAlias = dict[tuple[Any, ...], tuple[tuple[Any, ...], bytes]]
"""Settings as they are written, by the objects that they were made of."""


class ServedBy(msgspec.Struct, frozen=True):
    """By what a request was served: for the most part objects that all requests share."""

    targets: tuple[Target, ...]
    left_out: tuple[tuple[str, ...], ...]
    """For each target what was left out of the request from the start; shorter where nothing was."""
    answers: AnswerSettings
    retries: Retries
    correct: bool
    key: str
    large: bool
    refusal: lines.Failure | None

    def written(self, hidden: tuple[str, ...], mask: Mask, memo: SettingsMemo | None) -> bytes:
        """The same as JSON, without these secrets, which the mask hides. `memo` remembers it from one request to the next."""
        objects = (*self.targets, self.answers, self.retries)
        name = (*map(id, objects), self.left_out, hidden, self.correct, self.key, self.large)
        known = memo.get(name) if memo is not None and self.refusal is None else None
        if known is not None:
            return known[1]
        left_out = self.left_out or ((),) * len(self.targets)
        settings = lines.Settings(
            targets=[_target(target, names) for target, names in zip(self.targets, left_out, strict=True)],
            refusal=self.refusal,
            answers=sparse(self.answers),
            retries=sparse(self.retries),
            correct=self.correct,
            key=self.key,
            large=self.large,
        )
        made = mask.data(msgspec.json.encode(settings))
        if memo is not None and self.refusal is None:
            if len(memo) >= _KEPT:
                memo.clear()
            # With the objects, so that nothing else gets their ids.
            memo[name] = objects, made
        return made


def _target(target: Target, left_out: tuple[str, ...]) -> lines.TargetSettings:
    return lines.TargetSettings(
        upstream=target.upstream,
        model=target.model,
        dialect=target.dialect,
        url=plain_url(target.base_url),
        own_path=target.own_path,
        tools=target.tools,
        route=sparse(target.route),
        prompted_route=sparse(target.prompted_route) if target.prompted_route is not None else None,
        limits=sparse(target.limits),
        context_limit_kb=target.context_limit_kb,
        profile=sparse(target.profile),
        left_out=list(left_out),
        has_key=target.has_key,
    )


_USER = re.compile(r"^[^@/]*@")


def plain_url(url: str) -> str:
    """A URL without what may be a credential in it: user, password, and the values of its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, _USER.sub("", parts.netloc), parts.path, plain_query(parts.query), ""))


def sparse(value: Any) -> Any:
    """A struct as a mapping without the fields that have their usual values, all the way down."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        found = {field.name: getattr(value, field.name) for field in fields}
        usual = {field.name: _default(field) for field in fields}
        return {name: sparse(held) for name, held in found.items() if held != usual[name] and not callable(held)}
    if isinstance(value, Mapping):
        return {str(name): sparse(held) for name, held in value.items() if not callable(held)}
    if isinstance(value, list | tuple | set | frozenset):
        return [sparse(held) for held in value]
    return value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
