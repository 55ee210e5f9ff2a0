"""Writes docs/errors.md: every error, when it comes, what each official SDK raises for it, and what to do.

What the SDKs raise is found out by trying: our own encoders' bytes are handed to the real SDKs. The exceptions explain
themselves in `athena/errors.py`; the codes are in `error_codes.toml` of the command line, which must name exactly those the
sources know.

Run `python docs/generate_errors.py` after a change; `--check` only says whether the page is current.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import anthropic
import httpx2
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from athena import errors
from athena.dialects import get_dialect
from athena.dialects.base import EncodeContext
from athena.model.events import Error, Start, TextDelta
from athena.model.request import Request
from athena.prompted import errors as prompted_errors

HERE = Path(__file__).parent
PAGE = HERE / "errors.md"
CODES = HERE.parent / "src" / "athena" / "shells" / "cli" / "error_codes.toml"
SOURCES = HERE.parent / "src" / "athena"

KINDS: dict[errors.ErrorKind, tuple[str, str]] = {
    "invalid": ("the request is malformed or asks for what the upstream cannot do", "correct the field that is named"),
    "context_length": ("the conversation is too long", "shorten or compact it"),
    "content_policy": (
        "the upstream refuses the content, or the answer quotes a call and `echo: error` is set",
        "change the prompt; the code or the message says which of the two it is",
    ),
    "auth": ("a key is missing or wrong", "set the key: the client's for the gateway, or the upstream's `api_key`"),
    "billing": ("the upstream's account has no credit", "pay, or route elsewhere"),
    "permission": ("the key may not do this", "use another key or model"),
    "not_found": ("no such model or path", "use a name of `GET /v1/models`"),
    "conflict": ("the upstream reports a conflict", "try again"),
    "too_large": ("the request is larger than a limit", "send less, or raise the limit"),
    "rate_limit": ("too many requests", "wait as `retry-after` says; the openai and anthropic SDKs do so by themselves"),
    "overloaded": (
        "the upstream or the gateway is busy or ending",
        "wait; the openai and anthropic SDKs try again by themselves",
    ),
    "timeout": ("a limit of `timeouts` passed", "raise the limit that the code names"),
    "cancelled": ("the caller went away", "nothing"),
    "upstream": ("the upstream failed, or its answer cannot be used", "ask again; the code says what happened"),
    "server": ("a fault of Athena", "see its log, and report it"),
}


# -- what the SDKs raise -----------------------------------------------------------------------------------------------------


class _Scripted(httpx2.BaseTransport):
    """Answers every request with the same, until it is told another answer."""

    status, kind, body = 200, "", b""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(self.status, headers={"content-type": self.kind}, content=self.body)


# One client for all answers: each that is made loads the certificates of all authorities anew.
_TRANSPORT = _Scripted()
_CLIENT = httpx2.Client(transport=_TRANSPORT)
_OPENAI = openai.OpenAI(api_key="x", base_url="http://x/v1", max_retries=0, http_client=_CLIENT)
_ANTHROPIC = anthropic.Anthropic(api_key="x", base_url="http://x", max_retries=0, http_client=_CLIENT)
_GENAI = genai.Client(api_key="x", http_options=genai_types.HttpOptions(base_url="http://x", httpx_client=_CLIENT))


def _chat(stream: bool) -> None:
    answer = _OPENAI.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], stream=stream)
    if stream:
        list(answer)


def _responses(stream: bool) -> None:
    if stream:
        with _OPENAI.responses.stream(model="m", input="Hi") as events:
            for event in events:
                if event.type == "response.failed":
                    raise LookupError("the event `response.failed`")
        return
    _OPENAI.responses.create(model="m", input="Hi")


def _messages(stream: bool) -> None:
    if stream:
        with _ANTHROPIC.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as events:
            events.get_final_message()
        return
    _ANTHROPIC.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])


def _gemini(stream: bool) -> None:
    if stream:
        list(_GENAI.models.generate_content_stream(model="m", contents="Hi"))
        return
    _GENAI.models.generate_content(model="m", contents="Hi")


SDKS: dict[str, tuple[str, Callable[[bool], None]]] = {
    "anthropic_messages": ("anthropic", _messages),
    "openai_chat": ("openai (Chat)", _chat),
    "openai_responses": ("openai (Responses)", _responses),
    "gemini": ("google-genai", _gemini),
}
RAISED = (openai.OpenAIError, anthropic.AnthropicError, genai_errors.APIError, LookupError)


def raised(dialect: str, status: int, kind: str, body: bytes, *, stream: bool) -> str:
    """The class the SDK of that dialect raises when it is answered like this."""
    _TRANSPORT.status, _TRANSPORT.kind, _TRANSPORT.body = status, kind, body
    try:
        SDKS[dialect][1](stream)
    except LookupError as event:
        return str(event.args[0])
    except RAISED as error:
        return f"`{type(error).__name__}`"
    raise AssertionError(f"the SDK of {dialect} took an error for an answer")


def whole(dialect: str, kind: errors.ErrorKind) -> tuple[int, str]:
    """Status and exception of an error before anything was shown."""
    answer = get_dialect(dialect).encode_error(Error("x", kind=kind, code="upstream_error"))
    return answer.status, raised(dialect, answer.status, "application/json", answer.body, stream=False)


def streamed(dialect: str, kind: errors.ErrorKind) -> str:
    """The exception of an error in the middle of a stream."""
    request = Request(dialect=dialect, model="m", stream=True)
    encoder = get_dialect(dialect).encoder(EncodeContext(request=request, seed="docs"), stream=True)
    body = encoder.feed([Start(id="a", model="m"), TextDelta("Hi"), Error("x", kind=kind, code="upstream_closed")])
    return raised(dialect, 200, "text/event-stream", body, stream=True)


# -- what the sources know ---------------------------------------------------------------------------------------------------


_MAY_HOLD_CODES = re.compile(r"\bcode\b|_timeout|_closed_early|_fail\b|BAD_RECORD|\b[45]\d\d\b")
"""Without one of these a file holds none of what `_codes` looks for, and need not be parsed."""


def codes_in_sources() -> set[str]:
    """Every literal `code` that an error is given, and the codes of the classes."""
    found: set[str] = set()
    for file in SOURCES.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if _MAY_HOLD_CODES.search(text):
            for node in ast.walk(ast.parse(text)):
                found.update(_codes(node))
    return found


def _codes(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "code":
                yield from _words(keyword.value)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "_closed_early":
            yield from _words(node.args[0])
        if isinstance(node.func, ast.Name) and node.func.id == "_fail" and len(node.args) > 2:
            yield from _words(node.args[2])
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id in ("code", "BAD_RECORD") for target in targets):
            yield from _words(node.value)
    elif (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(("idle_timeout", "byte_timeout"))
    ):
        yield node.value
    if isinstance(node, ast.Tuple):
        yield from _refusal(node.elts)
    elif isinstance(node, ast.Call):
        yield from _refusal(node.args)


def _refusal(values: list[ast.expr]) -> Iterator[str]:
    """The server's own refusals: a status, a code, a message."""
    if len(values) == 3 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, int):
        yield from (word for word in _words(values[1]) if word.islower() and values[0].value >= 400)


def _words(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
        yield value.value
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _words(part)


def sections() -> dict[str, dict[str, Any]]:
    """The file of codes, found to be complete."""
    found: dict[str, dict[str, Any]] = tomllib.loads(CODES.read_text(encoding="utf-8"))
    described = {name for section in found.values() for name in section if name != "title"}
    known = codes_in_sources()
    if described != known:
        raise SystemExit(f"error_codes.toml: missing {sorted(known - described)}, unknown {sorted(described - known)}")
    return found


def exceptions() -> list[type[errors.AthenaError]]:
    """All classes, parents before children."""
    tree: list[type[errors.AthenaError]] = []

    def add(one: type[errors.AthenaError]) -> None:
        tree.append(one)
        for child in sorted(one.__subclasses__(), key=lambda cls: cls.__name__):
            if child.__module__ in (errors.__name__, prompted_errors.__name__):
                add(child)

    add(errors.AthenaError)
    return tree


# -- the page ----------------------------------------------------------------------------------------------------------------

INTRODUCTION = """# Errors

<!-- Written by docs/generate_errors.py from athena/errors.py, error_codes.toml and the official SDKs. Do not edit. -->

Through the gateway and the transport an error is one of the client's own dialect, so that the client's SDK raises its own
class, retries what it would retry, and shows our message. Before anything was shown it is an HTTP status; after that it is the
dialect's own error in the stream. A cut or broken tool call is always one of the two, never a call that looks complete.

The library raises the exceptions below. Decide by class, `kind` or `code`, never by the message.

```python
import athena

try:
    athena.translate_request({"model": "m", "messages": []}, source="anthropic_messages", target="openai_chat")
except athena.errors.InvalidRequest as error:
    print(error.code, error.path, "-", error.message)
# invalid_request max_tokens - max_tokens: field required
```
"""


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows), ""]


def page() -> str:
    """The whole page."""
    kinds: tuple[errors.ErrorKind, ...] = get_args(errors.ErrorKind)
    lines = [INTRODUCTION, "## By kind: what the client's SDK raises", ""]
    rows = []
    for kind in kinds:
        when, remedy = KINDS[kind]
        answers = [whole(dialect, kind) for dialect in SDKS]
        statuses = " / ".join(dict.fromkeys(str(status) for status, _ in answers))
        rows.append([f"`{kind}`", when, statuses, *(words for _, words in answers), remedy])
    lines += table(["kind", "when", "status", *(title for title, _ in SDKS.values()), "what to do"], rows)
    lines += ["In the middle of a stream the status is gone, and the SDKs raise:", ""]
    rows = [
        [title, ", ".join(dict.fromkeys(streamed(dialect, kind) for kind in kinds))] for dialect, (title, _) in SDKS.items()
    ]
    lines += table(["SDK", "raises, mid-stream"], rows)
    lines += [
        "The upstream's own 400, 402, 404, 413 and 429 keep their status. Its 401 and 403 do too while the gateway has no keys",
        "of its own; with gateway keys they become a 502 that is not retried, so that a client does not doubt its own key.",
        "",
        "## Exceptions of the library",
        "",
        "All of them are in `athena.errors`, those that begin with `Tool` in `athena.prompted.errors`.",
        "",
    ]
    rows = []
    for one in exceptions():
        about = (inspect.getdoc(one) or "").split("\n\n")
        base = "" if one is errors.AthenaError else f"`{one.__bases__[0].__name__}`"
        rows.append([f"`{one.__name__}`", base, _flat(about[0]), _flat(about[1]), f"`{one.kind}`", f"`{one.code}`"])
    lines += table(["exception", "is a", "when", "what to do", "kind", "code"], rows)
    lines += [
        "## By code",
        "",
        "`code` names the exact cause, in exceptions, in error bodies and in the log. `athena help CODE` prints its row.",
        "",
    ]
    for section in sections().values():
        lines += [f"### {section['title']}", ""]
        # An anchor for every code, so that other pages and people can point at it.
        rows = [[f'<a id="{name}"></a>`{name}`', *words] for name, words in section.items() if name != "title"]
        lines += table(["code", "when", "what to do"], rows)
    return "\n".join(lines).rstrip() + "\n"


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" in arguments:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
