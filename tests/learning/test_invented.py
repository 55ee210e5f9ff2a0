"""Formats are learnt from templates of our own invention: exactly, or not at all and with the reason."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from athena import parse
from athena.errors import CannotLearn, UsageError
from athena.formats.declared.build import declared_format
from athena.formats.machine.recognizer import Recognizer
from athena.learning.infer import infer
from athena.learning.probes import ProbeCall
from athena.learning.verify import HARD, PLAIN, answer_text, book_of, chunkings, read, samples, verify
from athena.shells.templates import rendering
from athena.shells.templates.learn import learn_format
from athena.shells.templates.rendering import RenderingLimits, TemplateProcess
from learning.invented import HOSTILE, INVENTED, REFUSED

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", INVENTED)
def test_learns_exactly_the_format_of_an_invented_template(name: str) -> None:
    template, expected = INVENTED[name]
    with TemplateProcess(template, TOKENS) as process:
        learnt = infer(process.render, name)
        assert learnt.description == expected
        verified = verify(process.render, learnt)
        assert verified.lost == ()
        recognizer = Recognizer(declared_format(learnt.description))
        for calls, content, reasoning in samples(parallel=True):
            text = answer_text(process.render, learnt, calls, content, reasoning)
            assert text is not None
            wanted = tuple((call.name, dict(call.arguments)) for call in calls)
            for pieces in ([text], *chunkings(text, every_cut=False)):  # `verify` has cut it at every place
                found = read(pieces, recognizer, book_of(calls))
                assert found.calls == wanted
                assert found.text.strip() == (content or "")
                assert found.errors == ()
                if "{id}" in expected.call.head:
                    assert found.ids == tuple(call.id for call in calls)


@pytest.mark.parametrize("name", INVENTED)
def test_a_learnt_format_reads_what_it_writes(name: str) -> None:
    from athena.model.parts import ToolCall

    built = declared_format(INVENTED[name].expected)
    for arguments in (*PLAIN, *(hard for _, hard in HARD)):
        call = ToolCall(id="abcdefgh1", name="look_up", arguments=msgspec.json.encode(arguments).decode())
        if built.inexpressible(call) is None:
            book = book_of((ProbeCall("look_up", arguments),))
            for pieces in chunkings(built.render_calls([call, call]), every_cut=False):
                assert read(pieces, Recognizer(built), book).calls == (("look_up", arguments),) * 2


def test_an_answer_begins_in_the_reasoning_that_the_prompt_opened() -> None:
    tools = [{"name": "look_up", "parameters": {"type": "object"}}]
    call = '<act>\n{"name": "look_up", "arguments": {}}\n</act>'
    parsed = parse(f"I look.\n</muse>\nHere:\n{call}", format=INVENTED["opened_reasoning"].expected, tools=tools)
    assert [found.name for found in parsed.calls] == ["look_up"]
    assert (parsed.thinking.strip(), parsed.text.strip()) == ("I look.", "Here:")


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_cannot_be_learnt_and_says_why(name: str, tmp_path: Path) -> None:
    template, reason = REFUSED[name]
    file = tmp_path / "chat.jinja"
    file.write_text(template)
    with pytest.raises(CannotLearn, match=reason) as refusal:
        learn_format(file)
    assert str(file) in refusal.value.message
    assert refusal.value.code == "cannot_learn"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped(name: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(HOSTILE[name] + "{{ messages }}")
    limits = RenderingLimits(cpu_seconds=1, memory_bytes=256 * 1024 * 1024)
    with pytest.raises(CannotLearn) as refusal:
        learn_format(file, limits=limits)
    assert len(refusal.value.message) < 1000
    assert "root:" not in refusal.value.message


def test_a_process_that_never_answers_is_stopped_by_the_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(rendering, "_CHILD", child)
    with pytest.raises(CannotLearn, match=r"longer than 0\.1 seconds"):
        TemplateProcess("{{ messages }}", TOKENS, RenderingLimits(seconds=0.1))


def test_the_child_has_no_environment_and_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATHENA_PROBE", "secret")
    with TemplateProcess("{{ messages }}", TOKENS) as process:
        child = process._process
        environment = Path(f"/proc/{child.pid}/environ").read_bytes()
        assert b"secret" not in environment
        assert process.render({"messages": ["hello"]}) == "['hello']"
    assert child.poll() is not None
    process.close()


def test_names_the_extra_when_jinja2_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        "import sys\nsys.modules['jinja2'] = None\n"
        + rendering._CHILD.read_text().replace("from __future__ import annotations", "")
    )
    monkeypatch.setattr(rendering, "_CHILD", child)
    file = tmp_path / "chat.jinja"
    file.write_text(INVENTED["json"].template)
    with pytest.raises(UsageError, match=r"athena-gateway\[learn\]"):
        learn_format(file)


def test_what_a_template_says_cannot_draw_on_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{{ raise_exception('a\x1b[2Jb\nc') }}")
    with pytest.raises(CannotLearn) as refusal:
        learn_format(file)
    assert refusal.value.message.isprintable()
