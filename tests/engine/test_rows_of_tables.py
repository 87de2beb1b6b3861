"""The engine reads no table at the row that means none, on any network model, with everything recorded.

The engine is interpreted here. Records and cells always refuse rows below 0; numbers do so in this test only,
because they are read most often.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines import MODELS

SCRIPT = """
import sys
from et_sim.compiled import interpreted

class Checked(interpreted._Numbers):
    def __getitem__(self, row):
        if not isinstance(row, slice):
            interpreted.check_rows(row)
        return super().__getitem__(row)

    def __setitem__(self, row, value):
        if not isinstance(row, slice):
            interpreted.check_rows(row)
        super().__setitem__(row, value)

interpreted._Numbers = Checked

from et_sim.basics.errors import MachineError, UsageError
from machines import simulate
from rows_of_tables import GROUPS, NETWORKS, SYSTEMS, programs

model, done = sys.argv[1], 0
for name, net in NETWORKS.items():
    for system in SYSTEMS[name]:
        for fold in (True, False):
            try:
                result = simulate(
                    programs(), net, system, model=model, fold=fold, groups=GROUPS,
                    detail="phases,messages,links,path",
                )
            except (MachineError, UsageError):
                continue  # the model has no such network
            assert result.is_complete
            done += 1
print(done)
"""


@pytest.mark.parametrize(
    "model", [MODELS[0], *(pytest.param(name, marks=pytest.mark.deep) for name in MODELS[1:])]
)
def test_no_row_below_0_is_read(model: str) -> None:
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    paths = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-c", SCRIPT, model]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not ran.returncode, ran.stderr
    assert int(ran.stdout) >= 6
