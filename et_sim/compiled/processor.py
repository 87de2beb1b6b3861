"""Which processor this is, as far as machine code is concerned.

Linux says so in a file; elsewhere LLVM is asked, which takes longer to be imported than this file to be read.
"""

from __future__ import annotations

from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
FIRST_BYTES = 8192  # more than one processor takes; a list of hundreds takes long to be made
DECISIVE = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)


def processor(told: Path = CPU_INFO) -> str:
    """What the machine code of this host may use."""
    try:
        with told.open("rb", buffering=0) as file:
            text = file.read(FIRST_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    found = {key.strip(): value.strip() for key, _, value in pairs}
    if not ("flags" in found or "Features" in found):
        from et_sim.compiled.llvm import processor as processor_by_llvm

        return processor_by_llvm()
    return "\n".join(f"{key} {found[key]}" for key in DECISIVE if key in found)
