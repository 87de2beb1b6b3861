"""Generator of the users' pages on configuration files, `docs/configuration*.md`, from the declared keys.

    python -m et_sim.reference_page docs

A test keeps the committed pages equal to the output of this module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from msgspec import Struct

from et_sim import reference_texts as texts
from et_sim.basics.lazy_names import loaded
from et_sim.documents.keys import LARGEST_INTEGER, Key, keys_of, show
from et_sim.documents.keys_without_effect import UNUSED_KEYS
from et_sim.documents.kinds import TEXT
from et_sim.goodput.job_file import (
    CheckpointSpec,
    EarlySpec,
    FailuresSpec,
    JobSpec,
    MaintenanceSpec,
    MemorySpec,
    PartSpec,
    RecoverySpec,
    SparesSpec,
)
from et_sim.jobs.job_file import JobEntry
from et_sim.machine.accuracy import ACCURACY_KEYS, DEFAULTS, EXCHANGES, OPERATIONS, TERM_KEYS
from et_sim.machine.collective_library_keys import LIBRARY_KEYS
from et_sim.machine.compute_rules import MODELS, RULE_KEYS, Where
from et_sim.machine.failures import FailureKeys
from et_sim.machine.gpu_failures import GpuFailure
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.network_file import IN_NETWORK_KEYS, LINK_KEYS, NETWORK_KEYS
from et_sim.machine.protocol_presets import PROTOCOL_KEYS, packet_keys, tcp_keys
from et_sim.machine.remote_memory import MEMORY_KEYS, PoolStage
from et_sim.machine.roofline import AttentionKernel, MemoryLevel
from et_sim.machine.system import ALGORITHM_LIST
from et_sim.machine.system_file import SYSTEM_KEYS
from et_sim.machine.system_parts import Costs, LimitedWork, Overlap, Straggler, TimeFactors
from et_sim.machine.topology.generators import GENERATORS
from et_sim.machine.topology.graph_file import GraphFile, Override, Reduction
from et_sim.machine.topology.keys import Common
from et_sim.machine.topology.listed import ListedLink
from et_sim.machine.transports import Credits, LogGops, Marking, Recovery
from et_sim.machine.variation import MixturePart, Variation
from et_sim.machine.version_1 import LEVEL_KEYS, SYSTEM_1_KEYS
from et_sim.recipes.recipe import recipe_keys
from et_sim.serving.engines.description import Activations, Engine, EngineErrors, EngineHost, EngineMemory
from et_sim.sweeps.axes import Range
from et_sim.sweeps.spec import AxisSpec, BaseSpec, MonthsSpec, SampleSpec, SearchSpec, SweepSpec
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.manifest import Made, Manifest, Template
from et_sim.trace.workload import MadeFor, Step
from et_sim.workloads.software.description import (
    BothWays,
    Casts,
    ElementWise,
    ExpertKernels,
    Host,
    KernelPass,
    Optimizer,
    PlanDefaults,
    Shares,
    Software,
)
from et_sim.workloads.training.plan import Plan

WIDTH = 110  # of lines of text
_GENERATED = "<!-- Generated from the declared keys: python -m et_sim.reference_page docs -->"
MAIN_PAGE = "configuration.md"
PAGES = {  # titles of further pages, and their sections
    "configuration-network.md": ("Keys of network files", ("Network file",)),
    "configuration-system.md": ("Keys of system files", ("System file",)),
    "configuration-workload.md": (
        "Keys of manifests, software, engines and job files",
        ("Workload manifest", "Software", "Engine", "Job file"),
    ),
    "configuration-goodput.md": ("Keys of long jobs", ("Long job",)),
    "configuration-sweep.md": ("Keys of sweeps and searches", ("Sweep",)),
}
WHOLE = ("unit", "default", "allowed", "meaning", "in the reference")
DEFAULTED = WHOLE[:-1]  # for keys without a counterpart in the reference
ENTRY = ("unit", "allowed", "meaning")
ERRORS = ("basis", "random", "common", "class")


class KeyTable(Struct, frozen=True):
    """The keys of a file, or of an object in it, with an introduction."""

    name: str
    text: str  # for a file, with an example
    keys: tuple[Key, ...]
    columns: tuple[str, ...] = ENTRY


def configuration_text() -> str:
    """Return all keys of all files as Markdown."""
    parts = [texts.OPENING.format(generated=_GENERATED)]
    for table in TABLES:
        in_effect = tuple(key for key in table.keys if not key.ignored)
        parts += [table.text, _table(in_effect, table.columns)]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def configuration_pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    of_section = {section: page for page, (_, sections) in PAGES.items() for section in sections}
    below = f"{_GENERATED}\n\n[Configuration files]({MAIN_PAGE}) has the rules of all files."
    opening = {page: f"# {title}\n\n{below}\n\n" for page, (title, _) in PAGES.items()}
    pages = {MAIN_PAGE: "", **opening}
    place: dict[str, str] = {}
    for section in re.split(r"^(?=## )", configuration_text(), flags=re.MULTILINE):
        page = of_section.get(section.partition("\n")[0].removeprefix("## "), MAIN_PAGE)
        pages[page] += section
        place |= dict.fromkeys(map(_anchor, re.findall(r"^#+ (.*)$", section, re.MULTILINE)), page)

    def moved(name: str, text: str) -> str:
        return re.sub(
            r"\]\(#([\w-]+)\)",
            lambda link: link[0] if place[link[1]] == name else f"]({place[link[1]]}#{link[1]})",
            text,
        )

    return {name: f"{moved(name, text).strip()}\n" for name, text in pages.items()}


def _anchor(heading: str) -> str:
    """Return the name of a heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(keys: tuple[Key, ...], columns: tuple[str, ...]) -> str:
    rows = [_row("key", *columns), "|" + "---|" * (len(columns) + 1)]
    for key in keys:
        cells = _cells(key, is_entry=columns == ENTRY)
        rows.append(_row(f"`{key.name}`", *(cells[column] for column in columns)))
    return "\n".join(rows)


def _cells(key: Key, *, is_entry: bool) -> dict[str, str]:
    """Return the cells of a key; without a column of defaults, the meaning marks required keys."""
    needs = f" Only with `{key.needs}`." if key.needs else ""
    if key.correction:
        needs = f" Only with the correction `{key.correction}`."
    value = _default(key)
    default = "none" if value is None else f"`{show(value)}`"
    # The unit has its own column, and the names of algorithms are above the table.
    allowed = key.allowed.replace(f", in {key.unit}", "") if key.unit else key.allowed
    most = f"{int(key.maximum):,}" if 1 <= key.maximum < 1 << 64 else f"{key.maximum:g}"
    if key.maximum != LARGEST_INTEGER and not re.search(rf"\b{re.escape(most)}$", allowed):
        allowed += f"; at most {most}"
    known = DEFAULTS.get(key.name)
    return {
        "unit": key.unit or "-",
        "default": "required" if key.required else default,
        "allowed": "a list of algorithm names" if key.kind is ALGORITHM_LIST else allowed,
        "meaning": key.meaning + needs + (" Required." if key.required and is_entry else ""),
        "in the reference": key.reference or "the same",
        "class": key.meaning,
        "basis": known.basis if known else "-",
        "random": f"{known.random:g}" if known else "-",
        "common": f"{known.common:g}" if known else "-",
    }


def _default(key: Key) -> Any:
    """Return the value of a key that is not given; None: it is unset, or a value that no file may state."""
    value = key.usual
    if key.default is not None or key.becomes is not None:
        return key.default
    if isinstance(value, bool | str):
        return value if isinstance(value, bool) or value in key.words else None
    is_allowed = isinstance(value, int | float) and key.kind is not TEXT and key.minimum <= value
    return value if is_allowed else None


def _accuracy() -> str:
    names = {"operations": OPERATIONS, "exchanges": EXCHANGES}
    lists = {class_name: ", ".join(f"`{name}`" for name in members) for class_name, members in names.items()}
    return "\n" + fill(texts.ACCURACY.format(**lists).strip(), WIDTH) + "\n"


def _ignored_table() -> str:
    keys = [key for key in (*SYSTEM_KEYS, *MEMORY_KEYS) if key.ignored]
    heading = "## Keys without effect\n\nAccepted so that existing files can be used, each with a warning.\n"
    rows = [_row("key", "meaning", "in the reference"), "|---|---|---|"]
    rows += [_row(f"`{key.name}`", key.meaning, key.reference) for key in keys]
    others = ["| key | why |", "|---|---|", *(_row(f"`{name}`", why) for name, why in UNUSED_KEYS.items())]
    between = (
        "\n\nSo are keys of other versions, and keys in the wrong file, each with a warning that the key:\n\n"
    )
    return heading + "\n" + "\n".join(rows) + between + "\n".join(others)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _of_model(name: str) -> KeyTable:
    """Return the further keys of a model's rules, with the note of its settings."""
    settings = loaded(MODELS[name])
    note = getattr(settings, "note", "")
    text = f"\nThe model `{name}` also has these{note and f'. {note}'}:\n"
    return KeyTable(f"model {name}{_IN_SYSTEM}", text, keys_of(settings), DEFAULTED)


def _generators() -> Iterator[KeyTable]:
    """Yield the keys of each generator besides the common ones."""
    common = {key.name for key in keys_of(Common)}
    for of in dict.fromkeys(GENERATORS.values()):
        names = " and ".join(f"`{name}`" for name, made in GENERATORS.items() if made is of)
        keys = tuple(key for key in keys_of(of) if key.name not in common)
        if keys:
            text = f"\n{names}: {of.__doc__.partition(chr(10))[0]}\n"
            yield KeyTable(f"generator {names.replace('`', '')}{_IN_NETWORK}", text, keys)


def _parts() -> Iterator[KeyTable]:
    """Yield the tables of objects in descriptions of software and of an engine."""
    of_software = {
        "plan": PlanDefaults,
        "element-wise": ElementWise,
        "a part of element-wise": BothWays,
        "forward, backward, dropout, after-gather and before-reduce": KernelPass,
        "casts": Casts,
        "experts": ExpertKernels,
        "shares": Shares,
        "optimizer": Optimizer,
        "host": Host,
    }
    of_engine = {
        "memory": EngineMemory,
        "an entry of activations, in memory": Activations,
        "host": EngineHost,
        "errors": EngineErrors,
    }
    yield from _described("software", texts.SOFTWARE, {"": Software, **of_software})
    yield from _described("engine", texts.ENGINE, {"": Engine, **of_engine})


def _described(file: str, text: str, objects: dict[str, type]) -> Iterator[KeyTable]:
    """Yield the tables of a description and of objects in it."""
    for name, of in objects.items():
        keys = keys_of(of)
        columns = DEFAULTED if any(key.default is not None for key in keys) else ENTRY
        part = f"{name}, in the {file}" if name else file
        yield KeyTable(part, texts.PARTS_OF_DESCRIPTION.format(name=name) if name else text, keys, columns)


SYSTEM, NETWORK, MEMORY = "system file", "network file", "memory file"
_IN_SYSTEM, _IN_NETWORK, _IN_MEMORY = (f", in the {file}" for file in (SYSTEM, NETWORK, MEMORY))
TABLES = (
    KeyTable(NETWORK, texts.NETWORK, NETWORK_KEYS, WHOLE),
    KeyTable(f"entry of links{_IN_NETWORK}", texts.LINKS, LINK_KEYS),
    KeyTable(f"protocol{_IN_NETWORK}", texts.PROTOCOL, PROTOCOL_KEYS),
    KeyTable(f"protocol{_IN_NETWORK}", texts.PACKETS, packet_keys()),
    KeyTable(f"entry of marking{_IN_NETWORK}", texts.MARKING, keys_of(Marking)),
    KeyTable(f"credits{_IN_NETWORK}", texts.CREDITS, keys_of(Credits)),
    KeyTable(f"entry of in-network{_IN_NETWORK}", texts.REDUCERS, IN_NETWORK_KEYS),
    KeyTable(f"tcp of the protocol{_IN_NETWORK}", texts.TCP, tcp_keys()),
    KeyTable(f"entry of failures{_IN_NETWORK}", texts.FAILURES, keys_of(FailureKeys)),
    KeyTable(f"recovery{_IN_NETWORK}", texts.RECOVERY, keys_of(Recovery), DEFAULTED),
    KeyTable(f"loggops{_IN_NETWORK}", texts.LOGGOPS, keys_of(LogGops), DEFAULTED),
    KeyTable("network file of a graph", texts.GRAPH, keys_of(GraphFile)),
    KeyTable(f"entry of links of a graph{_IN_NETWORK}", texts.GRAPH_LINKS, keys_of(ListedLink)),
    KeyTable(f"entry of overrides{_IN_NETWORK}", texts.OVERRIDES, keys_of(Override)),
    KeyTable(f"entry of in-network of a graph{_IN_NETWORK}", texts.REDUCTIONS, keys_of(Reduction)),
    KeyTable(f"generators{_IN_NETWORK}", texts.GENERATORS, keys_of(Common)),
    *_generators(),
    KeyTable(SYSTEM, texts.SYSTEM, SYSTEM_KEYS, WHOLE),
    KeyTable(f"compute{_IN_SYSTEM}", texts.COMPUTE, RULE_KEYS),
    KeyTable(f"where of compute{_IN_SYSTEM}", texts.WHERE, keys_of(Where)),
    *(_of_model(name) for name in reversed([*MODELS]) if keys_of(loaded(MODELS[name]))),
    KeyTable(f"entry of memory, of roofline{_IN_SYSTEM}", texts.LEVELS_OF_MEMORY, keys_of(MemoryLevel)),
    KeyTable(
        f"entry of attention-kernels, of roofline{_IN_SYSTEM}",
        texts.ATTENTION_KERNELS,
        keys_of(AttentionKernel),
    ),
    KeyTable(f"entry of kinds, of roofline{_IN_SYSTEM}", texts.KINDS, keys_of(KernelKind)),
    KeyTable(f"entry of stragglers{_IN_SYSTEM}", texts.STRAGGLERS, keys_of(Straggler)),
    KeyTable(f"entry of failures{_IN_SYSTEM}", texts.FAILURES_OF_GPUS, keys_of(GpuFailure)),
    KeyTable(f"entry of time-factors{_IN_SYSTEM}", texts.TIME_FACTORS, keys_of(TimeFactors)),
    KeyTable(f"entry of variation{_IN_SYSTEM}", texts.VARIATION, keys_of(Variation)),
    KeyTable(f"part of variation{_IN_SYSTEM}", texts.MIXTURES, keys_of(MixturePart)),
    KeyTable(f"entry of streams{_IN_SYSTEM}", texts.STREAMS, keys_of(LimitedWork), DEFAULTED),
    KeyTable(f"overlap{_IN_SYSTEM}", texts.OVERLAP, keys_of(Overlap)),
    KeyTable(f"library{_IN_SYSTEM}", texts.LIBRARY, LIBRARY_KEYS, DEFAULTED),
    KeyTable(f"costs{_IN_SYSTEM}", texts.COSTS, keys_of(Costs), DEFAULTED),
    KeyTable(f"accuracy{_IN_SYSTEM}", _accuracy(), ACCURACY_KEYS, ERRORS),
    KeyTable(f"entry of accuracy{_IN_SYSTEM}", texts.TERMS, TERM_KEYS),
    KeyTable(MEMORY, texts.MEMORY, MEMORY_KEYS, WHOLE),
    KeyTable(f"entry of stages{_IN_MEMORY}", texts.STAGES, keys_of(PoolStage)),
    KeyTable(
        "network file of ASTRA-sim 1.0", f"{texts.GROUPS}\n{_ignored_table()}\n{texts.VERSION_1}", LEVEL_KEYS
    ),
    KeyTable("system file of ASTRA-sim 1.0", texts.SYSTEM_1, SYSTEM_1_KEYS, DEFAULTED),
    KeyTable("manifest", texts.MANIFEST, keys_of(Manifest)),
    KeyTable("entry of templates, in the manifest", texts.TEMPLATES, keys_of(Template)),
    KeyTable("rule of groups, in the manifest", texts.RULES, keys_of(GroupRule)),
    KeyTable("step, in the manifest", texts.STEP, keys_of(Step)),
    KeyTable("software, in the manifest", texts.MADE_FOR, keys_of(MadeFor)),
    KeyTable("made, in the manifest", texts.MADE_BY, keys_of(Made)),
    *_parts(),
    KeyTable("entry of jobs, in the job file", texts.JOBS, keys_of(JobEntry)),
    KeyTable("long job", texts.GOODPUT, keys_of(JobSpec), DEFAULTED),
    KeyTable("failures of a long job", texts.FAILURES_OF_JOB, keys_of(FailuresSpec), DEFAULTED),
    KeyTable("part of a long job", texts.PARTS, keys_of(PartSpec)),
    KeyTable("early of a long job", texts.EARLY, keys_of(EarlySpec)),
    KeyTable("recovery of a long job", texts.RECOVERY_OF_JOB, keys_of(RecoverySpec), DEFAULTED),
    KeyTable("checkpoints of a long job", texts.CHECKPOINTS, keys_of(CheckpointSpec), DEFAULTED),
    KeyTable("memory of a long job", texts.COPIES, keys_of(MemorySpec)),
    KeyTable("spares of a long job", texts.SPARES, keys_of(SparesSpec), DEFAULTED),
    KeyTable("maintenance of a long job", texts.MAINTENANCE, keys_of(MaintenanceSpec)),
    KeyTable("sweep", texts.SWEEP, keys_of(SweepSpec)),
    KeyTable("base of a sweep", texts.BASE, keys_of(BaseSpec)),
    KeyTable("goodput of a sweep", texts.MONTHS, keys_of(MonthsSpec), DEFAULTED),
    KeyTable("axis of a sweep", texts.AXES, keys_of(AxisSpec)),
    KeyTable("range of a sweep", texts.RANGE, keys_of(Range)),
    KeyTable("sample of a sweep", texts.SAMPLE, keys_of(SampleSpec)),
    KeyTable("search", texts.SEARCH, keys_of(SearchSpec)),
    KeyTable("workload of a sweep", texts.MADE, recipe_keys({"make": "llm"})),
    KeyTable("workload of a sweep", texts.MICROBENCHMARK, recipe_keys({"make": "all_reduce"})),
    KeyTable("workload of a sweep", texts.SERVED, recipe_keys({"make": "serving"})),
    KeyTable("plan of a sweep", texts.PLAN, keys_of(Plan)),
)


if __name__ == "__main__":
    for page_name, page_text in configuration_pages().items():
        (Path(sys.argv[1]) / page_name).write_text(page_text, encoding="utf-8")
