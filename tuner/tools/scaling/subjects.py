"""What `tuner scale` can measure: the built-in workloads, and a case of a study."""

import sys
from dataclasses import replace
from functools import partial

from tuner.errors import StudyError
from tuner.export import in_words
from tuner.probe import ProbePlan, Slot
from tuner.running.workbench import Workbench
from tuner.study import LADDER, Case, Config, ProbeSpec, TrainerSpec
from tuner.tools.scaling.campaign import Scaled
from tuner.tools.scaling.results import LINKS, Subject
from tuner.tools.scaling.workloads import MICRO_BATCHES
from tuner.trainers.base import Trainer, iterations, own_plan
from tuner.trainers.reference.reference_trainer import ReferenceTrainer


def workload_plan(name: str, config: Config, slot: Slot) -> ProbePlan:
    """Decide one run of a workload. One session serves runs of all workloads, so that its start is paid once."""
    planned = own_plan(sys.executable, ("tuner.tools.scaling.workloads",), config, slot, session_key="workload")
    return replace(planned, request={"workload": name, "config": dict(config), "iterations": iterations(slot)})


def planned_by(trainer: Trainer, case: Case, config: Config, slot: Slot) -> ProbePlan:
    """Decide one run of a trainer's case, in a session where the study and the trainer have one."""
    warm = trainer.warm_plan(case, config, slot) if slot.limits.warm else None
    return warm or trainer.plan(case, config, slot)


PPO = "ppo"
PPO_CASE = "deepmimic_pi_plus_ppo"


_SUBJECTS = (
    Subject(name=PPO, text="trains a controller with PPO: the reference trainer", unit="environments per GPU"),
    Subject(
        name="fusion",
        text="trains a network that fuses camera, lidar and inertial readings",
        unit="samples per GPU and step",
    ),
    Subject(
        name="pipeline",
        text="trains one transformer, split into a stage per GPU",
        unit="samples per step of all GPUs",
        splits_model=True,
        micro_batches=MICRO_BATCHES,
    ),
    Subject(name=LINKS, text="sums a buffer over all ranks, to measure the links", unit="bytes"),
)
"""The built-in workloads. Their shapes stand in `workloads/programs.py`."""
SIZES = {
    PPO: ((2048, 4096), (32, 64)),
    "fusion": ((128, 512, 1024), (8, 16, 32)),
    "pipeline": ((64, 128), (8, 16)),
    LINKS: ((1 << 12, 1 << 18, 1 << 22, 1 << 25, 1 << 28), (1 << 12, 1 << 18, 1 << 22)),
}
"""Built-in workload → the sizes that are measured by default, on GPUs and on CPUs."""
NAMES = tuple(SIZES)


def _limits(window_s: float) -> ProbeSpec:
    """Return the limits of a probe of a built-in workload, with windows of `window_s` seconds."""
    return ProbeSpec(iterations=6, min_iterations=4, window_seconds=window_s, max_seconds=window_s + 120)


def built_in(name: str, *, gpu: bool, window_s: float, sizes: tuple[int, ...] | None = None) -> Scaled:
    """Return a built-in workload; without `sizes` it has those that suit the devices. Raises StudyError."""
    if name not in SIZES:
        raise StudyError(f"workload {name!r} is unknown; known: {', '.join(NAMES)}")
    subject, limits = next(subject for subject in _SUBJECTS if subject.name == name), _limits(window_s)
    on_gpu, on_cpu = SIZES[name]
    sizes = sizes or (on_gpu if gpu else on_cpu)
    if name == PPO:
        return Scaled(
            subject=subject,
            sizes=sizes,
            plan=partial(planned_by, ReferenceTrainer(TrainerSpec(name="reference")), Case(name=PPO_CASE)),
            limits=limits,
            config=lambda size, _: {LADDER: size or 1},
        )
    split, links = subject.splits_model, name == LINKS

    def step_samples(size: int, ranks: int) -> float:
        return ranks if links else size if split else size * ranks

    return Scaled(
        subject=subject,
        sizes=sizes,
        plan=partial(workload_plan, name),
        limits=limits,
        config=lambda size, exchange: {"size": size or 1, "exchange": exchange},
        can_stay_apart=not links,
        only_links=links,
        step_samples=step_samples,
    )


def of_study(bench: Workbench, case: Case, config: Config, sizes: tuple[int, ...] | None) -> Scaled:
    """Return a case of a study with one config; `sizes` are values of `num_envs`.

    Raises StudyError where the trainer has no `num_envs` and `sizes` are given.
    """
    has_sizes = LADDER in bench.trainer.accepts
    if sizes and not has_sizes:
        raise StudyError(f"--sizes are values of {LADDER}, which {bench.trainer.name} does not vary; leave them out")
    own = config.get(LADDER)
    fixed = {name: value for name, value in config.items() if name != LADDER}
    settings = f" with {in_words(fixed)}" if fixed else ""
    text = f"case of the study {bench.spec.name}, trained by {bench.trainer.name}{settings}"
    return Scaled(
        subject=Subject(name=case.name, text=text, unit="environments per GPU" if has_sizes else ""),
        sizes=sizes or ((own,) if isinstance(own, int) else (None,)),
        plan=partial(planned_by, bench.trainer, case),
        limits=bench.spec_for(case).probe,
        config=lambda size, _: config if size is None else {**config, LADDER: size},
        variables=bench.spec.environment.variables,
    )
