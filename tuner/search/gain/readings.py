"""What was read of each config, and how well it is known. Pure."""

from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from tuner.search.arrays import Floats
from tuner.search.gain.levels import Codes, Levels
from tuner.search.observed import Observed

USUAL_ERROR = 0.01
"""Standard error of a reading as a share of it, where none is told."""
TOWARDS_USUAL = 0.25
"""How far the logarithm of an error that is told counts as the usual one: few iterations tell an error itself badly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """What was read, a row per config; of several readings of a config their mean."""

    codes: Codes
    values: Floats
    errors: Floats
    """Standard errors of the values, above 0."""
    error: float
    """Standard error of a single reading."""


def readings(observed: Observed, levels: Levels) -> Readings:
    """Give what each config read, in the order of `Observed.seen`."""
    configs = list(observed.seen.values())
    told = [error for one in configs for error in one.errors if error]
    usual = median(told) if told else USUAL_ERROR * fmean(abs(fmean(one.values)) for one in configs) or USUAL_ERROR
    errors = [_moderated(np.array([error or usual for error in one.errors]), usual) for one in configs]
    return Readings(
        codes=levels.codes(one.config for one in configs),
        values=np.array([fmean(one.values) for one in configs]),
        errors=np.array([np.sqrt((of_one**2).mean() / len(of_one)) for of_one in errors]),
        error=float(np.median(np.concatenate(errors))),
    )


def _moderated(errors: Floats, usual: float) -> Floats:
    return errors ** (1.0 - TOWARDS_USUAL) * usual**TOWARDS_USUAL
