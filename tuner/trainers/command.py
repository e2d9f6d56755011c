"""Any command line as a trainer: `{placeholders}` take the config, printed lines or a file tell progress.

    trainer:
      name: command
      root: ../my_project
      options:
        command: "{python} train.py --envs {num_envs} --workers {num_workers} --port {port} --out {out_dir}"
        progress: ['iter (?P<iteration>\\d+) samples (?P<samples>\\d+)']
        expected: [model.pt]

A placeholder is a parameter of the study or one of `case out_dir port devices ranks iterations python`. Where a
config lacks a parameter, its word is left out with the flag before it: the program uses its own default. A command to
train with leaves out `iterations` in the same way. Instead of `progress`, the program can write to the file named in
TUNER_PROGRESS: see `tuner/progress.py`.

With a `session`, one started program serves many configs, as `docs/sessions.md` describes. Configs can share a session
if they agree in the parameters that its command line and `env` name:

        session: "{python} train.py --serve --envs {num_envs} --port {port}"
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from tuner.errors import TrainerError
from tuner.probe.plan import LinePatterns, ProbePlan, Slot
from tuner.study.cases import Case
from tuner.study.parameter import Strict
from tuner.study.space import Config, config_digest
from tuner.study.spec import Name, Seconds, TrainerSpec, Variables
from tuner.trainers.base import STANDARD, Trainer
from tuner.trainers.launch import device_names, interpreter
from tuner.trainers.options import checked
from tuner.trainers.template import fill, placeholders

LAUNCH_FACTS = frozenset({"case", "out_dir", "port", "devices", "ranks", "iterations", "python"})
"""Placeholders that are no parameters. `devices` is `cuda:0,cuda:1` or `cpu,cpu`; `iterations` is the probe's limit."""

_GROUPS = {"iteration", "samples", "rank", "epoch"}


class Labels(Strict):
    """The method and the robot of a case, where the words of its name do not say them."""

    method: str = ""
    robot: tuple[Name, ...] = ()
    """The words that name robot and task."""


class Options(Strict):
    """What `trainer.options` may hold."""

    command: tuple[str, ...] = Field(min_length=1)
    """A list of words, or one text in shell quoting; no shell runs it."""
    cases: tuple[Name, ...] = Field(default=("command",), min_length=1)
    progress: tuple[str, ...] = ()
    """Regular expressions for printed lines; `LinePatterns` describes their groups."""
    block_seconds: Seconds | None = None
    """Blocks of this length stand for iterations, where a trainer reports none; they start at its first line."""
    expected: tuple[str, ...] = ()
    """The files that a finished run leaves in the out dir."""
    cwd: str = ""
    """The folder to run in, relative to `trainer.root`, which is relative to the folder where `tuner` is started."""
    env: Variables = Field(default_factory=dict)
    """Environment variables; placeholders as in the command."""
    session: tuple[str, ...] = ()
    """The command line that serves a session; without it, every probe runs `command`."""
    learning: tuple[Name, ...] | None = None
    """Parameters that change what is learnt; by default the standard ones among those of the command."""
    labels: dict[Name, Labels] = Field(default_factory=dict)
    """Case → its method and robot; without them, the name says both, as in `amp_pi_plus`."""

    @field_validator("command", "session", mode="before")
    @classmethod
    def _words(cls, command: object) -> object:
        return tuple(shlex.split(command)) if isinstance(command, str) else command

    @field_validator("command", "session")
    @classmethod
    def _fillable(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        placeholders(command)
        return command

    @field_validator("env")
    @classmethod
    def _env_fillable(cls, env: dict[str, str]) -> dict[str, str]:
        placeholders(env.values())
        return env

    @field_validator("progress")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        groups = [set(_compiled(pattern).groupindex) for pattern in patterns]
        for pattern, named in zip(patterns, groups, strict=True):
            if not named or not named <= _GROUPS:
                raise ValueError(f"{pattern!r} needs named groups out of iteration, samples, rank, epoch")
        if patterns and not any("iteration" in named for named in groups):
            raise ValueError("no pattern has the group (?P<iteration>…)")
        return patterns

    @field_validator("session")
    @classmethod
    def _varies_no_more(cls, session: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = parameters((*info.data.get("command", session), *info.data.get("env", {}).values()))
        if unknown := sorted(parameters(session) - known):
            raise ValueError(f"{', '.join(unknown)}: in neither command nor env, so a plain probe would not vary it")
        return session

    @field_validator("learning")
    @classmethod
    def _is_varied(cls, learning: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        known = parameters((*info.data.get("command", ()), *info.data.get("env", {}).values()))
        if "command" in info.data and (unknown := sorted(set(learning or ()) - known)):
            raise ValueError(f"{', '.join(unknown)}: in neither command nor env; known: {', '.join(sorted(known))}")
        return learning

    @field_validator("labels")
    @classmethod
    def _are_of_cases(cls, labels: dict[str, Labels], info: ValidationInfo) -> dict[str, Labels]:
        known = info.data.get("cases", labels)
        if unknown := [name for name in labels if name not in known]:
            raise ValueError(f"{', '.join(unknown)}: not among cases; known: {', '.join(known)}")
        return labels

    @property
    def command_parameters(self) -> frozenset[str]:
        """The parameters that the command and its environment name."""
        return parameters((*self.command, *self.env.values()))

    @property
    def session_parameters(self) -> frozenset[str]:
        """The parameters that cannot change while a session lasts."""
        return parameters((*self.session, *self.env.values()))


def parameters(words: Iterable[str]) -> frozenset[str]:
    """Return the parameters among the placeholders in `words`."""
    return placeholders(words) - LAUNCH_FACTS


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


class CommandTrainer(Trainer):
    """Launches the command line of a study file; the command starts its own ranks."""

    name = "command"

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part. Raises TrainerError for an option that is unknown or cannot be used."""
        super().__init__(spec)
        self._options = checked(Options, spec)
        self._python = interpreter(spec.python or sys.executable)
        self._cwd = (Path(spec.root).expanduser() / self._options.cwd).resolve()
        self.accepts = self._options.command_parameters

    @property
    def declines(self) -> Mapping[str, str]:
        """The standard parameters that the command has no placeholder for."""
        missing = (parameter for parameter in STANDARD if parameter not in self.accepts)
        return {parameter: f"the command has no {{{parameter}}} placeholder" for parameter in missing}

    @property
    def learning(self) -> frozenset[str]:
        """The parameters that change what is learnt: those of `learning` in the options, else the standard ones."""
        return super().learning if self._options.learning is None else frozenset(self._options.learning)

    def cases(self) -> list[Case]:
        """List the cases that the options name. Raises TrainerError when the folder to run in is not there."""
        if not self._cwd.is_dir():
            raise TrainerError(
                f"the command cannot run in {self._cwd}: no such folder; see trainer.root and options.cwd"
            )
        labels = self._options.labels
        return [Case(name=name, **dict(labels.get(name, Labels()))) for name in dict.fromkeys(self._options.cases)]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Fill the command line for one probe."""
        values = self._values(case, config, slot)
        env = {name: filled for name, text in self._options.env.items() for filled in fill((text,), values)}
        return ProbePlan(
            config=config,
            argv=fill(self._options.command, values),
            cwd=self._cwd,
            env={"PYTHONUNBUFFERED": "1", **env, **slot.variables, "TUNER_PROGRESS": str(slot.progress)},
            files={},
            slot=slot,
            progress=LinePatterns(patterns=self._options.progress, block_s=self._options.block_seconds),
            expected=tuple(slot.out_dir / name for name in self._options.expected),
            session_key=self.session_key(case, config) or "/".join((self.name, case.name, config_digest(config))),
        )

    def session_key(self, case: Case, config: Config) -> str | None:
        """Share a session between configs that agree in the parameters of its command line and its environment."""
        if not self._options.session:
            return None
        fixed = sorted(self._options.session_parameters & config.keys())
        return "/".join((self.name, case.name, *(f"{name}={config[name]}" for name in fixed)))

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan | None:
        """Fill the session's command line; its runs leave no files and report through `tuner.progress` alone."""
        if not self._options.session:
            return None
        return replace(
            self.plan(case, config, slot),
            argv=fill(self._options.session, self._values(case, config, slot)),
            progress=LinePatterns(),
            expected=(),
            request={
                "config": {name: value for name, value in config.items() if name in self.accepts},
                "iterations": slot.limits.most_iterations,
            },
        )

    def missing_program(self) -> str | None:
        """Return the first word of the command or the session, where no program has that name."""
        if "PATH" in self._options.env:
            return None
        begins = [words[0] for words in (self._options.command, self._options.session) if words]
        return next((word for word in begins if not placeholders([word]) and not self._finds(word)), None)

    def _finds(self, program: str) -> bool:
        return shutil.which(self._cwd / program if "/" in program else program) is not None

    def fingerprint(self) -> dict[str, str]:
        """Return what comparable results share: the command, before it is filled, and its environment."""
        env = " ".join(f"{name}={text}" for name, text in sorted(self._options.env.items()))
        return {"name": self.name, "command": shlex.join(self._options.command), "env": env}

    def _values(self, case: Case, config: Config, slot: Slot) -> dict[str, object]:
        devices = device_names(slot.devices)
        limit = {} if slot.to_train else {"iterations": slot.limits.most_iterations}
        return {
            **config,
            **limit,
            "case": case.name,
            "out_dir": slot.out_dir,
            "port": slot.port,
            "devices": ",".join(devices),
            "ranks": len(devices),
            "python": self._python,
        }
