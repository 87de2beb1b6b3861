"""Workload x machine -> `LoweredPlan`: everything that must happen, with all names resolved to numbers.

Two stages, so that folding can use the first before the second is done: `Lowering` treats every template,
whichever ranks run it; `build_plan` adds what differs from actor to actor.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec.structs import asdict, replace

from et_sim.basics.errors import MachineError, TraceError
from et_sim.basics.units import LONGEST_NS, exact_bytes, format_bytes, format_ns
from et_sim.compute import compute_model
from et_sim.machine.corrections import Correction
from et_sim.machine.model import (
    LocalMemory,
    LogicalGrid,
    Machine,
    Notice,
    QueueOrder,
    StreamPolicy,
    System,
    WhenFull,
)
from et_sim.machine.system_parts import CAPACITY
from et_sim.memory import NO_SERVER, memory_model
from et_sim.plan import records
from et_sim.plan.channels import ChannelTables, endpoints_of_templates, lowest_ranks
from et_sim.plan.collective_lowering import CollectiveTables, library_of
from et_sim.plan.collective_nodes import CustomChoice, lower_collectives
from et_sim.plan.custom import CustomTables
from et_sim.plan.exchanges import Exchanges
from et_sim.plan.groups import GroupTable, layout_classes
from et_sim.plan.kernel_table import KernelPrices
from et_sim.plan.members import Actors, MemberTables
from et_sim.plan.nodes import MissingAttributes, NodeRules, TemplateTables, lower_nodes
from et_sim.plan.pool_tables import JointRequests, pool_tables, refuse_unequal_requests
from et_sim.plan.records import LoweredPlan, Version1Rules, WaitingOrder
from et_sim.plan.send_windows import set_windows
from et_sim.plan.slow_spans import slow_spans
from et_sim.plan.straggler_variants import StragglerVariants
from et_sim.plan.streams import StreamLanes, TemplatePart, occupation_of, slowing_of
from et_sim.plan.switch_tables import switch_tables
from et_sim.trace.stack import Stack, for_each_stack
from et_sim.trace.tensors import TensorUses, tensor_uses
from et_sim.trace.workload import Workload

WAITING_ORDER = {
    QueueOrder.FIFO: WaitingOrder.PRIORITY,
    QueueOrder.RG: WaitingOrder.ALTERNATING,
    QueueOrder.SMALLEST_FIRST: WaitingOrder.SMALLEST_FIRST,
    QueueOrder.LESS_REMAINING_PHASE_FIRST: WaitingOrder.FEWEST_PHASES_FIRST,
}
MOST_OCCUPATIONS = 16  # that are kept
STREAM_POLICY = {StreamPolicy.LIFO: 1, StreamPolicy.FIFO: -1, StreamPolicy.EXPLICIT: 0}


# The priority of a collective that overtakes all others in ASTRA-sim 1.0; later versions have none.
TOP_PRIORITY, NO_PRIORITY = 1 << 30, 1 << 62


class Lowering:
    """The lowered templates, whichever ranks run them.

    `workload` has a template for every pace that stragglers give to a template of the workload that is passed
    in. The collectives of a library are those on `paced_on`, as a rule the machine itself.
    """

    def __init__(self, workload: Workload, machine: Machine, paced_on: Machine | None = None) -> None:
        _check_rank_count(workload, machine.network.ranks)
        compute, memory = compute_model(machine.system), memory_model(machine)
        classes = compute.rank_classes(workload.ranks)
        self.has_rules = compute.has_rules
        system = machine.system
        grid = _grid_of_groups(machine)
        columns = [*([] if classes is None else [classes]), *layout_classes(workload, grid)]
        self.variants = StragglerVariants(workload, system.stragglers, system.time_factors, columns)
        workload = self.variants.workload
        self.workload, self.machine = workload, machine
        self.endpoints = endpoints_of_templates(
            workload, communicates=not machine.system.replay_communication
        )
        self.groups = GroupTable(
            machine.network.ranks, machine.groups, workload.group_rules, _grid_of_groups(machine)
        )
        self.streams = StreamLanes(system.streams)
        templates = TemplateTables(len(workload.templates), len(self.streams.limits))
        self.customs = CustomTables(
            self.groups,
            templates,
            by_position=machine.system.behaviour.corrects(Correction.CUSTOM_BY_POSITION),
        )
        communicates = not system.replay_communication and not system.replay_only
        exchanges = Exchanges(workload, self.groups, communicates=communicates)
        library = library_of(paced_on or machine)
        self.collectives = CollectiveTables(machine, self.groups, self.customs, exchanges, library)
        programs: dict[int, str] = {}
        self._named_files: tuple[tuple[str, str], ...] = ()
        if machine.system.per_node_implementation is not None:
            from et_sim.machine.readers import read_programs

            programs, self._named_files = read_programs(machine.system.per_node_implementation)
        choice = CustomChoice(machine.system, programs)
        pool = getattr(memory, "pool", None)
        self.joint = JointRequests(self.groups, communicates=not system.replay_communication)
        rules = NodeRules(machine.system, compute, memory)
        self.missing_attributes = MissingAttributes(rules)
        self.lowest_rank = lowest_ranks(workload)  # of every template
        self.used_groups: list[list[str]] = []  # per template: canonical names
        ranks_of = np.bincount(workload.template_of_rank, minlength=len(workload.templates))
        prices = KernelPrices()

        def lower(stack: Stack) -> None:
            lowest = stack.share(self.lowest_rank)
            rank, places = int(lowest[0]), [head.source or workload.source for head in stack.heads]
            nodes = lower_nodes(stack, rules, prices, rank, places[0])
            self.missing_attributes.add(stack, rank, stack.share(ranks_of), places)
            self.streams.assign(nodes, stack.trace)
            if self.variants.change_times:
                for number, trace, rows in stack.parts():
                    self.variants.apply(nodes[rows], trace, number, int(self.lowest_rank[number]))
            used = lower_collectives(nodes, stack, lowest, self.groups, self.collectives, choice, places)
            self.joint.lower(nodes, stack, lowest, pool, used, places)
            self.used_groups[stack.number :] = used
            templates.put(nodes, stack)

        alike = [] if classes is None else classes[self.lowest_rank].tolist()
        if pool is not None:  # numbers groups that make requests together, template after template
            alike = list(range(len(workload.templates)))
        for_each_stack(workload.templates, lower, alike)
        self.variant_notices = self.variants.check_all_met()
        self.other_notices = [*self.streams.check_all_met(), *compute.notices()]
        self.templates, self.lane_first, self.nodes, self.children = templates.finish()
        self.kernels = prices.table()
        if system.overlap:
            longest = self.variants.longest
            self.slowing, self.slowdowns = slowing_of(self._parts(), len(self.nodes), system.overlap, longest)
        else:
            # Also of machines with other figures.
            self._occupations: dict[tuple[bool, bytes], tuple[Any, Any]] = {}
            self.slowing, self.slowdowns = self._occupation(self.collectives.held)
        self.tensors = _tensors(workload) if machine.system.track_local_mem else ()
        refuse_too_much_at_start(system.local_memory, self.tensors, "system configuration")
        ranks = np.arange(machine.network.ranks, dtype=np.int32)
        self.memory_server = memory.server_of_ranks(ranks) if memory else np.full_like(ranks, NO_SERVER)

    def _parts(self) -> list[TemplatePart]:
        """Return all templates except those of custom collectives, which follow them."""
        nodes = np.asarray(self.nodes)
        return [
            TemplatePart(trace, nodes[first : first + len(trace)], first)
            for trace, first in zip(
                self.workload.templates, self.templates["node_first"].tolist(), strict=False
            )
        ]

    def _occupation(self, held: Any) -> tuple[Any, Any]:
        """Return which nodes collectives slow, and by how much, by what each holds."""
        library = self.machine.system.library
        is_memory = library is not None and library.shares_memory
        key = is_memory, held.tobytes()
        known = self._occupations.get(key)
        if known is None:
            if len(self._occupations) == MOST_OCCUPATIONS:
                self._occupations.clear()
            known = self._occupations[key] = self._new_occupation(held, is_memory=is_memory)
        return known

    def _new_occupation(self, held: Any, *, is_memory: bool) -> tuple[Any, Any]:
        if self.kernels is None or not held.any():
            return occupation_of((), None, held)
        units = self.kernels.memory if is_memory else self.kernels.processors
        return occupation_of(self._parts(), units(len(self.nodes)), held)

    def on(self, machine: Machine) -> Lowering | None:
        """Return the lowering for a machine with other figures, which only the library reads; None where
        more than the paces of its collectives differ.
        """
        collectives = self.collectives.on(machine)
        if collectives is None:
            return None
        again, held = copy.copy(self), collectives.held
        again.machine, again.collectives = machine, collectives
        if not machine.system.overlap and not np.array_equal(held, self.collectives.held):
            again.slowing, again.slowdowns = again._occupation(held)
        return again

    def retimed(self, machine: Machine) -> Lowering | None:
        """Return the lowering for a machine that differs in the values of `time-factors` alone; None where
        not only durations follow from these.
        """
        variants = self.variants.with_factors(machine.system.time_factors)
        if variants is None or machine.system.overlap or machine.slow or self.joint.are_any:
            return None
        again = copy.copy(self)
        again.machine, again.variants, again.nodes = machine, variants, self.nodes.copy()
        for template, part in enumerate(again._parts()):
            if not variants.apply_again(part.nodes, part.trace, template, int(self.lowest_rank[template])):
                return None
        again.variant_notices = variants.check_all_met()
        return again

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Return the notices of all parts, each once."""
        collectives = self.collectives
        parts = (
            self.variant_notices,
            collectives.switches.notices,
            collectives.notices,
            self.other_notices,
            self.customs.notices,
        )
        return tuple(dict.fromkeys((*chain.from_iterable(parts), *self.missing_attributes.notices())))

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """Return the files of custom programs that were read: their paths and content hashes."""
        return tuple(dict.fromkeys((*self._named_files, *self.customs.inputs)))

    @property
    def start_together(self) -> bool:
        """Return whether all ranks run one program in step, whose collectives have all ranks as members."""
        return (
            self.machine.system.behaviour.are_programs_in_step
            and len(self.workload.templates) == 1
            and self.variants.start_ns is None
            and self.variants.are_even
            and not self.machine.slow
            and not any(name for name in self.used_groups[0])
        )


def with_paces(plan: LoweredPlan, lowering: Lowering) -> LoweredPlan:
    """Return a plan with the paces of a lowering that differs in nothing else."""
    programs, transfers = lowering.collectives.with_paces(plan.programs, plan.transfers)
    return replace(
        plan,
        programs=programs,
        transfers=transfers,
        slowing=lowering.slowing,
        slowdowns=lowering.slowdowns,
        library_choices=lowering.collectives.library_choices,
        notices=lowering.notices,
    )


def with_content(plan: LoweredPlan, lowering: Lowering) -> LoweredPlan:
    """Return a plan with the nodes of a lowering, whose collectives are at other places."""
    collectives = _numbered(lowering.collectives.collectives(), lowering.nodes)
    return replace(plan, nodes=lowering.nodes, collectives=collectives)


def build_plan(workload: Workload, machine: Machine) -> LoweredPlan:
    """Lower every rank of the workload onto the machine, one actor each."""
    return assemble(Lowering(workload, machine), Actors.one_per_rank(machine.network.ranks))


def assemble(lowering: Lowering, actors: Actors) -> LoweredPlan:
    """Return the plan of the actors' representatives."""
    workload, machine, system = lowering.workload, lowering.machine, lowering.machine.system
    channel_tables = ChannelTables(workload, lowering.endpoints, actors)
    # Channels of the actors come first, so that an actor's place in them is its channel_first.
    channel_first = channel_tables.add_actors()
    customs = lowering.customs.finish(channel_tables)
    channels, actor_channels = channel_tables.finish(rendezvous=system.rendezvous)
    set_windows(channels, system.library, system.local_mem_bw, rendezvous=system.rendezvous)
    member_tables = MemberTables(workload, actors, lowering.groups, lowering.used_groups)
    axes, orders, group_axes = lowering.collectives.axis_tables()
    groups, group_ranks = lowering.groups.tables(group_axes, lowering.collectives.queue_sets)
    members, actor_members, group_members = member_tables.finish(groups, len(group_ranks))
    programs = lowering.collectives.programs()
    actor_table = records.table(records.ACTOR, len(actors))
    actor_table["template"] = workload.template_of_rank[actors.representative]
    actor_table["rank"] = actors.representative
    actor_table["channel_first"] = channel_first
    actor_table["first_member"] = member_tables.usage_first[:-1]
    actor_table["memory_server"] = lowering.memory_server[actors.representative]
    actor_table["pace_first"] = lowering.variants.paces.first[actors.representative]
    if lowering.variants.start_ns is not None:
        actor_table["start_ns"] = lowering.variants.start_ns[actors.representative]
    sizes = lowering.templates["nodes"][actor_table["template"]]
    actor_table["node_first"] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    switches = switch_tables(
        lowering.collectives,
        lowering.groups,
        machine.network.grid,
        actors,
        group_members,
        len(members),
        axes["slot"],
    )
    pool = pool_tables(machine.memory.pool, workload.ranks, len(switches["switch_classes"]))
    joint_requests, first_joint = lowering.joint.tables()
    plan = LoweredPlan(
        ranks=workload.ranks,
        dimensions=len(machine.network.grid.dimensions),
        queues_per_dim=system.queues_per_dim,
        queue_order=_waiting_order(system),
        running_limit=-(-system.active_chunks // system.queues_per_dim),
        stream_policy=STREAM_POLICY[system.policy],
        actor_of_rank=actors.of_rank,
        templates=lowering.templates,
        lane_first=lowering.lane_first,
        lane_limits=lowering.streams.limits,
        slowing=lowering.slowing,
        slowdowns=lowering.slowdowns,
        nodes=lowering.nodes,
        paces=lowering.variants.paces.columns(),
        **asdict(slow_spans(lowering, actors.representative)),
        slow=machine.slow,
        children=lowering.children,
        actors=actor_table,
        actor_channels=actor_channels,
        channels=channels,
        collectives=_numbered(lowering.collectives.collectives(), lowering.nodes),
        chunk_plans=lowering.collectives.chunk_plans(),
        phases=lowering.collectives.phases(),
        **programs,
        bus=_bus(system, _most_bytes(programs)),
        customs=customs,
        **switches,
        axes=axes,
        orders=orders,
        groups=groups,
        group_names=tuple(lowering.groups.names),
        library_choices=lowering.collectives.library_choices,
        library_nodes=lowering.collectives.library_nodes,
        group_ranks=group_ranks,
        misplaced_programs=lowering.customs.are_misplaced,
        group_members=group_members,
        members=members,
        actor_members=actor_members,
        handshakes=int(channels["handshake"].max(initial=-1)) + 1,
        rendezvous=system.rendezvous,
        memory_servers=int(actor_table["memory_server"].max(initial=-1)) + 1,
        memory_ways=pool.ways,
        memory_hops=pool.hops,
        pool_units=pool.units,
        joint_requests=joint_requests,
        first_joint=first_joint,
        corrections=system.behaviour.corrections,
        notices=lowering.notices,
        is_folded=actors.is_folded,
        limits=actors.limits,
        link_classes=actors.link_classes if actors.is_folded else None,
        link_turns=actors.link_turns if actors.is_folded else None,
        version_1=_version_1_rules(lowering),
        latest=LONGEST_NS,
        kernels=lowering.kernels,
        has_rules=lowering.has_rules,
        stream_names=lowering.streams.names,
        tensors=lowering.tensors,
        used_groups=tuple(tuple(map(lowering.groups.used, names)) for names in lowering.used_groups),
    )
    if machine.memory.pool is not None:
        refuse_unequal_requests(plan, tuple(tier.name for tier in machine.memory.pool.tiers))
    return plan


def _grid_of_groups(machine: Machine) -> LogicalGrid | None:
    """Return the grid that groups are laid out on, or None if they are not laid out."""
    grid = machine.network.grid
    if machine.system.behaviour.corrects(Correction.GROUPS_BY_DIMENSION):
        return grid
    if grid.filled:
        raise MachineError(
            f"the last node of {grid.ranks:,} NPUs is partly filled, and groups do not run by dimension",
            place="network configuration",
            remedy="switch on the correction groups-by-dimension, or take nodes that are full",
        )
    return None


def _version_1_rules(lowering: Lowering) -> Version1Rules:
    system, has_levels = lowering.machine.system, bool(lowering.machine.network.levels)
    return Version1Rules(
        pairs_early=has_levels,
        starts_together=lowering.start_together,
        arrivals_by_sender=lowering.start_together and system.boost_mode and has_levels,
        top_priority=TOP_PRIORITY if system.behaviour.has_top_priority else NO_PRIORITY,
    )


def _waiting_order(system: System) -> WaitingOrder:
    if system.behaviour.wait_by_input and system.queue_order is QueueOrder.SMALLEST_FIRST:
        return WaitingOrder.SMALLEST_INPUT_FIRST
    return WAITING_ORDER[system.queue_order]


def _most_bytes(programs: dict[str, Any]) -> int:
    """Return the largest message of any collective."""
    trees = programs["trees"]
    columns = (programs["transfers"]["bytes"], trees["up_bytes"], trees["down_bytes"])
    return max(int(column.max(initial=0)) for column in columns)


def _numbered(collectives: Any, nodes: Any) -> Any:
    """Reserve sequence numbers for the most occurrences of each collective in a group of a program."""
    issued = nodes[nodes["action"] == records.Action.COLLECTIVE]
    most = np.zeros(len(collectives), np.int64)
    np.maximum.at(most, issued["detail"], issued["occurrence"].astype(np.int64) + 1)
    numbers = most * collectives["chunks"]
    collectives["first_sequence"] = np.cumsum(numbers) - numbers
    return collectives


def _bus(system: System, most_bytes: int) -> Any:
    """Return the shared memory bus as a table of one row, or of none."""
    if system.shared_bus is None:
        return records.table(records.BUS, 0)
    slowest = max(
        system.shared_bus.gap_per_byte * most_bytes, system.local_reduction_delay * (most_bytes // 100)
    )
    if slowest > LONGEST_NS:
        raise MachineError(
            f"a transfer of {format_bytes(most_bytes)} on the shared bus would take longer than "
            f"{format_ns(LONGEST_NS)}",
            place="system configuration",
            remedy='correct "G" (ns per byte) or "local-reduction-delay" (ns per 100 bytes)',
        )
    bus = records.table(records.BUS, 1)
    row = bus[0]
    row.latency_ns, row.overhead_ns = system.shared_bus.latency, system.shared_bus.overhead
    row.gap_ns, row.reduction_delay_ns = system.shared_bus.gap, system.local_reduction_delay
    row.gap_per_byte = np.float32(system.shared_bus.gap_per_byte)  # single precision, as in the reference
    return bus


def _check_rank_count(workload: Workload, ranks: int) -> None:
    if workload.ranks != ranks:
        raise TraceError(
            f"the workload has {workload.ranks} ranks, but the network connects {ranks} NPUs",
            place=workload.source,
            remedy="give one trace per NPU, or change npus_count in the network file",
        )


def _tensors(workload: Workload) -> tuple[TensorUses, ...]:
    return tuple(tensor_uses(trace, trace.source or workload.source) for trace in workload.templates)


MOST_NAMED = 3


def refuse_too_much_at_start(memory: LocalMemory | None, tensors: Sequence[TensorUses], place: str) -> None:
    """Refuse programs whose initial tensors do not fit into memory, if the run stops when it is full."""
    if memory is None or memory.when_full is not WhenFull.STOP:
        return
    for uses in tensors:
        sizes = given_from_the_start(uses)
        if sum(sizes.values()) <= memory.capacity_bytes:
            continue
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MOST_NAMED]
        named = ", ".join(f"{name[:40]!r} ({exact_bytes(sizes[name])})" for name in largest)
        raise MachineError(
            f'key "{CAPACITY}" is {memory.text}, and a rank holds '
            f"{exact_bytes(sum(sizes.values()))} from the start, in tensors that no node writes: "
            f"{named}{' and others' if len(sizes) > len(largest) else ''}",
            place=memory.place or place,
            remedy="correct it, or the sizes in the traces, or give --when-full report to see the run",
        )


def given_from_the_start(uses: TensorUses) -> dict[str, int]:
    """Return the bytes of the tensors that a program reads and never writes, by their first size."""
    is_written = np.zeros(len(uses.names), np.bool_)
    is_written[uses.tensor[uses.is_write]] = True
    read = ~is_written[uses.tensor]
    tensor, first = np.unique(uses.tensor[read], return_index=True)
    sizes = uses.bytes[read][first].tolist()
    return {uses.names[number]: size for number, size in zip(tensor.tolist(), sizes, strict=True)}
