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
from tuner.trainers.base import Trainer, iterations, own_plan
from tuner.trainers.reference.reference_trainer import ReferenceTrainer

NAMES = ("ppo", LINKS)
"""The names of the built-in workloads."""


def built_in(name: str, *, gpu: bool, window_s: float, sizes: tuple[int, ...] | None = None) -> Scaled:
    """Return a built-in workload; without `sizes` it has those that suit the devices. Raises StudyError."""
    limits = ProbeSpec(iterations=6, min_iterations=4, window_seconds=window_s, max_seconds=window_s + 120)
    match name:
        case "ppo":
            text, unit = "trains a controller with PPO: the reference trainer", "environments per GPU"
            trainer, case = ReferenceTrainer(TrainerSpec(name="reference")), Case(name="deepmimic_pi_plus_ppo")
            return Scaled(
                subject=Subject(name=name, text=text, unit=unit),
                sizes=sizes or ((2048, 4096) if gpu else (32, 64)),
                plan=partial(_trainer_plan, trainer, case),
                limits=limits,
                config=lambda size: {LADDER: size or 1},
            )
        case "allreduce":
            small, large = (1 << 12, 1 << 18, 1 << 22), (1 << 25, 1 << 28)
            return Scaled(
                subject=Subject(name=name, text="sums a buffer over all ranks, to measure the links", unit="bytes"),
                sizes=sizes or ((*small, *large) if gpu else small),
                plan=links_plan,
                limits=limits,
                config=lambda size: {"bytes": size or 1},
                only_links=True,
            )
    raise StudyError(f"workload {name!r} is unknown; known: {', '.join(NAMES)}")


def links_plan(config: Config, slot: Slot) -> ProbePlan:
    """Return the plan of a run of all-reduces. One session serves all sizes, so that its start is paid once."""
    planned = own_plan(sys.executable, ("tuner.trainers.reference.all_reduce",), config, slot, session_key=LINKS)
    return replace(planned, request={"config": dict(config), "iterations": iterations(slot)})


def _trainer_plan(trainer: Trainer, case: Case, config: Config, slot: Slot) -> ProbePlan:
    """Return the plan of a run of a trainer's case, in a session where the study and the trainer have one."""
    warm = trainer.warm_plan(case, config, slot) if slot.limits.warm else None
    return warm or trainer.plan(case, config, slot)


def of_study(bench: Workbench, case: Case, config: Config, sizes: tuple[int, ...] | None) -> Scaled:
    """Return a case of a study with one config; `sizes` are values of `num_envs`.

    Raises StudyError where the trainer has no `num_envs` and `sizes` are given.
    """
    has_sizes = LADDER in bench.trainer.accepts
    if sizes and not has_sizes:
        raise StudyError(f"--sizes are values of {LADDER}, which {bench.trainer.name} does not vary; leave them out")
    own_size = config.get(LADDER)
    fixed = {name: value for name, value in config.items() if name != LADDER}
    settings = f" with {in_words(fixed)}" if fixed else ""
    text = f"case of the study {bench.spec.name}, trained by {bench.trainer.name}{settings}"
    return Scaled(
        subject=Subject(name=case.name, text=text, unit="environments per GPU" if has_sizes else ""),
        sizes=sizes or ((own_size,) if isinstance(own_size, int) else (None,)),
        plan=partial(_trainer_plan, bench.trainer, case),
        limits=bench.spec_for(case).probe,
        config=lambda size: config if size is None else {**config, LADDER: size},
        variables=bench.spec.environment.variables,
    )
