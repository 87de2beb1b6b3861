"""A worker process: receives a design space, then tasks, and sends back each result when it is there.

It ends when the sweep's process does, however that happens. Not here: who gets which task (`pool`).
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from et_sim.basics.errors import EtSimError
from et_sim.sweeps.evaluate import Evaluator, attempt

STATUS = Path("/proc/self/statm")
PAGE_BYTES = 4096


def main(descriptor: int) -> None:
    """Work until no more tasks arrive."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the sweep's decides
    with Connection(descriptor) as connection:
        try:
            evaluator = Evaluator(connection.recv())
            while True:
                task = connection.recv()
                try:
                    done = attempt(evaluator, task)
                except EtSimError as error:
                    connection.send((str(error), 0))
                    return
                connection.send((done, _memory_bytes()))
        except (EOFError, ConnectionError):  # the sweep has ended
            return


def _memory_bytes() -> int:
    """How much memory this process has; 0 where the system does not say."""
    try:
        return int(STATUS.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
