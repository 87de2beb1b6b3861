"""An attribute of nodes is one line: here is `Trace` with one line more, and everything carries it."""

from __future__ import annotations

import os
import subprocess
import sys

LINE = '    shade: Annotated[IntColumn, Attribute("shade", "int64_val", least=0)]\n'
WITH_ONE_LINE_MORE = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import et_sim.trace

path = Path(et_sim.trace.__file__).with_name("columns.py")
before, line, after = path.read_text().partition("    is_concurrent: ")
module = module_from_spec(spec_from_file_location("et_sim.trace.columns", path))
sys.modules[module.__name__] = module
exec(compile(before + {LINE!r} + line + after, path, "exec"), vars(module))
"""
USE_IT = """
import numpy as np
from converters.editing.files import set_attributes
from converters.records import frame, parse, split
from et_sim.basics.errors import TraceError
from et_sim.trace import TraceBuilder, decode, encode_trace

build = TraceBuilder()
for shade in (7, 3):
    build.compute(micros=1, attributes={"shade": shade}, node_id=10 - shade)
build.compute(micros=1)
content = encode_trace(build.build())
trace = decode(content)
assert trace.shade.tolist() == [7, 3, 0]  # by ascending id
assert trace.has("shade").tolist() == [True, True, False]
assert encode_trace(trace) == content

records = list(parse(split(content), "rank 0"))
set_attributes(records[2], {"shade": 5})
assert decode(frame(records)).shade.tolist() == [7, 5, 0]

set_attributes(records[2], {"shade": -5})
for refused in (lambda: decode(frame(records)), lambda: build.compute(attributes={"shade": -5})):
    try:
        refused()
    except TraceError as error:
        assert "-5" in str(error) or "shade" in str(error)
    else:
        raise AssertionError
"""


def run_in_python(script: str) -> str:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr


def test_one_line_adds_an_attribute_to_builder_files_decoder_and_converters() -> None:
    assert run_in_python(WITH_ONE_LINE_MORE + USE_IT) == ""


def test_without_the_line_nothing_knows_it() -> None:
    assert "there is no attribute 'shade'" in run_in_python(USE_IT)
