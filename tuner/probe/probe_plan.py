"""The plan of one probe, decided before anything starts, and the interfaces of what the probe works with.

In a session, one started trainer serves several probes; without, each probe starts the trainer's plain command.
"""

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from tuner.count import counting
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.study import Config, ProbeSpec, escaped, expanded, literal_keys, looked_up

if TYPE_CHECKING:
    from tuner.probe.count_files import MergedCounts

NVIDIA = "nvidia"
"""A maker of cards."""
AMD = "amd"
"""A maker of cards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device as the trainer names it (`cuda:0`, `cpu:1`) and as the system knows it."""

    name: str
    model: str
    uuid: str | None = None
    mem_total_mib: float | None = None
    maker: str = NVIDIA
    """The maker of a card, whose driver knows it."""

    @property
    def label(self) -> str:
        """The name and, for a card, the beginning of its uuid as `nvidia-smi -L` lists it.

        The name alone does not identify a card: a trainer numbers the cards that it sees `cuda:0`, `cuda:1`, ….
        """
        return f"{self.name} ({self.identity})" if self.uuid else self.name

    @property
    def identity(self) -> str:
        """The beginning of a card's uuid, which no other card has; for other devices the model."""
        return self.uuid[:12] if self.uuid else self.model

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU rather than a share of the CPU."""
        return self.name.startswith("cuda")


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Where a probe runs: everything that a trainer needs besides the case and the config."""

    devices: tuple[Device, ...]
    out_dir: Path
    """The folder of this probe alone, empty or not made yet; absolute."""
    port: int = 0
    """A free TCP port at which the ranks meet; 0 before one is reserved."""
    limits: ProbeSpec
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that the study sets and that the topology of the devices needs."""
    to_train: bool = False
    """Whether the command is for training by hand. Such a command has none of a probe's limits, such as its end."""

    price_per_hour: float | None = None
    """The price of all devices for an hour; None where the study has no prices."""
    seed: int | None = None
    """The seed of the trainer's random numbers; None for the seed that the trainer takes by itself."""
    nodes: int = 1
    """The machines that the probe runs on, each with as many of the devices."""
    part: str = ""
    """The folder below `out_dir` for the log files of one of several nodes; empty for the whole probe."""

    @property
    def local_devices(self) -> tuple[Device, ...]:
        """The devices of one node."""
        return self.devices[: len(self.devices) // self.nodes]

    @property
    def console(self) -> Path:
        """The file that keeps the trainer's output."""
        return self.out_dir / self.part / "console.log"

    @property
    def progress(self) -> Path:
        """The JSON-lines file that the variable TUNER_PROGRESS names."""
        return self.out_dir / self.part / "progress.jsonl"

    @property
    def counts(self) -> Path:
        """The folder into which the trainer's processes write their counts."""
        return self.out_dir / self.part / "counts"


HEAD = "TUNER_HEAD"
"""The environment variable with the name of the host where the ranks of several nodes meet."""
NODE_RANK = "SLURM_NODEID"
"""The environment variable with the number of a node among those of a trial."""
FULL_ERRORS = {"HYDRA_FULL_ERROR": "1"}
"""Variables of each probe, unless the plan or the shell sets them: without this one, Hydra ends with a hint at it, and
without the exception."""
THREADS = "OMP_NUM_THREADS"
"""The environment variable with the number of threads of a process."""

SCORE_GROUP = "return"
"""The group of a pattern that holds a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePatterns:
    """How progress is recognised in a trainer's printed lines, and counted.

    A pattern may have the named groups `iteration`, `samples`, `rank` and `epoch`. The patterns are tried in turn, and
    a mark is complete when the last pattern has matched. If no pattern has the group `iteration`, each completed match
    counts as one iteration.

    The group `return` says how well the trained agent does, see `Score`. A pattern with this group alone completes no
    mark.
    """

    patterns: tuple[str, ...] = ()
    samples_per_iteration: float | None = None
    """The samples that all ranks together collect in an iteration. It counts only where the trainer counts none."""
    queue: int = 0
    """The batches that the loader of a rank holds ready: its workers times the batches that each of them prefetches."""


def search_path(programs: Path | None) -> str:
    """Return PATH as a trainer gets it: first `programs`, the folder of its Python, if that is known."""
    inherited = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([str(programs), inherited]) if programs else inherited


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbePlan:
    """One probe as plain values; a user can run the probe by hand from them alone.

    In a cold plan, `argv` runs this probe and ends. In a warm plan, `argv` starts a session, and `request` is this
    probe's run in the session.
    """

    config: Config
    argv: tuple[str, ...]
    """The words of the command line.

    Here and in `env`, a reference such as `${WANDB_API_KEY}` stays one until the start, so that no key is printed or
    stored. A literal that may look like one has to be `escaped`.
    """
    cwd: Path
    env: Mapping[str, str]
    """Environment variables, set in addition to those of the tuner itself."""
    programs: Path | None = None
    """The folder of the trainer's Python, which comes first in PATH: programs such as `torchrun` are found there."""
    files: Mapping[Path, str]
    """Text files to write first, absolute path → content."""
    slot: Slot
    progress: LinePatterns = LinePatterns()
    is_counted: bool = False
    """Whether steps and samples are counted inside the trainer's processes."""
    protects_files: bool = False
    """Whether the files in the folders of the command are as they were when the probe has ended: see `own_files`."""
    flops_per_sample: float | None = None
    """The floating-point operations of a training step for each of its samples; None where the study does not say."""
    expected: tuple[Path, ...] = ()
    """Files that must exist after a run that ended by itself."""
    session_key: str
    """Warm plans with equal keys can share a session."""
    request: Mapping[str, Any] | None = None
    """The request that a session gets, without its files; None where `argv` is a command for this probe alone."""
    base_agent: str = ""
    """The agent file as the trainer ships it; appears in the tables."""
    agent_config: str = ""
    """The agent file that this probe uses; appears in the tables."""

    def command(self, inherited: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words of the command to start: `argv` with its references looked up."""
        return tuple(expanded(word, inherited) for word in self.argv)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return all variables of the process to start: the inherited ones and `env` with its references looked up.

        Where the trainer is counted inside, the variables that begin the counting are among them, and so are those of
        `FULL_ERRORS`.
        """
        variables_of_plan = {name: expanded(text, inherited) for name, text in self.env.items()}
        variables = {**FULL_ERRORS, **inherited, **variables_of_plan}
        return variables | counting(self.slot.counts, variables) if self.is_counted else variables

    def hidden(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the values that no log may hold: name → value, from the variables of this process, `inherited`.

        These are the variables that references in `argv` and `env` look up, and the literals there that are keys.
        """
        references = looked_up((*self.argv, *self.env.values()), inherited)
        return {**literal_keys(self.argv, self.env), **references}

    @property
    def digest(self) -> str:
        """Return 12 hexadecimal digits that are equal for equal plans.

        The folder of the probe and its port do not count, because each probe has others.
        """
        files = sorted((str(path), text) for path, text in self.files.items())
        parts = [self.argv, sorted(self.env.items()), files]
        if self.request is not None:
            parts.append(self.request)
        # each probe has another folder, with JSON's escapes here, and perhaps those of a command line
        out_dir = json.dumps(str(self.slot.out_dir))[1:-1]
        text = json.dumps(parts).replace(out_dir, "OUT").replace(escaped(out_dir), "OUT")
        text = re.sub(rf"(?<!\d){self.slot.port}(?!\d)", "PORT", text)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class Next(Enum):
    """What a probe does next."""

    GO = auto()
    """It goes on."""
    MORE = auto()
    """It goes on beyond its usual iterations, as long as it has time: the value is far from known."""
    LAST_ITERATION = auto()
    """It needs no iteration after the one that runs now, so a session need not start another."""
    ENOUGH = auto()
    """It ends and its value counts, because the value is known well enough."""
    PRUNED = auto()
    """It ends, because it cannot win."""
    OTHER_TRAINING = auto()
    """It ends and its value does not count: the first steps show another training than the person's own."""
    INTERRUPTED = auto()
    """It ends and its value does not count: the user wants to stop, or the time is over."""


class Answer(NamedTuple):
    """The answer of `Stop` to a probe: what it does next."""

    next: Next
    reason: str | None = None
    """Why the probe is given up; None if it is not."""
    next_result_s: float = math.inf
    """The seconds after the first mark from which on the next iteration gives a result, however new the last one is."""


Stop = Callable[[ProbeResult | None], Answer]
"""A probe calls this function with the result so far, and with None at every poll that has no new result.

There is a result after each iteration of the first minute of training, and later each time that the training has become
2 % longer. A result takes longer the more a probe has measured, so one after each iteration would cost too much.
"""


def ending_after_last(stop: Stop) -> Stop:
    """Return a function like `stop` that ends the probe once the iteration that `stop` called the last has ended."""
    runs_last_iteration = False

    def stop_after_last(so_far: ProbeResult | None) -> Answer:
        """Return the answer of `stop`, or `ENOUGH` after the last iteration where `stop` now wants to go on.

        A session may have started no further iteration, so the probe would wait for one in vain. If `stop` ends the
        probe for another reason, such as `PRUNED`, that answer stays.
        """
        nonlocal runs_last_iteration
        answer = stop(so_far)
        if so_far is None:  # no iteration has ended since the last call
            return answer
        if runs_last_iteration and answer.next in {Next.GO, Next.MORE, Next.LAST_ITERATION}:
            return Answer(Next.ENOUGH)
        runs_last_iteration = answer.next is Next.LAST_ITERATION
        return answer

    return stop_after_last


class DeviceSource(Protocol):
    """Reads a fixed list of devices."""

    @property
    def label(self) -> str:
        """The name of what measures utilisation: `nvml`, `process_cpu`, …."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that are sampled, in rank order."""
        ...

    def attach(self, pid: int) -> None:
        """Set the root process of the probe that starts now; sources that measure whole cards ignore it."""

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        """Return a sample of every device, taken now; `t_s` becomes the time of the samples.

        Raises DeviceError when a device cannot be sampled now, DeviceLostError when it cannot be sampled any more.
        """
        ...


class Clock(Protocol):
    """Monotonic time in seconds; the real clock has the time base of `time.monotonic`."""

    def now(self) -> float:
        """Return the seconds since an arbitrary point."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLine:
    """One line that the trainer wrote."""

    t_s: float
    """The time on the probe's clock when the line was read."""
    text: str
    stream: Literal["console", "progress"] = "console"


class RunningTrainer(Protocol):
    """A started trainer."""

    pid: int
    """The root process."""

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the lines since the last call; wait up to `timeout_s` seconds for the first line."""
        ...

    def exit_code(self) -> int | None:
        """Return the root process's exit code, negative for a signal; None while the process runs."""
        ...

    def last_iteration(self, iteration: int) -> None:
        """Announce that no iteration after `iteration` is measured, so that the trainer need not begin another."""

    def release(self) -> int:
        """Wait until the run of a healthy probe has ended, and return the exit code, 0 if its session stays open.

        Harmless to repeat.
        """
        ...

    def end(self) -> int:
        """End every process of the probe (TERM, then KILL), wait for that, and return the exit code.

        The wait for a process that cannot be killed ends after some seconds. Harmless to repeat.
        """
        ...


Launch = Callable[[ProbePlan], RunningTrainer]
"""Writes a plan's files and starts its command, or hands the plan to an open session.

Raises TrainerError when the command cannot start, OutputError when a file cannot be written.
"""


class StartedProcess(RunningTrainer, Protocol):
    """A started trainer that is a process, on this machine or on another. It serves one probe."""

    counts: "MergedCounts"
    """What was counted inside its processes, as far as `lines` has read it."""

    def last_iteration(self, iteration: int) -> None:
        """Do nothing: a plain command takes no requests, and the probe ends it soon after this iteration."""

    def release(self) -> int:
        """Return the exit code, after every process has ended."""
        return self.end()

    @property
    def still_running(self) -> str | None:
        """The processes that still run after `end`; None when there are none."""
        ...


StartProcess = Callable[[ProbePlan], StartedProcess]
"""Starts a plan's command as a process, here or on another machine. Raises the errors of `Launch`."""


class Prober(Protocol):
    """Probes configs: on real devices, or by looking up recorded results."""

    @property
    def open_session(self) -> str | None:
        """The key of the open session; None where no session is open."""
        ...

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Return the result of one probe; `stop` may end the probe early.

        Raises OutputError or TrainerError when the tuner's own side fails.
        """
        ...

    def utilisation(self) -> Sequence[float | None]:
        """Return how busy each device was since the last call, in percent; empty if nothing was measured.

        This is for people who watch a probe. The result of a probe does not depend on it.
        """
        ...

    def close(self) -> None:
        """End the open session, if there is one, and wait for it. Harmless to repeat."""


class Recorder(Protocol):
    """Records devices while a probe runs."""

    source: DeviceSource
    """The devices that are sampled."""

    def start(self, pid: int, origin_s: float) -> None:
        """Begin a new recording whose time 0 is `origin_s` on the clock; `pid` is the probe's root process."""

    def samples(self) -> list[DeviceSample]:
        """Return the samples so far; failed samples are left out."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the devices cannot be sampled any more; None while they can."""
        ...

    def stop(self) -> None:
        """End the recording."""


class MonotonicClock:
    """The system's monotonic clock. Trainers use the same clock for the times in their reports."""

    def now(self) -> float:
        """Return the seconds since an arbitrary point in time. The value never decreases."""
        return time.monotonic()
