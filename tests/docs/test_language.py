"""Sentences that made readers stop, and the plain words for them; none of them comes back."""

from __future__ import annotations

import re

import pytest

from support.repository_texts import texts

PLAIN = {
    r"can not(?! only)": "cannot",
    r"brings \d+ packages": "depends on",
    r"rests at \d": "idles at",
    r"s after its start\b": "is up in",
    r"(?:is|are) judged by": "is verified against",
    r"run for real": "tested end to end",
    r"where to go on": "next steps",
    r"configuration is right": "the configuration is valid",
    r"stands? twice": "duplicate",
    r"is no (?:file|directory|number|mapping|string|JSON|YAML|path)\b": "is not a",
    r"\bmend(?:s|ed|ing)? (?:its|it|the|all|what)\b": "fix",
    r"upstreams? rests?\b": "is in cooldown",
    r"are no findings": "are within the noise",
    r"CPU by nginx": "CPU relative to nginx",
    r"broke (?:the TLS handshake|it|the connection) off": "closed the connection",
    r"second tries": "retries",
    r"bounds of every buffer": "the largest sizes that are accepted",
    r"who speaks HTTP": "the HTTP server",
    r"(?:that )?nobody (?:knows|asked for|can use|declared|reads|has seen)": "unknown, unsolicited, unusable, undeclared",
    r"\"\"\"It (?:did|does|is|was)(?: not)?\.\"\"\"": "what did not happen",
    r"\b_(?:laden|heed|deaf|tend|beat|told_in_haste)\b": "a name that says what it holds",
}
"""What is not written, and what is written instead."""

_ALL = re.compile("|".join(f"(?:{phrase})" for phrase in PLAIN), re.IGNORECASE)


def test_the_words_are_plain() -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in texts()
        for match in _ALL.finditer(text)
    ]
    assert found == [], f"say it in plain words: {PLAIN}"


@pytest.mark.parametrize(
    "text",
    [
        "It can not work.",
        "The gateway brings 13 packages,",
        "rests at 44 MB,",
        "and serves 0.4 s after its start.",
        "Every pair is judged by the SDKs.",
        "Agents are run for real by `./dev agents`.",
        "## Where to go on",
        "The configuration is right.",
        "the key port stands twice",
        "/etc/athena is no file",
        "mend its api_key",
        "`GET /ready` shows which upstreams rest",
        "Differences under 1.25x are no findings",
        "CPU by nginx's",
        "the upstream broke the TLS handshake off",
        "Second tries.",
        "Bounds of every buffer.",
        "Who speaks HTTP with clients.",
        '"""It did not."""',
        "a field that nobody asked for",
        "self._deaf = True",
        "def _heed(self)",
        "_laden = 3",
    ],
)
def test_an_odd_sentence_is_found(text: str) -> None:
    assert _ALL.search(text)
