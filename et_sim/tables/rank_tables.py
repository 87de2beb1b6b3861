"""Tables of ranks (nodes, actors, groups, jobs, memory) and of replicas that serve requests."""

from __future__ import annotations

from et_sim.tables.declaration import Table, columns

TIMELINE = Table(
    name="timeline",
    about="one row for every executed node of every actor: actor by actor, by ascending node id",
    writer="et_sim.timeline.contents.nodes:timeline_content",
    columns=columns("""
        actor int32 -> actors: the actor that ran the node
        node uint64: node id in the trace
        name text: node name in the trace
        kind word: what the node does: `compute` (a kernel), `copy` (moves or fills memory of a device),
            `host` (an operator of the host), `gap` (nothing: the time between two things of a recording),
            `send`, `receive`, `memory_load`, `memory_store`, `metadata`, `invalid`, `storage`, `batch`,
            `checkpoint`, `unknown` (a type that has no name), `communication` (of no type), or a collective:
            `all_reduce`, `all_gather`, `all_to_all`, `reduce_scatter`, `broadcast`, `reduce`, `gather`,
            `scatter`, `barrier`, `reduce_scatter_block`
        lane word: what it occupied: `cpu`, `compute`, `communication` or `receive`; with the correction
            `concurrent-communication`, also `send`, `memory` or `collective`; on a stream, what it would
            occupy without
        stream text? (only of machines with streams): the stream that it ran on
        recorded_on text? (only of traces with the attributes `stream` or `tid`): the stream or thread that it
            was recorded on, such as `stream 7`, by the actor's first rank
        treatment word: where its time comes from: `modelled` from the machine, `replayed` from the trace,
            `defaulted` (replayed, but no duration is recorded: 1 ns), `instant`
        ready_ns int64: when its last dependency completed
        start_ns int64: when it was issued
        end_ns int64?: when it completed; null if it never did
        bytes int64: payload as the trace gives it
        group text?: communicator group of a collective, as the actor's first rank calls it (others may mean
            another one: `groups.arrow`); `all` is every rank
        sequence int64?: number of a collective's first chunk within its group
        peer int32? -> actors: actor at the other end of a send or receive
        tag int64?: tag of a send or receive
        queued_ns int64?: from the start of a collective until a queue admitted it: other communication of the
            same rank was before it
        waiting_ns int64?: after that, how long a send, receive or collective waited for another rank to
            begin; in the rest of its time bytes moved, or queued for a link; null if unknown, because it is
            replayed
        moving_ns int64?: how long bytes of it moved: of a collective, from the coming of its first member to
            the end of its last one; of a send or receive, from the end of its waiting; null as `waiting_ns`
        waits_for int32? -> actors: an actor that came last, if it waited
        start_cause word: what let it start: `begin` (nothing to wait for), `dependency`, or `lane` (what it
            occupies became free)
        start_cause_node uint64?: the node of the same actor that was waited for last
        end_cause word?: what completed it: its `own` duration, or a `message`
        end_cause_actor int32? -> actors: the actor whose message completed it
        end_cause_node uint64?: the send that completed a receive
        compute_utilisation float64?: share of the machine's peak rate that a kernel reaches (roofline)
        memory_utilisation float64?: share of the local memory's bandwidth that a kernel uses
        operational_intensity float64?: operations of a kernel per byte
        memory_bound bool?: whether memory limits a kernel, and not its arithmetic
        timed_by text?: what its time comes from: `replay` from the trace, or the [model](compute.md) of a
            kernel, such as `roofline`, or the label of its rule
        bound text?: what a kernel's time is mostly: `compute`, a level of memory, `launch`, `tiles` (work
            that whole waves of tiles waste), `places` (instructions for the places of strided numbers),
            `memory`, or `measured`
        launch_ns float64? (only of machines with the key `compute`): what its launch takes
        arithmetic_ns float64? (only of machines with the key `compute`): what its arithmetic takes; after its
            launch, it takes the longer of this and `traffic_ns`
        traffic_ns float64? (only of machines with the key `compute`): what its memory traffic takes
        peak text? (only of machines with the key `compute`): the figure that sets its arithmetic: `peak of
            bf16`
        efficiency text? (only of machines with the key `compute`): and the figure for the share of it that is
            reached
        level text? (only of machines with the key `compute`): the figure that sets its traffic: `bandwidth of
            HBM`
        memory_efficiency text? (only of machines with the key `compute`): and the figure for the share of it
            that is reached
    """),
)

ACTORS = Table(
    name="actors",
    about="one row for every actor, in ascending order",
    writer="et_sim.timeline.contents.ranks:actors_content",
    columns=columns("""
        actor int32: number of the actor
        ranks string: its ranks, such as `0-3,6`
        rank_count int64: how many they are
        finish_ns int64?: when its last node completed; null if that never happened
        compute_ns int64: time with a kernel running on the device, or a copy
        exposed_comm_ns int64: time with a transfer under way that no kernel or copy hides: bytes of a send,
            receive or collective move, or queue for a link
        exposed_memory_ns int64: time with a remote-memory request, and nothing of the above
        waiting_ns int64: time in which a send, receive or collective waits for another rank to begin, and
            nothing of the above is under way
        host_ns int64: time in which only the host works, or a recording shows a gap
        idle_ns int64: time before the finish with nothing under way
        early_ns int64: time from the finish to the makespan; the parts so far add up to it
        transfer_ns int64: time with a transfer under way
        hidden_comm_ns int64: time with a transfer and a kernel or copy under way
        communication_ns int64: time with a send, receive or collective under way
        comm_without_kernel_ns int64: time with a send, receive or collective under way, moving bytes or
            waiting, and no kernel (copies are none): what HTA and other analysers of recordings call exposed
            communication
        memory_ns int64: time with a remote-memory request under way
        cpu_ns int64: time with an operator of the host running, or a gap
        reference_exposed_ns uint64: the reference's exposed communication: finish time less the sum of all
            kernel times. Like there, it is unsigned and wraps below zero
        compute_bound_share float64?: of the time of the kernels that the roofline timed, how much arithmetic
            limits, from 0 to 1
        compute_utilisation float64?: their average use of peak compute
        memory_utilisation float64?: their average use of the local memory's bandwidth
        operational_intensity float64?: their average operations per byte
        peak_memory_bytes int64?: the most local memory in use at any time; null if it is not tracked, or no
            node names a tensor
    """),
)

JOBS = Table(
    name="jobs",
    about="one row for every job of a job file, in its order: where and when it ran, and what its neighbours "
    "cost it",
    writer="et_sim.timeline.contents.ranks:jobs_content",
    remedy="only runs of job files hold it",
    columns=columns("""
        job text: its name
        workload string: as the job file has it
        ranks int32: how many it has
        npus string: those that its ranks run on, rank 0 first, such as `0-14/2`
        placed word: how these were found: `given`, `packed`, `spread` or `random`
        seed int64?: of a random placement; null of others
        start_ns int64: when its ranks begin
        finish_ns int64?: when its last rank finished; null if one never did
        duration_ns int64?: from start to finish; null if it never finished
        alone_ns int64?: its duration without the other jobs; null without --isolated
        slowdown float64?: `duration_ns / alone_ns`: 1 if the other jobs cost it nothing; or null
    """),
)

GROUPS = Table(
    name="groups",
    about="what the groups of actors are to their ranks: one row for every group that an actor has "
    "collectives in, and group that any of its ranks means by it; actor by actor",
    writer="et_sim.timeline.contents.ranks:groups_content",
    columns=columns("""
        actor int32 -> actors: the actor
        group text: what the actor's first rank calls it, and the timeline
        ranks text?: the ranks of the actor that mean this group; null: all of them
        name text: what these ranks call it
        members text?: its ranks, such as `0-3,6` or `0-14/2`; null if in another column
        size int64: how many ranks are in it
        stride int64?: distance of its ranks, where every rank is in a group of this size: that of rank r
            begins at r - (r // stride % size) * stride; null if in another column
        rule text?: the rule as in a workload manifest, where it has several axes or leaves ranks out:
            `{"size": [2, 4], "stride": [8, 64]}`; null if in another column
    """),
)

MEMORY = Table(
    name="memory",
    about="one row for every change of local memory, actor by actor, in order of time",
    writer="et_sim.timeline.contents.ranks:memory_content",
    remedy='set "track-local-mem": 1 in the system file',
    columns=columns("""
        actor int32 -> actors: the actor whose memory it is
        time_ns int64: when it changes
        event word: `written`: a node that writes the tensor starts; `given`: the tensor was there from the
            start; `released`: the last node that reads it has completed
        tensor text: name of the tensor in the trace
        class word: its purpose, by its name: `weights`, `gradients`, `optimizer`, `activations`, `temporary`
            or `unknown`
        node uint64?: the node that writes it, or reads it last; null if it is given
        delta_bytes int64: its size; negative when it is released
        alive_bytes int64: memory in use once everything at this time has changed
    """),
)


REQUESTS = Table(
    name="requests",
    about="one row for every request, in the order of the file",
    writer="",
    remedy="et-sim serve writes it",
    columns=columns("""
        request int64: its number, counted from 0
        prompt_tokens int64: tokens of the prompt
        output_tokens int64: tokens that were generated for it
        arrival_ns int64: the time of its arrival
        scheduled_ns int64: the begin of the first pass that processed it
        first_token_ns int64: the time of its first token
        finish_ns int64: the time of its last token
        ttft_ns int64: time to first token: from arrival to the first token
        tpot_ns int64?: the mean time of an output token after the first, in whole ns; null if there is one
            token
        e2e_ns int64: from arrival to the last token
        replica int32: the replica that processed its prompt
        decode_replica int32?: the replica to which its cache moved; null if it stayed
        transfer_ns int64?: the duration of that transfer; null if it stayed
        preemptions int32: how often it lost its cache, and was computed again
        hit_tokens int64: tokens of its prompt that were cached when it began
        loaded_tokens int64: its tokens that were loaded from remote memory, each time that it began
        model word: the model that served it
    """),
)

ITERATIONS = Table(
    name="iterations",
    about="one row for every pass of a replica, in the order in which they began",
    writer="",
    remedy="et-sim serve writes it",
    columns=columns("""
        replica int32: the replica
        pool word: the work of its pool: `both`, `prefill` or `decode`
        start_ns int64: the time of its start
        end_ns int64: the time of its end
        sequences int32: the number of sequences in it
        prefill_tokens int64: tokens of prompts, or of sequences that are computed again
        decode_tokens int64: single tokens of sequences whose tokens before are cached
        context_tokens int64: tokens that were cached before, summed over its sequences
        cache_bytes int64: bytes in allocated blocks, on the rank that holds most
        waiting int32: requests that waited for the replica at its begin
        model word: the model that it computed
    """),
)
