"""Text that is almost JSON, made JSON: what profilers write although the standard forbids it.

Numbers that JSON does not know (nan, inf) become null, bytes that are not UTF-8 become the replacement
character, and what may not stand in a string (control characters, backslashes that escape nothing) is
escaped. Everything else stays, byte for byte.

Not here: deciding that a text needs it. It is slow, and used only for blocks that the decoder refused.
"""

from __future__ import annotations

import re

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:nan|inf|infinity)\b', re.DOTALL | re.IGNORECASE)
_BAD_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_CONTROL = re.compile(r"[\x00-\x1f]")
_LONE_HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]..",
)


def mended(content: bytes) -> bytes:
    """The content as valid JSON, as far as its faults are of the known kinds."""
    return _TOKENS.sub(_token, content.decode("utf-8", "replace")).encode()


def _token(match: re.Match[str]) -> str:
    token = match.group()
    if not token.startswith('"'):
        return "null"
    if "\\" in token:
        token = _BAD_ESCAPE.sub(lambda found: found.group() if found.group(1) else "\\\\", token)
        token = _LONE_HALF.sub(r"\\ufffd", token)
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", token)
