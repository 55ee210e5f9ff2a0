"""What an attempt leaves in the record of its request."""

from __future__ import annotations

import msgspec

from athena.exchange import Exchange, warnings_header
from athena.serving.record import MESSAGE_SHOWN, RequestRecord

_WARNINGS_NAMED = 5
"""Kinds of losses that the request line names."""


def summarise(exchange: Exchange, record: RequestRecord) -> None:
    """Fill the record from the attempt that the client got."""
    details = record.details
    usage = exchange.usage
    if usage is not None and usage.raw is not None:
        usage = msgspec.structs.replace(usage, raw=None)  # the upstream's own object, which may hold anything
    details.usage = usage
    if usage is not None:
        record.input_tokens, record.output_tokens = usage.input_total, usage.output_total
    if exchange.error is not None:
        record.error, record.error_message = exchange.error.code, exchange.error.message[:MESSAGE_SHOWN]
    record.outcome = record.outcome or exchange.outcome
    details.defect = exchange.defect
    details.echo_rule = exchange.echo_rule
    details.losses, details.answer_losses = exchange.request_losses, exchange.answer_losses
    record.answer_warnings = len(details.answer_losses)
    if losses := details.losses + details.answer_losses:
        record.warning_text = warnings_header(losses, _WARNINGS_NAMED)
    record.bad_records = exchange.bad_records
    record.text_calls = record.echoes = 0
    if not exchange.finds_calls:
        return
    record.text_calls, record.format = exchange.text_calls, exchange.format_found or record.format
    record.echoes = exchange.echoes
    if record.echoes:
        details.echo_note = _quotation(exchange)
    if exchange.prompted is not None:
        details.prompted_style = exchange.prompted.style
    for note in exchange.notes:
        details.notes[note.code] = details.notes.get(note.code, 0) + 1


def _quotation(exchange: Exchange) -> str:
    notes = [note for note in (*exchange.notes, exchange.error) if note is not None and note.code == "quoted_call"]
    return notes[0].message if notes else "a call is quoted from the request"
