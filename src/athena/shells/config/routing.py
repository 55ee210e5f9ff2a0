"""From a client's model name to the targets to try, in order. Pure: built once per configuration, asked once per request.

Rules lead to upstreams and never to other rules, so aliases cannot go in circles.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from athena.bounded_cache import BoundedCache
from athena.errors import UnknownModel
from athena.formats import ALIASES
from athena.formats.declared.description import FormatDescription
from athena.formats.machine.detect import detect_format
from athena.formats.machine.policies import EchoRule, Policies
from athena.formats.machine.stage import FormatOptions
from athena.model.limits import Limits
from athena.model.profile import Profile
from athena.profiles import ModelPattern, default_profiles, read_profile
from athena.prompted.options import PromptedOptions
from athena.serving.targets import TargetPlace
from athena.shells.config.format_sources import declared_source
from athena.shells.config.model import (
    Config,
    Fallback,
    FormatSettings,
    FormatSource,
    ModelRule,
    Policy,
    SharedTarget,
    TimeoutOverrides,
    TimeoutSettings,
    ToolMode,
    Upstream,
)
from athena.shells.config.targets import UNCHANGED, is_exact, patterns_of, split_use, target_model, uses_of
from athena.shells.config.windows import OfferedModel, Window, published_window

_REMEMBERED_BYTES = 2 * 1024 * 1024
_ROUTE_BYTES = 2048
"""About what one route takes in memory."""


class ResolvedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One target, with everything that was said about it brought together."""

    upstream_name: str
    upstream: Upstream
    model: str
    """The upstream's name of the model."""
    rule: ModelRule
    profile: Profile
    """The upstream's quirks for this model, with the rule's fields and provider object in `body`."""
    tools: Literal["native", "prompted", "none"]
    format: str
    """The format this model writes: an id, or `standard`."""
    format_options: FormatOptions | None
    """How to look for calls in its text; None: not at all."""
    limits: Limits
    """The bounds of the pure rooms, with the format's own section limit."""
    context_limit_kb: int
    """Largest request with tools, in KiB; 0: no limit."""
    policy: Policy
    prompted_options: PromptedOptions
    """How tools are taught in the prompt, where they are."""
    may_switch: bool
    """The configuration does not say how this model takes tools: put them in the prompt once the upstream refuses them."""
    strict: bool
    pairing: Literal["strict", "repair"]
    timeouts: TimeoutSettings
    place: TargetPlace
    """Among the targets of its rule."""


class ListedModel(msgspec.Struct, frozen=True):
    """One name for the model list; asking for it leads to that target."""

    id: str
    upstream: str
    model: str
    window: Window = Window()


class Router:
    """The rules of one configuration, ready to be asked."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rules = [(rule, [(pattern, ModelPattern(pattern)) for pattern in patterns_of(rule)]) for rule in config.models]
        self._prompted = [ModelPattern(pattern) for pattern in config.tool_adapter.models]
        self._overrides = [(ModelPattern(pattern), name) for pattern, name in config.format_overrides.items()]
        self._formats = {ALIASES.get(name, name): settings for name, settings in config.formats.items()}
        # Read now, not when the first request comes.
        self._declared = {source: declared_source(source) for source in _sources(config)}
        self._known: BoundedCache[str, tuple[ResolvedRoute, ...]] = BoundedCache(_REMEMBERED_BYTES)
        self._listed: tuple[ListedModel, ...] | None = None

    def resolve(self, client_model: str) -> tuple[ResolvedRoute, ...]:
        """The targets to try, the first being the one meant. Raises UnknownModel, which names the nearest models."""
        routes = self._known.get(client_model)
        if routes is None:
            routes = self._find(client_model)
            if not routes:
                raise self._unknown(client_model)
            # Names come from clients: some are remembered, never all.
            self._known.put(client_model, routes, len(routes) * _ROUTE_BYTES + 4 * len(client_model))
        return routes

    def listed_models(self) -> tuple[ListedModel, ...]:
        """The names a client can be shown, in the order of the rules. Each resolves to the target it is listed with."""
        if self._listed is None:
            found: dict[str, ListedModel] = {}
            for rule, _ in self._rules:
                for name in self._names(rule):
                    for route in self._find(name)[:1]:
                        found.setdefault(name, ListedModel(name, route.upstream_name, route.model))
            self._listed = tuple(found.values())
        return self._listed

    def offered_models(self, offered: Mapping[str, Sequence[OfferedModel]]) -> tuple[ListedModel, ...]:
        """The same with what upstreams themselves offer, by upstream: the models that rules with open names lead to, and the
        windows of all of them."""
        windows = {(name, model.id): model.window for name, models in offered.items() for model in models}
        found: dict[str, ListedModel] = {}
        for rule, _ in self._rules:
            for name in (*self._names(rule), *self._passed_names(rule, offered)):
                if name not in found:
                    for route in self._find(name)[:1]:
                        found[name] = _listed(name, route, windows)
        return tuple(found.values())

    def window(self, client_model: str, offered: Mapping[str, Sequence[OfferedModel]]) -> Window:
        """How much a model takes that need not be listed. Raises UnknownModel."""
        route = self.resolve(client_model)[0]
        models = offered.get(route.upstream_name, ())
        return _listed(
            client_model, route, {(route.upstream_name, model.id): model.window for model in models if model.id == route.model}
        ).window

    def _passed_names(self, rule: ModelRule, offered: Mapping[str, Sequence[OfferedModel]]) -> list[str]:
        """Names under which a rule that leaves the model open leads to an upstream's own models."""
        upstream, written = split_use(uses_of(rule)[0].use)
        mark = "*" if "*" in written else UNCHANGED
        if mark not in written:
            return []
        head, _, tail = written.partition(mark)
        names = []
        for model in offered.get(upstream, ()):
            inner = model.id[len(head) : len(model.id) - len(tail)]
            if not inner or f"{head}{inner}{tail}" != model.id:
                continue
            forms = (
                [pattern.replace("*", inner, 1) for pattern in patterns_of(rule) if "*" in pattern] if mark == "*" else [inner]
            )
            for name in forms:
                if any((route.upstream_name, route.model) == (upstream, model.id) for route in self._find(name)[:1]):
                    names.append(name)
                    break
        return names

    def _names(self, rule: ModelRule) -> list[str]:
        """What a rule offers: its exact names, those it lists, and its target's own name where that leads there too."""
        names = [pattern for pattern in patterns_of(rule) if is_exact(pattern)]
        names += rule.names
        use = uses_of(rule)[0].use
        upstream, model = split_use(use)
        if is_exact(model) and "{model}" not in model:
            for name in (model, use):
                if any((route.upstream_name, route.model) == (upstream, model) for route in self._find(name)[:1]):
                    names.append(name)
                    break
        return names

    def _find(self, client_model: str) -> tuple[ResolvedRoute, ...]:
        """The targets of the first rule that matches; none when no rule does."""
        lowered = client_model.lower()
        for rule, patterns in self._rules:
            for text, pattern in patterns:
                if pattern.matches(lowered):
                    return self._routes(rule, text, client_model)
        return ()

    def _routes(self, rule: ModelRule, pattern: str, client_model: str) -> tuple[ResolvedRoute, ...]:
        targets = [_shared(rule, item) for item in uses_of(rule)]
        targets += [(item if isinstance(item, Fallback) else Fallback(use=item), TargetPlace()) for item in rule.fallback]
        routes: dict[tuple[str, str], ResolvedRoute] = {}
        for target, place in targets:
            route = self._route(rule, target, place, pattern, client_model)
            routes.setdefault((route.upstream_name, route.model), route)
        return tuple(routes.values())

    def named_targets(self) -> tuple[tuple[str, str], ...]:
        """Upstream and model of every target whose name does not depend on what clients ask for."""
        found: dict[tuple[str, str], None] = {}
        for rule, _ in self._rules:
            fallbacks = [item.use if isinstance(item, Fallback) else item for item in rule.fallback]
            for use in (*(one.use for one in uses_of(rule)), *fallbacks):
                upstream, model = split_use(use)
                if is_exact(model) and UNCHANGED not in model:
                    found[upstream, model] = None
        return tuple(found)

    def _route(self, rule: ModelRule, target: Fallback, place: TargetPlace, pattern: str, client_model: str) -> ResolvedRoute:
        config = self._config
        name, written = split_use(target.use)
        model = target_model(written, pattern, client_model)
        upstream = config.upstreams[name]
        override = self._override(model, client_model)
        profile = _profile(upstream, rule, target, model)
        declared = self._declared.get(target.format) if isinstance(target.format, FormatSource) else None
        wanted = _wanted_format(target.format if isinstance(target.format, str) else "auto", override)
        if declared is not None and wanted == "auto":
            wanted = declared.id
        else:
            declared = None
        format_id = detect_format(model) if wanted == "auto" else wanted
        settings = self._formats.get(format_id, FormatSettings())
        # A server that keeps to its dialect, with a model that writes no text format: its bytes may pass untouched.
        reads_text = wanted != "standard" and not (wanted == "auto" and format_id == "standard" and profile.clean)
        return ResolvedRoute(
            upstream_name=name,
            upstream=upstream,
            model=model,
            rule=rule,
            profile=profile,
            tools=self._tools(target.tools or rule.tools, override, model, client_model),
            format=format_id,
            format_options=_format_options(format_id, rule, settings, rule.echo or config.echo, declared)
            if reads_text
            else None,
            limits=config.limits.core(settings.section_limit_kb),
            context_limit_kb=rule.context_limit_kb or settings.context_limit_kb,
            policy=rule.policy or config.tool_adapter.policy,
            prompted_options=_prompted_options(config, rule),
            may_switch=(target.tools or rule.tools) == "auto",
            strict=config.strict if rule.strict is None else rule.strict,
            pairing=rule.pairing or config.tool_pairing,
            timeouts=_timeouts(config.timeouts, upstream.timeouts, rule.timeouts),
            place=place,
        )

    def _override(self, model: str, client_model: str) -> str | None:
        """The format that is configured for this name: the upstream's name first, then the client's."""
        for name in (model.lower(), client_model.lower()):
            for pattern, value in self._overrides:
                if pattern.matches(name):
                    return value
        return None

    def _tools(
        self, wanted: ToolMode, override: str | None, model: str, client_model: str
    ) -> Literal["native", "prompted", "none"]:
        if wanted == "native" or wanted == "none":
            return wanted
        if wanted in ("prompted", "prompt") or override in ("prompt", "prompted"):
            return "prompted"
        names = (model.lower(), client_model.lower())
        return "prompted" if any(pattern.matches(name) for pattern in self._prompted for name in names) else "native"

    def _unknown(self, client_model: str) -> UnknownModel:
        shown = client_model[:200]
        names = [entry.id for entry in self.listed_models()] if self._rules else []
        patterns = [pattern for rule, _ in self._rules for pattern in patterns_of(rule)]
        near = difflib.get_close_matches(shown, list(dict.fromkeys([*names, *patterns])), n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        more = '. GET /v1/models lists the names; a rule with match: "*" under models takes every other one'
        return UnknownModel(f"no model {shown!r} is configured{hint}{more}", path="model")


def _shared(rule: ModelRule, target: SharedTarget) -> tuple[Fallback, TargetPlace]:
    """One of the rule's own targets, with what the rule says where it says nothing itself."""
    place = TargetPlace(shares=True, weight=target.weight, cost=target.cost, prefer=rule.prefer, sticky=rule.sticky)
    filled = Fallback(
        use=target.use,
        tools=target.tools or rule.tools,
        format=rule.format if target.format is None else target.format,
        provider=target.provider or rule.provider,
    )
    return filled, place


def _listed(name: str, route: ResolvedRoute, windows: Mapping[tuple[str, str], Window]) -> ListedModel:
    """One entry of the list: its window is the rule's, else the upstream's, else the published one."""
    own = Window(route.rule.context, route.rule.output)
    told = windows.get((route.upstream_name, route.model), Window())
    window = own.or_else(told).or_else(published_window(route.model))
    return ListedModel(name, route.upstream_name, route.model, window)


def _sources(config: Config) -> set[FormatSource]:
    """Every format that is named by file or by template."""
    wanted = [rule.format for rule in config.models]
    wanted += [one.format for rule in config.models for one in rule.fallback if isinstance(one, Fallback)]
    wanted += [one.format for rule in config.models for one in uses_of(rule) if one.format is not None]
    return {one for one in wanted if isinstance(one, FormatSource)}


def _prompted_options(config: Config, rule: ModelRule) -> PromptedOptions:
    """The tool adapter's settings for the models of one rule."""
    adapter = config.tool_adapter
    return PromptedOptions(
        policy=rule.policy or adapter.policy,
        style=adapter.style,
        template=adapter.prompt_template,
        results=adapter.results,
        system_messages=adapter.system_message_support,
        window_ms=adapter.collect_window_ms,
        max_calls=adapter.max_calls,
        collect_bytes=adapter.collect_max_bytes,
        stream_buffer_bytes=adapter.stream_buffer_bytes,
        early_detection_chars=adapter.early_detection_chars,
        cancel_upstream=adapter.cancel_upstream_on_stop,
        reask=adapter.reask or adapter.retry_required,
        invalid=adapter.invalid_arguments,
        repair=rule.repair,
        echo=rule.echo or config.echo,
        prompt_bytes=config.limits.prompt_bytes,
    )


def _format_options(
    format_id: str, rule: ModelRule, settings: FormatSettings, echo: EchoRule, declared: FormatDescription | None
) -> FormatOptions:
    policies = Policies(
        arguments="stream" if rule.argument_streaming else "hold",
        malformed=rule.malformed,
        unknown_tool=rule.unknown_tool,
        repair=rule.repair,
        echo=echo,
    )
    return FormatOptions(
        format_id,
        policies=policies,
        starts_in_thinking=rule.starts_in_thinking,
        tokens=settings.tokens,
        declared=declared,
    )


def _wanted_format(wanted: str, override: str | None) -> str:
    if override is not None and override not in ("prompt", "prompted"):
        wanted = override
    return ALIASES.get(wanted, wanted)


def _profile(upstream: Upstream, rule: ModelRule, target: Fallback, model: str) -> Profile:
    table = default_profiles()
    name, dialect = upstream.profile, upstream.dialect
    profile = table.for_unknown_host(dialect, model) if name is None else table.get(name, model)
    quirks = upstream.quirks | rule.quirks
    body = rule.body | ({"provider": target.provider} if target.provider else {})
    if not quirks and not body:
        return profile
    fields = msgspec.structs.asdict(profile) | quirks
    fields["body"] = fields["body"] | body
    return read_profile(fields)


def _timeouts(general: TimeoutSettings, *overrides: TimeoutOverrides) -> TimeoutSettings:
    """The general timeouts with an upstream's and a model's own over them."""
    changes = {
        name: value for override in overrides for name, value in msgspec.structs.asdict(override).items() if value is not None
    }
    return msgspec.structs.replace(general, **changes) if changes else general
