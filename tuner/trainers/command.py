"""Any command line as a trainer: `{placeholders}` take the config, printed lines or a file tell progress.

    trainer:
      name: command
      root: ../my_project
      options:
        command: "{python} train.py --envs {num_envs} --workers {num_workers} --port {port} --out {out_dir}"
        progress: ['iter (?P<iteration>\\d+) samples (?P<samples>\\d+)']
        expected: [model.pt]

A placeholder is a parameter of the study or one of `case out_dir port devices ranks iterations python`. A word whose
parameter does not count in a config is left out together with the flag before it, so that the program's own default
holds. Instead of `progress`, the program can write to the file named in TUNER_PROGRESS: see `tuner/progress.py`.
"""

import re
import shlex
import sys
from pathlib import Path

from pydantic import Field, field_validator

from tuner.errors import TrainerError
from tuner.probe.plan import LinePatterns, ProbePlan, Slot
from tuner.study.cases import Case
from tuner.study.space import Config, config_digest
from tuner.study.spec import Name, Strict, TrainerSpec
from tuner.trainers.launch import device_names, interpreter
from tuner.trainers.options import checked
from tuner.trainers.parameters import STANDARD
from tuner.trainers.template import fill, placeholders

LAUNCH_FACTS = frozenset({"case", "out_dir", "port", "devices", "ranks", "iterations", "python"})
"""Placeholders that are no parameters; `devices` is `cuda:0,cuda:1` or `cpu,cpu`, `iterations` the probe's limit."""

_GROUPS = {"iteration", "samples", "rank"}


class Options(Strict):
    """What `trainer.options` may hold."""

    command: tuple[str, ...] = Field(min_length=1)
    """A list of words, or one text in shell quoting; no shell runs it."""
    cases: tuple[Name, ...] = Field(default=("command",), min_length=1)
    progress: tuple[str, ...] = ()
    """Regular expressions as `LinePatterns` has them."""
    block_seconds: float | None = Field(default=None, gt=0)
    """For a trainer that tells no iterations: such blocks stand for them, from its first line on."""
    expected: tuple[str, ...] = ()
    """Files that a finished run has left in the out dir."""
    cwd: str = ""
    """Where it runs; relative to `trainer.root`, which is relative to where the tuner runs."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables; placeholders as in the command."""

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, command: object) -> object:
        return tuple(shlex.split(command)) if isinstance(command, str) else command

    @field_validator("command")
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
                raise ValueError(f"{pattern!r} needs named groups out of iteration, samples, rank")
        if patterns and not any("iteration" in named for named in groups):
            raise ValueError("no pattern has the group (?P<iteration>…)")
        return patterns


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


class CommandTrainer:
    """Launches a command line that the study file gives; it starts its own ranks."""

    name = "command"

    def __init__(self, spec: TrainerSpec) -> None:
        self._options = checked(Options, spec)
        self._python = interpreter(spec.python or sys.executable)
        self._cwd = (Path(spec.root).expanduser() / self._options.cwd).resolve()
        self.accepts = placeholders((*self._options.command, *self._options.env.values())) - LAUNCH_FACTS
        self.declines = {
            parameter: f"the command has no {{{parameter}}} placeholder"
            for parameter in STANDARD
            if parameter not in self.accepts
        }

    def cases(self) -> list[Case]:
        """List the cases that the options name. Raises TrainerError when the folder to run in is not there."""
        if not self._cwd.is_dir():
            raise TrainerError(
                f"the command cannot run in {self._cwd}: no such folder; see trainer.root and options.cwd"
            )
        return [Case(name=name) for name in dict.fromkeys(self._options.cases)]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Fill the command line for one probe."""
        devices = device_names(slot.devices)
        values = {
            **config,
            "case": case.name,
            "out_dir": slot.out_dir,
            "port": slot.port,
            "devices": ",".join(devices),
            "ranks": len(devices),
            "iterations": slot.limits.most_iterations,
            "python": self._python,
        }
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
            session_key="/".join((self.name, case.name, config_digest(config))),
        )

    def fingerprint(self) -> dict[str, str]:
        """Say what makes results comparable: the command, unfilled, and its environment."""
        env = " ".join(f"{name}={text}" for name, text in sorted(self._options.env.items()))
        return {"name": self.name, "command": shlex.join(self._options.command), "env": env}
