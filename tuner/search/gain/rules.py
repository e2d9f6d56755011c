"""Rules of thumb that ask for the probe of a config, whatever gain is expected of it."""

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from tuner.search.gain.expected_gain import WITHIN, below
from tuner.search.gain.outlook import LIKELY, RIVALS, Outlook
from tuner.search.gain.pool import MIDDLE, Codes, beyond_ends
from tuner.search.resource_model import Floats

STEEP = math.log(1.3)
"""A step that gains more than this share is steep: what lies beyond is probed at once."""
MOST_REPEATS = 6
"""The most second readings of configs that a rule of thumb may ask for."""
LEAST_CHANCE = 1e-5
"""The smallest chance to run that is told from none."""


class Rules:
    """What rules of thumb ask for: first configs, values that are new or rare, ranges to grow, and second readings."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook

    def first(self) -> int:
        """Return the place of the config to begin with, before any has run; at least one may be probed.

        It is the user's own config, or else one in the middle of the ladder; after each failure, one half-way down.
        Any value of a config that failed for another reason than memory or time may be the cause. So the next config
        shares as few of them as possible.
        """
        outlook, pool = self._outlook, self._outlook.pool
        closed, failed = pool.places(outlook.observed.closed), pool.levels.codes(outlook.observed.failed)
        own = pool.find(pool.space.own) if pool.space.own and not closed else None
        if own is not None and outlook.open[own]:
            return own
        height = min([MIDDLE, *(pool.heights[place] / 2.0 for place in closed)])
        shared = (pool.codes[:, None] == failed).sum(axis=2).max(axis=1, initial=0)
        possible = np.flatnonzero(outlook.open)
        return int(min(possible, key=lambda place: (shared[place], abs(pool.heights[place] - height))))

    def upward(self) -> int | None:
        """Return the place of the first config on the highest rung that is safe; None where no higher rung is safe.

        A config on two rungs far apart shows how value, memory and seconds grow, and most configs are best on high
        rungs. None unless a config has run and nothing has failed. None also once another config has been measured, or
        if the first one is above 0.6 of the ladder's height.
        """
        outlook = self._outlook
        if not outlook.rivals or outlook.observed.closed:
            return None
        heights, codes, measured = outlook.pool.heights, outlook.pool.codes, outlook.measured_places
        others = [column for column in range(codes.shape[1]) if column != outlook.pool.levels.ladder]
        highest = max(measured, key=lambda place: heights[place])
        if heights[highest] > 0.6 or len(np.unique(codes[measured][:, others], axis=0)) > 1:
            return None
        above = np.flatnonzero(outlook.open & (outlook.runs >= 0.9) & (heights > heights[highest])).tolist()
        return max(above, key=lambda place: (heights[place], (codes[place] == codes[highest]).sum()), default=None)

    @property
    def must_go_on(self) -> bool:
        """Whether a rule of thumb asks for another probe: of the best, of a value that is new, or of a rare one."""
        must_see = bool(self.untried) or self.rarely_tried is not None
        return must_see or self.needs_repeat or self.doubted is not None

    @property
    def needs_repeat(self) -> bool:
        """Whether the best must be measured again before the search may end.

        It must after one measurement where no session serves the probes, because nothing else measures it again. It
        must also while its measurements are far above what the others foretell, until there are four.
        """
        outlook = self._outlook
        if outlook.best is None or not outlook.open[outlook.best]:
            return False
        times = len(outlook.measured[outlook.measured_places.index(outlook.best)].values)
        return (times == 1 and not outlook.observed.warm) or (times < 4 and self.is_surprising)

    @property
    def is_surprising(self) -> bool:
        """Whether the mean of the best is 2.5 standard deviations above what three others or more foretell."""
        outlook = self._outlook
        if outlook.best is None or len(outlook.measured_places) < 4:
            return False
        return outlook.alone.residual(outlook.pool.codes[outlook.best]) > 2.5

    @cached_property
    def doubted(self) -> int | None:
        """The best or its strongest rival among the measured configs, whichever tells more; None where none is close.

        A rival is close that is better by more than `WITHIN` with the probability 0.2. None is measured again where
        the usual standard error of a reading is below 2 % of the best, nor after six second readings: where configs are
        alike, no number tells which is the best.

        Of two that may be the best, it is the one whose reading narrows the difference most (Russo, "Simple Bayesian
        Algorithms for Best-Arm Identification", 2020, calls this top-two sampling).
        """
        outlook = self._outlook
        possible = [place for place in outlook.rivals if outlook.open[place]]
        possible = [place for place in possible if outlook.may_gain[place] or place == outlook.best]
        order = sorted(possible, key=lambda place: -outlook.mean[place])
        is_known = outlook.readings.error < 0.02 * outlook.scale or self.repeats >= MOST_REPEATS
        if outlook.best is None or len(order) < 2 or order[0] != outlook.best or is_known:
            return None
        places = np.array(order[:RIVALS])
        mean, covariance = outlook.surrogate.joint_prediction(outlook.pool.codes[places])
        variance = covariance.diagonal()
        apart = np.sqrt(np.maximum(variance[0] + variance[1:] - 2.0 * covariance[0, 1:], 1e-12))
        better = 1.0 - below(mean[0] - mean[1:] + WITHIN * outlook.scale, np.zeros(len(apart)), apart)
        if better.sum() <= 0.2:
            return None
        rival = 1 + int(better.argmax())
        tells = [
            (variance[at] - covariance[0, rival]) ** 2 / (variance[at] + outlook.errors[places[at]] ** 2)
            for at in (0, rival)
        ]
        return int(places[0] if tells[0] >= tells[1] else places[rival])

    @property
    def repeats(self) -> int:
        """The number of readings of configs that had been measured before."""
        return sum(len(entry.values) - 1 for entry in self._outlook.measured)

    @cached_property
    def untried(self) -> list[int]:
        """The neighbours of the best with a value that no measured config has.

        A speed may rise by any factor, so each such value is measured once, whatever the model expects. The next
        rungs of the ladder are measured with the best itself, because other choices move the end of memory.
        """
        outlook = self._outlook
        if not outlook.in_logarithms or outlook.best is None:
            return []
        codes, ladder = outlook.pool.codes, outlook.pool.levels.ladder
        known = codes[outlook.measured_places]

        def new(place: int) -> bool:
            """Return whether a neighbour has a value that is new, or another rung."""
            column = self._column(place)
            return column == ladder or codes[place, column] not in known[:, column]

        neighbours = (place for place in outlook.pool.neighbours(outlook.best) if place not in outlook.measured_places)
        worth = outlook.open & (outlook.runs > LIKELY) & outlook.may_gain
        return [place for place in neighbours if worth[place] and new(place)]

    def new_value(self, gain: Floats) -> int | None:
        """Return the config that shows a value that no measured config has; None where nothing is `untried`.

        The values of a study's first parameter come first, unless a change of this parameter has changed little. What
        may gain less than a steep step, by the parts of the steps, comes last.

        `gain`: the expected gain per second of each config.
        """
        columns = {place: self._column(place) for place in self.untried}
        if not columns:
            return None
        outlook = self._outlook
        is_slight = outlook.ceilings - outlook.mean[outlook.best or 0] < STEEP
        neighbour = min(
            columns, key=lambda place: (is_slight[place], self._is_flat[columns[place]], columns[place], -gain[place])
        )
        return max(self._with_beyond(neighbour), key=lambda place: gain[place])

    def _with_beyond(self, neighbour: int) -> list[int]:
        """Return a neighbour of the best and, after a step by the factor 1.3, what lies beyond and may run.

        Where each doubling of a batch has nearly doubled the speed, the next probe may so leave doublings out.
        """
        outlook = self._outlook
        codes, best, column = outlook.pool.codes, outlook.best or 0, self._column(neighbour)
        values = outlook.pool.space.parameters[column].values
        if any(isinstance(value, str) for value in values):
            return [neighbour]
        numbers = np.array([*values, np.nan], dtype=float)[codes[:, column]]
        ahead = np.sign(numbers[neighbour] - numbers[best]) * (numbers - numbers[best])
        alike = (np.delete(codes, column, axis=1) == np.delete(codes[best], column)).all(axis=1)
        behind = [place for place in outlook.measured_places if alike[place] and ahead[place] < 0.0]
        before = max(behind, key=lambda place: ahead[place], default=best)
        if outlook.mean[best] - outlook.mean[before] <= STEEP:
            return [neighbour]
        beyond = alike & (ahead > ahead[neighbour]) & outlook.is_new
        return [neighbour, *np.flatnonzero(beyond).tolist()]

    @cached_property
    def _is_flat(self) -> list[bool]:
        """Whether the value of the best has changed little where one parameter alone changed, for each parameter.

        It changed little where the difference is below `WITHIN`, or below its standard error.
        """
        outlook = self._outlook
        codes, best = outlook.pool.codes, outlook.best or 0
        changed = codes[outlook.measured_places] != codes[best]
        behind = outlook.mean[best] - outlook.mean[outlook.measured_places]
        is_close = behind < np.maximum(WITHIN, np.hypot(outlook.errors[outlook.measured_places], outlook.errors[best]))
        by_one = is_close & (changed.sum(axis=1) == 1)
        return [bool((by_one & changed[:, column]).any()) for column in range(codes.shape[1])]

    @cached_property
    def rarely_tried(self) -> int | None:
        """The most promising config with a choice that a single probe speaks for or against; None where there is none.

        One measurement may be far off, and one crash may have had another cause. So each value of a parameter with at
        most four is tried in two configs. To show one more is worth a tenth of the best. Where a value has only failed,
        and always beside the same other choices, they may be the cause: it is tried without them.
        """
        outlook = self._outlook
        if not outlook.in_logarithms or outlook.best is None:
            return None
        codes, known = outlook.pool.codes, outlook.pool.codes[outlook.measured_places]
        rare = np.zeros(len(codes))  # how many rare choices each config has
        for column, value, ran, failures in self._few_values():
            if len(ran) + len(failures) < 2:
                rare += codes[:, column] == value
            elif not len(ran):
                shared = (failures == failures[0]).all(axis=0) & (known != failures[0]).any(axis=0)
                shared[column] = False
                differs = (codes[:, shared] != failures[0, shared]).all(axis=1) & shared.any()
                rare += (codes[:, column] == value) & differs
        possible = outlook.is_unmeasured & (rare > 0) & (outlook.costs.possible > LIKELY) & outlook.may_gain
        mean, deviation = outlook.predictions
        promise = mean + deviation + np.log(np.maximum(outlook.costs.runs, LEAST_CHANCE)) + 0.1 * rare
        return int(np.where(possible, promise, -np.inf).argmax()) if possible.any() else None

    @property
    def unseen(self) -> int:
        """The probes that would show each value of a parameter with at most four in two configs, as far as they fit."""
        outlook = self._outlook
        if not outlook.in_logarithms:
            return 0
        codes = outlook.pool.codes[outlook.is_unmeasured & (outlook.costs.possible > LIKELY) & outlook.may_gain]
        return sum(
            max(0, min(2 - len(ran) - len(failures), int(np.count_nonzero(codes[:, column] == value))))
            for column, value, ran, failures in self._few_values()
        )

    def _few_values(self) -> Iterator[tuple[int, int, Codes, Codes]]:
        """Yield each value of each parameter with at most four values.

        Each comes as the column of the parameter, the code of the value, the configs that ran with it and that failed.
        """
        outlook = self._outlook
        known, failed = outlook.pool.codes[outlook.measured_places], outlook.pool.levels.codes(outlook.observed.failed)
        for column, parameter in enumerate(outlook.pool.space.parameters):
            count = len(parameter.values) - len(parameter.grown)
            for value in range(count) if count <= 4 else ():
                yield column, value, known[known[:, column] == value], failed[failed[:, column] == value]

    @cached_property
    def next_in_range(self) -> int | None:
        """The best config with the next value of a range whose end leads it; None where no range can grow."""
        outlook = self._outlook
        places = beyond_ends(outlook.pool, outlook.ends, outlook.best_config or {})
        possible = outlook.possible & (outlook.costs.possible > LIKELY) & outlook.may_gain
        return next((place for place in places if possible[place] and self.lead(place) > WITHIN), None)

    def lead(self, neighbour: int) -> float:
        """Return by which share the best leads with its value of what a neighbour changes, all else alike.

        Its rivals are the configs that differ from it in this value alone, by their expected values. An eligible config
        has the other value: the lead is infinite where none has.
        """
        outlook = self._outlook
        column, codes = self._column(neighbour), outlook.pool.codes
        alike = (np.delete(codes, column, axis=1) == np.delete(codes[outlook.best], column)).all(axis=1)
        is_other = codes[:, column] != codes[outlook.best, column]
        tried = np.isin(codes[:, column], codes[outlook.rivals, column]) & is_other
        return float(outlook.mean[outlook.best] - outlook.mean[alike & tried].max(initial=-np.inf)) / outlook.scale

    def _column(self, neighbour: int) -> int:
        """Return the column of the parameter in which a neighbour of the best differs from it."""
        outlook = self._outlook
        return int(np.flatnonzero(outlook.pool.codes[neighbour] != outlook.pool.codes[outlook.best])[0])
