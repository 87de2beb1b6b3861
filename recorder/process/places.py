"""Where in the user's program something happens: the innermost line that is neither PyTorch's nor ours."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).resolve().parent)
_FOREIGN = ("/torch/", "/transformers/", "/accelerate/", "<frozen", "/contextlib.py", "/runpy.py")


def user_place() -> str:
    """`train.py:17`; of a library if nothing of the program is on the way."""
    frame: FrameType | None = sys._getframe(1)
    nearest = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, "<")):
            place = f"{Path(name).name}:{frame.f_lineno}"
            if not any(one in name for one in _FOREIGN):
                return place
            nearest = nearest or place
        frame = frame.f_back
    return nearest
