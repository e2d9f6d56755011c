"""Optuna's storage with one place that stores attributes, and one reader of trials that reads what the tuner kept."""

import math
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import ColumnElement, Row, func, or_, select

from tuner.kept.names import PROBE
from tuner.kept.probe import decode_json
from tuner.kept.storable import read_json, storable
from tuner.kept.study import KeptStudy
from tuner.kept.tables import (
    ATTRIBUTES,
    CONSTRAINTS,
    DIRECTIONS,
    FACTS,
    PARAMETERS,
    STEPS,
    STUDIES,
    SYSTEM_FACTS,
    TRIALS,
    VALUES,
    Rows,
    of_study,
    of_trials,
)
from tuner.kept.trial import is_kept

NO_RECORD = "Record does not exist."
"""The text of Optuna's KeyError for a study or a trial that is gone."""
_TABLES = (PARAMETERS, VALUES, STEPS, ATTRIBUTES, CONSTRAINTS)


class TrialStorage(RDBStorage):
    """Stores what every database can store, and reads the trials of one study without Optuna's objects for each row.

    A trial that another program added, or whose record is damaged, is left out. The record of a trial's probe is
    decoded among its attributes.
    """

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Store an attribute of a study, made storable."""
        super().set_study_user_attr(study_id, key, storable(value))

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Store an attribute of a trial, made storable."""
        super().set_trial_user_attr(trial_id, key, storable(value))

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the attributes of a study; None for an attribute that is damaged."""
        query = select(FACTS.c.key, FACTS.c.value_json).where(FACTS.c.study_id == study_id)
        return {row.key: read_json(row.value_json) for row in self.rows(query)}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return Optuna's own attributes of a study; None for an attribute that is damaged."""
        query = select(SYSTEM_FACTS.c.key, SYSTEM_FACTS.c.value_json).where(SYSTEM_FACTS.c.study_id == study_id)
        return {row.key: read_json(row.value_json) for row in self.rows(query)}

    def study_id(self, name: str) -> int | None:
        """Return the id of the study of this name; None where there is none."""
        rows = self.rows(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name))
        return rows[0].study_id if rows else None

    def cases(self, study: str) -> dict[str, tuple[int, KeptStudy]]:
        """Return the cases of a study, in the order in which they were started: name → study id and facts."""
        query = select(STUDIES.c.study_id, STUDIES.c.study_name).where(of_study(study)).order_by(STUDIES.c.study_id)
        return {
            row.study_name.removeprefix(f"{study}/"): (
                row.study_id,
                KeptStudy(self.get_study_user_attrs(row.study_id)),
            )
            for row in self.rows(query)
        }

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial, be it the tuner's or not. Raises KeyError where there is no such trial, or it is damaged."""
        read = self._read(TRIALS.c.trial_id == trial_id, None)
        if not read or read[0] is None:
            raise KeyError(NO_RECORD)
        return read[0]

    def get_trial_system_attrs(self, trial_id: int) -> dict[str, Any]:
        """Return Optuna's own attributes of a trial; None for an attribute that is damaged."""
        query = select(CONSTRAINTS.c.key, CONSTRAINTS.c.value_json).where(CONSTRAINTS.c.trial_id == trial_id)
        return {row.key: read_json(row.value_json) for row in self.rows(query)}

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        """Return the trials after an id and those with other given ids; Optuna's cache asks for the rest once.

        Raises KeyError where the study is gone.
        """
        earlier = [one for one in included_trial_ids if one <= trial_id_greater_than]
        later = TRIALS.c.trial_id > trial_id_greater_than
        wanted = (TRIALS.c.study_id == study_id) & or_(later, TRIALS.c.trial_id.in_(earlier))
        found = self._read(wanted, self._objectives(study_id))
        return [trial for trial in found if trial and (states is None or trial.state in states)]

    def _read(self, wanted: ColumnElement[bool], objectives: int | None) -> list[FrozenTrial | None]:
        return [_trial(row, rows, objectives) for row, rows in of_trials(self.rows, wanted, _TABLES)]

    def _objectives(self, study_id: int) -> int:
        """Return how many values a complete trial of a study has. Raises KeyError where the study is gone."""
        count = select(func.count()).select_from(DIRECTIONS).where(DIRECTIONS.c.study_id == study_id)
        found = self.rows(select(count.scalar_subquery()).where(STUDIES.c.study_id == study_id))
        if not found:
            raise KeyError(NO_RECORD)
        return found[0][0]

    def rows(self, query: Any) -> Rows:
        """Return all rows of an SQLAlchemy query, in the transaction that is open, if one is."""
        with self.scoped_session() as session:
            return session.connection().execute(query).all()


def _trial(row: Row[Any], others: Sequence[Rows], objectives: int | None) -> FrozenTrial | None:
    """Return a trial as the search reads it; None where it is not the tuner's, or damaged.

    `objectives` is the number of values that a complete trial has; None accepts any trial that can be read.
    """
    parameters, values, steps, attributes, constraints = others
    try:
        state = TrialState[row.state]
        kinds = {one.param_name: _distribution(one.distribution_json) for one in sorted(parameters, key=_place)}
        numbers = {one.param_name: float(one.param_value) for one in parameters}
        told = [_finite(one.value) for one in sorted(values, key=lambda one: one.objective)]
        facts, is_whole = _facts(state, attributes)
        is_told = state != TrialState.COMPLETE or len(told) == objectives
        if objectives is not None and not (is_whole and is_told):
            return None
        return FrozenTrial(
            number=row.number,
            trial_id=row.trial_id,
            state=state,
            value=None,
            values=told or None,
            datetime_start=None,
            datetime_complete=None,
            params={name: kind.to_external_repr(numbers[name]) for name, kind in kinds.items()},
            distributions=kinds,
            user_attrs=facts,
            system_attrs={one.key: _constraint(one.key, one.value_json) for one in constraints},
            intermediate_values={int(one.step): _number(one.intermediate_value) for one in steps},
        )
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None


def _place(parameter: Row[Any]) -> int:
    return parameter.param_id


def _facts(state: TrialState, attributes: Rows) -> tuple[dict[str, Any], bool]:
    """Return the attributes of a trial, and whether the tuner kept the trial."""
    facts = {one.key: (decode_json if one.key == PROBE else read_json)(one.value_json) for one in attributes}
    return facts, is_kept(facts, finished=state.is_finished())


@lru_cache(maxsize=10_000)
def _distribution(document: str) -> BaseDistribution:
    """Trials share the distributions, which take most of the time and the memory of reading."""
    return json_to_distribution(document)


def _constraint(key: str, document: str) -> Any:
    value = read_json(document)
    if key.startswith("constraints") and not isinstance(value, int | float):
        raise TypeError("a constraint is a number")
    return value


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("a value is finite")
    return number


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
