"""One recorded process: runs the program under the modes, and writes what it recorded.

    python -m recorder.process.main OUTPUT HOST_NS SKEW SEED SCRIPT ARGUMENTS…

The environment is torchrun's. Exit status: 0, or 1 after the program's own traceback.
"""

from __future__ import annotations

import gc
import os
import random
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from et_sim.basics.errors import EtSimError
from recorder.launching import KEEP, MEETING, RECORDED
from recorder.process.communication import RankCommunication
from recorder.process.device import register_device
from recorder.process.experts import ExpertCounts
from recorder.process.libraries import adjust_libraries
from recorder.process.objects import MeetingFolder, PeerNeeded
from recorder.process.operators import RecordingMode
from recorder.process.patches import patch
from recorder.process.phases import TapePhases
from recorder.process.redirect import Redirect
from recorder.process.regions import Regions, patch_compile
from recorder.process.storages import Storages
from recorder.process.streams import DeviceModule
from recorder.process.tape import Tape
from recorder.recorded import ExpertRouting, write_recorded


def main(arguments: list[str]) -> int:
    """Record one rank."""
    output, host_ns, skew, seed, script, *rest = arguments
    tape = Tape(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), host_ns=int(host_ns))
    tape.recorded.torch = str(torch.__version__)
    storages = Storages(tape)
    module = DeviceModule(tape, int(os.environ["LOCAL_WORLD_SIZE"]))
    registrations = register_device(module)
    ranks = frozenset(map(int, os.environ[RECORDED].split(",")))
    meeting = MeetingFolder(Path(os.environ[MEETING]), tape.recorded.rank, ranks)
    phases, collectives = TapePhases(tape, storages), RankCommunication(tape, storages, meeting)
    phases.install()
    storages.install()
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    experts, regions = ExpertCounts(ExpertRouting(skew, int(seed)), tape), Regions(tape, storages)
    mode = RecordingMode(fake, tape, storages, phases, collectives, experts, regions)
    patch(module, tape, phases, fake, mode.pausing)
    patch_compile(phases)
    adjust_libraries()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    status = 0
    # Python would collect circles of objects, which hold tensors, at other nodes in every process.
    gc.freeze()
    gc.disable()
    vars(gc).update(enable=lambda: None, set_threshold=lambda *_: None)
    with (
        torch.autograd.set_multithreading_enabled(False),
        fake,
        mode,
        Redirect(),
    ):
        _enter_threads((fake, mode, Redirect()))
        try:
            status = _run(script, rest)
        except PeerNeeded as needed:
            tape.recorded.stopped, tape.recorded.needs = str(needed), needed.peer
        storages.finish()
        regions.fuse()
        tape.recorded.weights = phases.weights
    del registrations
    if status and os.environ[KEEP]:
        tape.remark("ended early", "by an error of the program; the work before it is kept")
    if status == 0 or os.environ[KEEP]:
        write_recorded(tape.recorded, Path(output))
    return status


def _enter_threads(modes: Sequence[AbstractContextManager[Any]]) -> None:
    """Make new threads enter the modes, which apply to one thread each."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def inner(thread: threading.Thread) -> None:
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            begin(thread)

    threading.Thread._bootstrap_inner = inner  # type: ignore[attr-defined]


def _run(script: str, arguments: list[str]) -> int:
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except PeerNeeded:
        raise
    except EtSimError as error:
        sys.stderr.write(f"et-record: error: {error}\n")
        return 1
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the rest of the program needs no orderly end
