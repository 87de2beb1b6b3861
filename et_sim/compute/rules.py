"""Rules: the model of the first rule that a kernel matches times it; another model times the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError, did_you_mean
from et_sim.basics.patterns import fits_stars, matching
from et_sim.basics.unique import unique
from et_sim.basics.units import rank_mask
from et_sim.compute.model import (
    ComputeModel,
    Durations,
    PartialModel,
    TimingModel,
    Utilisation,
    ns_of,
)
from et_sim.compute.operations import FORMS
from et_sim.machine.compute_rules import ComputeRule, Where, WorkOf
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.model import Notice
from et_sim.trace.columns import ATTRIBUTES, BIT, BoolColumn, IntColumn, NodeKind, RowColumn, Trace


class ComputeRules:
    """Models by rule, and one for the remaining kernels."""

    has_rules = True

    def __init__(
        self, rules: Sequence[ComputeRule], models: Sequence[TimingModel], rest: ComputeModel
    ) -> None:
        self._rules, self._rest = rules, rest
        self._models: tuple[TimingModel, ...] = (*models, rest)
        self._partial = [isinstance(model, PartialModel) for model in models]
        self._met: set[int] = set()
        for rule in rules:
            if rule.where is not None:
                _check(rule.where, f'{rule.place}: "where"')

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:
        """Return the kernels that lack an attribute of their rule's model."""
        lacking: dict[str, BoolColumn] = {}
        which = self._which(trace, rank)
        for number, model in enumerate(self._models):
            of_rule = which == number
            if not of_rule.any():
                continue
            for attribute, lacks in model.lacking(trace, rank).items():
                lacking[attribute] = lacking.get(attribute, np.zeros(len(trace), np.bool_)) | (
                    lacks & of_rule
                )
        return lacking

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:
        """Return the durations of kernels by the models of their rules."""
        which = self._which(trace, rank)[rows]
        numbers: list[int] = unique(which).tolist()
        if len(numbers) == 1:
            return self._models[numbers[0]].durations(trace, rows, rank)
        order = [np.flatnonzero(which == number) for number in numbers]
        parts = [
            self._models[number].durations(trace, rows[chosen], rank)
            for number, chosen in zip(numbers, order, strict=True)
        ]
        ns, treatment = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.uint8)
        size = np.zeros(len(rows), np.int64)
        utilisations = []
        for chosen, part in zip(order, parts, strict=True):
            ns[chosen], treatment[chosen] = part.ns, part.treatment
            if part.bytes is not None:
                size[chosen] = part.bytes
            utilisations.append(part.utilisation or Utilisation.unknown("", "", len(chosen)))
        if not parts:
            return Durations(ns, treatment)
        back = np.argsort(np.concatenate(order))
        return Durations(ns, treatment, size, Utilisation.joined(utilisations).take(back))

    def ns(self, trace: Trace, rows: IntColumn, rank: int) -> IntColumn:
        """Return the nanoseconds of kernels by the models of their rules."""
        which = self._which(trace, rank)[rows]
        ns = np.zeros(len(rows), np.int64)
        for number in unique(which).tolist():
            chosen, model = which == number, self._models[number]
            ns[chosen] = ns_of(model, trace, rows[chosen], rank)
        return ns

    def rank_classes(self, ranks: int) -> RowColumn | None:
        """Return equal numbers for ranks to which the same rules apply."""
        rules = [rule.where.ranks for rule in self._rules if rule.where and rule.where.ranks is not None]
        if not rules:
            return None
        masks = np.stack([rank_mask(rule, ranks) for rule in rules])
        return np.unique(masks, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int32)

    def notices(self) -> tuple[Notice, ...]:
        """Return a remark on each rule that no kernel matched; a rule for all the rest may stay unused."""
        text = "no kernel is timed by this rule: none matches it, or an earlier rule matches first"
        every = [number for number, rule in enumerate(self._rules) if rule.where is None]
        met = self._met | set(every[:1])
        unmet = (rule for number, rule in enumerate(self._rules) if number not in met)
        return tuple(Notice(rule.place, "where", text) for rule in unmet)

    def _which(self, trace: Trace, rank: int) -> IntColumn:
        """Return the number of each kernel's rule; one more than the last for the rest."""
        rule_numbers = np.full(len(trace), len(self._rules), np.int64)
        is_left = (trace.kind == NodeKind.COMP) & ~trace.is_cpu
        for number, rule in enumerate(self._rules):
            matches = is_left if rule.where is None else is_left & _matches(rule.where, trace, rank)
            if self._partial[number]:
                model: Any = self._models[number]
                matches = matches & model.covers(trace)
            if matches.any():
                self._met.add(number)
            rule_numbers[matches] = number
            is_left = is_left & ~matches
        return rule_numbers


def _matches(where: Where, trace: Trace, rank: int) -> Any:
    """Return the nodes of a rank's trace that a rule matches."""
    matches = np.ones(len(trace), np.bool_)
    if where.ranks is not None and not any(rank in piece for piece in where.ranks):
        return ~matches
    if where.kind is not None:
        matches &= trace.is_copy == (where.kind is WorkOf.COPY)
    if where.name is not None:
        fits = map(fits_stars(where.name), trace.names)
        matches &= np.fromiter(fits, np.bool_, len(trace.names))[trace.name]
    if where.regex is not None:
        matches &= matching(where.regex, trace.names)[trace.name]
    if where.operations:
        kinds = [text.partition(" ")[0] in where.operations for text in trace.layer_shapes]
        matches &= np.array(kinds, np.bool_)[trace.layer_shape]
    if where.datatype is not None:
        types = [datatype_named(text) == where.datatype for text in trace.datatypes]
        matches &= np.array(types, np.bool_)[trace.datatype]
    if where.attribute is not None:
        matches &= trace.has(where.attribute)
    if where.value is not None:
        matches &= _has_value(where, trace)
    return matches


_TEXTS = {
    "pg_name": "group_names",
    "layer_shape": "layer_shapes",
    "dtype": "datatypes",
    "comm_split_sizes": "split_texts",
}


def _has_value(where: Where, trace: Trace) -> Any:
    attribute = next(candidate for candidate in ATTRIBUTES if candidate.name == where.attribute)
    column = getattr(trace, attribute.column)
    if attribute.name in _TEXTS:
        texts = getattr(trace, _TEXTS[attribute.name])
        return np.array([text == where.value for text in texts], np.bool_)[column]
    return column == where.value


def _check(where: Where, place: str) -> None:
    """Refuse operations and attributes that no trace can have."""
    for word in where.operations:
        if word not in FORMS:
            remedy = did_you_mean(word, tuple(FORMS)) or f"known: {', '.join(FORMS)}"
            raise MachineError(f'key "operation" names {word!r}', place=place, remedy=remedy)
    if where.attribute is None:
        return
    if where.attribute not in BIT:
        remedy = did_you_mean(where.attribute, tuple(BIT)) or f"known: {', '.join(BIT)}"
        raise MachineError(f'key "attribute" names {where.attribute!r}', place=place, remedy=remedy)
    if where.value is None:
        return
    attribute = next((candidate for candidate in ATTRIBUTES if candidate.name == where.attribute), None)
    wants_text = attribute is not None and attribute.name in _TEXTS
    if (
        attribute is None
        or (not attribute.is_number and not wants_text)
        or wants_text != isinstance(where.value, str)
    ):
        noun = "a text in quotes" if wants_text else "a number, or true or false"
        remedy = (
            "leave it out" if attribute is None or not (attribute.is_number or wants_text) else f"give {noun}"
        )
        raise MachineError(
            f'key "value" is {where.value!r}, which {where.attribute!r} does not take',
            place=place,
            remedy=remedy,
        )
