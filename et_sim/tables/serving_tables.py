"""Tables of serving: requests, and passes of replicas."""

from __future__ import annotations

from et_sim.tables.declaration import WORD, Column, Table

REQUESTS = Table(
    name="requests",
    about="one row for every request, in the order of the file",
    writer="",
    remedy="et-sim serve writes it",
    columns=(
        Column("request", "int64", "its number, counted from 0"),
        Column("prompt_tokens", "int64", "tokens of the prompt"),
        Column("output_tokens", "int64", "tokens that it was given"),
        Column("arrival_ns", "int64", "when it arrived"),
        Column("scheduled_ns", "int64", "when the first pass began that worked on it"),
        Column("first_token_ns", "int64", "when it had its first token"),
        Column("finish_ns", "int64", "when it had its last token"),
        Column("ttft_ns", "int64", "time to first token: from arrival to the first token"),
        Column(
            "tpot_ns",
            "int64?",
            "time per output token after the first: their mean, cut to whole ns; null if there is one token",
        ),
        Column("e2e_ns", "int64", "from arrival to the last token"),
        Column("replica", "int32", "the replica that worked on its prompt"),
        Column("decode_replica", "int32?", "the replica that its cache went to; null if it stayed"),
        Column("transfer_ns", "int64?", "how long its cache was on its way; null if it stayed"),
        Column("preemptions", "int32", "how often it lost its cache, and was worked on anew"),
    ),
)

ITERATIONS = Table(
    name="iterations",
    about="one row for every pass of a replica, in the order in which they began",
    writer="",
    remedy="et-sim serve writes it",
    columns=(
        Column("replica", "int32", "the replica"),
        Column("pool", WORD, "what its replicas do: `both`, `prefill` or `decode`"),
        Column("start_ns", "int64", "when it began"),
        Column("end_ns", "int64", "when it ended"),
        Column("sequences", "int32", "how many it worked on"),
        Column("prefill_tokens", "int64", "tokens of prompts, or of what is worked on anew"),
        Column("decode_tokens", "int64", "single tokens of sequences whose tokens before are cached"),
        Column("context_tokens", "int64", "tokens that were cached before, summed over its sequences"),
        Column("cache_bytes", "int64", "in blocks that were allocated, on the rank that holds most"),
        Column("waiting", "int32", "requests that waited for the replica when it began"),
    ),
)
