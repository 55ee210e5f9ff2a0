"""The steps of a check-up, in the order in which a request needs them. Each needs those before it, so the first that fails is
the one to fix; what it makes impossible is skipped and says so."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import msgspec

from athena.dialects import dialect_names, get_dialect
from athena.errors import AthenaError, UpstreamError
from athena.model.parts import Text
from athena.model.request import Request, Tool, ToolChoice, Turn
from athena.profiles import profile_for
from athena.quality import Finding, findings
from athena.serving.network import Origin, Proxy, TlsSettings, upstream_url
from athena.serving.refusals import TOOLS, refused_features
from athena.serving.targets import Target
from athena.shells.config import Config, Loaded, ModelRule, OfferedModel, Router, Sources, Upstream, load, read_models
from athena.shells.config.addresses import known_host
from athena.shells.config.ready import ready_targets, upstream_headers, upstream_origin
from athena.shells.config.targets import leads_to
from athena.shells.config.windows import published_window
from athena.shells.doctor import diagnosis
from athena.shells.doctor.asking import Asker, ModelAnswer, ProbeReply
from athena.shells.doctor.diagnosis import Diagnosis, UpstreamPlace
from athena.shells.doctor.steps import CheckStep, StepState
from athena.shells.upstream import UpstreamClient
from athena.shells.upstream.tls import make_context

_ENDPOINTS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
}
_LISTS = {"gemini": "/v1beta/models?pageSize=1000", "anthropic_messages": "/v1/models?limit=1000"}
_VERSION_HEADER = (b"anthropic-version", b"2023-06-01")
_ABSENT = frozenset((404, 405, 501))
"""Statuses of a path that is not served."""
_ANSWER_TOKENS = 256
"""Room for a tiny answer of a model that thinks first."""
_WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
NETWORK_STEPS = ("name", "port", "tls", "key", "address", "models", "window", "completion", "streaming", "tool call")
"""The steps about one upstream, in order."""


class CheckWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a check-up looks at, and how long it may take."""

    upstream: str = ""
    """Empty: every upstream."""
    model: str = ""
    """Empty: the first that the configuration or the upstream names."""
    seconds: float = 30.0
    """How long to wait for an answer."""
    free: bool = False
    """Send nothing that could cost anything: no completion, no stream, no tool call."""


async def check_up(sources: Sources, wish: CheckWish) -> AsyncIterator[CheckStep]:
    """Every step, as it is done. Nothing is raised: a fault of the configuration is the first step's finding."""
    loaded = load(sources, lenient=True)
    for step in _configuration(loaded):
        yield step
    client = UpstreamClient()
    try:
        yield await _listener(loaded.config, Asker(client, min(2.0, wish.seconds)))
        names = [name for name in loaded.config.upstreams if wish.upstream in ("", name)]
        if not names:
            yield _no_upstream(loaded, wish)
        for name in names:
            async for step in _Upstream(name, loaded, sources, wish, client).steps():
                yield step
    finally:
        await client.close()


# -- what is on this machine ---------------------------------------------------------------------------------------------


def _configuration(loaded: Loaded) -> list[CheckStep]:
    tried = ", ".join(map(str, loaded.files)) or "no file; defaults, variables and flags only"
    ignored = {str(problem) for problem in loaded.ignored}
    steps = []
    for problem in loaded.warnings:
        came = str(problem._replace(remedy=""))
        if str(problem) in ignored:
            name, state = "untrusted_file", StepState.NOTE
        else:
            name, state = ("bad_config", StepState.FAILED) if problem.fatal else ("unknown_setting", StepState.NOTE)
        steps.append(
            CheckStep(
                name="configuration",
                state=state,
                said=came,
                problem=name,
                tried=tried,
                came=came,
                remedy=problem.remedy or "correct it; athena config check shows all of them",
            )
        )
    if not any(step.state is StepState.FAILED for step in steps):
        steps.append(
            CheckStep(name="configuration", state=StepState.OK, said=f"the configuration can be used ({tried})", tried=tried)
        )
    return steps


def _no_upstream(loaded: Loaded, wish: CheckWish) -> CheckStep:
    names = ", ".join(loaded.config.upstreams)
    said = f"there is no upstream {wish.upstream!r}" if wish.upstream else "no upstream is configured"
    remedy = f"there are: {names}" if names else "athena doctor --base-url URL --api-key-env NAME, or athena init"
    hints = "; ".join(loaded.hints)
    return CheckStep(name="upstream", state=StepState.FAILED, said=said, problem="no_upstream", remedy=hints or remedy)


async def _listener(config: Config, asker: Asker) -> CheckStep:
    """Is the gateway's own port free, or Athena's already?"""
    tried = f"listen on {config.host}:{config.port}"
    try:
        with socket.create_server((config.host, config.port), family=_family(config.host)):
            return CheckStep(
                name="listener", state=StepState.OK, said=f"port {config.port} is free for the gateway", tried=tried
            )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            words = error.strerror or str(error)
            remedy = "choose another with host and port (--host, --port)"
            return CheckStep(
                name="listener",
                state=StepState.FAILED,
                said=words,
                problem="port_taken",
                tried=tried,
                came=words,
                remedy=remedy,
            )
    scheme = "https" if config.tls.cert else "http"
    host = "127.0.0.1" if config.host in ("0.0.0.0", "") else config.host
    origin = Origin(scheme, host, config.port, TlsSettings(verify=False))
    reply = await asker.send("GET", origin, "/health")
    if reply.status == 200 and b'"status":"ok"' in reply.body and "x-request-id" in reply.headers:
        said = f"a gateway of Athena listens on port {config.port} already"
        return CheckStep(name="listener", state=StepState.OK, said=said, tried=reply.tried, came=reply.came(()))
    return CheckStep(
        name="listener",
        state=StepState.FAILED,
        said=f"another program listens on port {config.port}",
        problem="port_taken",
        tried=f"{tried}; {reply.tried}",
        came=reply.came(()),
        remedy=f"end that program, or choose another port: athena serve --port {_free_port(config.host)}",
    )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _free_port(host: str) -> int:
    with socket.create_server((host, 0), family=_family(host)) as server:
        port: int = server.getsockname()[1]
        return port


# -- one upstream --------------------------------------------------------------------------------------------------------


class _Stopped(Exception):
    """A step failed on which all others depend."""


class _Upstream:
    """The steps of one upstream."""

    def __init__(self, name: str, loaded: Loaded, sources: Sources, wish: CheckWish, client: UpstreamClient) -> None:
        self._name = name
        self._config = loaded.config
        self._environment = sources.environment
        self._wish = wish
        self._client = client
        self._asker = Asker(client, wish.seconds)
        self._upstream: Upstream = loaded.config.upstreams[name]
        self._offered: tuple[OfferedModel, ...] = ()
        self._model = wish.model or self._configured_model()
        self._secrets: tuple[str, ...] = ()
        host = known_host(self._upstream.base_url) if self._upstream.base_url else None
        key = self._upstream.api_key
        self._place = UpstreamPlace(
            name=name,
            base_url=self._upstream.base_url,
            has_key=bool(key) or bool(self._upstream.headers),
            key_from=_key_setting(name, self._upstream, loaded),
            key_env=host.key_env or "" if host is not None else "",
        )
        if key is not None and len(key.reveal()) >= 4:
            self._secrets = (key.reveal(),)
        self._done: list[str] = []

    async def steps(self) -> AsyncIterator[CheckStep]:
        try:
            self._origin = upstream_origin(self._upstream)
        except AthenaError as error:
            words = Diagnosis("bad_config", error.message, f"correct {self._place.setting('base_url')}, as https://host/v1")
            yield self._failed("name", words, tried=self._upstream.base_url)
            return
        order = (
            self._look_up, self._connect, self._handshake, self._key, self._find_api, self._list, self._window, self._complete,
            self._stream, self._call,
        )  # fmt: skip
        for name, step in zip(NETWORK_STEPS, order, strict=True):
            if self._wish.free and name in ("completion", "streaming", "tool call"):
                yield self._step(name, StepState.SKIPPED, "not asked: --free")
                continue
            try:
                found = await step()
            except _Stopped as stop:
                last = stop.args[0]
                yield last
                for left in NETWORK_STEPS[NETWORK_STEPS.index(name) + 1 :]:
                    yield self._step(left, StepState.SKIPPED, f"not tried: {last.name} failed")
                return
            if found is not None:
                yield found

    # -- the way there ----------------------------------------------------------------------------------------------------

    async def _look_up(self) -> CheckStep:
        proxy = self._origin.proxy
        host, port = (proxy.host, proxy.port) if proxy is not None else (self._origin.host, self._origin.port)
        tried = f"look up {host}"
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure = UpstreamError(f"{host} cannot be found: {error.strerror or error}", code="upstream_dns_failed")
            raise self._stop("name", await self._or_proxy(failure), tried, failure.message) from None
        addresses = ", ".join(dict.fromkeys(str(target[0]) for *_, target in found))
        return self._step("name", StepState.OK, f"{host} is {addresses}", tried=tried, came=addresses)

    async def _connect(self) -> CheckStep:
        proxy = self._origin.proxy
        host, port = (proxy.host, proxy.port) if proxy is not None else (self._origin.host, self._origin.port)
        tried = f"connect to {host}:{port}"
        try:
            async with asyncio.timeout(min(5.0, self._wish.seconds)):
                _, writer = await asyncio.open_connection(host, port)
        except OSError as error:  # a timeout is one
            words = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            refused = isinstance(error, ConnectionRefusedError)
            code = "upstream_unreachable" if not isinstance(error, TimeoutError) else "connect_timeout"
            message = f"{host}:{port} cannot be reached: {'Connection refused' if refused else words}"
            failure = UpstreamError(message, code=code)
            raise self._stop("port", await self._or_proxy(failure), tried, message) from None
        await _closed(writer)
        through = " (the proxy)" if proxy is not None else ""
        return self._step("port", StepState.OK, f"something listens at {host}:{port}{through}", tried=tried, came="connected")

    async def _or_proxy(self, failure: UpstreamError) -> Diagnosis:
        """The upstream is out of reach: does a proxy of the environment lead to it?"""
        named = _environment_proxy(self._environment, self._origin.scheme)
        found = diagnosis.of_failure(failure, self._place, self._wish.seconds)
        if self._origin.proxy is not None or named is None:
            return found
        variable, value = named
        try:
            proxy = Proxy.parse(value)
        except AthenaError:
            return found
        origin = msgspec.structs.replace(self._origin, proxy=proxy)
        reply = await Asker(self._client, min(5.0, self._wish.seconds)).send("GET", origin, "/")
        if not reply.status:
            return found
        shown = f"http://{proxy.host}:{proxy.port}"
        said = f"{failure.message}; through the proxy of {variable} it answers"
        return Diagnosis("proxy_needed", said, f"set {self._place.setting('proxy')}: {shown} (variables are not read)")

    async def _handshake(self) -> CheckStep | None:
        if self._origin.scheme != "https":
            return None
        tried = f"TLS with {self._origin.host}:{self._origin.port}"
        reply = await self._asker.send("GET", self._origin, "/")
        failure = reply.failure
        codes = ("upstream_tls", "tls_timeout", "upstream_certificate", "proxy_refused", "proxy_closed", "proxy_protocol")
        if failure is None or reply.status or failure.code not in codes:
            return self._step("tls", StepState.OK, "the server's certificate is trusted", tried=tried, came="handshake done")
        if failure.code == "upstream_tls" and await self._speaks_plainly():
            plain = "http" + self._upstream.base_url.removeprefix("https")
            found = Diagnosis(
                "tls_for_http", "the server speaks plain HTTP, not TLS", f"set {self._place.setting('base_url')}: {plain}"
            )
        else:
            found = diagnosis.of_failure(failure, self._place, self._wish.seconds)
        raise self._stop("tls", found, tried, failure.message)

    async def _speaks_plainly(self) -> bool:
        reply = await self._asker.send("GET", msgspec.structs.replace(self._origin, scheme="http"), "/")
        return reply.status > 0

    async def _speaks_tls(self) -> bool:
        if self._origin.proxy is not None:
            return False
        context = make_context(TlsSettings(verify=False))
        try:
            async with asyncio.timeout(min(5.0, self._wish.seconds)):
                _, writer = await asyncio.open_connection(
                    self._origin.host, self._origin.port, ssl=context, server_hostname=self._origin.host
                )
        except (OSError, ssl.SSLError):
            return False
        await _closed(writer)
        return True

    # -- the API ----------------------------------------------------------------------------------------------------------

    async def _key(self) -> CheckStep:
        """Whether it is the right one, only the upstream's answers tell."""
        place, upstream = self._place, self._upstream
        if upstream.forward_client_key:
            return self._step("key", StepState.OK, "clients' own keys are sent on; the requests of this check-up carry none")
        if place.has_key:
            what = "a key" if upstream.api_key else "headers of its own"
            return self._step("key", StepState.OK, f"{what} will be sent, from {place.key_from}")
        if place.key_env:
            remedy = f"export {place.key_env}=... and set {place.setting('api_key_env')}: {place.key_env}"
            return self._step("key", StepState.NOTE, f"{place.host} wants a key and none is set", "no_key", remedy=remedy)
        return self._step("key", StepState.OK, "no key is set; servers of your own often want none")

    async def _find_api(self) -> CheckStep:
        """An empty body is a bad request to every API, and costs nothing: where one answers that, it is served."""
        base, dialect = self._upstream.base_url, self._upstream.dialect
        if dialect not in dialect_names():
            dialect = "openai_chat"
        reply = await self._probe(base, dialect, self._upstream.path)
        if not reply.status and reply.failure is not None:
            raise await self._no_answer(reply)
        if (
            reply.status == 400
            and b"https" in reply.body.lower()
            and self._origin.scheme == "http"
            and await self._speaks_tls()
        ):
            raise self._tls_wanted(reply)
        if self._is_served(reply):
            return self._step(
                "address", StepState.OK, f"{dialect} answers at {reply.url}", tried=f"{reply.tried} with an empty body",
                came=reply.came(self._secrets),
            )  # fmt: skip
        found_base, found_dialect = await self._search(base, dialect)
        found = diagnosis.of_path(base, found_base, found_dialect, dialect, reply, self._place)
        if found_base is not None and self._upstream.path is not None and found.problem != "wrong_dialect":
            said = f"{reply.url} is not served; the API stands below {found_base}"
            words = f"leave {self._place.setting('path')} out"
            if found_base != base:
                words += f" and set {self._place.setting('base_url')}: {found_base}"
            problem = "missing_version" if "/v" not in f"{base}/{self._upstream.path}" else found.problem
            found = Diagnosis(problem, said, words)
        raise self._stop("address", found, f"{reply.tried} with an empty body", reply.came(self._secrets))

    async def _no_answer(self, reply: ProbeReply) -> _Stopped:
        assert reply.failure is not None
        if self._origin.scheme == "http" and "timeout" not in reply.failure.code and await self._speaks_tls():
            return self._tls_wanted(reply)
        found = diagnosis.of_failure(reply.failure, self._place, self._wish.seconds)
        return self._stop("address", found, reply.tried, reply.came(self._secrets))

    def _tls_wanted(self, reply: ProbeReply) -> _Stopped:
        secure = "https" + self._upstream.base_url.removeprefix("http")
        words = f"set {self._place.setting('base_url')}: {secure}"
        found = Diagnosis("http_for_tls", "the server speaks TLS, and base_url says http://", words)
        return self._stop("address", found, reply.tried, reply.came(self._secrets))

    async def _search(self, base: str, dialect: str) -> tuple[str | None, str]:
        """Where on this host one of the four APIs answers, and which."""
        others = [name for name in _ENDPOINTS if name != dialect]
        for name in others:
            if self._is_served(await self._probe(base, name)):
                return base, name
        for other in ([base] if self._upstream.path is not None else []) + diagnosis.other_bases(base):
            for name in (dialect, *others):
                if self._is_served(await self._probe(other, name)):
                    return other, name
        return None, dialect

    async def _probe(self, base: str, dialect: str, own_path: str | None = None) -> ProbeReply:
        model = self._model or "athena-doctor"
        url = urlsplit(upstream_url(base, _ENDPOINTS[dialect].format(model=model.replace("/", "%2F")), own_path))
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json"), *self._headers(dialect)]
        path = f"{url.path}?{url.query}" if url.query else url.path
        return await self._asker.send("POST", self._origin, path, headers, b"{}")

    def _headers(self, dialect: str) -> list[tuple[bytes, bytes]]:
        own = self._upstream.profile if dialect == self._upstream.dialect else None
        headers = upstream_headers(self._upstream, profile_for(own, dialect))
        return [*headers, _VERSION_HEADER] if dialect == "anthropic_messages" else headers

    def _is_served(self, reply: ProbeReply) -> bool:
        if not reply.status or reply.is_page or 300 <= reply.status < 400:
            return False
        if reply.status not in _ABSENT:
            return True
        error = get_dialect("openai_chat").decode_error(reply.status, reply.headers, reply.body)
        return reply.kind == "application/json" and diagnosis.is_about_model(error) and "route" not in error.message.lower()

    # -- what it offers ---------------------------------------------------------------------------------------------------

    async def _list(self) -> CheckStep:
        url = urlsplit(upstream_url(self._upstream.base_url, _LISTS.get(self._upstream.dialect, "/v1/models")))
        headers = [(b"accept", b"application/json"), *self._headers(self._upstream.dialect)]
        path = f"{url.path}?{url.query}" if url.query else url.path
        reply = await self._asker.send("GET", self._origin, path, headers)
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._offered = read_models(msgspec.json.decode(reply.body)) if reply.status == 200 else ()
        names = tuple(model.id for model in self._offered)
        self._place = self._place._replace(offered=names)
        came = reply.came(self._secrets)
        found = diagnosis.of_status(reply, self._upstream.dialect, self._place) if reply.status >= 400 else None
        if found is not None and found.problem in ("no_key", "bad_key", "expired_key"):
            return self._failed("models", found, tried=reply.tried, came=came)
        self._model = self._model or next(iter(names), "")
        self._place = self._place._replace(model=self._model)
        if not names:
            words = "name models in the rules (models[].use), or pass --model"
            said = "the upstream does not list its models"
            return self._step("models", StepState.NOTE, said, "no_list", tried=reply.tried, came=came, remedy=words)
        said = f"it lists {len(names)} models: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        if self._model and self._model not in names:
            near = diagnosis.nearest(names, self._model)
            return self._step(
                "models", StepState.NOTE, f"{said}; {self._model} is not among them", "unknown_model", tried=reply.tried,
                came=came, remedy=f"did you mean {near}?" if near else "see whether the name is right",
            )  # fmt: skip
        return self._step("models", StepState.OK, said, tried=reply.tried, came=came)

    def _configured_model(self) -> str:
        """The first model that the rules name for this upstream."""
        try:
            listed = Router(self._config).listed_models()
        except AthenaError:
            return ""  # the rules are at fault: the first step said so
        return next((entry.model for entry in listed if entry.upstream == self._name), "")

    async def _window(self) -> CheckStep | None:
        if not self._model:
            return None
        told = next((model.window for model in self._offered if model.id == self._model), None)
        window = told.or_else(published_window(self._model)) if told is not None else published_window(self._model)
        if window.context is None:
            remedy = "set context and output in the model's rule, so that agents know when to compact"
            return self._step(
                "window", StepState.NOTE, f"how much {self._model} takes is not known", "unknown_window", remedy=remedy
            )
        source = "the upstream's list" if told is not None and told.context is not None else "what is published about it"
        longest = f", {window.output:,} of them in one answer" if window.output else ""
        return self._step("window", StepState.OK, f"{self._model} takes {window.context:,} tokens{longest} ({source})")

    # -- the model --------------------------------------------------------------------------------------------------------

    async def _complete(self) -> CheckStep:
        target = self._target()
        if target is None:
            found = Diagnosis("no_model", "there is no model to ask", "name one: --model NAME")
            raise self._stop("completion", found, "", "")
        answer = await self._asker.ask(target, _question(target, stream=False))
        found_wrong = self._wrong(answer)
        if found_wrong is not None:
            raise self._stop("completion", found_wrong, answer.reply.tried, answer.reply.came(self._secrets))
        usage = answer.reader.usage
        tokens = f", {usage.input_total} tokens in and {usage.output_total} out" if usage is not None else ""
        return self._step(
            "completion", StepState.OK, f"{self._model} answered in {answer.reply.seconds:.1f} seconds{tokens}",
            tried=answer.reply.tried, came=answer.reply.came(self._secrets),
        )  # fmt: skip

    async def _stream(self) -> CheckStep:
        target = self._target()
        assert target is not None
        answer = await self._asker.ask(target, _question(target, stream=True))
        tried, came = answer.reply.tried, answer.reply.came(self._secrets)
        wrong = self._wrong(answer)
        if wrong is not None:
            return self._failed("streaming", wrong, tried=tried, came=came)
        if answer.reply.kind == "application/json":
            words = "Athena makes a stream of it for clients; they see it only when it is whole"
            return self._step(
                "streaming", StepState.NOTE, "a whole answer came", "no_stream", tried=tried, came=came, remedy=words
            )
        return self._step("streaming", StepState.OK, "the answer streams and ends as it should", tried=tried, came=came)

    async def _call(self) -> CheckStep:
        target = self._target()
        assert target is not None
        request = _question(target, stream=False, tool=True)
        answer = await self._asker.ask(target, request)
        tried, came = answer.reply.tried, answer.reply.came(self._secrets)
        error = answer.reader.error
        if (
            error is not None
            and answer.reply.status >= 400
            and TOOLS in refused_features(error, request, answer.exchange.call.body)
        ):
            return self._step(
                "tool call", StepState.NOTE, f"it refuses tools: {error.message[:200]}", "no_tools", tried=tried, came=came,
                remedy="set tools: prompted in the model's rule; with tools: auto Athena does so after the first refusal",
            )  # fmt: skip
        classes = findings(answer.outcome)
        wrong = self._wrong(answer)
        if wrong is not None and not any(found.finding is Finding.LEAK for found in classes):
            return self._failed("tool call", wrong, tried=tried, came=came)
        if answer.outcome.leaks:
            words = f"Athena reads it; to look for that format only: format: {answer.outcome.leaks[0]} in the model's rule"
            said = f"the call stands in the text, in the format {', '.join(answer.outcome.leaks)}"
            return self._step("tool call", StepState.NOTE, said, "leaked_call", tried=tried, came=came, remedy=words)
        flaws = [found.label for found in classes if found.finding.is_fault]
        if answer.reader.calls and not flaws:
            call = answer.reader.calls[0]
            return self._step("tool call", StepState.OK, f"it called {call.name} with {call.arguments}", tried=tried, came=came)
        if answer.reader.calls:
            words = "athena verify says how often this happens and what Athena repairs"
            return self._step("tool call", StepState.NOTE, ", ".join(flaws), "bad_call", tried=tried, came=came, remedy=words)
        words = "ask a model that knows tools, or set tools: prompted in its rule; athena verify says how often it happens"
        return self._step("tool call", StepState.NOTE, "it answered with text", "no_call", tried=tried, came=came, remedy=words)

    def _wrong(self, answer: ModelAnswer) -> Diagnosis | None:
        """What is wrong with an answer as a whole; None: nothing."""
        reply, place = answer.reply, self._place
        if not reply.status:
            assert reply.failure is not None
            return diagnosis.of_failure(reply.failure, place, self._wish.seconds)
        found = diagnosis.of_status(reply, self._upstream.dialect, place)
        if found is not None:
            return found
        classes = {one.finding for one in findings(answer.outcome)}
        if not reply.body.strip() or Finding.EMPTY in classes:
            words = "see the server's log: it may have no model loaded, or its chat template may produce nothing"
            return Diagnosis("empty_answer", f"status {reply.status} with nothing in the answer", words)
        error = answer.reader.error
        if Finding.CUT in classes:
            words = "see the server's log and the proxies before it; athena verify says how often it happens"
            return Diagnosis("cut_answer", error.message if error is not None else "the answer is cut", words)
        if error is not None and error.code == "upstream_protocol":
            words = f"see that {place.setting('dialect')} ({self._upstream.dialect}) is what the server speaks"
            return Diagnosis("not_the_dialect", error.message, words)
        if error is not None and Finding.ERROR in classes:
            return Diagnosis("server_error", error.message, "see the server's own log")
        return None

    def _target(self) -> Target | None:
        if not self._model:
            return None
        rule = next((rule for rule in self._config.models if leads_to(rule, f"{self._name}/{self._model}")), None)
        tools = rule.tools if rule is not None and rule.tools in ("native", "auto") else "native"
        own = ModelRule(match="*", use=f"{self._name}/{{model}}", tools=tools)
        config = msgspec.structs.replace(self._config, models=(own,))
        return ready_targets(Router(config), self._model)[0]

    # -- words ------------------------------------------------------------------------------------------------------------

    def _step(
        self, name: str, state: StepState, said: str, problem: str = "", *, tried: str = "", came: str = "", remedy: str = ""
    ) -> CheckStep:
        return CheckStep(
            name=name, state=state, said=said, upstream=self._name, problem=problem, tried=tried, came=came, remedy=remedy
        )

    def _failed(self, name: str, found: Diagnosis, *, tried: str, came: str = "") -> CheckStep:
        said = found.said
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return self._step(name, StepState.FAILED, said, found.problem, tried=tried, came=came, remedy=found.remedy)

    def _stop(self, name: str, found: Diagnosis, tried: str, came: str) -> _Stopped:
        return _Stopped(self._failed(name, found, tried=tried, came=came))


def _question(target: Target, *, stream: bool, tool: bool = False) -> Request:
    words = "What is the weather in Tokyo? Use the tool." if tool else "Answer with the word OK."
    return Request(
        dialect="openai_chat",
        model=target.model,
        stream=stream,
        include_usage=True,
        turns=(Turn(role="user", parts=(Text(text=words),)),),
        tools=(_WEATHER,) if tool else (),
        tool_choice=ToolChoice() if tool else None,
        max_output=_ANSWER_TOKENS,
    )


def _key_setting(name: str, upstream: Upstream, loaded: Loaded) -> str:
    """The setting that the key comes from, as a person would look for it."""
    for key in ("api_key_env", "api_key_file"):
        value = getattr(upstream, key)
        if value:
            return f"upstreams.{name}.{key} ({value})"
    if upstream.api_key is None and upstream.headers:
        return f"upstreams.{name}.headers"
    origin = loaded.layout.origin(("upstreams", name, "api_key"))
    return f"upstreams.{name}.api_key ({origin.source})" if origin.source else f"upstreams.{name}.api_key"


def _environment_proxy(environment: Mapping[str, str], scheme: str) -> tuple[str, str] | None:
    """The proxy that other programs would use, and the variable that names it."""
    for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        if environment.get(name):
            return name, environment[name]
    return None


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
