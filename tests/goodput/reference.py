"""A slow second simulator of months: one month, second by second in its logic, for jobs without spares."""

from __future__ import annotations

from et_sim.goodput.setting import Setting


def kept_and_lost(setting: Setting, failures: list[tuple[float, int]], horizon: float) -> tuple[float, float]:
    """Return kept steps of a month, and seconds of lost ones; `failures` are times and numbers of parts."""
    cycle, recovery = setting.cycle, setting.recovery
    now, since, stored, restored, undone = 0.0, 0.0, 0.0, 0.0, 0.0
    ready, noticed, found = 0.0, 0.0, 0.0
    for time, number in [*((t, n) for t, n in failures if t < horizon), (horizon, -1)]:
        done, copied, newest, working = restored, restored, stored, now
        copies, pending = 0, list[tuple[float, float]]()
        while working < time:
            end = working + cycle.steps * setting.step
            if end > time:
                done += (time - working) / setting.step
                break
            done += cycle.steps
            working = end + cycle.memory_stall
            if working > time:
                break
            copied, copies = done, copies + 1
            if copies == cycle.copies:
                copies, working = 0, working + cycle.storage_stall
                if working <= time:
                    pending.append((working + cycle.lag, done))
        newest = max([newest, *(steps for at, steps in pending if at <= time)])
        if number < 0:
            return done, undone
        part = setting.parts[number]
        back = copied if cycle.survives >= part.nodes else newest
        undone += (done - back) * setting.step
        restored, stored, since = back, newest, time
        noticed = max(noticed, since + part.detection)  # an earlier failure may still be unnoticed
        found = max(found, noticed + recovery.drain)
        before = found + recovery.schedule
        if part.nodes:
            ready = max(ready, time + part.repair)
        load = recovery.memory_load if cycle.survives >= part.nodes else recovery.load
        now = max(before, ready) + recovery.start + load + recovery.warm_up
    raise AssertionError("the horizon ends the month")
