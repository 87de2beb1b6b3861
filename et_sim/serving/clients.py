"""Clients: the requests that are sent, and when; and the requests that are counted.

An open load has times of arrival, or sessions that begin at such times. In a closed loop, a number of
requests are under way at a time: the client sends the next one when it has the last token of another.
Replicas are empty at first, and the first requests arrive together. Requests that warm up are not counted;
those of a closed loop end before the others begin. Or they spread: each of the first ones has another part of
the output, so that the next ones are sent at different times, and equal requests are not in step.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.serving.reading import read_requests
from et_sim.serving.requests import (
    CLOSED,
    CLOSED_FORM,
    MOST_REQUESTS,
    MOST_TOKENS,
    NONE,
    ROLLOUT,
    ROLLOUT_FORM,
    RULES,
    SESSIONS,
    Request,
    checked_seed,
    counts_of_rule,
)
from et_sim.serving.stretching import at_rate

COUNTED = 10  # requests of a closed loop for each one under way
WARM_UP = 2  # likewise, before those


class Client(Struct, frozen=True):
    """The behaviour of a client."""

    concurrency: int = 0  # requests under way at a time; 0: requests arrive at times of their own
    lengths: float = 1.0  # lengths are uniform between this share of the given one and all of it
    warm_up: int | None = None  # requests that are not counted; None: by the rule of closed loops
    seed: int | None = None  # of arrivals and lengths; None: 0
    rate: float = 0.0  # requests per second to which times of arrival are stretched; 0: as given
    is_spread: bool = False  # the first requests of a closed loop have parts of outputs, and warm up
    models: tuple[str, ...] = ()  # that requests may name; (): not known
    share: float | None = None  # of requests or sessions for the second model; None: they name their models

    def __post_init__(self) -> None:
        if not 0 < self.lengths <= 1:
            raise UsageError(
                f"--lengths is {self.lengths:g}", remedy="give a share above 0 and up to 1, such as 0.8"
            )
        if not 0 <= self.concurrency <= MOST_REQUESTS:
            remedy = f"give a number from 1 to {MOST_REQUESTS:,}"
            raise UsageError(f"--concurrency is {self.concurrency}", remedy=remedy)


class Traffic(Struct, frozen=True):
    """Requests in the order in which a client sends them."""

    requests: tuple[Request, ...]
    concurrency: int = 0  # 0: requests arrive at times of their own
    warm_up: int = 0  # of the requests, from the first one on, which are not counted
    ends_first: int = 0  # likewise, which end before the others are sent
    batch: int = 0  # requests of a rollout that are sent together, when those before have ended


def read_traffic(given: str | Sequence[Request], client: Client) -> Traffic:
    """Return the requests of a file, of a rule, or given ones, as the client sends them."""
    traffic = _read_traffic(given, client)
    if len(client.models) < 2:
        return traffic
    named = [request for request in traffic.requests if request.model != NONE]
    if client.share is None:
        if len(named) < len(traffic.requests):
            raise UsageError(
                "there are two models, and requests do not name theirs",
                remedy="give the share of the second one, as in --second-model NAME,share=0.3, or a CSV file"
                " with a column model",
            )
        return traffic
    if named:
        raise UsageError(
            "requests name their models, and --second-model has a share of them",
            remedy="leave out share, or the column model",
        )
    return replace(traffic, requests=_shared(traffic.requests, client.share, checked_seed(client.seed)))


def _shared(requests: tuple[Request, ...], share: float, seed: int) -> tuple[Request, ...]:
    """Return the requests, a share of which is for the second model: those of a session all or none."""
    import numpy as np

    chance = np.random.default_rng([seed, 2])  # other numbers than arrivals and lengths have
    streams = dict.fromkeys(request.stream for request in requests)
    second = dict(zip(streams, (chance.random(len(streams)) < share).tolist(), strict=True))
    return tuple(replace(request, model=int(second[request.stream])) for request in requests)


def _read_traffic(given: str | Sequence[Request], client: Client) -> Traffic:
    """Return the requests as the client sends them, with the models that they name."""
    is_rule = isinstance(given, str) and given.startswith(RULES)
    is_session = isinstance(given, str) and given.startswith(SESSIONS)
    if client.lengths != 1 and (not is_rule or is_session):
        raise UsageError(
            "--lengths is only for requests that are made by a rule without sessions", remedy="leave it out"
        )
    if client.is_spread and not (isinstance(given, str) and given.startswith(CLOSED)):
        raise UsageError("--spread is only for closed loops", remedy=f"leave it out, or give {CLOSED_FORM}")
    checked_seed(client.seed)
    waits = isinstance(given, str) and given.startswith((CLOSED, ROLLOUT))
    if client.rate and (client.concurrency or waits):
        raise UsageError(
            "--rate is for requests that arrive at times of their own, and a closed loop or a rollout waits"
            " for answers",
            remedy="leave out --rate" + (", or --concurrency" if client.concurrency else ""),
        )
    if isinstance(given, str) and given.startswith(CLOSED):
        return _closed(given, client)
    if isinstance(given, str) and given.startswith(ROLLOUT):
        return _rollout(given, client)
    seed = client.seed if is_rule or client.share is None else None  # of a file, shares of models are drawn
    requests = read_requests(given, seed, client.models) if isinstance(given, str) else tuple(given)
    if not requests:
        raise UsageError("there are no requests", remedy="give one at least")
    if client.concurrency:
        requests = _without_arrivals(given, requests)
    requests = _varied(requests, client)
    requests = at_rate(requests, client.rate) if client.rate else requests
    warm_up = client.warm_up or 0
    if not 0 <= warm_up < len(requests):
        remedy = f"give a number from 0 to {len(requests) - 1}, since each counts or warms up"
        raise UsageError(f"--warm-up is {warm_up}, of {len(requests)} requests", remedy=remedy)
    return Traffic(requests, client.concurrency, warm_up, warm_up)


def _without_arrivals(given: str | Sequence[Request], requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Return the requests of a closed loop, which are sent in the order of their arrival."""
    if isinstance(given, str) and given.startswith(RULES):
        raise UsageError(
            f"requests of {given} arrive at times of their own",
            remedy=f"leave out --concurrency, or give {CLOSED_FORM}",
        )
    for request in requests:
        if request.after != NONE:
            raise UsageError(
                f"request {request.number} follows the answer of request {request.after}",
                remedy="leave out --concurrency, since sessions have their own times",
            )
    return tuple(replace(request, arrival_ns=0) for request in requests)


def _closed(given: str, client: Client) -> Traffic:
    """Return the requests of the rule closed:PROMPT,OUTPUT[,COUNT]; COUNT are counted."""
    if not client.concurrency:
        raise UsageError(
            f"{given} needs the number of requests under way", remedy="give --concurrency, such as 16"
        )
    words = given.removeprefix(CLOSED).split(",")
    try:
        prompt, output, *counts = (int(word) for word in words)
        (count,) = counts or (COUNTED * client.concurrency,)
    except ValueError:
        raise UsageError(f"{given!r} is not {CLOSED_FORM}", remedy="as in closed:1024,1024") from None
    warm_up = WARM_UP * client.concurrency if client.warm_up is None else client.warm_up
    tokens = (("PROMPT", prompt, MOST_TOKENS), ("OUTPUT", output, MOST_TOKENS))
    counts_of_rule(given, (*tokens, ("COUNT", count, MOST_REQUESTS)))
    if not 0 <= warm_up <= MOST_REQUESTS:
        raise UsageError(f"--warm-up is {warm_up}", remedy=f"give a number from 0 to {MOST_REQUESTS:,}")
    requests = tuple(Request(number, 0, prompt, output) for number in range(warm_up + count))
    if not client.is_spread:
        return Traffic(_varied(requests, client), client.concurrency, warm_up, warm_up)
    if warm_up < client.concurrency:
        raise UsageError(
            f"--warm-up is {warm_up}, less than the {client.concurrency} requests that --spread begins with",
            remedy=f"give {client.concurrency} or more, or leave it out",
        )
    return Traffic(_varied(_spread(requests, client.concurrency), client), client.concurrency, warm_up)


def _rollout(given: str, client: Client) -> Traffic:
    """Return the requests of the rule rollout:PROMPT,OUTPUT,COUNT,BATCHES, COUNT of them in each batch."""
    for option, is_given in (("--concurrency", client.concurrency), ("--warm-up", client.warm_up)):
        if is_given:
            raise UsageError(
                f"{option} is given, and batches of a rollout are sent and counted as a whole",
                remedy="leave it out",
            )
    try:
        prompt, output, count, batches = (int(word) for word in given.removeprefix(ROLLOUT).split(","))
    except ValueError:
        raise UsageError(f"{given!r} is not {ROLLOUT_FORM}", remedy="as in rollout:512,2048,64,4") from None
    tokens = (("PROMPT", prompt, MOST_TOKENS), ("OUTPUT", output, MOST_TOKENS))
    counts_of_rule(given, (*tokens, ("COUNT", count, MOST_REQUESTS), ("BATCHES", batches, MOST_REQUESTS)))
    if count * batches > MOST_REQUESTS:
        raise UsageError("too many requests", place=given, remedy=f"give at most {MOST_REQUESTS:,} in all")
    requests = tuple(Request(number, 0, prompt, output) for number in range(count * batches))
    return Traffic(_varied(requests, client), batch=count)


def _spread(requests: tuple[Request, ...], concurrency: int) -> tuple[Request, ...]:
    """Return the requests, the first ones with outputs that grow evenly up to that of the others."""
    parts = (
        replace(request, output=-(-(request.number + 1) * request.output // concurrency))
        for request in requests[:concurrency]
    )
    return (*parts, *requests[concurrency:])


def _varied(requests: tuple[Request, ...], client: Client) -> tuple[Request, ...]:
    """Return the requests with lengths drawn between the client's share of theirs and all of it."""
    if client.lengths == 1:
        return requests
    import numpy as np

    chance = np.random.default_rng([checked_seed(client.seed), 1])  # other numbers than arrivals have

    def drawn(most: list[int]) -> list[int]:
        least = [max(int(length * client.lengths), 1) for length in most]
        numbers: list[int] = chance.integers(least, most, endpoint=True).tolist()
        return numbers

    prompts = drawn([request.prompt for request in requests])
    outputs = drawn([request.output for request in requests])
    return tuple(
        replace(request, prompt=prompt, output=output)
        for request, prompt, output in zip(requests, prompts, outputs, strict=True)
    )
