"""What to do about an upstream's failure, for the person who set the upstream up: in words, with the command that says more.

An upstream's own message often names the symptom only: a wrong base URL is "404 page not found", a missing key is "No auth
credentials found". Pure: an error goes in, its message with address, cause and remedy comes out.
"""

from __future__ import annotations

from athena.errors import more_about
from athena.model.events import Error

EMPTY_WORDS = ("not found", "404 page not found", "404 not found", "page not found", "method not allowed", "")
"""What servers say of a path that they do not have."""


def advised(error: Error, upstream: str, base_url: str, dialect: str, *, has_key: bool) -> str:
    """The message of an upstream's error, with what to do about it where that is known; else the message as it is.

    `upstream` is its name in the configuration, `base_url` its address without secrets, `dialect` what it is asked in.
    """
    if error.status in (401, 403):
        return _about_key(error, upstream, has_key=has_key)
    if looks_like_page(error.raw):
        return (
            f"{base_url} answered with a web page instead of JSON{_status(error)}: is it the base_url of an API "
            f"(upstreams.{upstream}.base_url; most end in /v1)? {more_about('upstream_protocol')}"
        )
    if error.code == "upstream_empty":
        return (
            f"{base_url} answered with an empty body: see the server's log, and whether {dialect} is what it speaks "
            f"(upstreams.{upstream}.dialect). {more_about('upstream_empty')}"
        )
    if lacks_path(error):
        return (
            f"{base_url} has no path for {dialect} ({error.message.strip()}, status {error.status}): check "
            f"upstreams.{upstream}.base_url (most end in /v1) and its dialect. {more_about('upstream_path')}"
        )
    return error.message


def lacks_path(error: Error) -> bool:
    """Does a server say that it has no such path? A model that it does not have is named in other words."""
    words = error.message.strip().lower().rstrip(".")
    return error.status in (404, 405) and (words in EMPTY_WORDS or words.startswith("the upstream answered with status"))


def _about_key(error: Error, upstream: str, *, has_key: bool) -> str:
    more = more_about("upstream_auth")
    said = error.message.strip()
    if not has_key:
        return (
            f"the upstream {upstream} wants a key and none is set: set upstreams.{upstream}.api_key_env, or --api-key-env NAME "
            f"on the command line ({said}). {more}"
        )
    return f"the upstream {upstream} refused its credentials (upstreams.{upstream}.api_key): {said}. {more}"


def _status(error: Error) -> str:
    return f" (status {error.status})" if error.status else ""


def looks_like_page(text: str) -> bool:
    """Is this the beginning of an HTML page?"""
    start = text.lstrip("\ufeff \t\r\n")[:15].lower()
    return start.startswith(("<!doctype html", "<html", "<head", "<body"))
