"""What the errors of all dialects have in common: kinds and statuses, how long a server asks to wait, and the words by which
servers tell that a conversation is too long or that they take no images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from athena.errors import ErrorKind
from athena.model.events import Error

STATUS_OF: dict[ErrorKind, int] = {
    "invalid": 400,
    "context_length": 400,
    "content_policy": 400,
    "auth": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
    "cancelled": 499,
    "upstream": 502,
    "server": 500,
}


def kind_of_status(status: int) -> ErrorKind:
    """The row of the error table for an HTTP status without a better explanation."""
    if status in (401, 402, 403, 404, 409, 413, 429):
        return _KIND_OF_STATUS[status]
    if status in (503, 529):
        return "overloaded"
    if status in (408, 504, 524):
        return "timeout"
    if status == 499:
        return "cancelled"
    return "upstream" if status >= 500 or status < 400 else "invalid"


_KIND_OF_STATUS: dict[int, ErrorKind] = {
    401: "auth", 402: "billing", 403: "permission", 404: "not_found", 409: "conflict", 413: "too_large", 429: "rate_limit",
}  # fmt: skip


def loose_error(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """An error body of any server: nested, flat, a string, FastAPI's detail, an array of one, HTML, nothing.

    `code` and `param` are the server's own words where it has them.
    """
    message, code, param = "", "", None
    text = body[:20000].decode("utf-8", "replace")
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
        stripped = text.strip()
        message = "" if stripped.startswith("<") else stripped[:1000]
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        inner = value.get("error", value.get("detail", value))
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, dict):
            found = inner.get("message", inner.get("msg", inner.get("detail")))
            message = found if isinstance(found, str) else msgspec.json.encode(inner).decode()[:1000]
            for key in ("code", "type", "status"):
                if isinstance(inner.get(key), str) and inner[key]:
                    code = inner[key]
                    break
            param = inner.get("param") if isinstance(inner.get("param"), str) else None
            if status < 400:
                status = told_status(inner) or status
        elif isinstance(inner, str):
            message = inner
    message = message or f"the upstream answered with status {status}"
    kind = kind_of_status(status)
    if kind == "invalid" and is_context_overflow(message, code):
        kind = "context_length"
    elif kind == "upstream" and refuses_images(message):
        kind = "invalid"
    return Error(
        message=message,
        kind=kind,
        code=code or ("upstream_auth" if status in (401, 403) else "upstream_status"),
        status=status,
        retry_after=retry_after(headers, value, message),
        param=param,
        raw=text[:2000],
    )


def told_status(error: Mapping[str, Any]) -> int | None:
    """The HTTP status that an error object names as its code; other numbers there are no statuses."""
    number = error.get("code", error.get("status"))
    return number if type(number) is int and 400 <= number < 600 else None


_OVERFLOWS = (
    "prompt is too long", "prompt too long", "input is too long", "maximum context length", "context length exceeded",
    "context_length_exceeded", "exceeds the context length", "greater than the context length", "the model's context length",
    "max context length", "context window", "available context size", "context size has been exceeded", "maximum model length",
    "maximum prompt length", "exceeded model token limit", "reduce the length of the messages", "prompt token count",
    "exceeds the maximum number of tokens", "input token count", "range of input length should be",
    "maximum allowed input length",
)  # fmt: skip
"""How Anthropic, OpenAI, Gemini, Bedrock, xAI, Groq, Mistral, Kimi, Copilot, Together, DashScope, vLLM, llama.cpp, LM Studio
and Ollama say that a conversation is too long. Outside of OpenAI there is no machine code for it."""
_OVERFLOWS_OF_AGENTS = (
    "prompt is too long", "input is too long for requested model", "exceeds the context window", "maximum context length is",
    "exceeds the maximum number of tokens", "reduce the length of the messages", "exceeds the available context size",
    "greater than the context length", "exceeded model token limit", "context_length_exceeded",
)  # fmt: skip
"""Those of them that the agents themselves look for: with any of them they compact their history."""


def is_context_overflow(message: str, code: str) -> bool:
    """Agents start to compact their history on this error, so it must keep its meaning."""
    if code in ("context_length_exceeded", "request_too_large", "exceed_context_size_error"):
        return code != "request_too_large"
    lowered = message.lower()
    return any(words in lowered for words in _OVERFLOWS)


_IMAGES_REFUSED = (
    "image input is not supported", "provide the mmproj", "support image", "images are not supported", "at most 0 image",
    "not a multimodal model", "multimodal inputs are not supported", "support vision", "unknown variant `image_url`",
)  # fmt: skip
"""How llama.cpp, Ollama, vLLM, SGLang, OpenRouter and DeepSeek say that a model reads text only, some with status 500."""


def refuses_images(message: str) -> bool:
    """Did a server refuse the request's images? That is no failure of the server: asked again, it would say the same."""
    lowered = message.lower()
    return any(words in lowered for words in _IMAGES_REFUSED)


def overflow_message(error: Error, own_words: str, looked_for: Sequence[str] = _OVERFLOWS_OF_AGENTS) -> str:
    """The message of an error; where a conversation is too long, begun with `own_words` of the dialect if it has none of those
    that the dialect's agents look for."""
    message = error.message
    if error.kind != "context_length" or any(words in message.lower() for words in looked_for):
        return message
    return f"{own_words}: {message}"


def whole_seconds(wait: float) -> int:
    """A wait as `retry-after` says it. Rounded up: a client that comes back too soon is refused again."""
    return max(0, math.ceil(wait))


def retry_after(headers: Mapping[str, str], body: Any = None, message: str = "") -> float | None:
    """Seconds to wait: from headers, Gemini's RetryInfo, or "try again in 1.5s"."""
    for key, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(key)
        if value:
            seconds = _seconds(value)
            if seconds is not None:
                return seconds * scale
    if isinstance(body, dict):
        inner = body.get("error")
        details = inner.get("details") if isinstance(inner, dict) else None
        for detail in details if isinstance(details, list) else ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            seconds = _seconds(delay[:-1]) if isinstance(delay, str) and delay.endswith("s") else None
            if seconds is not None:
                return seconds
    return _told_wait(message)


def _seconds(text: str) -> float | None:
    """A usable number of seconds: finite, not negative."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _told_wait(message: str) -> float | None:
    start = message.lower().find("try again in ")
    if start < 0:
        return None
    word = message[start + 13 : start + 40].split(" ")[0].rstrip(".,;")
    for suffix, scale in (("ms", 0.001), ("s", 1.0)):
        if word.endswith(suffix):
            seconds = _seconds(word[: -len(suffix)])
            return None if seconds is None else seconds * scale
    return None
