"""Any command line as a trainer: `{placeholders}` take the config, and counts or printed lines show the progress.

    trainer:
      name: command
      root: ../my_project
      options:
        command: "{python} train.py --envs {num_envs} --workers {num_workers} --port {port} --out {out_dir}"
        progress: ['iter (?P<iteration>\\d+) samples (?P<samples>\\d+)']

A placeholder is a parameter of the study or one of `case out_dir port devices ranks iterations python`. `{flag:fast}`
is `--fast` where the parameter is true, and nothing where it is false. Where a config lacks a parameter, its word is
left out with the flag before it: the program uses its own default. A command to train with leaves out `iterations` in
the same way. Instead of `progress`, the program can write to the file named in TUNER_PROGRESS: see `tuner/progress.py`.

With a `session`, one started program serves many configs, as `docs/sessions.md` describes. Configs can share a session
if they agree in the parameters that its command line and `env` name:

        session: "{python} train.py --serve --envs {num_envs} --port {port}"
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tuner import study
from tuner.errors import ConfigRefusedError, TrainerError
from tuner.probe import HEAD, NODE_RANK, SCORE_GROUP, THREADS, LinePatterns, ProbePlan, Slot, search_path
from tuner.study import Case, Config, Expression, TrainerSpec, Value
from tuner.study.command_words import script
from tuner.trainers import command_options
from tuner.trainers.base import STANDARD, Trainer, checked_options, device_names, interpreter, program_folder


def loader_queue(config: Config) -> int:
    """Return how many batches the loader of a rank holds ready, from all of its workers; 0 where unknown.

    The first iterations only empty this queue, so the tuner does not judge a loader's speed by them. Workers and
    prefetching are found by the names of parameters. By default, a worker of a PyTorch loader prefetches two batches.
    """

    def number_of(word: str, default: int) -> int:
        """Return the whole number of the first parameter with this word in its name; `default` without any."""
        numbers = (value for name, value in config.items() if word in name and type(value) is int)  # True is no number
        return next(numbers, default)

    return max(0, number_of("workers", default=0) * number_of("prefetch", default=2))


_fill_to_launch = partial(command_options.fill, to_launch=True)

_expression = cache(Expression)
"""Reads an expression once: a search asks for its value of each config."""


class CommandTrainer(Trainer):
    """Launches the command line of a study file; the command starts its own ranks."""

    name = "command"

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part, and what its placeholders and formulas say about the command.

        Raises TrainerError for an option that is unknown or cannot be used.
        """
        super().__init__(spec)
        self._options = checked_options(command_options.CommandOptions, spec)
        self._python = interpreter(spec.python or sys.executable)
        self.folder = (Path(spec.root).expanduser() / self._options.cwd).resolve()
        """The folder in which the command runs."""
        self.accepts = self._options.command_parameters
        self.keeps = frozenset(self._options.keeps)
        self.counts_samples = self._options.counts_samples
        self._flags, named = (
            command_options.flags(self._options.words),
            command_options.placeholders(self._options.words),
        )
        self.spans_nodes, self.heeds_devices = (
            bool(named & command_options.OF_NODES),
            bool(named & {"ranks", "devices"}),
        )
        score_patterns = (pattern for pattern in self._options.progress if f"(?P<{SCORE_GROUP}>" in pattern)
        self.score_source = " ".join(score_patterns)
        self.has_rules = bool(self._options.computed or self._options.samples_per_iteration)

    @property
    def declines(self) -> Mapping[str, str]:
        """The standard parameters that the command has no placeholder for."""
        return {name: f"the command has no {{{name}}} placeholder" for name in STANDARD if name not in self.accepts}

    @property
    def learning(self) -> frozenset[str]:
        """The parameters that change what is learnt: those of `learning` in the options, else the standard ones."""
        return super().learning if self._options.learning is None else frozenset(self._options.learning)

    def cases(self) -> list[Case]:
        """Return the cases that the options name. Raises TrainerError when the folder to run in is not there."""
        if not self.folder.is_dir():
            problem = f"the command cannot run in {self.folder}: no such folder"
            raise TrainerError(f"{problem}; see trainer.root and options.cwd")
        return [Case(name=name) for name in dict.fromkeys(self._options.cases)]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return the plan of one probe: the filled command line, its variables, files and patterns.

        Where `slot.to_train` is set, nothing is counted, and what the training writes stays.
        """
        values = self.values(case, config, slot)
        texts = self.changed_files(config, len(slot.devices))
        if slot.to_train:  # a person looks for the copies beside the files
            copies = {name: study.copy_name(self.folder / name, slot.out_dir) for name in texts}
        else:
            copies = {name: slot.out_dir / study.copy_name(Path(name)).name for name in texts}
        words = _fill_to_launch(self._options.command, values)
        in_words = {study.escaped(name): study.escaped(str(path)) for name, path in copies.items()}
        return ProbePlan(
            config=config,
            argv=study.with_copies(words, in_words),
            cwd=self.folder,
            env=self._env(values, slot),
            programs=program_folder(self._spec.python),
            files={copies[name]: text for name, text in texts.items()},
            slot=slot,
            progress=LinePatterns(
                patterns=self._options.progress,
                samples_per_iteration=self._samples_per_iteration(config, len(slot.devices)),
                queue=loader_queue(config),
            ),
            is_counted=self._options.is_counted and not slot.to_train,
            protects_files=self._options.protect and not slot.to_train,
            flops_per_sample=self._options.flops_per_sample,
            # without sessions, no config shares its key with another
            session_key=self.session_key(case, config) or "/".join((self.name, case.name, study.config_digest(config))),
        )

    def _env(self, values: Mapping[str, object], slot: Slot) -> dict[str, str]:
        """Return the environment variables of a run: those of the options, filled with `values`, and those of the slot.

        A variable of the slot replaces that of the options, except for the number of threads.
        """
        env: dict[str, str] = {}
        for name, text in self._options.env.items():
            for word in _fill_to_launch((text,), values):  # none where the config lacks a parameter of the text
                env[name] = word
        env |= {name: text for name, text in slot.variables.items() if name != THREADS or name not in env}
        if slot.to_train:  # nobody reads the progress, and drawing a bar slows the training
            # with these, rich draws a running bar where there is no terminal
            bars = command_options.PRESETS["lightning"].env
            return {name: text for name, text in env.items() if bars.get(name) != text}
        return {"PYTHONUNBUFFERED": "1", **env, "TUNER_PROGRESS": study.escaped(str(slot.progress))}

    def changed_files(self, config: Config, ranks: int) -> dict[str, str]:
        """Return the configuration files that a config changes: the file as the command names it → its new text.

        Raises TrainerError where a file cannot be read, or has no such value, and where a value cannot be computed.
        """
        texts: dict[str, str] = {}
        given = self.with_computed(config, ranks)
        for name, keys in self._options.files.items():
            path = self.folder / name
            values = study.values_in(path)
            wanted = {place: given[parameter] for parameter, place in keys.items() if parameter in given}
            if any(values.get(place) != value for place, value in wanted.items()):
                texts[name] = study.changed_text(path, wanted)
        return texts

    def session_key(self, case: Case, config: Config) -> str | None:
        """Return the name of the session, one started program that runs the probes of many configs; None without it.

        Configs that agree in the parameters of its command line and its environment share a session.
        """
        if not self._options.session:
            return None
        shared = sorted(
            command_options.parameters((*self._options.session, *self._options.env.values())) & config.keys()
        )
        return "/".join((self.name, case.name, *(f"{name}={study.value_text(config[name])}" for name in shared)))

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan | None:
        """Return the plan of a probe as a run of a started session; None without a session.

        Such a run leaves no files, and reports by `tuner.progress` alone: what the program prints is not read.
        """
        if not self._options.session:
            return None
        cold = self.plan(case, config, slot)
        return replace(
            cold,
            argv=_fill_to_launch(self._options.session, self.values(case, config, slot)),
            progress=replace(cold.progress, patterns=()),
            request=self.request(config, slot.limits.most_iterations),
            is_counted=False,
            protects_files=False,
        )

    def missing_program(self) -> str | None:
        """Return the program of the command or of the session that does not exist, or such a Python; None without one.

        Without the folder of a Python that is named, the command would start another one of that name, found on PATH.
        """
        first_words = [words[0] for words in (self._options.command, self._options.session) if words]
        if python := super().missing_program():
            return python
        if "PATH" in self._options.env:  # the program may be in folders that only a probe searches
            return None
        for word in first_words:
            if command_options.placeholders([word]):  # only a probe knows the program's name
                continue
            program = study.expanded(_fill_to_launch((word,), {})[0], os.environ)
            folders = search_path(program_folder(self._spec.python))
            if shutil.which(self.folder / program if os.sep in program else program, path=folders) is None:
                return word
        return None

    @property
    def script(self) -> Path | None:
        """The Python script that the command names; None without one."""
        path = script(self._options.command)
        return self.folder / path if path and (self.folder / path).is_file() else None

    def fingerprint(self) -> dict[str, str]:
        """Return what comparable results share: the command and environment with placeholders, and the arithmetic.

        The study stores and shows it, so secret keys in it are masked.
        """
        env = " ".join(f"{name}={text}" for name, text in sorted(self._options.env.items()))
        computed = " ".join(f"{name}={text}" for name, text in sorted(self._options.computed.items()))
        arithmetic = {"samples_per_iteration": self._options.samples_per_iteration, "computed": computed}
        used = {name: text for name, text in arithmetic.items() if text}
        command = " ".join(map(study.quoted, self._options.command))
        return {"name": self.name, **study.masked_trainer({"command": command, "env": env}), **used}

    def check_value(self, parameter: str, value: Value) -> None:
        """Raise TrainerError for a word that arithmetic needs as a number, and for a flag that is not true or false."""
        super().check_value(parameter, value)
        arithmetic = {"samples_per_iteration": self._options.samples_per_iteration, **self._options.computed}
        for name, text in arithmetic.items():
            if text and parameter in Expression(text).names and isinstance(value, bool | str):
                raise TrainerError(f"{parameter} {value!r} is not a number, but {name} is computed from {parameter}")
        if parameter in self._flags and not isinstance(value, bool):
            problem = f"{parameter} {value!r}: {{flag:{parameter}}} takes true or false"
            raise TrainerError(f"{problem}; write choices: [false, true]")

    def refusal(self, config: Config, ranks: int) -> str | None:
        """Return in words which arithmetic of the options has no usable value for a config; None where all have one.

        Each of `samples_per_iteration` and `computed` must give a number above 0, and those in `computed` a whole
        number, because it takes the place of a placeholder. So `computed: {accumulation: "64 / {batch_size}"}` refuses
        a batch size of 48.
        """
        try:
            self._samples_per_iteration(config, ranks)  # called for its error, also that of a formula in `computed`
        except ConfigRefusedError as error:
            return str(error)
        return None

    def _samples_per_iteration(self, config: Config, ranks: int) -> float | None:
        """Return the value of the option `samples_per_iteration`; None where unknown. Raises as `_number` does."""
        text = self._options.samples_per_iteration
        return self._number("samples_per_iteration", text, self.with_computed(config, ranks), ranks)

    def with_computed(self, config: Config, ranks: int) -> Config:
        """Return a config with the values that the formulas of the option `computed` give.

        A value is left out if the config lacks a parameter of its formula. Raises ConfigRefusedError for a value that
        is not a whole number above 0.
        """
        completed = dict(config)
        for name, text in self._options.computed.items():
            number = self._number(name, text, config, ranks)
            if number is None:
                continue
            if not number.is_integer():
                raise ConfigRefusedError(f"{name} {text!r} is {number:g}, which is no whole number")
            completed[name] = int(number)
        return completed

    def _number(self, name: str, text: str, values: Mapping[str, object], ranks: int) -> float | None:
        """Return the value of `text`, the arithmetic of the option `name`, for the `values` of parameters.

        None where the text is empty, or a parameter of it has no value. Raises ConfigRefusedError for a value that
        cannot be computed or is not above 0.
        """
        try:
            number = (
                _expression(text).value({**values, **dict.fromkeys(command_options.COUNTS, ranks)}) if text else None
            )
        except ValueError as error:
            raise ConfigRefusedError(f"{name} {text!r} cannot be computed: {error}") from error
        if number is not None and number <= 0:
            raise ConfigRefusedError(f"{name} {text!r} is {number:g}; it must be above 0")
        return number

    def values(self, case: Case, config: Config, slot: Slot) -> dict[str, object]:
        """Return placeholder → its value for one run in a slot; parameters at their `unset` value are left out."""
        devices = device_names(slot.local_devices)
        unset = self._options.unset  # parameter → the value that the program has without the flag
        values = self.with_computed(config, len(slot.devices))
        return {
            **{name: value for name, value in values.items() if name not in unset or unset[name] != value},
            **({} if slot.to_train else {"iterations": slot.limits.most_iterations}),
            "case": case.name,
            "out_dir": slot.out_dir,
            "port": slot.port,
            "devices": ",".join(devices),
            "ranks": len(slot.devices),
            "local_ranks": len(devices),
            "nodes": slot.nodes,
            "node_rank": command_options.Reference(f"${{{NODE_RANK}}}") if slot.nodes > 1 else 0,
            "head": command_options.Reference(f"${{{HEAD}}}") if slot.nodes > 1 else "localhost",
            "python": self._python,
            "seed": slot.seed or 0,
        }
