"""What a well-typed configuration must also satisfy: names that exist, addresses that are addresses, keys that can be read.

Works on the structs, reports with the paths of the full form, and fills in what follows from other values: an upstream's
dialect and profile from its host, its key from a variable or a file.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from athena.dialects import dialect_names
from athena.errors import AthenaError, ConfigError
from athena.formats import ALIASES, format_names, get_format
from athena.model.profile import Profile
from athena.profiles import ModelPattern, default_profiles, read_profile
from athena.shells.config.addresses import KnownHost, clean_base_url, host_of, is_loopback, known_host
from athena.shells.config.certificates import CertificateProblem, is_open_to_others, key_file, listener_context
from athena.shells.config.format_sources import declared_source
from athena.shells.config.model import (
    Config,
    Fallback,
    FormatSource,
    ModelRule,
    SharedTarget,
    StoreSettings,
    Telemetry,
    Tls,
    Upstream,
)
from athena.shells.config.places import KeyPath, Report, did_you_mean, show_path
from athena.shells.config.secret import Secret
from athena.shells.config.sources import KEY_SOURCES
from athena.shells.config.targets import patterns_of, split_use, uses_of
from athena.shells.config.web_access import ANY, clean_host, clean_origin

_KEY_FILE_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OWN_HEADERS = frozenset(
    ("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "accept-encoding")
)


def complete(config: Config, environment: Mapping[str, str], home: Path, report: Report) -> tuple[Config, tuple[Path, ...]]:
    """The configuration with everything filled in, and the files its keys and certificates come from."""
    reader = _KeyReader(environment, home, report)
    upstreams = {}
    for name, upstream in config.upstreams.items():
        path = ("upstreams", name)
        if not _NAME.match(name):
            report.error(path, "an upstream's name holds letters, digits, dots, dashes and underscores only")
        upstreams[name] = reader.with_key(_placed(upstream, path, report), path)
        _check_upstream(upstreams[name], config, path, report)
    formats = _FormatFiles(home, report)
    models = []
    for index, rule in enumerate(config.models):
        _check_rule(rule, config, ("models", index), report)
        models.append(formats.placed(rule, ("models", index)))
    _check_keys(config, report)
    _check_web_access(config, report)
    _check_formats(config, report)
    _check_adapter(config, report)
    _check_store(config.store, report)
    telemetry = _placed_telemetry(config.telemetry, report)
    envelope = config.envelope_key
    if config.envelope_key_file:
        envelope = reader.read_file(config.envelope_key_file, ("envelope_key_file",)) or envelope
    tls = _checked_tls(config.tls, home, report)
    files = [*reader.files, *formats.files, *(Path(name) for name in (tls.cert, tls.key) if name)]
    done = msgspec.structs.replace(
        config, upstreams=upstreams, models=tuple(models), envelope_key=envelope, tls=tls, telemetry=telemetry
    )
    return done, tuple(files)


# -- upstreams -------------------------------------------------------------------------------------------------------------


def _placed(upstream: Upstream, path: KeyPath, report: Report) -> Upstream:
    """The upstream with a clean address, its dialect and its profile."""
    if not upstream.base_url:
        return upstream  # reported already
    written = "dialect" in _keys_at(path, report)
    try:
        base_url = clean_base_url(upstream.base_url)
        host = known_host(base_url)
    except ConfigError as error:
        report.error((*path, "base_url"), error.message)
        return upstream
    dialect, profile = upstream.dialect, upstream.profile
    table = default_profiles()
    if profile is not None and profile not in table.names():
        report.error((*path, "profile"), f"there is no profile {profile!r}", did_you_mean(profile, table.names()))
        profile = None
    if profile is not None:
        own = table.get(profile).dialect
        if not written:
            dialect = own
        elif own != dialect:
            report.error((*path, "profile"), f"the profile {profile} speaks {own}, not {dialect}", f"set dialect: {own}")
    elif host is not None:
        dialect = dialect if written else next(iter(host.profiles))
        profile = host.profiles.get(dialect)
    if dialect not in dialect_names():
        report.error((*path, "dialect"), f"there is no dialect {dialect!r}", did_you_mean(dialect, dialect_names()))
    return msgspec.structs.replace(upstream, base_url=base_url, dialect=dialect, profile=profile)


def _host(base_url: str) -> KnownHost | None:
    try:
        return known_host(base_url)
    except ConfigError:
        return None  # a bad address, reported already


def _keys_at(path: KeyPath, report: Report) -> tuple[str, ...]:
    """The keys that were written there."""
    node: object = report.layout.tree
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return tuple(key for key, value in node.items() if value is not None) if isinstance(node, dict) else ()


def _check_upstream(upstream: Upstream, config: Config, path: KeyPath, report: Report) -> None:
    _check_quirks(upstream.quirks, (*path, "quirks"), report)
    for name, value in upstream.headers.items():
        where = (*path, "headers", name)
        if not _TOKEN.match(name) or name.lower() in _OWN_HEADERS:
            report.error(where, "this header cannot be set")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value.reveal()):
            report.error(where, "a header's value must not hold control characters")
    if upstream.proxy is not None:
        _check_proxy(upstream.proxy, (*path, "proxy"), report)
    if not upstream.verify and not is_loopback(host_of(upstream.base_url)):
        report.warn((*path, "verify"), "the server's certificate is not checked", "use ca_file for a private authority")
    if upstream.ca_file is not None and not Path(upstream.ca_file).expanduser().is_file():
        report.error((*path, "ca_file"), "there is no such file")
    if upstream.forward_client_key and config.keys:
        report.error((*path, "forward_client_key"), "clients' keys are the gateway's own", "remove it, or remove keys")
    if upstream.forward_client_key and upstream.api_key is not None:
        report.warn((*path, "forward_client_key"), "api_key is used only for clients that send no key")
    if upstream.api_key is None and not upstream.forward_client_key and upstream.base_url:
        host = _host(upstream.base_url)
        wanted = [key for key in KEY_SOURCES if key in _keys_at(path, report)]
        if host is not None and host.key_env and not wanted:
            report.warn(path, "no key is set for this upstream", f"add api_key_env: {host.key_env}")


def _check_proxy(proxy: Secret, path: KeyPath, report: Report) -> None:
    if not re.match(r"https?://[^/\s]+/?\Z", proxy.reveal()):
        report.error(path, "must be an address such as http://proxy:3128")


def _check_quirks(quirks: dict[str, object], path: KeyPath, report: Report) -> None:
    fields = [name for name in Profile.__struct_fields__ if name not in ("name", "dialect")]
    for key, value in quirks.items():
        if key not in fields:
            report.error((*path, key), "a profile has no such field", did_you_mean(key, fields))
            continue
        try:
            read_profile({key: value})
        except msgspec.ValidationError as error:
            report.error((*path, key), str(error).partition(" - at ")[0].replace("`", ""))


def _in_home(name: str, home: Path) -> Path:
    return home / name[2:] if name.startswith("~/") else Path(name)


class _KeyReader:
    def __init__(self, environment: Mapping[str, str], home: Path, report: Report) -> None:
        self.files: list[Path] = []
        self._environment = environment
        self._home = home
        self._report = report

    def with_key(self, upstream: Upstream, path: KeyPath) -> Upstream:
        """The upstream with its key read."""
        given = [key for key in KEY_SOURCES if getattr(upstream, key) is not None]
        if len(given) > 1:
            self._report.error((*path, given[1]), f"{' and '.join(given)} are both set", "keep one of them")
        key = upstream.api_key
        if upstream.api_key_env is not None:
            text = self._environment.get(upstream.api_key_env)
            if not text:
                variable = upstream.api_key_env
                self._report.error(
                    (*path, "api_key_env"), f"the environment variable {variable} is not set", f"export {variable}=..."
                )
            key = Secret(text.strip()) if text else None
        elif upstream.api_key_file is not None:
            key = self.read_file(upstream.api_key_file, (*path, "api_key_file"))
        if key is not None and re.search(r"[^\x21-\x7e]", key.reveal()):
            self._report.error((*path, given[0]), "a key holds printable ASCII characters only, no spaces or line ends")
        if key is not None and not key:
            self._report.error((*path, given[0]), "the key is empty")
        return msgspec.structs.replace(upstream, api_key=key)

    def read_file(self, name: str, path: KeyPath) -> Secret | None:
        """The first line of a key file."""
        file = _in_home(name, self._home)
        self.files.append(file)
        try:
            mode = file.stat().st_mode
            with file.open("rb") as stream:
                text = stream.read(_KEY_FILE_BYTES).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            self._report.error(path, f"the file cannot be read: {reason}")
            return None
        if not text:
            self._report.error(path, "the file is empty")
            return None
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            self._report.warn(path, "others can read or change the key file", "chmod 600")
        return Secret(text)


# -- rules -----------------------------------------------------------------------------------------------------------------


def _check_rule(rule: ModelRule, config: Config, path: KeyPath, report: Report) -> None:
    stars = {pattern.count("*") for pattern in patterns_of(rule)}
    if rule.match == ():
        report.error((*path, "match"), "names no pattern", 'write match: "*" for every model')
    _check_uses(rule, stars, (*path, "use"), report)
    if isinstance(rule.format, str):
        _check_format(rule.format, (*path, "format"), report)
    _check_quirks(rule.quirks, (*path, "quirks"), report)
    for index, fallback in enumerate(rule.fallback):
        where: KeyPath = (*path, "fallback", index)
        if isinstance(fallback, Fallback):
            _check_use(fallback.use, stars, (*where, "use"), report)
            if isinstance(fallback.format, str):
                _check_format(fallback.format, (*where, "format"), report)
        else:
            _check_use(fallback, stars, where, report)
    for name in rule.names:
        if "*" in name or "?" in name:
            report.error((*path, "names"), "names are shown to clients as they stand; no wildcards")
        elif not any(ModelPattern(pattern).matches(name.lower()) for pattern in patterns_of(rule)):
            report.error((*path, "names"), f"the rule does not match {name!r}", "list only names that it takes")
    _check_reached(config, path, report)


def _check_uses(rule: ModelRule, stars: set[int], path: KeyPath, report: Report) -> None:
    if isinstance(rule.use, str):
        _check_use(rule.use, stars, path, report)
        return
    if not rule.use:
        report.error(path, "names no target", "write upstream/model, or a list of them")
    for index, target in enumerate(uses_of(rule)):
        is_text = isinstance(rule.use[index], str)
        _check_use(target.use, stars, (*path, index) if is_text else (*path, index, "use"), report)
        if isinstance(target.format, str):
            _check_format(target.format, (*path, index, "format"), report)
    if rule.use and all(target.weight == 0 for target in uses_of(rule)):
        report.error(path, "gives every target the weight 0", "leave the weights out, or give one of them more")
    if rule.prefer == "cost" and any(target.cost is None for target in uses_of(rule)):
        report.warn(path, "prefer: cost, and not every target says its cost", "those without one are asked last")


def _check_reached(config: Config, path: KeyPath, report: Report) -> None:
    """Warn about a rule that an earlier rule hides. The catch-all rules of the short form are meant to be hidden."""
    label = report.layout.origin(path).key
    if label and not label.startswith("models["):
        return
    for earlier in range(int(path[-1])):
        if "*" in patterns_of(config.models[earlier]):
            other = report.layout.origin(("models", earlier)).key or show_path(("models", earlier))
            report.warn(path, f"never reached: {other} takes every model", "move it up")
            return


def _check_use(use: str, stars: set[int], path: KeyPath, report: Report) -> None:
    if not use:
        return  # reported already
    upstream, model = split_use(use)
    names = _keys_at(("upstreams",), report)
    if upstream not in names:
        remedy = did_you_mean(upstream, names) if names else "add it under upstreams"
        report.error(path, f"there is no upstream {upstream!r}", remedy)
    if model == "":
        report.error(path, "names no model after the /", "write upstream/model, or only upstream to keep the client's name")
    if model.count("*") > 1 or ("*" in model and stars != {1}):
        report.error(path, "a * here stands for the only * of match", "use {model} for the client's whole model name")


class _FormatFiles:
    """Formats that are not shipped: their files are read here, so that their problems are reported with all others."""

    def __init__(self, home: Path, report: Report) -> None:
        self.files: list[Path] = []
        self._home = home
        self._report = report

    def placed(self, rule: ModelRule, path: KeyPath) -> ModelRule:
        """The rule with the full paths of its formats."""
        fallback = tuple(
            msgspec.structs.replace(one, format=self._source(one.format, (*path, "fallback", index, "format")))
            if isinstance(one, Fallback)
            else one
            for index, one in enumerate(rule.fallback)
        )
        own = self._source(rule.format, (*path, "format"))
        return msgspec.structs.replace(rule, use=self._shared(rule, path), format=own, fallback=fallback)

    def _shared(self, rule: ModelRule, path: KeyPath) -> str | tuple[str | SharedTarget, ...]:
        """What the rule uses, with the full paths of its formats."""
        if isinstance(rule.use, str):
            return rule.use
        return tuple(
            msgspec.structs.replace(one, format=self._source(one.format, (*path, "use", index, "format")))
            if isinstance(one, SharedTarget) and one.format is not None
            else one
            for index, one in enumerate(rule.use)
        )

    def _source(self, wanted: str | FormatSource, path: KeyPath) -> str | FormatSource:
        if isinstance(wanted, str):
            return wanted
        given = [key for key in ("file", "template") if getattr(wanted, key) is not None]
        if len(given) != 1:
            self._report.error(path, "names both file and template" if given else "names neither file nor template", "keep one")
            return "auto"
        file = _in_home(getattr(wanted, given[0]), self._home).absolute()
        self.files.append(file)
        placed = FormatSource(**{given[0]: str(file)})
        try:
            description = declared_source(placed)
        except AthenaError as error:
            self._report.error((*path, given[0]), error.message)
            return "auto"
        if description.id in format_ids():
            self._report.error(
                (*path, given[0]), f"its id {description.id!r} is that of a shipped format", "give it another id"
            )
        return placed


def format_ids() -> tuple[str, ...]:
    """Every word that may stand where a format is configured."""
    return tuple(dict.fromkeys(("auto", "standard", *ALIASES, *ALIASES.values(), *format_names())))


def _check_format(name: str, path: KeyPath, report: Report, *, prompt: bool = False) -> None:
    if not name:
        return  # reported already
    known = format_ids()
    extra = ("prompt", "prompted") if prompt else ()
    if name not in known and name not in extra:
        report.error(path, f"there is no format {name!r}", did_you_mean(name, (*known, *extra)))


def _check_formats(config: Config, report: Report) -> None:
    for name, settings in config.formats.items():
        _check_format(name, ("formats", name), report)
        if settings.tokens and name in format_ids() and name not in ("auto", "standard"):
            _check_tokens(name, settings.tokens, ("formats", name, "tokens"), report)
    for model, name in config.format_overrides.items():
        _check_format(name, ("format_overrides", model), report, prompt=True)


def _check_tokens(name: str, tokens: dict[str, str], path: KeyPath, report: Report) -> None:
    with_tokens = get_format(name).with_tokens
    if with_tokens is None:
        report.error(path, f"the markers of {name} cannot be changed")
        return
    try:
        with_tokens(tokens)
    except ConfigError as error:
        report.error(path, error.message)


def _check_store(store: bool | StoreSettings, report: Report) -> None:
    if isinstance(store, bool):
        return
    if store.encryption_key is not None and not store.encryption_key:
        report.error(("store", "encryption_key"), "must not be empty", "leave it out to keep everything unencrypted")
    if store.url is not None and not _names_postgres(store.url.reveal()):
        report.error(
            ("store", "url"),
            "must be postgresql://user:password@host/database",
            "leave it out for an SQLite file in state_dir",
        )


def _placed_telemetry(telemetry: Telemetry, report: Report) -> Telemetry:
    """The collector's address as its manual has it, with the path for traces or without."""
    if not telemetry.endpoint:
        return telemetry
    try:
        endpoint = clean_base_url(telemetry.endpoint).removesuffix("/v1/traces")
    except ConfigError:
        message = "must be an address such as http://127.0.0.1:4318; a key for it goes into telemetry.headers"
        report.error(("telemetry", "endpoint"), message)
        return telemetry
    return msgspec.structs.replace(telemetry, endpoint=endpoint)


def _names_postgres(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("postgresql", "postgres") and bool(parts.netloc or parts.path.strip("/") or parts.query)


def _check_keys(config: Config, report: Report) -> None:
    seen: dict[str, int] = {}
    for index, key in enumerate(config.keys):
        if key.hash in seen and key.hash:
            report.warn(("keys", index), f"the same key as keys[{seen[key.hash]}]")
        seen.setdefault(key.hash, index)


def _checked_tls(tls: Tls, home: Path, report: Report) -> Tls:
    """The listener's certificate with its files found and tried."""
    if not tls.cert:
        if tls.key:
            report.error(("tls", "key"), "stands without a certificate", "set tls.cert")
        return tls
    placed = msgspec.structs.replace(
        tls, cert=str(_in_home(tls.cert, home)), key=str(_in_home(tls.key, home)) if tls.key else ""
    )
    try:
        listener_context(placed)
    except CertificateProblem as problem:
        report.error(("tls", problem.field), problem.fault, problem.remedy)
        return placed
    if is_open_to_others(key_file(placed)):
        report.warn(("tls", "key" if tls.key else "cert"), "others can read or change the private key", "chmod 600")
    return placed


def _check_web_access(config: Config, report: Report) -> None:
    for index, host in enumerate(config.allow_hosts):
        try:
            anyone = bool(host) and clean_host(host) == ANY
        except ConfigError as error:
            report.error(("allow_hosts", index), error.message)
            continue
        if anyone and not config.keys:
            report.warn(
                ("allow_hosts", index),
                "every web page that the user visits can reach the gateway by DNS rebinding",
                "name the hosts, or add a key (athena config new-key)",
            )
    for index, origin in enumerate(config.allow_origins):
        try:
            anyone = bool(origin) and clean_origin(origin) == ANY
        except ConfigError as error:
            report.error(("allow_origins", index), error.message)
            continue
        if anyone and not config.keys:
            report.error(
                ("allow_origins", index),
                "* would let every web page use the gateway while no key is asked for",
                "name the origins, or add a key (athena config new-key)",
            )


def _check_adapter(config: Config, report: Report) -> None:
    style = config.tool_adapter.style
    styles = ("json", *(name for name in format_ids() if name != "standard"))
    if style and style not in styles:
        report.error(("tool_adapter", "style"), f"there is no style {style!r}", did_you_mean(style, styles))
    template = config.tool_adapter.prompt_template
    if template is not None and template.count("%s") != 1:
        report.error(("tool_adapter", "prompt_template"), "must hold %s exactly once", "%s is where the tools go")
