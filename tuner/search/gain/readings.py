"""What was read of each config, and how well it is known. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from tuner.search.arrays import Floats
from tuner.search.gain.levels import Codes, Levels
from tuner.search.observed import Observed, Seen

USUAL_ERROR = 0.01
"""Standard error of a reading as a share of it, where none is told."""
ELSEWHERE = 0.03
"""Standard deviation, as a share of the readings, of what all those from other devices are off by together: from one
pair of H200s to another the same configs read 2 to 5 points apart (`benchmarks/results/pi_plus_auto_two_h200`)."""
TOWARDS_USUAL = 0.25
"""How far the logarithm of an error that is told counts as the usual one: few iterations tell an error itself badly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """What was read, a row per config and devices; of several readings there their mean."""

    codes: Codes
    values: Floats
    errors: Floats
    """Standard errors of the values, above 0."""
    shared: Floats
    """Row by row: the covariance of errors that rows from the same devices have in common, 0 for the newest devices."""
    error: float
    """Standard error of a single reading."""


def readings(observed: Observed, levels: Levels) -> Readings:
    """Give what each config read on each set of devices, in the order of `Observed.seen`."""
    configs = list(observed.seen.values())
    told = [error for one in configs for error in one.errors if error]
    usual = median(told) if told else USUAL_ERROR * fmean(abs(fmean(one.values)) for one in configs) or USUAL_ERROR
    rows = [(one, places) for one in configs for places in _by_devices(one)]
    errors = [_moderated(np.array([one.errors[place] or usual for place in places]), usual) for one, places in rows]
    values = np.array([fmean(one.values[place] for place in places) for one, places in rows])
    where = np.array([one.devices[places[0]] for one, places in rows])
    elsewhere = (where[:, None] == where) & (where != observed.here)
    return Readings(
        codes=levels.codes(one.config for one, _ in rows),
        values=values,
        errors=np.array([np.sqrt((of_one**2).mean() / len(of_one)) for of_one in errors]),
        shared=elsewhere * (ELSEWHERE * values.mean()) ** 2,
        error=float(np.median(np.concatenate(errors))),
    )


def _by_devices(one: Seen) -> Iterator[list[int]]:
    """Give the places of a config's values, those from the same devices together."""
    for devices in dict.fromkeys(one.devices):
        yield [place for place, other in enumerate(one.devices) if other == devices]


def _moderated(errors: Floats, usual: float) -> Floats:
    return errors ** (1.0 - TOWARDS_USUAL) * usual**TOWARDS_USUAL
