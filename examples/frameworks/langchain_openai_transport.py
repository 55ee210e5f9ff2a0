"""LangChain's `ChatOpenAI` on any upstream, in process: the transport goes in as `http_client`.

Run it:

    pip install athena-gateway langchain-openai
    athena demo    # in another terminal; or set ATHENA_BASE_URL, ATHENA_MODEL, ATHENA_API_KEY
    python examples/frameworks/langchain_openai_transport.py
"""

import os

import httpx2
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from athena.transport import Transport

BASE_URL = os.environ.get("ATHENA_BASE_URL", "http://127.0.0.1:12378/v1")
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


client = httpx2.Client(transport=Transport(base_url=BASE_URL))
for api, responses in (("chat", False), ("responses", True)):
    chat = ChatOpenAI(model=MODEL, api_key="unused", http_client=client, use_responses_api=responses).bind_tools([get_weather])
    run(chat, f"{api} whole", streamed=False)
    run(chat, f"{api} streamed", streamed=True)
