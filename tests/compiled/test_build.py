"""Functions become machine code with a reduced compiler, and the code runs without Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_program import quadrupled_sum

from et_sim.compiled import build
from et_sim.compiled.native import Native
from et_sim.compiled.signature import signature_of

VALUES = np.array([1, 2])


def _sum_by(made: build.MachineCode) -> Any:
    native = Native(made.symbol, made.returns, made.content, signature_of((VALUES,)))
    return native(VALUES)


def test_machine_code_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shares: list[float] = []
    made = build.build(quadrupled_sum.function, signature_of((VALUES,)), shares.append)
    assert _sum_by(made) == quadrupled_sum.function(VALUES) == 12
    assert shares in ([build.HELPERS_SHARE], [])  # helpers are compiled once a process, by its first order
    assert capsys.readouterr().err == ""  # it was not compiled in Numba's own way


@pytest.mark.parametrize("missing", ["the module", "a method", "a pass"])
def test_without_an_inner_interface_of_numba_it_is_compiled_in_numbas_own_way(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from et_sim.compiled import compile_once

    def gone(*_: Any) -> Any:
        raise AttributeError("there is no such thing in this Numba")

    if missing == "the module":
        monkeypatch.setattr(build, "_lean_compilers", gone)
    elif missing == "a method":
        monkeypatch.setattr(compile_once, "_optimise", gone)
    else:
        monkeypatch.setattr("et_sim.compiled.shortcuts._run_pass", gone)
    made = build.build(quadrupled_sum.function, signature_of((VALUES,)))
    assert "no such thing in this Numba" in capsys.readouterr().err
    assert _sum_by(made) == 12


def test_code_that_needs_numba_to_run_is_refused() -> None:
    from et_sim.compiled.llvm import bitcode, object_code

    text = (
        "declare i32 @NRT_something()\ndefine i32 @f() {\n  %1 = call i32 @NRT_something()\n  ret i32 %1\n}"
    )
    with pytest.raises(ValueError, match="NRT_something"):
        object_code(bitcode(text))
