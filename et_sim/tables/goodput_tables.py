"""Tables of random draws: those that et-sim goodput writes, and samples of a step."""

from __future__ import annotations

from et_sim.tables.declaration import Table, columns

MONTHS = Table(
    name="months",
    about="one row for every month that was drawn",
    writer="",
    remedy="et-sim goodput writes it",
    columns=columns("""
        month int64: its number, counted from 0
        goodput float64: time that its kept steps would take on the healthy machine, by time on the clock
        effective float64: time in kept steps by time on the clock
        steps float64: kept steps, as of the healthy machine
        tokens float64: tokens of the kept steps
        interruptions int64: the number of restarts, planned ones included
        finish_days float64?: days until the job has its tokens; null if the job names none
        checkpoints_s float64: seconds in which steps waited for checkpoints
        detection_s float64: seconds until failures were noticed
        drain_s float64: seconds in which parts were found and jobs stopped
        schedule_s float64: seconds of putting the job on its nodes
        repair_s float64: seconds of waiting for nodes
        start_s float64: seconds in which groups started
        load_s float64: seconds of loading checkpoints
        warm_up_s float64: seconds of warm-up
        maintenance_s float64: seconds of planned maintenance
        lost_steps_s float64: seconds in steps that failures undid
        corrupt_steps_s float64: seconds in steps that a silent corruption made worthless
        slower_s float64: seconds by which kept steps were longer than on the healthy machine
    """),
)

COURSES = Table(
    name="courses",
    about="the course of the months at the 10th, 50th and 90th percentile of goodput, in order of time",
    writer="",
    remedy="et-sim goodput writes it",
    columns=columns("""
        percent int32: the percentile
        month int64 -> months: the month
        begin_s float64: seconds from the beginning of the month to the begin of the part
        end_s float64: seconds to its end
        activity word: steps, or the phase of a restart
    """),
)


SAMPLES = Table(
    name="samples",
    about="one row for every sample of the step, and for each cause of variation that is left out; "
    "sample by sample",
    writer="et_sim.timeline.contents.ranks:samples_content",
    remedy="et-sim run JOB --samples 100 writes them",
    columns=columns("""
        sample int64: its number, from 0
        without word: the cause that is left out; "nothing": all of them vary
        step_ns int64: when the last rank finished
    """),
)
