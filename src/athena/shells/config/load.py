"""The whole way from files, variables and flags to a `Config`, and the watch over those files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from athena.errors import ConfigProblem
from athena.shells.config.addresses import host_of, is_loopback, known_hosts
from athena.shells.config.check import build, struct_fields
from athena.shells.config.flat import expand_flat, take_flat
from athena.shells.config.meaning import complete
from athena.shells.config.model import Config, FlatKeys
from athena.shells.config.places import Layout, Report
from athena.shells.config.sources import Sources, expand_variables, gather
from athena.shells.config.trust import FoundFile

_HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
_NO_HASH = "sha256:" + "0" * 64
_RESTART = ("host", "port", "workers", "state_dir")
_ADAPTER_COUNTS = ("collect_window_ms", "max_calls", "collect_max_bytes", "stream_buffer_bytes", "early_detection_chars")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and how it came about."""

    config: Config
    warnings: tuple[ConfigProblem, ...]
    hints: tuple[str, ...]
    """What could be set up, when no upstream is."""
    files: tuple[Path, ...]
    """The configuration files that were read."""
    found: tuple[FoundFile, ...]
    """Every configuration file that is there, also those that are not used."""
    key_files: tuple[Path, ...]
    layout: Layout
    """Where each value came from."""

    @property
    def is_empty(self) -> bool:
        """No upstream is configured at all: the built-in demo can take its place."""
        return not self.config.upstreams

    @property
    def ignored(self) -> tuple[ConfigProblem, ...]:
        """One line for each file that is there and not used; they are among the warnings as well."""
        return tuple(found.notice for found in self.found if found.notice is not None)


def load(sources: Sources, *, skip_unreadable: bool = True, in_use: Collection[Path] = (), lenient: bool = False) -> Loaded:
    """The configuration. Raises ConfigError with every problem in `problems`, warnings included.

    `in_use` names files whose settings are in force already: that one of them is no longer trusted is an error then.
    `lenient` is for those who look for what is wrong and never serve: nothing is raised, every problem is among the warnings,
    and a bad value is as if it were not set; a required one is empty.
    """
    gathered = gather(sources, skip_unreadable=skip_unreadable, in_use=in_use)
    layout = gathered.layout
    report = Report(layout)
    for problem in gathered.problems:
        report.add(problem)
    expand_variables(layout, sources.environment, report)
    _lenient_adapter(layout, report)
    _key_texts(layout, report)
    _store_text(layout)
    known = struct_fields(Config) | struct_fields(FlatKeys)
    _other_gateways(layout, report)
    for key in [key for key in layout.tree if key not in known]:
        report.unknown_key((key,), known)
        del layout.tree[key]
    given = take_flat(layout)
    flat = build(FlatKeys, given, (), report)
    given = {key: value for key, value in given.items() if value is not None and value != {}}
    expand_flat(flat, given, layout, sources.environment, report)
    config = build(Config, layout.tree, (), report)
    config, key_files = complete(config, sources.environment, sources.home, report)
    _unread_proxies(config, sources.environment, report)
    if not lenient:
        report.stop_if_failed()
    layout.tree = {}  # it held keys as plain text
    return Loaded(
        config=config,
        warnings=tuple(report.problems) if lenient else report.warnings,
        hints=_hints(config, sources),
        files=tuple(gathered.files),
        found=tuple(gathered.found),
        key_files=key_files,
        layout=layout,
    )


def _lenient_adapter(layout: Layout, report: Report) -> None:
    """Negative numbers of the tool adapter count as 0, with a warning."""
    adapter = layout.tree.get("tool_adapter")
    if not isinstance(adapter, dict):
        return
    for key in _ADAPTER_COUNTS:
        value = adapter.get(key)
        try:
            negative = not isinstance(value, bool) and isinstance(value, int | str) and int(value) < 0
        except ValueError:
            negative = False
        if negative:
            report.warn(("tool_adapter", key), "negative, taken as 0")
            adapter[key] = 0


def _key_texts(layout: Layout, report: Report) -> None:
    """A gateway key may be written as its bare hash. Anything else in its place is probably the key itself: not repeated."""
    keys = layout.tree.get("keys")
    if not isinstance(keys, list):
        return
    for index, key in enumerate(keys):
        text = key.get("hash") if isinstance(key, dict) else key
        if not isinstance(text, str):
            continue
        folded = text.strip().lower()
        if not _HASH.match(folded):
            report.error(("keys", index), "must be sha256: and 64 hex digits", "athena config hash-key turns a key into that")
            folded = _NO_HASH
        keys[index] = {**key, "hash": folded} if isinstance(key, dict) else {"hash": folded}


def _store_text(layout: Layout) -> None:
    """The store may be written as its address alone, or as a word for none."""
    text = layout.tree.get("store")
    if isinstance(text, str):
        words = {"true": True, "false": False, "on": True, "off": False}
        layout.tree["store"] = words.get(text.strip().lower(), {"url": text})


_OTHER_GATEWAYS = {"model_list": ("LiteLLM", "litellm"), "Providers": ("claude-code-router", "claude-code-router")}
"""Keys that begin the configurations of other gateways: whose they are, and what `athena config import` calls them."""


def _other_gateways(layout: Layout, report: Report) -> None:
    """The configuration of another gateway is named as such, instead of every key of it as unknown."""
    for key, (name, kind) in _OTHER_GATEWAYS.items():
        if isinstance(layout.tree.get(key), list) and "upstreams" not in layout.tree:
            file = layout.origin((key,)).source or "FILE"
            remedy = f"athena config import {kind} {file} -o athena.yml turns it into one of Athena's"
            report.error((key,), f"this is a configuration of {name}", remedy)
            layout.tree.clear()
            return


def _unread_proxies(config: Config, environment: Mapping[str, str], report: Report) -> None:
    """Proxy variables are not read: they would lead requests and keys elsewhere unseen. Where one is set, that is said."""
    variable = next((name for name in _PROXY_VARIABLES if environment.get(name)), None)
    if variable is None:
        return
    for name, upstream in config.upstreams.items():
        if upstream.proxy is None and not is_loopback(host_of(upstream.base_url)):
            remedy = f'to use it, write proxy: "${{{variable}}}" under upstreams.{name}'
            report.warn(("upstreams", name, "proxy"), f"{variable} is set, and requests go past it", remedy)


_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")


def _hints(config: Config, sources: Sources) -> tuple[str, ...]:
    """Ways to a real model, for the keys that are in the environment."""
    if config.upstreams:
        return ()
    hints = []
    for host in known_hosts():
        if host.key_env and sources.environment.get(host.key_env) and "*" not in host.host:
            hints.append(
                f"{host.key_env} is set; to use it: athena serve --base-url https://{host.host} --api-key-env {host.key_env}"
            )
    return tuple(dict.fromkeys(hints))


def needs_restart(old: Config, new: Config) -> tuple[str, ...]:
    """The changed keys that a reload cannot apply."""
    changed = [key for key in _RESTART if getattr(old, key) != getattr(new, key)]
    # Other files are taken up; a listener that speaks plain HTTP goes on to, and the other way round.
    return (*changed, "tls") if bool(old.tls.cert) != bool(new.tls.cert) else tuple(changed)


class ConfigWatcher:
    """Tells whether the files changed and loads them again. Looks only when asked; no thread."""

    def __init__(self, sources: Sources, loaded: Loaded | None = None) -> None:
        self.sources = sources
        self.loaded = loaded if loaded is not None else load(sources)
        self._seen = self._look()

    @property
    def config(self) -> Config:
        return self.loaded.config

    def changed(self) -> bool:
        """Is any file different from when it was last loaded, or tried to be?"""
        return self._look() != self._seen

    def reload(self) -> Config:
        """The new configuration. Raises ConfigError; then the old one stays, and the same bad file is not tried again."""
        self._seen = self._look()
        loaded = load(self.sources, skip_unreadable=False, in_use=self.loaded.files)
        self.loaded = loaded
        self._seen = self._look(self._seen)
        return loaded.config

    def _look(self, known: dict[Path, tuple[int, int, int] | None] | None = None) -> dict[Path, tuple[int, int, int] | None]:
        """Time, size and identity of every file that counts; `known` keeps what was seen before the load began."""
        candidates = [file for file, _ in self.sources.candidates()]
        store = self.sources.trust_store
        # That a file was approved is a change as well.
        approvals = [] if self.sources.config_file is not None else [store.record(file) for file in candidates]
        files = [*candidates, *approvals, *self.loaded.key_files]
        seen = {file: _stamp(file) for file in files}
        return seen if known is None else {file: known.get(file, stamp) for file, stamp in seen.items()}


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
