"""Every table of a run. A new table is one entry here, and the function that fills it."""

from __future__ import annotations

from et_sim.errors import UsageError, did_you_mean
from et_sim.tables.declaration import STRING, TEXT, WORD, Column, Table

MANIFEST, SUMMARY, STALL = "run.json", "summary.json", "stall.json"
# Goes up whenever a column is renamed, removed or changes its meaning: only this version is read.
VERSION = 5

OF_COMPUTE = "machines with the key `compute`"

TIMELINE = Table(
    name="timeline",
    about="one row for every executed node of every actor: actor by actor, by ascending node id",
    writer="et_sim.timeline.contents.timeline:timeline_content",
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
        Column("stream", TEXT, "the stream that it ran on", only_of="machines with streams"),
        Column(
            "treatment",
            WORD,
            "where its time comes from: `modelled` from the machine, `replayed` from the trace, "
            "`defaulted` (replayed, but no duration is recorded: 1 ns), `instant`",
        ),
        Column("ready_ns", "int64", "when its last dependency completed"),
        Column("start_ns", "int64", "when it was issued"),
        Column("end_ns", "int64", "when it completed; null if it never did"),
        Column("bytes", "int64", "payload as the trace gives it"),
        Column(
            "group",
            TEXT,
            "communicator group of a collective, as the actor's first rank calls it (others may mean another "
            "one: `groups.arrow`); `all` is every rank",
        ),
        Column("sequence", "int64", "number of a collective's first chunk within its group"),
        Column("peer", "int32", "actor at the other end of a send or receive", refers_to="actors"),
        Column("tag", "int64", "tag of a send or receive"),
        Column(
            "queued_ns",
            "int64",
            "from the start of a collective until a queue let it in: other communication of the same rank "
            "was before it",
        ),
        Column(
            "waiting_ns",
            "int64",
            "after that, how long a send, receive or collective waited for another rank to begin; in the "
            "rest of its time bytes moved, or queued for a link; null where nobody can tell, because it is "
            "replayed",
        ),
        Column("waits_for", "int32", "an actor that came last, if it waited", refers_to="actors"),
        Column(
            "start_cause",
            WORD,
            "what let it start: `begin` (nothing to wait for), `dependency`, or `lane` (what it "
            "occupies became free)",
        ),
        Column("start_cause_node", "uint64", "the node of the same actor that was waited for last"),
        Column("end_cause", WORD, "what completed it: its `own` duration, or a `message`"),
        Column("end_cause_actor", "int32", "the actor whose message completed it", refers_to="actors"),
        Column("end_cause_node", "uint64", "the send that completed a receive"),
        Column(
            "compute_utilisation",
            "float64",
            "share of the machine's peak rate that a kernel reaches (roofline)",
        ),
        Column("memory_utilisation", "float64", "share of the local memory's bandwidth that a kernel uses"),
        Column("operational_intensity", "float64", "operations of a kernel per byte"),
        Column("memory_bound", "bool", "whether memory limits a kernel, and not its arithmetic"),
        Column(
            "timed_by",
            TEXT,
            "what its time comes from: `replay` from the trace, or the [model](compute.md) of a kernel, "
            "such as `roofline`, or the label of its rule",
        ),
        Column(
            "bound",
            TEXT,
            "what a kernel's time is mostly: `compute`, a level of memory, `launch`, `tiles` (work that "
            "whole waves of tiles waste), `memory`, or `measured`",
        ),
        Column("launch_ns", "float64", "what its launch takes", only_of=OF_COMPUTE),
        Column(
            "arithmetic_ns",
            "float64",
            "what its arithmetic takes; after its launch, it takes the longer of this and `traffic_ns`",
            only_of=OF_COMPUTE,
        ),
        Column("traffic_ns", "float64", "what its memory traffic takes", only_of=OF_COMPUTE),
        Column("peak", TEXT, "the figure that sets its arithmetic: `peak of bf16`", only_of=OF_COMPUTE),
        Column("efficiency", TEXT, "and the one that says how much of it is reached", only_of=OF_COMPUTE),
        Column("level", TEXT, "the figure that sets its traffic: `bandwidth of HBM`", only_of=OF_COMPUTE),
        Column(
            "memory_efficiency", TEXT, "and the one that says how much of it is reached", only_of=OF_COMPUTE
        ),
    ),
)
ACTORS = Table(
    name="actors",
    about="one row for every actor, in ascending order",
    writer="et_sim.timeline.contents.actors:actors_content",
    columns=(
        Column("actor", "int32", "number of the actor"),
        Column("ranks", STRING, "its ranks, such as `0-3,6`"),
        Column("rank_count", "int64", "how many they are"),
        Column("finish_ns", "int64", "when its last node completed; null if that never happened"),
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
            "float64",
            "of the time of the kernels that the roofline timed, how much arithmetic limits, from 0 to 1",
        ),
        Column("compute_utilisation", "float64", "their average use of peak compute"),
        Column("memory_utilisation", "float64", "their average use of the local memory's bandwidth"),
        Column("operational_intensity", "float64", "their average operations per byte"),
        Column(
            "peak_memory_bytes",
            "int64",
            "the most local memory in use at any time; null if it is not tracked",
        ),
    ),
)
GROUPS = Table(
    name="groups",
    about="what the groups of actors are to their ranks: one row for every group that an actor has "
    "collectives in, and group that any of its ranks means by it; actor by actor",
    writer="et_sim.timeline.contents.groups:groups_content",
    columns=(
        Column("actor", "int32", "the actor", refers_to="actors"),
        Column("group", TEXT, "what the actor's first rank calls it, and the timeline"),
        Column("ranks", TEXT, "the ranks of the actor that mean this group; null: all of them"),
        Column("name", TEXT, "what these ranks call it"),
        Column("members", TEXT, "its ranks, such as `0-3,6` or `0-14/2`; null if another column says"),
        Column("size", "int64", "how many ranks are in it"),
        Column(
            "stride",
            "int64",
            "distance of its ranks, where every rank is in a group of this size: that of rank r begins at "
            "r - (r // stride % size) * stride; null if another column says",
        ),
        Column(
            "rule",
            TEXT,
            "the rule as in a workload manifest, where it has several axes or leaves ranks out: "
            '`{"size": [2, 4], "stride": [8, 64]}`; null if another column says',
        ),
    ),
)
PEERS = Table(
    name="peers",
    about="whom the ranks of actors send to and receive from: one row for every send and receive of an "
    "actor, and distance at which any of its ranks have their peer; actor by actor",
    writer="et_sim.timeline.contents.peers:peers_content",
    remedy="folded runs with sends hold it; in an unfolded run, `peer` of the timeline is the rank",
    columns=(
        Column("actor", "int32", "the actor", refers_to="actors"),
        Column("node", "uint64", "the send or receive"),
        Column("ranks", TEXT, "the ranks of the actor whose peer is at this distance; null: all of them"),
        Column("distance", "int64", "the peer of rank r is r + distance, modulo the number of ranks"),
    ),
)
PHASES_OF_LAYERS = ("forward", "input gradient", "weight gradient")
LAYERS = Table(
    name="layers",
    about="one row for every layer of a layer file, with figures of rank 0",
    writer="et_sim.timeline.contents.layers:layers_content",
    remedy="only runs of layer files hold it",
    columns=(
        Column("layer", TEXT, "name of the layer"),
        *(
            Column(f"{phase.replace(' ', '_')}_{figure}_ns", "int64", f"{phase}: {meaning}")
            for figure, meaning in (
                ("compute", "time of its computations"),
                ("exposed", "time for which the training loop really waited for its communication"),
                ("total", "from issue to completion of its communication, update time included, summed"),
            )
            for phase in PHASES_OF_LAYERS
        ),
    ),
)
PHASES = Table(
    name="phases",
    about="one row for every chunk of every collective in every phase, in the order in which phases ended",
    writer="et_sim.timeline.contents.phases:phases_content",
    detail="phases",
    columns=(
        Column("actor", "int32", "the class of identical ranks", refers_to="actors"),
        Column("node", "uint64", "the collective"),
        Column("chunk", "int32", "number of the chunk within the collective"),
        Column("phase", "int32", "number of the phase of this chunk"),
        Column("dimension", "int32", "of the network, whose queues it uses"),
        Column("operation", WORD, "what the phase does"),
        Column("bytes", "int64", "of the chunk, per member, in this phase"),
        Column("queued_ns", "int64", "when the chunk joined the queue of the phase"),
        Column("start_ns", "int64", "when it was let in"),
        Column("end_ns", "int64", "when the phase was over"),
        Column("messages", "int32", "how many it received"),
        Column("message_wait_ns", "int64", "from posting their receives to their arrival, summed"),
        Column("layer", "int32", "of the layer file, counted from 0", only_of="layer files"),
        Column(
            "layer_phase", WORD, "`forward`, `input gradient` or `weight gradient`", only_of="layer files"
        ),
    ),
)
MESSAGES = Table(
    name="messages",
    about="one row for every message that an actor sends: on the analytical model in the order in which they "
    "set out, else in the order of arrival",
    writer="et_sim.timeline.contents.messages:messages_content",
    detail="messages",
    columns=(
        Column(
            "actor",
            "int32",
            "the class of identical ranks that sends it; of `from_switch`, that gets it; of "
            "`between_switches`, one of those below both",
            refers_to="actors",
        ),
        Column(
            "node",
            "uint64",
            "the send or collective; of a request, the receive or collective that it is made for; null where "
            "a switch sends",
        ),
        Column(
            "kind",
            WORD,
            "`send` (of the trace), `collective`, `custom` (of a custom collective), "
            "`request`: with rendezvous, the 8 KiB that ask for another message; where switches reduce, "
            "`to_switch`, `from_switch` and `between_switches`",
        ),
        Column("peer", "int32", "the class of the rank that it goes to; null: a switch", refers_to="actors"),
        Column("chunk", "int32", "number of the chunk within the collective; null for sends"),
        Column("phase", "int32", "number of the phase of this chunk; null for sends"),
        Column(
            "step",
            "int32",
            "its number among those that the sender sends in the phase; in a tree, 0 or 1 towards the root, "
            "from the left or right child, 2 or 3 from it, to that child; in a custom collective, the row "
            "of the send in the program; null for sends",
        ),
        Column(
            "dimension",
            "int32",
            "the lowest dimension in which its ends differ; with a network file of 1.0, the "
            "highest level; null for a message to oneself",
        ),
        Column("bytes", "int64", "size of the message"),
        Column("ready_ns", "int64", "when its sender was ready to send it"),
        Column(
            "sent_ns",
            "int64",
            "when it was given to the network: later only with rendezvous, once it was asked for",
        ),
        Column("start_ns", "int64", "when the first link took it; on the analytical model, `sent_ns`"),
        Column("left_ns", "int64", "when its last byte had left the sender"),
        Column("arrived_ns", "int64", "when its last byte had arrived"),
        Column(
            "link_wait_ns",
            "int64",
            "how long it waited for links that carried others, on all of its way, or took longer because it "
            "shared them; null on the analytical model",
        ),
    ),
)
LINKS = Table(
    name="links",
    about="one row for every link and slice of time in which anything happens on it, link by link; there are "
    "at most 128 slices, however long the run is: when it outlasts them, neighbours are merged",
    writer="et_sim.timeline.contents.links:links_content",
    detail="links",
    columns=(
        Column(
            "actor",
            "int32",
            "the class of identical ranks that has the link; each of them has one like it; null for links "
            "of a graph between devices that are no NPUs",
            refers_to="actors",
        ),
        Column("dimension", "int32", "of the network; with a network file of 1.0, the level"),
        Column(
            "link",
            TEXT,
            "which of the rank's links: `clockwise`, `anticlockwise`, `to the switch`, `from the "
            "switch`, `3 further on`; on the analytical model, `all it sends`; named as the actor's first "
            "rank has it: exchanges in pairs go ahead from one rank and back from the next",
        ),
        Column(
            "tier",
            TEXT,
            "links of one sort: those of a dimension or level, or of a graph those that lead from one row of "
            "devices to another, such as `leaf to spine`",
        ),
        Column("start_ns", "int64", "when the slice begins; all slices are equally long"),
        Column(
            "end_ns",
            "int64",
            "when it ends: with the run at the latest, but for acknowledgements that come after it",
        ),
        Column(
            "busy_ns",
            "int64",
            "how long messages were serialised in the slice; on the analytical model, summed over messages, "
            "which may overlap: more than the slice is possible",
        ),
        Column(
            "bytes",
            "int64",
            "that it carried in the slice: those of a message are spread over the time it is serialised",
        ),
        Column("messages", "int64", "how many began in it, requests included"),
        Column(
            "wait_ns",
            "int64",
            "how long messages waited for the link in the slice, summed; of messages that share it, all but "
            "one count as waiting; null on the analytical model",
        ),
        Column(
            "longest_wait_ns",
            "int64",
            "the longest that a message that began in the slice had waited, or that one that ended in it was "
            "held up by sharing the link; null on the analytical model",
        ),
        Column(
            "most_waiting",
            "int64",
            "the most messages that waited for the link at a time; null on the analytical model",
        ),
        Column(
            "mean_at_once",
            "float64",
            "how many messages were on the link or waited for it at a time, on average over the slice",
        ),
        Column("most_at_once", "int64", "the most of them at a time; null on the analytical model"),
    ),
)
RESOURCES = Table(
    name="resources",
    about="one row for every link, in the order of their numbers; on the analytical model, for all that an "
    "actor sends along a dimension",
    writer="et_sim.timeline.contents.resources:resources_content",
    remedy="simulate with --detail links, ports or path",
    columns=(
        Column("resource", "int32", "its number, which path.arrow refers to"),
        Column(
            "actor",
            "int32",
            "the class of identical ranks that has it, or others like it; null for links of other devices",
            refers_to="actors",
        ),
        Column("dimension", "int32", "of the network; with a network file of 1.0, the level"),
        Column("link", TEXT, "which of the rank's links, as in `links.arrow`"),
        Column("links", "int32", "how many there are like it, itself included: all tables show one of them"),
        Column("tier", TEXT, "links of one sort, as in `links.arrow`"),
        Column("bytes_per_ns", "float64", "its bandwidth; null where there is no link, but all that is sent"),
    ),
)
PORTS = Table(
    name="ports",
    about="one row for every link, in the order of their numbers: what packets met at its sending end",
    writer="et_sim.timeline.contents.ports:ports_content",
    remedy="simulate with --model packet, on a network without credits",
    columns=(
        Column("link", TEXT, "its name, as in `links.arrow`"),
        Column("tier", TEXT, "links of one sort, as in `links.arrow`"),
        Column("packets", "int64", "that it has sent: with data, acknowledgements and pauses"),
        Column("bytes", "int64", "that it has sent, headers included"),
        Column("busy_ns", "int64", "how long it was sending"),
        Column("deepest_bytes", "int64", "most bytes of packets that waited for it in a device"),
        Column("deepest_at_ns", "int64", "when that was first; null: none ever waited"),
        Column("pauses", "int64", "how often the other end told it to pause"),
        Column("paused_ns", "int64", "how long it was to"),
        Column("marked", "int64", "packets that were marked when they left its queue (ECN)"),
        Column("lost", "int64", "packets that its device had no room for"),
    ),
)
QUEUES = Table(
    name="queues",
    about="one row for every link and slice of time in which anything happens at its sending end, link by "
    "link; at most 128 slices, however long the run is: when it outlasts them, neighbours are merged",
    writer="et_sim.timeline.contents.queues:queues_content",
    detail="ports",
    columns=(
        Column("resource", "int32", "the number of the link in `resources.arrow`"),
        Column("link", TEXT, "its name, as in `links.arrow`"),
        Column("tier", TEXT, "links of one sort, as in `links.arrow`"),
        Column("start_ns", "int64", "when the slice begins; all slices are equally long"),
        Column(
            "end_ns",
            "int64",
            "when it ends: with the run at the latest, but for acknowledgements that come after it",
        ),
        Column(
            "mean_bytes",
            "float64",
            "bytes of packets that waited for the link in a device, on average over the slice; what NPUs "
            "have to send of their own does not count. On a network with credits: bytes that have a place in "
            "the buffer at the other end, from when they set out",
        ),
        Column(
            "deepest_bytes",
            "int64",
            "the most of them at a time; a packet that goes on at once counts, for no time",
        ),
        Column(
            "most_messages",
            "int64",
            "messages that had set out and not arrived, and whose way goes over the link: the most at a "
            "time; null on a network with credits",
        ),
        Column("lost", "int64", "packets that its device had no room for"),
        Column("marked", "int64", "packets that were marked when they left its queue (ECN)"),
        Column("pauses", "int64", "how often it was told to pause"),
        Column("paused_ns", "int64", "how long it was to, in whole nanoseconds"),
    ),
)
PAUSES = Table(
    name="pauses",
    about="one row for every pause of a port, in the order in which they ended; then those that never did",
    writer="et_sim.timeline.contents.queues:pauses_content",
    detail="ports",
    columns=(
        Column(
            "link", TEXT, "the link whose sending end was to wait: the device that it leads to asked for it"
        ),
        Column(
            "egress",
            TEXT,
            "the link of that device for which most of what had come over `link` waited then: the cause",
        ),
        Column("asked_ns", "int64", "when the device asked"),
        Column("begin_ns", "int64", "when the sending end heard of it, and waited"),
        Column("end_ns", "int64", "when it heard that it may go on; null: never"),
        Column("egress_bytes", "int64", "bytes that had come over `link` and waited for `egress` then"),
        Column("egress_depth", "int64", "all bytes that waited for `egress` at `asked_ns`"),
    ),
)
FLOWS = Table(
    name="flows",
    about="one row for every message that packets carried, in the order in which they arrived",
    writer="et_sim.timeline.contents.queues:flows_content",
    detail="ports",
    columns=(
        Column("source", "int32", "the rank that sends it"),
        Column("target", "int32", "the rank that it goes to"),
        Column("bytes", "int64", "size of the message"),
        Column("begin_ns", "int64", "when it was given to the network"),
        Column("left_ns", "int64", "when its last byte had left the sender for the first time"),
        Column(
            "arrived_ns",
            "int64",
            "when it was there, or, with completion by acknowledgement, when its last one was back",
        ),
        Column("bytes_per_ns", "float64", "its mean rate: bytes by the time from `begin_ns` to `arrived_ns`"),
        Column("packets", "int32", "with data that came for it, those sent again included"),
        Column("sent_again", "int32", "packets that were sent again"),
        Column("timeouts", "int32", "how often its sender waited for an acknowledgement in vain"),
        Column(
            "window_ns",
            "int64",
            "how long it had something to send that its window, or its connection's, held back",
        ),
        Column(
            "rate_ns",
            "int64",
            "how long its rate held it back, which does not count as the window's; with TCP, 0",
        ),
        Column("paused_ns", "int64", "how long its first port was paused from `begin_ns` to `arrived_ns`"),
        Column(
            "mean_queue_ns",
            "float64",
            "how long a packet of it waited on its way, on average; with TCP, at its host, too",
        ),
        Column("last_queue_ns", "int64", "how long the last packet that came had waited"),
        Column(
            "way", STRING, "the links on its way, by their numbers in `resources.arrow`, with spaces between"
        ),
    ),
)
MEMORY = Table(
    name="memory",
    about="one row for every change of local memory, actor by actor, in order of time",
    writer="et_sim.timeline.contents.memory:memory_content",
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
            "what it is for, as its name says: `weights`, `gradients`, `optimizer`, `activations`, "
            "`temporary` or `unknown`",
        ),
        Column("node", "uint64", "the node that writes it, or reads it last; null if it is given"),
        Column("delta_bytes", "int64", "its size; negative when it is released"),
        Column("alive_bytes", "int64", "memory in use once everything at this time has changed"),
    ),
)
PATH = Table(
    name="path",
    about="one row for every causal event, each after those that it needs",
    writer="et_sim.timeline.contents.path:path_content",
    detail="path",
    columns=(
        Column(
            "critical_parent",
            "int64",
            "row of the event that came last of those that it needs; null if it needs none",
            refers_to="path",
        ),
        Column(
            "other_parent", "int64", "row of another event that it needs, if there is one", refers_to="path"
        ),
        Column("start_ns", "int64", "when all that it needs had come"),
        Column("end_ns", "int64", "when it came"),
        Column("kind", WORD, "how the time in between was spent, or what came together"),
        Column(
            "actor",
            "int32",
            "the actor whose work it is; null if it is no single actor's",
            refers_to="actors",
        ),
        Column("node", "uint64", "the node that the work belongs to"),
        Column("link", TEXT, "of `latency` and `serialisation`: the class of links, such as `dimension 0`"),
        Column(
            "resource",
            "int32",
            "number of the lane, link (in `resources.arrow`), remote memory, queue or side of a "
            "bus that it is about",
        ),
    ),
)
JOBS = Table(
    name="jobs",
    about="one row for every job of a job file, in its order: where and when it ran, and what its neighbours "
    "cost it",
    writer="et_sim.timeline.contents.jobs:jobs_content",
    remedy="only runs of job files hold it",
    columns=(
        Column("job", TEXT, "its name"),
        Column("workload", STRING, "as the job file has it"),
        Column("ranks", "int32", "how many it has"),
        Column("npus", STRING, "those that its ranks run on, rank 0 first, such as `0-14/2`"),
        Column("placed", WORD, "how these were found: `given`, `packed`, `spread` or `random`"),
        Column("seed", "int64", "of a random placement; null of others"),
        Column("start_ns", "int64", "when its ranks begin"),
        Column("finish_ns", "int64", "when its last rank finished; null if one never did"),
        Column("duration_ns", "int64", "from start to finish; null if it never finished"),
        Column(
            "alone_ns", "int64", "its duration when nobody else uses the machine; null without --isolated"
        ),
        Column(
            "slowdown", "float64", "`duration_ns / alone_ns`: 1 if the other jobs cost it nothing; or null"
        ),
    ),
)
TABLES = (
    TIMELINE,
    ACTORS,
    JOBS,
    GROUPS,
    PEERS,
    LAYERS,
    PHASES,
    MESSAGES,
    LINKS,
    RESOURCES,
    PORTS,
    QUEUES,
    PAUSES,
    FLOWS,
    MEMORY,
    PATH,
)


def all_tables() -> tuple[Table, ...]:
    """In the order in which they are written and shown."""
    return TABLES


def table_named(name: str) -> Table:
    """The table of this name, or a refusal."""
    found = {table.name: table for table in all_tables()}
    if name not in found:
        remedy = did_you_mean(name, tuple(found)) or f"tables: {', '.join(found)}"
        raise UsageError(f"there is no table {name!r}", remedy=remedy)
    return found[name]


def details() -> tuple[str, ...]:
    """What can be asked for with --detail, besides nodes."""
    return tuple(dict.fromkeys(table.detail for table in all_tables() if table.detail))


def needed_files() -> tuple[str, ...]:
    """The files that every run holds."""
    return (MANIFEST, SUMMARY, *(table.file for table in all_tables() if not table.is_optional))


def all_files() -> tuple[str, ...]:
    """The files that a run may hold."""
    return (MANIFEST, SUMMARY, STALL, *(table.file for table in all_tables()))
