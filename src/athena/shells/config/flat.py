"""The short form of the configuration as upstreams and model rules of the full form.

    name with "/"                          -> unchanged, default_provider
    haiku, sonnet, opus, first configured  -> that tier's model and provider
    anything else                          -> model and default_provider; unchanged when no model is set

Where both forms are used: an address given by flag or variable takes all traffic. Short-form models given by flag or variable
come before the rules of a file; those of a file come after its rules, as what is left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from athena.errors import ConfigError
from athena.shells.config.addresses import clean_base_url, known_host, start
from athena.shells.config.check import struct_fields
from athena.shells.config.keys import hash_key
from athena.shells.config.model import FlatKeys, ProviderFormat
from athena.shells.config.places import (
    DEFAULT_ORIGIN,
    RANK_DIRECTORY,
    RANK_ENVIRONMENT,
    KeyPath,
    Layout,
    Report,
    SettingOrigin,
    Tree,
    show_path,
)
from athena.shells.config.sources import KEY_SOURCES

FLAT_UPSTREAM = "default"
TIERS = ("haiku", "sonnet", "opus")
_UPSTREAM_KEYS = ("base_url", "dialect", "profile", *KEY_SOURCES)
_MODEL_KEYS = ("model", *(f"{tier}_model" for tier in TIERS))
_PROVIDER_KEYS = ("default_provider", *(f"{tier}_provider" for tier in TIERS))
_LOG_KEYS = {"log_format": "format", "log_level": "level", "log_file": "file", "sse_log_dir": "sse_dir"}
_TLS_KEYS = {"tls_cert": "cert", "tls_key": "key"}
_FORMAT_KEYS = {"kimi_k2": ("kimi_k2",), "qwen_hermes": ("hermes", "qwen_xml")}
"""The formats that a section of `providers` speaks of; its tokens are the first one's."""
_TOKENS = {
    "start_token": "section_begin",
    "end_token": "section_end",
    "call_start_token": "call_begin",
    "argument_token": "argument_begin",
    "call_end_token": "call_end",
}


def take_flat(layout: Layout) -> Tree:
    """The short form's keys, taken out of the tree; where they came from stays known."""
    return {key: layout.tree.pop(key) for key in struct_fields(FlatKeys) if key in layout.tree}


def expand_flat(flat: FlatKeys, given: Tree, layout: Layout, environment: Mapping[str, str], report: Report) -> None:
    """Lay the short form over the tree of the full form."""
    _Expansion(flat, given, layout, environment, report).run()


class _Expansion:
    """One short form on its way into the full one."""

    def __init__(self, flat: FlatKeys, given: Tree, layout: Layout, environment: Mapping[str, str], report: Report) -> None:
        self.flat = flat
        self.given = given
        self.layout = layout
        self.environment = environment
        self.report = report

    def run(self) -> None:
        self._section("log", _LOG_KEYS)
        self._section("tls", _TLS_KEYS)
        self._formats()
        self._gateway_key()
        if "base_url" in self.given:
            if self.flat.base_url is not None:  # else it is bad, and the report has it
                self._own_upstream(self.flat.base_url)
        elif self.layout.tree.get("upstreams"):
            self._over_upstreams()
        elif self._wants_upstream():
            self._own_upstream(None)

    # -- single keys -------------------------------------------------------------------------------------------------------

    def _section(self, section: str, keys: Mapping[str, str]) -> None:
        """Short-form keys that are single keys of a section; the section's own counts if it comes from a stronger source."""
        for key, name in keys.items():
            if key not in self.given or self.layout.rank(section, name) > self._rank(key):
                continue
            value = getattr(self.flat, key)
            self._put((section, name), "warning" if key == "log_level" and value == "warn" else value, key)

    def _formats(self) -> None:
        providers = self.flat.providers
        for model, name in providers.provider_override.items():
            origin = self._origin("providers", "provider_override", model)
            self.layout.put(("format_overrides", model), name, origin)
        for key, names in _FORMAT_KEYS.items():
            settings: ProviderFormat = getattr(providers, key)
            for field, token in _TOKENS.items():
                if (value := getattr(settings, field)) is not None:
                    self.layout.put(("formats", names[0], "tokens", token), value, self._origin("providers", key, field))
            for name in names:
                if settings.buffer_limit_kb is not None:
                    origin = self._origin("providers", key, "buffer_limit_kb")
                    self.layout.put(("formats", name, "section_limit_kb"), settings.buffer_limit_kb, origin)
                if settings.context_limit_kb:
                    origin = self._origin("providers", key, "context_limit_kb")
                    self.layout.put(("formats", name, "context_limit_kb"), settings.context_limit_kb, origin)

    def _gateway_key(self) -> None:
        key = self.flat.gateway_key
        if key is None:
            return
        text = key.reveal()
        origin = self._origin("gateway_key")
        if origin.rank < RANK_ENVIRONMENT and ("gateway_key",) not in self.layout.unexpanded:
            self.report.warn(("gateway_key",), "a key in plain text", "write its hash under keys (athena config hash-key)")
        if len(text) < 16:
            self.report.warn(("gateway_key",), "a weak key: fewer than 16 characters", "athena config new-key makes a good one")
        keys = self.layout.tree.setdefault("keys", [])
        if isinstance(keys, list):
            self.layout.origins[("keys", len(keys))] = origin
            keys.append({"hash": hash_key(text), "name": "gateway_key"})

    # -- upstream and models -----------------------------------------------------------------------------------------------

    def _wants_upstream(self) -> bool:
        keys = (*_UPSTREAM_KEYS, *_MODEL_KEYS, *_PROVIDER_KEYS)
        return any(key in self.given for key in keys) or bool(self.environment.get(start().key_env))

    def _own_upstream(self, base_url: str | None) -> None:
        """The short form's upstream; without an address, the one a lone key is enough for."""
        if base_url is not None and self._rank("base_url") >= RANK_ENVIRONMENT:
            self._set_aside()
        upstreams = self.layout.tree.setdefault("upstreams", {})
        if not isinstance(upstreams, dict):
            return  # the problem of the full form is reported there
        if FLAT_UPSTREAM in upstreams:
            self.report.error(
                ("upstreams", FLAT_UPSTREAM),
                "stands beside base_url, which makes an upstream of the same name",
                "rename it, or remove base_url",
            )
            return
        upstreams[FLAT_UPSTREAM] = {}
        place = ("upstreams", FLAT_UPSTREAM)
        self.layout.origins[place] = self._origin("base_url")
        self.layout.put((*place, "base_url"), base_url or start().base_url, self._origin("base_url"))
        for key in ("dialect", "profile", *KEY_SOURCES):
            if key in self.given:
                self._put((*place, key), getattr(self.flat, key), key)
        if not any(key in self.given for key in KEY_SOURCES):
            self._lone_key(base_url)
        default = self.flat.model or (start().model if base_url is None else None)
        self._add_rules(self._rules(lambda model: f"{FLAT_UPSTREAM}/{model}", default, unchanged=f"{FLAT_UPSTREAM}/{{model}}"))

    def _set_aside(self) -> None:
        """An address from a flag or a variable takes all traffic."""
        unused = [key for key in ("upstreams", "models") if self.layout.tree.get(key)]
        for key in unused:
            self.report.warn((key,), f"not used: {self._origin('base_url').source} sends all traffic to one upstream")
            self.layout.drop(key)

    def _lone_key(self, base_url: str | None) -> None:
        """The key that the start address's own tools use; it goes to no other host."""
        variable = start().key_env
        if base_url is not None:
            try:
                host = known_host(clean_base_url(base_url))
            except ConfigError:
                return  # a bad address; reported where upstreams are checked
            if host is None or host.key_env != variable:
                return
        place = ("upstreams", FLAT_UPSTREAM)
        if self.environment.get(variable):
            self.layout.put((*place, "api_key_env"), variable, SettingOrigin(variable, None, RANK_ENVIRONMENT, variable))
        else:
            self.report.error((*place, "api_key"), "the upstream needs a key", f"set {variable}, or api_key")

    def _over_upstreams(self) -> None:
        """Short-form keys over upstreams of the full form."""
        upstreams = self.layout.tree["upstreams"]
        names = list(upstreams) if isinstance(upstreams, dict) else []
        single = names[0] if len(names) == 1 and isinstance(upstreams[names[0]], dict) else None
        for key in ("dialect", "profile", *KEY_SOURCES):
            if key not in self.given:
                continue
            if single is None:
                self.report.warn((key,), "not used: upstreams is set", "set it on the upstream that it is for")
                continue
            if key in KEY_SOURCES:
                if self.layout.rank("upstreams", single) >= self._rank(key) and any(
                    upstreams[single].get(k) for k in KEY_SOURCES
                ):
                    self.report.warn((key,), f"not used: upstreams.{single} has its own key")
                    continue
                for other in KEY_SOURCES:
                    self.layout.drop("upstreams", single, other)
            self._put(("upstreams", single, key), getattr(self.flat, key), key)
        if any(key in self.given for key in (*_MODEL_KEYS, *_PROVIDER_KEYS)):
            self._rules_over(names, single)

    def _rules_over(self, names: list[str], single: str | None) -> None:
        def target(model: str) -> str:
            if single is not None and not model.startswith(single + "/"):
                return f"{single}/{model}"
            return model

        for key in _MODEL_KEYS:
            model = getattr(self.flat, key)
            if model is not None and single is None and model.partition("/")[0] not in names:
                self.report.error((key,), "does not say which upstream", f"write upstream/model with one of {', '.join(names)}")
                return
        self._add_rules(self._rules(target, self.flat.model, unchanged=f"{single}/{{model}}" if single else None))

    def _rules(self, target: Any, default: str | None, *, unchanged: str | None) -> list[tuple[Tree, str]]:
        """The tiers of the short form as model rules, each with the key it comes from."""
        flat = self.flat
        rules: list[tuple[Tree, str]] = []
        if unchanged is not None:
            rules.append((_rule("*/*", unchanged, flat.default_provider), "base_url"))
        for tier in TIERS:
            model = getattr(flat, f"{tier}_model")
            provider = getattr(flat, f"{tier}_provider")
            if model is None and not provider:
                continue
            use = target(model or default) if model or default else unchanged
            if use is not None:
                key = f"{tier}_model" if model else f"{tier}_provider"
                rules.append((_rule(f"*{tier}*", use, provider or flat.default_provider), key))
        last = target(default) if default else unchanged
        if last is not None:
            rules.append((_rule("*", last, flat.default_provider), "model"))
        return rules

    def _add_rules(self, rules: list[tuple[Tree, str]]) -> None:
        """Put the rules before or after those of the files."""
        tree, origins = self.layout.tree, self.layout.origins
        existing = tree.get("models") or []
        if not isinstance(existing, list):
            return
        given = [key for key in (*_MODEL_KEYS, *_PROVIDER_KEYS) if key in self.given]
        first = max((self._rank(key) for key in given), default=0) > max(self.layout.rank("models"), RANK_DIRECTORY)
        if first and existing:
            self._renumber(len(rules))
        offset = 0 if first else len(existing)
        for index, (rule, key) in enumerate(rules):
            origin = self._origin(key)
            for field in rule:
                origins[("models", offset + index, field)] = self._provider_origin(key) if field == "provider" else origin
            origins[("models", offset + index)] = origin
        added = [rule for rule, _ in rules]
        tree["models"] = added + existing if first else existing + added

    def _renumber(self, shift: int) -> None:
        """Rules of a file move back; in messages they keep the number they have there."""
        origins, texts = self.layout.origins, self.layout.unexpanded
        for path in [path for path in origins if path[0] == "models" and len(path) > 1]:
            origin = origins[path]
            origins[path] = SettingOrigin(origin.source, origin.line, origin.rank, show_path(path))
        for table in (origins, texts):
            moved = {_moved(path, shift): value for path, value in table.items()}
            table.clear()
            table.update(moved)  # type: ignore[arg-type]  # of the same kind

    # -- origins -----------------------------------------------------------------------------------------------------------

    def _rank(self, key: str) -> int:
        return self.layout.rank(key)

    def _origin(self, *path: str) -> SettingOrigin:
        """Where a short-form value came from, under its own name."""
        origin = self.layout.origin(path)
        if origin is DEFAULT_ORIGIN:
            return origin
        return SettingOrigin(origin.source, origin.line, origin.rank, origin.key or ".".join(path))

    def _provider_origin(self, key: str) -> SettingOrigin:
        """Of the provider object in the rule that a key made."""
        own = key.partition("_")[0] + "_provider"
        return self._origin(own if own in self.given else "default_provider")

    def _put(self, path: tuple[str, ...], value: Any, key: str) -> None:
        self.layout.put(path, value, self._origin(key))
        if (key,) in self.layout.unexpanded:
            self.layout.unexpanded[path] = self.layout.unexpanded[(key,)]


def _moved(path: KeyPath, shift: int) -> KeyPath:
    return ("models", int(path[1]) + shift, *path[2:]) if path[0] == "models" and len(path) > 1 else path


def _rule(match: str, use: str, provider: dict[str, Any]) -> Tree:
    rule: Tree = {"match": match, "use": use}
    if provider:
        rule["provider"] = provider
    return rule
