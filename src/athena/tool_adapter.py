"""`ToolAdapter`: tools for models that have none, as a library class (source system C).

    adapter = ToolAdapter(policy="collect_then_stop")
    adapted = adapter.transform_request(body)             # send adapted.body to the model
    answer = adapter.transform_response(reply, adapted)   # a whole answer with tool_calls
    for piece in adapter.stream(chunks, adapted): ...     # or a stream, bytes in and bytes out
    async for piece in adapter.stream_async(chunks, adapted): ...

Client and model speak the same dialect, one of the four; `translate` and the gateway do both at once. An adapter holds options
and nothing else: it is immutable and may be shared between threads and tasks. All clocks are handed in.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from athena.dialects import get_dialect
from athena.dialects.base import EncodeTarget
from athena.errors import AthenaError, ClientError, ConfigError, ConfigProblem
from athena.exchange import AnswerPath, Options, Route
from athena.formats.machine.value_types import ToolBook
from athena.model.events import Done, Error, Event, Finish, TextDelta, ToolCallComplete, is_failure, is_terminal
from athena.model.names import DialectName
from athena.model.parts import ToolCall
from athena.model.profile import Profile
from athena.model.request import Loss, Request, Tool
from athena.parsing import text_guard
from athena.prepare import Prepared, prepare
from athena.profiles import profile_for
from athena.prompted.errors import (
    ToolConfigurationError,
    ToolNetworkError,
    ToolProcessingError,
    ToolSystemError,
    ToolValidationError,
)
from athena.prompted.metrics import FunctionCallDetection, MetricsEvent, MetricsSink, Performance, ToolTransformation, report
from athena.prompted.options import PromptedOptions, checked_options
from athena.prompted.presets import Preset, preset
from athena.prompted.render import PromptPlan, correction_turns, merged_turns, taught_style, tool_text
from athena.prompted.stage import Correction, PromptedStage
from athena.wire.fields import Body, as_bytes, as_object

__all__ = ["AdaptedRequest", "ExtractedCalls", "ToolAdapter"]

Cancelled = Callable[[], bool]


class AdaptedRequest(msgspec.Struct, frozen=True):
    """A request for a model without tools, and what its answer needs to be read."""

    body: dict[str, Any]
    """What to send to the model."""
    warnings: tuple[Loss, ...] = ()
    """What was dropped or emulated."""
    request: Request | None = None
    """The client's own request."""
    prepared: Prepared | None = None
    """What reading the answer needs to know."""
    changed: bool = False
    """Were there tools or tool results at all?"""


class ExtractedCalls(msgspec.Struct, frozen=True):
    """The calls of a text, and the text around them."""

    text: str
    """The text that is no call."""
    calls: tuple[ToolCall, ...]
    """The calls, every one of them whole."""
    notes: tuple[Error, ...] = ()
    """What was odd: calls that were dropped, repaired, or break their tool's schema."""


class ToolAdapter:
    """Teaches tools in the prompt and reads calls from the text. Immutable; share it freely.

    Args:
        dialect: What client and model speak.
        preset_name: Begin with one of `production`, `development`, `quiet`, `batch`, `chat`, `edge`.
        options: Begin with these options instead.
        profile: The server's quirks, by name or as a value.
        metrics: Gets a typed event per request and answer.
        on_metrics_error: Gets what `metrics` raised, which goes no further.
        clock: Seconds, rising; for the collect window and for measurements.
        settings: Single options, laid over the others: `policy`, `style`, `template`, `reask`, `max_calls`, ...; the
            fields of `athena.prompted.options.PromptedOptions`. Without any, the policy is `stop_on_first`.

    Raises:
        ToolConfigurationError: Options cannot work; `problems` names all of them.

    Examples:
        >>> adapter = ToolAdapter(policy="collect_then_stop")
        >>> tools = [Tool(name="get_time")]
        >>> found = adapter.extract('One moment. [{"name": "get_time", "parameters": {}}]', tools)
        >>> found.text, found.calls[0].name
        ('One moment. ', 'get_time')
    """

    __slots__ = ("_clock", "_dialect", "_on_sink_error", "_options", "_preset", "_profile", "_sink", "warnings")

    warnings: tuple[ConfigProblem, ...]
    """What is odd about the options but works."""

    def __init__(
        self,
        *,
        dialect: DialectName | str = "openai_chat",
        preset_name: str | None = None,
        options: PromptedOptions | None = None,
        profile: str | Profile | None = None,
        metrics: MetricsSink | None = None,
        on_metrics_error: Callable[[Exception], object] | None = None,
        clock: Callable[[], float] | None = None,
        **settings: Any,
    ) -> None:
        problems: list[ConfigProblem] = []
        self._preset: Preset | None = preset(preset_name) if preset_name is not None else None
        if options is None:
            options = self._preset.options if self._preset is not None else PromptedOptions(policy="stop_on_first")
        unknown = [name for name in settings if name not in PromptedOptions.__struct_fields__]
        problems += [ConfigProblem("there is no such option", key=name) for name in unknown]
        known = {name: value for name, value in settings.items() if name not in unknown}
        try:
            get_dialect(dialect)
        except AthenaError as error:
            problems.append(ConfigProblem(error.message, key="dialect"))
        if isinstance(profile, str):
            try:
                profile_for(profile, dialect)
            except AthenaError as error:
                problems.append(ConfigProblem(error.message, key="profile"))
        try:
            self._options, self.warnings = checked_options(msgspec.structs.replace(options, **known))
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ToolConfigurationError.of(tuple(problems))
        self._dialect = dialect
        self._profile = profile
        self._sink = metrics
        self._on_sink_error = on_metrics_error
        self._clock = clock

    @property
    def options(self) -> PromptedOptions:
        """All options, as they are used."""
        return self._options

    @property
    def preset(self) -> Preset | None:
        """The preset this adapter began with: it also says how much to log."""
        return self._preset

    # -- requests ------------------------------------------------------------------------------------------------------------

    def transform_request(self, body: Body, *, model: str | None = None) -> AdaptedRequest:
        """The request without tools. Unchanged when it has neither tools nor tool results.

        Args:
            body: The client's request, as JSON text or as a value.
            model: The model's name; Gemini bodies hold none.

        Raises:
            ToolValidationError: The request is malformed, or its tools break a rule or a limit.
        """
        began = self._now()
        try:
            value = as_object(body)
            request = get_dialect(self._dialect).decode_request(value, model=model if self._dialect == "gemini" else None)
            return self._adapted(request, dict(value), began)
        except ToolValidationError:
            raise
        except ClientError as error:
            raise ToolValidationError(error.message, path=error.path) from error

    def _adapted(self, request: Request, body: dict[str, Any], began: float) -> AdaptedRequest:
        dialect = get_dialect(self._dialect)
        target = EncodeTarget(request.model, self._profile_of(request.model))
        prepared = prepare(request, target, dialect, dialect, pairing="repair", prompted=self._options)
        rendered = prepared.rendered
        if rendered is None or (rendered.plan is None and rendered.request.turns == request.turns and not request.tools):
            return AdaptedRequest(body, request=request, prepared=prepared)
        encoded = dialect.encode_request(prepared.request, target)
        report(
            self._sink,
            ToolTransformation(
                len(rendered.tool_names), rendered.tool_names, rendered.prompt_length, Performance(self._now() - began)
            ),
            self._on_sink_error,
        )
        return AdaptedRequest(encoded.body, prepared.losses + encoded.losses, request, prepared, changed=True)

    def _profile_of(self, model: str) -> Profile:
        return profile_for(self._profile, self._dialect, model)

    def prompt(self, tools: Sequence[Tool], *, model: str = "") -> str:
        """Only the instructions for `tools`, for callers who build their own prompts; `model` matters with `style="auto"`."""
        return tool_text(tools, self._options, taught_style(self._options, model))

    # -- answers -------------------------------------------------------------------------------------------------------------

    def transform_response(self, body: Body, adapted: AdaptedRequest, *, seed: str = "") -> dict[str, Any]:
        """A whole answer, its calls in the dialect's own form. Without calls it comes back as it was.

        Args:
            body: The model's answer, as JSON text or as a value.
            adapted: What `transform_request` gave.
            seed: Goes into the ids of calls.

        Raises:
            ToolProcessingError: A required call is missing.
            ToolNetworkError: The answer is an error.
        """
        answer, correction = self._whole(body, adapted, seed, None)
        if answer is None:
            assert correction is not None
            raise ToolProcessingError(correction.reason)
        return answer

    def _whole(
        self, body: Body, adapted: AdaptedRequest, seed: str, correction: Correction | None
    ) -> tuple[dict[str, Any] | None, Correction | None]:
        data = as_bytes(body)
        path = self._path(adapted, seed, stream=False, correction=correction)
        if path is None:
            return msgspec.json.decode(data, type=dict[str, Any]), None
        began = self._now()
        if path.prompted is not None:
            path.prompted.clock = self._clock
        events, output = path.feed(data)
        more, rest = path.close()
        stage = path.prompted
        if stage is not None:
            if stage.correction is not None and correction is None:
                return None, stage.correction
            self._report(stage, began, stream=False)
        _raise_failure([*events, *more])
        if stage is not None and not stage.calls:
            return msgspec.json.decode(data, type=dict[str, Any]), None
        return msgspec.json.decode(output + rest, type=dict[str, Any]), None

    def stream(
        self, chunks: Iterable[bytes], adapted: AdaptedRequest, *, seed: str = "", cancelled: Cancelled | None = None
    ) -> Iterator[bytes]:
        """A streamed answer, bytes as they came from the model to bytes for the client.

        The iteration ends as soon as the policy has what it wants; close the connection then. A failure is in the bytes, as the
        dialect writes it.

        Args:
            chunks: The model's bytes, in any pieces.
            adapted: What `transform_request` gave.
            seed: Goes into the ids of calls.
            cancelled: Asked between steps; True ends the work.

        Raises:
            ToolSystemError: `cancelled` said so.
        """
        path = self._path(adapted, seed, stream=True)
        if path is None:
            yield from chunks
            return
        began = self._now()
        if path.prompted is not None:
            path.prompted.clock = self._clock
        for chunk in chunks:
            if cancelled is not None and cancelled():
                raise ToolSystemError("the caller cancelled the answer")
            events, output = path.feed(chunk, self._now())
            if output:
                yield output
            if _ended(events):
                break
        else:
            _, output = path.close()
            if output:
                yield output
        if path.prompted is not None:
            self._report(path.prompted, began, stream=True)

    async def stream_async(
        self,
        chunks: AsyncIterable[bytes],
        adapted: AdaptedRequest,
        *,
        seed: str = "",
        cancelled: Cancelled | None = None,
        wait_for: Callable[[Awaitable[bytes], float], Awaitable[bytes]] | None = None,
    ) -> AsyncIterator[bytes]:
        """The same over an asynchronous source; `chunks`, `adapted`, `seed` and `cancelled` as in `stream`.

        With `wait_for` (such as `asyncio.wait_for`) and a clock the collect window closes by itself; without, it is looked at
        when the next chunk comes.
        """
        path = self._path(adapted, seed, stream=True)
        if path is None:
            async for chunk in chunks:
                yield chunk
            return
        began = self._now()
        if path.prompted is not None:
            path.prompted.clock = self._clock
        source = aiter(chunks)
        ended = False
        while not ended:
            if cancelled is not None and cancelled():
                raise ToolSystemError("the caller cancelled the answer")
            deadline = path.prompted.deadline if path.prompted is not None else None
            try:
                if deadline is not None and wait_for is not None and self._clock is not None:
                    chunk = await wait_for(anext(source), max(0.0, deadline - self._now()))
                else:
                    chunk = await anext(source)
            except StopAsyncIteration:
                _, output = path.close()
                ended = True
            except TimeoutError:
                # The source was cancelled while it waited, so the window is over whatever the clock says by now.
                events, output = path.tick(deadline or 0.0)
                ended = True
            else:
                events, output = path.feed(chunk, self._now())
                ended = _ended(events)
            if output:
                yield output
        if path.prompted is not None:
            self._report(path.prompted, began, stream=True)

    # -- the whole exchange --------------------------------------------------------------------------------------------------

    def complete(self, body: Body, send: Callable[[dict[str, Any]], Body], *, seed: str = "") -> dict[str, Any]:
        """Adapt, send, read; with the option `reask` ask once more where that is needed.

        Args:
            body: The client's request.
            send: Sends a body to the model and returns its answer.
            seed: Goes into the ids of calls.

        Raises:
            ToolValidationError: The request's tools break a rule or a limit.
            ToolProcessingError: A required call is missing, also after asking again.
            ToolNetworkError: Sending failed, or the answer is an error.
        """
        adapted = self.transform_request(body)
        answer, correction = self._whole(_sent(send, adapted.body), adapted, seed, None)
        if answer is None and correction is not None:
            answer, _ = self._whole(_sent(send, self._corrected(adapted, correction)), adapted, seed, correction)
        assert answer is not None
        return answer

    async def complete_async(
        self, body: Body, send: Callable[[dict[str, Any]], Awaitable[Body]], *, seed: str = ""
    ) -> dict[str, Any]:
        """The same with an asynchronous `send`; `body` and `seed` as in `complete`."""
        adapted = self.transform_request(body)
        answer, correction = self._whole(await _sent_async(send, adapted.body), adapted, seed, None)
        if answer is None and correction is not None:
            again = await _sent_async(send, self._corrected(adapted, correction))
            answer, _ = self._whole(again, adapted, seed, correction)
        assert answer is not None
        return answer

    def _corrected(self, adapted: AdaptedRequest, correction: Correction) -> dict[str, Any]:
        assert adapted.prepared is not None
        request = adapted.prepared.request
        turns = merged_turns((*request.turns, *correction_turns(correction.answer, correction.reason)))
        target = EncodeTarget(request.model, self._profile_of(request.model))
        return get_dialect(self._dialect).encode_request(msgspec.structs.replace(request, turns=turns), target).body

    # -- plain text ----------------------------------------------------------------------------------------------------------

    def extract(
        self,
        text: str | Iterable[str],
        tools: Sequence[Tool],
        *,
        model: str = "",
        seed: str = "",
        untrusted: Sequence[str] = (),
    ) -> ExtractedCalls:
        """The calls of a model's text, for callers who talk to the model themselves.

        Args:
            text: The text, whole or in pieces.
            tools: The tools that were taught.
            model: Matters with `style="auto"`.
            seed: Goes into the ids of calls.
            untrusted: The texts that the model was given and did not write; a call that stands in one of them is a quotation,
                and becomes what the option `echo` says.
        """
        plan = PromptPlan(tuple(tools), taught_style(self._options, model))
        options = msgspec.structs.replace(self._options, reask=False)
        guard = text_guard(untrusted, ToolBook(plan.tools), options.repair)
        stage = PromptedStage(options, plan, seed=seed, guard=guard)
        events: list[Event] = []
        for piece in (text,) if isinstance(text, str) else text:
            events += stage.feed([TextDelta(piece)])
        events += stage.feed([Done(Finish())])
        _raise_failure(events)
        return ExtractedCalls(
            "".join(event.text for event in events if isinstance(event, TextDelta)),
            tuple(
                ToolCall(id=event.id, name=event.name, arguments=event.arguments)
                for event in events
                if isinstance(event, ToolCallComplete)
            ),
            tuple(stage.notes),
        )

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _path(
        self, adapted: AdaptedRequest, seed: str, *, stream: bool, correction: Correction | None = None
    ) -> AnswerPath | None:
        """None: nothing was taught, so there is nothing to read."""
        prepared, request = adapted.prepared, adapted.request
        if prepared is None or request is None or prepared.rendered is None or prepared.rendered.plan is None:
            return None
        request = msgspec.structs.replace(request, stream=stream)
        # A stream goes out as it comes: nothing can be taken back.
        prompted = msgspec.structs.replace(self._options, reask=False) if stream else self._options
        route = Route(dialect=self._dialect, model=request.model, profile=self._profile_of(request.model), prompted=prompted)
        return AnswerPath(
            request, route, Options(seed=seed, passthrough=False), prepared=prepared, upstream_stream=stream,
            correction=correction,
        )  # fmt: skip

    def _now(self) -> float:
        return self._clock() if self._clock is not None else 0.0

    def _report(self, stage: PromptedStage, began: float, *, stream: bool) -> None:
        event: MetricsEvent = FunctionCallDetection(
            function_count=stage.calls,
            function_names=stage.names,
            content_length=stage.content_length,
            json_candidates=stage.candidates,
            streaming=stream,
            performance=Performance(self._now() - began, stage.most_held, dict(stage.seconds)),
        )
        report(self._sink, event, self._on_sink_error)


def _ended(events: list[Event]) -> bool:
    return bool(events) and is_terminal(events[-1])


def _raise_failure(events: Iterable[Event]) -> None:
    for event in events:
        if is_failure(event):
            if event.code in ("tool_choice_unmet", "schema_mismatch", "quoted_call"):
                raise ToolProcessingError(event.message, code=event.code)
            raise ToolNetworkError(event.message, kind=event.kind, code=event.code, status=event.status, raw=event.raw)


def _sent(send: Callable[[dict[str, Any]], Body], body: dict[str, Any]) -> Body:
    try:
        return send(body)
    except AthenaError:
        raise
    except OSError as error:
        raise ToolNetworkError(f"the request could not be sent: {error}") from error


async def _sent_async(send: Callable[[dict[str, Any]], Awaitable[Body]], body: dict[str, Any]) -> Body:
    try:
        return await send(body)
    except AthenaError:
        raise
    except OSError as error:
        raise ToolNetworkError(f"the request could not be sent: {error}") from error
