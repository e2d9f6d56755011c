"""The results of a probe: kinds of failure, progress, device samples and their summaries, and the whole result.

`failures.toml` has a table for each kind of failure: who is at fault, and how the output shows it. The window of a
probe is the iterations that it evaluates. In a session, one started trainer serves several probes.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tuner.count import TrainingCounts
from tuner.probe.quantities import of_known
from tuner.study import Config

BUSY_PCT = 10.0
"""From this share of the processors on, in percent, a note of a probe on the CPU says how much others used (chosen)."""


class Blame(StrEnum):
    """Who is at fault when a probe gives no number; what the study does follows from it."""

    CONFIG = "config"
    """The search learns to avoid the config."""
    HOST = "host"
    """The config is tried a second time."""
    SETUP = "setup"
    """The case stops, and a message says what to do."""
    UNKNOWN = "unknown"
    """Three such failures in a row stop the case."""
    NOBODY = "nobody"
    """Something outside stopped the probe; the config is tried again."""


KILLED = "killed"
"""The name of the rule that a killed rank matches."""
SESSION = "session"
"""The name of the rule that lines about a broken session protocol match. It comes last: other rules tell the cause.

In a session, a started trainer serves one probe after another: see `tuner.progress` for the protocol.
"""
BREACH = "[tuner] session: "
"""A line about a broken session protocol begins with this text."""
_TABLES = tomllib.loads(Path(__file__).with_name("failures.toml").read_text(encoding="utf-8"))


class FailureKind(StrEnum):
    """Why a probe gave no number, in the order of the tables. The values are the words in databases and tables."""

    blame: Blame
    rules: Mapping[str, re.Pattern[str]]
    """The lines that show this kind of failure: name → pattern; empty where something else shows it."""
    remedy: str | None
    """What the user does about it; None where another config may fare better."""
    says_nothing: bool
    """Whether the failure says nothing about the config: the config is tried again until it has been measured."""
    invalidity: str
    """The word of T4, the result schema of Kernel Tuner and others, for it in recorded tables, such as `timeout`."""

    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    PORT_IN_USE = "port_in_use"
    GPU_LOST = "gpu_lost"
    GPU_BUSY = "gpu_busy"
    MISSING_DEPENDENCY = "missing_dependency"
    MISSING_ASSET = "missing_asset"
    INVALID_COMMAND = "invalid_command"
    INVALID_CONFIG = "invalid_config"
    OTHER_TRAINING = "other_training"
    CRASH = "crash"
    NCCL = "nccl"
    NO_PROGRESS = "no_progress"
    NO_READING = "no_reading"
    IDLE_DEVICE = "idle_device"
    HANG = "hang"
    TOO_SLOW = "too_slow"
    INTERRUPTED = "interrupted"

    def __new__(cls, word: str) -> "FailureKind":
        """Make the member with this word, and give it the contents of its table in `failures.toml`."""
        table = _TABLES[word]
        member = str.__new__(cls, word)
        member._value_ = word
        member.blame = Blame(table["blame"])
        member.rules = {name: re.compile("|".join(patterns)) for name, patterns in table.get("rules", {}).items()}
        member.remedy = table.get("remedy")
        member.says_nothing = table.get("says_nothing", False)
        member.invalidity = table.get("invalidity", "runtime")
        return member


RULES = [(kind, *rule) for kind in FailureKind for rule in kind.rules.items()]
"""The kind, name and pattern of every rule. Of several rules that match, the first one counts."""
RULES.sort(key=lambda rule: rule[1] == SESSION)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a probe gave no number."""

    kind: FailureKind
    rule: str
    """The name of the rule that found it."""
    detail: str
    """The line or measurement that shows it."""
    rank: int | None = None
    """The rank that failed; None if it is unknown."""
    overshoot_mib: float | None = None
    """The memory that was requested beyond the free memory; None if no message names sizes."""


STOPPED = Failure(kind=FailureKind.INTERRUPTED, rule="request", detail="stopped on request")
"""The failure of a probe that was stopped before it measured anything, as by Ctrl-C."""
OUT_OF_TIME = replace(STOPPED, detail="the time of the search was over before enough was measured")
"""The failure of a probe that the end of `--hours` stopped."""


def other_training(why: str) -> Failure:
    """Return the failure of a config that trains something else than the person's own command."""
    return Failure(kind=FailureKind.OTHER_TRAINING, rule="signature", detail=f"it changes what is learnt: {why}")


def unreadable(why: str) -> Failure:
    """Return the failure of a probe whose devices cannot be read."""
    return Failure(kind=FailureKind.GPU_LOST, rule="unreadable", detail=why)


class Thin(NamedTuple):
    """The last part of an iteration, of which a session does only a share, because all of the work is alike."""

    from_s: float
    """When this part began, on the clock of `Progress.t_s`."""
    trained_per_s: float
    """How many seconds of training each second of this part stands for; more than 1."""


class Pause(NamedTuple):
    """Something beside training within an iteration, as the output says; it counts only if the iteration was long."""

    what: str
    """Such as `an epoch's end`."""
    every: float | None = None
    """The iterations from one such pause to the next; None if they are unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The end of one iteration, as the trainer reports it."""

    iteration: int
    t_s: float
    """Seconds since the probe started."""
    rank: int | None = None
    """The reporting rank; None when one report speaks for all ranks."""
    samples: int | None = None
    """Samples collected so far: by `rank` if it is set, else by all ranks together."""
    busy_s: float | None = None
    """The seconds so far in which the rank's device did tensor work."""
    alloc_retries: int | None = None
    """How often so far the rank's allocator freed its cache and tried again."""
    thin: Thin | None = None
    """The part of the iteration that was not run in full."""
    pause: Pause | None = None
    """What else the trainer did in the iteration, as its output says; None if nothing."""
    begins_anew: bool = False
    """Whether no earlier report counts any more, because counting inside the training has begun."""


class Score(NamedTuple):
    """How well the trained agent or model does at a moment, such as its mean return; greater is better."""

    t_s: float
    """Seconds since the probe started."""
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSample:
    """One measurement of one device."""

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
    mem_peak_mib: float | None = None
    """The largest memory in use so far; None if the system does not report it."""
    mem_total_mib: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """The reading of the device's own counter of energy; only differences mean something."""
    others_pct: float | None = None
    """The share of the machine's processors that other processes used; known only if the CPU is measured."""
    delayed_pct: float | None = None
    """The share of the time in which others made the rank's longest waiting thread wait for a processor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSummary:
    """One device over the window; its peak memory and its maximum power are those of the whole probe.

    Means are weighted by the seconds of training that each second of the window stands for.
    """

    device: str
    source: str
    """The source of utilisation: `nvml`, `amdsmi`, `process_cpu` or `busy_share`; sources are never compared."""
    util_mean_pct: float | None = None
    util_se_pct: float | None = None
    """Standard error of the mean."""
    util_edge_pct: float = 0.0
    """The part of this error that more iterations of the same kind do not reduce."""
    util_max_pct: float | None = None
    sm_mean_pct: float | None = None
    sm_se_pct: float | None = None
    """Standard error of the mean."""
    sm_edge_pct: float = 0.0
    """The part of this error that more iterations of the same kind do not reduce."""
    occupancy_mean_pct: float | None = None
    tensor_mean_pct: float | None = None
    dram_mean_pct: float | None = None
    mem_peak_mib: float | None = None
    mem_total_mib: float | None = None
    mem_rises: tuple[tuple[float, float], ...] = ()
    """When the memory in use rose above its largest value so far: seconds since the first mark, and the MiB.

    The first pair is of the first mark, and the last pair of the end. See `summaries.memory_rises`.
    """
    mem_floors: tuple[float, ...] = ()
    """The least memory in use in each of equally long parts of the time since the first mark, in MiB."""
    mem_tops: tuple[float, ...] = ()
    """The largest memory that was read in each of these parts; a peak between two readings is missed."""
    power_mean_w: float | None = None
    power_max_w: float | None = None
    others_mean_pct: float | None = None
    """The mean share of the machine's processors that other processes used; known only if the CPU is measured."""
    delayed_mean_pct: float | None = None
    """The mean share of the time in which the rank waited for a processor that others used."""
    energy_j: float | None = None
    """The energy that the window's iterations take in training."""
    energy_se_j: float | None = None
    """The standard error of `energy_j`."""
    energy_source: str | None = None
    """The source of `energy_j`.

    - `counter`: the card's own counter of energy, which misses nothing between two readings.
    - `rapl`: the processors' counter (powercap in the kernel), divided evenly among the ranks; it counts others, too.
    - `sampled_power`: power that was sampled, where there is no counter.
    """

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU rather than a share of the CPU."""
        return self.device.startswith("cuda")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the speed for good."""

    iteration: int
    """The iteration at which it came."""
    seconds: float
    """The time from the first mark to the change."""
    times: float
    """How many times as fast the later iterations are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeNumbers:
    """The numbers of a probe, in its result and in its record; None where a number is unknown."""

    start_up_s: float | None = None
    """The seconds from the launch to the end of the first iteration."""
    window_s: float | None = None
    trained_s: float | None = None
    """The seconds that the window's iterations take in training: more than `window_s` if a session thins them."""
    iteration: int | None = None
    """The trainer's number of the last iteration."""
    change: Change | None = None
    """The change of speed at which the window begins; None if it begins for another reason."""
    samples: int | None = None
    """The samples of all ranks at the last mark."""
    samples_per_s: float | None = None
    """The samples per second of all ranks together, over the window."""
    mfu_pct: float | None = None
    """The share of the cards' bf16 peak that the training uses; None if the operations of a sample are unknown."""
    samples_per_s_se: float | None = None
    """The standard error of `samples_per_s`."""
    iterations_per_s: float | None = None
    """The iterations per second of training, over the window, as the trainer numbers them."""
    iterations_per_s_se: float | None = None
    """The standard error of `iterations_per_s`."""
    samples_per_joule: float | None = None
    """The samples of all ranks for a joule of all devices."""
    samples_per_joule_se: float | None = None
    """The standard error of `samples_per_joule`."""
    samples_per_price: float | None = None
    """The samples for one unit of the currency; None if the study has no prices."""
    samples_per_price_se: float | None = None
    """The standard error of `samples_per_price`."""
    step_share: float | None = None
    """The share of a whole training's time that its steps take beside pauses such as evaluations.

    Speeds are without pauses. None if the window shows no pause, or not how often one comes.
    """
    busy_spread_pct: float | None = None
    """The spread between the busy shares that the ranks report."""
    alloc_retries: int | None = None
    """The allocator retries of all ranks; None if nothing reports them."""
    devices: tuple[DeviceSummary, ...] = ()
    failure: Failure | None = None
    stopped: str | None = None
    """Why a pruner stopped the probe; None if no pruner did."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know, such as a change of level within the window."""
    host: Mapping[str, str] = field(default_factory=dict)
    """The `name` and `system` of the machine, and the `devices` that measured, as `Device.identity` names them."""
    training: TrainingCounts | None = None
    """The counts from inside the training; None without any."""
    ready_s: float | None = None
    """The part of `total_s` until the session was ready: 0 for an open session, None without a session."""

    @property
    def others_pct(self) -> float | None:
        """The share of the processors that other programs used meanwhile, in percent; None if unknown."""
        shares = (device.others_mean_pct for device in self.devices)
        # the times of a virtual machine may add up to more than all processors, or to less than the trainer's own
        return of_known(lambda known: min(100.0, max(0.0, *known)), shares)

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs used so much of the processors that the probe has a note about it."""
        return (self.others_pct or 0.0) >= BUSY_PCT

    @property
    def facts(self) -> Mapping[str, str]:
        """The known facts that may change a speed beside the config: about the machine, the script and torch."""
        return {**self.host, **({"torch": self.training.torch} if self.training and self.training.torch else {})}

    @property
    def numbered_iterations(self) -> float | None:
        """The window's iterations by the numbers of the trainer, which may report several at once; None if unknown."""
        if self.iterations_per_s is None or self.trained_s is None:
            return None
        return self.iterations_per_s * self.trained_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult(ProbeNumbers):
    """One whole probe: either a `failure`, or a window with its summaries."""

    config: Config
    plan_digest: str
    """The digest of the plan that was probed; empty if there was no plan."""
    started_at: str
    """UTC, ISO 8601."""
    total_s: float
    iterations: int = 0
    """The whole iterations inside the window, by marks; of a failure, the iterations before it."""
    level_changed: bool = False
    """Whether the iterations get longer or shorter within the window, so that their mean is not yet the training's."""
    warm: bool = False
    """Whether a session served the probe; otherwise the trainer's plain command did."""
    score: Score | None = None
    """The newest score that the trainer has printed or reported; after so short a training it is not kept."""

    @property
    def launched(self) -> bool:
        """Whether the probe started anything, which always takes time."""
        return self.total_s > 0

    @property
    def ok(self) -> bool:
        """Whether the probe ran its course and gave a number."""
        return self.failure is None and self.stopped is None


def unlaunched(config: Config, failure: Failure, plan_digest: str) -> ProbeResult:
    """Return the result of a probe that failed before it started anything."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return ProbeResult(config=config, plan_digest=plan_digest, started_at=now, total_s=0.0, failure=failure)
