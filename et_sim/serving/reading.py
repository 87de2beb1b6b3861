"""Requests of a file or of a rule, in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from et_sim.basics.errors import UsageError
from et_sim.serving.request_files import requests_of_file
from et_sim.serving.requests import RULES, Request, checked_seed
from et_sim.serving.rules import requests_of_rule


def read_requests(given: str, seed: int | None = None, models: Sequence[str] = ()) -> tuple[Request, ...]:
    """Return the requests of a file, or made by a rule, in the order of arrival.

    `seed` is of a rule only, and `models` are those that a file may name.

    Requests of a session follow each other, at the place of the first one.
    """
    path, is_rule = Path(given), given.startswith(RULES)
    if seed is not None and not is_rule:
        raise UsageError("--seed is only for requests that are made by a rule", remedy="leave it out")
    requests = requests_of_rule(given, checked_seed(seed)) if is_rule else requests_of_file(path, models)
    begins = {request.number: request.arrival_ns for request in requests}
    return tuple(sorted(requests, key=lambda request: (begins[request.stream], request.number)))
