"""What a probe gives: progress marks, device samples and their summaries, failures, and the result as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tuner.probe.kinds import FailureKind
from tuner.study.space import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a probe gave no number: the kind, the rule that found it, and the line or reading that shows it."""

    kind: FailureKind
    rule: str
    detail: str
    rank: int | None = None
    overshoot_mib: float | None = None
    """Memory that was asked for beyond what was free, where the message names sizes."""


STOPPED = Failure(kind=FailureKind.INTERRUPTED, rule="request", detail="stopped on request")
"""A probe that was asked to end before it had anything to tell: by Ctrl-C, or because its time is over."""


def unreadable(why: str) -> Failure:
    """Give the failure of a probe whose devices cannot be read."""
    return Failure(kind=FailureKind.GPU_LOST, rule="unreadable", detail=why)


@dataclass(frozen=True, slots=True)
class Thin:
    """The end of an iteration, of whose work only a share was done: all of it is alike."""

    from_s: float
    """When it began, as `Progress.t_s`."""
    by: float
    """Seconds of training that each of its seconds stands for; more than 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The end of one iteration, as the trainer reports it."""

    iteration: int
    t_s: float
    """Seconds since the probe started."""
    rank: int | None = None
    """The reporting rank; None when one report speaks for all ranks."""
    samples: int | None = None
    """Samples collected so far by all ranks together, or by `rank` where that is given."""
    busy_s: float | None = None
    """Seconds so far that the rank's device did tensor work."""
    alloc_retries: int | None = None
    """How often so far the rank's allocator had to free its cache and try again."""
    thin: Thin | None = None
    """The part of the iteration that was not run in full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSample:
    """One reading of one device."""

    t_s: float
    """Seconds since the probe started."""
    device: int
    """Position in the probe's list of devices."""
    util_pct: float | None = None
    sm_pct: float | None = None
    occupancy_pct: float | None = None
    tensor_pct: float | None = None
    dram_pct: float | None = None
    mem_used_mib: float | None = None
    mem_total_mib: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSummary:
    """One device over the window, its memory peak and power maximum over the whole probe.

    Means are those of training: what stands for more of it counts for more.
    """

    device: str
    source: str
    """What measured utilisation: `nvml`, `process_cpu` or `busy_share`; sources are never compared."""
    window_s: float
    util_mean_pct: float | None
    util_se_pct: float | None = None
    """Standard error of the mean."""
    util_max_pct: float | None = None
    sm_mean_pct: float | None = None
    sm_se_pct: float | None = None
    """Standard error of the mean."""
    occupancy_mean_pct: float | None = None
    tensor_mean_pct: float | None = None
    dram_mean_pct: float | None = None
    mem_peak_mib: float | None = None
    mem_total_mib: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None
    energy_j: float | None = None
    """That the window's iterations take in training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """One probe, whole: either `failure` or a window with its summaries."""

    config: Config
    plan_digest: str
    """Of the plan that came to this; empty where none was made."""
    started_at: str
    """UTC, ISO 8601."""
    total_s: float
    start_up_s: float | None = None
    """From launch to the end of the first iteration."""
    window_s: float | None = None
    trained_s: float | None = None
    """Seconds that the window's iterations take in training: more than `window_s` where a session thinned them."""
    iterations: int = 0
    """Whole iterations inside the window, or, in a failure, those seen before it."""
    samples: int | None = None
    """Samples of all ranks at the last mark seen."""
    samples_per_s: float | None = None
    """Over the window, all ranks together."""
    samples_per_s_se: float | None = None
    """Standard error of that."""
    busy_spread_pct: float | None = None
    """Between the ranks' own busy shares, where they report them."""
    alloc_retries: int | None = None
    """Allocator retries of all ranks, where they report them."""
    devices: tuple[DeviceSummary, ...] = ()
    failure: Failure | None = None
    stopped: str | None = None
    """Why a live pruner stopped the probe, if one did."""
    host: Mapping[str, str] = field(default_factory=dict)
    """`name`, `system`, and which `devices` measured it, as `Device.identity` tells them."""
    warm: bool = False
    """Whether a session served the probe; False: the trainer's plain command."""
    ready_s: float | None = None
    """Of `total_s`, until the session was ready; 0 where it was open already, None where there was none."""

    @property
    def launched(self) -> bool:
        """Whether anything was started, which always takes time."""
        return self.total_s > 0

    @property
    def ok(self) -> bool:
        """Whether the probe ran its course and gave a number."""
        return self.failure is None and self.stopped is None


def unlaunched(config: Config, failure: Failure, plan_digest: str) -> ProbeResult:
    """Give the result of a probe that failed before anything was started."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return ProbeResult(config=config, plan_digest=plan_digest, started_at=now, total_s=0.0, failure=failure)
