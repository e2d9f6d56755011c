"""The expected result of each fault, and the limits of its probe."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from tests.support.tests_faulty.rank import SAMPLES
from tuner.probe import ProbeResult
from tuner.study import ProbeSpec

OK = "ok"
RANKS = 2
ITERATION_S = 0.02
TRUE_PER_S = RANKS * SAMPLES / ITERATION_S
"""The samples per second of a trainer that nothing else slows down."""
LEAST_PER_S = 0.3 * TRUE_PER_S
"""The least that a trainer makes beside other programs."""
ERRORS = 3
"""The standard errors by which a right number may miss the truth."""


class Strict(ProbeSpec):
    """The limits of a probe, scaled to iterations of 20 ms; those of a real trainer take seconds."""

    grace_seconds: ClassVar = 0.4
    iterations: int = 16
    window_seconds: float = 0.1
    max_seconds: float = 30
    start_up_silence_seconds: float = 5
    silence_seconds: float = 1.5


class Deathwatch(Strict):
    """Limits that leave the guard time to notice that a rank was killed."""

    grace_seconds: ClassVar = 1.5
    silence_seconds: float = 6


class Patient(Strict):
    """Limits that a busy machine does not reach."""

    grace_seconds: ClassVar = 10.0
    silence_seconds: float = 20


class Hasty(Strict):
    """Limits by which a rank that says nothing for a moment counts as dead."""

    grace_seconds: ClassVar = 0.1
    iterations: int = 10
    silence_seconds: float = 0.8


STRICT, DEATHWATCH, PATIENT = Strict(), Deathwatch(), Patient()


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """The expected result of probing a fault, and the limits of the probe."""

    expected: str
    """`ok`, the kind of the failure, or the name of the error that is raised."""
    says: str = ""
    """Text that the failure's detail contains."""
    limits: ProbeSpec = STRICT
    iteration_s: float = ITERATION_S
    trainer_iterations: int = 1000
    """The number of iterations after which the trainer ends by itself."""
    full_disk: bool = False
    """Whether the log lies on a disk without room."""
    holds: Callable[[ProbeResult], bool] = lambda _: True
    """Whether the numbers of the result are right."""


def _rate_is_right(result: ProbeResult) -> bool:
    """Whether the true rate lies within the errors of the measured rate."""
    if result.samples_per_s is None or result.samples_per_s_se is None:
        return False
    error = ERRORS * result.samples_per_s_se
    return result.samples_per_s - error <= 1.02 * TRUE_PER_S and result.samples_per_s + error >= LEAST_PER_S


def _rate_is_unknown(result: ProbeResult) -> bool:
    return result.samples_per_s is None


def _utilisation_is_unknown(result: ProbeResult) -> bool:
    return all(device.util_mean_pct is None for device in result.devices)


_HEALTHY = Scenario(expected=OK, limits=PATIENT, holds=_rate_is_right)
_LONG = PATIENT.model_copy(update={"window_seconds": 1})

SCENARIOS: dict[str, Scenario] = {
    "none": _HEALTHY,
    "oom_at_build": Scenario(expected="gpu_oom", says="355123200"),
    "oom_at_training": Scenario(expected="gpu_oom", says="2.00 GiB"),
    "oom_after_ten_iterations": Scenario(expected="gpu_oom", says="2.00 GiB"),
    "host_oom": Scenario(expected="host_oom"),
    "skipped_collective": Scenario(expected="hang"),
    "collective_timeout": Scenario(expected="nccl", says="ALLREDUCE", limits=DEATHWATCH),
    "busy_loop": Scenario(expected="hang"),
    "busy_loop_that_prints": Scenario(expected="hang"),
    "rank_runs_on_alone": Scenario(expected="hang", says="rank 0 fell behind"),
    "slow_rank": _HEALTHY,
    "killed_rank": Scenario(expected="crash", says="killed by SIGKILL", limits=DEATHWATCH),
    "crashed_rank": Scenario(expected="crash", says="actor_epochs"),
    "rank_ignores_term": _HEALTHY,
    "grandchild_in_own_session": _HEALTHY,
    "port_in_use": Scenario(expected="port_in_use"),
    "missing_file": Scenario(expected="missing_asset", says="walk.pkl"),
    "missing_package": Scenario(expected="missing_dependency", says="no_such_simulator"),
    "exit_without_files": Scenario(expected="crash", says="without model.pt", limits=PATIENT, trainer_iterations=10),
    "nan_progress": Scenario(expected="hang"),
    "negative_progress": Scenario(expected="hang"),
    "progress_backwards": Scenario(expected="hang"),
    "broken_counts": replace(_HEALTHY, holds=_rate_is_unknown),
    "stepped_clock": _HEALTHY,
    "flood_without_newline": _HEALTHY,
    "not_utf8": _HEALTHY,
    "deleted_logs": _HEALTHY,
    "full_disk": Scenario(expected="OutputError", says="No space left", full_disk=True),
    "slow_start": Scenario(expected=OK, limits=PATIENT.model_copy(update={"start_up_silence_seconds": 2})),
    "slow_iteration": Scenario(expected=OK, limits=Hasty(), iteration_s=0.1),
    "killed_guard": Scenario(expected="crash", says="exit code -1"),
    "stopped_guard": _HEALTHY,
    "stopped_rank": Scenario(expected="hang"),
    "odd_text": Scenario(expected="crash", says="passt nicht"),
    "odd_sizes": Scenario(expected="gpu_oom", says="..1.2.3 GiB"),
    "old_lines": replace(_HEALTHY, limits=_LONG),
    "slow_first_iterations": replace(_HEALTHY, limits=_LONG),
    "own_counts": replace(_HEALTHY, holds=_rate_is_unknown),
    "busy_beyond_elapsed": replace(_HEALTHY, holds=_utilisation_is_unknown),
    "huge_counts": replace(_HEALTHY, holds=_rate_is_unknown),
    "huge_iterations": Scenario(expected="hang"),
    "timesteps_as_iterations": _HEALTHY,
    "odd_ranks": _HEALTHY,
    "progress_is_a_folder": Scenario(expected="crash", says="Is a directory"),
    "progress_is_a_pipe": Scenario(expected="no_progress", says="Iteration"),
    "out_dir_is_a_file": Scenario(expected="missing_asset", says="Not a directory"),
}
