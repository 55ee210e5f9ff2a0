"""The parts of the configuration on their own: secrets, keys, addresses, YAML, schema, template, display, watch, router."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from athena.errors import ConfigError, UnknownModel
from athena.formats.machine.policies import Policies
from athena.formats.machine.stage import FormatOptions
from athena.profiles import default_profiles
from athena.serving.network import upstream_url
from athena.shells.config import (
    FLAGS,
    Config,
    ConfigWatcher,
    FormatSettings,
    GatewayKey,
    LimitSettings,
    ModelRule,
    Router,
    Secret,
    Sources,
    Upstream,
    check_bind,
    effective_values,
    hash_key,
    init_template,
    is_loopback,
    load,
    needs_restart,
    new_key,
    schema_text,
    show,
    verify,
)
from athena.shells.config.addresses import clean_base_url, known_host, known_hosts, start
from athena.shells.config.bad_file import BadYaml
from athena.shells.config.check import struct_fields
from athena.shells.config.model import FlatKeys
from athena.shells.config.schema import render_schema
from athena.shells.config.sources import environment_names
from athena.shells.config.yaml_lines import read_yaml
from support.trusted_files import trust

from .test_config_cases import config_cases, sources_of

CANARY = "sk-canary-5309"


def sources(root: Path, text: str | None = None, **changes: Any) -> Sources:
    """A directory with one file, which is trusted as it is now, and an empty home."""
    if text is not None:
        (root / "athena.yml").write_text(text, "utf-8")
    if (root / "athena.yml").is_file():
        trust(root / "athena.yml", root / "home")
    return Sources(directory=root, home=root / "home", **changes)


# -- secrets ---------------------------------------------------------------------------------------------------------------


def test_secret_shows_itself_nowhere() -> None:
    secret = Secret(CANARY)
    upstream = Upstream(base_url="http://127.0.0.1", api_key=secret, headers={"x": Secret(CANARY)}, proxy=Secret(CANARY))
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        f"{secret!s}",
        repr([secret]),
        repr(upstream),
        str(upstream),
    ]
    assert not any(CANARY in text for text in shown)
    assert secret.reveal() == CANARY
    for encode in (msgspec.json.encode, msgspec.to_builtins, json.dumps, pickle.dumps):
        with pytest.raises(TypeError):
            encode(upstream if encode is not json.dumps else secret)
    assert copy.deepcopy(secret) is secret is copy.copy(secret)
    assert secret == Secret(CANARY) != Secret("other")
    assert secret != CANARY
    assert hash(secret) == hash(Secret(CANARY))
    assert not Secret("")
    with pytest.raises(AttributeError):
        secret.x = 1


def test_no_secret_in_show_or_errors(tmp_path: Path) -> None:
    text = f"""
envelope_key: {CANARY}
upstreams:
  a: {{base_url: "http://127.0.0.1:1", api_key: {CANARY}, headers: {{x-key: "{CANARY}"}}, proxy: "http://u:{CANARY}@proxy:1"}}
  b: {{base_url: "http://127.0.0.1:1", api_key: "{CANARY}-${{TAIL}}"}}
  c: {{base_url: "http://127.0.0.1:1", api_key: "${{TAIL:-{CANARY}}}"}}
  d: {{base_url: "http://127.0.0.1:1", api_key: "${{KEY}}"}}
  e: {{base_url: "http://127.0.0.1:1", api_key_env: KEY}}
models: [{{match: "*", use: a, body: {{deep: {{token: "${{KEY}}"}}}}}}]
"""
    given_sources = sources(tmp_path, text, environment={"KEY": CANARY, "TAIL": "t"}, flags={"port": 1})
    loaded = load(given_sources)
    shown = show(loaded)
    assert CANARY not in shown + show(loaded, defaults=False) + repr(effective_values(loaded))
    assert CANARY not in repr(loaded.config.upstreams) + repr(loaded.layout) + repr(loaded.config.envelope_key)
    assert '"${KEY}"' in shown
    assert loaded.config.upstreams["e"].api_key == Secret(CANARY)
    assert loaded.config.models[0].body == {"deep": {"token": CANARY}}
    (tmp_path / "athena.yml").write_text(text.replace("proxy:1", "proxy:1/path").replace('"${KEY}"', '"${KEY} "'), "utf-8")
    trust(tmp_path / "athena.yml", tmp_path / "home")
    with pytest.raises(ConfigError) as caught:
        load(given_sources)
    assert CANARY not in str(caught.value) + repr(caught.value.problems)


def test_show_is_yaml_with_the_source_of_every_value(tmp_path: Path) -> None:
    text = """log_level: warn
upstreams: {a: {base_url: "http://127.0.0.1:1"}}
models: [{match: x, use: a, fallback: [a/b, {use: a/c}]}]
"""
    loaded = load(sources(tmp_path, text, environment={"ATHENA_STRICT": "true"}, flags={"port": 8080}))
    shown = show(loaded)
    value = yaml.safe_load(shown)
    assert value["models"][0]["fallback"] == ["a/b", {"use": "a/c", "tools": None, "format": "auto", "provider": {}}]
    assert set(value) == set(Config.__struct_fields__)
    found = {".".join(map(str, item.path)): (item.text, item.source) for item in effective_values(loaded)}
    assert found["port"] == ("8080", "--port")
    assert found["strict"] == ("true", "ATHENA_STRICT")
    assert found["log.level"] == ('"warning"', "athena.yml:1 (log_level)")
    assert found["upstreams.a.base_url"] == ('"http://127.0.0.1:1"', "athena.yml:2")
    assert found["host"] == ('"127.0.0.1"', "default")
    assert "workers" not in show(loaded, defaults=False)


# -- keys ------------------------------------------------------------------------------------------------------------------


def test_gateway_keys() -> None:
    key = new_key()
    assert len(key) > 40
    keys = (GatewayKey(hash=hash_key("other"), name="o"), GatewayKey(hash=hash_key(key), name="mine"))
    found = verify(key, keys)
    assert found is not None
    assert found.name == "mine"
    assert verify(key + "x", keys) is None
    assert verify("", keys) is None
    assert verify("sch\udce9\u20ac", keys) is None
    assert verify(key, ()) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_loopback_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    check_bind(host, ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "example.com", "localhost.evil.com", "10.0.0.1"])
def test_public_address_needs_a_key(host: str) -> None:
    with pytest.raises(ConfigError, match="no gateway key is set"):
        check_bind(host, ())
    check_bind(host, (GatewayKey(hash=hash_key("k")),))


# -- addresses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "path", "wanted"),
    [
        ("https://openrouter.ai/api", "/v1/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://openrouter.ai/api/", "/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", "/v1/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/", "/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/chat/completions", "/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        ("http://127.0.0.1:8000", "/responses", "http://127.0.0.1:8000/v1/responses"),
        ("http://[::1]:8000//v1//", "/v1/messages", "http://[::1]:8000/v1/messages"),
        ("https://api.anthropic.com", "/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("https://api.z.ai/api/paas/v4", "/v1/chat/completions", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("https://g.com/v1beta/openai/", "/chat/completions", "https://g.com/v1beta/openai/chat/completions"),
        ("https://g.com", "/v1beta/models/m:generateContent", "https://g.com/v1beta/models/m:generateContent"),
        ("https://g.com/v1beta", "/v1beta/models/m:generateContent", "https://g.com/v1beta/models/m:generateContent"),
        ("https://vault.host", "/chat/completions", "https://vault.host/v1/chat/completions"),
        # A dated base: the version is in the query, which is part of every URL.
        (
            "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            "/v1/chat/completions",
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21&x=%C3%A9",
            "/chat/completions",
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21&x=%C3%A9",
        ),
        (
            "https://r.openai.azure.com/openai/v1/?api-version=preview",
            "/v1/responses",
            "https://r.openai.azure.com/openai/v1/responses?api-version=preview",
        ),
        ("https://relay.host?tenant=a", "/v1/messages", "https://relay.host/v1/messages?tenant=a"),
        (
            "https://g.com?tenant=a",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            "https://g.com/v1beta/models/m:streamGenerateContent?alt=sse&tenant=a",
        ),
    ],
)
def test_one_correct_url(base: str, path: str, wanted: str) -> None:
    assert upstream_url(clean_base_url(base), path) == wanted


def test_own_path_is_taken_as_it_is() -> None:
    assert upstream_url("https://x.com", "/v1/chat/completions", "chat") == "https://x.com/chat"
    assert upstream_url("https://x.com?a=b", "/v1/chat/completions", "chat") == "https://x.com/chat?a=b"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "ftp://x",
        "https://",
        "http://a b",
        "https://x?key=1",
        "https://x?a=1&Api-Key=1",
        "https://x?access_token=",
        "https://x?a=b c",
        "https://x#",
        "https://u@x",
        "http://x:port",
        "http://[::1",
    ],
)
def test_bad_addresses(bad: str) -> None:
    with pytest.raises(ConfigError):
        clean_base_url(bad)


def test_known_hosts_name_profiles_that_exist() -> None:
    table = default_profiles()
    for host in known_hosts():
        for dialect, profile in host.profiles.items():
            assert table.get(profile).dialect == dialect
    assert clean_base_url(start().base_url) == start().base_url


# -- YAML ------------------------------------------------------------------------------------------------------------------


def test_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(BadYaml, match="too large"):
        read_yaml("\n".join(lines), "bomb")


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]", "a: &a {<<: *a}", "[" * 1200, "a: " + "{a: " * 100 + "}" * 100, "? [a]\n: b", "<<: x", "a: *b", "\x01"],
)
def test_hostile_yaml_is_named(text: str) -> None:
    with pytest.raises(BadYaml):
        read_yaml(text, "f")


@given(st.text(alphabet="ab:-[]{}&*!?|>'\"#%@,\n \t~0", max_size=60))
def test_any_text_loads_or_is_named(text: str) -> None:
    try:
        tree, lines = read_yaml(text, "f")
    except BadYaml:
        return
    assert isinstance(tree, dict)
    assert all(line >= 1 for line in lines.values())


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 10**10)
    | st.text(max_size=6)
    | st.sampled_from(["${X}", "local/x", "*", "off"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["base_url", "use", "match", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*struct_fields(Config), *struct_fields(FlatKeys), "odd"]), _values, max_size=5))
def test_any_tree_loads_or_is_named(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    root = tmp_path_factory.mktemp("any")
    named = root / "c.yml"
    named.write_text(yaml.safe_dump(tree), "utf-8")
    try:
        loaded = load(Sources(config_file=named, directory=root, home=root))
    except ConfigError as error:
        problems = error.problems
    else:
        Router(loaded.config).listed_models()
        assert yaml.safe_load(show(loaded))
        return
    assert any(problem.fatal for problem in problems)


def test_unreadable_files(tmp_path: Path) -> None:
    file = tmp_path / "athena.yml"
    file.write_bytes(b"port: \xff")
    loaded = load(sources(tmp_path))
    assert "not UTF-8" in str(loaded.warnings[0])
    assert loaded.config.port == 12377
    file.write_bytes(b"#" * (2 * 1024 * 1024))
    assert "larger than" in str(load(sources(tmp_path)).warnings[0])
    file.unlink()
    file.mkdir()
    assert "is not a file" in str(load(sources(tmp_path)).warnings[0])
    with pytest.raises(ConfigError, match="does not exist"):
        load(sources(tmp_path, config_file=tmp_path / "nowhere.yml"))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "athena.yaml").write_text("port: 1")
    assert "name it athena.yml" in str(load(sources(tmp_path / "two")).warnings[0])


def test_key_files(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(CANARY + "\n")
    key.chmod(0o644)
    text = f"upstreams: {{a: {{base_url: 'http://127.0.0.1:1', api_key_file: '{key}'}}}}\nenvelope_key_file: '{key}'"
    loaded = load(sources(tmp_path, text))
    assert loaded.config.upstreams["a"].api_key == loaded.config.envelope_key == Secret(CANARY)
    assert "chmod 600" in str(loaded.warnings[0])
    assert loaded.key_files == (key, key)
    key.chmod(0o600)
    assert not load(sources(tmp_path, text)).warnings
    key.write_text("\n")
    with pytest.raises(ConfigError, match="the file is empty"):
        load(sources(tmp_path, text))


# -- schema and template ---------------------------------------------------------------------------------------------------


def test_schema_is_current() -> None:
    assert schema_text() == render_schema(), "run: python -m athena.shells.config.schema"


def test_schema_describes_every_key() -> None:
    schema = json.loads(schema_text())
    jsonschema_rs.meta.validate(schema)
    assert set(schema["properties"]) == {*struct_fields(Config), *struct_fields(FlatKeys)}
    for part in (schema, *schema["$defs"].values()):
        assert all(value["description"] for value in part["properties"].values())


def test_schema_takes_what_loads(tmp_path: Path) -> None:
    validator = jsonschema_rs.Draft202012Validator(json.loads(schema_text()))
    checked = 0
    for number, case in enumerate(config_cases()):
        if case.file is None or case.home_file or case.errors or case.warnings or "SHA256" in case.file:
            continue
        load(sources_of(case, tmp_path / str(number)))
        tree, _ = read_yaml(case.file, "f")
        assert [str(error) for error in validator.iter_errors(tree)] == [], case.name
        checked += 1
    assert checked > 10
    bad: list[dict[str, Any]] = [
        {"prot": 1},
        {"upstreams": {"a": {}}},
        {"models": [{"match": "x"}]},
        {"log": {"level": "loud"}},
        {"keys": ["plain"]},
    ]
    assert not any(map(validator.is_valid, bad))


def test_template_loads_clean(tmp_path: Path) -> None:
    text = init_template()
    loaded = load(sources(tmp_path, text))
    assert loaded.warnings == ()
    assert loaded.is_empty
    assert loaded.config == Config()
    assert jsonschema_rs.Draft202012Validator(json.loads(schema_text())).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("section", ["Short form", "Full form", "Keys that", "Fine tuning"])
def test_template_loads_with_a_section_uncommented(tmp_path: Path, section: str) -> None:
    lines, active = [], False
    for line in init_template().splitlines():
        if line.startswith("# =="):
            active = section in line
        elif active and "#" in line:
            line = line.replace("# ", "", 1)
            line = "" if line == "#" else line
        lines.append(line)
    environment = {"OPENROUTER_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    loaded = load(sources(tmp_path, "\n".join(lines), environment=environment))
    assert loaded.warnings == ()


def test_every_flag_and_variable_leads_somewhere() -> None:
    known = {*struct_fields(Config), *struct_fields(FlatKeys)}
    assert set(FLAGS) <= known
    names = environment_names()
    assert {path[0] for path in names.values()} == known
    assert names["ATHENA_LIMITS__BODY_BYTES"] == ("limits", "body_bytes")


def test_limits_for_the_core() -> None:
    assert LimitSettings().core().section_chars == 1024 * 1024
    assert LimitSettings().core(0).section_chars == 0
    assert LimitSettings(calls=3).core(2).calls == 3


# -- routing ---------------------------------------------------------------------------------------------------------------


def test_unknown_model_names_the_nearest() -> None:
    upstream = Upstream(base_url="http://127.0.0.1:1")
    rules = (ModelRule(match="kimi-k2", use="a/moonshotai/kimi-k2-0905"), ModelRule(match="qwen3-*", use="a/q"))
    router = Router(Config(upstreams={"a": upstream}, models=rules))
    with pytest.raises(UnknownModel, match=r"no model 'kimi-k3' is configured; nearest: kimi-k2") as caught:
        router.resolve("kimi-k3")
    assert caught.value.kind == "not_found"
    with pytest.raises(UnknownModel):
        Router(Config()).resolve("x")
    assert Router(Config()).listed_models() == ()


def test_a_route_brings_everything_together(tmp_path: Path) -> None:
    (case,) = [case for case in config_cases() if case.name == "settings per upstream and per rule"]
    router = Router(load(sources_of(case, tmp_path)).config)
    first, second = router.resolve("x")
    assert router.resolve("x")[0] is first
    assert (first.timeouts.idle_s, first.timeouts.total_s, first.timeouts.connect_s) == (5, 7, 5)
    assert first.profile.stop_limit == 2
    assert first.profile.choices is False
    assert first.profile.body == {"seed": 1, "provider": {"order": ["x"]}}
    assert (first.strict, first.pairing, first.tools, first.format) == (False, "repair", "native", "standard")
    assert (second.tools, second.format, second.policy) == ("prompted", "kimi_k2", "collect_then_stop")
    assert second.profile.body == {"seed": 1}


def test_how_the_text_is_read() -> None:
    upstreams = {
        "clean": Upstream(base_url="http://127.0.0.1:1", dialect="anthropic_messages", profile="anthropic"),
        "plain": Upstream(base_url="http://127.0.0.1:1"),
    }
    rules = (
        ModelRule(match="clean*", use="clean"),
        ModelRule(match="off", use="plain/moonshotai/kimi-k2", format="standard"),
        ModelRule(match="held", use="plain/x", format="qwen", argument_streaming=False, malformed="drop", repair="schema"),
        ModelRule(match="raw", use="plain/qwen3", starts_in_thinking=True),
        ModelRule(match="*", use="plain"),
    )
    formats = {"kimi": FormatSettings(tokens={"call_end": "<|stop|>"}, section_limit_kb=2, context_limit_kb=7)}
    router = Router(Config(upstreams=upstreams, models=rules, formats=formats))
    clean, off, held = (router.resolve(name)[0] for name in ("clean-1", "off", "held"))
    assert (clean.format, clean.format_options) == ("standard", None)
    assert (off.format, off.format_options) == ("standard", None)
    assert held.format_options == FormatOptions(
        "hermes", policies=Policies(arguments="hold", malformed="drop", repair="schema"), tokens={}
    )
    raw = router.resolve("raw")[0].format_options
    assert raw is not None
    assert raw.starts_in_thinking
    kimi = router.resolve("moonshotai/kimi-k2-0905")[0]
    assert kimi.format_options == FormatOptions("kimi_k2", tokens={"call_end": "<|stop|>"})
    assert (kimi.limits.section_chars, kimi.context_limit_kb) == (2048, 7)
    other = router.resolve("gpt-4")[0]
    assert other.format_options == FormatOptions("standard")
    assert (other.limits.section_chars, other.context_limit_kb) == (1024 * 1024, 0)


def test_names_from_clients_are_not_all_remembered() -> None:
    router = Router(Config(upstreams={"a": Upstream(base_url="http://127.0.0.1:1")}, models=(ModelRule(match="*", use="a"),)))
    for number in range(3000):
        assert router.resolve(f"m{number}")[0].model == f"m{number}"
    assert len(router._known) <= 1024


# -- watch -----------------------------------------------------------------------------------------------------------------


def touch(file: Path, text: str, number: int) -> None:
    """Write a file and give it a time of its own."""
    file.write_text(text, "utf-8")
    os.utime(file, ns=(number * 10**9, number * 10**9))
    trust(file, file.parent / "home")


def test_watcher(tmp_path: Path) -> None:
    file = tmp_path / "athena.yml"
    watcher = ConfigWatcher(sources(tmp_path, environment={"KEY": "a"}))
    assert not watcher.changed()
    touch(file, "port: 2001", 1)
    assert watcher.changed()
    old = watcher.config
    assert watcher.reload().port == 2001 == watcher.config.port
    assert needs_restart(old, watcher.config) == ("port",)
    assert not watcher.changed()
    for number, bad in enumerate(("port: many", "port: [", "port: \x01"), start=2):
        touch(file, bad, number)
        assert watcher.changed()
        with pytest.raises(ConfigError):
            watcher.reload()
        assert watcher.config.port == 2001
        assert not watcher.changed()
    key = tmp_path / "key"
    touch(key, "one", 1)
    key.chmod(0o600)
    touch(file, f"upstreams: {{a: {{base_url: 'http://127.0.0.1:1', api_key_file: '{key}'}}}}", 10)
    watcher.reload()
    assert not watcher.changed()
    touch(key, "two", 2)
    assert watcher.changed()
    assert watcher.reload().upstreams["a"].api_key == Secret("two")
    file.unlink()
    assert watcher.changed()
    assert watcher.reload() == Config()


def test_sources_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ATHENA_PORT", "3001")
    monkeypatch.delenv("ATHENA_CONFIG", raising=False)
    for name in ("OPENROUTER_API_KEY", "ATHENA_HYPOTHESIS"):
        monkeypatch.delenv(name, raising=False)
    assert load(Sources.here({"host": None})).config.port == 3001
    (tmp_path / "own.yml").write_text("workers: 3")
    monkeypatch.setenv("ATHENA_CONFIG", "own.yml")
    assert load(Sources.here()).config.workers == 3
    (tmp_path / "flag.yml").write_text("workers: 4")
    assert load(Sources.here({"port": 9}, "flag.yml")).config.port == 9


def test_a_large_file_is_read_in_linear_time(tmp_path: Path) -> None:
    upstreams = "".join(f"  u{number}: {{base_url: 'http://127.0.0.1:1'}}\n" for number in range(2000))
    loaded = load(sources(tmp_path, "upstreams:\n" + upstreams, environment={"ATHENA_PORT": "1"}))
    assert len(loaded.config.upstreams) == 2000
    assert str(loaded.layout.origin(("upstreams", "u1999", "base_url"))) == "athena.yml:2001"


# -- servers at known and unknown addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", "bedrock-runtime.*.amazonaws.com"),
        ("https://bedrock-mantle.eu-west-2.api.aws/anthropic", "bedrock-mantle.*.api.aws"),
        ("https://my.openai.azure.com", "openai.azure.com"),
        ("https://api.openai.com.evil.test", None),
        ("https://bedrock-runtime.amazonaws.com", None),
        ("https://openai.com", None),
    ],
)
def test_a_host_is_known_by_its_labels(address: str, host: str | None) -> None:
    found = known_host(address)
    assert (found.host if found is not None else None) == host
