"""Object files in memory are placed without LLVM if possible, otherwise by LLVM."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from small_program import quadrupled_sum

from et_sim.compiled import build, native
from et_sim.compiled.llvm import bitcode, object_code
from et_sim.compiled.native import placed
from et_sim.compiled.signature import signature_of
from et_sim.compiled.store import processor

VALUES = np.array([1, 2])
JUMPS = """
declare i8* @memset(i8*, i32, i64)
define i64 @name_of(i64 %day) nounwind {
  switch i64 %day, label %other [
    i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e
  ]
a: ret i64 17
b: %room = alloca i64
   %bytes = bitcast i64* %room to i8*
   call i8* @memset(i8* %bytes, i32 3, i64 8)
   %filled = load i64, i64* %room
   ret i64 %filled
c: ret i64 -4
d: ret i64 99
e: ret i64 1000
other: ret i64 0
}
"""
on_linux_for_x86 = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="elsewhere, LLVM places code"
)


@pytest.fixture(scope="module")
def jumps() -> bytes:
    return object_code(bitcode(JUMPS))


@on_linux_for_x86
def test_jump_tables_and_calls_of_c_work_where_code_is_placed(jumps: bytes) -> None:
    held = placed(jumps)
    assert held is not None
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(held.address("name_of"))
    assert [function(day) for day in range(-1, 6)] == [0, 17, 0x0303030303030303, -4, 99, 1000, 0]
    assert held.address("another") == 0


@on_linux_for_x86
def test_code_with_distances_in_it_is_left_to_llvm() -> None:
    target = llvm.Target.from_triple(llvm.get_process_triple())
    near = target.create_target_machine(reloc="pic", codemodel="small").emit_object(
        llvm.parse_assembly(JUMPS)
    )
    assert placed(near) is None


def test_a_partial_object_file_is_not_placed(jumps: bytes) -> None:
    ends = range(0, len(jumps) - 1, 7)  # symbols and their names are at the end
    assert [end for end in ends if placed(jumps[:end]) is not None] == []
    assert placed(b"something else") is None


def test_llvm_places_code_with_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = signature_of((VALUES,))
    made = build.build(quadrupled_sum.function, kinds)
    monkeypatch.setattr(native, "placed", lambda _: None)
    assert native.Native(made.symbol, made.returns, made.content, kinds)(VALUES) == 12


@pytest.mark.deep
@on_linux_for_x86
def test_machine_code_that_is_there_runs_without_llvm() -> None:
    program = (
        "import sys, numpy, small_program as p; values = numpy.array([1, 2]); "
        "print(p.quadrupled_sum(values), p.quadrupled_sum.is_compiled(values), 'llvmlite' in sys.modules)"
    )

    def output() -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            env=_environment(),
        ).stdout

    output()  # makes it
    assert output() == "12 True False\n"


def _environment() -> dict[str, str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "ET_SIM_COMPILE": "now", "PYTHONPATH": paths}


def test_a_processor_is_identified_by_its_features(tmp_path: Path) -> None:
    first = "processor : 0\nmodel : {}\ncpu MHz : {}\nflags : {}\n\nprocessor : 1\n"
    result = tmp_path / "cpuinfo"

    def known(*words: object) -> str:
        result.write_text(first.format(*words))
        return processor(result)

    assert known(1, 2000, "sse") == known(1, 3000, "sse")
    assert len({known(1, 2000, "sse"), known(2, 2000, "sse"), known(1, 2000, "sse avx")}) == 3


def test_llvm_identifies_the_processor_without_a_file(tmp_path: Path) -> None:
    by_llvm = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    assert processor(tmp_path / "none") == by_llvm
