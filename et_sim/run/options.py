"""Options of a run, declared once for the command line, for Python, and for sweeps."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from et_sim.basics.errors import UsageError
from et_sim.network.registry import MODELS

Description = str | Path | Mapping[str, Any]  # a file, or a dict with its keys
Detail = str | Iterable[str]


class RunOptions(Struct, frozen=True, kw_only=True):
    """A machine, and the way a workload is simulated on it; each field's text is the help of its option."""

    system: Annotated[Description | None, "system description (JSON; of ASTRA-sim 1.0: text)"] = None
    network: Annotated[Description | None, "network description (YAML; of ASTRA-sim 1.0: JSON)"] = None
    memory: Annotated[Description | None, "remote-memory description (JSON)"] = None
    groups: Annotated[Description | None, "communicator groups (JSON)"] = None
    machine: Annotated[
        str | None,
        "a preset such as h100-dgx:128 in place of system and network; explicit files override the preset",
    ] = None
    model: Annotated[
        str | None,
        f"network model: {' or '.join(MODELS)} (default: flow for a machine by name, else analytical)",
    ] = None
    compute_model: Annotated[
        str | Callable[..., Any] | None,
        "a Python file that times kernels before the models of the system: kernels.py",
    ] = None
    profile: Annotated[
        str | None, "profile in place of the system file's: reference, corrected or astra-1.0"
    ] = None
    when_full: Annotated[
        str | None,
        "for tensors that need more memory than an NPU has: stop the run, report (and continue) or "
        "spill (to remote memory), in place of the system file's choice (default: stop)",
    ] = None
    power: Annotated[
        str | None,
        "the most that each device draws, such as 500W, in place of the system file's higher cap: clocks "
        "fall until they meet it",
    ] = None
    steady: Annotated[
        float | None,
        "with packets, skip messages that are like earlier ones: the largest part by which times may differ "
        "by estimate, such as 0.005",
    ] = None
    other_profile: Annotated[bool, "if no profile is named, also simulate the corrected one"] = False
    fold: Annotated[bool, "simulate ranks that behave identically as one, with the same result"] = True
    ties_alike: Annotated[
        bool,
        "where the order of events in one nanosecond has an effect, let it be the same on all folded ranks, "
        "in place of simulating every rank by itself",
    ] = False
    alone: Annotated[
        bool,
        "communication takes its recorded time: ranks do not wait for others, which may be missing",
    ] = False
    retime: Annotated[bool, "also time recorded kernels by the machine; presets keep the recorded times"] = (
        False
    )
    isolated: Annotated[
        bool, "for a job file: also simulate each job by itself, to measure how much the others slow it down"
    ] = False
    detail: Annotated[
        Detail,
        "what to record besides nodes: phases (of every chunk), messages, links (over time), path "
        "(causal events, for critical paths); several, separated by commas",
    ] = "nodes"
    samples: Annotated[
        int | None,
        'also simulate so many samples of the step, with random times by "variation" of the system file',
    ] = None
    seed: Annotated[int | None, "seed of the samples (default: 0)"] = None

    @property
    def parts(self) -> dict[str, Any]:
        """Return the parts of the machine (explicit files, or the preset's), and overrides of keys."""
        files = machine_parts({name: getattr(self, name) for name in MACHINE}, self.machine)
        instead = {name: value for name in INSTEAD if (value := getattr(self, name)) is not None}
        return {**files, **instead}

    @property
    def machine_name(self) -> str:
        """Return the preset with the names of explicit files; a part that is no file is "of its own"."""
        given = {name: getattr(self, name) for name in MACHINE}
        files = [
            Path(part).name if isinstance(part, str | Path) else f"a {name} of its own"
            for name, part in given.items()
            if part is not None
        ]
        return " with ".join(filter(None, (self.machine, ", ".join(files))))


def machine_parts(given: Mapping[str, Any], machine: str | None) -> dict[str, Any]:
    """Return the parts of a machine; refuse one that is incomplete, and a name that has no effect."""
    parts = dict(given)
    if machine is not None:
        if all(given[name] is not None for name in REQUIRED):
            raise UsageError(
                f"--machine {machine} has no effect: --system and --network are given",
                remedy="leave one of the three out",
            )
        from et_sim.machine.presets import preset

        known = preset(machine)
        for name, content in (("system", known.system), ("network", known.network)):
            parts[name] = content if given[name] is None else given[name]
    missing = [name for name in REQUIRED if parts[name] is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        files = " and ".join(f"--{name}" for name in missing)
        raise UsageError(
            f"the machine is incomplete: its {' and '.join(missing)} {verb} missing",
            remedy=f"give {files}, or name a machine with --machine; et-sim machine lists the names",
        )
    return parts


FEWEST_SAMPLES, MOST_SAMPLES = 2, 100_000
MOST_STEADY = 0.05
REQUIRED = ("system", "network")
INSTEAD = ("when_full", "power", "steady")  # overrides of keys of the system and the network
MACHINE = ("system", "network", "memory", "groups")
NAMES = RunOptions.__struct_fields__
HELP: dict[str, str] = {name: hint.__metadata__[0] for name, hint in RunOptions.__annotations__.items()}
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(RunOptions)}


def check_samples(options: RunOptions) -> None:
    """Refuse numbers of samples, seeds, orders of events and tolerances that have no meaning."""
    samples, seed = options.samples, options.seed
    _check_steady(options)
    if options.ties_alike and not options.fold:
        raise UsageError(
            "--ties-alike has no effect with --no-fold, which folds no ranks", remedy="leave one of them out"
        )
    if samples is not None and options.ties_alike:
        raise UsageError(
            "--ties-alike has no effect on samples: their ranks are simulated by themselves after a tie",
            remedy="leave one of them out",
        )
    if samples is None:
        if seed is not None:
            raise UsageError("--seed has no effect without --samples", remedy="give both, or neither")
        return
    if not FEWEST_SAMPLES <= samples <= MOST_SAMPLES:
        raise UsageError(
            f"--samples is {samples}", remedy=f"allowed: from {FEWEST_SAMPLES} to {MOST_SAMPLES:,}"
        )
    if seed is not None and not 0 <= seed < 1 << 63:
        raise UsageError(f"--seed is {seed}", remedy="allowed: from 0 to 2^63 - 1")


def _check_steady(options: RunOptions) -> None:
    """Refuse a tolerance of steady phases that no run can use."""
    if options.steady is None:
        return
    if not 0 < options.steady <= MOST_STEADY:
        raise UsageError(
            f"--steady is {options.steady:g}, or {100 * options.steady:g}%",
            remedy=f"allowed: above 0, up to {MOST_STEADY:.0%}, such as 0.5%",
        )
    if options.model != "packet":
        raise UsageError(
            f"--steady is for packets, and the network model is {options.model or 'not named'}",
            remedy="give --network-model packet, or leave out --steady",
        )


def described_for_python() -> str:
    """Return every option with its type, default and meaning, for the docstring of a Python function."""
    lines = ["Options, as keywords:", ""]
    for name, annotated in RunOptions.__annotations__.items():
        hint = annotated.__origin__
        kind = str(hint) if get_args(hint) else hint.__name__
        for long, short in _SHORT_TYPES:
            kind = kind.replace(long, short)
        lines += [
            f"{name}: {kind}, default {DEFAULTS[name]!r}",
            fill(HELP[name], 100, initial_indent="    ", subsequent_indent="    "),
        ]
    return "\n".join(lines)


_SHORT_TYPES = (
    ("collections.abc.Mapping[str, typing.Any]", "dict"),
    ("collections.abc.", ""),
    ("pathlib.", ""),
)


FLAGS = ("fold", "ties_alike", "alone", "retime")  # of a manifest


def repeated(manifest: Mapping[str, Any], folder: Path, model: str) -> tuple[str, RunOptions]:
    """Return the workload and the options of a run of files; `folder` is its directory."""
    command = manifest["command"]
    files: dict[str, Any] = {name: str(folder / path) for name, path in command["files"].items()}
    workload = files.pop("workload")
    given: dict[str, Any] = {name: command.get(name) for name in ("machine", "profile", *INSTEAD)}
    given |= {name: bool(command.get(name, False)) for name in FLAGS}
    return workload, RunOptions(**files, **given, model=model)
