"""A tool loop as users of each official SDK write it: ask with tools, run the calls, bring the results, ask again."""

from __future__ import annotations

from typing import Any

from google.genai import types as genai_types

from servers.llama_server import TOOLS, USER
from support.canonical import Seen
from support.sdks import (
    anthropic_client,
    genai_client,
    openai_client,
    seen_chunks,
    seen_completion,
    seen_message,
    seen_response,
)

CLIENTS = ("openai_chat", "anthropic_messages", "openai_responses", "gemini")
RESULT = "It is noon, 21 degrees."


class Loop:
    """One conversation. `choice`: the name of a tool, `required`, `none`, or empty for the model's own choice."""

    def __init__(self, client: str, url: str, model: str, *, stream: bool, choice: str = "") -> None:
        self.client, self.url, self.model, self.stream, self.choice = client, url, model, stream, choice
        self.said: list[Any] = []
        if client == "gemini":
            self.said = [genai_types.Content(role="user", parts=[genai_types.Part(text=USER["content"])])]
        else:
            self.said = [dict(USER)]

    def ask(self) -> Seen:
        """The next answer, and the results of its calls given. Raises what the SDK raises."""
        return {
            "openai_chat": self._chat,
            "anthropic_messages": self._messages,
            "openai_responses": self._responses,
            "gemini": self._gemini,
        }[self.client]()

    def _chat(self) -> Seen:
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": self.said,
            "tools": [{"type": "function", "function": tool} for tool in TOOLS],
        }
        if self.choice:
            named = {"type": "function", "function": {"name": self.choice}}
            arguments["tool_choice"] = self.choice if self.choice in ("required", "none") else named
        client = openai_client(self.url)
        if self.stream:
            with client.chat.completions.stream(**arguments) as events:
                completion: Any = events.get_final_completion()
        else:
            completion = client.chat.completions.create(**arguments)
        message = completion.choices[0].message
        self.said.append(message)
        for call in message.tool_calls or ():
            self.said.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
        return seen_completion(completion)

    def _messages(self) -> Seen:
        arguments: dict[str, Any] = {
            "model": self.model,
            "max_tokens": 2000,
            "messages": self.said,
            "tools": [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS
            ],
        }
        if self.choice:
            words = {"required": {"type": "any"}, "none": {"type": "none"}}
            arguments["tool_choice"] = words.get(self.choice, {"type": "tool", "name": self.choice})
        client = anthropic_client(self.url)
        if self.stream:
            with client.messages.stream(**arguments) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(**arguments)
        self.said.append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": RESULT}
            for block in message.content
            if block.type == "tool_use"
        ]
        if results:
            self.said.append({"role": "user", "content": results})
        return seen_message(message)

    def _responses(self) -> Seen:
        arguments: dict[str, Any] = {
            "model": self.model,
            "input": self.said,
            "tools": [{"type": "function", **tool, "strict": False} for tool in TOOLS],
            "store": False,
        }
        if self.choice:
            named = {"type": "function", "name": self.choice}
            arguments["tool_choice"] = self.choice if self.choice in ("required", "none") else named
        client = openai_client(self.url)
        if self.stream:
            with client.responses.stream(**arguments) as events:
                for _ in events:
                    pass
                response: Any = events.get_final_response()
        else:
            response = client.responses.create(**arguments)
        self.said += response.output
        for item in response.output:
            if item.type == "function_call":
                self.said.append({"type": "function_call_output", "call_id": item.call_id, "output": RESULT})
        return seen_response(response)

    def _gemini(self) -> Seen:
        settings: dict[str, Any] = {
            "automatic_function_calling": {"disable": True},
            "tools": [
                {
                    "function_declarations": [
                        {
                            "name": tool["name"],
                            "description": tool["description"],
                            "parameters_json_schema": tool["parameters"],
                        }
                        for tool in TOOLS
                    ]
                }
            ],
        }
        if self.choice:
            calling: dict[str, Any] = {"mode": "NONE" if self.choice == "none" else "ANY"}
            if self.choice not in ("required", "none"):
                calling["allowed_function_names"] = [self.choice]
            settings["tool_config"] = {"function_calling_config": calling}
        config = genai_types.GenerateContentConfig.model_validate(settings)
        models = genai_client(self.url).models
        if self.stream:
            chunks = list(models.generate_content_stream(model=self.model, contents=self.said, config=config))
        else:
            chunks = [models.generate_content(model=self.model, contents=self.said, config=config)]
        parts: list[Any] = []
        for chunk in chunks:
            for candidate in chunk.candidates or ():
                parts += (candidate.content.parts if candidate.content else None) or []
        self.said.append(genai_types.Content(role="model", parts=parts))
        results = [
            genai_types.Part(
                function_response=genai_types.FunctionResponse(
                    id=part.function_call.id, name=part.function_call.name, response={"output": RESULT}
                )
            )
            for part in parts
            if part.function_call is not None
        ]
        if results:
            self.said.append(genai_types.Content(role="user", parts=results))
        return seen_chunks(chunks)
