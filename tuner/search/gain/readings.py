"""The measurements of each config, and how precise they are; also those of a sibling, a similar case. Pure."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, median

import numpy as np

from tuner.search.gain.pool import Codes, Levels
from tuner.search.resource_model import Floats
from tuner.search.trials import Measured, MeasuredValue, Sibling
from tuner.study import Config, Space, grouped, launch_digest, launched

USUAL_ERROR = 0.01
"""The standard error of a measurement, as a share of its value, where no error is reported."""
DEVICE_OFFSET = 0.03
"""The standard deviation of the offset that all measurements from other devices share, as a share of their mean.

On two pairs of H200s, the utilisation of the same configs differed by 2 to 5 percentage points
(`benchmarks/results/pi_plus_auto_two_h200`).
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """The measurements that a model learns from: a row per config and set of devices, with the mean measured there."""

    codes: Codes
    """The configs of the rows: the place of each value among those of its parameter."""
    values: Floats
    errors: Floats
    """The standard errors of the values, above 0."""
    offset_covariance: Floats
    """The covariance of rows, because the same devices share an offset: row by row. The newest devices have none."""
    usual_error: float
    """The standard error of a single measurement of a config that has not been measured."""
    scale: float
    """What a difference of values is divided by to become a share: the mean value, or 1 for logarithms."""
    logarithmic: bool = False
    """Whether the values are logarithms."""

    def at(self, places: Codes) -> "Readings":
        """Return the rows at these places."""
        return replace(
            self,
            codes=self.codes[places],
            values=self.values[places],
            errors=self.errors[places],
            offset_covariance=self.offset_covariance[np.ix_(places, places)],
        )


def have_logarithms(measured: Iterable[Measured]) -> bool:
    """Return whether all values have one sign, so that their logarithms exist."""
    numbers = [value.number for entry in measured for value in entry.values]
    return all(number > 0.0 for number in numbers) or all(number < 0.0 for number in numbers)


def in_logarithms(entry: Measured) -> Measured:
    """Return the measurements of a config as logarithms, because each choice multiplies a speed by a factor.

    Larger ones are still better: negative values become minus the logarithm of their absolute value.
    """
    values: list[MeasuredValue] = []
    for value in entry.values:
        logarithm = math.copysign(1.0, value.number) * math.log(abs(value.number))
        share = value.error / abs(value.number) if value.error else value.error  # about the error of a logarithm
        values.append(value._replace(number=logarithm, error=share))
    return replace(entry, values=values)


def single_errors(measured: Sequence[Measured]) -> list[float]:
    """Return the standard error to expect of one more measurement of each config.

    It is the root mean square of the errors of the config's measurements. Configs differ: on two CPU ranks, most have
    an error of 1 percentage point of utilisation, and some have 8.
    """
    usual = _usual_error(measured)
    return [float(np.sqrt((_errors(entry.values, usual) ** 2).mean())) for entry in measured]


def sibling_readings(sibling: Sibling, levels: Levels, space: Space) -> Readings | None:
    """Return the measurements that a sibling made of configs of the space; None where it made none."""
    measured: dict[str, Measured] = {}
    for config, value, error in sibling.readings:
        if launched(config) in space:
            known = measured.setdefault(launch_digest(config), Measured(launched(config)))
            known.values.append(MeasuredValue(value, error))
    return mean_readings(list(measured.values()), "", levels) if measured else None


def mean_readings(configs: Sequence[Measured], newest_devices: str, levels: Levels, *, logs: bool = False) -> Readings:
    """Return the measurements that a model learns from: the mean of each config on each set of devices.

    Args:
        configs: The measured configs.
        newest_devices: The devices that measured the newest value, whose measurements have no offset.
        levels: Gives the values of the configs their codes.
        logs: Whether the values are logarithms.
    """
    usual = _usual_error(configs)
    # Each row is a config, with its values from one set of devices.
    rows: list[tuple[Config, list[MeasuredValue]]] = []
    for entry in configs:
        by_devices = grouped(entry.values, attrgetter("devices"))
        rows += [(entry.config, of_devices) for of_devices in by_devices.values()]
    errors = [_errors(of_devices, usual) for _, of_devices in rows]
    values = np.array([fmean(value.number for value in of_devices) for _, of_devices in rows])
    scale = 1.0 if logs else abs(float(values.mean()))
    devices = np.array([of_devices[0].devices for _, of_devices in rows])
    share_offset = (devices[:, None] == devices) & (devices != newest_devices)  # row by row
    return Readings(
        codes=levels.codes(config for config, _ in rows),
        values=values,
        errors=np.array([np.sqrt((of_row**2).mean() / len(of_row)) for of_row in errors]),
        offset_covariance=share_offset * (DEVICE_OFFSET * scale) ** 2,
        scale=scale,
        logarithmic=logs,
        usual_error=float(np.median(np.concatenate(errors))),
    )


def _usual_error(configs: Collection[Measured]) -> float:
    """Return the median of the reported standard errors; `USUAL_ERROR` of the mean where none is reported."""
    if reported := [value.error for entry in configs for value in entry.values if value.error]:
        return median(reported)
    means = [fmean(value.number for value in entry.values) for entry in configs]
    return USUAL_ERROR * fmean(map(abs, means)) or USUAL_ERROR  # never 0: errors are divided by


def _errors(values: Sequence[MeasuredValue], usual: float) -> Floats:
    """Return the standard errors of values, each shrunk towards the usual error: a quarter of the way, in logarithms.

    A reported error is itself a rough estimate from a few iterations, so the usual error improves it (shrinkage).
    """
    errors = np.array([value.error or usual for value in values])
    return errors**0.75 * usual**0.25
