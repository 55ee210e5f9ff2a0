"""`athena init` by flags and with a person at the keyboard, and `athena config import`."""

from __future__ import annotations

import json
import os
import pty
import re
import select
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from athena.errors import AthenaError
from athena.shells.config import Secret, Sources, Upstream, load
from athena.shells.demo import demo_answer
from athena.shells.setup import Provider, ask_models, known_providers, own_provider
from athena.shells.setup.claude_code_router import import_claude_code_router
from athena.shells.setup.litellm import import_litellm
from support.athena_process import athena, environment, start_athena
from support.patience import PATIENCE

IMPORTS = Path(__file__).parent.parent / "cases" / "imports"
KEY = "sk-typed-in-0123456789"
MODELS = {"data": [{"id": "acme/one", "max_model_len": 65536}, {"id": "acme/two"}]}


class _Models(BaseHTTPRequestHandler):
    """A server with two models; it refuses every key but one where the path asks for it, and has faults at other paths."""

    def do_GET(self) -> None:
        wants_key = self.path.startswith("/keyed")
        refused = wants_key and self.headers.get("authorization") != f"Bearer {KEY}"
        moved = self.path.startswith("/moved")
        status = 401 if refused else 404 if self.path.startswith("/nothing") else 302 if moved else 200
        body = b"<html>hello</html>" if self.path.startswith("/page") else json.dumps(MODELS).encode()
        self.send_response(status)
        if moved:
            self.send_header("location", "/v1/models")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = b"".join(demo_answer(asked))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _Models)
    thread = Thread(target=listener.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listener.server_address[1]}"
    listener.shutdown()
    thread.join()
    listener.server_close()


def written(home: Path) -> Path:
    return home / ".config" / "athena" / "athena.yml"


def test_a_program_asks_for_everything_as_json(tmp_path: Path, server: str) -> None:
    done = athena(tmp_path, "init", "--json", "--upstream", f"{server}/v1", "--model", "acme/one", "--agent", "claude")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["file"], found["model"], found["agent"]) == (str(written(tmp_path)), "acme/one", "claude")
    assert (found["works"], found["missing_key"], found["start"]) == (True, None, "athena code claude")
    assert "models" in {step["name"] for step in found["steps"]}


def test_flags_answer_everything(tmp_path: Path, server: str) -> None:
    """No terminal: the file is written, is valid, names the window, and the next command is printed."""
    done = athena(tmp_path, "init", "--yes", "--upstream", f"{server}/v1", "--model", "acme/one", "--agent", "claude")
    assert done.code == 0, done.err
    assert "Start with: athena code claude" in done.out
    assert "mine: models" in done.out, "the doctor has tried it"
    file = written(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    loaded = load(Sources.here({}, file))
    assert loaded.config.upstreams["mine"].base_url == f"{server}/v1"
    [rule] = loaded.config.models
    assert (rule.use, rule.context) == ("mine/acme/one", 65536)
    again = athena(tmp_path, "init", "--yes", "--upstream", f"{server}/v1")
    assert again.code == 1
    assert "--force replaces it" in again.err
    forced = athena(tmp_path, "init", "--yes", "--force", "--upstream", f"{server}/v1", "--model", "acme/on")
    assert "does not list the model 'acme/on'; did you mean acme/one" in forced.err
    assert file.with_name("athena.yml.bak").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--upstream NAME"),
        (["--upstream", "opnrouter"], "did you mean openrouter?"),
        (["--upstream", "ftp://x"], "is not the address of a server"),
        (["--upstream", "ollama", "--agent", "claud", "--no-check"], "there is no agent 'claud'"),
        (["--upstream", "openai", "--api-key-file", "no-such-file"], "put the key into it first"),
    ],
)
def test_wrong_flags_name_the_remedy(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = athena(tmp_path, "init", "--yes", *arguments)
    assert done.code in (1, 2)
    assert said in done.err
    assert not written(tmp_path).exists()


def test_every_provider_gives_a_valid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each row of the table, without asking anybody: the file loads once the key's variable is set."""
    from athena.shells.setup import Answers, KeyPlace, configuration_text

    for row in known_providers():
        place = KeyPlace.ENVIRONMENT if row.key_env else KeyPlace.NONE
        file = tmp_path / f"{row.id}.yml"
        file.write_text(configuration_text(Answers(provider=row, model="a/b", key_place=place, key_name=row.key_env)))
        if row.key_env:
            monkeypatch.setenv(row.key_env, "k")
        config = load(Sources.here({}, file)).config
        assert config.upstreams[row.id].base_url == row.base_url
        assert config.models[0].use == f"{row.id}/a/b"
        assert row.note


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/keyed", "the key is missing or wrong"),
        ("/nothing", "answers 404"),
        ("/page", "does not answer with JSON"),
        ("/moved", "answers 302; it has moved to /v1/models"),
    ],
)
def test_a_server_that_does_not_list_says_why(server: str, path: str, said: str) -> None:
    with pytest.raises(AthenaError, match=re.escape(said)) as caught:
        ask_models(Provider(id="x", title="x", base_url=server + path), "")
    assert server in caught.value.message


def test_the_list_is_asked_for_as_the_gateway_would(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past a proxy that the environment names, by the one that is configured, with the configured headers."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    own = Provider(id="x", title="x", base_url=f"{server}/v1")
    assert [model.id for model in ask_models(own, "")] == ["acme/one", "acme/two"]
    by_proxy = Upstream(base_url="http://models.invalid/v1", proxy=Secret(server))
    assert len(ask_models(Provider(id="x", title="x", base_url=by_proxy.base_url), "", upstream=by_proxy)) == 2
    keyed = Upstream(base_url=f"{server}/keyed/v1", headers={"authorization": Secret(f"Bearer {KEY}")})
    assert len(ask_models(Provider(id="x", title="x", base_url=keyed.base_url), "", upstream=keyed)) == 2


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(AthenaError, match="is the server running"):
        ask_models(own_provider("http://127.0.0.1:9/v1"), "")


@pytest.mark.parametrize("model", ["two", "2"])
def test_a_person_is_asked(model: str, tmp_path: Path, server: str) -> None:
    """Another address, a key typed in unseen, part of a model's name or its number, no agent: a path through the questions."""
    last = str(len(known_providers()) + 1)
    answers = [
        ("Number", last),
        ("Its address", f"{server}/keyed/v1"),
        ("Does it ask for a key?", "y"),
        ("Number", "1"),
        ("The key", KEY),
        ("Number, or name", model),
        ("Start now", "n"),
    ]
    code, text = conversation(tmp_path, answers, "init", "--agent", "")
    assert code == 0, text
    assert KEY not in text
    file = written(tmp_path)
    config = load(Sources.here({}, file)).config
    assert config.models[0].use == "mine/acme/two"
    kept = file.parent / "keys" / "mine"
    assert kept.read_text().strip() == KEY
    assert kept.stat().st_mode & 0o777 == 0o600
    assert KEY not in file.read_text()
    assert "Start with: athena serve" in text


def test_a_key_that_was_typed_wrong_can_be_typed_again(tmp_path: Path, server: str) -> None:
    kept = tmp_path / "key"
    kept.write_text("wrong\n")
    answers = [("Use the key that is in ~/key?", "n"), ("The key", KEY), ("Start now", "n")]
    flags = ("--upstream", f"{server}/keyed/v1", "--api-key-file", str(kept), "--model", "acme/two", "--agent", "")
    code, text = conversation(tmp_path, answers, "init", *flags)
    assert code == 0, text
    assert kept.read_text().strip() == KEY
    assert KEY not in text


def conversation(home: Path, answers: list[tuple[str, str]], *arguments: str) -> tuple[int, str]:
    """A command on a terminal: each answer is typed when its question stands there."""
    master, slave = pty.openpty()
    process = start_athena(arguments, (slave, slave, slave), home, environment(home))
    os.close(slave)
    text, asked = "", 0
    waiting = list(answers)
    while select.select([master], [], [], PATIENCE)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        text += data.decode()
        if waiting and waiting[0][0] in text[asked:] and text.rstrip().endswith((":", "]", "?")):
            asked = len(text)
            os.write(master, waiting.pop(0)[1].encode() + b"\n")
    os.close(master)
    return process.wait(PATIENCE), text


def test_the_list_names_all(tmp_path: Path) -> None:
    done = athena(tmp_path, "init", "--list")
    assert done.code == 0
    assert all(row.id in done.out for row in known_providers())
    rows = json.loads(athena(tmp_path, "init", "--list", "--json").out)
    assert [row["id"] for row in rows] == [row.id for row in known_providers()]


# -- configurations of others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", sorted(IMPORTS.iterdir()), ids=lambda source: source.name)
def test_imports_are_valid_and_nothing_is_lost(source: Path, tmp_path: Path) -> None:
    kind = source.stem.removesuffix("-full")
    output = tmp_path / "athena.yml"
    done = athena(tmp_path, "config", "import", kind, str(source), "-o", str(output))
    assert done.code == 0, done.err
    text = output.read_text()
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x")
    assert variables
    checked = athena(tmp_path, "config", "check", str(output), **variables)
    assert "The configuration is valid" in checked.out, checked.err
    assert "sk-1234" not in text + done.err
    assert "&id" not in text
    assert output.stat().st_mode & 0o777 == 0o600
    report = json.loads(athena(tmp_path, "config", "import", kind, str(source), "--json").out)
    assert all(one["remedy"] for one in report["unmapped"])
    assert all(one["field"] in text for one in report["unmapped"])


def test_what_litellm_says_means_the_same_here() -> None:
    imported = import_litellm(yaml.safe_load((IMPORTS / "litellm.yaml").read_text()))
    rules = {rule["match"]: rule for rule in imported.settings["models"]}
    assert rules["kimi"]["use"] == [
        {"use": "openrouter/moonshotai/kimi-k2", "weight": 1},
        {"use": "hosted_vllm/Qwen3", "weight": 1},
    ]
    assert rules["kimi"]["body"] == {"temperature": 0.2}
    assert rules["kimi"]["context"] == 131072
    assert rules["gpt-4o"]["fallback"] == ["openrouter/moonshotai/kimi-k2", "hosted_vllm/Qwen3"]
    assert imported.settings["upstreams"]["azure"]["base_url"] == "https://my.openai.azure.com/openai/v1"
    assert rules["gpt4"]["use"] == rules["gpt-4o"]["use"]
    assert rules["anthropic/*"]["use"] == "anthropic/*"
    assert imported.settings["upstreams"]["hosted_vllm"]["api_key"] == "sk-lit$eral"
    assert imported.settings["retries"] == {"attempts": 3}
    assert {one.field for one in imported.unmapped} == {
        "model_list[0].litellm_params.api_version", "model_list[0].litellm_params.rpm", "model_list[1].model_info.mode",
        "model_list[4]", "litellm_settings.success_callback[0]", "router_settings.routing_strategy",
    }  # fmt: skip


def test_what_a_large_litellm_file_says_means_the_same_here() -> None:
    imported = import_litellm(yaml.safe_load((IMPORTS / "litellm-full.yaml").read_text()))
    rules = {rule["match"]: rule for rule in imported.settings["models"]}
    assert list(rules)[-2:] == ["claude-*", "*"], "names go before patterns, since the first match wins"
    assert rules["local"]["prefer"] == "latency"
    assert rules["local"]["use"] == [
        {"use": "hosted_vllm/Qwen/Qwen3-Coder-30B", "weight": 5},
        {"use": "openai/Qwen/Qwen3-Coder-30B", "weight": 0},
    ]
    assert rules["kimi"]["fallback"][:2] == ["moonshot/kimi-k2", "azure/gpt-4o-eu"], "by order, then fallbacks"
    assert rules["sonnet"] == rules["kimi"] | {"match": "sonnet"}, "an alias may be an object"
    assert rules["gem2"]["fallback"] == ["azure/gpt-4o-eu"], "default_fallbacks"
    assert imported.settings["upstreams"]["openrouter"]["headers"] == {"HTTP-Referer": "https://example.com", "X-Title": "mine"}
    assert imported.settings["limits"] == {"requests": 200, "body_bytes": 10 * 1024 * 1024}
    remedies = {one.field: one.remedy for one in imported.unmapped}
    assert "Bedrock API key" in remedies["model_list[5]"]
    assert "not copied" in remedies["environment_variables"]
    assert "one body" in remedies["model_list[11].litellm_params.temperature"]


def test_what_a_large_router_file_says_means_the_same_here() -> None:
    text = re.sub(r"(?m)^\s*//.*$", "", (IMPORTS / "claude-code-router-full.json").read_text())
    imported = import_claude_code_router(json.loads(text))
    upstreams, rules = imported.settings["upstreams"], {rule["match"]: rule for rule in imported.settings["models"]}
    assert upstreams["deepseek"]["proxy"] == "http://127.0.0.1:7890"
    assert "proxy" not in upstreams["ollama"], "a server on this machine is not asked through the proxy"
    assert rules["*"]["fallback"] == ["openrouter/anthropic/claude-sonnet-4"]
    assert rules["*haiku*"]["fallback"] == ["deepseek/deepseek-chat"]
    assert rules["volcengine,deepseek-v3-250324"]["body"] == {"max_tokens": 16384}
    assert [field for field, _ in imported.mapped].count("PROXY_URL") == 1
    remedies = {one.field: one.remedy for one in imported.unmapped}
    assert "status line" in remedies["StatusLine.enabled"]
    assert "no scripts" in remedies["transformers[0].options.project"]


def test_every_leaf_is_mapped_or_named() -> None:
    """Any value that is added anywhere is named, whatever it is called."""
    value = yaml.safe_load((IMPORTS / "litellm.yaml").read_text())
    known = {one.field for one in import_litellm(value).unmapped}
    value["model_list"][1]["litellm_params"]["new_thing"] = {"deep": [1, 2]}
    value["general_settings"]["another"] = True
    added = {one.field for one in import_litellm(value).unmapped} - known
    assert added == {
        "model_list[1].litellm_params.new_thing.deep[0]",
        "model_list[1].litellm_params.new_thing.deep[1]",
        "general_settings.another",
    }
    router = json.loads(re.sub(r"(?m)^\s*//.*$", "", (IMPORTS / "claude-code-router.json").read_text()))
    router["Router"]["fancy"] = "x,y"
    assert "Router.fancy" in {one.field for one in import_claude_code_router(router).unmapped}


@pytest.mark.parametrize("kind", ["litellm", "claude-code-router"])
def test_other_files_are_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: 1\n")
    done = athena(tmp_path, "config", "import", kind, str(file))
    assert done.code == 1
    assert "it has no" in done.err
