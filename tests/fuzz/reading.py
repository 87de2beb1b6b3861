"""A reader of damaged input that runs the commands and reports results other than success or refusal."""

from __future__ import annotations

import io
import random
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from inputs import Case

from converters.cli import _parser as converter_parser
from et_sim.basics.errors import EtSimError
from et_sim.cli import carry_out, parser_of

LONGEST_MESSAGE = 2500  # characters: cause, place and remedy, each of a line or some
MOST_SECONDS = 15.0  # of the processor, for input of a few kB


def trouble_of(line: tuple[str, ...]) -> str:
    """Return a description of a command's wrong end, or an empty text."""
    program, *arguments = line
    parser = parser_of(arguments[:1]) if program == "et-sim" else converter_parser()
    began, output = time.process_time(), io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(output):
            options = parser.parse_args(arguments)
            if program == "et-sim":
                carry_out(options)
            else:
                list(options.run(options))
    except EtSimError as error:
        output.write(str(error))
        if len(str(error)) > LONGEST_MESSAGE:
            return f"a message of {len(str(error))} characters: {str(error)[:300]}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1500:]}"
    seconds = time.process_time() - began
    if max(map(len, output.getvalue().splitlines()), default=0) > LONGEST_MESSAGE:
        return f"a line of {max(map(len, output.getvalue().splitlines()))} characters"
    return f"{seconds:.1f} s of the processor" if seconds > MOST_SECONDS else ""


def troubles(case: Case, seed: int, folder: Path) -> list[str]:
    """Return the wrong ends of all commands on the case's damaged file, which is restored."""
    target = folder / case.file
    sound = target.read_bytes()
    target.write_bytes(case.damage(sound, random.Random(seed)))
    try:
        results = [(line, trouble_of(line)) for line in case.commands]
    finally:
        target.write_bytes(sound)
    return [f"seed {seed}, {case.file}: {' '.join(line)}\n{trouble}" for line, trouble in results if trouble]
