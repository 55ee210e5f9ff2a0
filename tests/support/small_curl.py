"""The few options of curl that the pages use, for machines that have none: `curl [-sSN] URL [-H HEADER]... [-d BODY]`."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request


def main() -> int:
    """Send one request, write the body of its answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="body")
    for flag in ("-s", "-S", "-N"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    headers = {name.strip(): value.strip() for name, _, value in (header.partition(":") for header in options.headers)}
    url = options.url if "://" in options.url else f"http://{options.url}"
    request = urllib.request.Request(url, options.body.encode() if options.body else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            sys.stdout.buffer.write(answer.read())
    except urllib.error.HTTPError as error:
        sys.stdout.buffer.write(error.read())
        return 22
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
