"""Random training programs: common jobs, in small, with durations drawn once for the recorded machine.

`random_program(seed)` draws the features of a program (`FEATURES`) and writes its threads. Every program
is well synchronised: no step reads a tensor that may not have been written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from program import (
    Await,
    Begin,
    Call,
    End,
    Exchange,
    Host,
    Launch,
    Program,
    Query,
    Rank,
    Record,
    Signal,
    Sleep,
    Step,
    Synchronize,
    Transfer,
    WaitEvent,
    Work,
)

MAIN, BACKWARD, LOADER, WATCHDOG, BESIDE, WORKERS = 1001, 1002, 1003, 1004, 1005, (1011, 1012)
COMPUTE, SIDE, COMMUNICATION = 7, 13, (20, 24)
US = 1000

# Features that a program may have, with their probabilities.
FEATURES: dict[str, float] = {
    "backward thread": 0.6,  # autograd's, which main waits for
    "data loader": 0.3,  # a worker thread that makes batches
    "item": 0.4,  # a copy to the host that is waited for
    "blocking copy": 0.25,
    "pageable copy": 0.25,
    "stream sync": 0.3,
    "event sync": 0.25,
    "device sync": 0.3,
    "query loop": 0.2,
    "side stream": 0.35,
    "buckets": 0.6,  # all-reduces of gradients during backward
    "tensor parallel": 0.3,  # collectives that the forward pass waits for
    "sharded": 0.15,  # parameters are gathered layer by layer, gradients scattered
    "subgroups": 0.5,  # of 4 ranks: pairs for tensor parallelism, other pairs for gradients
    "watchdog": 0.3,  # a thread that sometimes queries whether communication is done
    "pipeline": 0.2,  # messages between neighbours
    "two communicators": 0.2,  # each with its stream
    "start skew": 0.25,
    "slow rank": 0.3,  # one rank has longer kernels
}

# Disturbances that make recordings harder to read, drawn separately.
DISTURBANCES: dict[str, float] = {
    "background thread": 0.2,  # it works beside the others, and no thread waits for it
    "pauses": 0.2,  # main does nothing for a while now and then (Python's memory, other processes)
    "stray events": 0.3,  # events that are recorded and never waited for
    "own clocks": 0.3,  # each rank's clock is wrong by some milliseconds
}


def random_program(seed: int, without: frozenset[str] = frozenset()) -> Program:
    """Return the program of a seed, less some features."""
    rng = random.Random(seed)
    ranks = rng.choice((1, 1, 2, 2, 3, 4))
    features = {name for name, often in FEATURES.items() if rng.random() < often} - without
    if rng.random() < 0.15 and "gloo" not in without:
        features = (features & {"start skew", "slow rank", "data loader", "tensor parallel"}) | {"gloo"}
    if ranks == 1:
        features -= {"buckets", "tensor parallel", "pipeline", "start skew", "slow rank", "gloo", "sharded"}
    if features & {"pipeline", "sharded"}:
        features -= {"buckets", "tensor parallel"}
    if "pipeline" in features:
        features -= {"sharded"}
    apart = random.Random(f"disturbances of {seed}")
    features |= {name for name, often in DISTURBANCES.items() if apart.random() < often} - without
    if not features & {"buckets", "tensor parallel"} or "gloo" in features:
        features -= {"two communicators", "subgroups"}
    features -= {"two communicators"} if "subgroups" in features and ranks == 4 else {"subgroups"}
    shape = _Shape(rng, ranks)
    if not features & {"buckets", "tensor parallel", "pipeline", "sharded", "gloo"}:
        features -= {"start skew", "own clocks"}  # clocks could not be distinguished from starts
    if "subgroups" in features and "tensor parallel" not in features:
        features -= {"own clocks"}  # pairs that share nothing with each other
    if "gloo" in features:
        features -= {"stray events"}
    groups = _groups(features, tuple(range(ranks)))
    return Program(
        [_Writer(shape, rank, frozenset(features), groups).rank for rank in range(ranks)],
        frozenset(features | {f"{ranks} ranks"}),
        groups,
        shape.transfer_ns,
        "gloo" if "gloo" in features else "nccl",
        [apart.randint(0, 8000) * US if "own clocks" in features else 0 for _ in range(ranks)],
    )


def _groups(features: set[str], all_ranks: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Process groups by their names."""
    if "subgroups" in features:
        return {"0": all_ranks, "1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    return dict.fromkeys(("0", "1") if "two communicators" in features else ("0",), all_ranks)


# Kind of a transfer: names of the operator, of the annotation, and of the kernel.
NCCL = {
    "all_reduce": ("allreduce_", "all_reduce", "AllReduce_Sum_f32_RING_LL"),
    "all_gather": ("_allgather_base_", "_all_gather_base", "AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base_", "_reduce_scatter_base", "ReduceScatter_Sum_f32_RING_LL"),
    "send": ("send", "send {}->{}", "SendRecv"),
    "recv": ("recv_", "recv {}<-{}", "SendRecv"),
}


class _Shape:
    """The common figures of all ranks: the model, its collectives, and frequencies."""

    def __init__(self, rng: random.Random, ranks: int) -> None:
        self.seed = rng.getrandbits(32)
        self.ranks = ranks
        self.iterations = rng.choice((2, 3))
        self.layers = rng.randint(3, 8)
        self.kernel_us = rng.choice((8, 30, 100, 300))  # whether the host or the device decides
        self.host_us = rng.choice((3, 10, 25))
        self.transfer_us = rng.choice((40, 150, 600))
        self.bucket_layers = rng.choice((1, 2, 3))
        self.slow = rng.randrange(ranks), rng.uniform(1.1, 2.0)
        self.skew_us = [0 if rank == 0 else rng.randint(0, 3000) for rank in range(ranks)]
        self.sizes = [rng.randrange(1, 64) << 16 for _ in range(64)]
        self.latency_ns = rng.randint(2, 20) * US
        self.per_megabyte_ns = self.transfer_us * US / 2

    def transfer_ns(self, size: int) -> int:
        """Return the time of a transfer: a latency, and bytes by bandwidth."""
        return self.latency_ns + round(self.per_megabyte_ns * size / (1 << 20))


class _Writer:
    """A writer of the threads of one rank."""

    def __init__(
        self, shape: _Shape, number: int, features: frozenset[str], groups: dict[str, tuple[int, ...]]
    ) -> None:
        self.shape, self.number, self.features = shape, number, features
        self.rng = random.Random((shape.seed << 8) + number)
        slow, factor = shape.slow
        self.slowness = factor if "slow rank" in features and number == slow else 1.0
        self.groups = groups
        self.rank = Rank({}, shape.skew_us[number] * US if "start skew" in features else 0)
        self.steps: list[Step] = []
        self.sequence = 0  # of forward operators
        self.events = 0
        self.transfers = 0
        self.write()

    # -- parts of all steps

    def has(self, feature: str) -> bool:
        return feature in self.features

    def thread(self, number: int) -> None:
        self.steps = self.rank.threads.setdefault(number, [])

    def some(self, low: float, high: float) -> int:
        """Draw microseconds, and return them in nanoseconds."""
        return round(self.rng.uniform(low, high) * US)

    def host(self, share: float = 1.0) -> None:
        mean = self.shape.host_us * share
        self.steps.append(Host(max(300, self.some(0.3 * mean, 1.7 * mean))))

    @contextmanager
    def inside(
        self, name: str, category: str = "cpu_op", transfer: Transfer | None = None, **more: object
    ) -> Iterator[None]:
        self.steps.append(Begin(name, category, more, transfer))
        self.host(0.4)
        yield
        self.host(0.3)
        self.steps.append(End())

    def work(self, name: str, mean_us: float, sort: str = "kernel", size: int = 0) -> Work:
        lasts = round(self.some(0.4 * mean_us, 1.6 * mean_us) * self.slowness)
        return Work(name, max(1000, lasts), self.some(2, 4), self.some(0.7, 1.3), sort, size)

    def launch(self, name: str, mean_us: float, stream: int = COMPUTE) -> None:
        self.steps.append(Launch("cudaLaunchKernel", self.some(3, 8), stream, self.work(name, mean_us)))

    def record(self, stream: int) -> str:
        self.events += 1
        self.steps.append(Record(f"event {self.events}", stream, self.some(0.8, 2)))
        return f"event {self.events}"

    def wait(self, event: str, stream: int) -> None:
        self.steps.append(WaitEvent(event, stream, self.some(0.8, 2), self.some(0.8, 1.6)))

    def operator(
        self,
        name: str,
        reads: Sequence[str],
        writes: Sequence[str],
        kernels: int = 1,
        stream: int = COMPUTE,
        scale: float = 1.0,
        **more: object,
    ) -> None:
        """Add an operator `aten::…` with kernels, and another operator within."""
        self.host(0.5)
        self.disturb(stream)
        with self.inside(name, inputs=reads, outputs=writes, **more):
            with self.inside(f"aten::{name.rpartition('::')[2]}_inner"):
                for _ in range(kernels):
                    self.launch(f"{name.rpartition('::')[2]}_kernel", self.shape.kernel_us * scale, stream)
                    if self.rng.random() < 0.2:
                        self.steps.append(Call("cudaStreamIsCapturing", self.some(0.3, 0.8)))
            if self.rng.random() < 0.3:
                self.operator_without_kernel("aten::view")

    def disturb(self, stream: int) -> None:
        if self.has("pauses") and self.rng.random() < 0.03:
            self.steps.append(Host(self.some(200, 1500)))
        if self.has("stray events") and self.rng.random() < 0.3:
            self.record(stream)
            if self.rng.random() < 0.5:
                self.steps.append(Call("cudaEventQuery", self.some(0.8, 1.5)))

    def operator_without_kernel(self, name: str) -> None:
        with self.inside(name):
            self.host(0.3)

    def transfer(self, kind: str, key: str, size: int, group: str = "0") -> Transfer:
        members = self.groups[group]
        return Transfer((key, *members), kind, members, size, self.shape.transfer_ns(size), group)

    def group_of(self, names: Sequence[str]) -> str:
        """Return the group among these that holds this rank."""
        return next(name for name in names if self.number in self.groups[name])

    def collective(self, transfer: Transfer, tensor: str, stream: int = COMMUNICATION[0]) -> str:
        """Add the steps of ProcessGroupNCCL, and return the event of their end."""
        called, title, kernel = NCCL[transfer.kind]
        title = title.format(self.number, transfer.peer)
        self.host(0.5)
        operator = self.inside(f"c10d::{called}", transfer=transfer, tensor=tensor)
        with operator, self.inside("record_param_comms", transfer=transfer, tensor=tensor):
            before = self.record(COMPUTE)
            self.wait(before, stream)
            with self.inside(f"nccl:{title}", "user_annotation", transfer=transfer, tensor=tensor):
                name, latency = f"ncclDevKernel_{kernel}", self.some(2, 4)
                work = Work(name, 0, latency, self.some(0.7, 1.3), transfer=transfer)
                self.steps.append(Launch("cudaLaunchKernelExC", self.some(4, 9), stream, work))
            return self.record(stream)

    def wait_for(self, event: str, stream: int = COMPUTE) -> None:
        """Add `work.wait()`: the compute stream waits, not the host."""
        self.host(0.2)
        with self.inside("record_param_comms", waits=True):
            self.wait(event, stream)

    # -- the program

    def write(self) -> None:
        if self.has("data loader"):
            self.loader()
        if self.has("gloo"):
            self.gloo_workers()
        for iteration in range(self.shape.iterations):
            self.thread(MAIN)
            self.steps.append(Begin(f"ProfilerStep#{iteration + 3}", "user_annotation"))
            self.host(0.2)
            if self.has("watchdog"):
                self.watch(iteration)
            if self.has("background thread"):
                self.work_beside(iteration)
            self.iteration(iteration)
            self.thread(MAIN)
            self.host(0.2)
            self.steps.append(End())

    def loader(self) -> None:
        self.thread(LOADER)
        pace = self.rng.choice((0.3, 1.0, 2.0)) * self.shape.layers * 6
        for iteration in range(self.shape.iterations):
            if iteration >= 2:
                self.steps.append(Await(f"batch {iteration - 2} taken", self.some(2, 8)))
            for name in ("aten::stack", "aten::cat", "aten::pin_memory"):
                with self.inside(name):
                    self.host(pace / 3)
                self.host(0.3)
            self.steps.append(Signal(f"batch {iteration}"))

    def watch(self, iteration: int) -> None:
        """Add steps of a thread that checks communication, and for which no thread waits."""
        self.steps.append(Signal(f"iteration {iteration}"))
        self.thread(WATCHDOG)
        self.steps.append(Await(f"iteration {iteration}", self.some(5, 20)))
        for _ in range(self.rng.randint(1, 3)):
            self.steps += [Call("cudaEventQuery", self.some(1, 3)), Sleep(self.some(20, 60))]
        self.thread(MAIN)

    def work_beside(self, iteration: int) -> None:
        """Add a thread that begins with the iteration and ends long before it."""
        self.steps.append(Signal(f"beside {iteration}"))
        self.thread(BESIDE)
        self.steps.append(Await(f"beside {iteration}", self.some(5, 20)))
        for _ in range(self.rng.randint(2, 2 * self.shape.layers)):
            self.host(0.6)
            self.operator_without_kernel("aten::to")
        self.thread(MAIN)

    def iteration(self, iteration: int) -> None:
        self.batch(iteration)
        if self.has("gloo"):
            self.gloo_step(iteration)
            return
        self.forward(iteration)
        self.loss(iteration)
        self.backward(iteration)
        self.thread(MAIN)
        self.optimizer(iteration)

    def batch(self, iteration: int) -> None:
        if self.has("data loader"):
            with self.inside(
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation"
            ):
                self.steps.append(Await(f"batch {iteration}", self.some(3, 12)))
                self.host(0.3)
            self.steps.append(Signal(f"batch {iteration} taken"))
        if self.has("gloo"):
            return
        tensor = f"batch {iteration}"
        if self.has("pageable copy"):
            self.copy("Memcpy HtoD (Pageable -> Device)", tensor, waits=True)
        elif self.has("blocking copy"):
            self.copy("Memcpy HtoD (Pageable -> Device)", tensor, waits=True, name="cudaMemcpy")
        else:
            self.copy("Memcpy HtoD (Pinned -> Device)", tensor, waits=False)

    def copy(self, what: str, tensor: str, *, waits: bool, name: str = "cudaMemcpyAsync") -> None:
        self.host(0.4)
        with self.inside("aten::copy_", inputs=(), outputs=(tensor,)):
            work = self.work(what, 0.7 * self.shape.kernel_us + 10, "gpu_memcpy", self.shape.sizes[0])
            self.steps.append(Launch(name, self.some(4, 9), COMPUTE, work, self.some(2, 5) if waits else -1))

    def forward(self, iteration: int) -> None:
        if self.has("pipeline") and self.number > 0:
            self.message("recv", self.number - 1, f"forward {iteration}")
        layers = self.shape.layers
        gathered = [self.gather(iteration, "forward", 0)] if self.has("sharded") else []
        reads = [f"batch {iteration}"]
        for layer in range(layers):
            self.sequence += 1
            if gathered:
                if layer + 1 < layers:
                    gathered.append(self.gather(iteration, "forward", layer + 1))
                self.wait_for(gathered[layer])
            done = f"activation {iteration} {layer}"
            kernels = 1 + (layer % 3 == 0)
            self.operator(
                "aten::linear", [*reads, f"weight {layer}"], [done], kernels, sequence=self.sequence
            )
            reads = [done]
            if self.has("side stream") and layer % 3 == 1:
                self.aside(reads)
            if self.has("tensor parallel") and layer % 2 == 0:
                kind = "all_gather" if layer % 4 == 2 else "all_reduce"
                group = self.group_of(("1", "2") if self.has("subgroups") else ("0",))
                transfer = self.transfer(kind, f"forward {iteration} {layer}", self.shape.sizes[layer], group)
                self.wait_for(self.collective(transfer, done))
            if self.has("stream sync") and layer == layers // 2:
                self.host(0.3)
                self.synchronize("cudaStreamSynchronize", COMPUTE)
        if self.has("pipeline") and self.number < self.shape.ranks - 1:
            self.message("send", self.number + 1, f"forward {iteration}")

    def aside(self, reads: list[str]) -> None:
        """Add an operator on a separate stream, beside another one."""
        self.wait(self.record(COMPUTE), SIDE)
        self.operator("aten::side", reads, [f"{reads[0]} aside"], 1, SIDE, 1.5)
        after = self.record(SIDE)
        self.operator("aten::mul", reads, reads)
        self.wait(after, COMPUTE)
        reads.append(f"{reads[0]} aside")

    def gather(self, iteration: int, way: str, layer: int) -> str:
        """Gather the parameters of a layer ahead of their use."""
        transfer = self.transfer("all_gather", f"{way} {iteration} {layer}", self.shape.sizes[16 + layer])
        return self.collective(transfer, f"shard {layer}")

    def synchronize(self, name: str, stream: int = -1, event: str = "") -> None:
        self.steps.append(Synchronize(name, self.some(1, 3), self.some(2, 6), stream, event))

    def message(self, kind: str, peer: int, key: str) -> None:
        """Send to or receive from a neighbour; the compute stream waits for it."""
        ends = tuple(sorted((self.number, peer)))
        size = self.shape.sizes[1]
        transfer = Transfer((key, *ends), kind, ends, size, self.shape.transfer_ns(size), "0", peer)
        event = self.collective(transfer, f"{kind} {key}")
        if kind == "recv":
            self.wait_for(event)

    def loss(self, iteration: int) -> None:
        reads = [f"activation {iteration} {self.shape.layers - 1}"]
        self.operator("aten::mse_loss", reads, [f"loss {iteration}"], scale=0.3)
        if self.has("item"):
            self.host(0.3)
            with (
                self.inside("aten::item"),
                self.inside("aten::_local_scalar_dense", inputs=[f"loss {iteration}"]),
            ):
                work = self.work("Memcpy DtoH (Device -> Pinned)", 2, "gpu_memcpy", 4)
                self.steps.append(Launch("cudaMemcpyAsync", self.some(4, 8), COMPUTE, work))
                self.synchronize("cudaStreamSynchronize", COMPUTE)
        if self.has("query loop"):
            event = self.record(COMPUTE)
            self.host(0.5)
            self.steps.append(Query(event, self.some(0.8, 1.5), self.some(1, 4)))

    def backward(self, iteration: int) -> None:
        """Add the backward pass on autograd's thread or on main, with gradients reduced in buckets."""
        ends = f"backward {iteration} done"
        if self.has("backward thread"):
            self.host(0.5)
            self.steps.append(Signal(f"backward {iteration}"))
            self.steps.append(Await(ends, self.some(4, 15)))
            self.thread(BACKWARD)
            self.steps.append(Await(f"backward {iteration}", self.some(4, 15)))
        waiting: list[str] = []
        if self.has("pipeline") and self.number < self.shape.ranks - 1:
            self.message("recv", self.number + 1, f"backward {iteration}")
        layers = self.shape.layers
        last = f"loss {iteration}"
        for layer in reversed(range(layers)):
            own = {"sequence": self.sequence - (layers - 1 - layer), "backward": True}
            if self.has("sharded"):
                self.wait_for(self.gather(iteration, "backward", layer))
            self.host(0.3)
            gradients = f"gradients {iteration} {layer}"
            with self.inside("autograd::engine::evaluate_function: AddmmBackward0", **own):
                with self.inside("AddmmBackward0", **own):
                    writes = [f"change {iteration} {layer}", gradients]
                    self.operator("aten::mm", [last, f"activation {iteration} {layer}"], writes, 2)
                    last = writes[0]
                if self.has("buckets") and layer % self.shape.bucket_layers == 0:
                    waiting.append(self.bucket(iteration, layer, len(waiting), gradients))
                if self.has("sharded"):
                    size = self.shape.sizes[16 + layer] * self.shape.ranks
                    transfer = self.transfer("reduce_scatter", f"bucket {iteration} {layer}", size)
                    waiting.append(self.collective(transfer, gradients))
        if self.has("pipeline") and self.number > 0:
            self.message("send", self.number - 1, f"backward {iteration}")
        for event in waiting:
            self.wait_for(event)
        if self.has("backward thread"):
            self.host(0.3)
            self.steps.append(Signal(ends))

    def bucket(self, iteration: int, layer: int, number: int, tensor: str) -> str:
        """Reduce the gradients of a bucket, perhaps on several streams in turn."""
        turn = number % 2 if self.has("two communicators") else 0
        group = self.group_of(("3", "4")) if self.has("subgroups") else str(turn)
        transfer = self.transfer(
            "all_reduce", f"bucket {iteration} {layer}", self.shape.sizes[8 + layer], group
        )
        return self.collective(transfer, tensor, COMMUNICATION[turn])

    def optimizer(self, iteration: int) -> None:
        self.host(0.5)
        layers = range(self.shape.layers)
        with self.inside("Optimizer.step#SGD.step", "user_annotation"):
            for half in range(2):
                reads = [f"gradients {iteration} {layer}" for layer in layers[half::2]]
                self.operator(
                    "aten::_foreach_add_", reads, [f"weight {layer}" for layer in layers[half::2]], scale=0.5
                )
        if self.has("event sync"):
            event = self.record(COMPUTE)
            self.host(1.0)
            self.synchronize("cudaEventSynchronize", event=event)
        if self.has("device sync"):
            self.host(0.4)
            self.synchronize("cudaDeviceSynchronize")

    # -- without a GPU: gloo's threads communicate

    def gloo_workers(self) -> None:
        """Create the threads of gloo, which are filled while the main thread is written."""
        for worker in WORKERS:
            self.rank.threads[worker] = []

    def gloo(self, transfer: Transfer) -> str:
        """Pass a collective to a worker, and return the flag of its end."""
        self.transfers += 1
        names = {"all_reduce": "allreduce_", "all_gather": "allgather_"}
        name = f"transfer {self.transfers}"
        with self.inside(f"c10d::{names[transfer.kind]}", transfer=transfer):
            self.steps.append(Signal(name))
        own, self.steps = self.steps, self.rank.threads[WORKERS[self.transfers % 2]]
        self.steps += [
            Await(name, self.some(5, 20)),
            Begin(f"gloo:{transfer.kind}", "user_annotation", {}, transfer),
            Exchange(transfer),
            End(),
            Signal(f"{name} done"),
        ]
        self.steps = own
        return f"{name} done"

    def cpu_operator(self, name: str, **more: object) -> None:
        self.host(0.4)
        with self.inside(name, **more), self.inside(f"{name}_inner"):
            self.steps.append(Host(self.some(0.4 * self.shape.kernel_us, 1.6 * self.shape.kernel_us)))

    def gloo_step(self, iteration: int) -> None:
        layers = self.shape.layers
        for layer in range(layers):
            self.sequence += 1
            self.cpu_operator("aten::linear", sequence=self.sequence)
            if self.has("tensor parallel") and layer % 2 == 0:
                size = self.shape.sizes[layer]
                flag = self.gloo(self.transfer("all_reduce", f"forward {iteration} {layer}", size))
                self.steps.append(Await(flag, self.some(4, 12)))
        waiting = []
        for layer in reversed(range(layers)):
            sequence = self.sequence - (layers - 1 - layer)
            with self.inside(
                "autograd::engine::evaluate_function: AddmmBackward0", sequence=sequence, backward=True
            ):
                self.cpu_operator("aten::mm")
                if layer % self.shape.bucket_layers == 0:
                    size = self.shape.sizes[8 + layer]
                    waiting.append(
                        self.gloo(self.transfer("all_reduce", f"bucket {iteration} {layer}", size))
                    )
        for flag in waiting:
            self.host(0.2)
            self.steps.append(Await(flag, self.some(4, 12)))
        self.host(0.4)
        with self.inside("Optimizer.step#SGD.step", "user_annotation"):
            for _ in range(2):
                self.cpu_operator("aten::_foreach_add_")
