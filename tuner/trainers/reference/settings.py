"""What the ranks and their runs need to know; free of torch, so that a plan can be made without it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import ConfigRefusedError
from tuner.study.space import Value
from tuner.trainers.reference.agent import AgentSettings, Method, agent_settings, whole

PREFETCH_FACTOR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamSettings:
    """What all runs of a started trainer share."""

    method: Method
    devices: tuple[str, ...]
    """One rank each, `cuda:0` or `cpu`."""
    master_port: int
    num_envs: int
    """Per device."""
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What one run is asked for."""

    agent: AgentSettings
    num_workers: int
    """Processes that prepare clips, per device; 0: the rank prepares them itself."""
    prefetch_factor: int | None
    """Batches that each of them prepares ahead; None where there are none."""
    iterations: int


def run_settings(config: Mapping[str, Value], *, hidden_units: int, iterations: int) -> RunSettings:
    """Return the run that a config asks for.

    Raises TrainerError for a value that the trainer cannot use, ConfigRefusedError for values that contradict.
    """
    num_workers = whole(config, "num_workers", default=0, least=0)
    prefetch_factor = whole(config, "prefetch_factor", default=PREFETCH_FACTOR)
    if "prefetch_factor" in config and not num_workers:
        raise ConfigRefusedError(f"prefetch_factor {prefetch_factor} needs num_workers of at least 1")
    return RunSettings(
        agent=agent_settings(config, hidden_units=hidden_units),
        num_workers=num_workers,
        prefetch_factor=prefetch_factor if num_workers else None,
        iterations=iterations,
    )
