"""What one configuration key may hold: the record that drives checking, error text and documentation.

The tables themselves are in `tables`; the checking is in `checks`. Not here: any file format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from et_sim.basics.errors import brief
from et_sim.collectives.names import spellings
from et_sim.machine.model import Notice

# Times and sizes stay exact in a double up to here, and the reference reads its clock through one.
LARGEST_INTEGER = 2**53

ALGORITHMS = spellings()


class Kind(StrEnum):
    """The type of value that a key takes."""

    INTEGER = "integer"  # a fraction is cut off with a warning, as the reference does silently
    COUNT = "whole number"  # a fraction is refused
    NUMBER = "number"
    BANDWIDTH = "bandwidth"  # a number, or a text with a unit
    TIME = "time"  # a number, or a text with a unit
    RATE = "bandwidth in GB/s"  # a number in units of 10^9 bytes, or a text with a unit
    SIZE = "size"  # bytes, or a text with a unit
    SWITCH = "on/off"  # an on/off key of the reference, which takes `false` for on
    FLAG = "yes/no"
    CHOICES = "list of words"
    CHOICE = "choice"
    ALGORITHMS = "list of algorithms"
    PREFIX = "list of one path"
    RINGS = "list of rings per dimension"
    TEXT = "text"
    SWITCHES = "named switches"
    OBJECT = "object"
    OBJECTS = "list of objects"
    RULES = "object, or list of objects"
    NUMBER_OR_OBJECT = "number or object"
    TEXT_OR_OBJECT = "text or object"
    TILES = "list of [M, N, K] or [M, N, K, part]"
    TEXT_OR_NUMBER = "text or whole number"
    LINK_END = "NPU or switch"
    PATHS = "named lists of names"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration file."""

    name: str
    kind: Kind
    meaning: str
    reference: str = ""  # what the reference does with it, where that is worth knowing
    default: int | float | bool | str | None = None  # None: the key stays unset
    default_reason: str = ""
    field: str = ""  # the field of the model it fills
    unit: str = ""
    minimum: int = 0
    maximum: int = LARGEST_INTEGER
    above_minimum: bool = False  # the minimum itself is refused
    below: int | None = None  # this and more is refused
    minimum_reason: str = ""
    choices: tuple[str, ...] = ()
    correction: str = ""  # the correction without which this one has no effect
    needs: str = ""  # the on/off key without which this one has no effect
    ignored: str = ""  # why the value changes nothing; shown as a warning
    required: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values as one phrase."""
        match self.kind:
            case Kind.INTEGER | Kind.COUNT:
                return self._range("an integer")
            case Kind.NUMBER:
                return self._range("a number")
            case Kind.BANDWIDTH | Kind.RATE:
                return self._range("a number") + ', or a text with a unit such as "400Gbps" or "50GB/s"'
            case Kind.TIME:
                return self._range("a number") + ', or a text with a unit such as "1.5us"'
            case Kind.SIZE:
                return self._range("a number of bytes") + ', or a text with a unit such as "64KiB"'
            case Kind.SWITCH | Kind.FLAG:
                return "1 or true for on, 0 or false for off"
            case Kind.CHOICE | Kind.TEXT if self.choices:
                return " or ".join(filter(None, (", ".join(self.choices[:-1]), self.choices[-1])))
            case Kind.CHOICES:
                return f"a list with some of {', '.join(self.choices)}"
            case Kind.ALGORITHMS:
                names = ", ".join(ALGORITHMS)
                return f'a list such as ["ring"], one name per network dimension, each among {names}'
            case Kind.PREFIX:
                return 'a list with exactly one trace prefix, such as ["custom/all_reduce"]'
            case Kind.RINGS:
                return (
                    "a list per network dimension, of lists that name each NPU of the dimension once, "
                    "such as [[[0, 1, 2, 3], [0, 2, 1, 3]]]"
                )
            case Kind.CHOICE | Kind.TEXT:
                return "a text in quotes"
            case Kind.TEXT_OR_OBJECT:
                return f"a name, or an object with some of the keys {', '.join(self.choices)}"
            case Kind.OBJECT:
                return f"an object with some of the keys {', '.join(self.choices)}"
            case Kind.OBJECTS:
                return f"a list of objects, each with some of the keys {', '.join(self.choices)}"
            case Kind.RULES:
                return "an object that names a model, or a list of such objects"
            case Kind.NUMBER_OR_OBJECT:
                return "a number > 0 and <= 1, or an object"
            case Kind.TILES:
                return (
                    "a list such as [[128, 256, 64]] or [[128, 256, 64, 0.9]], each of three whole numbers "
                    "from 1 to 65536, and perhaps a part > 0 and <= 1"
                )
            case Kind.TEXT_OR_NUMBER:
                return "a text in quotes, or a whole number"
            case Kind.LINK_END:
                return 'the number of an NPU, or "switch"'
            case Kind.PATHS:
                return 'an object of lists of names, such as {"cpu": ["pcie", "dram"]}'
            case Kind.SWITCHES:
                return 'an object such as {"eager-sends": true}, with names from the table of corrections'

    def _range(self, noun: str) -> str:
        relation = ">" if self.above_minimum else ">="
        unit = f", in {self.unit}" if self.unit else ""
        below = "" if self.below is None else f" and < {self.below}"
        return f"{noun} {relation} {self.minimum}{below}{unit}"


@dataclass(slots=True)
class Remarks:
    """What the readers want the user to know about input that they accepted."""

    warnings: list[Notice] = field(default_factory=list)
    defaults: list[Notice] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)  # files that others name: path, content hash

    def warn(self, place: str, key: str, text: str) -> None:
        """Record something the user should see."""
        self.warnings.append(Notice(place, brief(key), brief(text)))

    def default(self, place: str, key: str, text: str) -> None:
        """Record a value that was taken because the input gave none."""
        self.defaults.append(Notice(place, key, text))
