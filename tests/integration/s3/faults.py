"""Faults of an object store by a seed: which requests of a relay are spoiled, and how."""

from __future__ import annotations

import random
from collections import Counter

from tests.integration.s3.relay import Fault, Plan, Request

__all__ = ["seeded_by_request", "seeded_faults"]

BEFORE = (Fault.DELAY, Fault.ERROR, Fault.UNAVAILABLE, Fault.SLOW_DOWN)
AFTER = (Fault.LOST, Fault.LOST_ERROR)
KINDS = {
    "GET": (*BEFORE, Fault.CUT, Fault.CUT, Fault.LOST),
    "LIST": (*BEFORE, Fault.CUT, Fault.LOST),
    "HEAD": (*BEFORE, Fault.LOST),
    "PUT": (*BEFORE, *AFTER),
    "POST": (*BEFORE, *AFTER),
    "DELETE": (*BEFORE, *AFTER),
}
CONDITIONAL = (*BEFORE, *AFTER, *AFTER, *AFTER, Fault.TAKEN)
CONDITIONAL_SHARE = 3  # a commit is one request of many, and the one that matters most


def seeded_faults(seed: int, share: float) -> Plan:
    """A plan that spoils requests.

    Args:
        seed: What it is by, together with the order of requests.
        share: How many of all; of conditional writes three times as many.
    """
    chosen = random.Random(seed)

    def plan(request: Request) -> Fault | None:
        likelihood = share * (CONDITIONAL_SHARE if request.conditional else 1)
        if chosen.random() >= likelihood:
            return None
        return chosen.choice(CONDITIONAL if request.conditional else KINDS[request.operation])

    return plan


def seeded_by_request(seed: int, share: float, *, silent: bool = False) -> Plan:
    """A plan that spoils requests, whatever the order in which threads ask.

    Args:
        seed: What it is by, together with each request and how often it was asked before.
        share: How many of all.
        silent: Whether some are answered when nobody waits any more.
    """
    asked: Counter[tuple[str, str]] = Counter()

    def plan(request: Request) -> Fault | None:
        what = (request.operation, request.path)
        asked[what] += 1
        chance = random.Random(f"{seed} {what} {asked[what]}")
        if chance.random() >= share:
            return None
        kinds = KINDS[request.operation]
        more = (Fault.RESET, Fault.OTHER_ETAG, *(Fault.SILENT,) * silent)
        return chance.choice((*kinds, *more))

    return plan
