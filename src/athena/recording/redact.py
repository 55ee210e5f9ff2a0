"""A recording without its words: lengths, types, markers, schemas and boundaries stay, texts and values are replaced.

Every word becomes another one of the same length and kind: letters for letters, digits for digits, drawn with a key that is
thrown away, the same for the same word everywhere. What has to be recognised stays: the names of tools and of their parameters,
the markers of text formats, the words of the APIs themselves. So decoders, parsers and checks see what they saw.

Only what came in is redacted. What was made of it (the upstream's requests, the client's bytes) is made again from that, and
held against the original: same events in the same order, with texts of the same length. Where it is not so, the recording says
so in its notes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from athena.advice import EMPTY_WORDS
from athena.errors import AthenaError
from athena.opaque import PREFIX
from athena.recording import lines
from athena.recording.json_texts import Kind, decoded, places_of, scalars_of
from athena.recording.lines import Payload, Recording, Seals
from athena.recording.replay import Moved, Replayed
from athena.recording.retold import replay_or_retell
from athena.recording.shapes import says_otherwise
from athena.recording.state import digest_of, unsealed
from athena.recording.words import Words, kept_words
from athena.serving.endpoints import gateway_endpoint

_STRUCTURAL = frozenset(
    [
        "type", "role", "object", "finish_reason", "finishReason", "native_finish_reason", "stop_reason", "status",
        "model", "modelVersion", "event", "reason", "code", "kind", "format", "effort", "mode", "media_type",
        "mime_type", "mimeType", "encoding", "display", "name", "blockReason", "action", "service_tier", "phase",
        "tool_choice", "reasoning_effort", "verbosity", "detail", "input_audio_format", "caller", "mode",
        "toolConfig", "tool_type", "param", "required", "propertyOrdering", "$schema", "$ref", "additionalProperties",
    ]
)  # fmt: skip
"""Fields whose values are words of the APIs or of a schema, and no text."""
_NAMES = frozenset({"model", "modelVersion"})
_ARGUMENTS = frozenset({"args", "arguments", "input"})
_RESULTS = frozenset({"functionResponse", "function_response"})
_VALUES = frozenset({"default", "example", "examples", "const", "enum"})
"""What of a schema is no schema but a value."""
_COUNTS = frozenset(
    [
        "index", "indices", "indexes", "count", "counts", "tokens", "created", "expires", "at", "time", "timestamp",
        "temperature", "top", "penalty", "seed", "max", "min", "maximum", "minimum", "budget", "limit", "size",
        "length", "duration", "logprob", "logprobs", "probability", "score", "status", "code", "sequence", "multiple",
        "width", "height", "start", "end", "cost", "total", "ratio", "dimensions", "fps", "n", "bias", "latency",
        "ms", "seconds", "percent",
    ]
)  # fmt: skip
"""Words in the names of fields whose numbers count or measure something."""
_MOST_DIGITS = 13
"""Of a number that counts: milliseconds since 1970 have as many."""
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_WHOLE = frozenset(
    {"signature", "thoughtSignature", "encrypted_content", "data", "system_fingerprint", "provider", "obfuscation"}
)
"""Fields that come in one piece, beside all kinds of ids: the others of a stream are pieces of one text."""
_HEADERS = frozenset(
    [
        "content-type",
        "accept",
        "anthropic-version",
        "anthropic-beta",
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
        "cache-control",
        "x-accel-buffering",
    ]
)
_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_WITH_LETTERS = frozenset(
    b"top_p top_k topP topK min_p x_groq cache_n prompt_n predicted_n scroll_x scroll_y destination_x destination_y".split()
)
"""Names of the APIs that one letter tells apart; elsewhere a letter is a word like others."""
_SAYS_NOTHING = frozenset(words.encode() for words in EMPTY_WORDS)
"""What servers say of a path that they do not have: a replay tells it by these words."""
_KEEPS_NAME = re.compile(rb"[A-Za-z0-9_./:@+-]{1,100}")
_PROGRAMS = frozenset(
    [
        "aider", "ai", "aiohttp", "anthropic", "athena", "claude", "cli", "client", "cline", "code", "codex", "curl",
        "cursor", "exec", "gemini", "geminicli", "genai", "go", "google", "gl", "http", "httpx", "java", "js",
        "kotlin", "langchain", "litellm", "mozilla", "node", "okhttp", "openai", "opencode", "python", "requests",
        "roo", "ruby", "rs", "rust", "sdk", "tui", "typescript", "undici", "urllib", "vscode", "wget", "zed",
    ]
)  # fmt: skip
"""Words of the names by which programs tell what they are."""
_OWN_WORDS = frozenset({"dialect", "upstream", "upstream_dialect", "chosen_by", "tool_mode", "outcome", "action"})
"""What the line of a request says in words of ours or of the configuration."""
_COUNTED = ("attempts", "judged", "bad_calls", "unchecked_calls", "notes", "prompted_style", "echo_rule")
"""What is counted of a request, by names of ours."""


def redacted(recording: Recording, key: bytes) -> Recording:
    """The recording without its words. `key` decides which words take their place: make a new one and forget it, for who has
    it can try out words."""
    if recording.header.redacted:
        return recording
    original = _replayed(recording)
    words = Words(key, *kept_words(recording, original.request if original is not None else None))
    came = _Redaction(recording, words).made()
    again = _replayed(came)
    notes = [*came.header.notes, *says_otherwise(original, again)]
    came = msgspec.structs.replace(came, header=msgspec.structs.replace(came.header, notes=notes))
    return _with_answer(came, again) if again is not None and came.header.kind == "served" else came


def _replayed(recording: Recording) -> Replayed | None:
    try:
        return replay_or_retell(recording)
    except (AthenaError, msgspec.MsgspecError, ValueError):
        return None


# -- what came in ------------------------------------------------------------------------------------------------------------


class _Redaction:
    def __init__(self, recording: Recording, words: Words) -> None:
        self._recording = recording
        self._words = words
        self._accepted: list[str] = []

    def made(self) -> Recording:
        recording, words = self._recording, self._words
        header, request = recording.header, recording.request
        body = self._envelopes(request.body.data)
        notes: list[str] = []
        return Recording(
            header=lines.Header(
                id="req_" + words.id(header.id),
                version=header.version,
                athena=header.athena,
                at=header.at,
                clock=header.clock,
                program=header.program if _is_program(header.program) else "",
                session=words.id(header.session),
                agent=words.id(header.agent),
                parent=words.id(header.parent),
                kind=header.kind,
                redacted=True,
                notes=notes,
            ),
            settings=self._settings(),
            seals=Seals({}, self._accepted, self._memories()),
            request=lines.ClientRequest(
                body=Payload.of(self._document(body)),
                method=words.plain(request.method, structural=True),
                path=self._path(request.path),
                query=words.plain(request.query, structural=True),
                dialect=request.dialect,
                headers=self._headers(request.headers),
            ),
            happened=tuple(self._happened()),
            outcome=self._outcome(),
        )

    def _path(self, path: str) -> str:
        """A path names an endpoint, and at some endpoints a model. Any other one may say whatever its client likes."""
        is_known = _KEEPS_NAME.fullmatch(path.encode()) and gateway_endpoint("POST", path, "", {}) is not None
        return self._words.name(path) if is_known else self._words.plain(path, structural=True)

    def _url(self, url: str) -> str:
        return "http://upstream.invalid" + self._words.plain(_path_of(url), structural=True)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Those that say how a message is to be read, where they say it in known words."""
        kept = {}
        for name, value in headers.items():
            if name in _HEADERS and len(value) <= 200 and self._words.is_known(value):
                kept[name] = value
            elif name == "content-type":
                kept[name] = "application/json"
        return kept

    def _settings(self) -> lines.Settings:
        settings = self._recording.settings
        targets = []
        for target in settings.targets:
            route, prompted = dict(target.route), dict(target.prompted_route or {})
            for each in (route, prompted):
                if isinstance(each.get("prompted"), dict):
                    each["prompted"] = {name: value for name, value in each["prompted"].items() if name != "template"}
                each.update({name: self._profile(each[name]) for name in ("profile",) if name in each})
                each.update({name: self._words.name(each[name]) for name in ("model",) if name in each})
            targets.append(
                msgspec.structs.replace(
                    target,
                    model=self._words.name(target.model),
                    profile=self._profile(target.profile),
                    url=self._url(target.url),
                    own_path=self._words.plain(target.own_path, structural=True) if target.own_path is not None else None,
                    route=route,
                    prompted_route=prompted if target.prompted_route is not None else None,
                )
            )
        return msgspec.structs.replace(
            settings,
            targets=targets,
            key=self._words.id(settings.key),
            kept=self._response(settings.kept) if settings.kept is not None else None,
            refusal=self._failure(settings.refusal) if settings.refusal is not None else None,
        )

    def _profile(self, profile: Mapping[str, Any]) -> dict[str, Any]:
        """Without the words of what the operator has sent to the upstream besides."""
        said = {name: self._value(profile[name]) for name in ("headers", "body", "prefill_body") if name in profile}
        return {**profile, **said}

    def _response(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """What the gateway kept of the response: without items of the conversation, and with other ids."""
        shown = {name: self._value(value) for name, value in kept.get("shown", {}).items()}
        return {**kept, "id": self._value(kept["id"]), "shown": shown, "leading": [], "retained": []}

    def _value(self, value: Any) -> Any:
        """A value of ours with texts of others in it."""
        if isinstance(value, dict):
            return {name: self._value(held) for name, held in value.items()}
        if isinstance(value, list):
            return [self._value(held) for held in value]
        return self._words.plain(value, structural=True) if isinstance(value, str) else value

    def _failure(self, failure: lines.Failure) -> lines.Failure:
        return msgspec.structs.replace(failure, message=self._words.plain(failure.message, structural=True))

    def _memories(self) -> dict[str, Any]:
        remembered = self._recording.seals.remembered
        return {self._words.plain(call, structural=True): self._memory(memory) for call, memory in remembered.items()}

    def _memory(self, memory: dict[str, Any]) -> dict[str, Any]:
        """Without its words, but with what says which kind of state each part of it is."""
        clean: dict[str, Any] = msgspec.json.decode(self._document(msgspec.json.encode(memory)))
        for was, now in ((memory, clean), *zip(memory.get("thinking", ()), clean.get("thinking", ()), strict=True)):
            _keep(was, now, ("part",))
            _keep(was.get("signature") or {}, now.get("signature") or {}, ("family", "kind", "format"))
        return clean

    def _outcome(self) -> lines.RecordedOutcome:
        outcome = self._recording.outcome
        record = {name: self._said(name, value) for name, value in outcome.record.items()}
        record["request_id"] = "req_" + self._words.id(self._recording.header.id)
        details = {name: outcome.details[name] for name in _COUNTED if outcome.details.get(name)}
        for name in ("losses", "answer_losses"):
            if outcome.details.get(name):
                details[name] = [
                    {key: self._said(key, value) for key, value in loss.items() if key != "path"}
                    | {"path": self._words.plain(str(loss.get("path", "")), structural=True)}
                    for loss in outcome.details[name]
                ]
        return lines.RecordedOutcome(record, details)

    def _said(self, name: str, value: Any) -> Any:
        """What the line of a request says under this name. Failures and warnings quote texts of clients and upstreams."""
        if not isinstance(value, str):
            return value if isinstance(value, int | float) else None
        if name in _OWN_WORDS:
            return value
        if name in ("model", "upstream_model") and _KEEPS_NAME.fullmatch(value.encode()):
            return self._words.name(value)
        if name in ("key", "origin", "trace_id"):
            return self._words.id(value)
        if name == "path":
            return self._path(value)
        return self._url(value) if name == "url" else self._words.plain(value, structural=True)

    # -- the upstream's bytes ------------------------------------------------------------------------------------------------

    def _happened(self) -> Iterator[lines.Happened]:
        """What came in. What left is made again."""
        pieces = iter(self._reads())
        for line in self._recording.happened:
            if isinstance(line, lines.Read):
                yield lines.Read(line.t, Payload.of(next(pieces)))
            elif isinstance(line, lines.UpstreamHead):
                yield lines.UpstreamHead(line.t, line.status, self._headers(line.headers))
            elif isinstance(line, lines.NotKept):
                yield lines.NotKept(
                    line.t, self._value(line.changed), self._failure(line.failure) if line.failure is not None else None
                )
            elif isinstance(line, lines.AttemptEnd):
                yield lines.AttemptEnd(line.t, self._failure(line.failure) if line.failure is not None else None)
            elif self._recording.header.kind != "served" and isinstance(line, lines.Attempt | lines.ClientHead | lines.Write):
                yield self._kept(line)
            elif isinstance(line, lines.Attempt):
                yield msgspec.structs.replace(line, headers={}, body=Payload(), path="")
            elif not isinstance(line, lines.ClientHead | lines.Write):
                yield line

    def _kept(self, line: lines.Attempt | lines.ClientHead | lines.Write) -> lines.Happened:
        """What no replay makes again. Pieces of what left are redacted one by one: nothing is read from them."""
        if isinstance(line, lines.ClientHead):
            return lines.ClientHead(line.t, line.status, self._headers(line.headers))
        clean = Payload.of(self._stream(line.body.data))
        if isinstance(line, lines.Write):
            return lines.Write(line.t, clean)
        return msgspec.structs.replace(line, headers=self._headers(line.headers), body=clean, path=self._path(line.path))

    def _reads(self) -> Iterator[bytes]:
        """The reads of each attempt, redacted together and cut where they were."""
        sizes: list[list[int]] = []
        bodies: list[bytearray] = []
        for line in self._recording.happened:
            if isinstance(line, lines.Attempt) or not bodies:
                sizes.append([])
                bodies.append(bytearray())
            if isinstance(line, lines.Read):
                data = line.body.data
                sizes[-1].append(len(data))
                bodies[-1] += data
        for cuts, body in zip(sizes, bodies, strict=True):
            clean = self._stream(bytes(body))
            at = 0
            for size in cuts:
                yield clean[at : at + size]
                at += size

    def _stream(self, body: bytes) -> bytes:
        """A body of any kind: one JSON value, server-sent events, or other text."""
        if body.removeprefix(_BOM).lstrip()[:1] in (b"{", b"["):
            return self._document(body)
        if _says_nothing(body):
            return body
        records: list[list[tuple[int, int]]] = [[]]
        plain: list[tuple[int, int, bool]] = []
        for found in _LINE.finditer(body):
            start, end = found.span()
            line = found.group().rstrip(b"\r\n")
            name, colon, value = line.partition(b":")
            offset = start + len(name) + len(colon) + (1 if value.startswith(b" ") else 0)
            if not start:
                name = name.removeprefix(_BOM)
            if name == b"data" and value.strip() == b"[DONE]":
                continue
            if name == b"data":
                records[-1].append((offset, start + len(line)))
            elif name in (b"event", b"id", b"retry"):
                plain.append((offset, start + len(line), name == b"event"))
            elif line:
                plain.append((start, start + len(line), False))
            else:
                records.append([])
            if start == end:
                break
        clean = bytearray(body)
        for start, end, structural in plain:
            clean[start:end] = self._words.text(body[start:end], structural=structural)
        self._events(body, [record for spread in records for record in _as_written(body, spread)], clean)
        return bytes(clean)

    def _events(self, body: bytes, records: list[list[tuple[int, int]]], clean: bytearray) -> None:
        """Records of an event stream in place, each in one line or in several."""
        values = bytearray()
        spans: list[tuple[int, int]] = []
        copies: list[tuple[int, int, int]] = []
        for spread in records:
            if body[slice(*spread[0])].lstrip()[:1] not in (b"{", b"["):
                for start, end in spread:
                    clean[start:end] = self._words.text(body[start:end])
                continue
            begun = len(values)
            for start, end in spread:
                copies.append((start, end, len(values)))
                values += body[start:end] + b"\n"
            spans.append((begun, len(values) - 1))
        cleaned = bytearray(values)
        self._records(bytes(values), spans, cleaned)
        for start, end, at in copies:
            clean[start:end] = cleaned[at : at + end - start]

    def _document(self, body: bytes) -> bytes:
        clean = bytearray(body)
        self._records(body, [(0, len(body))], clean)
        return bytes(clean)

    def _records(self, body: bytes, records: list[tuple[int, int]], clean: bytearray) -> None:
        """JSON values in place. Strings that are pieces of one text are replaced as one, wherever they are cut."""
        pieces: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        single = len(records) == 1
        for start, end in records:
            value = decoded(body[start:end])
            if value is None:
                clean[start:end] = self._words.text(body[start:end])
                continue
            places = places_of(value)
            for at, (first, last, path, kind) in enumerate(scalars_of(body, start, end)):
                inner = body[first:last]
                if kind is Kind.NUMBER:
                    clean[first:last] = self._number(inner, path)
                    continue
                name = path[-1] if path else ""
                is_key, is_value = kind is Kind.KEY, _is_value(path)
                if single and not is_key and _says_nothing(inner):
                    continue
                in_error = "error" in path or (single and name == "message" and len(path) <= 2)
                if not is_value and (is_key or in_error or _is_structural(path)):
                    if is_key and inner in _WITH_LETTERS:
                        continue
                    is_name = name in _NAMES and len(path) <= 2 and not is_key and _KEEPS_NAME.fullmatch(inner)
                    clean[first:last] = (
                        self._words.name(inner.decode()).encode() if is_name else self._words.text(inner, structural=True)
                    )
                else:
                    is_piece = not single and not is_key and name not in _WHOLE and not str(name).lower().endswith("id")
                    group = (path, places) if is_piece else (start, at)
                    pieces.setdefault(group, []).append((first, last))
        for spans in pieces.values():
            joined = self._words.text(b"".join(body[first:last] for first, last in spans))
            at = 0
            for first, last in spans:
                clean[first:last] = joined[at : at + last - first]
                at += last - first

    def _number(self, written: bytes, path: tuple[Any, ...]) -> bytes:
        """A number that counts or measures something stays; any other one may say who somebody is, or be a letter of a text."""
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        is_listed = bool(path) and isinstance(path[-1], int) and name != "enum"
        words = {word.lower() for word in _NAME_PARTS.findall(name)}
        counts = words & _COUNTS if not is_listed else words & {"index", "indices", "indexes"}
        if counts and len(written) <= _MOST_DIGITS and not _is_value(path):
            return written
        return self._words.number(written, is_listed=is_listed)

    def _envelopes(self, body: bytes) -> bytes:
        """Reasoning state that we sealed: sealed anew around other words, and accepted again."""
        accepted = frozenset(self._recording.seals.accepted)

        def other(found: re.Match[bytes]) -> bytes:
            text = found.group().decode()
            opaque = unsealed(text) if digest_of(text) in accepted else None
            if opaque is None:
                return found.group()
            payload = self._words.plain(opaque.payload)
            sealed = msgspec.json.encode(msgspec.structs.replace(opaque, payload=payload))
            made = PREFIX + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode() + "." + "A" * 22
            self._accepted.append(digest_of(self._words.plain(made)))
            return made.encode()

        return re.sub(rb"gw1\.[A-Za-z0-9_-]{1,}\.[A-Za-z0-9_-]{1,}", other, body) if accepted else body


def _as_written(body: bytes, spread: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The lines of one event: one record, or one in each line where they are none together."""
    if len(spread) < 2 or decoded(b"\n".join(body[start:end] for start, end in spread)) is not None:
        return [spread] if spread else []
    return [[span] for span in spread]


def _says_nothing(text: bytes) -> bool:
    return text.strip().lower().rstrip(b".") in _SAYS_NOTHING


def _is_value(path: tuple[Any, ...]) -> bool:
    """Is this part of a call's arguments, of its result, or a value in a schema? Its names are then no words of an API."""
    for place, part in enumerate(path):
        before = path[place - 1] if place else None
        if part in _VALUES:
            if before != "properties":
                return True
        elif part in _ARGUMENTS:
            if place and place < len(path) - 1 and before != "properties":
                return True
        elif part == "response" and before in _RESULTS:
            return True
    return False


def _is_structural(path: tuple[Any, ...]) -> bool:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    return name in _STRUCTURAL


def _is_program(name: str) -> bool:
    """A program that many have, and its version: nothing that could be somebody's name for it."""
    found = re.fullmatch(r"([A-Za-z][A-Za-z_. -]{0,40})/[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}", name)
    return found is not None and all(word.lower() in _PROGRAMS for word in re.findall("[A-Za-z]+", found.group(1)))


def _path_of(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2]


def _keep(was: dict[str, Any], now: dict[str, Any], names: tuple[str, ...]) -> None:
    now.update({name: was[name] for name in names if name in was})


# -- what was made of it -----------------------------------------------------------------------------------------------------


def _with_answer(came: Recording, again: Replayed) -> Recording:
    """The recording with everything that left, as a replay makes it."""
    attempts = iter(zip(again.calls, again.paths, strict=True))
    happened: list[lines.Happened] = []
    writes = [step for step in again.steps if step.output or step.client_status]
    for line in came.happened:
        t = line.t
        while writes and writes[0].t < t - 1e-9:
            happened += _left(writes.pop(0))
        if isinstance(line, lines.Attempt):
            call, path = next(attempts, (None, ""))
            line = msgspec.structs.replace(line, body=Payload.of(call.body if call is not None else b""), path=path)
        happened.append(line)
    for step in writes:
        happened += _left(step)
    return msgspec.structs.replace(came, happened=tuple(happened))


def _left(step: Moved) -> Iterator[lines.Happened]:
    if step.client_status:
        yield lines.ClientHead(step.t, step.client_status, dict(step.client_headers))
    if step.output:
        yield lines.Write(step.t, Payload.of(step.output))
