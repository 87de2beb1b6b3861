"""Notebooks, run without Jupyter: code cells are executed in order, and give the outputs that the file shows.

    python tests/docs/notebook.py docs/notebook.ipynb     # put today's outputs into the notebook

The outputs are the text that a cell prints, and the text and HTML of its last expression.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any


def outputs_of(cells: list[dict[str, Any]], folder: Path) -> list[list[dict[str, Any]]]:
    """Run every code cell in this folder, and return the outputs of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        codes = [cell for cell in cells if cell["cell_type"] == "code"]
        return [_run("".join(cell["source"]), names, number) for number, cell in enumerate(codes, start=1)]
    finally:
        os.chdir(before)


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs, value = io.StringIO(), [], None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": _lines(value._repr_html_()), **data}
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def rewritten(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the notebook with today's outputs."""
    result = iter(outputs_of(notebook["cells"], folder))
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["outputs"], cell["execution_count"] = next(result), number
    return notebook


if __name__ == "__main__":
    import shutil
    import tempfile

    path = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        for program in path.parent.glob("*.py"):
            shutil.copy(program, place)
        content = rewritten(json.loads(path.read_text(encoding="utf-8")), Path(place))
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
