"""Endpoints that are passed through: `/v1/completions`, `/v1/embeddings`, Gemini's `:embedContent` and `:batchEmbedContents`.

They know no tools, so nothing in them is translated. The model's name is replaced by the upstream's, the gateway's credentials
take the place of the client's, and the upstream's answer goes back as it comes. The rules of routing, fallback, places at an
upstream, health and memory are those of every other request. Only an upstream that speaks the client's own family of APIs can
be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from athena.calls.names import check_model_name, model_in_path
from athena.dialects import get_dialect
from athena.dialects.error_kinds import kind_of_status
from athena.errors import AthenaError, InvalidRequest, UnsupportedFeature, UpstreamError
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.serving.actions import Stop
from athena.serving.breaker import Visit
from athena.serving.choosing import TargetWish
from athena.serving.endpoints import Endpoint
from athena.serving.holding import RequestMemory
from athena.serving.record import MESSAGE_SHOWN
from athena.serving.retries import is_outage, is_own_limit, may_move_on
from athena.serving.sessions import belonging
from athena.serving.targets import Target
from athena.shells.gateway.client import Headers
from athena.shells.gateway.incoming import as_it_is, read_request
from athena.shells.gateway.lanes import leave
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.resources import Resources
from athena.shells.logs import log_body
from athena.shells.upstream import UpstreamResponse

_UPSTREAM_DIALECTS = {
    "openai_chat": ("openai_chat", "openai_responses"),
    "openai_responses": ("openai_responses",),
    "gemini": ("gemini",),
}
"""Which upstreams can have an endpoint, by the dialect of the endpoint."""
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
_ERROR_BYTES = 64 * 1024
"""How much of an upstream's error is read."""


class PassThrough:
    """One request that is passed through. It ends like a `Driver` does: by its answer, an error, or `stop`."""

    held = 0
    """Bytes that wait in this request: none, since each is written as it comes."""

    def __init__(self, received: ReceivedRequest, resources: Resources, endpoint: Endpoint, body: dict[str, Any]) -> None:
        """`endpoint` says where the `body` goes, which need not be where the request came in."""
        self._unserved = received.unserved
        self._configured = received.configured
        self._resources = resources
        self._endpoint = endpoint
        self._dialect = received.dialect
        self._record = received.record
        self._client = received.client
        self._body = body
        self._key = received.key
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._started = self._loop.time()
        self._stop: Stop | None = None
        self._targets: tuple[Target, ...] = ()
        self._is_stream = False
        """The answer is a stream of events, in which an error frame can be sent."""
        self._over = False

    def stop(self, reason: Stop) -> None:
        if not self._stop and not self._over and self._task is not None:
            self._stop = reason
            self._task.cancel()

    def use(self, targets: tuple[Target, ...]) -> None:
        """Ask these targets, in their order."""
        self._targets = targets
        self._unserved.passes(targets)

    async def run(self) -> None:
        """Serve the request. Raises AthenaError while the client has no byte of an answer."""
        self._client.on_gone = partial(self.stop, "client_closed")
        try:
            await self._try_targets(self._serving_it(self._targets))
        except asyncio.CancelledError:
            if not self._stop or self._task is None:
                raise
            self._task.uncancel()
            self._stopped()
        finally:
            self._client.on_gone = None
            self._over = True
            self._task = None
        if self._record.status or self._stop:
            self._report()

    # -- targets -----------------------------------------------------------------------------------------------------------

    def _serving_it(self, targets: tuple[Target, ...]) -> list[Target]:
        dialects = _UPSTREAM_DIALECTS[self._endpoint.dialect]
        found = [target for target in targets if target.dialect in dialects]
        if not found:
            first = targets[0]
            raise UnsupportedFeature(
                f"model: the upstream {first.upstream} speaks {first.dialect}, which has no {self._name()}; "
                f"route this model to an upstream that speaks {' or '.join(dialects)}",
                path="model",
            )
        return found

    def _name(self) -> str:
        return self._endpoint.upstream_path.rpartition(":")[2].rpartition("/")[2]

    async def _try_targets(self, targets: list[Target]) -> None:
        candidates = self._resources.health.candidates(self._ordered(tuple(targets)))
        for position, target in enumerate(candidates):
            is_last = position + 1 == len(candidates)
            try:
                await self._ask(target)
                return
            except AthenaError as failure:
                if is_last or self._record.status or not may_move_on(error_event(failure)):
                    raise

    def _ordered(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        record, headers = self._record, self._client.headers
        wish = TargetWish(
            request_id=record.request_id,
            model=record.model,
            client=record.key,
            session=belonging(headers, b"").session,
            has_tools=False,
            streamed=self._body.get("stream") is True,
        )
        choice = self._resources.chooser.choose(targets, wish)
        record.chosen_by = choice.why
        return choice.targets

    async def _ask(self, target: Target) -> None:
        resources, record = self._resources, self._record
        record.attempts += 1
        record.upstream, record.upstream_model, record.upstream_dialect = target.upstream, target.model, target.dialect
        body = msgspec.json.encode(_for_upstream(self._body, self._endpoint, target.model))
        path = self._path(target)
        record.url = target.url(path)
        log_body("upstream request", record.request_id, body)
        headers = self._headers(target) + self._unserved.trace_headers()
        self._unserved.sends(target, path, headers, body)
        lane = await resources.lanes.enter(target.upstream, record.key)
        visit = resources.health.visit(target.upstream)
        try:
            response = await resources.client.send(
                "POST",
                target.origin,
                path,
                headers,
                body,
                target.timeouts,
                target.pool,
            )
            self._unserved.head(response.status, response.headers)
            try:
                error = await self._pass_on(target, response, visit)
            finally:
                response.close()
            self._attempted(target, visit, error)
        except UpstreamError as failure:
            self._unserved.ended(failure)
            self._attempted(target, visit, error_event(failure))
            raise
        finally:
            visit.abandoned()
            leave(lane)

    def _attempted(self, target: Target, visit: Visit, error: Error | None) -> None:
        self._record.details.attempts.append((target.upstream, error is None))
        if not is_own_limit(error):
            visit.ended(ok=not is_outage(error))

    def _path(self, target: Target) -> str:
        return target.other_path(self._endpoint.upstream_path.replace("{model}", model_in_path(target.model)))

    def _headers(self, target: Target) -> Headers:
        asked = Request(model=target.model, dialect=target.dialect, stream=self._body.get("stream") is True)
        return target.headers({}, asked, self._client.headers, self._key)

    # -- the answer --------------------------------------------------------------------------------------------------------

    async def _pass_on(self, target: Target, response: UpstreamResponse, visit: Visit) -> Error | None:
        """The answer to the client; what ended it early, if anything did. Raises UpstreamError while nothing was written."""
        if not 200 <= response.status < 300:
            raise await self._refusal(target, response)
        visit.answers()
        kind = response.headers.get("content-type", "application/json")
        self._is_stream = kind.partition(";")[0].strip().lower() == "text/event-stream"
        first = await response.read()
        headers = self._configured.answer_headers(self._record)
        headers.append((b"x-athena-served-by", target.shown_name.encode()))
        headers += [
            (name.encode(), value.encode("latin-1", "replace")) for name, value in _kept(response.headers, kind).items()
        ]
        record = self._record
        record.status, record.stream = response.status, self._is_stream
        record.first_byte_ms = (self._loop.time() - self._started) * 1000
        self._client.start(response.status, headers, None)
        self._unserved.shows(response.status, headers)
        try:
            data = first
            while data:
                record.chunks += 1
                self._unserved.read(data)
                self._client.write(data)
                self._unserved.writes(data)
                if self._client.blocked:
                    await self._drained()
                data = await response.read()
        except UpstreamError as failure:
            error = error_event(failure)
            self._unserved.ended(failure)
            self._break_off(error)
            record.outcome, record.error, record.error_message = "error", error.code, error.message[:MESSAGE_SHOWN]
            return error
        self._unserved.ended()
        self._client.finish()
        record.outcome = "ok"
        return None

    async def _refusal(self, target: Target, response: UpstreamResponse) -> UpstreamError:
        """The upstream's error, without its key, for a client that may know it."""
        body = b""
        while len(body) < _ERROR_BYTES and (piece := await response.read()):
            self._unserved.read(piece)
            body += piece
        error = get_dialect(target.dialect).decode_error(response.status, response.headers, body[:_ERROR_BYTES])
        if response.status in (401, 403) and self._configured.config.keys:
            return UpstreamError(
                "the upstream refused the gateway's credentials; the operator has to fix the upstream's api_key",
                kind=kind_of_status(502),
                code="upstream_auth",
                status=502,
            )
        wait = error.retry_after
        return UpstreamError(
            _masked(error.message, target.secrets),
            kind=error.kind,
            code=_masked(error.code, target.secrets),
            status=response.status,
            retry_after=wait if wait is None else min(wait, self._configured.config.retries.retry_after_max_s),
        )

    async def _drained(self) -> None:
        """Wait until the client takes its bytes, but not for ever."""
        taken = asyncio.Event()
        self._client.on_drained = taken.set
        try:
            async with asyncio.timeout(self._configured.config.timeouts.client_write_s):
                await taken.wait()
        except TimeoutError:
            self._stop = "client_stalled"
            self._client.cut_off()
            raise asyncio.CancelledError from None
        finally:
            self._client.on_drained = None

    def _break_off(self, error: Error) -> None:
        """The answer cannot be finished: say so in the stream, or let the connection break."""
        if self._is_stream:
            said = b"data: " + self._dialect.encode_error(error, self._record.request_id).body + b"\n\n"
            self._unserved.writes(said)
            self._client.finish(said)
        else:
            self._client.cut_off()

    def _stopped(self) -> None:
        self._record.outcome = self._stop or ""
        if self._stop == "shutdown":
            reason = UpstreamError("the gateway is shutting down", kind="overloaded", code="shutting_down")
            if not self._record.status:
                raise reason
            self._break_off(error_event(reason))

    def _report(self) -> None:
        self._record.duration_ms = (self._loop.time() - self._started) * 1000
        self._record.outcome = self._record.outcome or "error"
        self._resources.over(self._record)
        self._unserved.over()


async def read_passage(received: ReceivedRequest, resources: Resources, memory: RequestMemory) -> tuple[PassThrough, str]:
    """A request to such an endpoint, and the model it names. Raises what `read_request` raises, and InvalidRequest."""
    client, record, unserved, endpoint = received.client, received.record, received.unserved, received.endpoint
    config = received.configured.config
    keep = unserved.keep if unserved.wants_body else _forget
    body, weight, record.large = await read_request(
        client, config.limits, config.timeouts.client_body_s, memory, as_it_is, on_body=keep
    )
    memory.decoded(weight)
    model = endpoint.model if endpoint.model is not None else body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model: must be the name of a model", path="model")
    check_model_name(model)
    record.model = model
    return PassThrough(received, resources, endpoint, body), model


def _forget(body: bytes) -> None:
    """No tap wants to see it."""


def _for_upstream(body: dict[str, Any], endpoint: Endpoint, model: str) -> dict[str, Any]:
    """The body with the upstream's name of the model wherever the client's stands."""
    if endpoint.dialect != "gemini":
        return {**body, "model": model}
    name = f"models/{model}"
    changed = {**body, "model": name} if "model" in body else dict(body)
    if isinstance(requests := body.get("requests"), list):
        changed["requests"] = [{**item, "model": name} if isinstance(item, dict) else item for item in requests]
    return changed


def _kept(headers: Mapping[str, str], kind: str) -> dict[str, str]:
    return {"content-type": kind, **{name: headers[name] for name in _KEPT_HEADERS if name in headers}}


def _masked(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
