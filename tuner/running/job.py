"""A job: a study with everything that it works with, its purpose, and the time that it may take.

- The bench is the study with its trainer, devices and folder. A case is one training of the study.
- The purpose is why configs of a case are probed: to find the best, to find any that runs, to record all, or to work
  out values that are `auto`: the rungs of a ladder, which is the parameter that decides memory, or a batch size.
- A session is a started trainer that serves several probes. The plain command starts the trainer for a single probe.
"""

import math
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tuner import probe, study
from tuner.devices.found import describe_machine, launch_variables, open_devices
from tuner.errors import StudyError
from tuner.nodes.source import open_nodes
from tuner.probe import Device, DeviceSource, Slot, check_metrics, number_of
from tuner.records.case_record import FOLDER, OUT_OF_HOURS, STOPPED_EARLY
from tuner.running.events import Listener, StudyStarted
from tuner.search.choosing import Strategy
from tuner.search.strategies import Siblings, in_order, ladder_calibration, recovery, searching
from tuner.store.database import Database
from tuner.store.opening import check_study
from tuner.study import Case, Config, ProbeSpec, Space, StudySpec
from tuner.trainers.base import LadderEnd, Trainer
from tuner.trainers.registry import check_values, not_searched, open_trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Workbench:
    """A study with all that its probes need: trainer, devices, folder and variables; opened once, before any probe."""

    spec: study.StudySpec
    requested_study: str
    """The study as the user named it, by name or file; another than `spec` where the study's fallback is used."""
    trainer: Trainer
    source: DeviceSource
    folder: Path
    """The folder of this study's database, probes and exports; absolute."""
    variables: Mapping[str, str]
    """The environment variables of the trainer's processes: visible cards, NCCL settings, the study's own variables."""
    rungs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Case → the rungs of its `auto` ladder, where the rungs are fixed."""
    holds: Callable[[study.Config], bool] = study.allow_all
    """Returns whether a config can be measured at all; a replay can measure only those of its recorded table."""
    stored_as: str = ""
    """What follows the study's name in the database; a recording is stored beside the search of its study."""

    @property
    def stored_name(self) -> str:
        """The name of the study in the database."""
        return f"{self.spec.name}{self.stored_as}"

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
        describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        command = [git, "-C", str(Path(root).expanduser()), *describe]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip() or None

    @property
    def facts(self) -> dict[str, str]:
        """What may change a speed beside the config: the machine, the trainer's commit, and its script with its folder.

        The kernel is left out, because each probe notes it.
        """
        facts = {name: fact for name, fact in describe_machine(self.source).items() if name != "kernel"}
        if commit := self.commit:
            facts["trainer"] = commit
        if (file := self.trainer.script) and (script := self.script_digest):
            facts |= {"script": script, FOLDER: str(file.resolve().parent)}
        return facts

    @property
    def script_digest(self) -> str | None:
        """The name and a digest of the file whose code trains; None if it is unknown."""
        file = self.trainer.script
        return file and f"{file.name} {sha256(file.read_bytes()).hexdigest()[:12]}"

    @property
    def kind(self) -> study.DeviceKind:
        """What the devices are."""
        return "gpu" if self.devices[0].is_gpu else "cpu"

    def spec_for(self, case: study.Case) -> study.StudySpec:
        """Return the study's settings for this case on these devices."""
        spec = study.narrowed(self.spec, case.name, self.kind)
        if spec.slurm.nodes > 1:  # requests reach no session there, whatever an override says
            spec = spec.model_copy(update={"probe": spec.probe.model_copy(update={"warm": False})})
        if len(spec.objectives) > 1:  # a pruner compares a single value
            spec = spec.model_copy(update={"pruner": spec.pruner.model_copy(update={"name": "none"})})
        return spec

    def space_for(self, case: study.Case) -> study.Space:
        """Return the space that is searched for a case.

        1. It lacks the parameters of `not_searched`.
        2. It lacks the configs that the study's rules or the trainer refuse, and those that a replay cannot measure.
        3. An `auto` ladder has the rungs that were worked out, or its doublings before that.
        4. Its ladder ends at the largest rung that the trainer can run: a replay buffer may hold no more, for example.

        Raises StudyError when no parameter or no config is left, TrainerError for a value that the trainer cannot use.
        """
        spec = self.spec_for(case)
        space = spec.build_space()
        left_out = not_searched(spec, self.trainer)  # 1
        searched = replace(space.restricted_to(set(space.names) - left_out.keys()), holds=self.holds)
        rules = spec.build_rules()  # 2
        refusal = self._refusal_of(rules)  # config → why a rule or the trainer refuses it, or None
        if rules or self.trainer.has_rules:
            searched = study.Space(
                tuple(self._without_refused_values(spec, parameter) for parameter in searched.parameters),
                holds=lambda config: self.holds(config) and refusal(config) is None,
            )
        if not searched.parameters:
            reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            raise StudyError(
                f"nothing to search for {case.name}: every parameter is left out ({reasons}); add one to `space`"
            )
        check_values(self.trainer, searched.parameters)
        if searched.auto_bounds and case.name in self.rungs:  # 3
            searched = searched.with_rungs(self.rungs[case.name])
        if cut := self.ladder_end_for(case):  # 4
            searched = searched.up_to(cut.num_envs)
        if searched.example() is None:
            config = next(replace(searched, holds=study.allow_all).configs())  # any one, to quote why it is refused
            why = refusal(config) or "the recorded table does not have it"
            raise StudyError(f"nothing to search for {case.name}: no config can run; {config}: {why}")
        return searched

    def _refusal_of(self, rules: Sequence[study.Rule]) -> Callable[[study.Config], str | None]:
        """Return a function that says why a config cannot run, by a rule or the trainer; it returns None if it can."""
        ranks = len(self.devices)

        def refusal(config: study.Config) -> str | None:
            """Return why a config cannot run; None if it can."""
            values = {**config, study.RANKS: ranks}
            broken = next((rule for rule in rules if not rule.holds(values)), None)
            return f"the rule {broken.text!r} leaves it out" if broken else self.trainer.refusal(config, ranks)

        return refusal

    def _without_refused_values(self, spec: study.StudySpec, parameter: study.Parameter) -> study.Parameter:
        """Return a parameter with its possible values on these devices. Raises StudyError if no value is left."""
        name, ranks = parameter.name, len(self.devices)
        values = spec.possible(name, parameter.values, ranks)
        if not values:
            raise StudyError(f"the rules leave no value of {name} on {number_of(ranks, 'device')}")
        return replace(parameter, values=values, grown=spec.possible(name, parameter.grown, ranks))

    def ladder_end_for(self, case: study.Case) -> LadderEnd | None:
        """Return the largest rung that the trainer can run, with the reason; None if all rungs of the study can run.

        Raises StudyError when even the smallest rung is too large.
        """
        end = self.trainer.ladder_end(case)
        rungs = [rung for rung in self.spec_for(case).build_space().values(study.LADDER) if not isinstance(rung, str)]
        if end is None or not rungs or max(rungs) <= end.num_envs:
            return None
        if min(rungs) > end.num_envs:
            raise StudyError(
                f"no rung is left for {case.name}: the smallest is {min(rungs)}, and {self.trainer.name} can run "
                f"{study.LADDER} up to {end.num_envs}: {end.reason}; add a smaller rung"
            )
        return end

    def needs_calibration(self, case: study.Case) -> bool:
        """Return whether small probes must find the rungs of the `auto` ladder: this bench does not know them."""
        return case.name not in self.rungs and self.space_for(case).auto_bounds is not None

    def with_rungs(self, case: study.Case, rungs: tuple[int, ...]) -> "Workbench":
        """Return the bench with the rungs of the case's `auto` ladder."""
        return replace(self, rungs={**self.rungs, case.name: rungs})

    def started(self, cases: Sequence[study.Case]) -> StudyStarted:
        """Return the event with which the work on the study begins."""
        return StudyStarted(
            study=self.spec.name,
            trainer=self.trainer.name,
            cases=tuple(case.name for case in cases),
            devices=tuple(device.label for device in self.devices),
            objectives=self.spec.objectives,
        )

    def slot(self, case: study.Case, folder: str | Path, config: study.Config) -> Slot:
        """Return where a probe of a config runs: on which devices, and in `folder` below the study's folder.

        `run_in` reserves its port.
        """
        nodes = config.get(study.NODES)
        prices, models = self.spec.prices, [device.model for device in self.devices]
        return Slot(
            devices=self.devices,
            out_dir=self.folder / folder,
            limits=self.spec_for(case).probe,
            variables=self.variables,
            nodes=nodes if isinstance(nodes, int) else self.spec.slurm.nodes,
            price_per_hour=prices and study.price_of_all(prices, models, "`prices`"),
        )

    def study_name(self, case: study.Case) -> str:
        """Return the name of the case's study in the database."""
        return f"{self.stored_name}/{case.name}"

    def identity_for(self, case: study.Case) -> dict[str, Any]:
        """Return the settings that make trials of this case comparable; a resumed study must have the same.

        Rules, pruner, constraints and nodes stand in it only where the study has any.
        """
        spec = self.spec_for(case)
        optional = {
            "rules": list(spec.rules),
            "pruner": spec.pruner.model_dump(mode="json") if spec.pruner.name != "none" else None,
            "constraints": {bound.metric: str(bound) for bound in spec.build_constraints()},
            "nodes": spec.slurm.nodes if spec.slurm.nodes > 1 else None,
        }
        return {
            "space": study.described(self.space_for(case)),
            "trainer": self.trainer.fingerprint(),
            "variables": study.variables_without_keys(spec.environment.variables),
            "objective": spec.objective,
            "iterations": [spec.probe.warmup_iterations, spec.probe.iterations],
            "source": self.source.label,
            "devices": list(self.device_names),
            **{name: setting for name, setting in optional.items() if setting},
        }


def open_source(spec: study.StudySpec) -> DeviceSource:
    """Open and return the devices of a study: of this machine, or of all nodes of a trial. Raises DeviceError."""
    if spec.slurm.nodes > 1:
        return open_nodes(spec)
    return open_devices(spec.devices, memory_mib=spec.environment.memory_mib)


def open_workbench(
    requested_study: str,
    *,
    devices: str | None = None,
    runs: Path = Path("runs"),
    source_of: Callable[[study.StudySpec], DeviceSource] = open_source,
) -> Workbench:
    """Open a study with its trainer and devices, and return it. Raises StudyError, TrainerError or DeviceError.

    Args:
        requested_study: the name or the file of the study.
        devices: the devices to use in place of those in the study file, such as `cpu:2` or `0,1`; None for the latter.
        runs: the folder of the studies' folders.
        source_of: opens the devices.
    """
    spec = study.load(requested_study)
    check_metrics(spec)
    trainer, nodes = open_trainer(spec.trainer), spec.slurm.nodes
    if nodes > 1 and not trainer.spans_nodes:
        raise StudyError(
            f"slurm.nodes is {nodes}, and {trainer.name} starts ranks on one node only; name the nodes in a "
            "command: torchrun --nnodes {nodes} --nproc-per-node {local_ranks} --rdzv-backend c10d "
            "--rdzv-endpoint {head}:{port} train.py"
        )
    source = source_of(spec.model_copy(update={"devices": spec.devices_for(devices)}))
    if spec.prices:  # called for its StudyError, before anything is measured that would lack its price
        study.price_of_all(spec.prices, [device.model for device in source.devices], requested_study)
    return Workbench(
        spec=spec,
        requested_study=requested_study,
        trainer=trainer,
        source=source,
        folder=(runs / spec.name).resolve(),
        # on several nodes, each node adds the variables of its own devices
        variables=spec.environment.variables if nodes > 1 else launch_variables(spec, source),
    )


def chosen_cases(bench: Workbench, cases: Sequence[str] | None = None) -> list[study.Case]:
    """Return the requested cases, or else the study's cases. Raises StudyError for a glob that matches no case."""
    return study.select(bench.trainer.cases(), study.globs_of(cases or ()) or bench.spec.cases)


def cases_to_search(bench: Workbench, cases: Sequence[str] | None) -> list[study.Case]:
    """Return the chosen cases in the order of the search: as asked for, unless the study asks for all cases.

    Of all cases, those come first that help similar ones with their best config; see `search_order`.
    """
    chosen = chosen_cases(bench, cases)
    has_no_order = not cases and bench.spec.cases == ("*",)
    return study.search_order(chosen) if has_no_order else chosen


StrategyOf = Callable[[Space, StudySpec, int, Siblings], Strategy]
"""Makes what chooses configs from the space, the case's settings, the number of trials so far, and similar cases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """How configs are chosen for a case, and when its work is over."""

    strategy: StrategyOf
    has_target: bool = True
    """Whether the work ends at a number of finished trials; otherwise it ends when the strategy has nothing left."""
    configs_compete: bool = True
    """Whether configs compete: a clear loser ends early, and the plain command measures the best of sessions again."""
    stores_ending: bool = True
    """Whether the database keeps why the work ended. It does not where other work on the case follows."""
    ineligible: Callable[[probe.ProbeResult], str | None] = lambda _: None
    """Returns why a config that ran for this purpose may not be the best; None where it may."""
    next_answer: Callable[[probe.ProbeResult], probe.Answer] | None = None
    """Returns whether a probe goes on; None where the precision of the study's objectives decides."""
    limits: Callable[[ProbeSpec], ProbeSpec] = lambda limits: limits
    """Returns the limits of a probe, from those of the study."""
    trainer: Trainer | None = None
    """The trainer that plans the probes by its plain command; None for the study's."""


SEARCH = Purpose(strategy=searching)
"""Find the best config."""
RECOVER = Purpose(strategy=lambda space, *_: recovery(space), has_target=False, stores_ending=False)
"""Find one config that runs, for a case in which none has run yet."""
CALIBRATE = Purpose(
    strategy=lambda space, *_: ladder_calibration(space), has_target=False, configs_compete=False, stores_ending=False
)
"""Probe small rungs, from which the rungs of an `auto` ladder are made."""


def purpose_of_recording(configs: Sequence[Config], *, has_target: bool = True) -> Purpose:
    """Return the purpose of measuring all configs of a list fully, in this order; for `has_target` see `Purpose`."""
    return Purpose(
        strategy=lambda space, *_: in_order(configs, space.ladder), has_target=has_target, configs_compete=False
    )


Probe = Callable[[probe.ProbePlan, probe.Stop], probe.ProbeResult]
"""Probes once; the second argument may end the probe early."""


class Pulse(NamedTuple):
    """How often a listener hears of the running probe."""

    every_s: float
    """Seconds between two events."""
    clock: probe.Clock
    utilisation: Callable[[], Sequence[float | None]] = tuple
    """Returns how busy each device was since the last call, in percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the work on a study needs: its bench, its database, a prober, a listener, and what may stop it."""

    bench: Workbench
    database: Database
    probe: Probe
    interrupted: Callable[[], bool]
    """Returns whether the user wants to stop, or the time is over."""
    is_late: Callable[[], bool] = lambda: False
    """Returns whether the time is over: an interrupted probe that has measured long enough then gives a rough value."""
    listener: Listener = lambda _: None
    pulse: Pulse | None = None
    """How often the listener hears of the running probe; None where it does not."""
    has_time: Callable[[float | None], bool] = lambda _: True
    """Returns whether a probe of so many expected seconds may begin; None stands for an unknown length."""
    left_s: Callable[[], float] = lambda: math.inf
    """Returns the seconds that are left; infinite where the time has no limit."""
    purpose: Purpose = SEARCH
    trials: int | None = None
    """The number of finished trials per case; None for the number in the study file."""
    open_session: Callable[[], str | None] = lambda: None
    """Returns the key of the open session; None where no session is open."""
    wait: Callable[[], None] | None = None
    """Waits a moment for the probes of other workers; None where the work ends while they still probe."""
    simulated: bool = False
    """Whether probes take no time, because a recorded table answers them."""
    recording: Mapping[str, Any] | None = None
    """For a recording, the JSON of its `Circumstances`, which the case's study keeps; None for other work."""

    @property
    def early_end(self) -> str:
        """Why a search stops before its end, and how it goes on, as a sentence."""
        return OUT_OF_HOURS if self.is_late() else STOPPED_EARLY

    def target(self, spec: StudySpec) -> int | None:
        """Return the number of finished trials that ends the work on a case; None where no number does."""
        return (self.trials or spec.search.trials) if self.purpose.has_target else None


def check_case(job: Job, case: Case) -> None:
    """Check before any probe that a case can be searched, and that its study can be resumed.

    Raises StudyError with the case's name if no strategy can be made for it, and StoreError if the case's study in the
    database was begun with other settings. The strategy is dropped: the search makes another when it comes to the case,
    because it then learns from the cases before.
    """
    check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    space, spec = job.bench.space_for(case), job.bench.spec_for(case)
    try:
        job.purpose.strategy(space, spec, 0, tuple)  # no trials so far, and `tuple` returns no similar cases
    except StudyError as error:
        raise StudyError(f"case {case.name}: {error}") from error


class Shortage(NamedTuple):
    """Why a budget is over before its time is: the next probe would take longer than what is left."""

    probe_s: float
    """The seconds that the next probe needed."""
    left_s: float
    """The seconds that were left."""


class Budget:
    """The time that probes may take: `hours` from now on, or no limit where `hours` is None."""

    def __init__(self, clock: probe.Clock, hours: float | None) -> None:
        self._clock = clock
        self.total_s = math.inf if hours is None else hours * probe.HOUR_S
        """The seconds of the whole budget."""
        self._end_s = clock.now() + self.total_s
        self._has_begun_probe = False
        self.shortage: Shortage | None = None
        """How long a probe was that did not fit into the time left; None while each has fitted."""

    def left_s(self) -> float:
        """Return the seconds that are left; infinite where there is no limit."""
        return self._end_s - self._clock.now()

    def is_over(self) -> bool:
        """Return whether the time is over, or a probe was refused because it needed more than the time left."""
        return self.shortage is not None or self.left_s() <= 0.0

    def has_time_for(self, probe_s: float | None) -> bool:
        """Return whether a probe of so many seconds may begin; one of unknown length (None) may.

        If it does not fit into the time that is left, the budget is over. But the first probe may take the whole
        budget, although the preparation has taken some of it. Otherwise a study that is resumed with the same budget
        would never go on.
        """
        left_s = self.left_s()  # once, because time goes on
        enough_s = left_s if self._has_begun_probe else self.total_s
        if probe_s is not None and probe_s > enough_s:
            self.shortage = Shortage(probe_s=probe_s, left_s=left_s)
        return self.shortage is None

    def begin(self) -> None:
        """Note that the first probe begins: from now on, a probe may take only the time that is left."""
        self._has_begun_probe = True


def within_budget(job: Job, budget: Budget) -> Job:
    """Return the job that ends when its budget is over, and that begins no probe for which the budget is too short.

    A simulated probe takes no time, so its length is ignored.
    """

    def probe_within_budget(plan: probe.ProbePlan, stop: probe.Stop) -> probe.ProbeResult:
        """Return the result of a probe: its failure is `OUT_OF_TIME` where the end of the budget has stopped it."""
        budget.begin()
        result = job.probe(plan, stop)
        is_cut = result.failure == probe.STOPPED and budget.is_over() and not job.interrupted()
        return replace(result, failure=probe.OUT_OF_TIME) if is_cut else result

    limited = replace(job, interrupted=lambda: job.interrupted() or budget.is_over(), is_late=budget.is_over)
    if job.simulated:
        return limited
    return replace(limited, probe=probe_within_budget, has_time=budget.has_time_for, left_s=budget.left_s)


@contextmanager
def open_job(
    bench: Workbench,
    url: str,
    prober: probe.Prober,
    *,
    listener: Listener = lambda _: None,
    interrupted: Callable[[], bool] = lambda: False,
    every_s: float | None = None,
) -> Iterator[Job]:
    """Yield a job that works on the database at `url`; close prober and database afterwards.

    `listener` gets the events, and `interrupted` returns whether the user wants to stop. `every_s`: how many seconds
    apart the listener hears of a running probe; None where it does not.
    Raises StoreError if the database cannot be used.
    """
    pulse = None
    if every_s is not None:
        pulse = Pulse(every_s=every_s, clock=probe.MonotonicClock(), utilisation=prober.utilisation)
    with closing(prober), closing(Database(url)) as database:
        yield Job(
            bench=bench,
            database=database,
            probe=prober,
            interrupted=interrupted,
            listener=listener,
            pulse=pulse,
            open_session=lambda: prober.open_session,
        )
