"""Writes the page of every provider and every client, and the parts of other pages that come from data.

Run `python docs/generate_pages.py` after a change of docs/pages.toml, docs/wrong_steps.toml, profiles.toml, providers.toml, the
agents, the metrics, the fields of a request's log line or benchmarks/results/leaks.json; `--check` only says whether the pages
are current.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from athena.model.profile import Profile
from athena.profiles import default_profiles
from athena.serving import record as record_module
from athena.serving.record import RequestRecord
from athena.shells.agents import AGENTS, Agent
from athena.shells.config.addresses import known_host
from athena.shells.gateway.metrics import Metrics
from athena.shells.setup import known_providers

HERE = Path(__file__).parent
ROOT = HERE.parent
WRITTEN = "<!-- Written by docs/generate_pages.py. Do not edit. -->"
DIALECTS = {
    "openai_chat": "OpenAI Chat Completions",
    "openai_responses": "OpenAI Responses",
    "anthropic_messages": "Anthropic Messages",
    "gemini": "Gemini",
}


def texts() -> dict[str, Any]:
    """What the pages say beyond what the code knows."""
    return tomllib.loads((HERE / "pages.toml").read_text("utf-8"))


# -- providers -------------------------------------------------------------------------------------------------------------

SENTENCES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("auth", lambda value: value != "bearer", "The key goes into the header `{value}`."),
    ("clean", bool, "Its streams keep to the API, so a client of the same API gets them byte for byte."),
    ("developer_role", bool, "System text goes in `developer` messages."),
    ("system_messages", lambda value: not value, "It has no system role: instructions are put before the first user text."),
    ("system_turns", lambda value: value == "first_only", "System messages after the first become user text in a tag."),
    ("merge_turns", bool, "Messages of one role in a row are merged."),
    ("text_content", bool, "Message content is sent as a plain string."),
    ("image_urls", lambda value: not value, "Images go as base64; a web address is refused with its name."),
    ("video", bool, "Video parts are passed on."),
    ("name_in_results", bool, "Tool results carry the tool's name."),
    ("result_role", lambda value: value == "function", "Tool results are messages of the role `function`."),
    ("ids", lambda value: value == "kimi", "Call ids are rewritten to `functions.NAME:N`, counted over the history."),
    ("ids", lambda value: value == "mistral", "Call ids are rewritten to nine letters and digits."),
    ("ids", lambda value: value == "none", "It has no call ids: calls and results are paired by their order."),
    ("strict_tools", lambda value: not value, "`strict` on tools is left out."),
    ("custom_tools", bool, "Free-form tools are passed on as they are."),
    ("forced_choice", lambda value: not value, "A forced tool choice is not sent; Athena checks the answer instead."),
    ("forced_choice_while_thinking", lambda value: not value, "A tool is not forced while the model thinks."),
    ("named_choice", lambda value: not value, "A named tool choice becomes a list of that one tool."),
    ("required_word", lambda value: value != "required", "`required` as a tool choice is spelled `{value}`."),
    ("parallel_switch", lambda value: not value, "The switch for parallel calls is left out."),
    ("schema_drops", bool, "These keywords are removed from tool schemas: {value}."),
    ("tools_limit", bool, "A request with more than {value} tools is refused with that number."),
    ("max_tokens_field", lambda value: value != "max_tokens", "The limit of the answer goes in `{value}`."),
    ("max_tokens_default", bool, "The answer's limit is {value} tokens when the client names none."),
    ("sampling_while_thinking", lambda value: not value, "Sampling fields are left out while the model thinks."),
    ("temperature_max", bool, "Temperatures above {value} are lowered to it."),
    ("stop_limit", lambda value: value == 0, "Stop sequences are matched by Athena, because it takes none."),
    ("choices", lambda value: not value, "It gives one choice per request; `n` above 1 is refused."),
    ("reasoning_control", lambda value: value == "openrouter", "Reasoning is asked for with its `reasoning` object."),
    ("reasoning_control", lambda value: value == "template", "Thinking is switched in the chat template."),
    ("reasoning_control", lambda value: value == "thinking", "Thinking is asked for with a `thinking` object."),
    ("reasoning_control", lambda value: value == "thinking_and_effort", "Thinking is asked for with `thinking` and an effort."),
    ("reasoning_field", lambda value: value != "reasoning_content", "Reasoning text travels in the field `{value}`."),
    ("reasoning_replay", lambda value: value == "calls", "Reasoning goes back to it with the turns that made calls."),
    ("reasoning_replay", lambda value: value == "always", "Reasoning of all earlier turns goes back to it."),
    (
        "reasoning_replay",
        lambda value: value == "details",
        "Reasoning goes back unchanged and in order, in `reasoning_details`.",
    ),
    ("reasoning_replay", lambda value: value == "chunks", "Reasoning goes back as thinking chunks of the content."),
    ("reasoning_filler", lambda value: value is not None, "A turn that must carry reasoning and has none gets an empty one."),
    ("signed_calls", bool, "Calls of the history carry their thought signatures."),
    ("json_schema", lambda value: not value, "A schema for the answer is told to the model, not enforced."),
    ("cache_marks", lambda value: value == "cache_control", "Cache marks (`cache_control`) are passed on."),
    ("drop_fields", bool, "These fields of a client are left out: {value}."),
    ("pass_fields", bool, "These fields of its own are passed on: {value}."),
    ("name_fragments", bool, "Tool names that arrive in pieces are put together."),
    ("merge_choices", bool, "An answer that it splits over several choices is put together."),
    ("cut_by_usage", bool, "An answer that was cut although it says otherwise is recognised by its token count."),
)
"""A field of a profile, when it is worth a sentence, and the sentence."""


def adaptations(profile: Profile, base: Profile) -> list[str]:
    """What Athena does because of a profile, where that differs from the other one."""
    return [
        sentence.format(value=_value(getattr(profile, field)))
        for field, applies, sentence in SENTENCES
        if getattr(profile, field) != getattr(base, field) and applies(getattr(profile, field))
    ]


def _value(value: Any) -> str:
    return ", ".join(f"`{one}`" for one in value) if isinstance(value, tuple) else str(value)


def provider_pages() -> Iterator[tuple[str, str]]:
    """A page for each, and the page that lists them."""
    rows = texts()["providers"]
    known = {provider.id: provider for provider in known_providers()}
    listed = []
    for name, row in rows.items():
        provider = known.get(name)
        title = provider.title if provider is not None else row["title"]
        base_url = provider.base_url if provider is not None else row["base_url"]
        key_env = provider.key_env if provider is not None else row.get("key_env", "")
        note = provider.note if provider is not None else ""
        host = known_host(base_url)
        profiles = dict(host.profiles) if host is not None else _local_profiles(row["profile"])
        yield f"providers/{name}.md", _provider(name, title, base_url, key_env, note, row, profiles, is_known=host is not None)
        apis = ", ".join(DIALECTS[dialect] for dialect in profiles)
        key = f"`{key_env}`" if key_env else "none"
        listed.append(f"| [{title}]({name}.md) | `{base_url}` | {key} | {apis} |")
    yield (
        "providers/index.md",
        "\n".join(
            [
                "# Providers",
                "",
                WRITTEN,
                "",
                "Where your model runs. Each page has the configuration to copy, what Athena does differently there, and what",
                "to watch for. `athena init` asks for the same and writes the file.",
                "",
                "| provider | base URL | key | APIs |",
                "|---|---|---|---|",
                *listed,
                "",
                "Which of them calls tools well with your model? [`athena verify`](../verify.md) measures it.",
                "",
            ]
        ),
    )


def _local_profiles(name: str) -> dict[str, str]:
    """The profiles of a server that has no address of its own, by dialect."""
    table = default_profiles()
    if name == "generic":
        return dict.fromkeys(DIALECTS, "")
    found = {"openai_chat": name}
    for dialect, suffix in (("openai_responses", "_responses"), ("anthropic_messages", "_anthropic")):
        if name + suffix in table.names():
            found[dialect] = name + suffix
    return found


def _provider(
    name: str,
    title: str,
    base_url: str,
    key_env: str,
    note: str,
    row: dict[str, Any],
    profiles: dict[str, str],
    *,
    is_known: bool,
) -> str:
    model = row["model"]
    local = row["profile"] if not is_known and row["profile"] != "generic" else ""
    fields = [f"base_url: {base_url}"]
    fields += [f'api_key: "${{{key_env}}}"'] if key_env else []
    fields += [f"profile: {local}"] if local else []
    serve = f"athena serve --base-url {base_url}" + (f" --api-key-env {key_env}" if key_env else "")
    serve += (f" --profile {local}" if local else "") + f" --model {model}"
    upstream = "mine" if name == "other" else name
    # The note is also printed by `athena init`, where options stand without marks.
    marked = re.sub(r"(?<![`\w])--[a-z][a-z-]*", r"`\g<0>`", note)
    lines = [f"# {title}", "", WRITTEN, "", row["about"], "", *([marked, ""] if note else [])]
    if "start" in row:
        lines += ["Start the server, for example:", "", "```text", row["start"], "```", ""]
    lines += ["```sh", *([f"export {key_env}=..."] if key_env else []), serve, "```", ""]
    lines += ["The same as a file, for more than one model or upstream:", "", "```yaml", "upstreams:", f"  {upstream}:"]
    lines += [f"    {field}" for field in fields]
    lines += ["models:", f'  - {{match: "*", use: "{upstream}/{model}"}}', "```", ""]
    lines += [f"- {text}" for text in row["notes"]]
    doctor = serve.replace("athena serve", "athena doctor")
    lines += ["", "Then see whether it works, and how well:", "", "```sh"]
    lines += [
        *([f"export {key_env}=..."] if key_env else []),
        doctor,
        re.sub(r" --profile \S+", "", serve.replace("athena serve", "athena verify")),
        "```",
        "",
    ]
    lines += _apis(profiles, is_known=is_known)
    for dialect, profile in profiles.items():
        if profile:
            lines += _differences(dialect, profile)
    return "\n".join(lines).rstrip("\n") + "\n"


def _apis(profiles: dict[str, str], *, is_known: bool) -> list[str]:
    how = "follows from the address" if is_known else "has to be named"
    lines = ["## Its APIs", "", f"The first is used unless `dialect` names another. The profile {how}.", ""]
    lines += ["| API | `dialect` | `profile` |", "|---|---|---|"]
    return [*lines, *(f"| {DIALECTS[one]} | `{one}` | {f'`{name}`' if name else ''} |" for one, name in profiles.items()), ""]


def _differences(dialect: str, name: str) -> Iterator[str]:
    table = default_profiles()
    rows = table._rows[name]
    found = adaptations(rows.base, Profile(dialect=dialect))
    by_model = [(row.pattern.text, adaptations(row.profile, rows.base)) for row in rows.models]
    by_sentence: dict[tuple[str, ...], list[str]] = {}
    for pattern, sentences in by_model:
        if sentences:
            by_sentence.setdefault(tuple(sentences), []).append(pattern)
    if not found and not by_sentence:
        return
    yield f"## What Athena does for it: {DIALECTS[dialect]}"
    yield ""
    yield from (f"- {sentence}" for sentence in found)
    if by_sentence:
        yield from ("", "| models | besides |", "|---|---|")
        for sentences_of, patterns in by_sentence.items():
            names = ", ".join(f"`{pattern}`" for pattern in sorted(set(patterns)))
            yield f"| {names} | {' '.join(sentences_of)} |"
    yield ""


# -- clients ---------------------------------------------------------------------------------------------------------------


BY_HAND = "by hand; see [what is tested](../agents.md#what-is-tested)"


def client_pages() -> Iterator[tuple[str, str]]:
    """A page for each agent, SDK and framework, and the page that lists them."""
    found = texts()
    tested = _tested_agents()
    agents, sdks, frameworks = [], [], []
    for name, agent in AGENTS.items():
        yield f"clients/{name}.md", _agent(agent, found["agents"][name], tested.get(agent.title, ""))
        agents.append(f"| [{agent.title}]({name}.md) | `athena code {name}` | {DIALECTS[agent.dialect]} |")
    for name, row in found["sdks"].items():
        yield _sdk_file(name), _sdk(row)
        sdks.append(f"| [{row['title']}]({Path(_sdk_file(name)).name}) | {row['about']} |")
    for name, row in found["frameworks"].items():
        yield f"clients/{name}.md", _framework(row)
        frameworks.append(f"| [{row['title']}]({name}.md) | {row['about']} |")
    yield (
        "clients/index.md",
        "\n".join(
            [
                "# Clients",
                "",
                WRITTEN,
                "",
                "What talks to your model. Each page says what to set; nothing of ours has to be put into the program.",
                "",
                "## Coding agents",
                "",
                "[`athena code`](../agents.md) starts them on the gateway without touching their settings.",
                "",
                "| agent | command | API |",
                "|---|---|---|",
                *agents,
                "",
                "## SDKs and other programs",
                "",
                "| client | |",
                "|---|---|",
                *sdks,
                "",
                "## Frameworks",
                "",
                "| framework | |",
                "|---|---|",
                *frameworks,
                "",
            ]
        ),
    )


def _sdk_file(name: str) -> str:
    return f"clients/{name}.md" if name == "other" else f"clients/{name}-sdk.md"


def _tested_agents() -> dict[str, str]:
    """Versions, from the table of what `./dev agents` ran."""
    page = (HERE / "agents.md").read_text("utf-8")
    _, _, table = page.partition("## What is tested")
    return dict(re.findall(r"^\| ([\w ]+?) \| (\d[\w.]+) \|", table, re.MULTILINE))


def _agent(agent: Agent, row: dict[str, str], version: str) -> str:
    lines = [f"# {agent.title}", "", WRITTEN, "", row["about"], "", "```sh", f"athena code {agent.name}", "```", ""]
    lines += [
        f"That finds or starts a gateway, runs `{agent.executables[0]}` on it with your own settings left as they are, and",
        f"ends what it started. `--model NAME` chooses the model; what stands after `--` goes to {agent.title}.",
        f"Not installed yet? `{agent.install}`",
        "",
        f"| | {agent.title} |",
        "|---|---|",
        f"| API it speaks | {DIALECTS[agent.dialect]} |",
        f"| tested | {f'version {version}, by `./dev agents`' if version else BY_HAND} |",
    ]
    if agent.needs_model:
        lines.append("| model | it needs a name: `--model`, else the first that the gateway lists |")
    elif agent.brings_models:
        lines.append("| model | it keeps its own names, which your model rules map; `--model` overrides them |")
    if agent.assumes_tokens:
        lines.append(
            f"| window | it assumes {agent.assumes_tokens:,} tokens for an unknown name; Athena tells it the real one |"
        )
    if agent.needs_tokens:
        lines.append(f"| smallest useful window | {agent.needs_tokens:,} tokens |")
    if agent.resume:
        lines.append(f"| resume the last session | `athena code {agent.name} -- {_resume(agent)}` |")
    if agent.variables:
        lines.append(f"| variables that are set | {_names(agent.variables)} |")
    if agent.removed:
        lines.append(f"| variables that are removed | {_names(agent.removed)} |")
    lines += [
        "",
        "## By hand",
        "",
        "With a gateway at `http://127.0.0.1:12377` and `NAME` for a model that it knows:",
        "",
        row["by_hand"].strip(),
        "",
    ]
    lines += ["## If something is wrong", "", *_help(agent)]
    return "\n".join(lines) + "\n"


def _resume(agent: Agent) -> str:
    return agent.resume.partition("-- ")[2] or agent.resume


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _help(agent: Agent) -> list[str]:
    return [
        "- The agent answers in prose and stops: open the [inspector](../inspector.md), whose address `athena serve` prints,",
        "  and look at what the model wrote.",
        f"- It talks to its own vendor instead: `athena code {agent.name}` sets what wins over your settings; by hand, look",
        "  for another address in its configuration.",
        "- Nothing answers at all: [`athena doctor`](../doctor.md) names the step that fails, and the remedy.",
    ]


def _sdk(row: dict[str, str]) -> str:
    lines = [f"# {row['title']}", "", WRITTEN, "", row["about"], ""]
    if row["package"]:
        lines += [f"Package `{row['package']}`; every pair of APIs, streamed and whole, is run by `{row['tested']}`.", ""]
    return "\n".join([*lines, row["body"].strip()]) + "\n"


def _framework(row: dict[str, Any]) -> str:
    lines = [f"# {row['title']}", "", WRITTEN, "", row["about"], ""]
    lines += [
        f"Package: `{row['package']}`. `./dev frameworks` installs it and runs what follows, on models that leak their calls.",
        "",
    ]
    for example in row["examples"]:
        language = "js" if example.endswith(".mjs") else "python"
        lines += [f"```{language}", "--8<--", f"examples/frameworks/{example}", "--8<--", "```", ""]
    lines += ["[All frameworks](../guides/frameworks.md), [transport](../guides/transport.md), [gateway](../guides/gateway.md)"]
    return "\n".join(lines) + "\n"


# -- parts of other pages --------------------------------------------------------------------------------------------------


def metrics_table() -> str:
    """Every metric, from the code that makes them."""
    seen = _SeenNumbers()
    Metrics(seen)  # type: ignore[arg-type]
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, meaning in seen.rows:
        rows.append(f"| `{name}` | {kind} | {_names(labels)} | {meaning} |")
    return "\n".join(rows)


class _SeenNumbers:
    """Stands where `Numbers` does, and writes down what is asked of it."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, tuple[str, ...], str]] = []

    def counter(self, name: str, meaning: str, labels: tuple[str, ...] = ()) -> Any:
        return self._note(f"{name}_total", "counter", labels, meaning)

    def gauge(self, name: str, meaning: str, labels: tuple[str, ...] = (), *, lowest: bool = False) -> Any:
        return self._note(name, "gauge", labels, meaning)

    def histogram(self, name: str, meaning: str, labels: tuple[str, ...] = (), *, buckets: tuple[float, ...] = ()) -> Any:
        return self._note(name, "histogram", labels, meaning)

    def _note(self, name: str, kind: str, labels: tuple[str, ...], meaning: str) -> Any:
        self.rows.append((name, kind, labels, meaning))
        return self

    def labels(self, *_: str) -> Any:
        return self


def log_table() -> str:
    """Every field of a request's line: its docstring in the record, or what LOG_FIELDS says of a plain one."""
    told = _field_docstrings()
    rows = ["| field | type | meaning |", "|---|---|---|"]
    types = RequestRecord.__annotations__
    for name in RequestRecord.__struct_fields__:
        if name in ("details", "trace"):
            continue
        meaning = told.get(name) or LOG_FIELDS[name]
        rows.append(f"| `{name}` | {types[name]} | {' '.join(meaning.split())} |")
    return "\n".join(rows)


LOG_FIELDS = {
    "request_id": "The id of the request, also in the answer's `x-request-id`, in errors and in the inspector.",
    "dialect": "The API that the client speaks.",
    "key": "The name of the gateway key that was presented.",
    "model": "The model as the client named it.",
    "upstream": "The upstream that was asked last.",
    "upstream_dialect": "The API that the upstream speaks.",
    "upstream_model": "The model as the upstream knows it.",
    "format": "The text format that calls were found in.",
    "stream": "Whether the client asked for a stream.",
    "tools": "How many tools the request declares.",
    "tool_mode": "Whether the tools went natively or in the prompt.",
    "calls": "Tool calls that the client received.",
    "text_calls": "Those of them that the model had written as text.",
    "repairs": "Calls whose arguments were repaired.",
    "bad_calls": "Calls that were invalid, unknown or off their schema.",
    "unchecked_calls": "Calls that were not held against their whole schema, because that would take too much work.",
    "warnings": "How many fields of the request were left out, emulated or changed.",
    "answer_warnings": "How many parts of the answer have no place in the client's API.",
    "bad_records": "Records of the upstream's stream that could not be read and were left out.",
    "attempts": "How many times an upstream was asked.",
    "status": "The status that the client got.",
    "outcome": "How it ended: `ok`, `error`, or why it was given up, such as `client_closed`.",
    "error": "The code of the error; the page of errors lists them all.",
    "input_tokens": "Tokens of the request, as the upstream counted them.",
    "output_tokens": "Tokens of the answer, likewise.",
    "chunks": "Reads from the upstream.",
    "first_byte_ms": "Milliseconds until the first byte for the client.",
    "duration_ms": "Milliseconds until the last.",
    "own_us_per_chunk": "Microseconds of Athena's own work per read.",
}
"""Fields that need no docstring where they are declared."""


def _field_docstrings() -> dict[str, str]:
    tree = ast.parse(inspect.getsource(record_module))
    [declared] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RequestRecord"]
    found: dict[str, str] = {}
    for before, node in zip(declared.body, declared.body[1:], strict=False):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if is_text and isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            text = node.value.value  # type: ignore[attr-defined]
            for constant in ("PATH_SHOWN", "MESSAGE_SHOWN"):
                text = text.replace(f"`{constant}`", str(getattr(record_module, constant)))
            found[before.target.id] = text
    return found


PEERS = {"athena": "Athena", "litellm": "LiteLLM", "rosetta": "llm-rosetta", "ccr": "claude-code-router", "portkey": "Portkey"}


def leaks_table() -> str:
    """What each gateway made of one leaked call, from the saved run of `./dev bench leaks`."""
    saved = json.loads((ROOT / "benchmarks" / "results" / "leaks.json").read_text("utf-8"))
    leaks = list(dict.fromkeys(row["leak"] for row in saved["rows"]))
    got: dict[tuple[str, str], dict[str, set[str]]] = {}
    for row in saved["rows"]:
        system = PEERS.get(row["system"], row["system"].replace("vllm, parser", "vLLM's parser"))
        got.setdefault((system, row["version"]), {}).setdefault(row["leak"], set()).add(row["got"])
    lines = [f"| | version | {' | '.join(leaks)} |", "|---|---|" + "---|" * len(leaks)]
    for (system, version), by_leak in got.items():
        cells = [" or ".join(sorted(by_leak.get(leak, {"not run"}))) for leak in leaks]
        shown = [f"**{cell}**" if cell == "the call" else cell for cell in cells]
        version = "this one" if system == "Athena" else version
        lines.append(f"| {system} | {version} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", f"Run on {saved['date']} with `./dev bench leaks --install --save`."])


def wrong_steps() -> str:
    """The wrong steps of newcomers, the message and the remedy, from docs/wrong_steps.toml."""
    file = HERE / "wrong_steps.toml"
    if not file.exists():
        return ""
    rows = tomllib.loads(file.read_text("utf-8")).values()
    lines = [
        f"## {len(rows)} wrong steps of new users",
        "",
        "What was done, what Athena says then, and what to do. A test makes each of these mistakes and compares the message.",
        "",
        "| | what was done | the message has | what to do |",
        "|---|---|---|---|",
    ]
    for number, row in enumerate(rows, start=1):
        says = "<br>".join(f"`{_cell(text)}`" for text in row["says"])
        lines.append(f"| {number} | **{_cell(row['title'])}.** {_cell(row['did'])} | {says} | {_cell(row['remedy'])} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


PARTS: dict[str, Callable[[], str]] = {
    "metrics": metrics_table,
    "log fields": log_table,
    "leaks": leaks_table,
    "wrong steps": wrong_steps,
}
"""What stands between `<!-- generated: NAME -->` and `<!-- end -->`."""
_PART = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with its parts as they are now."""
    made = {name: PARTS[name]() for name in dict.fromkeys(found[1] for found in _PART.findall(text))}
    return _PART.sub(lambda match: f"{match[1]}\n{made[match[2]]}\n\n{match[3]}", text)


def wanted() -> dict[Path, str]:
    """Every file that this program writes, as it should be."""
    pages = {HERE / name: text for name, text in (*provider_pages(), *client_pages())}
    for path in (ROOT / "README.md", *HERE.rglob("*.md")):
        if path not in pages and "<!-- generated: " in (text := path.read_text("utf-8")):
            pages[path] = filled(text)
    return pages


def main(arguments: list[str]) -> int:
    """Write the pages, or say which are stale; a page whose provider or client is gone is stale too."""
    pages = wanted()
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    gone = [path for folder in ("providers", "clients") for path in (HERE / folder).glob("*.md") if path not in pages]
    if "--check" in arguments:
        if stale or gone:
            names = ", ".join(str(path.relative_to(ROOT)) for path in (*stale, *gone))
            sys.stderr.write(f"stale: {names}; run python docs/generate_pages.py\n")
        return 1 if stale or gone else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
