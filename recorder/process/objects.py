"""Small messages with known values, exchanged between recorded processes through a folder of files.

Programs send each other objects, such as the shapes in a pipeline, as tensors of integers. These tensors are
delivered; activations, whose values are unknown, are not.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

WAIT_SECONDS = 300.0


class PeerNeeded(BaseException):
    """A value comes from a rank that is not recorded. It is no Exception, so that the program does not catch
    it.
    """

    def __init__(self, rank: int, peer: int) -> None:
        super().__init__(f"rank {rank} needs a value of rank {peer}")
        self.peer = peer


class MeetingFolder:
    """The folder, and the rank that uses it."""

    def __init__(self, folder: Path, rank: int, ranks: frozenset[int]) -> None:
        self._folder, self._rank, self._ranks = folder, rank, ranks
        self._counted: Counter[tuple[int, int, str]] = Counter()

    def is_recorded(self, peer: int) -> bool:
        """Return whether a rank is recorded beside this one."""
        return peer in self._ranks

    def send(self, peer: int, value: torch.Tensor | None, way: str = "") -> None:
        """Store a value for a peer; None and complex numbers, which have no common shape, stand for unknown
        values. Values of one `way` arrive in the order in which they were sent.
        """
        if peer not in self._ranks:
            return
        path = self._path(self._rank, peer, way)
        draft = path.with_suffix(".draft")
        known = None if value is None or value.is_complex() else value.tolist()
        draft.write_text(json.dumps(known), encoding="ascii")
        draft.rename(path)

    def receive(self, peer: int, like: torch.Tensor, way: str = "") -> torch.Tensor | None:
        """Return the value that a peer sends, as a tensor of the same type."""
        if peer not in self._ranks:
            raise PeerNeeded(self._rank, peer)
        path = self._path(peer, self._rank, way)
        deadline = time.monotonic() + WAIT_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {peer} sent nothing to rank {self._rank} in {WAIT_SECONDS:.0f} s")
            time.sleep(0.01)
        value = json.loads(path.read_text(encoding="ascii"))
        return None if value is None else torch.tensor(value, dtype=like.dtype, device="cpu")

    def _path(self, source: int, target: int, way: str) -> Path:
        self._counted[source, target, way] += 1
        return self._folder / f"{source}.{target}.{way}{self._counted[source, target, way]}"


def object_to_tensor(value: Any, device: Any, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Convert an object as `torch.distributed` does, with real tensors."""
    with unset_fake_temporarily():
        content = torch.tensor(list(pickle.dumps(value)), dtype=torch.uint8, device="cpu")
        size = torch.tensor([content.numel()], dtype=torch.int64, device="cpu")
    return content.to(device), size.to(device)


def tensor_to_object(tensor: torch.Tensor, size: int, *_: Any) -> Any:
    """Return the object that another rank of the same program, named on the command line, has sent."""
    content, end = tensor.cpu(), int(size)
    with unset_fake_temporarily():
        return pickle.loads(bytes(content.tolist()[:end]))
