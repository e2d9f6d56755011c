"""The contract of trainers, as a check for any implementation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.probe import Device, ProbePlan, Slot
from tuner.study import Case, Config, ProbeSpec
from tuner.trainers.base import STANDARD, Trainer


def make_slot(out_dir: Path, *, gpu: bool = False, ranks: int = 2, port: int = 40001, iterations: int = 3) -> Slot:
    """Return a slot with `ranks` devices of one kind; its `out_dir` need not exist."""
    kind, model = ("cuda", "NVIDIA H200") if gpu else ("cpu", "CPU share")
    return Slot(
        devices=tuple(Device(name=f"{kind}:{rank}", model=model) for rank in range(ranks)),
        out_dir=out_dir,
        port=port,
        limits=ProbeSpec(iterations=iterations),
        variables={"NCCL_P2P_DISABLE": "1"},  # such as a machine needs: a plan must set all variables of its slot
    )


def check_trainer(trainer: Trainer, *, case: str, configs: Sequence[Config], out_dir: Path) -> None:
    """Check `trainer` against the contract of `tuner.trainers.base.Trainer`.

    `case` is one of its trainable cases, `configs` are at least two different configs, and `out_dir` is an absolute
    path that does not exist. Raises AssertionError with the first rule that the trainer breaks.
    """
    _check_description(trainer)
    cases = {known.name: known for known in trainer.cases()}
    _require(trainer.cases() == list(cases.values()), "`cases` always returns the same cases, with unique names")
    _require(case in cases and cases[case].trainable, f"`cases` returns the trainable case {case}")
    trained, end = cases[case], trainer.ladder_end(cases[case])
    _require(_is_text(trained.options), "keys and values of a case's options are text")
    _require(end is None or end.num_envs >= 1, "a ladder does not end below 1 environment")
    _require(end is None or bool(end.reason), "the end of a ladder has a reason")
    _require(end == trainer.ladder_end(trained), "`ladder_end` always returns the same")
    slot = make_slot(out_dir)
    plans = [_check_plan(trainer, trained, config, slot) for config in configs]
    digests = {plan.digest for plan in plans}
    _require(len(digests) == len(configs) >= 2, "different configs have plans with different digests")
    for gpu in (False, True):
        on_ranks = [trainer.plan(trained, configs[0], make_slot(out_dir, gpu=gpu, ranks=ranks)) for ranks in (1, 2)]
        _require(on_ranks[0].digest != on_ranks[1].digest, "the digest depends on every device")
    _check_sessions(trainer, trained, plans)
    _require(not out_dir.exists(), "planning writes nothing")


def _check_description(trainer: Trainer) -> None:
    """Check what a trainer says of itself, without a case."""
    _require(bool(trainer.name), "a trainer has a name")
    _require(not trainer.accepts & trainer.declines.keys(), "a parameter is not both accepted and declined")
    known = trainer.accepts | trainer.declines.keys()
    _require(known >= set(STANDARD), "each standard parameter is accepted or declined")
    _require(all(trainer.declines.values()), "each decline has a reason")
    _require(trainer.learning <= trainer.accepts, "`learning` contains only accepted parameters")
    _require(trainer.fingerprint() == trainer.fingerprint(), "`fingerprint` always returns the same")
    _require(trainer.fingerprint().get("name") == trainer.name, "the fingerprint contains the trainer's name")
    _require(_is_text(trainer.fingerprint()), "keys and values of the fingerprint are text")


def _check_plan(trainer: Trainer, case: Case, config: Config, slot: Slot) -> ProbePlan:
    """Return the plan of a probe, after checking it against the plans that must agree with it."""
    before = dict(config)
    plan = trainer.plan(case, config, slot)
    moved = trainer.plan(case, config, _moved(slot))
    _require(plan == trainer.plan(case, config, slot), "`plan` always returns the same plan")
    _require(plan.digest == moved.digest, "the digest does not depend on out dir and port")
    _require(plan.config == before == config and plan.slot == slot, "the plan contains the given config and slot")
    _require(bool(plan.argv) and all(isinstance(word, str) for word in plan.argv), "the command is a list of words")
    _require(_is_text(plan.env) and plan.env.items() >= slot.variables.items(), "the plan sets the slot's variables")
    _require(plan.cwd.is_absolute(), "the path of the working folder is absolute")
    for path in (*plan.files, *plan.expected):
        _require(path.is_relative_to(slot.out_dir), f"{path} lies in the out dir")
    _require(plan.files.keys().isdisjoint((slot.console, slot.progress)), "the plan writes none of the tuner's files")
    _require(bool(plan.session_key), "a plan has a session key")
    training = trainer.plan(case, config, replace(slot, to_train=True))
    _require(training.files == plan.files, "training uses the same files as the probe")
    _require(set(training.argv) <= set(plan.argv), "the command to train with has only words of the probe's command")
    return plan


def _check_sessions(trainer: Trainer, case: Case, plans: Sequence[ProbePlan]) -> None:
    """Check the warm plans of configs, which run in a session, against their cold plans, which start the trainer.

    A session is a trainer that is started once for many configs: those with an equal key.
    """
    started: dict[str, tuple[str, ...]] = {}
    for cold in plans:
        config, key = cold.config, trainer.session_key(case, cold.config)
        warm = trainer.warm_plan(case, config, cold.slot)
        moved = trainer.warm_plan(case, config, _moved(cold.slot)) or cold
        _require(cold.request is None, "a cold plan has no request")
        _require((key is None) == (warm is None), "a config has a session key if and only if it has a warm plan")
        if key is None or warm is None:
            continue
        request = warm.request or {}
        _require(moved.digest == warm.digest, "a warm plan's digest does not depend on out dir and port")
        _require(warm.session_key == key, "the warm plan has the key that `session_key` returns")
        _require(started.setdefault(key, warm.argv) == warm.argv, "configs with equal keys start the same command")
        _require({"config", "iterations"} <= request.keys(), "a request contains config and iterations")
        _require(request["config"].items() <= config.items(), "a request's values are those of the config")
        _require(not warm.progress.patterns, "a session reports progress only by messages")
        _require(warm.digest != cold.digest, "warm and cold plans have different digests")


def _moved(slot: Slot) -> Slot:
    """Return the slot with another out dir and another port, which do not count in the digest."""
    return replace(slot, out_dir=slot.out_dir / "elsewhere", port=slot.port + 1)


def _is_text(table: Mapping[str, str]) -> bool:
    """Return whether all keys and values are text."""
    return all(isinstance(key, str) and isinstance(value, str) for key, value in table.items())


def _require(is_kept: bool, rule: str) -> None:
    """Raise AssertionError with a rule that is not kept."""
    if not is_kept:
        raise AssertionError(rule)
