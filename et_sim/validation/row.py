"""One measurement: its subject, its place, its time, and the parts of its description that are not used."""

from __future__ import annotations

from msgspec import Struct

from et_sim.machine.accuracy import LARGE_SIDE, LONG_SEQUENCE
from et_sim.workloads import Model, Plan

MIB = 1 << 20
DEGRADED = "degraded"  # quality of a table whose source states a fault of its network
# Columns by which a CSV of measured servings is recognised.
SERVING_COLUMNS = ("backend", "model_path", "system", "isl", "osl", "tp_size", "ttft_ms", "tpot_ms")


class KernelPart(Struct, frozen=True):
    """A further kernel of a row."""

    shape: str
    datatype: str
    bytes: int = 0  # 0: those of the shape


class KernelRow(Struct, frozen=True):
    """A kernel that ran alone, or with others that its table's times include."""

    shape: str
    datatype: str
    included: tuple[str, ...] = ()
    engine: str = ""  # inference engine whose kernels run
    bytes: int = 0  # 0: those of the shape
    beside: tuple[KernelPart, ...] = ()  # further kernels, with datatypes of their own

    @property
    def parts(self) -> tuple[KernelPart, ...]:
        """Return all kernels of the row."""
        included = (KernelPart(shape, self.datatype) for shape in self.included)
        return (KernelPart(self.shape, self.datatype, self.bytes), *included, *self.beside)


class Collective(Struct, frozen=True):
    """A collective that ran alone; bytes as nccl-tests counts them."""

    kind: str
    bytes: int
    gpus: int
    nodes: int
    datatype: str = ""
    algorithm: str = ""  # forced on the library
    engine: str = ""  # inference engine with exchanges of its own
    eager: bool = False  # it launches them outside a graph
    expert_exchange: str = ""  # kernels by which tokens reach their experts
    processors: int = 0  # of a collective; 0: as many as it uses
    gpus_per_process: int = 1


class TrainingStep(Struct, frozen=True):
    """A training step."""

    label: str
    hardware: str
    model: Model
    plan: Plan
    measured_s: float
    software: str = ""  # a description by name; empty: not known
    power: str = ""  # limit of each device, such as 500W; empty: the usual one
    is_kept: bool = False  # the plan is that of another machine, and must fit the memory of this one


class Row(Struct, frozen=True):
    """A measurement."""

    table: str
    number: int  # in the table, from 1; 0: the table as a whole
    hardware: str
    network: str  # between nodes, in words
    kind: str
    size_class: str
    what: str
    measured_us: float | None  # None: there is no time
    job: KernelRow | Collective | TrainingStep | None  # None: nothing to predict; `why` is the reason
    why: str = ""
    machine: str = ""  # a preset, if the file names one
    remarks: tuple[str, ...] = ()  # parts of the description that the prediction does not use
    interval_us: tuple[float, float] | None = None  # of the measured time, 95 %; None: not known


def refused(table: str, number: int, why: str, hardware: str = "") -> Row:
    """Return a row that cannot be predicted, with the reason."""
    return Row(table, number, hardware, "", "", "", "", None, None, why)


def reason(error: Exception) -> str:
    """Return an error of reading as a reason."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__


def size_of_kernel(kind: str, shape: str) -> str:
    """Return the size class of a kernel's shape; "all" if its kind has only one."""
    numbers = [
        int(word) for word in shape.split()[1:] if word.isascii() and word.isdigit() and len(word) < 20
    ]
    if kind == "gemm" and len(numbers) >= 3:
        is_large = min(numbers[:3]) >= LARGE_SIDE
        return f"sides >= {LARGE_SIDE}" if is_large else f"a side < {LARGE_SIDE}"
    if kind.startswith("attention") and len(numbers) >= 4:
        return f"tokens >= {LONG_SEQUENCE}" if numbers[3] >= LONG_SEQUENCE else f"tokens < {LONG_SEQUENCE}"
    return "all"


def microseconds(value: object) -> float:
    """Return a measured time; raise ValueError for an invalid one."""
    try:
        time = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        time = 0.0
    if not 0 < time < 1e15:
        raise ValueError(f"the time is {value!r} (allowed: more than 0 us)")
    return time
