"""Rules of thumb that ask for the probe of a config, whatever gain is expected of it.

A place is the position of a config in the pool. The pool's `codes` have a row for each config and a column for each
parameter: the position of the config's value among the parameter's values. A neighbour of a config differs from it in
one parameter. Rules for new and rare values ask for nothing unless the outlook is `in_logarithms`, as for speeds.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.expected_gain import EQUAL_WITHIN, chance_below
from tuner.search.gain.outlook import LIKELY, MOST_COMPARED, Outlook
from tuner.search.gain.pool import MIDDLE, Codes, beyond_ends
from tuner.search.resource_model import Floats

STEEP = math.log(1.3)
"""A step from one value of a parameter to the next is steep if the logarithm of the speed rises by more than this."""
MOST_REPEATS = 6
"""The most second readings of configs that a rule of thumb may ask for."""
LEAST_CHANCE = 1e-5
"""Smaller probabilities to run count as this one, because 0 has no logarithm."""


class _ValueToTry(NamedTuple):
    """A value of a parameter with at most four values, and the configs that were probed with it."""

    column: int
    """The column of the parameter."""
    value: int
    """The code of the value."""
    ran: Codes
    """The configs with this value that ran: a row of codes per config."""
    failures: Codes
    """The configs with this value that failed for another reason than memory or time."""


class Rules:
    """The configs that rules of thumb ask for: first configs, new or rare values, larger ranges, second readings."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook

    def first_place(self) -> int:
        """Return the place of the config to begin with, before any has run; at least one may be probed.

        It is the user's own config, or else one in the middle of the ladder. After each failure, it is one half as high
        on the ladder. Any value of a config that failed for another reason than memory or time may be the cause. So the
        next config shares as few values as possible with any of these.
        """
        outlook, pool = self._outlook, self._outlook.pool
        unmeasured, failed = pool.places(outlook.observed.running_or_failed), pool.levels.codes(outlook.observed.failed)
        baseline = pool.find(pool.space.own) if pool.space.own and not unmeasured else None
        if baseline is not None and outlook.may_probe[baseline]:
            return baseline
        height = min([MIDDLE, *(pool.heights[place] / 2.0 for place in unmeasured)])
        # The most values that each config shares with a failed config.
        shared = (pool.codes[:, None] == failed).sum(axis=2).max(axis=1, initial=0)
        possible = np.flatnonzero(outlook.may_probe)
        return int(min(possible, key=lambda place: (shared[place], abs(pool.heights[place] - height))))

    def second_place(self) -> int | None:
        """Return the place of the second config of a search: like the first, but as far up the ladder as is safe.

        One config on two rungs far apart shows how value, memory and seconds grow with the rung. Most configs are best
        on high rungs.

        Returns:
            None before any config has run, and once one has failed. None also if the first config is already above 0.6
            of the ladder's height, if configs differ in more than the rung, or if no higher rung is safe.
        """
        outlook = self._outlook
        if not outlook.eligible_places or outlook.observed.running_or_failed:
            return None
        heights, codes, measured = outlook.pool.heights, outlook.pool.codes, outlook.measured_places
        other_columns = [column for column in range(codes.shape[1]) if column != outlook.pool.levels.ladder]
        differ_in_more = len(np.unique(codes[measured][:, other_columns], axis=0)) > 1
        highest = max(measured, key=lambda place: heights[place])
        if heights[highest] > 0.6 or differ_in_more:
            return None
        above = np.flatnonzero(
            outlook.may_probe & (outlook.launch_chance >= 0.9) & (heights > heights[highest])
        ).tolist()
        # On the highest rung, the config that is most like the measured one.
        return max(above, key=lambda place: (heights[place], (codes[place] == codes[highest]).sum()), default=None)

    @property
    def ask_for_probe(self) -> bool:
        """Whether a rule of thumb asks for a probe before the end: of a new or rare value, or a second reading."""
        has_value_to_try = bool(self.neighbours_with_new_value) or self.place_with_rare_value is not None
        return has_value_to_try or self.must_repeat_best or self.tie_break_place is not None

    @property
    def must_repeat_best(self) -> bool:
        """Whether the best must be measured again before the search may end, because it may be the best by chance.

        1. It was measured once, and no session serves the probes. Where a session does, the plain command measures the
           best again at the end.
        2. Its measurements are far above what those of other configs predict. Four measurements are enough.
        """
        outlook = self._outlook
        if outlook.best_place is None or not outlook.may_probe[outlook.best_place]:
            return False
        count = len(outlook.measured[outlook.measured_places.index(outlook.best_place)].values)
        if count == 1 and not outlook.observed.warm:  # 1
            return True
        return count < 4 and self.best_is_surprising  # 2

    @property
    def best_is_surprising(self) -> bool:
        """Whether the mean of the best is 2.5 standard deviations above what the model predicts from other configs.

        False before three other configs have been measured, from which nothing can be predicted.
        """
        outlook = self._outlook
        if outlook.best_place is None or len(outlook.measured_places) < 4:
            return False
        return outlook.case_model.residual(outlook.pool.codes[outlook.best_place]) > 2.5

    @cached_property
    def tie_break_place(self) -> int | None:
        """The place of the config to measure again, as it is doubtful which of two is the best; None if it is clear.

        It is the best or its strongest rival among the measured configs: the config whose next reading lowers the
        variance of their difference more. This is top-two sampling (Russo, "Simple Bayesian Algorithms for Best-Arm
        Identification", 2020).

        None in three cases:

        1. The usual standard error of a reading is below 2 % of the best, or `MOST_REPEATS` second readings were made:
           where configs are alike, no number of readings tells which is the best.
        2. No second config may be the best, or the best itself may not be probed.
        3. The probabilities that a rival is better by more than `EQUAL_WITHIN` add up to at most 0.2.
        """
        outlook = self._outlook
        if outlook.readings.usual_error < 0.02 * outlook.scale or self.second_readings >= MOST_REPEATS:  # 1
            return None
        possible = (place for place in outlook.eligible_places if outlook.may_probe[place])
        best_first = sorted(possible, key=lambda place: -outlook.mean[place])
        if outlook.best_place is None or len(best_first) < 2 or best_first[0] != outlook.best_place:  # 2
            return None
        places = np.array(best_first[:MOST_COMPARED])
        mean, covariance = outlook.model.joint_prediction(outlook.pool.codes[places])
        variance = covariance.diagonal()

        # 3: the deviations are those of each rival's difference from the best.
        deviations = np.sqrt(np.maximum(variance[0] + variance[1:] - 2.0 * covariance[0, 1:], 1e-12))
        is_better = 1.0 - chance_below(
            mean[0] - mean[1:] + EQUAL_WITHIN * outlook.scale, np.zeros(len(deviations)), deviations
        )
        if is_better.sum() <= 0.2:
            return None
        rival = 1 + int(is_better.argmax())

        # By how much a reading of the best, and of the rival, lowers the variance of their difference.
        narrowing = [
            (variance[at] - covariance[0, rival]) ** 2 / (variance[at] + outlook.reading_errors[places[at]] ** 2)
            for at in (0, rival)
        ]
        return int(places[0] if narrowing[0] >= narrowing[1] else places[rival])

    @property
    def second_readings(self) -> int:
        """The number of readings of configs that had been measured before."""
        return sum(len(entry.values) - 1 for entry in self._outlook.measured)

    @cached_property
    def neighbours_with_new_value(self) -> list[int]:
        """The places of the best's neighbours that may run and have a value that no measured config has.

        A speed may rise by any factor, so each such value is measured once, whatever the model expects. A neighbour on
        the next rung of the ladder counts even if other configs were measured on that rung: where memory ends depends
        on their other values, too.
        """
        outlook = self._outlook
        if not outlook.in_logarithms or outlook.best_place is None:
            return []
        codes, ladder = outlook.pool.codes, outlook.pool.levels.ladder
        measured = codes[outlook.measured_places]

        def has_new_value(place: int) -> bool:
            """Return whether a neighbour has a value that is new, or another rung."""
            column = self._changed_column(place)
            return column == ladder or codes[place, column] not in measured[:, column]

        neighbours = (
            place for place in outlook.pool.neighbours(outlook.best_place) if place not in outlook.measured_places
        )
        is_worth = outlook.may_probe & (outlook.launch_chance > LIKELY)
        return [place for place in neighbours if is_worth[place] and has_new_value(place)]

    def place_with_new_value(self, gain: Floats) -> int | None:
        """Return the place of a config with a value that no measured config has; None where there is no such value.

        New values of the study's first parameter come first. Parameters that `_hardly_matters` come last.

        `gain`: the expected gain per second of each config.
        """
        columns = {place: self._changed_column(place) for place in self.neighbours_with_new_value}
        if not columns:
            return None

        def urgency(place: int) -> tuple[bool, int, float]:
            """Return a key that is smallest for the most urgent neighbour: False comes before True."""
            column = columns[place]
            return self._hardly_matters[column], column, -gain[place]

        neighbour = min(columns, key=urgency)
        return max(self._with_larger_steps(neighbour), key=lambda place: gain[place])

    def _with_larger_steps(self, neighbour: int) -> list[int]:
        """Return the places to choose from: a neighbour of the best and, after a steep step, configs beyond it.

        These go further in the direction of the neighbour, in the parameter that it changes. They are added if the step
        to the best was steep: if each doubling of a batch has nearly doubled the speed, the next probe may skip
        doublings. Configs that probably do not run are left out.
        """
        outlook = self._outlook
        codes, best, column = outlook.pool.codes, outlook.best_place or 0, self._changed_column(neighbour)
        values = outlook.pool.space.parameters[column].values
        if any(isinstance(value, str) for value in values):  # words have no direction
            return [neighbour]

        # How far each config is ahead of the best, in the direction of the neighbour.
        numbers = np.array([*values, np.nan], dtype=float)[codes[:, column]]
        ahead = np.sign(numbers[neighbour] - numbers[best]) * (numbers - numbers[best])
        equals_best = self._equals_best_but_in(column)

        # The step to the best from the nearest measured config behind it.
        behind = [place for place in outlook.measured_places if equals_best[place] and ahead[place] < 0.0]
        before = max(behind, key=lambda place: ahead[place], default=best)
        if outlook.mean[best] - outlook.mean[before] <= STEEP:
            return [neighbour]
        is_beyond = equals_best & (ahead > ahead[neighbour]) & outlook.is_new_and_likely
        return [neighbour, *np.flatnonzero(is_beyond).tolist()]

    def _equals_best_but_in(self, column: int) -> NDArray[np.bool_]:
        """Return whether each config equals the best in all parameters but that of a column, where it may differ."""
        codes = self._outlook.pool.codes
        return (np.delete(codes, column, axis=1) == np.delete(codes[self._outlook.best_place], column)).all(axis=1)

    @cached_property
    def _hardly_matters(self) -> list[bool]:
        """For each parameter, in the order of the columns: whether it hardly matters, as far as measurements show.

        It hardly matters if a measured config that differs from the best in this parameter alone is about as good:
        behind by less than `EQUAL_WITHIN`, or by less than the standard error of the difference. Values are logarithms.
        """
        outlook = self._outlook
        codes, best, measured = outlook.pool.codes, outlook.best_place or 0, outlook.measured_places
        differs = codes[measured] != codes[best]  # measured config by parameter
        behind = outlook.mean[best] - outlook.mean[measured]
        error_of_difference = np.hypot(outlook.reading_errors[measured], outlook.reading_errors[best])
        is_as_good = behind < np.maximum(EQUAL_WITHIN, error_of_difference)
        differs_in_one = differs.sum(axis=1) == 1
        return list(map(bool, differs[is_as_good & differs_in_one].any(axis=0)))

    @cached_property
    def place_with_rare_value(self) -> int | None:
        """The place of the most promising config that has a rarely tried value; None where no value is rarely tried.

        One measurement may be far off, and one crash may have had another cause. So each value of a parameter with at
        most four values is tried in two configs. If a value has only failed, and always beside the same values of other
        parameters, these may be the cause: it counts as rarely tried in configs without them.

        A config promises its mean plus one standard deviation, times its chance to run. Each of its rarely tried values
        adds a tenth of the best.
        """
        outlook = self._outlook
        if not outlook.in_logarithms or outlook.best_place is None:
            return None
        codes, known = outlook.pool.codes, outlook.pool.codes[outlook.measured_places]
        rare = np.zeros(len(codes))  # how many rarely tried values each config has
        for column, value, ran, failures in self._values_to_try_twice():
            if len(ran) + len(failures) < 2:
                rare += codes[:, column] == value
            elif not len(ran):
                # The columns of values that all failures share, and that not all measured configs have.
                is_shared = (failures == failures[0]).all(axis=0) & (known != failures[0]).any(axis=0)
                is_shared[column] = False
                differs = (codes[:, is_shared] != failures[0, is_shared]).all(axis=1) & is_shared.any()
                rare += (codes[:, column] == value) & differs
        possible = outlook.is_unmeasured & (rare > 0) & (outlook.costs.chance_to_fit > LIKELY)
        mean, deviation = outlook.predictions
        promise = mean + deviation + np.log(np.maximum(outlook.costs.chance_to_run, LEAST_CHANCE)) + 0.1 * rare
        return int(np.where(possible, promise, -np.inf).argmax()) if possible.any() else None

    @property
    def probes_for_rare_values(self) -> int:
        """The most probes that `place_with_rare_value` may still ask for, to predict how long the search takes.

        It asks for two configs with each value of a parameter with at most four values, including those that failed. A
        value may have fewer configs left. A probe that has several such values is counted for each of them.
        """
        outlook = self._outlook
        if not outlook.in_logarithms:  # then `place_with_rare_value` asks for nothing
            return 0
        may_run = outlook.costs.chance_to_fit > LIKELY
        codes_left = outlook.pool.codes[outlook.is_unmeasured & may_run]
        probes = 0
        for column, value, ran, failures in self._values_to_try_twice():
            wanted = 2 - len(ran) - len(failures)
            probes += max(0, min(wanted, int(np.count_nonzero(codes_left[:, column] == value))))
        return probes

    def _values_to_try_twice(self) -> Iterator[_ValueToTry]:
        """Yield each value of parameters with at most four values, with the configs that were probed with it."""
        outlook = self._outlook
        known, failed = outlook.pool.codes[outlook.measured_places], outlook.pool.levels.codes(outlook.observed.failed)
        for column, parameter in enumerate(outlook.pool.space.parameters):
            count = len(parameter.values) - len(parameter.grown)  # a range that grows has a rule of its own
            for value in range(count) if count <= 4 else ():
                ran, failures = known[known[:, column] == value], failed[failed[:, column] == value]
                yield _ValueToTry(column, value, ran, failures)

    @cached_property
    def place_beyond_ranges(self) -> int | None:
        """The place of the best config with the next value of a range that may grow; None where no range may grow.

        A range may grow if the best has its largest value so far, and is better than the configs that differ from the
        best only in this value: see `lead`.
        """
        outlook = self._outlook
        places = beyond_ends(outlook.pool, outlook.range_ends, outlook.best_config or {})
        possible = (
            place for place in places if outlook.may_probe_later[place] and outlook.costs.chance_to_fit[place] > LIKELY
        )
        return next((place for place in possible if self.lead(place) > EQUAL_WITHIN), None)

    def lead(self, neighbour: int) -> float:
        """Return by which share the best is expected to be better than with any other value of one parameter.

        It is the parameter that a neighbour of the best changes; all other parameters are as in the best. Only values
        that an eligible config has are compared. Without any, the lead is infinite.
        """
        outlook = self._outlook
        column, codes = self._changed_column(neighbour), outlook.pool.codes
        equals_best = self._equals_best_but_in(column)
        is_other = codes[:, column] != codes[outlook.best_place, column]
        has_tried_value = np.isin(codes[:, column], codes[outlook.eligible_places, column]) & is_other
        best_other = outlook.mean[equals_best & has_tried_value].max(initial=-np.inf)
        return float(outlook.mean[outlook.best_place] - best_other) / outlook.scale

    def _changed_column(self, neighbour: int) -> int:
        """Return the column of the parameter in which a neighbour of the best differs from it."""
        outlook = self._outlook
        return int(np.flatnonzero(outlook.pool.codes[neighbour] != outlook.pool.codes[outlook.best_place])[0])
