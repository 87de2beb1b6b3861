"""Tables of collectives and layers, and of the critical path of a run."""

from __future__ import annotations

from et_sim.tables.declaration import TEXT, Column, Table, columns

PHASES_OF_LAYERS = ("forward", "input gradient", "weight gradient")
PEERS = Table(
    name="peers",
    about="whom the ranks of actors send to and receive from: one row for every send and receive of an "
    "actor, and distance at which any of its ranks have their peer; actor by actor",
    writer="et_sim.timeline.contents.ranks:peers_content",
    remedy="folded runs with sends hold it; in an unfolded run, `peer` of the timeline is the rank",
    columns=columns("""
        actor int32 -> actors: the actor
        node uint64: the send or receive
        ranks text?: the ranks of the actor whose peer is at this distance; null: all of them
        distance int64: the peer of rank r is r + distance, modulo the number of ranks
    """),
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
    columns=columns("""
        actor int32 -> actors: the class of identical ranks
        node uint64: the collective
        chunk int32: number of the chunk within the collective
        phase int32: number of the phase of this chunk
        dimension int32?: of the network, that it crosses; null: several, at once
        operation word: what the phase does
        bytes int64: of the chunk, per member, in this phase
        queued_ns int64: when the chunk joined the queue of the phase
        start_ns int64: when the queue admitted it
        end_ns int64: when the phase was over
        messages int32: how many it received
        message_wait_ns int64: from posting their receives to their arrival, summed
        layer int32 (only of layer files): of the layer file, counted from 0
        layer_phase word? (only of layer files): `forward`, `input gradient` or `weight gradient`
    """),
)

PATH = Table(
    name="path",
    about="one row for every causal event, each after those that it needs",
    writer="et_sim.timeline.contents.events:path_content",
    detail="path",
    columns=columns("""
        critical_parent int64? -> path: row of the event that came last of those that it needs; null if it
            needs none
        other_parent int64? -> path: row of another event that it needs, if there is one
        start_ns int64: when all that it needs had come
        end_ns int64: when it came
        kind word: how the time in between was spent, or what came together
        actor int32? -> actors: the actor whose work it is; null if it is no single actor's
        node uint64?: the node that the work belongs to
        link text?: of `latency` and `serialisation`: the class of links, such as `dimension 0`
        resource int32?: number of the lane, link (in `resources.arrow`), remote memory, queue or side of a
            bus that it is about
    """),
)
