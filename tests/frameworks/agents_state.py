"""Loops of the OpenAI Agents SDK that leave the conversation with the server, for `test_agents_state.py`.

It runs in the environment of the framework: the gateway's address and the models are its arguments, and it prints one JSON line
for each run.
"""

# mypy: ignore-errors
# The SDK is not installed where types are checked.

import asyncio
import json
import sys

import openai

from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled


@function_tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


async def ask(agent, said, stream, **state):
    if not stream:
        return await Runner.run(agent, said, **state)
    result = Runner.run_streamed(agent, said, **state)
    async for _ in result.stream_events():
        pass
    return result


async def turns(agent, client, way, stream):
    """Three turns, the second with a tool; what each said in the end."""
    state = {}
    if way == "conversation":
        state["conversation_id"] = (await client.conversations.create()).id
    elif way == "session":
        state["session"] = OpenAIConversationsSession(openai_client=client)
    else:
        state["auto_previous_response_id"] = True
    told = []
    for said in ("one", "use the tool two", "three"):
        result = await ask(agent, said, stream, **state)
        told.append(result.final_output)
        if way == "previous_response":
            state["previous_response_id"] = result.last_response_id
    return told


async def main():
    set_tracing_disabled(True)
    url, *models = sys.argv[1:]
    async with openai.AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as client:
        for model in models:
            agent = Agent(name="words", model=OpenAIResponsesModel(model=model, openai_client=client), tools=[look_up])
            for way in ("previous_response", "conversation", "session"):
                for stream in (False, True):
                    told = await turns(agent, client, way, stream)
                    print(json.dumps({"model": model, "way": way, "stream": stream, "told": told}))


asyncio.run(main())
