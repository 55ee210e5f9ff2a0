"""The gateway as a part of your own ASGI application: FastAPI, Starlette, or as here a few lines by hand.

    python examples/16_mount_in_your_app.py
    ATHENA_BASE_URL=http://127.0.0.1:8000/v1 ATHENA_API_KEY=... ATHENA_MODEL=... python examples/16_mount_in_your_app.py

With FastAPI: `app.mount("/llm", athena.asgi.create_app("athena.yml"))`.
"""

import asyncio
import os
from typing import Any

import httpx2
import openai
from offline import upstream

from athena.asgi import create_app

SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def main() -> None:
    athena_app = create_app()  # reads athena.yml and ATHENA_*, as `athena serve` does

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Your application: everything below /llm is Athena's."""
        if scope["type"] == "http" and scope["path"].startswith("/llm/"):
            await athena_app({**scope, "path": scope["path"].removeprefix("/llm")}, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"your own page"})

    http_client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    print("GET /:", (await http_client.get("http://app/")).text)
    client = openai.AsyncOpenAI(base_url="http://app/llm/v1", api_key="unused", http_client=http_client)
    answer = await client.chat.completions.create(
        model="athena-demo",
        messages=[{"role": "user", "content": "What is the weather in Tokyo?"}],
        tools=[{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
    )
    for call in answer.choices[0].message.tool_calls or ():
        if call.type == "function":
            print("POST /llm/v1/chat/completions:", call.function.name, call.function.arguments)
    await athena_app.close()


with upstream() as url:
    os.environ.setdefault("ATHENA_BASE_URL", url)
    asyncio.run(main())
