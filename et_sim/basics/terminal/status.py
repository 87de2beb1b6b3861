"""The text that reports how far a task is, and when it will be done."""

from __future__ import annotations

from typing import NamedTuple


class Status(NamedTuple):
    """The report: `plain` is the whole line; the rest are the parts of a bar."""

    plain: str
    stage: str
    share: float | None  # of the stage that is done; None: unknown
    elapsed: float  # seconds
    left: float | None = None  # seconds; None: unknown
    detail: str = ""


ENOUGH_SHARE, ENOUGH_SECONDS = 0.03, 3.0  # one of both tells the pace; what is less swings


class Estimate:
    """When something will be done, from how much of it is done by and by.

    It counts from the first share that is reported: what came before, such as waiting for machine code, says
    nothing about the pace. A share that falls begins anew.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None  # share, seconds
        self._share = 0.0
        self._end: float | None = None

    def add(self, share: float, now: float) -> None:
        """So much is done at this time."""
        if self._first is None or share <= self._first[0] or share < self._share:
            self._first, self._end = (share, now), None
        elif share > self._share:
            gained, passed = share - self._first[0], now - self._first[1]
            if gained >= ENOUGH_SHARE or passed >= ENOUGH_SECONDS:
                self._end = now + passed / gained * (1 - share)
        self._share = share

    def left(self, now: float) -> float | None:
        """Seconds from now; None as long as nobody can tell, and when the time is up."""
        return self._end - now if self._end is not None and self._end >= now else None
