"""`et-sim machine`: list preset machines, show the sources of their figures, or write their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.alignment import aligned
from et_sim.basics.declared_options import Argument, Command, Count
from et_sim.basics.errors import UsageError, unreadable
from et_sim.basics.units import memory_text, parse_bytes

if TYPE_CHECKING:
    from et_sim.machine.presets import Preset, PresetEntry

SYSTEM, NETWORK = "system.json", "network.yml"
FROM = "from"


class Options(Command):
    """List the machines that --machine takes; with a name, describe a machine and the sources of its figures;
    with --out, write its files. `et-sim machine from FILE` makes the network file of a host or cluster that
    NCCL (NCCL_TOPO_DUMP_FILE) or InfraGraph described.
    """

    late = "file"

    name: Annotated[
        str | None,
        "a machine, such as h100-dgx:128",
        "NAME[:NPUS][,node=N][,cards=N[xRATE]][,network=KIND]",
        Argument(),
    ] = None
    file: Annotated[Path | None, "after `from`: a topology of NCCL or InfraGraph", "FILE", Argument()] = None
    hosts: Annotated[Count, "hosts like that of NCCL's file, whose ports lead to one switch", "N"] = None
    out: Annotated[Path | None, f"write {SYSTEM} and {NETWORK} there", "DIR"] = None
    json: Annotated[bool, "print as JSON"] = False


def run(options: Options) -> int:
    """List, describe or write machines."""
    from et_sim.machine.presets import entry, names, preset

    if options.name is None:
        if options.out is not None:
            raise UsageError("--out needs a machine", remedy=f"name one of {', '.join(names())}")
        _list([entry(name) for name in names()], as_json=options.json)
        return 0
    if options.name == FROM:
        return _from_file(options)
    if options.file is not None or options.hosts is not None:
        raise UsageError("a file needs the word from", remedy="et-sim machine from FILE --out DIR")
    machine = preset(options.name)
    if options.out is not None:
        contents = ((SYSTEM, machine.system), (NETWORK, machine.network))  # JSON is YAML, too
        _write(options.out, [(name, json.dumps(content, indent=2) + "\n") for name, content in contents])
    known = entry(machine.name, machine.options)
    if options.json:
        calibrated = {"calibrated": known.calibrated} if known.calibrated else {}
        facts = {
            "name": machine.name,
            "npus": machine.npus,
            "system": machine.system,
            "network": machine.network,
        }
        print(
            json.dumps(
                {**facts, "sources": known.sources, "estimates": known.estimates, **calibrated}, indent=2
            )
        )
    elif options.out is not None:
        print(f"{machine.text} written to {options.out / SYSTEM} and {options.out / NETWORK}")
    else:
        print("\n".join(_described(machine, known)))
    return 0


def _write(folder: Path, files: list[tuple[str, str]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files:
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        cause = f"cannot be written: {unreadable(error)}"
        raise UsageError(cause, place=str(folder), remedy="name another folder with --out") from None


def _from_file(options: Options) -> int:
    """Make the network file of a topology that another tool described."""
    import yaml

    from et_sim.machine import read_network_alone
    from et_sim.machine.other_topologies import as_network_file
    from et_sim.network.description import as_text, describe

    if options.file is None:
        raise UsageError("the file is missing", remedy="et-sim machine from FILE --out DIR")
    try:
        content, notices = as_network_file(options.file, options.hosts or 1)
    except OSError as error:
        remedy = "name the file of a topology of NCCL or InfraGraph"
        cause = f"cannot be read: {unreadable(error)}"
        raise UsageError(cause, place=str(options.file), remedy=remedy) from None
    network = read_network_alone(content)
    if options.out is not None:
        _write(options.out, [(NETWORK, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))])
    if options.json:
        print(json.dumps({"network": content, "notices": dict(notices)}, indent=2))
        return 0
    print("\n".join(as_text(describe(network, []), str(options.file))))
    for subject, notice in notices:
        print(f"note: {subject}: {notice}")
    if options.out is not None:
        print(f"written to {options.out / NETWORK}")
    return 0


def _list(known: list[PresetEntry], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"name": listed.name, "about": listed.about, "fewest": listed.fewest, "most": listed.most}
            for listed in known
        ]
        print(json.dumps(rows, indent=2))
        return
    print("\n".join(aligned([(listed.name, listed.about) for listed in known], "<<")))


def _described(machine: Preset, known: PresetEntry) -> list[str]:
    sources = [
        f"  {subject}: {where}" for subject, where in (*known.sources.items(), *known.estimates.items())
    ]
    changed = f"; changed: {machine.options[1:]}" if machine.options else ""
    return [
        f"{machine.text}: {known.about}{changed}",
        f"device: {known.device}",
        f"memory: {_memory(machine.system)}",
        "dimensions:",
        *(f"  {line}" for line in machine.wiring),
        "sources:",
        *sources,
        *_calibrated(known),
    ]


def _memory(system: dict[str, Any]) -> str:
    """Return the memory for tensors on an NPU."""
    from et_sim.machine.system_parts import CAPACITY, RESERVED

    whole, reserved = (_bytes(system.get(key, 0)) for key in (CAPACITY, RESERVED))
    return memory_text(whole - reserved, reserved) if reserved else str(system.get(CAPACITY, "not known"))


def _bytes(size: int | str) -> int:
    return parse_bytes(size) if isinstance(size, str) else size


def _calibrated(known: PresetEntry) -> list[str]:
    """Return the errors of a machine that et-sim calibrate wrote, by fitted part."""
    lines = []
    for fitted, errors in known.calibrated.items():
        for name, error in errors.items():
            if isinstance(error, dict):
                lines.append(f"  {fitted}: {name}: E {error['e']:.1f} % on {error['rows']} {error['of']}")
            else:
                lines.append(f"  {fitted}: {name}: {error}")
    return ["calibrated:", *lines] if lines else []
