"""Text that is almost JSON, made JSON: what profilers write although the standard forbids it.

Numbers that JSON does not know (nan, inf) become null, bytes that are not UTF-8 become the replacement
character, and what may not stand in a string (control characters, backslashes that escape nothing) is
escaped. Everything else stays, byte for byte.

Not here: deciding that a text needs it. It is slow, and used only for blocks that the decoder refused.
"""

from __future__ import annotations

import re

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:nan|inf|infinity)\b', re.DOTALL | re.IGNORECASE)
# Two halves of a character outside the basic plane, one half alone, an escape that JSON knows, a backslash.
_ESCAPE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|\\"
)
_CONTROL = re.compile(r"[\x00-\x1f]")


def repaired_json(content: bytes) -> bytes:
    """The content as valid JSON, as far as its faults are of the known kinds."""
    return _TOKENS.sub(_token, content.decode("utf-8", "replace")).encode()


def _token(match: re.Match[str]) -> str:
    token = match.group()
    if not token.startswith('"'):
        return "null"
    if "\\" in token:
        token = _ESCAPE.sub(_escape, token)
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", token)


def _escape(match: re.Match[str]) -> str:
    pair, half, known = match.groups()
    return "\\ufffd" if half else pair or known or "\\\\"
