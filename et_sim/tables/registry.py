"""Every table of a run. A new table is one entry here, and the function that fills it."""

from __future__ import annotations

from et_sim.errors import UsageError, did_you_mean
from et_sim.tables.declaration import STRING, TEXT, WORD, Column, Table

MANIFEST, SUMMARY, STALL = "run.json", "summary.json", "stall.json"
# Goes up whenever a column is renamed, removed or changes its meaning: only this version is read.
VERSION = 2

TIMELINE = Table(
    name="timeline",
    about="one row for every executed node of every actor: actor by actor, by ascending node id",
    writer="et_sim.timeline.contents.timeline:timeline_content",
    columns=(
        Column(
            "actor",
            "int32",
            "the class of identical ranks that ran the node (see actors.arrow)",
            refers_to="actors",
        ),
        Column("node", "uint64", "node id in the trace"),
        Column("name", TEXT, "node name in the trace"),
        Column("kind", WORD, "what the node does; collectives by their type"),
        Column("lane", WORD, "what it occupied from start to end"),
        Column("treatment", WORD, "where its time comes from"),
        Column("ready_ns", "int64", "when its last dependency completed"),
        Column("start_ns", "int64", "when it was issued"),
        Column("end_ns", "int64", "when it completed; null: never"),
        Column("bytes", "int64", "payload as the trace gives it"),
        Column("group", TEXT, "communicator group of a collective"),
        Column("sequence", "int64", "number of a collective's first chunk within its group"),
        Column("peer", "int32", "actor at the other end of a send or receive", refers_to="actors"),
        Column("tag", "int64", "tag of a send or receive"),
        Column("start_cause", WORD, "what let it start: the begin, a dependency, or its lane becoming free"),
        Column("start_cause_node", "uint64", "the node of the same actor that was waited for last"),
        Column("end_cause", WORD, "what completed it: its own duration, or a message"),
        Column("end_cause_actor", "int32", "the actor whose message completed it", refers_to="actors"),
        Column("end_cause_node", "uint64", "the send that completed a receive"),
        Column("compute_utilisation", "float64", "share of its peak rate that a kernel reaches (roofline)"),
        Column("memory_utilisation", "float64", "share of the local memory's bandwidth that a kernel uses"),
        Column("operational_intensity", "float64", "operations of a kernel per byte"),
        Column("memory_bound", "bool", "whether memory limits a kernel, and not its arithmetic"),
    ),
)
ACTORS = Table(
    name="actors",
    about="one row for every actor, in ascending order",
    writer="et_sim.timeline.contents.actors:actors_content",
    columns=(
        Column("actor", "int32", "number of the class"),
        Column("ranks", STRING, "the ranks that behave like this, as ranges"),
        Column("rank_count", "int64", "how many they are"),
        Column("finish_ns", "int64", "when the last node completed; null: never"),
        Column("compute_ns", "int64", "time with a device kernel running"),
        Column("communication_ns", "int64", "time with a send, receive or collective under way"),
        Column("memory_ns", "int64", "time with a remote-memory request under way"),
        Column("cpu_ns", "int64", "time with a CPU operation running"),
        Column("overlap_ns", "int64", "time with kernels and communication at once"),
        Column("exposed_comm_ns", "uint64", "the reference's figure: finish less the sum of kernel times"),
        Column(
            "exposed_comm_true_ns", "int64", "time with communication under way and nothing else happening"
        ),
        Column("idle_ns", "int64", "time before the finish with nothing under way"),
        Column("compute_bound_share", "float64", "of the kernels' time, how much arithmetic limits"),
        Column("compute_utilisation", "float64", "of the kernels, on average over their time"),
        Column("memory_utilisation", "float64", "of the kernels, on average over their time"),
        Column("operational_intensity", "float64", "of the kernels, on average over their time"),
        Column("peak_memory_bytes", "int64", "the most local memory in use at a time; null: not tracked"),
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
        Column("layer_phase", WORD, "forward, input gradient or weight gradient", only_of="layer files"),
    ),
)
MESSAGES = Table(
    name="messages",
    about="one row for every message that an actor sends: on the link model in the order of arrival, else in "
    "the order in which they set out",
    writer="et_sim.timeline.contents.messages:messages_content",
    detail="messages",
    columns=(
        Column("actor", "int32", "the class of identical ranks that sends it", refers_to="actors"),
        Column("node", "uint64", "the send or collective; of a request, the receive or collective"),
        Column("kind", WORD, "what it belongs to: a send, a collective, a custom one; or a request"),
        Column("peer", "int32", "the class of the rank that it goes to", refers_to="actors"),
        Column("chunk", "int32", "number of the chunk within the collective"),
        Column("phase", "int32", "number of the phase of this chunk"),
        Column(
            "step",
            "int32",
            "its number among those that the sender sends in the phase; in a tree, 0 or 1 towards the root "
            "from the left or right, 2 or 3 from it; in a custom collective, the row of the send",
        ),
        Column(
            "dimension",
            "int32",
            "the lowest in which its ends differ (network files of 1.0: the highest level); null: it stays",
        ),
        Column("bytes", "int64", "size of the message"),
        Column("ready_ns", "int64", "when its sender was ready to send it"),
        Column(
            "sent_ns", "int64", "when it was given to the network: with rendezvous, once it was asked for"
        ),
        Column("start_ns", "int64", "when the first link took it"),
        Column("left_ns", "int64", "when its last byte had left the sender"),
        Column("arrived_ns", "int64", "when its last byte had arrived"),
        Column("link_wait_ns", "int64", "how long it waited for links on its way; null: no link model"),
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
            "the class of identical ranks that has the link; each of them has one",
            refers_to="actors",
        ),
        Column("dimension", "int32", "of the network; of network files of 1.0, the level"),
        Column(
            "link", TEXT, "which of the links of a rank; without link model, all it sends along the dimension"
        ),
        Column("start_ns", "int64", "when the slice of time begins; all slices are equally long"),
        Column("end_ns", "int64", "when it ends: with the run at the latest"),
        Column(
            "busy_ns",
            "int64",
            "how long messages were serialised in the slice; without link model, summed over messages, which "
            "may overlap: more than the slice is possible",
        ),
        Column("bytes", "int64", "of the messages that began to be serialised in the slice"),
        Column("messages", "int64", "how many these are, requests for messages (rendezvous) included"),
        Column("wait_ns", "int64", "how long messages waited for the link, summed; null: no link model"),
        Column("longest_wait_ns", "int64", "the longest that a message that began in the slice had waited"),
        Column("most_waiting", "int32", "the most messages that waited for the link at a time"),
    ),
)
RESOURCES = Table(
    name="resources",
    about="one row for every link, in the order of their numbers; without link model, for all that an actor "
    "sends along a dimension",
    writer="et_sim.timeline.contents.resources:resources_content",
    remedy="simulate with --detail links or path",
    columns=(
        Column("resource", "int32", "its number, which path.arrow refers to"),
        Column("actor", "int32", "the class of identical ranks that has it", refers_to="actors"),
        Column("dimension", "int32", "of the network; of network files of 1.0, the level"),
        Column("link", TEXT, "which of the links of a rank"),
    ),
)
MEMORY = Table(
    name="memory",
    about="one row for every change of local memory, actor by actor, in order of time",
    writer="et_sim.timeline.contents.memory:memory_content",
    remedy='set "track-local-mem": 1 in the system file',
    columns=(
        Column("actor", "int32", "the class of identical ranks whose memory it is", refers_to="actors"),
        Column("time_ns", "int64", "when it changes"),
        Column("event", WORD, "what happens to the tensor: given, written or released"),
        Column("tensor", TEXT, "name of the tensor in the trace"),
        Column("node", "uint64", "the node that writes the tensor, or reads it last"),
        Column("delta_bytes", "int64", "the tensor's size; negative when it is released"),
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
            "row of the event that came last of those that this one needs; null: it needs none",
            refers_to="path",
        ),
        Column("other_parent", "int64", "row of another event that it needs", refers_to="path"),
        Column("start_ns", "int64", "when all that it needs had come"),
        Column("end_ns", "int64", "when it came"),
        Column("kind", WORD, "how the time in between was spent, or what came together"),
        Column("actor", "int32", "whose work it is", refers_to="actors"),
        Column("node", "uint64", "and the work of which node"),
        Column("link", TEXT, "class of links, for latency and serialisation"),
        Column(
            "resource",
            "int32",
            "number of the lane, link (resources.arrow), server, queue or side of a bus",
        ),
    ),
)
TABLES = (TIMELINE, ACTORS, LAYERS, PHASES, MESSAGES, LINKS, RESOURCES, MEMORY, PATH)


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
