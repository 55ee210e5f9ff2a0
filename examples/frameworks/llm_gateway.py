"""simonw's llm on any upstream, through a running gateway: an entry in its `extra-openai-models.yaml` is all it takes.

    pip install llm
    athena serve    # in another terminal, on any upstream
    ATHENA_MODEL=... python examples/frameworks/llm_gateway.py

With that entry in `llm`'s own directory the command line works too: `llm -m athena -T llm_time "What time is it?"`.
"""

import os
import tempfile
from pathlib import Path

import llm

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:12377")
MODEL = os.environ.get("ATHENA_MODEL", "athena-demo")
ENTRY = f"""
- model_id: athena
  model_name: {MODEL}
  api_base: {GATEWAY}/v1
  supports_tools: true
"""


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny, 21 °C in {city}"


with tempfile.TemporaryDirectory() as directory:  # in place of ~/.config/io.datasette.llm
    os.environ["LLM_USER_PATH"] = directory
    Path(directory, "extra-openai-models.yaml").write_text(ENTRY)
    model = llm.get_model("athena")
    for label, streamed in (("chat whole", False), ("chat streamed", True)):

        def show(tool: llm.Tool, call: llm.ToolCall, label: str = label) -> None:
            print(f"{label}: called {call.name} {call.arguments}")

        chain = model.chain("What is the weather in Tokyo?", tools=[get_weather], before_call=show, stream=streamed)
        *_, last = chain.responses()
        print(f"{label}: answer {last.text()}")
