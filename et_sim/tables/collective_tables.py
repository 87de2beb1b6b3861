"""Tables of collectives and layers, and of the critical path of a run."""

from __future__ import annotations

from et_sim.tables.declaration import TEXT, WORD, Column, Table

PHASES_OF_LAYERS = ("forward", "input gradient", "weight gradient")
PEERS = Table(
    name="peers",
    about="whom the ranks of actors send to and receive from: one row for every send and receive of an "
    "actor, and distance at which any of its ranks have their peer; actor by actor",
    writer="et_sim.timeline.contents.ranks:peers_content",
    remedy="folded runs with sends hold it; in an unfolded run, `peer` of the timeline is the rank",
    columns=(
        Column("actor", "int32", "the actor", refers_to="actors"),
        Column("node", "uint64", "the send or receive"),
        Column(
            "ranks", TEXT + "?", "the ranks of the actor whose peer is at this distance; null: all of them"
        ),
        Column("distance", "int64", "the peer of rank r is r + distance, modulo the number of ranks"),
    ),
)

LAYERS = Table(
    name="layers",
    about="one row for every layer of a layer file, with figures of rank 0",
    writer="et_sim.timeline.contents.ranks:layers_content",
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
    writer="et_sim.timeline.contents.events:phases_content",
    detail="phases",
    columns=(
        Column("actor", "int32", "the class of identical ranks", refers_to="actors"),
        Column("node", "uint64", "the collective"),
        Column("chunk", "int32", "number of the chunk within the collective"),
        Column("phase", "int32", "number of the phase of this chunk"),
        Column("dimension", "int32?", "of the network, that it crosses; null: several, at once"),
        Column("operation", WORD, "what the phase does"),
        Column("bytes", "int64", "of the chunk, per member, in this phase"),
        Column("queued_ns", "int64", "when the chunk joined the queue of the phase"),
        Column("start_ns", "int64", "when the queue admitted it"),
        Column("end_ns", "int64", "when the phase was over"),
        Column("messages", "int32", "how many it received"),
        Column("message_wait_ns", "int64", "from posting their receives to their arrival, summed"),
        Column("layer", "int32", "of the layer file, counted from 0", only_of="layer files"),
        Column(
            "layer_phase",
            WORD + "?",
            "`forward`, `input gradient` or `weight gradient`",
            only_of="layer files",
        ),
    ),
)

PATH = Table(
    name="path",
    about="one row for every causal event, each after those that it needs",
    writer="et_sim.timeline.contents.events:path_content",
    detail="path",
    columns=(
        Column(
            "critical_parent",
            "int64?",
            "row of the event that came last of those that it needs; null if it needs none",
            refers_to="path",
        ),
        Column(
            "other_parent", "int64?", "row of another event that it needs, if there is one", refers_to="path"
        ),
        Column("start_ns", "int64", "when all that it needs had come"),
        Column("end_ns", "int64", "when it came"),
        Column("kind", WORD, "how the time in between was spent, or what came together"),
        Column(
            "actor",
            "int32?",
            "the actor whose work it is; null if it is no single actor's",
            refers_to="actors",
        ),
        Column("node", "uint64?", "the node that the work belongs to"),
        Column(
            "link", TEXT + "?", "of `latency` and `serialisation`: the class of links, such as `dimension 0`"
        ),
        Column(
            "resource",
            "int32?",
            "number of the lane, link (in `resources.arrow`), remote memory, queue or side of a "
            "bus that it is about",
        ),
    ),
)
