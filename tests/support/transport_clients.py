"""The official SDKs' clients over `athena.transport`, and the configuration that leads them to the scripted upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import Any

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types as genai_types

from athena.dialects import dialect_names
from athena.transport import AsyncTransport, Transport
from support.async_sdks import AsyncClients
from support.patience import FOR_EVER
from support.sdks import Clients

UPSTREAM_KEY = "sk-upstream-0123456789"
PATIENT: dict[str, Any] = {"max_retries": 0, "timeout": FOR_EVER}
"""The SDKs' own limit of 5 seconds for connecting ends requests of a loop that is busy with others."""


def settings_for(
    url: str, quirks: dict[str, dict[str, Any]] | None = None, rule: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Keyword arguments of a transport: the model `<upstream>/<name>` goes to that upstream under that name.

    There is one upstream per dialect, of its name, and one for each entry of `quirks`, named `<dialect>.<anything>`. `rule`
    is said of all models.
    """
    upstreams = {
        name: {
            "base_url": url,
            "dialect": name.partition(".")[0],
            "api_key": UPSTREAM_KEY,
            "quirks": (quirks or {}).get(name, {}),
        }
        for name in (*dialect_names(), *(quirks or {}))
    }
    models = [{"match": f"{name}/*", "use": f"{name}/*", **(rule or {})} for name in upstreams]
    return {"upstreams": upstreams, "models": models, "envelope_key": "test", **more}


@contextmanager
def sdk_clients(transport: Transport, library: ModuleType = httpx2, **options: Any) -> Iterator[Clients]:
    """The synchronous clients. Anthropic's takes `httpx2` only, whatever the others use."""
    with (
        library.Client(transport=transport, timeout=FOR_EVER) as http,
        httpx2.Client(transport=transport, timeout=FOR_EVER) as other,
    ):
        yield Clients(
            openai=openai.OpenAI(api_key="test", http_client=http, **{**PATIENT, **options}),
            anthropic=anthropic.Anthropic(api_key="test", http_client=other, **{**PATIENT, **options}),
            genai=genai.Client(api_key="test", http_options=genai_types.HttpOptions(httpx_client=http)),
        )


@asynccontextmanager
async def async_sdk_clients(
    transport: AsyncTransport, library: ModuleType = httpx2, **options: Any
) -> AsyncIterator[AsyncClients]:
    """The asynchronous clients."""
    async with (
        library.AsyncClient(transport=transport, timeout=FOR_EVER) as http,
        httpx2.AsyncClient(transport=transport, timeout=FOR_EVER) as other,
    ):
        yield AsyncClients(
            openai=openai.AsyncOpenAI(api_key="test", http_client=http, **{**PATIENT, **options}),
            anthropic=anthropic.AsyncAnthropic(api_key="test", http_client=other, **{**PATIENT, **options}),
            genai=genai.Client(api_key="test", http_options=genai_types.HttpOptions(httpx_async_client=http)),
        )
