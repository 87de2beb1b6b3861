"""Timelines like recorded ones: operators within operators, launches, streams that lag behind, and waits."""

from __future__ import annotations

import random
from typing import Any

Event = dict[str, Any]


def complete(category: str, name: str, lane: int, begin: float, lasts: float, **arguments: Any) -> Event:
    """An event of a thread, or with a stream among its arguments, of a device."""
    times = {"ts": round(begin, 3), "dur": round(lasts, 3)}
    process = 0 if "stream" in arguments else 1
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": lane, **times, "args": arguments}


class Steps:
    """Training steps on two threads; `behind` is by how many microseconds a device may lag."""

    def __init__(self, seed: int, behind: float) -> None:
        self._random = random.Random(seed)
        self._behind = behind
        self._free = {7: 0.0, 8: 0.0}  # when each stream has done its work
        self._operators = self._correlation = 0
        self.events: list[Event] = []

    def record(self, steps: int, operators: int) -> list[Event]:
        """All events, in no order."""
        now = 0.0
        for step in range(steps):
            begin = now
            for at in range(operators):
                now = self._operator(1 + (at % 4 == 3), now, 0) + self._some(0, 10)
                if self._random.random() < 0.1:
                    now = self._wait("cudaStreamSynchronize", now)
                now = max(now, max(self._free.values()) - self._behind)
            now = self._wait("cudaDeviceSynchronize", now) + self._some(0, 20)
            self._add("user_annotation", f"ProfilerStep#{step}", 1, begin, now - begin - 0.001)
        self._random.shuffle(self.events)
        return self.events

    def _some(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def _add(self, *what: Any, **arguments: Any) -> None:
        self.events.append(complete(*what, **arguments))

    def _operator(self, thread: int, begin: float, depth: int) -> float:
        """When it ends."""
        self._operators += 1
        number, now = self._operators, begin + self._some(1, 5)
        inner = self._random.choice((0, 1, 2)) if depth < 3 else 0
        for _ in range(inner):
            now = self._operator(thread, now, depth + 1) + self._some(0, 2)
        if not inner:
            now = self._launch(thread, now)
        now += self._random.choice((0, self._some(0, 3)))
        self._add("cpu_op", f"aten::op{number % 7}", thread, begin, now - begin, **{"External id": number})
        return now

    def _launch(self, thread: int, now: float) -> float:
        self._correlation += 1
        lasts, stream = self._some(1, 4), self._random.choice((7, 7, 8))
        begin = max(now + self._some(0.5, 6), self._free[stream] + self._random.choice((0.001, 0.5, 2)))
        self._free[stream] = begin + self._some(1, 20)
        own = {"device": 0, "stream": stream, "correlation": self._correlation}
        self._add("kernel", "gemm", stream, begin, self._free[stream] - begin, **own)
        self._add("cuda_runtime", "cudaLaunchKernel", thread, now, lasts, correlation=self._correlation)
        return now + lasts

    def _wait(self, call: str, now: float) -> float:
        self._correlation += 1
        done = self._free[7] if call == "cudaStreamSynchronize" else max(self._free.values())
        end = max(now + 1, done + self._some(0.1, 2))
        self._add("cuda_runtime", call, 1, now, end - now, correlation=self._correlation)
        return end
