"""Texts that ship with the package: the schema, and what `athena config init` writes.

The template loads as it is; without an upstream the demo runs.
"""

from __future__ import annotations

from importlib import resources

from athena.shells.config.model import Config, LimitSettings, TimeoutSettings

SCHEMA_FILE = "athena.schema.json"

_TEMPLATE = """\
# Athena's configuration. `athena config check` checks it, `athena config show` shows what is in force and why.
# Order: flags, then ATHENA_* variables, then ./athena.yml, then ~/.config/athena/athena.yml, then defaults.
# An athena.yml outside ~/.config/athena is used once you trust it, and again after each change: athena config trust.
# A changed file is reloaded while the gateway runs. "${{NAME}}" takes a value from the environment.

host: {host}            # any other address than this machine's own needs a key below
port: {port}

# == Short form: one upstream, a model per tier ================================================================

# base_url: https://openrouter.ai/api   # left out: OpenRouter
# api_key: "${{OPENROUTER_API_KEY}}"      # or api_key_env: NAME, or api_key_file: PATH
# model: moonshotai/kimi-k2-0905        # for every name without "/"
# opus_model: deepseek/deepseek-chat    # for names that contain opus; likewise sonnet_model and haiku_model
# default_provider: {{order: [Groq], allow_fallbacks: false}}

# == Full form: many upstreams, a rule per kind of model =======================================================

# upstreams:
#   openrouter: {{base_url: https://openrouter.ai/api/v1, api_key: "${{OPENROUTER_API_KEY}}"}}
#   local: {{base_url: http://127.0.0.1:8000/v1, profile: vllm}}
#   claude: {{base_url: https://api.anthropic.com, api_key_env: ANTHROPIC_API_KEY}}
#
# models:                               # the first match wins; * stands for any text
#   - {{match: "claude-*haiku*", use: local/Qwen/Qwen3-Coder-30B}}
#   - {{match: "claude-*", use: "claude/{{model}}"}}
#   - {{match: "gemma*", use: local/google/gemma-3-27b-it, tools: prompted}}
#   - {{match: "*", use: openrouter/moonshotai/kimi-k2-0905, fallback: [local/Qwen/Qwen3-Coder-30B]}}

# == Who may connect ===========================================================================================

# keys:                                 # clients must present one; `athena config new-key` makes one and prints this line
#   - {{name: laptop, hash: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}}
# tls: {{cert: gateway.pem, key: gateway.key}}          # https; without it keys travel in clear
# allow_origins: ["http://localhost:3000"]            # web pages that may use the gateway
# allow_hosts: [host.docker.internal]                 # names under which it may be reached without a key

# == Fine tuning; these are the defaults =======================================================================

timeouts:
  # connect_s: {timeouts.connect_s:g}
  # first_byte_s: {timeouts.first_byte_s:g}
  # idle_s: {timeouts.idle_s:g}
  # total_s: {timeouts.total_s:g}

limits:
  # body_bytes: {limits.body_bytes}
  # answer_bytes: {limits.answer_bytes}

log:
  # level: {log.level}
  # format: {log.format}
  # file: athena.log
"""


def schema_text() -> str:
    return resources.files("athena.shells.config").joinpath(SCHEMA_FILE).read_text("utf-8")


def init_template() -> str:
    """The text of a new `athena.yml`."""
    config = Config()
    return _TEMPLATE.format(
        host=config.host, port=config.port, timeouts=TimeoutSettings(), limits=LimitSettings(), log=config.log
    )
