"""Tables of ranks (nodes, actors, groups, jobs, memory) and of replicas that serve requests."""

from __future__ import annotations

from et_sim.tables.declaration import STRING, TEXT, WORD, Column, Table

OF_COMPUTE = "machines with the key `compute`"

TIMELINE = Table(
    name="timeline",
    about="one row for every executed node of every actor: actor by actor, by ascending node id",
    writer="et_sim.timeline.contents.nodes:timeline_content",
    columns=(
        Column(
            "actor",
            "int32",
            "the actor that ran the node",
            refers_to="actors",
        ),
        Column("node", "uint64", "node id in the trace"),
        Column("name", TEXT, "node name in the trace"),
        Column(
            "kind",
            WORD,
            "what the node does: `compute` (a kernel), `copy` (moves or fills memory of a device), "
            "`host` (an operator of the host), `gap` (nothing: the time between two things of a recording), "
            "`send`, `receive`, `memory_load`, `memory_store`, `metadata`, `invalid`, `storage`, `batch`, "
            "`checkpoint`, `unknown` (a type that has no name), `communication` (of no type), or a "
            "collective: `all_reduce`, `all_gather`, `all_to_all`, `reduce_scatter`, `broadcast`, "
            "`reduce`, `gather`, `scatter`, `barrier`, `reduce_scatter_block`",
        ),
        Column(
            "lane",
            WORD,
            "what it occupied: `cpu`, `compute`, `communication` or `receive`; with the "
            "correction `concurrent-communication`, also `send`, `memory` or `collective`; on a stream, "
            "what it would occupy without",
        ),
        Column("stream", TEXT + "?", "the stream that it ran on", only_of="machines with streams"),
        Column(
            "recorded_on",
            TEXT + "?",
            "the stream or thread that it was recorded on, such as `stream 7`, by the actor's first rank",
            only_of="traces with the attributes `stream` or `tid`",
        ),
        Column(
            "treatment",
            WORD,
            "where its time comes from: `modelled` from the machine, `replayed` from the trace, "
            "`defaulted` (replayed, but no duration is recorded: 1 ns), `instant`",
        ),
        Column("ready_ns", "int64", "when its last dependency completed"),
        Column("start_ns", "int64", "when it was issued"),
        Column("end_ns", "int64?", "when it completed; null if it never did"),
        Column("bytes", "int64", "payload as the trace gives it"),
        Column(
            "group",
            TEXT + "?",
            "communicator group of a collective, as the actor's first rank calls it (others may mean another "
            "one: `groups.arrow`); `all` is every rank",
        ),
        Column("sequence", "int64?", "number of a collective's first chunk within its group"),
        Column("peer", "int32?", "actor at the other end of a send or receive", refers_to="actors"),
        Column("tag", "int64?", "tag of a send or receive"),
        Column(
            "queued_ns",
            "int64?",
            "from the start of a collective until a queue admitted it: other communication of the same rank "
            "was before it",
        ),
        Column(
            "waiting_ns",
            "int64?",
            "after that, how long a send, receive or collective waited for another rank to begin; in the "
            "rest of its time bytes moved, or queued for a link; null if unknown, because it is "
            "replayed",
        ),
        Column(
            "moving_ns",
            "int64?",
            "how long bytes of it moved: of a collective, from the coming of its first member to the end of "
            "its last one; of a send or receive, from the end of its waiting; null as `waiting_ns`",
        ),
        Column("waits_for", "int32?", "an actor that came last, if it waited", refers_to="actors"),
        Column(
            "start_cause",
            WORD,
            "what let it start: `begin` (nothing to wait for), `dependency`, or `lane` (what it "
            "occupies became free)",
        ),
        Column("start_cause_node", "uint64?", "the node of the same actor that was waited for last"),
        Column("end_cause", WORD + "?", "what completed it: its `own` duration, or a `message`"),
        Column("end_cause_actor", "int32?", "the actor whose message completed it", refers_to="actors"),
        Column("end_cause_node", "uint64?", "the send that completed a receive"),
        Column(
            "compute_utilisation",
            "float64?",
            "share of the machine's peak rate that a kernel reaches (roofline)",
        ),
        Column("memory_utilisation", "float64?", "share of the local memory's bandwidth that a kernel uses"),
        Column("operational_intensity", "float64?", "operations of a kernel per byte"),
        Column("memory_bound", "bool?", "whether memory limits a kernel, and not its arithmetic"),
        Column(
            "timed_by",
            TEXT + "?",
            "what its time comes from: `replay` from the trace, or the [model](compute.md) of a kernel, "
            "such as `roofline`, or the label of its rule",
        ),
        Column(
            "bound",
            TEXT + "?",
            "what a kernel's time is mostly: `compute`, a level of memory, `launch`, `tiles` (work that "
            "whole waves of tiles waste), `places` (instructions for the places of strided numbers), "
            "`memory`, or `measured`",
        ),
        Column("launch_ns", "float64?", "what its launch takes", only_of=OF_COMPUTE),
        Column(
            "arithmetic_ns",
            "float64?",
            "what its arithmetic takes; after its launch, it takes the longer of this and `traffic_ns`",
            only_of=OF_COMPUTE,
        ),
        Column("traffic_ns", "float64?", "what its memory traffic takes", only_of=OF_COMPUTE),
        Column("peak", TEXT + "?", "the figure that sets its arithmetic: `peak of bf16`", only_of=OF_COMPUTE),
        Column(
            "efficiency", TEXT + "?", "and the figure for the share of it that is reached", only_of=OF_COMPUTE
        ),
        Column(
            "level", TEXT + "?", "the figure that sets its traffic: `bandwidth of HBM`", only_of=OF_COMPUTE
        ),
        Column(
            "memory_efficiency",
            TEXT + "?",
            "and the figure for the share of it that is reached",
            only_of=OF_COMPUTE,
        ),
    ),
)

ACTORS = Table(
    name="actors",
    about="one row for every actor, in ascending order",
    writer="et_sim.timeline.contents.ranks:actors_content",
    columns=(
        Column("actor", "int32", "number of the actor"),
        Column("ranks", STRING, "its ranks, such as `0-3,6`"),
        Column("rank_count", "int64", "how many they are"),
        Column("finish_ns", "int64?", "when its last node completed; null if that never happened"),
        Column("compute_ns", "int64", "time with a kernel running on the device, or a copy"),
        Column(
            "exposed_comm_ns",
            "int64",
            "time with a transfer under way that no kernel or copy hides: bytes of a send, receive or "
            "collective move, or queue for a link",
        ),
        Column("exposed_memory_ns", "int64", "time with a remote-memory request, and nothing of the above"),
        Column(
            "waiting_ns",
            "int64",
            "time in which a send, receive or collective waits for another rank to begin, and nothing of "
            "the above is under way",
        ),
        Column("host_ns", "int64", "time in which only the host works, or a recording shows a gap"),
        Column("idle_ns", "int64", "time before the finish with nothing under way"),
        Column("early_ns", "int64", "time from the finish to the makespan; the parts so far add up to it"),
        Column("transfer_ns", "int64", "time with a transfer under way"),
        Column("hidden_comm_ns", "int64", "time with a transfer and a kernel or copy under way"),
        Column("communication_ns", "int64", "time with a send, receive or collective under way"),
        Column(
            "comm_without_kernel_ns",
            "int64",
            "time with a send, receive or collective under way, moving bytes or waiting, and no kernel "
            "(copies are none): what HTA and other analysers of recordings call exposed communication",
        ),
        Column("memory_ns", "int64", "time with a remote-memory request under way"),
        Column("cpu_ns", "int64", "time with an operator of the host running, or a gap"),
        Column(
            "reference_exposed_ns",
            "uint64",
            "the reference's exposed communication: finish time less the sum of all kernel times. Like "
            "there, it is unsigned and wraps below zero",
        ),
        Column(
            "compute_bound_share",
            "float64?",
            "of the time of the kernels that the roofline timed, how much arithmetic limits, from 0 to 1",
        ),
        Column("compute_utilisation", "float64?", "their average use of peak compute"),
        Column("memory_utilisation", "float64?", "their average use of the local memory's bandwidth"),
        Column("operational_intensity", "float64?", "their average operations per byte"),
        Column(
            "peak_memory_bytes",
            "int64?",
            "the most local memory in use at any time; null if it is not tracked, or no node names a tensor",
        ),
    ),
)

JOBS = Table(
    name="jobs",
    about="one row for every job of a job file, in its order: where and when it ran, and what its neighbours "
    "cost it",
    writer="et_sim.timeline.contents.ranks:jobs_content",
    remedy="only runs of job files hold it",
    columns=(
        Column("job", TEXT, "its name"),
        Column("workload", STRING, "as the job file has it"),
        Column("ranks", "int32", "how many it has"),
        Column("npus", STRING, "those that its ranks run on, rank 0 first, such as `0-14/2`"),
        Column("placed", WORD, "how these were found: `given`, `packed`, `spread` or `random`"),
        Column("seed", "int64?", "of a random placement; null of others"),
        Column("start_ns", "int64", "when its ranks begin"),
        Column("finish_ns", "int64?", "when its last rank finished; null if one never did"),
        Column("duration_ns", "int64?", "from start to finish; null if it never finished"),
        Column("alone_ns", "int64?", "its duration without the other jobs; null without --isolated"),
        Column(
            "slowdown", "float64?", "`duration_ns / alone_ns`: 1 if the other jobs cost it nothing; or null"
        ),
    ),
)

GROUPS = Table(
    name="groups",
    about="what the groups of actors are to their ranks: one row for every group that an actor has "
    "collectives in, and group that any of its ranks means by it; actor by actor",
    writer="et_sim.timeline.contents.ranks:groups_content",
    columns=(
        Column("actor", "int32", "the actor", refers_to="actors"),
        Column("group", TEXT, "what the actor's first rank calls it, and the timeline"),
        Column("ranks", TEXT + "?", "the ranks of the actor that mean this group; null: all of them"),
        Column("name", TEXT, "what these ranks call it"),
        Column("members", TEXT + "?", "its ranks, such as `0-3,6` or `0-14/2`; null if in another column"),
        Column("size", "int64", "how many ranks are in it"),
        Column(
            "stride",
            "int64?",
            "distance of its ranks, where every rank is in a group of this size: that of rank r begins at "
            "r - (r // stride % size) * stride; null if in another column",
        ),
        Column(
            "rule",
            TEXT + "?",
            "the rule as in a workload manifest, where it has several axes or leaves ranks out: "
            '`{"size": [2, 4], "stride": [8, 64]}`; null if in another column',
        ),
    ),
)

MEMORY = Table(
    name="memory",
    about="one row for every change of local memory, actor by actor, in order of time",
    writer="et_sim.timeline.contents.ranks:memory_content",
    remedy='set "track-local-mem": 1 in the system file',
    columns=(
        Column("actor", "int32", "the actor whose memory it is", refers_to="actors"),
        Column("time_ns", "int64", "when it changes"),
        Column(
            "event",
            WORD,
            "`written`: a node that writes the tensor starts; `given`: the tensor was there from "
            "the start; `released`: the last node that reads it has completed",
        ),
        Column("tensor", TEXT, "name of the tensor in the trace"),
        Column(
            "class",
            WORD,
            "its purpose, by its name: `weights`, `gradients`, `optimizer`, `activations`, "
            "`temporary` or `unknown`",
        ),
        Column("node", "uint64?", "the node that writes it, or reads it last; null if it is given"),
        Column("delta_bytes", "int64", "its size; negative when it is released"),
        Column("alive_bytes", "int64", "memory in use once everything at this time has changed"),
    ),
)


REQUESTS = Table(
    name="requests",
    about="one row for every request, in the order of the file",
    writer="",
    remedy="et-sim serve writes it",
    columns=(
        Column("request", "int64", "its number, counted from 0"),
        Column("prompt_tokens", "int64", "tokens of the prompt"),
        Column("output_tokens", "int64", "tokens that were generated for it"),
        Column("arrival_ns", "int64", "the time of its arrival"),
        Column("scheduled_ns", "int64", "the begin of the first pass that processed it"),
        Column("first_token_ns", "int64", "the time of its first token"),
        Column("finish_ns", "int64", "the time of its last token"),
        Column("ttft_ns", "int64", "time to first token: from arrival to the first token"),
        Column(
            "tpot_ns",
            "int64?",
            "the mean time of an output token after the first, in whole ns; null if there is one token",
        ),
        Column("e2e_ns", "int64", "from arrival to the last token"),
        Column("replica", "int32", "the replica that processed its prompt"),
        Column("decode_replica", "int32?", "the replica to which its cache moved; null if it stayed"),
        Column("transfer_ns", "int64?", "the duration of that transfer; null if it stayed"),
        Column("preemptions", "int32", "how often it lost its cache, and was computed again"),
    ),
)

ITERATIONS = Table(
    name="iterations",
    about="one row for every pass of a replica, in the order in which they began",
    writer="",
    remedy="et-sim serve writes it",
    columns=(
        Column("replica", "int32", "the replica"),
        Column("pool", WORD, "the work of its pool: `both`, `prefill` or `decode`"),
        Column("start_ns", "int64", "the time of its start"),
        Column("end_ns", "int64", "the time of its end"),
        Column("sequences", "int32", "the number of sequences in it"),
        Column("prefill_tokens", "int64", "tokens of prompts, or of sequences that are computed again"),
        Column("decode_tokens", "int64", "single tokens of sequences whose tokens before are cached"),
        Column("context_tokens", "int64", "tokens that were cached before, summed over its sequences"),
        Column("cache_bytes", "int64", "bytes in allocated blocks, on the rank that holds most"),
        Column("waiting", "int32", "requests that waited for the replica at its begin"),
    ),
)
