"""The settings of ranks and runs. This file does not import torch, because planning needs the settings too."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.errors import ConfigRefusedError
from tuner.study.space import Value
from tuner.trainers.reference.agent import AgentSettings, Method, agent_settings, whole
from tuner.trainers.reference.kernels import Kernels, kernels

PREFETCH_FACTOR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Team:
    """The processes that work together, one rank per device."""

    devices: tuple[str, ...]
    """The device of each rank, such as `cuda:0` or `cpu`."""
    master_port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamSettings(Team):
    """The settings that all runs of a started trainer share."""

    method: Method
    num_envs: int
    """Environments per device."""
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """The settings of one run."""

    agent: AgentSettings
    num_workers: int
    """The processes that prepare clips, per device. With 0 the rank prepares its clips itself."""
    prefetch_factor: int | None
    """The batches that each of these processes prepares ahead; None without such processes."""
    iterations: int
    kernels: Kernels = field(default_factory=Kernels)


def run_settings(config: Mapping[str, Value], *, hidden_units: int, iterations: int) -> RunSettings:
    """Return the settings of the run for a config.

    Raises TrainerError for a value that the trainer cannot use, and ConfigRefusedError for values that contradict each
    other.
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
        kernels=kernels(config),
    )
