"""Gemini requests beyond the generic runners: what real clients send, and what upstreams get."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from google.genai import types as genai_types

from athena.dialects.base import EncodeTarget
from athena.dialects.gemini import DIALECT
from athena.errors import InvalidRequest
from athena.model.events import (
    Done,
    Finish,
    TextDelta,
)
from athena.model.parts import (
    Audio,
    Base64,
    Document,
    FileRef,
    Foreign,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Url,
    Video,
)
from athena.model.profile import Profile
from athena.model.request import Output, Reasoning, Request, ToolChoice, Turn
from support.gemini_values import Stage, decode, encoded, said

# -- what clients send ---------------------------------------------------------------------------------------------------------


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}]}


def test_the_python_sdk_request(stage: Stage) -> None:
    """Snake case beside camel case, URL-safe base64: what the SDK really writes."""
    stage.will_say(encoded([TextDelta("Hi"), Done(Finish())], stream=False), kind="application/json")
    declaration = genai_types.FunctionDeclaration(name="f", parameters_json_schema={"type": "object", "properties": {}})
    picture = bytes([251, 255, 191, 254])
    stage.client.models.generate_content(
        model="m",
        contents=[genai_types.Part.from_bytes(data=picture, mime_type="image/png"), "What?"],
        config=genai_types.GenerateContentConfig(
            thinking_config=genai_types.ThinkingConfig(include_thoughts=True, thinking_budget=100),
            system_instruction="Be brief.",
            tools=[genai_types.Tool(function_declarations=[declaration])],
            automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
        ),
    )
    body = stage.bodies[-1]
    request = decode(body)
    image = request.turns[0].parts[0]
    assert isinstance(image, Image)
    assert isinstance(image.source, Base64)
    assert base64.b64decode(image.source.data, validate=True) == picture
    assert request.reasoning == Reasoning(mode="on", budget=100, visible=True)
    assert [part.text for part in request.system if isinstance(part, Text)] == ["Be brief."]
    assert request.tools[0].schema == {"type": "object", "properties": {}}


def test_settings() -> None:
    request = decode(
        {
            **user({"text": "Hi"}),
            "toolConfig": {"functionCallingConfig": {"mode": "any", "allowedFunctionNames": ["f"]}},
            "safetySettings": [{"category": "X"}],
            "cachedContent": "cachedContents/1",
            "labels": {"a": "b"},
            "serviceTier": "FLEX",
            "generationConfig": {
                "temperature": 1, "top_p": 0.5, "topK": 3, "candidateCount": 2, "max_output_tokens": "9",
                "stopSequences": ["X"], "seed": 1,
                "presencePenalty": 0.1, "frequencyPenalty": 0.2, "responseLogprobs": True, "logprobs": 4,
                "responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}, "responseModalities": ["TEXT"],
                "imageConfig": {}, "unheardOf": 1,
            },
            "alsoUnheardOf": 2,
        },
        stream=True,
        model="models/gemini-x",
    )  # fmt: skip
    assert (request.model, request.stream) == ("gemini-x", True)
    assert request.tool_choice == ToolChoice("named", ("f",))
    assert (request.temperature, request.top_p, request.top_k, request.n, request.max_output) == (1, 0.5, 3, 2, 9)
    assert (request.stop, request.seed, request.presence_penalty, request.frequency_penalty) == (("X",), 1, 0.1, 0.2)
    assert (request.logprobs, request.tier, request.metadata) == (4, "flex", {"a": "b"})
    assert request.output == Output(kind="schema", schema={"type": "object"}, modalities=("text",))
    assert request.server == {"safetySettings": [{"category": "X"}], "cachedContent": "cachedContents/1", "imageConfig": {}}
    assert request.extras == {"alsoUnheardOf": 2, "generationConfig": {"unheardOf": 1}}


def test_schemas_become_json_schema() -> None:
    """Only schema positions are read: properties called like keywords stay."""
    parameters = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "enum": ["STRING", "X"]},
            "any_of": {"any_of": [{"type": "INTEGER"}, {"type": "NUMBER"}], "nullable": True},
            "list": {"type": "ARRAY", "items": {"type": "TYPE_UNSPECIFIED"}, "minItems": "1"},
        },
        "required": ["type"],
        "propertyOrdering": ["list", "type"],
    }
    tool = decode(
        {**user({"text": "Hi"}), "tools": [{"functionDeclarations": [{"name": "f", "parameters": parameters}]}]}
    ).tools[0]
    assert tool.schema == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["STRING", "X", None]},
            "any_of": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
            "list": {"type": "array", "items": {}, "minItems": 1},
        },
        "required": ["type"],
    }


def conversation(*contents: tuple[str, list[dict[str, Any]]]) -> tuple[Turn, ...]:
    return decode({"contents": [{"role": role, "parts": parts} for role, parts in contents]}).turns


def ids(turns: tuple[Turn, ...]) -> list[str]:
    return [
        part.id if isinstance(part, ToolCall) else part.call_id
        for turn in turns
        for part in turn.parts
        if isinstance(part, ToolCall | ToolResult)
    ]


def fcall(name: str, call_id: str | None = None) -> dict[str, Any]:
    return {"functionCall": {"name": name, **({"id": call_id} if call_id else {})}}


def fresponse(name: str, call_id: str | None = None) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "x"}, **({"id": call_id} if call_id else {})}}


def test_ids_are_made_once_and_stay() -> None:
    turns = conversation(
        ("user", [{"text": "Go"}]), ("model", [fcall("a"), fcall("a"), fcall("b")]),
        ("user", [fresponse("b"), fresponse("a"), fresponse("a")]),
    )  # fmt: skip
    made = ids(turns)
    assert made[3:] == [made[2], made[0], made[1]]
    assert len(set(made)) == 3
    longer = conversation(
        ("user", [{"text": "Go"}]), ("model", [fcall("a"), fcall("a"), fcall("b")]),
        ("user", [fresponse("b"), fresponse("a"), fresponse("a")]), ("model", [fcall("a")]), ("user", [fresponse("a")]),
    )  # fmt: skip
    assert ids(longer)[:6] == made
    assert ids(longer)[6] == ids(longer)[7]
    assert ids(longer)[6] not in made


def test_results_find_their_calls() -> None:
    by_id = conversation(("model", [fcall("a", "1"), fcall("a", "2")]), ("user", [fresponse("a", "2"), fresponse("a", "1")]))
    assert ids(by_id) == ["1", "2", "2", "1"]
    only_result = conversation(("model", [fcall("a")]), ("user", [fresponse("a", "client-made")]))
    assert ids(only_result)[0] == ids(only_result)[1]
    by_order = conversation(("model", [fcall("a"), fcall("b")]), ("user", [fresponse("renamed"), fresponse("b")]))
    assert ids(by_order)[2:] == ids(by_order)[:2]
    orphan = conversation(("user", [fresponse("a", "lost")]))
    assert ids(orphan) == ["lost"]
    assert ids(conversation(("user", [fresponse("a")])))[0].startswith("call_")


@pytest.mark.parametrize(
    ("response", "texts", "is_error"),
    [
        ({"output": "plain"}, ["plain"], False),
        ({"output": ""}, [], False),
        ({"result": "plain"}, ["plain"], False),
        ({"content": {"text": "goose"}}, ["goose"], False),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ["a", "b"], False),
        ({"content": [{"type": "text", "text": "a"}], "isError": True}, ["a"], True),
        ({"error": "broken"}, ["broken"], True),
        ({"error": {"message": "broken"}}, ["broken"], True),
        ({"error": {"code": 1}}, ['{"code":1}'], True),
        ({"output": "fine", "error": None}, ["fine"], False),
        ({"temperature": 20, "sky": ["blue"]}, ['{"temperature":20,"sky":["blue"]}'], False),
        ({"output": {"a": 1}}, ['{"output":{"a":1}}'], False),
        (None, [], False),
    ],
)
def test_shapes_of_results(response: Any, texts: list[str], is_error: bool) -> None:
    part = {"functionResponse": {"name": "f", "response": response}}
    result = decode(user(part)).turns[0].parts[0]
    assert isinstance(result, ToolResult)
    assert [part.text for part in result.parts if isinstance(part, Text)] == texts
    assert result.is_error is is_error
    assert result.structured == response


def test_media() -> None:
    parts = (
        decode(
            user(
                {"inlineData": {"mimeType": "image/png", "data": "-_8"}},
                {"inlineData": {"mimeType": "application/pdf", "data": "AAAA", "displayName": "p.pdf"}},
                {"inline_data": {"mime_type": "audio/mpeg", "data": "AAAA"}},
                {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/v.mp4"}},
                {"fileData": {"fileUri": "https://youtu.be/x"}},
                {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/a.png"}},
                {"toolCall": {"id": "x"}},
            )
        )
        .turns[0]
        .parts
    )
    assert [msgspec.structs.replace(part, raw=None) for part in parts] == [
        Image(source=Base64("image/png", "+/8=")),
        Document(source=Base64("application/pdf", "AAAA"), title="p.pdf"),
        Audio(source=Base64("audio/mpeg", "AAAA"), format="mp3"),
        Video(source=FileRef("gs://b/v.mp4")),
        Video(source=Url("https://youtu.be/x")),
        Image(source=Url("https://example.com/a.png", "image/png")),
        Foreign(kind="toolCall", dialect="gemini"),
    ]


def test_streamed_pieces_are_joined_and_signed_ones_are_not() -> None:
    turn = conversation(
        ("model", [
            {"text": "a", "thought": True}, {"text": "b", "thought": True}, {"text": "I "}, {"text": "go"},
            {"text": "!", "thoughtSignature": "c2ln"}, {"text": "?"},
        ])
    )[0]  # fmt: skip
    assert [part.text for part in turn.parts if isinstance(part, Text | Thinking)] == ["ab", "I go", "!", "?"]
    assert turn.raw is not None


def test_streamed_chunks_that_come_back_as_contents() -> None:
    """The SDK's chats keep every chunk of a streamed answer as a content of its own."""
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "Go"}]},
            {"role": "model", "parts": [{"text": "I "}]},
            {"role": "model", "parts": [{"text": "go"}, fcall("a")]},
            {"role": "model", "parts": [{"text": ""}]},
            {"role": "user", "parts": [fresponse("a")]},
        ]
    }
    request = decode(body)
    assert [turn.role for turn in request.turns] == ["user", "assistant", "user"]
    assert [part.text for part in request.turns[1].parts if isinstance(part, Text)] == ["I go"]
    assert encode(request)[0] == body


def test_too_deep_a_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(InvalidRequest):
        decode({**user({"text": "Hi"}), "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]})


# -- what upstreams get --------------------------------------------------------------------------------------------------------

PROFILE = Profile(dialect="gemini", family="gemini", ids="any", images_in_results=True, signed_calls=True, hosted_tools=True)


def encode(request: Request, profile: Profile = PROFILE, *, strict: bool = False) -> tuple[dict[str, Any], list[str]]:
    written = DIALECT.encode_request(request, EncodeTarget("gemini-x", profile, strict))
    return written.body, [loss.path for loss in written.losses]


def foreign(*turns: Turn, **fields: Any) -> Request:
    return Request(dialect="openai_chat", model="m", turns=turns, **fields)


def test_paths() -> None:
    request = foreign(said("user", Text(text="Hi")))
    assert DIALECT.encode_request(request, EncodeTarget("a b/c")).path == "/v1beta/models/a%20b/c:generateContent"
    streamed = msgspec.structs.replace(request, stream=True)
    assert DIALECT.encode_request(streamed, EncodeTarget("tunedModels/x")).path == (
        "/v1beta/tunedModels/x:streamGenerateContent?alt=sse"
    )


def test_ids_on_both_halves_or_neither() -> None:
    """A client without ids, of whose call only one half had to be written anew."""
    request = decode({"contents": [{"role": "model", "parts": [fcall("a")]}, {"role": "user", "parts": [fresponse("a")]}]})
    made = request.turns[0].parts[0]
    assert isinstance(made, ToolCall)
    renewed = Turn(role="assistant", parts=(msgspec.structs.replace(made, raw=None, arguments='{"b":2}'),))
    body, _ = encode(msgspec.structs.replace(request, turns=(renewed, request.turns[1])), Profile(ids="any"))
    assert body["contents"][0]["parts"] == [{"functionCall": {"name": "a", "args": {"b": 2}}}]
    assert body["contents"][1] == {"role": "user", "parts": [fresponse("a")]}


def test_only_what_changed_is_rewritten() -> None:
    body = {
        **user({"text": "Hi", "partMetadata": {"a": 1}}),
        "generation_config": {"top_p": 0.9, "topK": 3, "odd": 1, "thinkingConfig": {"thinkingBudget": 5}},
        "tools": [{"functionDeclarations": [{"name": "f", "odd": 1}]}, {"googleSearch": {}}],
        "tool_config": {"functionCallingConfig": {"mode": "ANY", "odd": 2}},
        "safetySettings": [],
    }
    request = decode(body)
    tool = msgspec.structs.replace(request.tools[0], raw=None, name="g")
    changed = msgspec.structs.replace(
        request, top_p=0.5, top_k=None, tool_choice=ToolChoice("auto"), tools=(tool, request.tools[1])
    )
    written, losses = encode(changed)
    assert written == {
        **body,
        "generation_config": {"top_p": 0.5, "odd": 1, "thinkingConfig": {"thinkingBudget": 5}},
        "tools": [{"functionDeclarations": [{"name": "g", "odd": 1}]}, {"googleSearch": {}}],
        "tool_config": {"functionCallingConfig": {"mode": "AUTO", "odd": 2}},
    }
    assert written["contents"] is body["contents"]
    assert losses == []


def test_profile_fields() -> None:
    profile = Profile(body={"store": False}, drop_fields=("safetySettings",), headers={"x-a": "b"})
    request = decode({**user({"text": "Hi"}), "safety_settings": [{"category": "X"}]})
    written = DIALECT.encode_request(request, EncodeTarget("m", profile))
    assert written.body == {**user({"text": "Hi"}), "store": False}
    assert written.headers == {"x-a": "b"}
