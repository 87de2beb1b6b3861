"""Generate the users' page on profiles, `docs/profiles.md`, from the corrections and their examples.

    python tests/docs/profiles_page.py docs/profiles.md

The figures are those that tests/engine/test_corrections_nodes.py checks.
"""

# ruff: noqa: E501 - the lines of the page are as long as those of the other pages

from __future__ import annotations

import sys
from pathlib import Path

from et_sim.basics.units import format_ns
from et_sim.machine.corrections import CORRECTION_NOTES, Correction

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "engine")]

from correction_examples import EXAMPLES, NEVER, Example

_OPENING = """\
# Profiles and corrections

<!-- Generated: python tests/docs/profiles_page.py docs/profiles.md -->

ASTRA-sim 2.x, the reference, has modelling defects: some results are not what the described machine would do. Its
nanoseconds can still be wanted, to compare with earlier work. The system file therefore names a profile:

| `"profile"` | effect |
|---|---|
| `"reference"` (default) | every result is the reference's, to the nanosecond, wherever it has one |
| `"corrected"` | every defect below is corrected |
| `"astra-1.0"` | collectives are cut, queued and ordered as in ASTRA-sim 1.0: see [its page](astra-1.0.md) |

`"corrections"` switches single ones on or off, in either profile:

```json
{"profile": "corrected", "corrections": {"eager-sends": false}}
```


## Which profile a run is in

The first of these that names one decides; the line `model` of the summary shows the profile and its source:

1. `--profile` on the command line, `profile=` in Python;
2. `"profile"` in the system file;
3. `"profile"` in the [manifest](workloads.md#the-file) of the workload;
4. none of these: then it is the reference, so that the files of ASTRA-sim give its nanoseconds.

A machine by name (`--machine`) replaces a system file that names the corrected profile, for traces of any tool; files that
are given in its place decide themselves. Everything that et-sim writes names the corrected profile: the demo's system file, the manifests of `et-sim make`, and the
commands that it and `et-convert expand` print for trace files, which cannot name any.

If no input names the profile, the first figure may carry defects of the reference. So `et-sim run` simulates the corrected
profile, too, and the summary shows both, with the corrections that make the difference:

```console
$ et-sim make transformer --tp 2 --pp 2 --dp 2 --micro-batches 4 --layers 4 --hidden 512 --files -o job
...
$ printf 'topology: [ Ring ]\\nnpus_count: [ 8 ]\\nbandwidth: [ 50 ]\\nlatency: [ 500 ]\\n' > network.yml
$ echo '{"all-reduce-implementation": ["ring"], "scheduling-policy": "FIFO"}' > system.json
$ et-sim run job --groups job.groups.json --system system.json --network network.yml | head -n 2
makespan     14.302 ms (14,302,082 ns) in the reference profile; 15.433 ms corrected (+7.9 %):
             port-bandwidth (alone +11 %), concurrent-communication (alone -3.4 %), eager-sends
$ et-sim run job --groups job.groups.json --system system.json --network network.yml --profile corrected | head -n 1
makespan     15.433 ms (15,433,217 ns)
```

A correction is named if it makes a difference by itself; if it makes all of it, it alone is. Where that would cost more than
a few seconds (three million messages and nodes, counted, not timed), the summary names those that *may* act. The corrected
profile itself is simulated only up to that size: a larger run is simulated once, and the summary states that corrections
may change it. `--profile corrected` shows by how much. If a profile is named, only that one is simulated. In Python,
`other_profile=True` simulates both; `summary.json` and `run.json` hold it as [`other_profile`](output.md#summaryjson).

If a run in the reference profile stalls, the corrected one is simulated whether a profile is named or not; where it has
more than three million messages and nodes, only if these are no more than those of the run itself, and than thirty million.
If it completes, the report names it as a remedy, and the single correction that is enough.

## The corrections

| correction | the reference | instead |
|---|---|---|
"""

_EXAMPLES = """
## What each one changes

One small example each: when the last rank finishes. Unless stated otherwise, links have 50 GB/s and 500 ns, the
endpoint delay is 10 ns, the local memory has 50 GB/s, and a collective is one chunk over rings.

| correction | example | reference | corrected |
|---|---|---|---|
"""

_NOTES = """
Some of them need each other:

- With `match-by-program` alone, ranks still have one slot for communication. Where they issue collectives in different
  orders, these wait for each other; `concurrent-communication` and `two-way-queues` let them run side by side.
- `match-by-program` counts like collectives (type, size, group, dimensions, priority) in the order of node ids, or of
  dependencies where these run against the ids. Collectives that dependencies force into opposite orders on two ranks
  still hang; `et-sim check` finds them.
- `two-way-queues` admits a chunk over the limit only when no other event is left, so it changes no time of a run that
  would have ended anyway. Members of a group that run its collectives one at a time, in different orders, wait for each
  other up to then; a library would hang, or run them in the order of launch. The line `deadlock` of the summary, and
  [`deadlocks`](output.md#summaryjson), name the collectives, their group, the ranks that waited, and how long.
- `whole-path` adds, for every dimension that is crossed, its latency and one serialisation. On idle links, this is what
  the link model takes where all hops are fully connected. The link model serialises a message on every link: on a ring
  it takes as many serialisations as hops, behind a switch two, the analytical model one.
- `groups-by-dimension` makes a group that is a sub-grid of the machine take as long as a machine of that shape, where its
  places are as well connected as there: behind switches, fully connected, or a whole ring. A part of a ring is no ring of
  its own: see [groups on a part of the machine](collectives.md#groups-on-a-part-of-the-machine).
- With `port-bandwidth`, messages cross all links on their way, so `whole-path` adds nothing to it, on the analytical model.
  A link passes a message on from the first byte on, and serves the next one when it has had the time to carry this one. So
  no port carries more bytes from the beginning of a run to any time than its bandwidth allows. The bytes that a link carries
  are then cut to whole nanoseconds together, on the link model, too. `flow` and `packet` do not need it.
- `eager-sends`: on the link model, the last byte has left when the first link is free again, waiting for that link
  included. With `rendezvous-protocol`, a message still leaves only when the receiver has requested it. The receive is complete on
  delivery, as before.
- With `concurrent-communication`, collectives that last their recorded time (`replay-only`, broadcasts without
  `simulated-broadcast`) still take turns.

## What both profiles correct

Where the reference aborts, hangs or loops, there is no result to reproduce. Both profiles do the same:

| the reference | here |
|---|---|
| crashes when endpoint transfers of a windowed `direct` complete out of order | simulated |
| reports nothing for ranks with CPU, memory or instant nodes, or aborts | all kinds of nodes are counted |
| swallows errors after time zero and stops without a word | every refusal names node, rank and remedy; a run that stalls is explained |
| aborts on events without delay at time zero | they happen at time zero |
| aborts on metadata nodes | process groups are read from them, other metadata is counted and ignored |
| frees the memory of `PER_NODE_MEMORY_EXPANSION` while it is used | simulated, one server per node |
| loops for ever on an all-gather of fewer bytes than chunks, or of none | chunks hold at least one byte; what moves nothing ends at once |
| never completes a collective of one rank, or with no dimension involved | it ends at once |
| never issues what an instant node releases if nothing else is under way | it is issued |
| hangs on `halvingDoubling` over other numbers than powers of two, and crashes on trees over them | both are defined \
for any number of ranks |
| cuts sizes to 32 bits in rendezvous and on the shared bus | 64 bits everywhere |
| takes `false` for `true`, and leaves missing enumerations undefined | configuration files are checked |
| ignores any groups file whose path contains `empty` | it is read |
| aborts on a ring of two NPUs, and on more than one dimension, in the link model | simulated |
| skips nodes on dependency cycles and reports success | an error, with the cycle |
"""


def profiles_page() -> str:
    """Return the whole page."""
    notes = [_row(f"`{note.correction}`", note.defect, note.instead) for note in CORRECTION_NOTES]
    order = {note.correction: place for place, note in enumerate(CORRECTION_NOTES)}
    examples = [_example(example) for example in sorted(EXAMPLES, key=lambda each: order[each.correction])]
    return _OPENING + "\n".join(notes) + "\n" + _EXAMPLES + "\n".join(examples) + "\n" + _NOTES


def corrections_without_example() -> list[Correction]:
    """Return corrections that the table of examples lacks."""
    shown = {example.correction for example in EXAMPLES}
    return [correction for correction in Correction if correction not in shown]


def _example(example: Example) -> str:
    times = (_time(example.reference), _time(example.corrected))
    also = f" (in both: {', '.join(f'`{name}`' for name in example.also)})" if example.also else ""
    return _row(f"`{example.correction}`", example.text + also, *times)


def _time(times: tuple[int, ...]) -> str:
    return "never ends" if NEVER in times else format_ns(max(times))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(profiles_page(), encoding="utf-8")
