"""The contract of trainers, as a check for any implementation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.probe.plan import Device, ProbePlan, Slot
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec
from tuner.trainers.base import STANDARD, Trainer


def make_slot(out_dir: Path, *, gpu: bool = False, ranks: int = 2, port: int = 40001, iterations: int = 3) -> Slot:
    """Return a slot of like devices at `out_dir`, which need not exist."""
    kind, model = ("cuda", "NVIDIA H200") if gpu else ("cpu", "CPU share")
    return Slot(
        devices=tuple(Device(name=f"{kind}:{rank}", model=model) for rank in range(ranks)),
        out_dir=out_dir,
        port=port,
        limits=ProbeSpec(iterations=iterations),
        variables={"NCCL_P2P_DISABLE": "1"},
    )


def check_trainer(trainer: Trainer, *, case: str, configs: Sequence[Config], out_dir: Path) -> None:
    """Check `trainer` against the contract of `tuner.trainers.base.Trainer`.

    `case` is one of its trainable cases, `configs` are at least two that differ, `out_dir` is a fresh absolute path.
    Raises AssertionError with the first promise that does not hold.
    """
    _check_words(trainer)
    found = _check_cases(trainer, case)
    _check_ladder_end(trainer, found)
    slot = make_slot(out_dir)
    plans = [_check_plan(trainer, found, config, slot) for config in configs]
    digests = {plan.digest for plan in plans}
    _holds(len(digests) == len(configs) >= 2, "configs that differ have plans whose digests differ")
    for gpu in (False, True):
        both, first = (trainer.plan(found, configs[0], make_slot(out_dir, gpu=gpu, ranks=ranks)) for ranks in (2, 1))
        _holds(both.digest != first.digest, "each device counts in the digest")
    _check_sessions(trainer, found, plans)
    _holds(not out_dir.exists(), "planning writes nothing")


def _check_words(trainer: Trainer) -> None:
    _holds(bool(trainer.name), "a trainer has a name")
    _holds(not trainer.accepts & trainer.declines.keys(), "no parameter is both accepted and declined")
    _holds(trainer.accepts | trainer.declines.keys() >= set(STANDARD), "standard parameters are accepted or declined")
    _holds(all(trainer.declines.values()), "each decline has a reason")
    _holds(trainer.learning <= trainer.accepts, "what changes learning is among what it accepts")
    _holds(trainer.fingerprint() == trainer.fingerprint(), "the fingerprint stays")
    _holds(trainer.fingerprint().get("name") == trainer.name, "the fingerprint holds the name")
    _holds(_is_text(trainer.fingerprint()), "the fingerprint is text")


def _check_cases(trainer: Trainer, name: str) -> Case:
    cases = {case.name: case for case in trainer.cases()}
    _holds(trainer.cases() == list(cases.values()), "case names are unique and cases stay")
    _holds(name in cases and cases[name].trainable, f"{name} is a trainable case")
    _holds(_is_text(cases[name].options), "case options are text")
    return cases[name]


def _check_ladder_end(trainer: Trainer, case: Case) -> None:
    end = trainer.ladder_end(case)
    _holds(end is None or end.num_envs >= 1, "a ladder ends at 1 environment or more")
    _holds(end is None or bool(end.reason), "the end of a ladder has a reason")
    _holds(end == trainer.ladder_end(case), "the end of a ladder stays")


def _check_plan(trainer: Trainer, case: Case, config: Config, slot: Slot) -> ProbePlan:
    before = dict(config)
    plan = trainer.plan(case, config, slot)
    moved = trainer.plan(case, config, _moved(slot))
    _holds(plan == trainer.plan(case, config, slot), "planning twice gives equal plans")
    _holds(plan.digest == moved.digest, "out dir and port do not count in the digest")
    _holds(plan.config == before == config and plan.slot == slot, "the plan holds its config and slot")
    _holds(bool(plan.argv) and all(isinstance(word, str) for word in plan.argv), "the command is words")
    _holds(_is_text(plan.env) and plan.env.items() >= slot.variables.items(), "the slot's variables are set")
    _holds(plan.cwd.is_absolute(), "the working folder is absolute")
    for path in (*plan.files, *plan.expected):
        _holds(path.is_relative_to(slot.out_dir), f"{path} lies in the out dir")
    _holds(slot.console not in plan.files and slot.progress not in plan.files, "the tuner's own files are left to it")
    _holds(bool(plan.session_key), "a plan has a session key")
    training = trainer.plan(case, config, replace(slot, to_train=True))
    _holds(training.files == plan.files, "a config is trained with the files that it was probed with")
    _holds(set(training.argv) <= set(plan.argv), "a command to train with has nothing that a probe's has not")
    return plan


def _check_sessions(trainer: Trainer, case: Case, plans: Sequence[ProbePlan]) -> None:
    started: dict[str, tuple[str, ...]] = {}
    for cold in plans:
        config, key = cold.config, trainer.session_key(case, cold.config)
        warm = trainer.warm_plan(case, config, cold.slot)
        _holds(cold.request is None, "a cold plan asks nothing of a session")
        _holds((key is None) == (warm is None), "a config has a session key if and only if it has a warm plan")
        if key is None or warm is None:
            continue
        request, moved = warm.request or {}, trainer.warm_plan(case, config, _moved(cold.slot))
        _holds(moved is not None and moved.digest == warm.digest, "nor do they in that of a warm plan")
        _holds(warm.session_key == key, "the warm plan holds the session key")
        _holds(started.setdefault(key, warm.argv) == warm.argv, "configs with equal keys start the same command")
        _holds({"config", "iterations"} <= request.keys(), "a request holds config and iterations")
        _holds(request["config"].items() <= config.items(), "a request's config is that of the probe")
        _holds(not warm.progress.patterns, "a session tells progress by messages alone")
        _holds(warm.digest != cold.digest, "warm and cold plans have different digests")


def _moved(slot: Slot) -> Slot:
    """Return the slot with another out dir and another port, which do not count in the digest."""
    return replace(slot, out_dir=slot.out_dir / "elsewhere", port=slot.port + 1)


def _is_text(table: Mapping[str, str]) -> bool:
    return all(isinstance(key, str) and isinstance(value, str) for key, value in table.items())


def _holds(promise: bool, what: str) -> None:
    if not promise:
        raise AssertionError(what)
