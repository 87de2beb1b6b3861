"""Parsers of JSON and YAML text; repeated keys and syntax errors are refused with their place."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import MachineError
from et_sim.documents import reading
from et_sim.documents.reading import DEEPEST, MOST_DIGITS, MOST_VALUES, NESTED_TOO_DEEPLY, TOO_MANY_DIGITS

if TYPE_CHECKING:
    import yaml

# No leading zeros: some YAML readers take 010 for eight, so it stays a text and is refused as a number.
_INTEGER = r"[-+]?(0|[1-9][0-9]*)"
_NUMBER = r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
# Escapes and words that YAML takes otherwise, and long keys or a colon on the next line, which it refuses.
_ONLY_JSON = re.compile(r'\\|NaN|Infinity|"\s*\n\s*:|"[^"\n]{1000}')
_NOT_FINITE = r"([-+]?)\.(inf|Inf|INF|nan|NaN|NAN)"


def parse_json(text: str, place: str) -> Any:
    """Parse a JSON text."""
    return reading.parse_json(text, place, MachineError)


def parse_yaml(text: str, place: str) -> Any:
    """Parse a YAML text.

    Scalars follow the rules of the reference's YAML library rather than PyYAML's YAML 1.1: `5e1` is a number,
    `1:30` and `yes` are texts, and quotes around a number make no difference. YAML that is also JSON is
    parsed as such, because importing the YAML library takes longer than some runs.
    """
    if _may_be_json(text):
        with suppress(MachineError, OverflowError):  # refused below, with its line
            return _with_scalars(parse_json(text, place), DEEPEST)
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(text, place, loader)
        root = yaml.compose(text, Loader=loader)
        if root is None:
            return None
        _refuse_aliases(root, place)
        return _value_of(root, place, {})
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in str(error.problem):  # the library's own limit was reached first
            raise MachineError(NESTED_TOO_DEEPLY, place=place) from None
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        cause = f"{where}not valid YAML: {error.problem or error.context}"
        raise MachineError(cause, place=place, remedy="correct it there") from None
    except yaml.YAMLError as error:
        raise MachineError(f"not valid YAML: {' '.join(str(error).split())}", place=place) from None
    except RecursionError:
        raise MachineError(NESTED_TOO_DEEPLY, place=place) from None


def _may_be_json(text: str) -> bool:
    """Return whether a text means the same as YAML if it is valid JSON."""
    is_simple = text.isascii() and text.replace("\n", " ").isprintable()
    is_short = len(text) < MOST_VALUES
    return text.startswith("{") and is_simple and is_short and not _ONLY_JSON.search(text)


def _with_scalars(value: Any, deepest: int) -> Any:
    """Convert texts by the rules for scalars in quotes; raise `OverflowError` on deep nesting."""
    if isinstance(value, str):
        return _scalar(value, quoted=True)
    if not isinstance(value, dict | list):
        return value
    if not deepest:
        raise OverflowError
    if isinstance(value, list):
        return [_with_scalars(entry, deepest - 1) for entry in value]
    return {name: _with_scalars(entry, deepest - 1) for name, entry in value.items()}


def _refuse_depth(text: str, place: str, loader: Any) -> None:
    """Refuse deep nesting, on which the C composer would overflow the process's stack."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise MachineError(NESTED_TOO_DEEPLY, place=place)


def _refuse_aliases(root: yaml.Node, place: str) -> None:
    """Refuse aliases that expand to far more values than there are in the text."""
    sizes: dict[int, int] = {}
    _count(root, sizes)
    if sizes[id(root)] > MOST_VALUES:
        raise MachineError(
            f"with its aliases, the content has more than {MOST_VALUES:,} values",
            place=place,
            remedy="write out the values that are needed",
        )


def _count(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of values of a node, with aliases expanded."""
    if id(node) not in sizes:
        sizes[id(node)] = 1  # an alias to its own parent is refused later
        values = node.value if isinstance(node.value, list) else []
        inner = (part for entry in values for part in (entry if isinstance(entry, tuple) else (entry,)))
        sizes[id(node)] = 1 + sum(_count(part, sizes) for part in inner)
    return sizes[id(node)]


def _value_of(node: yaml.Node, place: str, known: dict[int, Any]) -> Any:
    """Convert a composed YAML node to plain values; `known` holds values of aliases."""
    import yaml

    if id(node) in known:
        return known[id(node)]
    value: Any
    if isinstance(node, yaml.MappingNode):
        odd = next((key for key, _ in node.value if not isinstance(key, yaml.ScalarNode)), None)
        if odd is not None:
            raise MachineError("a key is not a plain text", place=_at_line(place, odd))
        names = [str(key.value) for key, _ in node.value]
        if len(set(names)) < len(names):
            again = next(at for at, name in enumerate(names) if name in names[:at])
            raise reading.repeated(names, _at_line(place, node.value[again][0]), MachineError)
        value = {
            name: _value_of(entry, place, known) for name, (_, entry) in zip(names, node.value, strict=True)
        }
    elif isinstance(node, yaml.SequenceNode):
        value = [_value_of(entry, place, known) for entry in node.value]
    else:
        quoted = isinstance(node, yaml.ScalarNode) and bool(node.style)
        try:
            value = _scalar(str(node.value), quoted=quoted)
        except OverflowError:
            digits = TOO_MANY_DIGITS.format(len(str(node.value)))
            raise MachineError(digits, place=_at_line(place, node)) from None
    known[id(node)] = value
    return value


def _at_line(place: str, node: yaml.Node) -> str:
    return f"{place}: line {node.start_mark.line + 1}"


def _scalar(text: str, *, quoted: bool) -> Any:
    if re.fullmatch(_INTEGER, text):
        if len(text) > MOST_DIGITS:
            raise OverflowError
        return int(text)
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if match := re.fullmatch(_NOT_FINITE, text):
        return float(match[1] + match[2])
    if not quoted and text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if not quoted and text in ("", "~", "null", "Null", "NULL"):
        return None
    return text
