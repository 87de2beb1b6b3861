"""Tables of networks: messages, links, ports and their queues."""

from __future__ import annotations

from et_sim.tables.declaration import Table, columns

MESSAGES = Table(
    name="messages",
    about="one row for every message that an actor sends: on the analytical model in the order in which they "
    "set out, else in the order of arrival",
    writer="et_sim.timeline.contents.events:messages_content",
    detail="messages",
    columns=columns("""
        actor int32 -> actors: the class of identical ranks that sends it; of `from_switch`, that gets it; of
            `between_switches`, one of those below both
        node uint64?: the send or collective; of a request, the receive or collective that it is made for;
            null where a switch sends
        kind word: `send` (of the trace), `collective`, `custom` (of a custom collective), `request`: with
            rendezvous, the 8 KiB that request another message; where switches reduce, `to_switch`,
            `from_switch` and `between_switches`
        peer int32? -> actors: the class of the rank that it goes to; null: a switch
        chunk int32?: number of the chunk within the collective; null for sends
        phase int32?: number of the phase of this chunk; null for sends
        step int32?: its number among those that the sender sends in the phase; in a tree, 0 or 1 towards the
            root, from the left or right child, 2 or 3 from it, to that child; in a custom collective, the row
            of the send in the program; null for sends
        dimension int32?: the lowest dimension in which its ends differ; with a network file of 1.0, the
            highest level; null for a message to oneself
        bytes int64: size of the message
        ready_ns int64: when its sender was ready to send it
        sent_ns int64: when it was given to the network: later only where it was held, with rendezvous until
            its request came, with a collective library until its receiver had room for it
        start_ns int64: when the first link took it; on the analytical model, `sent_ns`
        left_ns int64: when its last byte had left the sender
        arrived_ns int64: when its last byte had arrived
        link_wait_ns int64?: how long it waited for links that carried others, on all of its way, or took
            longer because it shared them; null on the analytical model
    """),
)

LINKS = Table(
    name="links",
    about="one row for every link and slice of time in which anything happens on it, link by link; there are "
    "at most 128 slices, however long the run is: when it outlasts them, neighbours are merged",
    writer="et_sim.timeline.contents.network:links_content",
    detail="links",
    columns=columns("""
        resource int32 -> resources: the number of the link in `resources.arrow`
        actor int32? -> actors: the class of identical ranks that has the link; each of them has one like it;
            null for links of a graph between devices that are no NPUs
        dimension int32?: of the network; with a network file of 1.0, the level
        link text: which of the rank's links: `clockwise`, `anticlockwise`, `to the switch`, `from the
            switch`, `3 further on`; on the analytical model, `all it sends`
        tier text: links of one sort: those of a dimension or level, or of a graph those that lead from one
            row of devices to another, such as `leaf to spine`
        start_ns int64: when the slice begins; all slices are equally long
        end_ns int64: when it ends: with the run at the latest, but for acknowledgements that come after it
        busy_ns int64: how long messages were serialised in the slice; on the analytical model, summed over
            messages, which may overlap: more than the slice is possible
        bytes int64: that it carried in the slice: those of a message are spread over the time it is
            serialised
        messages int64: how many began in it, requests included
        wait_ns int64?: how long messages waited for the link in the slice, summed; of messages that share it,
            all but one count as waiting; null on the analytical model
        longest_wait_ns int64?: the longest that a message that began in the slice had waited, or that one
            that ended in it was held up by sharing links, this among them; null on the analytical model
        most_waiting int64?: the most messages that waited for the link at a time; null on the analytical
            model
        mean_at_once float64: how many messages were on the link or waited for it at a time, on average over
            the slice
        most_at_once int64?: the most of them at a time; null on the analytical model
    """),
)

RESOURCES = Table(
    name="resources",
    about="one row for every link, in the order of their numbers; on the analytical model, for all that an "
    "actor sends along a dimension",
    writer="et_sim.timeline.contents.network:resources_content",
    remedy="simulate with --detail links, ports or path",
    columns=columns("""
        resource int32: its number, which links.arrow and path.arrow refer to
        stand_in int32 -> resources: the number of the link that was simulated for it, whose rows in other
            tables hold for it
        actor int32? -> actors: the class of identical ranks that has it, or others like it; null for links of
            other devices
        ranks text?: the ranks that have it, such as `0-3,6`; null: all of the actor's
        dimension int32: of the network; with a network file of 1.0, the level
        link text: which of the rank's links, as in `links.arrow`
        links int32: how many there are of this name, one for each of its ranks
        tier text: links of one sort, as in `links.arrow`
        bytes_per_ns float64?: its bandwidth; null where there is no link, but all that is sent
        source text?: the device that it leaves; null: it is no link of a graph
        target text?: the device that it leads to
        source_row int32?: in which `source` is drawn; 0: it is an NPU
        target_row int32?: in which `target` is drawn
    """),
)

PORTS = Table(
    name="ports",
    about="one row for every link, in the order of their numbers: what packets met at its sending end",
    writer="et_sim.timeline.contents.network:ports_content",
    remedy="simulate with --network-model packet, on a network without credits",
    columns=columns("""
        link text: its name, as in `links.arrow`
        tier text: links of one sort, as in `links.arrow`
        packets int64: that it has sent: with data, acknowledgements and pauses
        bytes int64: that it has sent, headers included
        busy_ns int64: how long it was sending
        deepest_bytes int64: most bytes of packets that waited for it in a device
        deepest_at_ns int64?: when that was first; null: none ever waited
        pauses int64: how often the other end paused it
        paused_ns int64: how long it was paused
        marked int64: packets that were marked when they left its queue (ECN)
        lost int64: packets that its device had no room for
    """),
)

QUEUES = Table(
    name="queues",
    about="one row for every link and slice of time in which anything happens at its sending end, link by "
    "link; at most 128 slices, however long the run is: when it outlasts them, neighbours are merged",
    writer="et_sim.timeline.contents.network:queues_content",
    detail="ports",
    model="packet",
    columns=columns("""
        resource int32 -> resources: the number of the link in `resources.arrow`
        link text: its name, as in `links.arrow`
        tier text: links of one sort, as in `links.arrow`
        start_ns int64: when the slice begins; all slices are equally long
        end_ns int64: when it ends: with the run at the latest, but for acknowledgements that come after it
        mean_bytes float64: bytes of packets that waited for the link in a device, on average over the slice;
            what NPUs have to send of their own does not count. On a network with credits: bytes that have a
            place in the buffer at the other end, from when they set out
        deepest_bytes int64: the most of them at a time; a packet that goes on at once counts, for no time
        most_messages int64?: messages that had set out and not arrived, and whose way goes over the link: the
            most at a time; null on a network with credits
        lost int64: packets that its device had no room for
        marked int64: packets that were marked when they left its queue (ECN)
        pauses int64: how often it was paused
        paused_ns int64: how long it was paused, in whole nanoseconds
    """),
)

PAUSES = Table(
    name="pauses",
    about="one row for every pause of a port, in the order in which they ended; then those that never did",
    writer="et_sim.timeline.contents.network:pauses_content",
    detail="ports",
    model="packet",
    columns=columns("""
        link text: the link whose sending end was paused, by the device that it leads to
        egress text?: the link of that device for which most of what had come over `link` waited then: the
            cause
        asked_ns int64: when the device requested it
        begin_ns int64: when the sending end received the pause
        end_ns int64?: when the sending end was resumed; null: never
        egress_bytes int64?: bytes that had come over `link` and waited for `egress` then
        egress_depth int64?: all bytes that waited for `egress` at `asked_ns`
    """),
)

FLOWS = Table(
    name="flows",
    about="one row for every message that packets carried, in the order in which they arrived",
    writer="et_sim.timeline.contents.network:flows_content",
    detail="ports",
    model="packet",
    columns=columns("""
        source int32: the rank that sends it
        target int32: the rank that it goes to
        bytes int64: size of the message
        begin_ns int64: when it was given to the network
        left_ns int64: when its last byte had left the sender for the first time
        arrived_ns int64: when it was there, or, with completion by acknowledgement, when its last one was
            back
        bytes_per_ns float64: its mean rate: bytes by the time from `begin_ns` to `arrived_ns`
        packets int32: with data that came for it, those sent again included
        sent_again int32: packets that were sent again
        timeouts int32: how often its sender waited for an acknowledgement in vain
        window_ns int64: how long it had something to send that its window, or its connection's, held back
        rate_ns int64: how long its rate held it back, which does not count as the window's; with TCP, 0
        paused_ns int64: how long its first port was paused from `begin_ns` to `arrived_ns`
        mean_queue_ns float64: how long a packet of it waited on its way, on average; with TCP, at its host,
            too
        last_queue_ns int64: how long the last packet that came had waited
        way string: the links on its way, by their numbers in `resources.arrow`, with spaces between
    """),
)
