"""The player of programs, checked on programs whose times follow by hand."""

from __future__ import annotations

from playing import play
from program import (
    Await,
    Begin,
    End,
    Host,
    Launch,
    Machine,
    Program,
    Query,
    Rank,
    Record,
    Signal,
    Step,
    Synchronize,
    Transfer,
    WaitEvent,
    Work,
)

MAIN, OTHER = 1, 2
CALM = Machine()


def kernel(lasts: int, stream: int = 7, latency: int = 10, turn: int = 1) -> Launch:
    return Launch("cudaLaunchKernel", 4, stream, Work("kernel", lasts, latency, turn))


def spans(threads: dict[int, list[Step]], machine: Machine = CALM) -> list[tuple[int, int]]:
    """Return begin and end of each kernel of a program of one rank, in the order of their ends."""
    [rank] = play(Program([Rank(threads)], frozenset()), machine)
    return [(event.begin, event.end) for event in rank.device]


def ends(threads: dict[int, list[Step]], machine: Machine = CALM) -> int:
    [rank] = play(Program([Rank(threads)], frozenset()), machine)
    return rank.end


def test_a_kernel_comes_so_long_after_the_middle_of_its_launch() -> None:
    assert spans({MAIN: [Host(100), kernel(50)]}) == [(112, 162)]


def test_a_kernel_comes_after_the_one_before_on_its_stream() -> None:
    assert spans({MAIN: [kernel(50), kernel(5), kernel(5, stream=8)]}) == [(20, 25), (12, 62), (63, 68)]


def test_a_stream_waits_for_the_work_before_an_event() -> None:
    steps: list[Step] = [
        kernel(50),
        Record("e", 7, 1),
        kernel(30),
        WaitEvent("e", 8, 1, 2),
        kernel(5, stream=8),
    ]
    assert spans({MAIN: steps}) == [(12, 62), (65, 70), (63, 93)]


def test_the_host_waits_for_a_stream_an_event_and_the_device() -> None:
    before: list[Step] = [kernel(50), Record("e", 7, 1), kernel(100, stream=8)]
    for wait, end in (({"stream": 7}, 65), ({"event": "e"}, 65), ({}, 120)):
        steps: list[Step] = [*before, Begin("all"), Synchronize("wait", 1, 3, **wait), Host(10), End()]  # type: ignore[arg-type]
        [rank] = play(Program([Rank({MAIN: steps})], frozenset()), CALM)
        assert max(event.end for event in rank.host) == end + 10


def test_a_thread_queries_until_the_event_has_happened() -> None:
    steps: list[Step] = [kernel(50), Record("e", 7, 1), Query("e", 2, 5)]
    [rank] = play(Program([Rank({MAIN: steps})], frozenset()), CALM)
    assert [event.begin for event in rank.host if event.name == "cudaEventQuery"] == list(range(5, 62, 7))


def test_a_thread_sleeps_until_it_is_signalled() -> None:
    other: list[Step] = [Await("go", 7), Begin("woken"), Host(1), End()]
    assert ends({MAIN: [Host(100), Signal("go")], OTHER: other}) == 108
    assert ends({MAIN: [Signal("go")], OTHER: [Host(50), *other]}) == 51


def test_no_rank_ends_a_transfer_before_the_last_has_begun() -> None:
    def rank(first: int) -> Rank:
        work = Work("nccl", 0, 10, 1, transfer=Transfer(("a",), "all_reduce", (0, 1), 4, 100))
        return Rank({MAIN: [Host(first), Launch("launch", 4, 20, work)]})

    program = Program([rank(0), rank(500)], frozenset())
    for machine, end in ((CALM, 612), (Machine(network=0.5), 562), (Machine(host=2), 1114)):
        assert [rank.end for rank in play(program, machine)] == [end, end]


def test_factors_are_of_their_kind_of_time() -> None:
    steps: list[Step] = [Host(100), kernel(50), kernel(50)]
    assert spans({MAIN: steps}, Machine(kernels=2)) == [(112, 212), (213, 313)]
    assert spans({MAIN: steps}, Machine(host=2)) == [(214, 264), (265, 315)]
    assert spans({MAIN: steps}, Machine(straggler={0: 2})) == [(224, 324), (326, 426)]
