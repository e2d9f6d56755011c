"""The settings of one run of a workload. This file does not import torch, because planning needs the settings too."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import TrainerError
from tuner.study.space import Value

SIZE, EXCHANGE = "size", "exchange"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What one run of a workload is."""

    workload: str
    size: int
    exchange: bool
    """Whether the ranks exchange gradients or other results. Where not, they only wait for each other."""
    iterations: int


def run_settings(workload: str, config: Mapping[str, Value], *, iterations: int) -> RunSettings:
    """Return the settings of a config. Raises TrainerError for a value that no workload can use."""
    size, exchange = config.get(SIZE), config.get(EXCHANGE, True)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise TrainerError(f"{SIZE} {size!r}: workload {workload} needs a whole number of at least 1")
    if not isinstance(exchange, bool):
        raise TrainerError(f"{EXCHANGE} {exchange!r}: workload {workload} needs true or false")
    return RunSettings(workload=workload, size=size, exchange=exchange, iterations=iterations)
