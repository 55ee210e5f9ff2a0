"""The way of an answer, upstream bytes to client bytes: decoder, text formats or prompted tools, restoring, encoder.

No status and no head: just the body. The exchange decides when a client sees it. Where upstream and client speak the same
dialect and nothing has to change, the upstream's records pass through, checked and framed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

import msgspec

from athena.calls.choice import ChoiceGuard
from athena.calls.pairing import Pairing
from athena.calls.tracker import PlainArguments
from athena.dialects import get_dialect
from athena.dialects.base import (
    AnswerDecoder,
    AnswerEncoder,
    AnswerLosses,
    DecodeContext,
    Dialect,
    EncodeContext,
    FrameEncoder,
    KeepingEncoder,
)
from athena.dialects.decoders import StreamDecoder, mended_json
from athena.dialects.plain_reads import (
    BurstParts,
    PlainFrame,
    PlainReader,
    PlainReads,
    PlainSplice,
    SplicedRecord,
    decoded_texts,
    framed_texts,
    lone_record,
)
from athena.formats.bodies.native_arguments import ArgumentMender
from athena.formats.machine.engine import TextParser
from athena.formats.machine.policies import RepairLevel
from athena.formats.machine.stage import FormatOptions, FormatStage
from athena.formats.machine.value_types import ToolBook
from athena.model.events import (
    Error,
    Event,
    PlainPiece,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    is_failure,
    is_terminal,
)
from athena.model.limits import DEFAULT_LIMITS, Limits
from athena.model.profile import Profile
from athena.model.request import Loss, Request, Tool
from athena.opaque import Envelope, OpaqueStore
from athena.prepare import Prepared
from athena.prompted.options import PromptedOptions
from athena.prompted.stage import Correction, PromptedStage
from athena.provenance import echo_guard
from athena.restore import Restore
from athena.state.compaction import CompactionStage
from athena.wire.sse import WireRecord, encode_event


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes and how its answer is read."""

    dialect: str
    model: str
    profile: Profile = Profile()
    strict: bool = False
    format: FormatOptions | None = None
    """How to look for calls in the model's text; None: not at all."""
    prompted: PromptedOptions | None = None
    """The model has no tools: they are taught in the prompt, and calls are read from its text."""
    pairing: Pairing = "strict"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell hands in: time, seed, keys and bounds."""

    seed: str = ""
    created: int = 0
    envelope: Envelope | None = None
    store: OpaqueStore | None = None
    tenant: str = ""
    limits: Limits = DEFAULT_LIMITS
    input_tokens: int = 0
    stream_error_stop: bool = False
    hide_auth_errors: bool = False
    """The gateway has keys of its own: an upstream's 401 or 403 is then no fault of the client."""
    seal: Callable[[str, str], str] | None = None
    """Encrypts for a tenant the summary of a conversation that is compacted; None: none is."""
    array: bool = False
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    """Chat clients: the field or fields that carry reasoning text of an upstream of another dialect."""
    passthrough: bool = True
    pass_junk: bool = False
    """Hand on records that are not JSON, to clients of the upstream's own dialect."""
    upstream: str = ""
    """The upstream's name in the configuration, for messages about it."""
    base_url: str = ""
    """Its address without a query, for the same."""
    dialect: str = ""
    """What it is asked in, for the same."""
    has_key: bool = True
    """Are credentials set for it? Also for the same."""
    secrets: tuple[str, ...] = ()
    """What no error may repeat, no matter where it came from."""
    retry_after_max: float = 120.0
    """The longest wait passed on: SDKs obey it without a bound of their own."""


def encode_context(request: Request, options: Options, losses: AnswerLosses, *, same_dialect: bool) -> EncodeContext:
    """What the client's encoder is told about the answer to this request."""
    return EncodeContext(
        request=request,
        seed=options.seed,
        created=options.created,
        envelope=options.envelope,
        same_dialect=same_dialect,
        input_tokens=options.input_tokens,
        stream_error_stop=options.stream_error_stop,
        reasoning_fields=options.reasoning_fields,
        array=options.array,
        losses=losses,
    )


class _ShortWay(msgspec.Struct, eq=False):
    """How further reads like the last one pass by the stages: each is one more piece of the same text, thinking or arguments,
    or several, in which nothing can be found."""

    event: PlainPiece
    """The piece that they are like."""
    reader: PlainReader
    writer: Callable[[str], bytes] | None
    """None: records go out as they came."""
    watch: TextParser | PlainArguments | None
    search: Callable[[str], object] | None
    notes: tuple[Callable[[str], None], ...]
    """What is told of each text."""
    splice: PlainSplice | None = None
    splice_note: Callable[[str], None] | None = None
    spliced: SplicedRecord | None = None

    def events(self, texts: list[str]) -> Iterable[Event]:
        """These texts as events."""
        event = self.event
        if isinstance(event, ToolCallDelta):
            return [ToolCallDelta(event.call, text, event.choice) for text in texts]
        return map(type(event), texts)

    def note(self, texts: list[str]) -> None:
        """Tell of these texts."""
        for note in self.notes:
            if self.watch is not None and note == self.watch.passed:
                note("".join(texts))
                continue
            for text in texts:
                note(text)


class AnswerPath:
    """Upstream bytes to client bytes: decoder, text formats, restoring, encoder. No head, no status: just the body."""

    def __init__(
        self,
        request: Request,
        route: Route,
        options: Options,
        *,
        prepared: Prepared | None = None,
        upstream_stream: bool,
        correction: Correction | None = None,
        visible: Callable[[Error], Error] = lambda error: error,
    ) -> None:
        client, upstream = get_dialect(request.dialect), get_dialect(route.dialect)
        same = client.name == upstream.name
        self._client: Dialect = client
        self._restore = Restore(
            names=prepared.names if prepared else None,
            custom=prepared.custom if prepared else None,
            stops=prepared.stops if prepared else (),
            id_style=client.id_style,
            native_families=_native_families(client, route.profile, options.envelope) if same else (client.family,),
            sign_thinking=client.signs_thinking and not same,
            signs_calls=client.signs_calls,
            custom_calls=client.custom_calls,
            envelope=options.envelope,
            store=options.store,
            tenant=options.tenant,
            seed=options.seed,
            native_ends=same,
            history=request.turns,
            keeps_text=route.profile.reasoning_replay != "never",
        )
        self.prompted = (
            _prompted_stage(request, route.prompted, options, prepared, correction) if route.prompted is not None else None
        )
        # The model knows the tools by the names it was given; `restore` turns them back.
        declared = prepared.request.tools if prepared is not None else request.tools
        self._choice = ChoiceGuard.of(request) if route.prompted is None else None
        """Prompted tools keep the choice by themselves."""
        forbidden = request.tool_choice is not None and request.tool_choice.mode == "none"
        # Where calls are forbidden, their markup is text.
        reads_text = bool(request.tools) and route.prompted is None and not forbidden
        self.formats: FormatStage | None = (
            _format_stage(request, route.format, declared, options, prepared)
            if reads_text and route.format is not None
            else None
        )
        clean = (
            options.passthrough
            and same
            and route.profile.clean
            and self._restore.idle
            and self.formats is None
            and self.prompted is None
            and self._choice is None
            and request.kept is None
            and upstream_stream == request.stream
            and not options.array
            and not (request.stream and client.usage_on_request and not request.include_usage)
        )
        self._losses = AnswerLosses()
        self._visible = visible
        self._accepted: list[WireRecord] | None = [] if clean else None
        self._junk: list[WireRecord] | None = [] if options.pass_junk and same and request.stream and upstream_stream else None
        decode_context = DecodeContext(
            profile=route.profile,
            limits=options.limits,
            seed=options.seed,
            choices=request.n,
            keep_extras=same and not clean,
            accepted=self._accepted,
            junk=self._junk,
            losses=None if clean else self._losses,
            max_output=(prepared.request if prepared is not None else request).max_output,
            mend=None if clean or (level := repair_level(route)) == "off" else _Menders(declared, level),
        )
        self._decoder: AnswerDecoder = upstream.decoder(decode_context, stream=upstream_stream)
        self._encode_context = encode_context(request, options, self._losses, same_dialect=same)
        self._encoder: AnswerEncoder = client.encoder(self._encode_context, stream=request.stream)
        if request.kept is not None:
            seal = partial(options.seal, options.tenant) if options.seal is not None else None
            self._compaction = CompactionStage(request.kept, seal) if request.kept.compacts else None
            self._keeping = cast(KeepingEncoder, self._encoder) if request.kept.waits else None
        self._is_whole = not upstream_stream
        """The upstream's answer comes in one piece: all that it says is known when it is read."""
        is_direct = self._junk is None and self.prompted is None and self._compaction is None
        if upstream_stream and request.stream and is_direct:
            self._streams = (cast(StreamDecoder, self._decoder), cast(FrameEncoder, self._encoder))
        self._direct = self._accepted is None and is_direct
        """No stage stands between decoder and encoder but those that may let text pass."""

    burst: BurstParts | None = None
    """Of what the last read consists, where parts of it are told by their texts alone."""
    _ended = False
    _passed: tuple[bytes, bytes] | None = None
    _compaction: CompactionStage | None = None
    _keeping: KeepingEncoder | None = None
    """The encoder, where its answer is to be kept; only Responses have such."""
    _streams: tuple[StreamDecoder, FrameEncoder] | None = None
    """Both sides, where reads of plain text may take the short way."""
    _shown: tuple[Event, bytes, bytes] | None = None
    """The last event of the last read, which the client has as it was, the read, and what left for it: the next read may be one
    like it. Nobody has looked yet whether there is a short way for it."""
    _way: _ShortWay | None = None
    _passing: int | None = None
    """The call of which a piece of arguments passed all stages as it was: so does every further one that comes by itself, until
    anything else comes."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What of the answer so far the client does not get."""
        return self._losses.found

    @property
    def waiting(self) -> KeepingEncoder | None:
        """What holds a whole response, and its end until it is kept."""
        return self._keeping if self._keeping is not None and self._keeping.final is not None else None

    @property
    def finished(self) -> bool:
        """Has the upstream said why it ended?"""
        return self._decoder.finished

    @property
    def bad_records(self) -> int:
        """Records that were not JSON and were dropped."""
        return 0 if self._is_whole else cast(StreamDecoder, self._decoder).bad_records

    def tick(self, now: float) -> tuple[list[Event], bytes]:
        """Time passed: prompted tools may have waited long enough."""
        self._way = self._shown = None
        if self._ended or self.prompted is None:
            return [], b""
        return self._write(self._restore.feed(self.prompted.tick(now)))

    def feed(self, data: bytes, now: float = 0.0) -> tuple[list[Event], bytes]:
        """The events these bytes brought, and the bytes for the client."""
        self.burst = None
        if len(data) > _BURST and self._streams is not None:
            return self._feed_burst(data, now)
        return self._feed(data, now)

    def _feed_burst(self, data: bytes, now: float) -> tuple[list[Event], bytes]:
        """Many records at once: those that are plain take the short way, between those that cannot.

        How many take the long way in one go grows while none after them was plain, so that what is no text costs no more.
        """
        end = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
        events: list[Event] = []
        outputs: list[bytes] = []
        parts: list[tuple[bytes, bytes | SplicedRecord]] = []
        at, size, records = 0, len(data), 1
        has_texts = False
        while at < size:
            stop = at
            for _ in range(records):
                found = data.find(end, stop)
                stop = found + len(end) if found >= 0 else size
                if stop == size:
                    break
            part = data[at:stop]
            more, output = self._feed(part, now)
            events += more
            outputs.append(output)
            parts.append((part, output))
            at = stop
            if self._ended:
                break
            records *= 4
            if self._passing is not None and size - at < _LONG_STRING:
                continue
            while at < size and (way := self._short_way()) is not None:
                texts, stop = self._plain_run(way, data, at)
                if not texts:
                    break
                events += way.events(texts)
                part = data[at:stop]
                output = self._say(way, texts, part)
                outputs.append(output)
                spliced = self.spliced
                has_texts = has_texts or spliced is not None
                parts.append(spliced if spliced is not None else (part, output))
                at = stop
                records = 1
        output = b"".join(outputs)
        if has_texts and at == size and len(parts) <= _MOST_PARTS:
            self.burst = BurstParts(output, parts)
        return events, output

    def _feed(self, data: bytes, now: float) -> tuple[list[Event], bytes]:
        self._way = self._shown = None
        if self._ended:
            return [], b""
        events = self._decoder.feed(data)
        if not events and self._accepted is None and self.prompted is None and not self._junk:
            # A part of a record, or a record that says nothing.
            return events, b""
        last = events[-1] if events else None
        is_text = type(last) is TextDelta and len(events) == 1 and self._direct and self._restore.lets_text_pass
        if is_text and isinstance(last, TextDelta) and (self.formats is None or self.formats.is_plain(last)):
            output = self._encoder.feed(events)
            self._shown = (last, data, output)
            return events, output
        passing, self._passing = self._passing, None
        if len(events) == 1 and type(last) is ToolCallDelta and last.call == passing:
            self._passing = passing
            output = self._encoder.feed(events)
            self._shown = (last, data, output)
            return events, output
        if self._accepted is not None:
            events, output = self._pass(events)
        else:
            if self.formats is not None and events:
                events = self.formats.feed(events)
            elif self.prompted is not None:
                events = self.prompted.feed(events, now)
            events, output = self._write(self._chosen(self._restore.feed(events)))
        if last is not None and events and events[-1] is last:
            self._shown = (last, data, output)
            if type(last) is ToolCallDelta and self._direct and self._streams is not None:
                self._passing = last.call
        return events, output

    # -- the short way -------------------------------------------------------------------------------------------------------

    @property
    def has_short_way(self) -> bool:
        """May `plain` be asked about the next read?"""
        return self._short_way() is not None

    def _short_way(self) -> _ShortWay | None:
        """Found when it is asked for: the first read of an answer, and any that another like it does not follow, needs none.

        What holds after such a read holds until the next one that takes the long way, because the pieces in between change
        nothing but what they tell to the notes.
        """
        if self._shown is not None:
            self._way = self._find_short_way(*self._shown)
            self._shown = None
        return self._way

    def plain(self, data: bytes) -> bytes | None:
        """The bytes for the client of a read that is one more piece of the same text or thinking, or several, in which nothing
        can be found; None: `feed` has to look, and nothing has changed. Only while `has_short_way`."""
        way = self._way
        assert way is not None
        search, writer = way.search, way.writer
        text = way.reader.text_of(data)
        if text is None:
            texts, end = self._plain_run(way, data, 0)
            # What is no run to its end, `feed` takes apart.
            return self._say(way, texts, data) if texts and end == len(data) else None
        if not text or (search is not None and search(text) is not None):
            return None
        if writer is None:
            return self._say(way, [text], data) if self._stays(data) else None
        for note in way.notes:
            note(text)
        return writer(text)

    def _plain_run(self, way: _ShortWay, data: bytes, at: int) -> tuple[list[str], int]:
        """The texts of the records from `at` on that are plain, and where these records end. Changes nothing."""
        reader, search = way.reader, way.search
        texts, end = reader.texts_of(data, at)
        if not texts:
            return texts, end
        if "" in texts or (way.watch is not None and not way.watch.are_plain(texts)):
            for number, text in enumerate(texts):
                if not text or (search is not None and search(text) is not None):
                    texts, end = reader.texts_of(data, at, number) if number else ([], at)
                    break
        if texts and way.writer is None and not self._all_stay(reader, data[at:end]):
            return [], at
        return texts, end

    def _say(self, way: _ShortWay, texts: list[str], records: bytes) -> bytes:
        """The bytes for the client of these texts, which are plain and came in these records."""
        way.note(texts)
        if way.writer is None:
            self._note_passed(records)
            return records
        splice = self.splice
        if splice is None:
            return b"".join(map(way.writer, texts))
        if way.splice_note is not None:
            way.splice_note("".join(texts))
        return framed_texts(texts, splice.before, splice.behind)

    def _note_passed(self, records: bytes) -> None:
        """These records went out as they came."""
        last = lone_record(_last_record(records))
        assert last is not None
        assert self._passed is not None
        self._passed = (self._passed[0], last[1])

    def _all_stay(self, reader: PlainReader, records: bytes) -> bool:
        """Would each of these records of the upstream go out byte for byte as it came?"""
        end = b"\r\n\r\n" if records[-4:] == b"\r\n\r\n" else b"\n\n"
        if reader.is_uniform and records.isascii():
            # What decides is the same in all of them.
            return self._stays(records[: records.index(end) + len(end)])
        return all(self._stays(record + end) for record in records.split(end)[:-1])

    def _stays(self, data: bytes) -> bool:
        """Would this record of the upstream go out byte for byte as it came?"""
        record = lone_record(data)
        if record is None or self._passed is None or self._frame(*record) != data:
            return False
        payload = record[1]
        return payload.isascii() or mended_json(payload) == payload

    def _find_short_way(self, event: Event, data: bytes, output: bytes) -> _ShortWay | None:
        """The short way of reads like this one, of which this was the last event; None: every read has to be looked at."""
        if self._streams is None or not isinstance(event, PlainPiece) or not output:
            return None
        if event.choice or _is_special(event) or not self._restore.passes(event):
            return None
        decoder, encoder = self._streams
        parser: TextParser | PlainArguments | None = None
        writer = None
        if isinstance(event, ToolCallDelta):
            parser = decoder.plain_arguments()
            if parser is None:
                return None
        if self._accepted is not None:
            if output != data:
                return None
        else:
            writer = encoder.plain_writer(event)
            if writer is None:
                return None
            if self.formats is not None and not isinstance(event, ToolCallDelta):
                parser = self.formats.plain_watch(event)
                if parser is None or parser.search("") is not None:
                    return None  # something is held, or another channel is open: every piece has to be looked at
        reader = decoder.plain_reader(event, _last_record(data))
        if reader is None:
            return None
        notes = [decoder.plain_note(event), parser.passed if parser is not None else None]
        if writer is not None and isinstance(event, ThinkingDelta):
            notes.append(self._restore.thinking_note(event.choice))
        told = tuple([note for note in notes if note is not None])
        return _ShortWay(event, reader, writer, parser, parser.search if parser is not None else None, told)

    @property
    def splice(self) -> PlainSplice | None:
        """The short way as bytes, where it consists of nothing else; the same object until a read takes the long way."""
        way = self._short_way()
        if way is None:
            return None
        if way.splice is not None:
            return way.splice
        reader = way.reader
        if self._streams is None or not isinstance(reader, PlainReads):
            return None
        head, tail = reader.around
        if way.writer is None:
            # A text of ours that is not ASCII: what is looked at then is more than what is looked at else.
            frame = PlainFrame(head, tail) if self._stays(head + "\u00e9".encode() + tail) else None
        else:
            frame = self._streams[1].plain_frame(way.event)
        if frame is None:
            return None
        way.splice_note = frame.note
        way.splice = PlainSplice(head, tail, frame.before, frame.behind, way.writer is None, way.search)
        return way.splice

    @property
    def spliced(self) -> tuple[bytes, SplicedRecord] | None:
        """The texts of the read that `plain` took last, and what both the read and the bytes for the client follow from; None
        where more is needed to tell both."""
        splice, way = self.splice, self._way
        if splice is None or way is None or not isinstance(way.reader, PlainReads):
            return None
        if way.spliced is None:
            way.spliced = SplicedRecord(splice.head, splice.tail, splice.before, splice.behind, splice.stays)
        return way.reader.strings, way.spliced

    def relayed(self, strings: list[bytes], last: bytes) -> None:
        """These texts, JSON strings as they came, were passed on by `splice`; `last` is the last read, where records go out as
        they came."""
        way, texts = self._way, decoded_texts(strings)
        assert way is not None
        assert isinstance(way.reader, PlainReads)
        way.reader.served = True
        way.note(texts)
        if way.splice_note is not None:
            way.splice_note("".join(texts))
        if way.writer is None:
            self._note_passed(last)

    # -- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> tuple[list[Event], bytes]:
        """Tell the stages that the upstream's body ended, and return what they still held back."""
        self._way = self._shown = None
        if self._ended:
            return [], b""
        if self._accepted is not None:
            return self._pass(self._decoder.close(), closing=True)
        return self._write(self._read(self._decoder.close()))

    def fail(self, error: Error) -> tuple[list[Event], bytes]:
        """The upstream ended early: open parts stay open, and the client gets an error."""
        self._way = self._shown = None
        if self._ended:
            return [], b""
        if self._decoder.finished:
            # Everything was said before it broke: only the end itself is missing, and it is not needed.
            return self.close()
        if self._accepted is not None:
            return self._pass([error], closing=True)
        return self._write(self._read([error]))

    def broken(self, error: Error) -> bytes:
        """The frame that tells a client of a stream without any event that it failed."""
        self._ended = True
        return self._encoder.feed([error])

    def _read(self, events: list[Event]) -> list[Event]:
        if self.formats is not None and events:
            if not (self._is_whole and self.formats.finds_nothing(events)):
                events = self.formats.feed(events)
        elif self.prompted is not None:
            events = self.prompted.feed(events)
        return self._chosen(self._restore.feed(events))

    def _chosen(self, events: list[Event]) -> list[Event]:
        """As far as the answer keeps the request's tool choice."""
        guard = self._choice
        if guard is None or not events:
            return events
        before = guard.left_out
        events = guard.feed(events)
        if guard.left_out > before:
            self._losses.drop("tool_calls", "the request allows one call, and the model made more")
        return events

    def _write(self, events: list[Event]) -> tuple[list[Event], bytes]:
        if self._compaction is not None:
            events = self._compaction.feed(events)
        if not events:
            return events, self._junk_frames() if self._junk else b""
        self._note_end(events)
        output = self._encoder.feed(events)
        return events, output if not self._junk else self._junk_frames() + output

    def _note_end(self, events: list[Event]) -> Event:
        """Note the end, if this is it, in the form in which the client may see it."""
        last = events[-1]
        if type(last) is TextDelta:
            return last
        if is_failure(last):
            last = events[-1] = self._visible(last)
        self._ended = is_terminal(last)
        return last

    def _junk_frames(self) -> bytes:
        assert self._junk is not None
        frames = [encode_event(payload, name) for name, payload in self._junk]
        self._junk.clear()
        return b"".join(frames)

    def _pass(self, events: list[Event], *, closing: bool = False) -> tuple[list[Event], bytes]:
        """The records themselves, in clean frames: what else an upstream puts around them, clients may not survive."""
        records = self._accepted
        assert records is not None
        end = self._client.stream_end
        if not end and records and records[-1][1].startswith(b"[DONE]"):
            records.pop()
        terminal = self._note_end(events) if events else None
        failed = is_failure(terminal)
        if not self._encode_context.request.stream:
            return events, records[-1][1] if records and self._ended and not failed else b""
        if records:
            self._passed = (self._passed[0] if self._passed else records[0][1], records[-1][1])
        frames = [self._frame(name, payload) for name, payload in records]
        records.clear()
        if self._junk:
            frames.insert(0, self._junk_frames())
        if failed:
            assert isinstance(terminal, Error)
            context = msgspec.structs.replace(self._encode_context, passed=self._passed)
            frames.append(self._client.encoder(context, stream=True).feed([terminal]))
        elif closing and self._ended and (not frames or frames[-1][:20] != end[:20]):
            frames.append(end)
        return events, b"".join(frames)

    def _frame(self, name: str, payload: bytes) -> bytes:
        if payload.startswith(b"[DONE]"):
            return self._client.stream_end
        if b"\n" in payload:
            payload = payload.replace(b"\n", b" ")
        if not self._client.named_events:
            return b"data: %b\n\n" % payload
        if not name or b'"type":"%b"' % name.encode() not in payload:
            name, payload = _agreed(name, payload)
        return encode_event(payload, name)


def _is_special(event: PlainPiece) -> bool:
    """Does this event say more than its text, or not in the usual place?"""
    if isinstance(event, ToolCallDelta):
        return False
    aside = event.refusal if isinstance(event, TextDelta) else event.summary or event.item_id is not None
    return aside or event.signature is not None


_BURST = 1024
"""Bytes of a read above which it is taken record by record; hardly any record is so long."""
_LONG_STRING = 4096
"""Bytes that must follow a piece of arguments in a burst for it to be worthwhile to look whether they are one string."""
_MOST_PARTS = 32
"""A read of more parts is told as it is."""


def _last_record(data: bytes) -> bytes:
    """What stands after the last end of an event but one."""
    end = b"\r\n\r\n" if data[-4:] == b"\r\n\r\n" else b"\n\n"
    before = data.rfind(end, 0, len(data) - len(end))
    return data[before + len(end) :] if before >= 0 else data


class _Typed(msgspec.Struct):
    """What a record says it is."""

    type: str | msgspec.UnsetType = msgspec.UNSET


_type_of = msgspec.json.Decoder(_Typed).decode


def _agreed(name: str, payload: bytes) -> tuple[str, bytes]:
    """The event's name and its record, saying the same: some readers go by the one and some by the other."""
    try:
        kind = _type_of(payload).type
    except msgspec.DecodeError:
        return name, payload
    if kind is not msgspec.UNSET:
        # A name is one line: what follows a line break in it would be read as a line of the stream.
        return " ".join(kind.splitlines()), payload
    if not name:
        return "", payload
    members = payload.strip()[1:]
    separator = b"" if members.lstrip().startswith(b"}") else b","
    return name, b'{"type":%b%b%b' % (msgspec.json.encode(name), separator, members)


def repair_level(route: Route) -> RepairLevel:
    """How much of native arguments is put right: as much as of calls in text."""
    if route.prompted is not None:
        return route.prompted.repair
    return route.format.policies.repair if route.format is not None else "syntax"


class _Menders(msgspec.Struct, eq=False):
    """Makes what puts the arguments of one native call right; most answers need none."""

    _tools: tuple[Tool, ...]
    _level: RepairLevel
    _book: ToolBook | None = None

    def __call__(self) -> ArgumentMender:
        if self._book is None:
            self._book = ToolBook(self._tools)
        return ArgumentMender(self._book, self._level)


def _native_families(client: Dialect, profile: Profile, envelope: Envelope | None) -> tuple[str, ...] | None:
    """Whose state a client of the upstream's own dialect gets as it is; None: everybody's.

    State that a look-alike minted is sealed where the dialect itself does not say who did, or it would pass for the real
    family's after a change of model and be refused there.
    """
    known = not client.family or profile.family == client.family
    return None if known or envelope is None else (client.family,)


def _format_stage(
    request: Request, reading: FormatOptions, tools: tuple[Tool, ...], options: Options, prepared: Prepared | None
) -> FormatStage:
    guard = None
    if reading.policies.echo != "allow":
        named = reading.recognizer().named if reading.tokens or reading.declared is not None else None
        guard = echo_guard(
            request,
            tools=tools,
            names=prepared.names if prepared is not None else None,
            repair=reading.policies.repair,
            formats=(named,) if named is not None else (),
        )
    return FormatStage(reading, tools=tools, limits=options.limits, seed=options.seed, guard=guard)


def _prompted_stage(
    request: Request, prompted: PromptedOptions, options: Options, prepared: Prepared | None, correction: Correction | None
) -> PromptedStage | None:
    rendered = prepared.rendered if prepared is not None else None
    if rendered is None or rendered.plan is None:
        return None
    if correction is not None:
        prompted = msgspec.structs.replace(prompted, reask=False)
    guard = None
    if prompted.echo != "allow" and prepared is not None:
        # The client's request is searched, not the prompt that teaches the tools: what that holds is ours.
        guard = echo_guard(request, tools=rendered.plan.tools, names=prepared.names, repair=prompted.repair)
    return PromptedStage(
        prompted,
        rendered.plan,
        choices=request.n,
        limits=options.limits,
        seed=options.seed,
        spent=correction.usage if correction is not None else None,
        input_tokens=options.input_tokens,
        guard=guard,
    )
