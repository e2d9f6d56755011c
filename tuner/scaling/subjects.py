"""What `tuner scale` can measure: the built-in workloads, seen as a trainer of cases, and a case of a study."""

import sys
from collections.abc import Callable
from dataclasses import replace

from tuner.errors import StudyError, TrainerError
from tuner.export import in_words
from tuner.probe import ProbePlan, Slot
from tuner.running.workbench import Workbench
from tuner.scaling.campaign import Scaled, SubjectPlan
from tuner.scaling.results import Subject
from tuner.scaling.workloads.catalogue import CATALOGUE, EXCHANGE, MICRO_BATCHES, SIZE, Entry, run_settings
from tuner.study import LADDER, Case, Config, ProbeSpec, TrainerSpec
from tuner.trainers.base import Dependencies, Trainer, device_names, interpreter, iterations, with_torch
from tuner.trainers.reference.reference_trainer import ReferenceTrainer


class WorkloadTrainer(Trainer):
    """The built-in workloads. One session serves runs of all of them, so that its start is paid once."""

    name = "workload"
    accepts = frozenset({SIZE, EXCHANGE})

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part; there are no options."""
        super().__init__(spec)
        self._python = interpreter(spec.python or sys.executable)

    @property
    def dependencies(self) -> Dependencies:
        """The modules that the workloads import."""
        return Dependencies(python=self._python, modules=("tuner", "torch"))

    @property
    def counts_samples(self) -> bool:
        """Every workload reports its samples."""
        return True

    def cases(self) -> list[Case]:
        """List the workloads."""
        return [Case(name=name, method=name) for name in CATALOGUE]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Decide one run. Raises TrainerError for an unknown workload or a value that it cannot use."""
        if case.name not in CATALOGUE:
            raise TrainerError(f"workload {case.name!r} is unknown; known: {', '.join(CATALOGUE)}")
        settings = run_settings(case.name, config, iterations=iterations(slot))
        return ProbePlan(
            config=config,
            argv=(
                *self._command(slot),
                *("--workload", case.name, "--size", str(settings.size)),
                *(() if settings.exchange else ("--apart",)),
                *(() if slot.to_train else ("--iterations", str(settings.iterations))),
            ),
            cwd=slot.out_dir,
            env={**slot.variables, "TUNER_PROGRESS": str(slot.progress)},
            files={},
            slot=slot,
            session_key=self.session_key(case, config),
        )

    def session_key(self, case: Case, config: Config) -> str:
        """Share one session between all workloads and sizes."""
        return self.name

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Decide the same run in a session. Raises as `plan` does."""
        return replace(
            self.plan(case, config, slot),
            argv=self._command(slot),
            request={"workload": case.name, "config": dict(config), "iterations": iterations(slot)},
        )

    def fingerprint(self) -> dict[str, str]:
        """Return the name of the trainer."""
        return {"name": self.name}

    def _command(self, slot: Slot) -> tuple[str, ...]:
        return (
            *(with_torch(self._python), "-m", "tuner.scaling.workloads"),
            *("--devices", *device_names(slot.devices)),
            *("--master-port", str(slot.port)),
        )


PPO = "ppo"
PPO_CASE = "deepmimic_pi_plus_ppo"
PPO_GPU_SIZES, PPO_CPU_SIZES = (2048, 4096), (32, 64)
LINKS = "allreduce"
NAMES = (PPO, *CATALOGUE)
"""The built-in workloads."""


def limits(window_s: float) -> ProbeSpec:
    """Return the limits of a probe of a built-in workload, with windows of `window_s` seconds."""
    return ProbeSpec(iterations=6, min_iterations=4, window_seconds=window_s, max_seconds=window_s + 120)


def built_in(name: str, *, gpu: bool, window_s: float, sizes: tuple[int, ...] | None = None) -> Scaled:
    """Return a built-in workload; without `sizes` it has those that suit the devices. Raises StudyError."""
    if name == PPO:
        return _ppo(sizes or (PPO_GPU_SIZES if gpu else PPO_CPU_SIZES), window_s)
    if name not in CATALOGUE:
        raise StudyError(f"workload {name!r} is unknown; known: {', '.join(NAMES)}")
    entry = CATALOGUE[name]
    parts = MICRO_BATCHES if entry.splits_model else None
    split, links = entry.splits_model, name == LINKS
    sizes = sizes or entry.sizes(gpu=gpu)
    return Scaled(
        subject=Subject(name=name, text=entry.text, unit=entry.unit, splits_model=split, micro_batches=parts),
        wanted=SubjectPlan(name=name, sizes=sizes, splits_model=split, can_stay_apart=not links, only_links=links),
        trainer=WorkloadTrainer(TrainerSpec(name="workload")),
        case=Case(name=name),
        limits=limits(window_s),
        config=lambda size, exchange: {SIZE: size or 1, EXCHANGE: exchange},
        step_samples=_step_samples(name, entry),
    )


def of_study(bench: Workbench, case: Case, config: Config, sizes: tuple[int, ...] | None) -> Scaled:
    """Return a case of a study with one config; `sizes` are values of `num_envs`.

    Raises StudyError where the trainer has no `num_envs` and `sizes` are given.
    """
    has_sizes = LADDER in bench.trainer.accepts
    if sizes and not has_sizes:
        raise StudyError(f"--sizes are values of {LADDER}, which {bench.trainer.name} does not vary; leave them out")
    own = config.get(LADDER)

    rest = {name: value for name, value in config.items() if name != LADDER}
    fixed = f" with {in_words(rest)}" if rest else ""
    text = f"case of the study {bench.spec.name}, trained by {bench.trainer.name}{fixed}"
    return Scaled(
        subject=Subject(name=case.name, text=text, unit="environments per GPU" if has_sizes else ""),
        wanted=SubjectPlan(name=case.name, sizes=sizes or ((own,) if isinstance(own, int) else (None,))),
        trainer=bench.trainer,
        case=case,
        limits=bench.spec_for(case).probe,
        config=lambda size, _: config if size is None else {**config, LADDER: size},
        variables=bench.spec.environment.variables,
    )


def _ppo(sizes: tuple[int, ...], window_s: float) -> Scaled:
    text = "trains a controller with PPO: the reference trainer"
    return Scaled(
        subject=Subject(name=PPO, text=text, unit="environments per GPU"),
        wanted=SubjectPlan(name=PPO, sizes=sizes),
        trainer=ReferenceTrainer(TrainerSpec(name="reference")),
        case=Case(name=PPO_CASE),
        limits=limits(window_s),
        config=lambda size, _: {LADDER: size or 1},
    )


def _step_samples(name: str, entry: Entry) -> Callable[[int, int], float]:
    if name == LINKS:
        return lambda _, ranks: ranks
    return lambda size, ranks: size if entry.splits_model else size * ranks
