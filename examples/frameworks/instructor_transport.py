"""instructor on any upstream, in process: typed answers from models that leak the call which carries them.

instructor forces one tool whose arguments are your type. The transport goes into the OpenAI client that it wraps.

    pip install athena-gateway instructor
    athena demo    # in another terminal; or set ATHENA_BASE_URL, ATHENA_MODEL, ATHENA_API_KEY
    python examples/frameworks/instructor_transport.py
"""

import os

import httpx2
import instructor
import openai
from pydantic import BaseModel

from athena.transport import Transport

BASE_URL = os.environ.get("ATHENA_BASE_URL", "http://127.0.0.1:12378/v1")
MODEL = os.environ.get("ATHENA_MODEL", "athena-demo")


class WeatherQuestion(BaseModel):
    """What somebody wants to know about the weather."""

    city: str


client = instructor.from_openai(
    openai.OpenAI(api_key="unused", http_client=httpx2.Client(transport=Transport(base_url=BASE_URL)))
)
messages = [{"role": "user", "content": "What is the weather in Tokyo?"}]

whole = client.create(model=MODEL, messages=messages, response_model=WeatherQuestion)
print(f"chat whole: answer {whole!r}")
*_, streamed = client.create_partial(model=MODEL, messages=messages, response_model=WeatherQuestion)
print(f"chat streamed: answer {streamed!r}")
