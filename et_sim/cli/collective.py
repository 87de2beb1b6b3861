"""`et-sim collective`: the messages of a collective algorithm, without a simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Command, Count, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes
from et_sim.cli.options import RanksOfMachine, Size, ranks_of

if TYPE_CHECKING:
    from et_sim.collectives import Algorithm, CostFixes, StepProgram, TreeProgram
    from et_sim.collectives.movement import Movement
    from et_sim.collectives.schedule import Schedule

EXCHANGES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
OVER_A_TREE = ("reduce", "gather", "scatter", "broadcast", "barrier")
TREE, DOUBLE_TREE, IN_NETWORK = "tree", "doubleBinaryTree", "inNetwork"
LIBRARY, DEFAULT_BYTES = "library", 1 << 20
PUT_IN = {
    "scatter": "{each} for each",
    "broadcast": "{each} for all",
    "barrier": "a byte each way",
}
MOST_RANKS = 1 << 16
MOST_STEPS = 4_000_000  # limit of steps in the text
MOST_LISTED = 1_000_000  # limit of messages and pieces in JSON


class Options(Command):
    """Show the steps of a collective algorithm in one group of ranks: sources, targets and sizes of messages.
    One chunk and one network dimension, as in a simulation. Or, as `library`, compare all choices of the
    collective library of a machine.
    """

    epilog = (
        "algorithms, as in the system file: ring, direct, direct<WINDOW>, halvingDoubling,"
        f" doubleBinaryTree; {', '.join(OVER_A_TREE)} always use a tree, called {TREE} here;"
        f" {LIBRARY}, with --machine"
    )

    algorithm: Annotated[str, "which algorithm, see below", "ALGORITHM"]
    type: Annotated[str, "default: all_reduce", Option(choices=(*EXCHANGES, *OVER_A_TREE))] = "all_reduce"
    ranks: Annotated[int | None, "how many ranks take part"] = None
    machine: RanksOfMachine = None
    bytes: Annotated[
        Size,
        f"what each rank puts in: 1024, 64KiB, 1.5GB, … (default: 1MiB; of a {LIBRARY} 1 KiB to 1 GiB)",
    ] = None
    dtype: Annotated[str | None, f"{LIBRARY}: of the numbers, as in int8", "TYPE"] = None
    svg: Annotated[Path | None, f"{LIBRARY}: draw times over sizes", "FILE"] = None
    window: Annotated[Count, "direct: exchange with W others at a time", "W"] = None
    second_tree: Annotated[bool, f"{DOUBLE_TREE}: show the tree of every other chunk"] = False
    root: Annotated[int | None, f"{TREE}: the rank at its root (default: 0)", "RANK"] = None
    corrected: Annotated[bool, "follow the corrected profile, not the reference"] = False
    json: Annotated[bool, "print every message"] = False


def run(options: Options) -> int:
    """Lower the collective as a simulation does, and print its messages."""
    from et_sim.collectives import AS_REFERENCE, CORRECTED, InNetworkProgram, PhaseOperation, lower
    from et_sim.collectives.movement import movement

    if options.algorithm == LIBRARY:
        from et_sim.cli.collective_text import show_library

        return show_library(options)
    for name in ("dtype", "svg"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name} does not belong to {options.algorithm}", remedy=f"use it with {LIBRARY}"
            )
    ranks = options.ranks = ranks_of(options)
    if ranks is None:
        raise UsageError("a collective needs a number of ranks", remedy="add --ranks, as in --ranks 8")
    size = DEFAULT_BYTES if options.bytes is None else options.bytes
    algorithm = _algorithm(options)
    _check(options, ranks, algorithm, size)
    operation = PhaseOperation[options.type.upper()]
    fixes = CORRECTED if options.corrected else AS_REFERENCE
    root = options.root or 0
    program = lower(algorithm, operation, ranks, size, fixes=fixes, root=root)
    assert not isinstance(program, InNetworkProgram)  # refused above
    moved = movement(algorithm, operation, ranks, fixes=fixes, root=root)
    if options.json:
        print(json.dumps(_data(options, ranks, size, program, moved), indent=2))
    else:
        print("\n".join([*_text(options, size, program, moved), *_remarks(options, algorithm, fixes)]))
    return 0


def _algorithm(options: Options) -> Algorithm:
    from et_sim.collectives import TREE as OVER_TREE
    from et_sim.collectives import parse_algorithm

    name = options.algorithm
    if name == IN_NETWORK:
        raise UsageError(
            f"{name} has no messages between ranks: each sends to a switch once, and gets from it once",
            remedy="et-sim run --detail messages records those of a simulation",
        )
    if options.root is not None and name != TREE:
        raise UsageError(f"--root does not belong to {name}", remedy=f"use it with {TREE}")
    if name in (*EXCHANGES, *OVER_A_TREE):
        raise UsageError(
            f"{name} is a type of collective, not an algorithm",
            remedy=f"give the algorithm, then the type: et-sim collective ALGORITHM --type {name}",
        )
    if (name == TREE) != (options.type in OVER_A_TREE):
        raise UsageError(
            f"{name} does not support the type {options.type}",
            remedy=f"{TREE} supports {', '.join(OVER_A_TREE)}; other algorithms: {', '.join(EXCHANGES)}",
        )
    if options.window is not None:
        if name not in ("direct", "oneDirect"):
            raise UsageError(f"--window does not belong to {name}", remedy="use it with direct")
        name = f"{name}{options.window}"
    algorithm = OVER_TREE if name == TREE else parse_algorithm(name)
    if options.second_tree and (algorithm.family != DOUBLE_TREE or options.type != "all_reduce"):
        raise UsageError(
            f"--second-tree does not belong to {name} {options.type}",
            remedy=f"use it with {DOUBLE_TREE} all_reduce",
        )
    return algorithm


def _check(options: Options, ranks: int, algorithm: Algorithm, size: int) -> None:
    if not 2 <= ranks <= MOST_RANKS:
        raise UsageError(f"--ranks is {ranks}", remedy=f"give 2 to {MOST_RANKS:,} ranks")
    if not 0 <= (options.root or 0) < ranks:
        raise UsageError(f"--root is {options.root}", remedy=f"ranks are 0 to {ranks - 1}")
    rounds_up = options.corrected or algorithm.family == "halvingDoubling"
    whole = rounds_up or algorithm.family in (TREE, DOUBLE_TREE) or options.type == "all_gather"
    least = 1 if whole else ranks
    if size < least:
        raise UsageError(
            f"{size} bytes cannot be cut into {least} pieces" if size else "there are no bytes to move",
            remedy=f"give --bytes {least} or more; et-sim run rounds up to one byte per rank",
        )


def _text(options: Options, size: int, program: StepProgram | TreeProgram, moved: Movement) -> Iterator[str]:
    from et_sim.cli.collective_text import step_lines, total_lines, tree_lines
    from et_sim.collectives import TreeProgram

    each = f"{format_bytes(size)} ({size} bytes)" if size >= 1024 else f"{size} bytes"
    put_in = PUT_IN.get(options.type, "each puts in {each}").format(each=each)
    profile = ", corrected" if options.corrected else ""
    yield f"{options.algorithm} {options.type}{profile}: {options.ranks} ranks, {put_in}"
    _refuse_more_than(MOST_STEPS, getattr(program, "sends", 2), "steps", "give fewer ranks")
    if isinstance(program, TreeProgram):
        yield from tree_lines(_expanded(options, program))
    else:
        yield from step_lines(program, moved)
    yield from total_lines(program, second_tree=options.second_tree)


def _remarks(options: Options, algorithm: Algorithm, fixes: CostFixes) -> Iterator[str]:
    """Yield a remark if another algorithm runs than the named one."""
    if algorithm.family != DOUBLE_TREE or options.type == "all_reduce":
        return
    if algorithm.keeps_size(fixes):
        yield f"{DOUBLE_TREE} does an all-reduce, whatever the type (as the reference simulator does)"
    else:
        yield f"{DOUBLE_TREE} leaves all but all_reduce to a ring"


def _expanded(options: Options, program: StepProgram | TreeProgram) -> Schedule:
    from et_sim.collectives.schedule import expand

    return expand(program, second_tree=options.second_tree)


def _refuse_more_than(limit: int, count: int, noun: str, remedy: str) -> None:
    if count > limit:
        raise UsageError(f"these are {count:,} {noun}, more than {limit:,}", remedy=remedy)


def _data(
    options: Options, ranks: int, size: int, program: StepProgram | TreeProgram, moved: Movement
) -> dict[str, Any]:
    from et_sim.cli.collective_text import totals

    each = getattr(program, "sends", 2)
    _refuse_more_than(MOST_LISTED, each * ranks, "messages", "leave out --json")
    schedule = _expanded(options, program)
    return {
        "algorithm": options.algorithm,
        "type": options.type,
        "ranks": ranks,
        "bytes": size,
        "window": options.window,
        "root": options.root,
        "profile": "corrected" if options.corrected else "reference",
        "pieces": moved.pieces,
        "rounds": schedule.rounds,
        "per_rank": totals(program, second_tree=options.second_tree),
        "messages": list(_messages(schedule, moved)),
    }


def _messages(schedule: Schedule, moved: Movement) -> Iterator[dict[str, Any]]:
    columns = ("round", "step", "source", "target", "bytes", "after_received", "charged")
    listed = 0
    for row in zip(*(getattr(schedule, name).tolist() for name in columns), strict=True):
        message = dict(zip(columns, row, strict=True))
        load = moved.load(message["source"], message["target"], message["step"])
        listed += len(load.pieces)
        _refuse_more_than(MOST_LISTED, listed, "pieces and more", "leave out --json")
        effect = {"reduces": load.reduces, "reduction_charged": message.pop("charged")}
        yield {**message, **effect, "pieces": list(load.pieces)}
