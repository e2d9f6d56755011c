"""The measurements of each config, and how precise they are. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from tuner.search.arrays import Floats
from tuner.search.gain.levels import Codes, Levels
from tuner.search.observed import Measured, Observed
from tuner.search.siblings import Sibling
from tuner.study.launch import launch_digest, launched
from tuner.study.space import Space

USUAL_ERROR = 0.01
"""The standard error of a measurement, as a share of its value, where no error is reported."""
ELSEWHERE = 0.03
"""The standard deviation of the offset that all measurements from other devices share, as a share of their mean.

On two pairs of H200s the same configs differed by 2 to 5 points (`benchmarks/results/pi_plus_auto_two_h200`).
"""
TOWARDS_USUAL = 0.25
"""How far each reported error is moved towards the median error, on a logarithmic scale from 0 to 1.

A few iterations estimate an error badly.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """The measurements: a row per config and set of devices, with the mean of the measurements there."""

    codes: Codes
    values: Floats
    errors: Floats
    """The standard errors of the values, above 0."""
    shared: Floats
    """The covariance of rows that share their devices, and so an offset; 0 for rows from the newest devices."""
    error: float
    """The standard error of a single measurement of a config that has not been measured."""

    def at(self, places: Codes) -> "Readings":
        """Return the rows at these places."""
        return replace(
            self,
            codes=self.codes[places],
            values=self.values[places],
            errors=self.errors[places],
            shared=self.shared[np.ix_(places, places)],
        )


def mean_readings(observed: Observed, levels: Levels) -> Readings:
    """Return the measurements of each config on each set of devices, in the order of `Observed.measured`."""
    return _mean_readings(list(observed.measured.values()), observed.newest_devices, levels)


def single_errors(observed: Observed) -> list[float]:
    """Return the standard error of one more measurement of each config, in the order of `Observed.measured`.

    Each config has its own: on two CPU ranks, most configs have an error of 1 point and some have 8.
    """
    usual = _usual_error(observed.measured.values())
    of_each = [
        _moderated(np.array([error or usual for error in one.errors]), usual) for one in observed.measured.values()
    ]
    return [float(np.sqrt((errors**2).mean())) for errors in of_each]


def sibling_readings(sibling: Sibling, levels: Levels, space: Space) -> Readings | None:
    """Return the measurements that a sibling made of configs of the space; None where it made none."""
    measured: dict[str, Measured] = {}
    for config, value, error in sibling.readings:
        if launched(config) in space:
            one = measured.setdefault(launch_digest(config), Measured(launched(config)))
            one.values.append(value)
            one.errors.append(error)
            one.devices.append("")
    return _mean_readings(list(measured.values()), "", levels) if measured else None


def _mean_readings(configs: list[Measured], newest_devices: str, levels: Levels) -> Readings:
    usual = _usual_error(configs)
    rows = [(one, places) for one in configs for places in _by_devices(one)]
    errors = [_moderated(np.array([one.errors[place] or usual for place in places]), usual) for one, places in rows]
    values = np.array([fmean(one.values[place] for place in places) for one, places in rows])
    where = np.array([one.devices[places[0]] for one, places in rows])
    elsewhere = (where[:, None] == where) & (where != newest_devices)
    return Readings(
        codes=levels.codes(one.config for one, _ in rows),
        values=values,
        errors=np.array([np.sqrt((of_one**2).mean() / len(of_one)) for of_one in errors]),
        shared=elsewhere * (ELSEWHERE * values.mean()) ** 2,
        error=float(np.median(np.concatenate(errors))),
    )


def _usual_error(configs: Collection[Measured]) -> float:
    reported = [error for one in configs for error in one.errors if error]
    if reported:
        return median(reported)
    return USUAL_ERROR * fmean(abs(fmean(one.values)) for one in configs) or USUAL_ERROR


def _by_devices(one: Measured) -> Iterator[list[int]]:
    """Yield the places of a config's values, those from the same devices together."""
    for devices in dict.fromkeys(one.devices):
        yield [place for place, other in enumerate(one.devices) if other == devices]


def _moderated(errors: Floats, usual: float) -> Floats:
    return errors ** (1.0 - TOWARDS_USUAL) * usual**TOWARDS_USUAL
