"""The asking part of `athena verify`: cases go through a gateway in this process onto the real wire, and a tap sees both sides.

One request gives both sides: what the upstream sent is judged as it came, and what the gateway made of it is judged beside it.
So the lift that Athena gives is measured on the same answers, and costs nothing more.
"""

from athena.shells.verify.asking import Subject, Verifier
from athena.shells.verify.keeping import FailureKeeper

__all__ = ["FailureKeeper", "Subject", "Verifier"]
