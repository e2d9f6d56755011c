"""A study with everything that it works with (its file, trainer, devices and folder), and the job that works on it.

The job also says what the work is for, who watches it, and the time that it may take.
"""

import math
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.devices.found import THREADS, device_variables, links, memory_variables, nccl_variables, open_devices
from tuner.errors import StudyError
from tuner.probe import HOUR_S, Answer, Clock, Device, DeviceSource, ProbePlan, ProbeResult, Slot, Stop, check_metrics
from tuner.running.events import Watcher
from tuner.search.calibration import BatchToFit, of_batch, of_ladder, usual
from tuner.search.choosing import Strategy
from tuner.search.strategies import Siblings, in_order, recovery, searching
from tuner.store.database import Database
from tuner.store.opening import check_study
from tuner.study import (
    LADDER,
    REASON,
    BatchFit,
    Case,
    Config,
    DeviceKind,
    ProbeSpec,
    Space,
    StudySpec,
    described,
    every,
    first_size,
    load,
    narrowed,
)
from tuner.trainers.base import LadderEnd, Trainer
from tuner.trainers.registry import check_values, not_searched, open_trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Workbench:
    """Everything a study needs to probe; opened once, before any probe."""

    spec: StudySpec
    asked_for: str
    """The study that the user named; it differs from `spec.name` where the fallback study is used."""
    trainer: Trainer
    source: DeviceSource
    folder: Path
    """The folder of this study's database, probes and exports; absolute."""
    variables: Mapping[str, str]
    """The environment variables of the trainer's processes: visible cards, NCCL settings, the study's own variables."""
    rungs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Case → the rungs of its `auto` ladder, where the rungs are fixed."""
    batches: Mapping[str, BatchFit] = field(default_factory=dict)
    """Case → its batch size that is `auto`, where the size is known."""
    holds: Callable[[Config], bool] = every
    """Returns whether a config can be measured at all."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that every probe runs on."""
        return self.source.devices

    @property
    def device_names(self) -> tuple[str, ...]:
        """The name and the model of each device."""
        return tuple(f"{device.name} {device.model}" for device in self.devices)

    @property
    def commit(self) -> str | None:
        """The commit of the trainer's checkout, with `-dirty` where files differ; None without such a checkout."""
        root, git = self.spec.trainer.root, shutil.which("git")
        if not root or git is None:
            return None
        described = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        command = [git, "-C", str(Path(root).expanduser()), *described]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip() or None

    @property
    def kind(self) -> DeviceKind:
        """What the devices are."""
        return "gpu" if self.devices[0].is_gpu else "cpu"

    def spec_for(self, case: Case) -> StudySpec:
        """Return the study's settings for this case on these devices; a study of several objectives has no pruner."""
        spec = narrowed(self.spec, case.name, self.kind)
        if len(spec.objectives) == 1:
            return spec
        return spec.model_copy(update={"pruner": spec.pruner.model_copy(update={"name": "none"})})

    def space_for(self, case: Case) -> Space:
        """Return the space that is really searched.

        It has the configs that `holds` and the trainer's rules admit, without the parameters of `not_searched`, with a
        ladder that ends where `cut_for` says. An `auto` ladder has the rungs in `rungs` or, before they are fixed, its
        first doublings. Raises StudyError when no parameter is left, TrainerError for a value that the trainer cannot
        use.
        """
        spec = self.spec_for(case)
        space = spec.build_space()
        left_out = not_searched(spec, self.trainer)
        searched = space.restricted_to(set(space.names) - left_out.keys())
        searched = replace(searched, holds=self._keeps_rules if self.trainer.has_rules else self.holds)
        if not searched.parameters:
            whys = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            raise StudyError(
                f"nothing to search for {case.name}: every parameter is left out ({whys}); add one to `space`"
            )
        check_values(self.trainer, searched.parameters)
        if searched.auto_bounds and case.name in self.rungs:
            searched = searched.with_rungs(self.rungs[case.name])
        if searched.auto_batch and case.name in self.batches:
            searched = searched.with_batch(self.batches[case.name].size)
        cut = self.cut_for(case)
        searched = searched.up_to(cut.num_envs) if cut else searched
        if next(searched.configs(), None) is None:
            config = next(replace(searched, holds=every).configs())
            raise StudyError(f"nothing to search for {case.name}: no config can run; {config}: {self._refusal(config)}")
        return searched

    def _keeps_rules(self, config: Config) -> bool:
        return self.holds(config) and self._refusal(config) is None

    def _refusal(self, config: Config) -> str | None:
        return self.trainer.refusal(config, len(self.devices))

    def cut_for(self, case: Case) -> LadderEnd | None:
        """Return where the trainer cuts the case's ladder; None where the whole ladder of the study can run.

        Raises StudyError when even the smallest rung is too large.
        """
        end = self.trainer.ladder_end(case)
        rungs = [rung for rung in self.spec_for(case).build_space().values(LADDER) if not isinstance(rung, str)]
        if end is None or not rungs or max(rungs) <= end.num_envs:
            return None
        if min(rungs) > end.num_envs:
            raise StudyError(
                f"no rung is left for {case.name}: the smallest is {min(rungs)}, and {self.trainer.name} can run "
                f"{LADDER} up to {end.num_envs}: {end.reason}; add a smaller rung"
            )
        return end

    def calibrates(self, case: Case) -> bool:
        """Return whether the case has an `auto` ladder whose rungs this bench does not know."""
        return case.name not in self.rungs and self.space_for(case).auto_bounds is not None

    def with_rungs(self, case: Case, rungs: tuple[int, ...]) -> "Workbench":
        """Return the bench with the rungs of the case's `auto` ladder."""
        return replace(self, rungs={**self.rungs, case.name: rungs})

    def batch_to_fit(self, case: Case) -> BatchToFit | None:
        """Return the case's batch size that is `auto` and not worked out yet; None where there is none.

        The samples at hand are those that the study file names, or else those that the trainer knows.
        Raises TrainerError if the parameter does not count the samples of a batch.
        """
        space = self.space_for(case)
        if case.name in self.batches or not (parameter := space.auto_batch):
            return None
        named = self.spec_for(case).space[parameter].samples
        at_hand = [self.trainer.samples_at_hand(parameter, config) for config in (usual(space), *space.defaults())]
        known = [count for count in at_hand if count is not None]
        return BatchToFit(
            parameter=parameter,
            space=space,
            first=first_size(None if named else at_hand[0]),
            probed_samples=named or at_hand[0],
            samples=named or max(known, default=None),
            total_mib=min((one.mem_total_mib for one in self.devices if one.mem_total_mib), default=None),
        )

    def with_batch(self, case: Case, batch: BatchFit) -> "Workbench":
        """Return the bench with the case's batch size that is `auto`."""
        return replace(self, batches={**self.batches, case.name: batch})

    def slot(self, case: Case, folder: str | Path) -> Slot:
        """Return where a probe of a case runs, in a folder of the study's folder; `run_in` reserves its port."""
        limits = self.spec_for(case).probe
        return Slot(devices=self.devices, out_dir=self.folder / folder, limits=limits, variables=self.variables)

    def study_name(self, case: Case) -> str:
        """Return the name of the case's study in the database."""
        return f"{self.spec.name}/{case.name}"

    def identity_for(self, case: Case) -> dict[str, Any]:
        """Return the settings that make trials of this case comparable; a resumed study must have the same."""
        spec = self.spec_for(case)
        constraints = spec.build_constraints()
        return {
            "space": described(self.space_for(case)),
            "trainer": self.trainer.fingerprint(),
            **({"pruner": spec.pruner.model_dump(mode="json")} if spec.pruner.name != "none" else {}),
            "objective": spec.objective,
            **({"constraints": {one.metric: str(one) for one in constraints}} if constraints else {}),
            "iterations": [spec.probe.warmup_iterations, spec.probe.iterations],
            "source": self.source.label,
            "devices": list(self.device_names),
        }


def open_workbench(
    study: str,
    *,
    devices: str | None = None,
    runs: Path = Path("runs"),
    source_of: Callable[[StudySpec], DeviceSource] = lambda spec: open_devices(
        spec.devices, memory_mib=spec.environment.memory_mib
    ),
) -> Workbench:
    """Load a study and open its trainer and devices; `devices` overrides the study file's, see `devices_for`.

    Raises StudyError, TrainerError or DeviceError.
    """
    spec = load(study)
    check_metrics(spec)
    trainer = open_trainer(spec.trainer)
    source = source_of(spec.model_copy(update={"devices": spec.devices_for(devices)}))
    return Workbench(
        spec=spec,
        asked_for=study,
        trainer=trainer,
        source=source,
        folder=(runs / spec.name).resolve(),
        variables=launch_variables(spec, source),
    )


def launch_variables(
    spec: StudySpec, source: DeviceSource, inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment variables of the trainer's processes, for its devices, for NCCL and from the study.

    A number of threads that the person has exported stays; `inherited` is the environment of this process.
    """
    threads = (os.environ if inherited is None else inherited).get(THREADS)
    return {
        **device_variables(source.devices),
        **({THREADS: threads} if threads and not source.devices[0].is_gpu else {}),
        **nccl_variables(spec.environment.nccl_p2p, links(source.devices)),
        **memory_variables(spec.environment.memory_mib, source.devices),
        **spec.environment.variables,
    }


StrategyOf = Callable[[Space, StudySpec, int, Siblings], Strategy]
"""Makes a strategy from the space, the case's settings, the number of trials so far, and the case's siblings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """How configs are chosen for a case, and when its work is over."""

    strategy: StrategyOf
    limited: bool = True
    """Whether the work ends at a number of finished trials; otherwise it ends when the strategy has nothing left."""
    competing: bool = True
    """Whether configs compete: a clear loser ends early, and the best is measured again cold."""
    keeps_end: bool = True
    """Whether the study keeps the reason why the work ended. It keeps none if other work on the case follows."""
    ineligible: Callable[[ProbeResult], str | None] = lambda _: None
    """Returns why a config that ran for this purpose may not be the best; None where it may."""
    settled: Callable[[ProbeResult], Answer] | None = None
    """Returns whether a probe goes on; None where the objectives decide, with the study's limits and headroom."""
    limits: Callable[[ProbeSpec], ProbeSpec] = lambda limits: limits
    """Returns the limits of a probe, from those of the study."""
    trainer: Trainer | None = None
    """The trainer that plans the probes by its plain command; None for the study's."""


SEARCH = Purpose(strategy=searching)
"""Find the best config."""
RECOVER = Purpose(strategy=lambda space, *_: recovery(space), limited=False, keeps_end=False)
"""Find one config that runs, for a case that has had no success."""
CALIBRATE = Purpose(strategy=lambda space, *_: of_ladder(space), limited=False, competing=False, keeps_end=False)
"""Probe small rungs, from which the rungs of an `auto` ladder are made."""


def fit_batch(batch: BatchToFit) -> Purpose:
    """Probe small batch sizes, from which the batch size that is `auto` is worked out."""
    return Purpose(
        strategy=lambda *_: of_batch(batch),
        limited=False,
        competing=False,
        keeps_end=False,
        ineligible=lambda _: REASON,
    )


def record(configs: Sequence[Config], *, limited: bool = True) -> Purpose:
    """Measure all configs of a list fully."""
    return Purpose(strategy=lambda space, *_: in_order(configs, space.ladder), limited=limited, competing=False)


Probe = Callable[[ProbePlan, Stop], ProbeResult]
"""Probes once; the second argument may end the probe early."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """How often a watcher hears of the running probe."""

    every_s: float
    clock: Clock
    utilisation: Callable[[], Sequence[float | None]] = tuple
    """Returns how busy each device was since the last call; see `Prober.utilisation`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the work on a study needs: its bench, its database, a prober, a watcher, and what may stop it."""

    bench: Workbench
    database: Database
    probe: Probe
    interrupted: Callable[[], bool]
    """Returns whether the user wants to stop, or the time is over."""
    is_late: Callable[[], bool] = lambda: False
    """Returns whether the time is over: then a probe that has measured something gives its rough value."""
    watcher: Watcher = lambda _: None
    pulse: Pulse | None = None
    """How often the watcher hears of the running probe; None where it does not."""
    has_time: Callable[[float | None], bool] = lambda _: True
    """Returns whether a probe of so many expected seconds may begin; None stands for an unknown length."""
    purpose: Purpose = SEARCH
    trials: int | None = None
    """The number of finished trials per case; None for the study's own number."""
    open_session: Callable[[], str | None] = lambda: None
    """Returns the key of the open session; None where no session is open."""
    wait: Callable[[], None] | None = None
    """Waits a moment for the probes of other workers; None where the work ends while they still probe."""
    simulated: bool = False
    """Whether probes take no time, because a recorded table answers them."""
    recording: Mapping[str, Any] | None = None
    """How the case is recorded, where it is: the JSON of `Circumstances`, which the case's study keeps."""

    def target(self, spec: StudySpec) -> int | None:
        """Return the number of finished trials that ends the work on a case; None where no number does."""
        return (self.trials or spec.search.trials) if self.purpose.limited else None


def check(job: Job, case: Case) -> None:
    """Check whether a case can be searched and its study be resumed; this begins nothing.

    Raises StudyError with the case's name where no sampler can be made, and StoreError where the case's study in the
    database differs. The search itself makes a new sampler later, when the cases before it have shown their best.
    """
    check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    space, spec = job.bench.space_for(case), job.bench.spec_for(case)
    try:
        job.purpose.strategy(space, spec, 0, tuple)
    except StudyError as error:
        raise StudyError(f"case {case.name}: {error}") from error


class Budget:
    """The time that probes may take: `hours` from now on, or no limit where `hours` is None."""

    def __init__(self, clock: Clock, hours: float | None) -> None:
        self._clock = clock
        self.whole_s = math.inf if hours is None else hours * HOUR_S
        self._end_s = clock.now() + self.whole_s
        self.short: tuple[float, float] | None = None
        """The seconds that the next probe needed and the seconds that were left, where these ended the budget."""

    def over(self) -> bool:
        """Return whether the time is over, or the rest is too short for a probe."""
        return self.short is not None or self._clock.now() >= self._end_s

    def allows(self, probe_s: float | None) -> bool:
        """Return whether the rest is enough for a probe of so many seconds; if it is not, the budget is over."""
        left_s = self._end_s - self._clock.now()
        if probe_s is not None and probe_s > left_s:
            self.short = probe_s, left_s
        return self.short is None


def within(job: Job, budget: Budget) -> Job:
    """Return the job that ends when its budget is over, and that begins no probe that the budget is too short for.

    A simulated probe takes no time, so its length is ignored.
    """
    limited = replace(job, interrupted=lambda: job.interrupted() or budget.over(), is_late=budget.over)
    return limited if job.simulated else replace(limited, has_time=budget.allows)
