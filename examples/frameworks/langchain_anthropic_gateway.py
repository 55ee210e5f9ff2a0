"""LangChain's `ChatAnthropic` on any upstream, through a running gateway: it takes no HTTP client, but a base URL.

Run it:

    pip install langchain-anthropic
    athena serve    # in another terminal, on any upstream
    ATHENA_MODEL=... python examples/frameworks/langchain_anthropic_gateway.py
"""

import os

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:12377")
MODEL = os.environ.get("ATHENA_MODEL", "athena-demo")


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny, 21 °C in {city}"


def run(model, label: str, streamed: bool) -> None:
    messages: list[AnyMessage] = [HumanMessage("What is the weather in Tokyo?")]
    while True:
        if streamed:
            answer = None
            for chunk in model.stream(messages):
                answer = chunk if answer is None else answer + chunk
        else:
            answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            print(f"{label}: answer {answer.text}")
            return
        for call in answer.tool_calls:
            print(f"{label}: called {call['name']} {call['args']}")
            messages.append(get_weather.invoke(call))


chat = ChatAnthropic(model=MODEL, base_url=GATEWAY, api_key="unused", max_tokens=1000).bind_tools([get_weather])
run(chat, "messages whole", streamed=False)
run(chat, "messages streamed", streamed=True)
