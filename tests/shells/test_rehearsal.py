"""What a server does before its first answer: no answer has to build what it needs to read a call in text."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import re._compiler
import sys

from athena.dialects import get_dialect
from athena.exchange import Exchange, Options, Route
from athena.formats import get_format
from athena.formats.machine.stage import FormatOptions
from athena.model.parts import ToolCall
from athena.model.events import ToolCallComplete
from athena.shells.server.rehearsal import rehearse

written, named = sys.argv[1:]
form = FormatOptions(named)
route = Route(dialect="openai_chat", model="m", format=form)
form.make_ready()
rehearse([route])

compiled = []
compile_one = re._compiler.compile
re._compiler.compile = lambda *arguments: compiled.append(arguments[0]) or compile_one(*arguments)

call = ToolCall(id="c", name="look_up", arguments='{"word":"a"}')
body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "look_up", "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}}}]}
request = get_dialect("anthropic_messages").decode_request(body, stream=False)
exchange = Exchange(request, route, Options())
exchange.upstream_head(200, {})
message = {"role": "assistant", "content": get_format(written).render_calls([call])}
answer = {"id": "a", "object": "chat.completion", "created": 1, "model": "m",
          "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
import json
first = exchange.upstream_data(json.dumps(answer).encode())
last = exchange.upstream_end()
assert any(isinstance(event, ToolCallComplete) for event in (*first.events, *last.events))
print(compiled)
"""


@pytest.mark.parametrize(("written", "named"), [("qwen_xml", "qwen_xml"), ("kimi_k2", "standard"), ("hermes", "standard")])
def test_the_first_answer_compiles_nothing(written: str, named: str) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, written, named], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
