"""What recording costs: the same streams through `Serving` with and without a recorder, and what the archive takes for one.

Ratios in one run. With `--gateway` through whole gateways instead (`recording_gateway`).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from athena.recording.room import Room  # noqa: E402  # the path comes first
from athena.recording.tap import RecordingTap  # noqa: E402
from athena.serving.record import RequestRecord  # noqa: E402
from athena.shells.recorder.archive import Archive  # noqa: E402
from athena.shells.recorder.ring import Ring  # noqa: E402
from support.serving_values import House, next_send  # noqa: E402

CHUNKS = 2000
ROUNDS = 40
SECRETS = ("sk-of-the-upstream-0123456789", "sk-of-the-client-0123456789")
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"content":"some words more "},"finish_reason":null}]}\n\n'
)
END = b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
BODY: dict[str, Any] = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi " * 2000}]}


class Keeper:
    """Puts every exchange into a ring, as a gateway in memory mode does."""

    def __init__(self) -> None:
        self.ring = Ring(most=200, most_bytes=64 << 20)
        self.room = Room(128 << 20)
        self.last: RecordingTap | None = None

    def wants_bodies(self) -> bool:
        return True

    def watch(self, record: RequestRecord, request: Any, key: str | None) -> RecordingTap:
        return RecordingTap(record, key, self.room, self._over, version="bench")

    def _over(self, tap: RecordingTap) -> None:
        self.last = tap
        self.ring.add(tap)


def stream(house: House) -> float:
    """CPU seconds of one streamed answer."""
    begun = time.process_time()
    serving = house.serve(BODY, dialect="anthropic_messages")
    next_send(serving)
    serving.sending(1000.0)
    serving.head(200, {"content-type": "text/event-stream"}, 1000.0)
    now = 1000.0
    for _ in range(CHUNKS):
        now += 0.01
        serving.data(CHUNK, now)
    serving.data(END, now)
    serving.close(now)
    return time.process_time() - begun


def main(arguments: list[str] | None = None) -> int:
    """Print."""
    if arguments and arguments[0] == "--gateway":
        from benchmarks import recording_gateway

        return recording_gateway.main(arguments[1:])
    keeper = Keeper()
    config = {"base_url": "http://127.0.0.1:1/v1"}
    plain, recorded = House(config), House(config, keeper)
    pairs = [(stream(plain), stream(recorded)) for _ in range(ROUNDS)]
    # The fastest of each: whatever else the machine does only adds.
    off, on = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    print(f"serving alone, per chunk: {off / CHUNKS * 1e6:.2f} us off, {on / CHUNKS * 1e6:.2f} us recorded in memory")
    print(f"recording in memory, per chunk: {(on - off) / CHUNKS * 1e6:+.2f} us")
    assert keeper.last is not None
    begun = time.process_time()
    recording = keeper.last.parted(SECRETS, {})
    made = time.process_time() - begun
    with tempfile.TemporaryDirectory() as folder, Archive(Path(folder) / "r.sqlite3") as archive:
        begun = time.process_time()
        archive.add_parted([recording])
        stored = time.process_time() - begun
        size = archive.bytes_used
    print(f"recording to disk, per chunk, in the writer's thread: {(made + stored) / CHUNKS * 1e6:.2f} us")
    raw = len(recording.streams.data)
    print(f"on disk: {size / raw:.2f} of the bytes that passed")
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
