"""For those who test their own agents: recorded upstreams that answer offline, again and again, in the same pieces."""

from __future__ import annotations

from athena.shells.recorder.replayed import ReplayedRequest, ReplayedUpstream, replayed_upstream

__all__ = ["ReplayedRequest", "ReplayedUpstream", "replayed_upstream"]
