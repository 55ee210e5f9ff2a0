"""Google's SDK on an upstream that is not Google's. The SDK runs the Python function by itself.

Run it:

    python examples/06_google_sdk_on_any_upstream.py
    ATHENA_BASE_URL=https://openrouter.ai/api/v1 ATHENA_API_KEY=... ATHENA_MODEL=moonshotai/kimi-k2-0905 python examples/06_...
"""

import httpx2
from google import genai
from google.genai import types
from offline import upstream

from athena.transport import Transport


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny, 21 °C in {city}"


with upstream() as url:
    http = types.HttpOptions(httpx_client=httpx2.Client(transport=Transport(base_url=url)))
    client = genai.Client(api_key="unused", http_options=http)

    chat = client.chats.create(model="athena-demo", config=types.GenerateContentConfig(tools=[get_weather]))
    answer = chat.send_message("What is the weather in Tokyo?")
    for content in chat.get_history():
        for part in content.parts or ():
            if part.function_call:
                print(f"called: {part.function_call.name} {part.function_call.args}")
    print(f"answer: {answer.text}")

    print("stream: ", end="")
    for chunk in client.models.generate_content_stream(model="athena-demo", contents="Who are you?"):
        print(chunk.text or "", end="|")
    print()
