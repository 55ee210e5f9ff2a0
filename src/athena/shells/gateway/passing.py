"""Doors that are passed through: `/v1/completions`, `/v1/embeddings`, Gemini's `:embedContent` and `:batchEmbedContents`.

They know no tools, so nothing in them is translated. The model's name is replaced by the upstream's, the gateway's credentials
take the place of the client's, and the upstream's answer goes back as it comes. The rules of routing, fallback, places at an
upstream, health and memory are those of every other request. Only an upstream that speaks the client's own family of APIs can
be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from athena.calls.names import check_model_name, model_in_path
from athena.dialects import get_dialect
from athena.dialects.base import Dialect, kind_of_status
from athena.errors import AthenaError, InvalidRequest, UnsupportedFeature, UpstreamError
from athena.model.events import Error, error_event
from athena.model.request import Request
from athena.serving.endpoints import Door
from athena.serving.health import Visit
from athena.serving.holding import RequestMemory
from athena.serving.record import MESSAGE_SHOWN, Record
from athena.serving.retries import is_outage, is_own_limit, may_move_on
from athena.serving.targets import Target
from athena.shells.gateway.client import Client, Headers
from athena.shells.gateway.incoming import read_request
from athena.shells.logs import log_body
from athena.shells.upstream import UpstreamResponse

if TYPE_CHECKING:
    from athena.shells.gateway.app import Gateway

_UPSTREAM_DIALECTS = {"openai_chat": ("openai_chat", "openai_responses"), "gemini": ("gemini",)}
"""Which upstreams can have a door, by the dialect of the door."""
_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
_ERROR_BYTES = 64 * 1024
"""How much of an upstream's error is read."""
Stop = Literal["", "client_closed", "client_stalled", "shutdown"]


class Passage:
    """One request that is passed through. It ends like a `Driver` does: by its answer, an error, or `stop`."""

    held = 0
    """Bytes that wait in this request: none, since each is written as it comes."""

    def __init__(
        self,
        gateway: Gateway,
        door: Door,
        dialect: Dialect,
        record: Record,
        client: Client,
        body: dict[str, Any],
        *,
        key: str | None,
    ) -> None:
        self._gateway = gateway
        self._door = door
        self._dialect = dialect
        self._record = record
        self._client = client
        self._body = body
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._started = self._loop.time()
        self._stop: Stop = ""
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

    async def run(self) -> None:
        """Serve the request. Raises AthenaError while the client has no byte of an answer."""
        self._client.on_gone = partial(self.stop, "client_closed")
        try:
            await self._try_targets(self._having_the_door(self._targets))
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

    def _having_the_door(self, targets: tuple[Target, ...]) -> list[Target]:
        dialects = _UPSTREAM_DIALECTS[self._door.dialect]
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
        return self._door.endpoint.rpartition(":")[2].rpartition("/")[2]

    async def _try_targets(self, targets: list[Target]) -> None:
        gateway = self._gateway
        candidates = gateway.health.candidates(targets)
        for position, target in enumerate(candidates):
            is_last = position + 1 == len(candidates)
            try:
                await self._ask(target)
                return
            except AthenaError as failure:
                if is_last or self._record.status or not may_move_on(error_event(failure)):
                    raise

    async def _ask(self, target: Target) -> None:
        gateway, record = self._gateway, self._record
        record.attempts += 1
        record.upstream, record.upstream_model, record.upstream_dialect = target.upstream, target.model, target.dialect
        body = msgspec.json.encode(_for_upstream(self._body, self._door, target.model))
        path = self._path(target)
        record.url = target.url(path)
        log_body("upstream request", record.request_id, body)
        place = await gateway.lanes.enter(target.upstream, record.key)
        visit = gateway.health.visit(target.upstream)
        try:
            response = await gateway.client.send(
                "POST",
                target.origin,
                path,
                self._headers(target),
                body,
                target.timeouts,
                target.pool,
            )
            try:
                error = await self._pass_on(target, response, visit)
            finally:
                response.close()
            self._attempted(target, visit, error)
        except UpstreamError as failure:
            self._attempted(target, visit, error_event(failure))
            raise
        finally:
            visit.abandoned()
            place.give_back()

    def _attempted(self, target: Target, visit: Visit, error: Error | None) -> None:
        self._record.details.attempts.append((target.upstream, error is None))
        if not is_own_limit(error):
            visit.ended(ok=not is_outage(error))

    def _path(self, target: Target) -> str:
        return target.other_path(self._door.endpoint.replace("{model}", model_in_path(target.model)))

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
        headers = self._gateway.answer_headers(self._record)
        headers += [
            (name.encode(), value.encode("latin-1", "replace")) for name, value in _kept(response.headers, kind).items()
        ]
        record = self._record
        record.status, record.stream = response.status, self._is_stream
        record.first_byte_ms = (self._loop.time() - self._started) * 1000
        self._client.start(response.status, headers, None)
        try:
            data = first
            while data:
                record.chunks += 1
                self._client.write(data)
                if self._client.blocked:
                    await self._drained()
                data = await response.read()
        except UpstreamError as failure:
            error = error_event(failure)
            self._break_off(error)
            record.outcome, record.error, record.error_message = "error", error.code, error.message[:MESSAGE_SHOWN]
            return error
        self._client.finish()
        record.outcome = "ok"
        return None

    async def _refusal(self, target: Target, response: UpstreamResponse) -> UpstreamError:
        """The upstream's error, without its key, for a client that may know it."""
        body = b""
        while len(body) < _ERROR_BYTES and (piece := await response.read()):
            body += piece
        error = get_dialect(target.dialect).decode_error(response.status, response.headers, body[:_ERROR_BYTES])
        if response.status in (401, 403) and self._gateway.config.keys:
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
            retry_after=wait if wait is None else min(wait, self._gateway.config.retries.retry_after_max_s),
        )

    async def _drained(self) -> None:
        """Wait until the client takes its bytes, but not for ever."""
        taken = asyncio.Event()
        self._client.on_drained = taken.set
        try:
            async with asyncio.timeout(self._gateway.config.timeouts.client_write_s):
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
            self._client.finish(b"data: " + self._dialect.encode_error(error, self._record.request_id).body + b"\n\n")
        else:
            self._client.cut_off()

    def _stopped(self) -> None:
        self._record.outcome = self._stop
        if self._stop == "shutdown":
            reason = UpstreamError("the gateway is shutting down", kind="overloaded", code="shutting_down")
            if not self._record.status:
                raise reason
            self._break_off(error_event(reason))

    def _report(self) -> None:
        self._record.duration_ms = (self._loop.time() - self._started) * 1000
        self._record.outcome = self._record.outcome or "error"
        self._gateway.over(self._record)


async def read_passage(
    gateway: Gateway, door: Door, dialect: Dialect, record: Record, client: Client, memory: RequestMemory, *, key: str | None
) -> tuple[Passage, str]:
    """A request to such a door, and the model it names. Raises what `read_request` raises, and InvalidRequest."""
    config = gateway.config
    body, weight, record.large = await read_request(client, config.limits, config.timeouts.client_body_s, memory, dict)
    memory.decoded(weight)
    model = door.model if door.model is not None else body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model: must be the name of a model", path="model")
    check_model_name(model)
    record.model = model
    return Passage(gateway, door, dialect, record, client, body, key=key), model


def _for_upstream(body: dict[str, Any], door: Door, model: str) -> dict[str, Any]:
    """The body with the upstream's name of the model wherever the client's stands."""
    if door.dialect != "gemini":
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
