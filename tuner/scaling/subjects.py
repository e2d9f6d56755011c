"""What `tuner scale` can measure: the built-in workloads, and a case of a study."""

import sys
from collections.abc import Callable
from functools import partial

from tuner.errors import StudyError
from tuner.export import in_words
from tuner.probe import ProbePlan, Slot
from tuner.running.workbench import Workbench
from tuner.scaling.campaign import Scaled, SubjectPlan
from tuner.scaling.results import Subject
from tuner.scaling.workloads.catalogue import CATALOGUE, EXCHANGE, MICRO_BATCHES, SIZE, Entry
from tuner.study import LADDER, Case, Config, ProbeSpec, TrainerSpec
from tuner.trainers.base import Trainer, device_names, iterations, with_torch
from tuner.trainers.reference.reference_trainer import ReferenceTrainer


def workload_plan(name: str, config: Config, slot: Slot) -> ProbePlan:
    """Decide one run of a workload. One session serves runs of all workloads, so that its start is paid once."""
    return ProbePlan(
        config=config,
        argv=(
            *(with_torch(sys.executable), "-m", "tuner.scaling.workloads"),
            *("--devices", *device_names(slot.devices)),
            *("--master-port", str(slot.port)),
        ),
        cwd=slot.out_dir,
        env={**slot.variables, "TUNER_PROGRESS": str(slot.progress)},
        files={},
        slot=slot,
        session_key="workload",
        request={"workload": name, "config": dict(config), "iterations": iterations(slot)},
    )


def planned_by(trainer: Trainer, case: Case, config: Config, slot: Slot) -> ProbePlan:
    """Decide one run of a trainer's case, in a session where the study and the trainer have one."""
    warm = trainer.warm_plan(case, config, slot) if slot.limits.warm else None
    return warm or trainer.plan(case, config, slot)


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
        plan=partial(workload_plan, name),
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
        plan=partial(planned_by, bench.trainer, case),
        limits=bench.spec_for(case).probe,
        config=lambda size, _: config if size is None else {**config, LADDER: size},
        variables=bench.spec.environment.variables,
    )


def _ppo(sizes: tuple[int, ...], window_s: float) -> Scaled:
    text = "trains a controller with PPO: the reference trainer"
    return Scaled(
        subject=Subject(name=PPO, text=text, unit="environments per GPU"),
        wanted=SubjectPlan(name=PPO, sizes=sizes),
        plan=partial(planned_by, ReferenceTrainer(TrainerSpec(name="reference")), Case(name=PPO_CASE)),
        limits=limits(window_s),
        config=lambda size, _: {LADDER: size or 1},
    )


def _step_samples(name: str, entry: Entry) -> Callable[[int, int], float]:
    if name == LINKS:
        return lambda _, ranks: ranks
    return lambda size, ranks: size if entry.splits_model else size * ranks
