"""Where every request comes in: host names and web pages, the endpoint of a path, keys, and the answer to what is refused."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping

from athena.dialects import get_dialect
from athena.dialects.base import Dialect
from athena.errors import AthenaError, ClientError
from athena.model.events import Error, error_event
from athena.serving.endpoints import (
    Endpoint,
    EndpointAction,
    asks_for_socket,
    credential,
    dialect_of_error,
    gateway_endpoint,
    socket_refused,
    unknown_path,
)
from athena.serving.record import MESSAGE_SHOWN, PATH_SHOWN, RequestRecord
from athena.shells.config import ADMITTED, Preflight, WebRefusal
from athena.shells.gateway.admission import admit_key, admit_owner
from athena.shells.gateway.answers import OpenAnswers
from athena.shells.gateway.client import Client, ClientGone
from athena.shells.gateway.configured import Configured
from athena.shells.gateway.inspect_api import PREFIX as INSPECT
from athena.shells.gateway.inspect_page import is_page, serve_page
from athena.shells.gateway.inspection import Inspection
from athena.shells.gateway.metrics import Metrics
from athena.shells.gateway.received import ReceivedRequest
from athena.shells.gateway.replies import reply
from athena.shells.gateway.unserved import Unserved
from athena.shells.logs import write_line
from athena.websocket.handshake import accepted

LOG = logging.getLogger("athena")
UPGRADE_REQUIRED = 426
NO_SOCKET = (b"upgrade", b"HTTP/1.1")
"""HTTP wants the protocols named that would do, wherever a status says that another one is needed."""
_INTERNAL = Error("the gateway failed; its log says why", kind="server", code="internal_error")

Handler = Callable[[ReceivedRequest], Awaitable[None]]


class Entrance:
    """Takes requests in, and hands each to the endpoint that it asks for."""

    def __init__(
        self,
        handlers: Mapping[EndpointAction, Handler],
        open_handlers: Mapping[EndpointAction, Handler],
        *,
        answers: OpenAnswers,
        inspection: Inspection,
        metrics: Metrics,
    ) -> None:
        """`open_handlers` answer whoever asks, without a key."""
        self._handlers = handlers
        self._open_handlers = open_handlers
        self._answers = answers
        self._inspection = inspection
        self._metrics = metrics

    async def serve(
        self,
        client: Client,
        configured: Configured,
        refusal: AthenaError | None = None,
        *,
        endpoint: Endpoint | None = None,
        owner: str | None = None,
    ) -> None:
        """One request of a client, answered to its end; with a `refusal`, by that error in the client's dialect. `endpoint` is
        what it asks for where its path does not say so; `owner` is the name of the key whose request it is, shown before."""
        path, method, headers = client.path, client.method, client.headers
        endpoint = endpoint or gateway_endpoint(method, path, client.query, headers)
        dialect = get_dialect(endpoint.dialect if endpoint is not None else dialect_of_error(path, headers))
        record = RequestRecord(_request_id(headers), dialect.name, path[:PATH_SHOWN])
        unserved = Unserved(
            configured.recorder, configured.traces, client, record, asyncio.get_running_loop().time(), time.time()
        )
        try:
            if refusal is not None:
                raise refusal
            if _is_question(endpoint, configured, record, client):
                return
            if endpoint is None:
                if path.startswith(INSPECT + "/") and (inspector := self._inspection.api) is not None:
                    await inspector.serve(client)
                    return
                if is_page(path):
                    serve_page(client, self._inspection.api)
                    return
            if method == "GET" and asks_for_socket(method, headers):
                self._open_socket(endpoint, configured, record, client)
                return
            if endpoint is None or (endpoint.action == "metrics" and not configured.config.metrics.enabled):
                raise unknown_path(path)
            if method not in endpoint.methods:
                allowed = " or ".join(endpoint.methods)
                message = f"{method} is not allowed here; use {allowed}"
                raise ClientError(message, code="method_not_allowed", status=405)
            received = ReceivedRequest(client, endpoint, dialect, record, configured, unserved)
            handler = self._open_handlers.get(endpoint.action)
            if handler is None:
                key = received.key = unserved.key = credential(headers, client.query)
                config = configured.config
                record.key = admit_key(config, key, endpoint) if owner is None else admit_owner(config, owner)
                handler = self._handlers[endpoint.action]
            await handler(received)
        except ClientGone:
            record.outcome = "client_closed"
            write_line(record)
        except AthenaError as error:
            # A status that we ourselves chose (405, 408, 415) is ours, whatever row of the dialect's table the words come from.
            own = error.status if isinstance(error, ClientError) else None
            shown = unserved if _is_recorded(endpoint, path) else None
            self._refuse(dialect, error_event(error), configured, record, client, shown, status=own)
        except Exception:
            # The outermost edge: whatever is wrong with us, the client gets an answer in its dialect and the log the reason.
            LOG.exception("request %s failed inside the gateway", record.request_id)
            shown = unserved if _is_recorded(endpoint, path) else None
            self._refuse(dialect, _INTERNAL, configured, record, client, shown)

    def _open_socket(self, endpoint: Endpoint | None, configured: Configured, record: RequestRecord, client: Client) -> None:
        """Let the client change to WebSocket. Raises where it may not: it then goes on with plain requests."""
        config = configured.config
        if (
            not config.websocket.enabled
            or endpoint is None
            or endpoint.dialect != "openai_responses"
            or endpoint.action != "answer"
        ):
            raise socket_refused()
        record.key = admit_key(config, credential(client.headers, client.query), endpoint)
        self._answers.check_room(config)
        headers = accepted(client.headers)
        record.status, record.outcome = 101, "ok"
        if not client.accept_socket([*headers, *configured.answer_headers(record)]):
            record.status, record.outcome = 0, ""
            raise socket_refused()
        write_line(record)

    def _refuse(
        self,
        dialect: Dialect,
        error: Error,
        configured: Configured,
        record: RequestRecord,
        client: Client,
        unserved: Unserved | None,
        *,
        status: int | None = None,
    ) -> None:
        """Tell the client this error, with this status where it is ours to choose."""
        answer = dialect.encode_error(error, record.request_id)
        record.outcome, record.error, record.error_message = "error", error.code, error.message[:MESSAGE_SHOWN]
        if record.status:
            # A head is out already: a second one inside its body would be read as the answer's own text.
            client.cut_off()
        else:
            record.status = status or answer.status
            headers = configured.answer_headers(record)
            headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
            if record.status == UPGRADE_REQUIRED:
                headers.append(NO_SOCKET)
            reply(client, record.status, answer.body, "application/json", headers)
            if unserved is not None:
                unserved.refused(record.status, headers, answer.body)
        if unserved is not None:
            unserved.over()
        self._metrics.requests.labels(record.dialect, record.upstream, record.upstream_dialect, "error").inc()
        write_line(record)


def _is_question(endpoint: Endpoint | None, configured: Configured, record: RequestRecord, client: Client) -> bool:
    """Did the client only ask what it may send? Then it is answered. Raises where its host name or web page is refused."""
    methods = endpoint.methods if endpoint is not None else ()
    verdict = configured.web_access.judge(client.method, client.headers, methods)
    if verdict is ADMITTED and client.method == "POST":
        return False
    if isinstance(verdict, WebRefusal):
        LOG.info("request refused: %s", verdict.message)
        raise ClientError(verdict.message, kind=verdict.kind, code=verdict.code, status=verdict.status)
    if isinstance(verdict, Preflight):
        headers = verdict.headers
    else:
        record.origin = verdict.origin
        if client.method != "OPTIONS" or (endpoint is None and client.path != "*"):
            return False
        headers = ((b"allow", ", ".join(("OPTIONS", *(methods or ("GET", "HEAD", "POST")))).encode()),)
    value = record.request_id.encode()
    client.start(200, [(b"request-id", value), (b"x-request-id", value), *headers], 0)
    client.finish()
    return True


def _is_recorded(endpoint: Endpoint | None, path: str) -> bool:
    """Are refusals there recorded? The gateway's own pages and numbers are nobody's exchange with a model."""
    return not is_page(path) if endpoint is None else endpoint.action in ("answer", "pass", "count", "models", "model")


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's own id when it is harmless to repeat, else a new one."""
    given = headers.get("x-request-id")
    if given and len(given) <= 128 and given.isascii() and all(letter.isalnum() or letter in "-_." for letter in given):
        return given
    return "req_" + os.urandom(12).hex()
