"""What the tests of the transport share."""

from support.way_fixtures import own_home, upstream

__all__ = ["own_home", "upstream"]
