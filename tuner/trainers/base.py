"""The base class of every trainer and a check of its contract; plans, options and paths of programs for several."""

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from tuner import study
from tuner.errors import TrainerError, installs
from tuner.probe import HEAD, NODE_RANK, Device, ProbePlan, Slot, number_of


class Limit(NamedTuple):
    """A module works only in versions below `below`: always, or only beside a certain version of another module."""

    module: str
    below: str
    beside: tuple[str, str] | None = None
    """The other module, and how its version begins."""


class Dependencies(NamedTuple):
    """The modules that a trainer imports, in an order in which it can import them."""

    python: str
    modules: tuple[str, ...]
    limits: tuple[Limit, ...] = ()


def device_names(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the names by which torch knows the devices inside the probe, one per rank.

    CUDA_VISIBLE_DEVICES shows a trainer only its own GPUs, so they are `cuda:0`, `cuda:1`, …. CPU ranks are all `cpu`.
    """
    return tuple(f"cuda:{rank}" if device.is_gpu else "cpu" for rank, device in enumerate(devices))


def iterations(slot: Slot) -> int:
    """Return after how many iterations a trainer ends by itself: two more than a probe measures at most.

    The tuner usually ends a probe earlier. A command that a person runs by hand ends at this limit.
    """
    return slot.limits.most_iterations + 2


def num_envs(trainer: str, config: study.Config, usual: int | None = None) -> int:
    """Return the environments of each rank: `num_envs` of the config, or else `usual`.

    Raises TrainerError where this is not a whole number above 0; its message names the `trainer`.
    """
    number = config.get(study.LADDER, usual)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise TrainerError(
            f"{trainer} needs a whole number above 0 for {study.LADDER}, found {number!r}; give it a ladder"
        )
    return number


def interpreter(python: str) -> str:
    """Return the absolute path of a Python that is given with its folder; a name alone stays, to be found in PATH.

    Links are not followed: the Python of a venv is a link that leads out of the venv.
    """
    return str(Path(python).expanduser().absolute()) if os.sep in python else python


def own_plan(
    python: str, program: Sequence[str], config: study.Config, slot: Slot, *words: str, session_key: str
) -> ProbePlan:
    """Return the plan of a probe by a program that ships with the tuner.

    Args:
        python: The Python that runs it.
        program: The module, and its arguments before those of devices and port.
        config: The config to probe.
        slot: What is reserved for the probe.
        *words: The further arguments of the module.
        session_key: The name of the session, a program started once for many probes, that can run the config.

    Raises:
        TrainerError: The Python is that of the tuner, and lacks torch.
    """
    if python == sys.executable and find_spec("torch") is None:
        raise TrainerError(f"tuner's own trainers need torch: {installs('reference')} installs it")
    devices = ("--devices", *device_names(slot.local_devices), "--master-port", str(slot.port))
    argv = (*map(study.escaped, (python, "-m", *program, *devices, *words)),)
    if slot.nodes > 1:  # not escaped: each node fills in its own rank
        argv += ("--nodes", str(slot.nodes), "--node-rank", f"${{{NODE_RANK}}}", "--head", f"${{{HEAD}}}")
    return ProbePlan(
        config=config,
        argv=argv,
        cwd=slot.out_dir,
        env={**slot.variables, "TUNER_PROGRESS": study.escaped(str(slot.progress))},
        files={},
        slot=slot,
        session_key=session_key,
    )


def program_folder(python: str | None) -> Path | None:
    """Return the folder of a study's `trainer.python` if the study names it with a folder; None otherwise."""
    return Path(interpreter(python)).parent if python and os.sep in python else None


def with_folder_in_path(folder: Path, text: str) -> str:
    """Return the value of PATH with a folder before each `${PATH}` in it: `/venv/bin:${PATH}` for `${PATH}`.

    So a probe finds the programs beside the trainer's Python first, also where the study file sets PATH.
    """
    pieces: list[tuple[str, bool]] = []  # each text, and whether it is a reference
    for part in study.parts(text):
        if part.is_reference and part.name == "PATH":
            pieces.append((f"{folder}{os.pathsep}", False))
        pieces.append((part.literal, part.is_reference))
    return study.joined(pieces)


Options = TypeVar("Options", bound=study.Strict)


def checked_options(model: type[Options], spec: study.TrainerSpec) -> Options:
    """Return `trainer.options` of a study as the model of a trainer. Raises TrainerError with all errors in them."""
    try:
        return model.model_validate(spec.options)
    except ValidationError as error:
        lines = study.complaints(error, model, "trainer", "options")
        heading = f"trainer {spec.name}: {number_of(len(lines), 'error')} in its options"
        raise TrainerError("\n  ".join([heading, *lines])) from error


STANDARD = (study.LADDER, study.VARIANT, "update_epochs", "batch_size", "num_workers", "prefetch_factor")
"""The parameters of the shipped studies. A trainer accepts each of them or declines it with a reason."""

LEARNING = frozenset({study.VARIANT, "update_epochs", "batch_size"})
"""The standard parameters that change what is learnt: the network, the updates per sample or the minibatch.

`num_envs` changes the batch too, but every config changes `num_envs`, and a config is compared with the default config
of its own rung.
"""


class LadderEnd(NamedTuple):
    """The largest `num_envs` per device that a trainer can run, however much memory the devices have."""

    num_envs: int
    reason: str
    """What limits the number, and what to change to run more environments."""


class Trainer(ABC):
    """A kind of trainer: the cases it knows, the parameters it can vary, and the command that launches it.

    A subclass sets `name` and `accepts` and writes `cases`, `plan` and `fingerprint`. All else has a default.
    `tuner.trainers.base.check_trainer` checks that a subclass keeps the promises made here.
    """

    name: str
    """The name that tables show and that keeps the results of different trainers apart."""
    accepts: frozenset[str]
    """The parameters that this trainer can vary."""
    keeps: frozenset[str] = frozenset()
    """The parts of a training that no config may change, such as `batch` or `model`: keys of `tuner.count.PARTS`."""
    dependencies: Dependencies | None = None
    """The modules that this trainer imports, for `tuner doctor`; None where they are unknown."""
    counts_samples: bool | None = None
    """Whether probes of this trainer know its samples; None where only a probe can show it."""
    spans_nodes: bool = False
    """Whether the commands that this trainer starts on several nodes train together."""
    score_source: str = ""
    """What the score of a race is read from, where a study can choose; empty for the trainer's usual score."""
    loads_data: bool = True
    """Whether a training may wait for a data loader."""
    heeds_devices: bool = True
    """Whether the command that this trainer starts depends on which or how many devices there are."""
    has_rules: bool = False
    """Whether a rule of the trainer's options may forbid a config; see `refusal`."""

    def __init__(self, spec: study.TrainerSpec) -> None:
        """Keep the `trainer` part of the study file, as `_spec`, which subclasses read, too.

        An override may raise TrainerError for options it cannot use.
        """
        self._spec = spec

    @property
    def declines(self) -> Mapping[str, str]:
        """Standard parameters that this trainer cannot vary → why not, in a few words."""
        return {name: f"{self.name} does not vary it" for name in STANDARD if name not in self.accepts}

    @property
    def needs(self) -> frozenset[str]:
        """The accepted parameters that a study's space must have, because nothing else gives them a value."""
        return self.accepts - frozenset(STANDARD)

    @property
    def learning(self) -> frozenset[str]:
        """The accepted parameters that change what is learnt; the others change throughput alone."""
        return LEARNING & self.accepts

    def missing_program(self) -> str | None:
        """Return the program that this trainer would start and that does not exist; None where nothing is missing.

        It is the study's `trainer.python` if that has a folder; only a probe can search for a mere name.
        """
        python = self._spec.python
        is_missing = python and os.sep in python and shutil.which(interpreter(python)) is None
        return python if is_missing else None

    @property
    def script(self) -> Path | None:
        """The file whose code trains, so that a change of it is noticed; None where it is unknown."""
        return None

    def check_value(self, parameter: str, value: study.Value) -> None:
        """Raise TrainerError for a value that no case can use, whatever the other parameters are."""
        if parameter not in self.accepts:
            raise TrainerError(f"{parameter} {value!r}: {self.name} does not vary {parameter}")

    def refusal(self, config: study.Config, ranks: int) -> str | None:
        """Return in words why the trainer's options forbid a config on `ranks` ranks; None where they allow it.

        A forbidden config is no point of the space, so that no trial is spent on it.
        """
        return None

    def ladder_end(self, case: study.Case) -> LadderEnd | None:
        """Return the most environments that a case can run, at which its ladder ends; None where no end is known.

        None also where a file of the case cannot be read: `plan` reports that file.
        """
        return None

    @abstractmethod
    def cases(self) -> list[study.Case]:
        """Return all cases, trainable or not. Raises TrainerError when the trainer's files are missing."""

    @abstractmethod
    def plan(self, case: study.Case, config: study.Config, slot: Slot) -> ProbePlan:
        """Return the plan of one probe; this reads the trainer's files, but writes and starts nothing.

        Where `slot.to_train` is set, the same launch runs for as long as the trainer's own settings say.
        Raises TrainerError when the case's files cannot be used with this config.
        """

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Return what must be equal for results to be comparable: `name`, and the options that change results."""

    def session_key(self, case: study.Case, config: study.Config) -> str | None:
        """Return the name of the session that can run this config; None where there are no sessions.

        A session is a trainer that is started once for the probes of all configs with this key.
        """
        return None

    def warm_plan(self, case: study.Case, config: study.Config, slot: Slot) -> ProbePlan | None:
        """Return the plan of the same probe as one run of a started session; None without one. Raises as `plan` does.

        The program that serves the session reports progress and takes requests as `tuner.progress` does.
        """
        return None

    def request(self, config: study.Config, iterations: int) -> dict[str, Any]:
        """Return the request for one run of a session: the parameters that this trainer varies, and the iterations."""
        return {"config": {name: config[name] for name in config if name in self.accepts}, "iterations": iterations}


def make_slot(out_dir: Path, *, gpu: bool = False, ranks: int = 2, port: int = 40001, iterations: int = 3) -> Slot:
    """Return a slot with `ranks` devices of one kind; its `out_dir` need not exist."""
    kind, model = ("cuda", "NVIDIA H200") if gpu else ("cpu", "CPU share")
    return Slot(
        devices=tuple(Device(name=f"{kind}:{rank}", model=model) for rank in range(ranks)),
        out_dir=out_dir,
        port=port,
        limits=study.ProbeSpec(iterations=iterations),
        variables={"NCCL_P2P_DISABLE": "1"},  # such as a machine needs: a plan must set all variables of its slot
    )


def check_trainer(trainer: Trainer, *, case: str, configs: Sequence[study.Config], out_dir: Path) -> None:
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


def _check_plan(trainer: Trainer, case: study.Case, config: study.Config, slot: Slot) -> ProbePlan:
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


def _check_sessions(trainer: Trainer, case: study.Case, plans: Sequence[ProbePlan]) -> None:
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
