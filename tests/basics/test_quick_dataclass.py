"""A quick dataclass behaves as a dataclass of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from et_sim.basics.quick_dataclass import quick_dataclass


class Base:
    """A base class that also has slots."""

    __slots__ = ()


@quick_dataclass(frozen=True)
class Quick(Base):
    """A quick dataclass."""

    unit: ClassVar[str] = "ns"
    first: int
    second: list[int] = dataclasses.field(default_factory=list, metadata={"key": "value"})
    third: str = "x"

    def twice(self) -> int:
        """Return twice the first field."""
        return 2 * self.first


@dataclasses.dataclass(frozen=True, slots=True)
class Slow(Base):
    """The same class, made by the standard library."""

    unit: ClassVar[str] = "ns"
    first: int
    second: list[int] = dataclasses.field(default_factory=list, metadata={"key": "value"})
    third: str = "x"


def _results(kind: Any) -> Any:
    """Return every result of a class and its instance that the standard library defines."""
    value = kind(3)
    other = dataclasses.replace(value, second=[4])
    results = [(field.name, field.type, dict(field.metadata)) for field in dataclasses.fields(kind)]
    return (
        *(results, dataclasses.asdict(other), dataclasses.astuple(other), value == kind(3), value == other),
        *(kind.unit, kind.__doc__ is None, isinstance(value, Base), hasattr(value, "__dict__")),
        *(repr(other).partition("(")[2], value.second is kind(3).second),
        *(pickle.loads(pickle.dumps(other)) == other, copy.deepcopy(other) == other),
    )


def test_a_quick_dataclass_has_the_results_of_a_dataclass() -> None:
    assert _results(Quick) == _results(Slow)
    assert Quick(3).twice() == 6


def test_a_frozen_quick_dataclass_cannot_be_changed_and_is_a_key() -> None:
    with pytest.raises(AttributeError):
        Quick(1).first = 2  # type: ignore[misc]
    assert hash(Quick(1, (), "y")) == hash(Quick(1, (), "y"))  # type: ignore[arg-type]


def test_a_quick_dataclass_without_equality_is_equal_to_itself_only() -> None:
    @quick_dataclass(eq=False)
    class Column:
        value: int

    column = Column(1)
    column.value = 2
    assert column != Column(2)
    assert len({column, Column(2)}) == 2


def test_fields_that_it_cannot_have_are_refused() -> None:
    with pytest.raises(TypeError, match="hidden"):

        @quick_dataclass()
        class Wrong:
            hidden: int = dataclasses.field(default=0, compare=False)
