"""The configuration as values.

`Config` is the full form and the only thing the gateway reads. `FlatKeys` is the short form (`base_url`, `opus_model`...),
which `flat.py` turns into the full one. One file may use both. The text under a field is its description in the JSON Schema and
the reference: write it for the person who edits `athena.yml`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from athena.calls.pairing import Pairing
from athena.formats.machine.policies import EchoRule
from athena.model.limits import Limits
from athena.serving.settings import AtLeastOne, Count, Health, Retries, Seconds
from athena.serving.targets import Preference
from athena.shells.config.secret import Secret
from athena.shells.config.user_directories import default_state_dir

Port = Annotated[int, Meta(ge=0, le=65535)]
NonEmptyText = Annotated[str, Meta(min_length=1)]

ToolMode = Literal["native", "prompted", "prompt", "auto", "none"]
Policy = Literal["stop_on_first", "collect_then_stop", "drain_all", "allow_mixed"]
Repair = Literal["off", "syntax", "schema"]
UnknownToolRule = Literal["pass", "text", "error"]
MalformedRule = Literal["error", "text", "drop"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


class TimeoutOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of one upstream or one model; what is left out comes from `timeouts`."""

    connect_s: Seconds | None = None
    """Seconds until the connection to the upstream stands."""
    first_byte_s: Seconds | None = None
    """Seconds until the upstream's first byte."""
    idle_s: Seconds | None = None
    """Seconds between two data events of a stream; comments do not count as data."""
    total_s: Seconds | None = None
    """Seconds for a whole answer."""


class TimeoutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds. The first four can be set per upstream and per model."""

    connect_s: Seconds = 5
    """Seconds until the connection to the upstream stands."""
    first_byte_s: Seconds = 600
    """Seconds until the upstream's first byte."""
    idle_s: Seconds = 120
    """Seconds between two data events of a stream; comments do not count as data."""
    total_s: Seconds = 3600
    """Seconds for a whole answer."""
    hold_head_s: Seconds = 20
    """How long the client's status line waits for the upstream's first meaningful event; keep-alives start after it."""
    keep_alive_s: Seconds = 10
    """Seconds between keep-alives while a stream is silent."""
    client_headers_s: Seconds = 10
    """Seconds a client has to send its headers, and before them for the TLS handshake."""
    client_body_s: Seconds = 60
    """Seconds within which a client must send its body, or at least 512 bytes of it for each of them."""
    client_write_s: Seconds = 60
    """Seconds a client may stop reading before it is cut off."""
    drain_s: Seconds = 30
    """Seconds that open streams may go on after SIGTERM."""


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that each server process sends to an upstream, with its key and headers; a status below 400 means it is well."""

    path: Annotated[str, Meta(pattern="^/")] = "/health"
    """Path on the upstream's host, whatever the path of base_url is; /v1/models for servers without /health."""
    interval_s: Seconds = 10
    """Seconds between two of them."""
    timeout_s: Seconds = 5
    """Seconds for an answer."""
    failures: AtLeastOne = 2
    """Failures in a row after which the upstream is left out, until one succeeds."""


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs models."""

    base_url: NonEmptyText
    """Its address, with or without /v1 or a trailing slash."""
    dialect: NonEmptyText = "openai_chat"
    """The API it speaks: openai_chat, openai_responses, anthropic_messages or gemini. Left out: what the profile or the
    host says, else openai_chat."""
    profile: NonEmptyText | None = None
    """Its quirks, by name (`athena config profiles` lists them). Left out: what the host says, else what fits any server."""
    quirks: dict[str, Any] = {}
    """Single profile fields that differ on this server."""
    api_key: Secret | None = None
    """Its key; write "${NAME}" to take it from the environment."""
    api_key_env: NonEmptyText | None = None
    """Name of the environment variable that holds the key."""
    api_key_file: NonEmptyText | None = None
    """File that holds the key; read again when it changes."""
    forward_client_key: bool = False
    """Send the client's own key on instead of a configured one. Not together with gateway keys."""
    headers: dict[str, Secret] = {}
    """Headers added to every request; values are treated as secret."""
    path: NonEmptyText | None = None
    """Path below base_url to post to, instead of the dialect's own; for servers without a version in their path."""
    timeouts: TimeoutOverrides = TimeoutOverrides()
    """Timeouts for this upstream."""
    proxy: Secret | None = None
    """Address of an HTTP proxy for this upstream; proxy variables of the environment are not read."""
    ca_file: NonEmptyText | None = None
    """File with the certificate authorities to trust instead of the system's."""
    verify: bool = True
    """Check the server's certificate."""
    max_connections: AtLeastOne = 1024
    """Requests in work at the same time, each over a connection of its own. Server processes share it, at least one each."""
    max_idle_connections: Count = 128
    """Connections that each server process keeps for reuse."""
    keep_idle_s: Seconds = 30
    """Seconds an unused connection is kept."""
    queue: Count = 1024
    """Requests that may wait for one of max_connections; server processes share it. More go to the fallback, or get a 503."""
    queue_wait_s: Seconds = 10
    """Seconds a request may wait there."""
    list_models: bool = True
    """Ask the server which models it has and how much they take, when a client asks for the model list."""
    health_check: HealthCheck | None = None
    """Ask the server from time to time whether it is well; left out: only requests tell."""


class FormatSource(msgspec.Struct, frozen=True, kw_only=True):
    """A text format that is not shipped: one of the two."""

    file: NonEmptyText | None = None
    """Format file, as athena formats learn writes it."""
    template: NonEmptyText | None = None
    """Chat template (.jinja), tokenizer_config.json or folder of a checkpoint to learn the format from at every start; needs
    athena-gateway[learn]."""


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes when the target before it failed and the client has seen nothing yet."""

    use: NonEmptyText
    """Target, as upstream/model."""
    tools: ToolMode | None = None
    """How tools reach this model; left out: as in the rule."""
    format: NonEmptyText | FormatSource = "auto"
    """Text format of this model."""
    provider: dict[str, Any] = {}
    """Provider routing object for this target."""


class SharedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One of several targets that share the requests of a rule."""

    use: NonEmptyText
    """Target, as upstream/model."""
    weight: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    """Its part of the traffic, in proportion to the others'; 0: only when the others are left out or failed. Left out: 1 where
    another target has a weight, else the first target takes all."""
    cost: Annotated[float, Meta(ge=0)] | None = None
    """What it costs, for prefer: cost; any unit, the same for all targets of the rule."""
    tools: ToolMode | None = None
    """How tools reach this model; left out: as in the rule."""
    format: NonEmptyText | FormatSource | None = None
    """Text format of this model; left out: as in the rule."""
    provider: dict[str, Any] = {}
    """Provider routing object for this target; left out: the rule's."""


class ModelRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which models go where, and how their tools are handled. The first rule that matches wins."""

    match: NonEmptyText | tuple[NonEmptyText, ...]
    """The client's model name, whatever the case: * stands for any text, ? for one character. A list means any of them."""
    use: NonEmptyText | tuple[NonEmptyText | SharedTarget, ...]
    """Target as upstream/model; the model may hold slashes. {model} is the client's name, * what the pattern's only * stood
    for. Only the upstream's name: the model name passes unchanged. A list: targets that share the requests, as text or as
    objects; all of them are tried before fallback."""
    prefer: Preference = "order"
    """Which of several targets in use a new session goes to: order, the first as written, or by weights where there are some;
    health, fewest bad answers; latency, fastest first byte; cost, lowest cost. Weights and order decide between equal ones."""
    sticky: bool = True
    """A session stays with the target that answered it, so that the upstream's caches serve it."""
    tools: ToolMode = "auto"
    """native: the upstream's own tools. prompted: tools are taught in the prompt. none: tools are left out. auto: prompted for
    the models of tool_adapter, else native, and prompted from then on when the upstream refuses tools."""
    format: NonEmptyText | FormatSource = "auto"
    """Text format to look for calls in: a format's name; auto, by the model's name and by unmistakable markers; standard,
    structured calls only; or an object with file or template, for a format that is not shipped."""
    repair: Repair = "syntax"
    """Repair of broken arguments: off, syntax, or schema (also fit types to the tool's schema; holds each call to its end)."""
    unknown_tool: UnknownToolRule = "pass"
    """A well-formed call of an undeclared tool, in a format with control tokens: pass it on, show it as text, or fail."""
    malformed: MalformedRule | None = None
    """A call that cannot be read: fail, show it as text, or drop it. Left out: fail for formats with control tokens,
    else text."""
    echo: EchoRule | None = None
    """A call in the model's text that it quotes from the request; left out: as in the top-level echo."""
    policy: Policy | None = None
    """Prompted tools: when to stop reading; left out: as in tool_adapter."""
    starts_in_thinking: bool = False
    """The prompt opens the reasoning of these models, so that an answer in raw text begins inside it and has only the closing
    delimiter, as </think>. Not for servers that send reasoning apart from the text, nor for models whose thinking is off."""
    argument_streaming: bool = True
    """Pass arguments on as they come; false holds each call until it is complete."""
    timeouts: TimeoutOverrides = TimeoutOverrides()
    """Timeouts for these models."""
    fallback: tuple[NonEmptyText | Fallback, ...] = ()
    """Targets to try in turn, as upstream/model or as objects. Text takes this rule's settings, without its format and
    provider."""
    provider: dict[str, Any] = {}
    """Sent as `provider` (OpenRouter's routing: order, allow_fallbacks and others)."""
    body: dict[str, Any] = {}
    """Fields added to every request that does not have them."""
    quirks: dict[str, Any] = {}
    """Single profile fields that differ for these models."""
    strict: bool | None = None
    """Refuse what cannot be represented instead of dropping it with a warning; left out: as in the top-level strict."""
    pairing: Pairing | None = None
    """Tool results without their call: strict refuses, repair turns them into text; left out: as in tool_pairing."""
    context_limit_kb: Count = 0
    """Largest request with tools, in KiB: a warning above 80 %, a 400 above it. 0: no limit."""
    context: AtLeastOne | None = None
    """Tokens that the model takes in a whole conversation, for the model list and for agents that athena code starts. Left out:
    what the upstream's own list says, else what is published about the model."""
    output: AtLeastOne | None = None
    """Tokens of its longest answer, likewise."""
    names: tuple[NonEmptyText, ...] = ()
    """Names to show in the model list for a rule whose match has wildcards."""


class GatewayKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that clients of this gateway present."""

    hash: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    """sha256: and the hex digest of the key (`athena config hash-key`)."""
    name: str = ""
    """Whose key it is; shown in logs."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS for clients. Changed files are taken up while the gateway runs; a pair that cannot be used is refused."""

    cert: str = ""
    """PEM file with the gateway's certificate and those between it and the authority; empty: plain HTTP."""
    key: str = ""
    """PEM file with its private key; empty: the key stands in the file of cert."""
    key_password: Secret | None = None
    """Password of the private key; write "${NAME}" to take it from the environment."""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The largest sizes and counts Athena accepts. Whatever is larger is an error; no buffer grows beyond its limit."""

    body_bytes: AtLeastOne = 32 * 1024 * 1024
    """A client's request body."""
    header_bytes: AtLeastOne = 64 * 1024
    """A client's request headers."""
    header_fields: AtLeastOne = 100
    """How many headers a client may send."""
    request_depth: AtLeastOne = 128
    """Nesting of a request's JSON."""
    request_keys: AtLeastOne = 100_000
    """Keys in a request's JSON."""
    tools: AtLeastOne = 1000
    """Tools in one request."""
    prompt_bytes: AtLeastOne = 1024 * 1024
    """The text that teaches tools to a model without them."""
    event_bytes: AtLeastOne = 16 * 1024 * 1024
    """One line or event of an upstream."""
    answer_bytes: AtLeastOne = 64 * 1024 * 1024
    """One whole answer."""
    decompress_ratio: AtLeastOne = 100
    """How much larger a compressed answer may become."""
    calls: AtLeastOne = 1024
    """Tool calls in one answer."""
    argument_chars: AtLeastOne = 16 * 1024 * 1024
    """Arguments of one call."""
    held_chars: AtLeastOne = 16 * 1024 * 1024
    """Text held back while its meaning is undecided."""
    section_chars: Count = 1024 * 1024
    """Text inside one call section that is neither a call nor its arguments; 0: no bound."""
    id_chars: AtLeastOne = 200
    """A call id that a model writes as text."""
    argument_depth: AtLeastOne = 512
    """Nesting of a call's arguments."""
    stream_buffer_bytes: AtLeastOne = 256 * 1024
    """Bytes held per stream, both ways together, before the faster side waits."""
    requests: AtLeastOne = 10_000
    """Requests in work at the same time; more are answered with 503."""
    memory_bytes: Count = 0
    """Memory for all requests in work, their answers and unsent output together; a request that does not fit gets a 503. Server
    processes share it. 0: a quarter of what the machine or its container has."""
    history_cache_bytes: Count = 64 * 1024 * 1024
    """Memory in which each server process keeps parts of requests (messages, tool lists, instructions) with what they became,
    since an agent's next request repeats them; they are kept when they come for the second time. Only requests with the same
    credential find them. Never more than an eighth of what memory_bytes comes to for the process; 0: nothing is kept."""
    connections: Count = 0
    """Client connections of each server process. For one more an idle one is closed; where none is idle it gets a 503. 0: as
    many as the limit of file descriptors allows, when each may need another one for an upstream."""
    connections_per_address: Count = 0
    """The same for one client address. 0: half of connections, and no limit for addresses of this machine."""

    def core(self, section_kb: int | None = None) -> Limits:
        """The bounds that the pure rooms know; `section_kb` is the format's own section limit where it has one."""
        return Limits(
            event_bytes=self.event_bytes,
            answer_bytes=self.answer_bytes,
            calls=self.calls,
            argument_chars=self.argument_chars,
            held_chars=self.held_chars,
            section_chars=self.section_chars if section_kb is None else section_kb * 1024,
            id_chars=self.id_chars,
            json_depth=self.argument_depth,
        )


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """What is learnt from the refusals of upstreams."""

    correct: bool = True
    """Ask again without what an upstream refused (images, late system messages, unknown parameters), and remember it. False:
    clients get such refusals; `tools: auto` is not touched."""
    keep_s: Seconds = 3600
    """Seconds after which it is forgotten and tried again. A reload of the configuration forgets it at once."""


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What is written about requests."""

    format: LogFormat = "text"
    """text or json."""
    level: LogLevel = "info"
    """debug, info, warning or error. debug shows bodies, redacted."""
    file: str = ""
    """File to write to instead of standard error; mode 600. A file that is there already must be a log of Athena's."""
    file_bytes: AtLeastOne = 10 * 1024 * 1024
    """Size at which the file is rotated."""
    sse_dir: str = ""
    """Directory for one file of raw frames per stream, written once its request is over, with keys masked; empty: none."""
    transformations: bool = False
    """Log at info every change that a request or its answer went through: its place, what was done and why, no values."""


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers at /metrics."""

    enabled: bool = True
    """Serve /metrics."""
    needs_key: bool = True
    """Ask for a gateway key there too, where keys are configured."""
    per_model: bool = True
    """Count per model; false keeps the number of series small."""


class RecordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of requests and answers, for the inspector and for `athena record` and `athena replay`."""

    mode: Literal["auto", "off", "memory", "disk"] = "auto"
    """memory: the last exchanges, until the gateway ends. disk: in state_dir. auto: memory on a loopback address where no keys
    are asked for, else off."""
    memory_exchanges: AtLeastOne = 200
    """Exchanges kept in memory."""
    memory_mb: AtLeastOne = 64
    """Megabytes they may take."""
    max_mb: AtLeastOne = 1024
    """Megabytes on disk. The oldest go first, errors and repairs last."""
    max_age_days: Annotated[float, Meta(gt=0, le=36500)] = 14
    """Days after which exchanges are deleted; those that went well after half of it."""
    in_flight_mb: AtLeastOne = 64
    """Megabytes of exchanges that are under way or wait to be written. What does not fit is not recorded."""
    keys: tuple[str, ...] = ("*",)
    """Only requests with keys of these names; patterns."""
    models: tuple[str, ...] = ("*",)
    """Only requests for these models, by the name that clients use; patterns."""
    inspector: bool = True
    """Serve the inspector at /inspect, to whoever has its token or a gateway key."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of Responses and conversations that clients ask to be kept."""

    url: Secret | None = None
    """postgresql://user:password@host/database, for gateways on several machines; needs `athena-gateway[postgres]`. Left out:
    an SQLite file in state_dir."""
    by_default: bool = True
    """Keep responses of clients that do not say whether to (`store` left out), as OpenAI does. false: only where a client asks
    for it."""
    max_age_days: Annotated[float, Meta(gt=0, le=36500)] = 30
    """Days after which responses are deleted, and conversations that nobody used."""
    max_mb: AtLeastOne = 1024
    """Megabytes of content; the oldest go first."""
    encryption_key: Secret | None = None
    """Secret that encrypts what is kept (AES-256-GCM). Write "${NAME}" to take it from the environment."""
    down: Literal["answer", "fail"] = "answer"
    """When the store cannot be written and the client did not say `store: true`: answer all the same, with `store: false` in
    the answer and a warning; or fail."""
    down_asked: Literal["answer", "fail"] = "fail"
    """The same for clients that did say `store: true`. Continuations and background requests always fail without a store."""
    native: bool = True
    """Where an upstream keeps Responses itself (OpenAI), leave them to it."""


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Batches: requests that are answered in the gateway's own time. They are kept in the store."""

    enabled: bool = True
    """Serve /v1/messages/batches, /v1/batches and /v1/files, and work on what was submitted there."""
    concurrency: AtLeastOne = 8
    """Requests of batches that each server process asks at the same time."""
    requests: AtLeastOne = 10_000
    """Requests in one batch. How large all of them may be, limits.body_bytes says."""
    expires_s: Seconds = 86400
    """Seconds after which requests of a batch that were not asked yet are given up."""
    lease_s: Seconds = 30
    """Seconds after which the requests of a process that was killed are asked by another one, or after its next start."""
    poll_s: Seconds = 2
    """Seconds between two looks for requests that other processes took in."""


class SocketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Responses API over WebSocket, at GET /v1/responses."""

    enabled: bool = True
    """Accept WebSockets. false: such requests are answered with 426, and clients go on with plain requests."""
    connection_s: Seconds = 3600
    """Seconds after which a connection takes no further request; the client opens a new one."""
    ping_s: Seconds = 20
    """Seconds between the pings that keep proxies from closing a connection on which nothing is said."""
    silence_s: Seconds = 300
    """Seconds without any sign of the client, not even an answer to a ping, after which its connection is cut."""


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """Traces for OpenTelemetry, one span for each request and one for each attempt. Needs `athena-gateway[otel]`."""

    endpoint: str = ""
    """Where the collector takes OTLP over HTTP, such as http://127.0.0.1:4318; empty: no traces are exported."""
    headers: dict[str, Secret] = {}
    """Headers for the collector, such as its key."""
    service: NonEmptyText = "athena"
    """The name under which traces of this gateway are found."""


class ToolAdapterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Tools for models that have none: taught in the prompt, read from the text."""

    models: tuple[NonEmptyText, ...] = ()
    """Patterns of model names, the upstream's or the client's, that get prompted tools."""
    policy: Policy = "collect_then_stop"
    """stop_on_first: one call. collect_then_stop: the calls up to the first end. drain_all: all calls, no text. allow_mixed:
    calls and text."""
    collect_window_ms: Count = 200
    """How long to wait for further calls; 0: only the structure of the text decides."""
    max_calls: Count = 8
    """Calls in one answer; 0: no bound."""
    collect_max_bytes: Count = 1024 * 1024
    """Text collected for calls; then it is shown as text; 0: no bound."""
    stream_buffer_bytes: Count = 10 * 1024 * 1024
    """Text held in one stream; then it is shown as text."""
    early_detection_chars: Count = 0
    """Text before a call that is held back to see whether a call follows; 0: none."""
    system_message_support: bool = False
    """The model takes system messages."""
    cancel_upstream_on_stop: bool = True
    """Stop the upstream once the calls are complete."""
    results: Literal["inline", "prompt"] = "inline"
    """Tool results stand in the conversation as text, or listed in the prompt."""
    prompt_template: str | None = None
    """Own instruction text with exactly one %s for the tools."""
    retry_required: bool = False
    """Ask once more when a required call is missing from the answer."""
    reask: bool = False
    """Ask once more, explaining, when a call cannot be used or a required one is missing, and nothing was shown yet."""
    invalid_arguments: Literal["pass", "text", "error"] = "pass"
    """A call whose arguments break the tool's schema: pass it on, leave it as text, or fail."""
    style: NonEmptyText = "json"
    """What the model is taught to write: json, a text format's name, or auto: its own family's format where that is known."""


class FormatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to one text format."""

    tokens: dict[str, NonEmptyText] = {}
    """Markers that this model family writes differently, by the format's own names for them."""
    section_limit_kb: Count | None = None
    """Text inside one call section that is neither a call nor its arguments, in KiB; 0: no bound."""
    context_limit_kb: Count = 0
    """Largest request with tools, in KiB: a warning above 80 %, a 400 above it. 0: no limit."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of a gateway."""

    host: NonEmptyText = "127.0.0.1"
    """Address to listen on. Any other than loopback needs a gateway key."""
    port: Port = 12377
    """Port to listen on; 0 takes a free one."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Server processes."""
    tls: Tls = Tls()
    """The certificate for https; left out: plain HTTP, in which keys and conversations can be read on their way."""
    upstreams: dict[str, Upstream] = {}
    """Servers that run models, by name."""
    models: tuple[ModelRule, ...] = ()
    """Which models go where; the first match wins."""
    keys: tuple[GatewayKey, ...] = ()
    """Keys that clients must present; none: no key is asked for."""
    allow_hosts: tuple[NonEmptyText, ...] = ()
    """Host names under which clients may reach the gateway, beside this machine's own (localhost, 127.0.0.1, [::1]) and host: a
    name, name:port, *.domain, or * for any. Checked where no key is asked for, and always when a name is listed."""
    allow_origins: tuple[NonEmptyText, ...] = ()
    """Web pages that may use the gateway from a browser, by origin, such as http://localhost:3000; * for all of them, only
    together with keys. Left out: none."""
    limits: LimitSettings = LimitSettings()
    """The largest sizes and counts that are accepted."""
    timeouts: TimeoutSettings = TimeoutSettings()
    """How long to wait."""
    retries: Retries = Retries()
    """Retries of failed requests."""
    learning: Learning = Learning()
    """What is learnt from the refusals of upstreams."""
    health: Health = Health()
    """When an upstream is in cooldown after failures."""
    log: Log = Log()
    """What is written about requests."""
    metrics: MetricsSettings = MetricsSettings()
    """Numbers at /metrics."""
    record: bool | RecordSettings = RecordSettings()
    """What is kept of requests and answers. true: on disk. false: nothing."""
    store: bool | StoreSettings = StoreSettings()
    """What is kept of Responses and conversations. false: nothing; requests that need it are refused. A text is the url."""
    batches: BatchSettings = BatchSettings()
    """Batches of requests."""
    websocket: SocketSettings = SocketSettings()
    """The Responses API over WebSocket."""
    telemetry: Telemetry = Telemetry()
    """Traces for OpenTelemetry."""
    tool_adapter: ToolAdapterSettings = ToolAdapterSettings()
    """Tools for models that have none."""
    formats: dict[str, FormatSettings] = {}
    """Changes to text formats, by the format's name."""
    format_overrides: dict[str, NonEmptyText] = {}
    """Text format by model name or pattern, the upstream's name first, then the client's. `prompt` means prompted tools."""
    strict: bool = False
    """Refuse what cannot be represented instead of dropping it with a warning."""
    tool_pairing: Pairing = "strict"
    """Tool results without their call: strict refuses, repair turns them into text."""
    echo: EchoRule = "text"
    """A call in the model's text that also stands in a tool result, a document or another text of the request that the model
    did not write: text leaves it as the text it is, error fails the answer, allow makes it a call."""
    stream_error_stop: bool = False
    """Anthropic streams: send message_stop after an error event."""
    passthrough_invalid: bool = False
    """Pass upstream lines on that are not JSON, instead of dropping them; official SDKs fail on them."""
    reasoning_fields: tuple[Literal["reasoning_content", "reasoning"], ...] = ("reasoning_content",)
    """Chat answers: the field or fields that carry reasoning text."""
    envelope_key: Secret | None = None
    """Secret that signs reasoning state kept by clients; the same on all machines of one gateway."""
    envelope_key_file: str = ""
    """File that holds that secret; empty: made once in state_dir and kept."""
    reasoning_store: Count = 4096
    """Calls whose reasoning is remembered for clients that drop it; 0: none."""
    state_dir: NonEmptyText = msgspec.field(default_factory=default_state_dir)
    """Directory for the process file, the log of the background server, recordings and generated keys; no other user may be
    able to write to it. Left out: athena in XDG_STATE_HOME (~/.local/state/athena), or ~/.athena where an earlier release made
    that."""


class ProviderFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one format in the source system's form."""

    buffer_limit_kb: Count | None = None
    """Largest call section in KiB; 0: no bound."""
    context_limit_kb: Count = 0
    """Largest request with tools in KiB; 0: no limit."""
    start_token: NonEmptyText | None = None
    """Marker that opens a section of calls."""
    end_token: NonEmptyText | None = None
    """Marker that closes it."""
    call_start_token: NonEmptyText | None = None
    """Marker that opens one call."""
    argument_token: NonEmptyText | None = None
    """Marker between a call's id and its arguments."""
    call_end_token: NonEmptyText | None = None
    """Marker that closes one call."""
    format_version: NonEmptyText | None = None
    """Accepted and not used: versions have names of their own."""


class Providers(msgspec.Struct, frozen=True, kw_only=True):
    """The `providers` section of the short form."""

    provider_override: dict[str, NonEmptyText] = {}
    """Format by model name: kimi, qwen, deepseek, standard, prompt, or a format's name."""
    kimi_k2: ProviderFormat = ProviderFormat()
    """Kimi K2."""
    qwen_hermes: ProviderFormat = ProviderFormat()
    """Qwen and Hermes."""


class FlatKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The short form: one upstream, a model per tier."""

    base_url: NonEmptyText | None = None
    """Address of the one upstream; OpenRouter when left out."""
    dialect: NonEmptyText | None = None
    """The API it speaks."""
    profile: NonEmptyText | None = None
    """Its quirks, by name."""
    api_key: Secret | None = None
    """Its key; write "${NAME}" to take it from the environment."""
    api_key_env: NonEmptyText | None = None
    """Name of the environment variable that holds the key."""
    api_key_file: NonEmptyText | None = None
    """File that holds the key."""
    model: NonEmptyText | None = None
    """Model for every name without "/" that no tier takes; left out: names pass unchanged."""
    opus_model: NonEmptyText | None = None
    """Model for names that contain opus."""
    sonnet_model: NonEmptyText | None = None
    """Model for names that contain sonnet."""
    haiku_model: NonEmptyText | None = None
    """Model for names that contain haiku."""
    default_provider: dict[str, Any] = {}
    """Provider routing object: order, allow_fallbacks and others."""
    opus_provider: dict[str, Any] = {}
    """The same for names that contain opus."""
    sonnet_provider: dict[str, Any] = {}
    """The same for names that contain sonnet."""
    haiku_provider: dict[str, Any] = {}
    """The same for names that contain haiku."""
    providers: Providers = Providers()
    """Formats by model name, and settings of formats."""
    log_format: LogFormat | None = None
    """text or json."""
    log_level: Literal["debug", "info", "warning", "warn", "error"] | None = None
    """debug, info, warning (or warn) or error."""
    log_file: str | None = None
    """File to write to instead of standard error."""
    sse_log_dir: str | None = None
    """Directory for one file of raw frames per stream."""
    tls_cert: str | None = None
    """PEM file with the gateway's certificate."""
    tls_key: str | None = None
    """PEM file with its private key."""
    gateway_key: Secret | None = None
    """A key that clients must present, in plain text: for the environment. In files, write its hash under keys."""
