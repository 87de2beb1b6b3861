"""MSCCL algorithms as read from their XML: GPUs, their threadblocks, and the steps of those.

Each threadblock runs its steps one after the other; a step may also wait for a step of another threadblock of
its GPU. An `MscclAlgorithm` is complete: numbers are checked, and every GPU and step exists.
"""

from __future__ import annotations

from xml.etree import ElementTree

from msgspec import Struct

from et_sim.basics.errors import TraceError


class StepKind(Struct, frozen=True):
    """The parts of a type of step, in this order."""

    receives: bool
    computes: str  # "reduce", "copy", or nothing
    sends: bool


STEP_TYPES = {
    "s": StepKind(False, "", True),
    "r": StepKind(True, "", False),
    "rcs": StepKind(True, "", True),
    "rrc": StepKind(True, "reduce", False),
    "rrs": StepKind(True, "reduce", True),
    "rrcs": StepKind(True, "reduce", True),
    "cpy": StepKind(False, "copy", False),
    "re": StepKind(False, "reduce", False),
    "nop": StepKind(False, "", False),
}
NONE = -1


class MscclStep(Struct, frozen=True):
    """A step; `waits_for` is (threadblock, step) of the same GPU."""

    type: str
    count: int  # chunks that it moves
    waits_for: tuple[int, int] | None

    @property
    def work(self) -> StepKind:
        """Return the parts of the step."""
        return STEP_TYPES[self.type]


class Threadblock(Struct, frozen=True):
    """Steps in sequence, with at most one GPU to send to and one to receive from."""

    number: int
    send_to: int
    receive_from: int
    channel: int
    steps: tuple[MscclStep, ...]


class MscclAlgorithm(Struct, frozen=True):
    """One algorithm: the threadblocks of each GPU by number, ascending."""

    name: str
    collective: str
    chunks: int  # into which the data is cut
    gpus: tuple[dict[int, Threadblock], ...]


def parse_algorithm(content: bytes, source: str) -> MscclAlgorithm:
    """Parse the XML text of one algorithm."""
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise TraceError(
            f"is not XML: {error}", place=source, remedy="name an MSCCL algorithm in XML"
        ) from None
    if root.tag != "algo":
        raise TraceError(
            f"holds <{root.tag}>, and not an algorithm",
            place=source,
            remedy="its first element must be <algo>",
        )
    reader = _Reader(root, source)
    count = reader.number("ngpus", least=1)
    return MscclAlgorithm(
        name=root.get("name", ""),
        collective=root.get("coll", ""),
        chunks=reader.number("nchunksperloop", least=1),
        gpus=_gpus(root, source, count),
    )


class _Reader:
    """Attributes of one element as numbers; errors name `place`."""

    def __init__(self, element: ElementTree.Element, place: str) -> None:
        self._element = element
        self._place = place

    def number(self, name: str, *, least: int, most: int | None = None, default: int | None = None) -> int:
        """Return a whole number between two limits."""
        text = self._element.get(name)
        if text is None and default is not None:
            return default
        try:
            value = int(text or "")
        except ValueError:
            problem = "is missing" if text is None else f"is {text!r}"
            raise self.refused(f"attribute {name!r} {problem}", "give a whole number") from None
        if value < least or (most is not None and value > most):
            limits = f"{least} or more" if most is None else f"{least} to {most}"
            raise self.refused(f"attribute {name!r} is {value}", f"it must be {limits}")
        return value

    def refused(self, cause: str, remedy: str) -> TraceError:
        """Return an error about this element."""
        return TraceError(cause, place=self._place, remedy=remedy)


def _numbered(
    parent: ElementTree.Element, tag: str, key: str, noun: str, place: str
) -> dict[int, ElementTree.Element]:
    """Return the children with a tag by number, ascending."""
    elements: dict[int, ElementTree.Element] = {}
    for element in parent.iterfind(tag):
        reader = _Reader(element, f"{place}, a {noun}")
        number = reader.number(key, least=0)
        if number in elements:
            raise reader.refused(f"there are two with the number {number}", "give each a number of its own")
        elements[number] = element
    return dict(sorted(elements.items()))


def _gpus(root: ElementTree.Element, source: str, count: int) -> tuple[dict[int, Threadblock], ...]:
    gpus = _numbered(root, "gpu", "id", "gpu", source)
    missing = next((number for number in range(count) if number not in gpus), None)
    if missing is not None or len(gpus) > count:
        wrong = f"gpu {missing} is missing" if missing is not None else f"gpu {max(gpus)} is one too many"
        raise TraceError(
            f"{wrong}: ngpus is {count}, and there are {len(gpus)} <gpu> elements",
            place=source,
            remedy=f"describe gpus 0 to {count - 1}, and correct ngpus if it is wrong",
        )
    return tuple(_threadblocks(element, source, number, count) for number, element in gpus.items())


def _threadblocks(gpu: ElementTree.Element, source: str, number: int, gpus: int) -> dict[int, Threadblock]:
    elements = _numbered(gpu, "tb", "id", "threadblock", f"{source}, gpu {number}")
    lengths = {block: len(element.findall("step")) for block, element in elements.items()}
    blocks = {}
    for block, element in elements.items():
        place = f"{source}, gpu {number}, threadblock {block}"
        reader = _Reader(element, place)
        send, receive = (
            reader.number(name, least=NONE, most=gpus - 1, default=NONE) for name in ("send", "recv")
        )
        if number in (send, receive):
            raise reader.refused("it sends to or receives from its own gpu", "use a step of type cpy")
        steps = _numbered(element, "step", "s", "step", place)
        if list(steps) != list(range(len(steps))):
            listed = ", ".join(map(str, steps))
            raise reader.refused(f"its steps are numbered {listed}", "number them from 0 without a gap")
        blocks[block] = Threadblock(
            block,
            send,
            receive,
            reader.number("chan", least=0, default=0),
            tuple(_step(step, f"{place}, step {s}", (send, receive), lengths) for s, step in steps.items()),
        )
    return blocks


def _step(
    element: ElementTree.Element, place: str, peers: tuple[int, int], lengths: dict[int, int]
) -> MscclStep:
    reader = _Reader(element, place)
    kind = element.get("type", "")
    work = STEP_TYPES.get(kind)
    if work is None:
        known = ", ".join(STEP_TYPES)
        raise reader.refused(f"step type {kind!r} is not known", f"known: {known}")
    for needed, peer, attribute in ((work.sends, peers[0], "send"), (work.receives, peers[1], "recv")):
        if needed and peer == NONE:
            raise reader.refused(
                f"type {kind!r} needs a peer, and the threadblock has no {attribute!r}",
                f"give <tb> a {attribute}",
            )
    count = reader.number("cnt", least=1, default=1) if kind != "nop" else 0
    return MscclStep(kind, count, _awaited(reader, lengths))


def _awaited(reader: _Reader, lengths: dict[int, int]) -> tuple[int, int] | None:
    block = reader.number("depid", least=NONE, default=NONE)
    step = reader.number("deps", least=NONE, default=NONE)
    if block == NONE or step == NONE:
        return None
    if step >= lengths.get(block, 0):
        raise reader.refused(
            f"it waits for step {step} of threadblock {block}, which its gpu does not have",
            "correct depid and deps; -1 waits for nothing",
        )
    return block, step
