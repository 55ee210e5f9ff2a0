"""What an upstream does differently, as data. Rows live in `profiles.toml`; `profiles.py` reads them.

A dialect's encoder reads these values and never compares a vendor's name: a new OpenAI-compatible server is a new row.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

IdStyle = Literal["any", "anthropic", "chat", "responses", "mistral", "kimi", "none"]
"""What call ids a target takes. `none`: it has no ids, calls and results are paired by order."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream's quirks, for one model of it. Defaults fit a plain OpenAI-compatible server."""

    name: str = "generic"
    dialect: str = "openai_chat"
    family: str = "unknown"
    """Who mints and reads opaque reasoning state: anthropic, openai, gemini, ... `unknown` mints none."""
    auth: Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"] = "bearer"
    """Where the key goes: `Authorization: Bearer` or a header of that name."""
    wire_version: str | None = None
    """Anthropic: the one `anthropic-version` it understands; None: the encoder picks the one that fits the request."""

    # roles and messages
    developer_role: bool = False
    """System text goes in `developer` messages."""
    system_messages: bool = True
    """False: the model has no system role; instructions are put before the first user text."""
    mid_system: bool = False
    """Anthropic: takes `role: system` inside messages."""
    system_turns: Literal["anywhere", "first_only"] = "anywhere"
    """Where a system message may stand, in dialects that have such messages. `first_only`: strict chat templates refuse any
    but the very first message; later ones become user text in a tag, several leading ones become one."""
    prefill: bool = True
    """A trailing assistant message is continued; False: it is refused."""
    prefill_flag: str | None = None
    """Field that marks a message to continue (`prefix`, `partial`)."""
    prefill_body: dict[str, Any] = {}
    """Top-level fields to add when the last message is to be continued (`continue_final_message`)."""
    merge_turns: bool = False
    """Messages of one role in a row are refused: merge them."""
    empty_assistant: bool = True
    """Takes assistant messages without content and calls; False: they are left out."""
    user_after_results: bool = True
    """Takes a user message right after tool results; False: a short assistant message goes between."""
    text_content: bool = False
    """Message content must be a plain string."""
    empty_content: bool = True
    """Takes text that is empty. False: it is left out, and a word stands where nothing else is left."""
    images: bool = True
    """Takes images at all. False: a word stands in their place."""
    images_in_results: bool = False
    image_urls: bool = True
    """Takes images by web address; False: only as base64."""
    video: bool = False
    """Takes video parts (`video_url`)."""
    result_role: Literal["tool", "function"] = "tool"
    """`function`: results are messages of the older role, found by the tool's name instead of the call's id."""
    name_in_results: bool = False
    """Tool messages carry the tool's name."""

    # tools
    ids: IdStyle = "chat"
    strict_tools: bool = True
    """Takes `strict` on tools."""
    custom_tools: bool = False
    """Takes free-form tools natively."""
    hosted_tools: bool = False
    forced_choice: bool = True
    """Takes tool_choice required and named."""
    forced_choice_while_thinking: bool = True
    named_choice: bool = True
    """Takes a named tool_choice; False: the tool list is narrowed and `required` sent."""
    cut_by_usage: bool = False
    """Says that an answer is complete although it was cut at its limit: as many tokens as were allowed tell that it was."""
    required_word: str = "required"
    allowed_choice: bool = False
    parallel_switch: bool = True
    json_schema_tools: bool = True
    """Gemini: takes parametersJsonSchema; False: the OpenAPI subset."""
    schema_drops: tuple[str, ...] = ()
    """Schema keywords to remove from tool parameters."""
    tools_limit: int | None = None
    """How many tools one request may declare."""

    # sampling and length
    max_tokens_field: str = "max_tokens"
    max_tokens_default: int | None = None
    """Sent when the client gave none (Anthropic requires it)."""
    sampling: tuple[str, ...] = (
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "logit_bias",
        "logprobs",
    )
    """Which sampling fields are sent; others are dropped with a warning."""
    chat_sampling: bool = False
    """A Responses server that turns requests into those of Chat and takes `sampling` although Responses has no such fields."""
    sampling_while_thinking: bool = True
    temperature_max: float | None = None
    temperature_and_top_p: bool = True
    stop_limit: int = 4
    """How many stop sequences it takes; the rest is matched by us. 0: none."""
    seed_field: str = "seed"
    choices: bool = True
    """Takes n greater than 1."""

    # reasoning
    reasoning_control: Literal["effort", "openrouter", "thinking", "thinking_and_effort", "template", "none"] = "effort"
    efforts: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    """Efforts it knows; others become the nearest lower one, else the nearest higher."""
    effort_map: dict[str, str] = {}
    """Our effort to its effort, where the nearest one is not the one meant; asked before `efforts`."""
    thinks_by_default: bool = False
    """Thinks when the request says nothing about it."""
    budget_field: str | None = None
    """Chat: top-level field that takes a thinking budget in tokens."""
    template_switch: str = "enable_thinking"
    """`template` control: the key of `chat_template_kwargs` that turns thinking on and off."""
    reasoning_field: str = "reasoning_content"
    """Where reasoning text of the history goes."""
    reasoning_replay: Literal["never", "calls", "always", "details", "chunks"] = "never"
    """Which assistant turns of the history carry reasoning text: none, those with calls, all. `details`: all, in OpenRouter's
    array. `chunks`: all, as thinking chunks of the content list (Mistral)."""
    reasoning_filler: str | None = None
    """What to send where a turn must carry reasoning and has none."""
    thinking_budget: bool = True
    """Anthropic: takes `enabled` with a budget. Gemini: takes `thinkingBudget`; False: `thinkingLevel`."""
    thinking_adaptive: bool = False
    thinking_off: Literal["disabled", "between_tools", "effort"] = "disabled"
    typed_item_ids: bool = False
    """Responses: refuses items whose ids do not begin as ids of their type do (`fc_`, `ctc_`, `msg_`)."""
    signed_calls: bool = False
    """Gemini 3: the first call of a step must carry its thought signature."""

    # output
    json_object: bool = True
    json_schema: bool = True
    verbosity: bool = False
    logprobs: bool = True

    # the rest of the request
    cache_marks: Literal["none", "cache_control", "breakpoint"] = "none"
    cache_key: bool = False
    """Takes `prompt_cache_key`."""
    user_field: str | None = None
    """Where the end user's id goes: `user`, `user_id`, `safety_identifier`, `metadata.user_id`; None: nowhere."""
    stream_usage: bool = True
    """Takes stream_options.include_usage."""
    drop_fields: tuple[str, ...] = ()
    """Fields a client may send that this upstream refuses: a plain name at top level, in messages, content parts and tools;
    `a.b` is field b of an object a wherever that stands."""
    pass_fields: tuple[str, ...] = ()
    """Fields beyond the dialect that a client may address to this upstream."""
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    """Fields to add to every request that does not have them."""
    tier: bool = True
    tiers: tuple[str, ...] = ()
    """Service tiers it knows; empty: not known, any is sent."""
    metadata: bool = False
    store: bool = False

    # answers
    clean: bool = False
    """Its streams keep to the dialect to the letter: they may pass through untouched."""
    name_fragments: bool = False
    """Streams a call's name in pieces."""
    lenient_end: bool = False
    """Ends streams without a finish reason as a habit; a complete answer then counts as finished."""
    merge_choices: bool = False
    """Splits one answer over several choices although n is 1."""

    @property
    def state_family(self) -> str:
        """Who reads reasoning state that this upstream minted: its family, or only itself when its family is unknown."""
        return self.name if self.family == "unknown" else self.family
