"""The process that renders chat templates: a program of its own, started by `rendering`, that does nothing else.

A template is a stranger's program. It runs in jinja2's sandbox for immutable data, in a process that may use so much memory and
time and no more, that opens no file once it has begun, and that has no part in the environment of the one who started it.

It reads one JSON object per line on standard input, and answers each with one. The first line holds the template, the special
tokens and the limits; the others hold the variables of one rendering each. Nothing of Athena is imported here, because
imports take longer than rendering.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any

NO_JINJA = "jinja2 is not installed"
OLDEST_JINJA = (3, 1, 6)
"""Older versions have known ways out of the sandbox."""


def main() -> int:
    """Read the template, then render until there is nothing more to render."""
    order = json.loads(sys.stdin.readline())
    _limit(order["memory_bytes"], order["cpu_seconds"])
    try:
        template = _compiled(order["template"])
    except ModuleNotFoundError:
        _answer({"missing": NO_JINJA})
        return 0
    except Exception as error:  # whatever a template does wrong is an answer
        _answer({"error": _reason(error)})
        return 0
    # Whatever is needed has been imported: from here on nothing is opened and nothing is started.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    _answer({"ready": True})
    for line in sys.stdin:
        try:
            text = _rendered(template, {**order["tokens"], **json.loads(line)}, order["characters"])
        except Exception as error:  # as above
            _answer({"error": _reason(error)})
        else:
            _answer({"text": text})
    return 0


def _limit(memory_bytes: int, cpu_seconds: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _compiled(source: str) -> Any:
    """The template in the environment that `apply_chat_template` of transformers gives it."""
    import jinja2
    import jinja2.debug  # jinja2 imports it when the first template fails
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    version = tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdecimal())
    if version < OLDEST_JINJA:
        raise RuntimeError(f"jinja2 {jinja2.__version__} is too old: its sandbox has known ways out; 3.1.6 is needed")

    class Generation(jinja2.ext.Extension):
        """`{% generation %}` marks what the model writes, for training; here it means nothing."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 reads it from the class

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

        def _pass(self, caller: Any) -> Any:
            return caller()

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form: str) -> str:
        # The same day in every rendering, so that renderings can be compared.
        return datetime(2025, 1, 1).strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals.pop("lipsum", None)  # makes text of any length, and no template needs it
    return environment.from_string(source)


def _rendered(template: Any, variables: dict[str, Any], most: int) -> str:
    pieces: list[str] = []
    size = 0
    for piece in template.generate(**variables):
        size += len(piece)
        if size > most:
            raise RuntimeError(f"the template writes more than {most} characters")
        pieces.append(piece)
    return "".join(pieces)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "the template uses too much memory"
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if isinstance(line, int) else ""
    return f"{type(error).__name__}: {error}"[:500] + where


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
