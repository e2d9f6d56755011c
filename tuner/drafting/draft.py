"""Makes a study from a command line, and runs the command once to watch it."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner.devices.cpu import usable_cores
from tuner.devices.found import open_devices
from tuner.drafting.command_lines import (
    Template,
    as_parameter,
    deaf_script,
    literal_text,
    ranks,
    script,
    settings,
    template,
    variables,
)
from tuner.drafting.searches import BATCHES, ENVIRONMENTS, NEEDS_WORKERS, WORKERS, SearchedFlag, searches
from tuner.drafting.watching import Watched, watch
from tuner.errors import StudyError, TrainerError
from tuner.probe.failing import IDLE_PCT
from tuner.probe.probe_plan import Device, Slot
from tuner.probe.process import Launcher
from tuner.probe.protocols import MonotonicClock
from tuner.probe.recorder import SamplingRecorder
from tuner.probe.result import DeviceSample
from tuner.running.prober import run_in
from tuner.running.workbench import launch_variables
from tuner.study.space import Config, Value
from tuner.study.spec import StudySpec
from tuner.trainers.command import CommandTrainer
from tuner.trainers.presets import INTERACTIVE, PRESETS, Preset

Ask = Callable[[Sequence[str], int], Sequence[str]]
"""Asks a person which of a command's flags are searched, for a rank with so many cores."""
USED_MIB = 300.0
"""A card is used if its memory grows by more than this, in MiB: the least that a process of CUDA takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """How a command used one device while it was watched."""

    device: Device
    util_pct: float | None
    mem_peak_mib: float | None
    worked: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A command line as a study: what can be said before it runs."""

    words: tuple[str, ...]
    """The command as typed, without variables before it."""
    env: Mapping[str, str]
    template: Template
    searches: tuple[SearchedFlag, ...]
    devices: str
    """The devices to watch, as a study names them."""
    likely: tuple[str, ...]
    """Presets of the libraries that the script imports, or the preset that the user names."""
    python: str = ""
    """The Python of the environment that has the command's program; empty for programs of the system."""

    @property
    def config(self) -> Config:
        """The config with which the command is watched: its own values."""
        return {search.parameter: search.first for search in self.searches}

    @property
    def trainer(self) -> dict[str, Any]:
        """The trainer of the study before its progress is known."""
        return {"name": "command", "python": self.python, "options": {"command": self.template.words, "env": self.env}}

    @property
    def batch(self) -> str:
        """The parameter that says how many samples a rank takes at once."""
        names = [search.parameter for search in self.searches]
        usual = (name for name in names if name in {*BATCHES, *ENVIRONMENTS})
        return next(chain(usual, (name for name in names if "batch" in name)), BATCHES[0])

    def space(self) -> dict[str, dict[str, Any]]:
        """Return the study's space."""
        return {search.parameter: self._values(search) for search in self.searches}

    def _values(self, search: SearchedFlag) -> dict[str, Any]:
        if search.auto:
            return {"ladder": "auto", "min": search.values[0], "max": search.values[-1]}
        if search.parameter == "num_envs":
            return {"ladder": list(search.values)}
        workers = next((one for one in self.searches if one.parameter in WORKERS and 0 in one.values), None)
        needs = {workers.parameter: {"min": 1}} if workers and as_parameter(search.flag) in NEEDS_WORKERS else {}
        return {"choices": list(search.ordered), **({"when": needs} if needs else {})}

    def samples_per_iteration(self, preset: str | None) -> str:
        """Return the samples of an iteration as arithmetic, as the preset knows them; empty where they are unknown.

        A trainer that only prints lines like those of a preset may count something else.
        """
        same = [name for name in self.likely if preset and PRESETS[name].progress == PRESETS[preset].progress]
        for name in same:
            if (filled := self._arithmetic(PRESETS[name].samples)) is not None:
                return filled
        return ""

    def _arithmetic(self, expression: str) -> str | None:
        """Fill an expression with what the command sets; None where it lacks a flag that has no neutral value."""
        typed: dict[str, Value] = {one.parameter: one.value for one in settings(self.words)}
        searched = {search.parameter for search in self.searches}
        known = {"gradient_accumulation_steps": 1, **typed}
        names = re.findall(r"\{(\w+)\}", expression)
        if not expression or any(
            name not in {*searched, "ranks"} and not _is_number(known.get(name)) for name in names
        ):
            return None
        fixed = {name: known[name] for name in names if name not in {*searched, "ranks"}}
        filled = re.sub(r"\{(\w+)\}", lambda found: str(fixed.get(found[1], found[0])), expression)
        return filled.removesuffix(" * 1")


def draft(
    command: Sequence[str],
    asked: Sequence[str] = (),
    *,
    devices: str | None = None,
    preset: str | None = None,
    python: str | None = None,
    ask: Ask | None = None,
) -> Draft:
    """Read a command line. `ask` is called where nothing is `asked` for, with the command's words and a rank's cores.

    Raises StudyError where nothing can be searched or a flag would be added in vain, DeviceError for unknown devices.
    """
    env, words = variables(shlex.split(command[0]) if len(command) == 1 else command)
    if not words:
        raise StudyError("there is no command after `--`; write tuner init -- python train.py --batch-size 32")
    likely = (preset,) if preset else imported(words)
    count = ranks(words)
    chosen = devices or _devices(count)
    opened = open_devices(chosen).devices
    cores = max(1, usable_cores() // len(opened))
    found = searches(words, asked or (ask(words, cores) if ask else ()), cores)
    placeholders = {search.flag: search.placeholder for search in found}
    presets: list[Preset] = [PRESETS[name] for name in likely]
    filled = template(words, placeholders, env.values())
    _check_added(words, filled)
    return Draft(
        words=tuple(words),
        env={
            **(presets[0].env if presets else {}),
            **(INTERACTIVE if "rich" in modules(words) else {}),
            **{name: literal_text(value, placeholders) for name, value in env.items()},
        },
        template=filled,
        searches=found,
        devices=chosen,
        likely=likely,
        python=python or environment(words[0]),
    )


def _check_added(words: Sequence[str], filled: Template) -> None:
    added = [instead for typed, instead in filled.replaced if not typed]
    if added and (script := deaf_script(words)):
        raise StudyError(
            f"{script} reads no flags, so adding {' '.join(added)} would change nothing; write the placeholder, "
            f'such as {added[0].split()[-1]}, where the command has the value, or pass "$@" on in the script'
        )


def environment(program: str) -> str:
    """Return the Python beside a program that PATH finds in an environment of venv or conda; empty for any other."""
    found = shutil.which(program)
    folder = Path(found).parent if found and os.sep not in program else Path()
    kept = [folder.parent / name for name in ("pyvenv.cfg", "conda-meta")]
    python = folder / "python"
    return str(python.absolute()) if python.exists() and any(path.exists() for path in kept) else ""


def _devices(count: int | None) -> str:
    """Return the devices to watch for so many ranks; without a number, every card or one CPU rank."""
    if not open_devices("auto").devices[0].is_gpu:
        return f"cpu:{count or 1}"
    cards = len(open_devices("auto").devices)
    return "auto" if count is None or count >= cards else ",".join(map(str, range(count)))


def imported(words: Sequence[str]) -> tuple[str, ...]:
    """Return the presets whose modules the command's script imports, the most specific first."""
    found = modules(words)
    return tuple(name for name in reversed(list(PRESETS)) if found & set(PRESETS[name].modules))


def modules(words: Sequence[str]) -> frozenset[str]:
    """Return the modules that the command's script imports; none where the command names no script that can be read."""
    name = script(words)
    try:
        text = Path(name).read_text(encoding="utf-8") if name else ""
    except (OSError, UnicodeDecodeError):
        return frozenset()
    return frozenset(re.findall(r"^\s*(?:from|import)\s+(\w+)", text, re.MULTILINE))


def used(watched: Watched, devices: Sequence[Device]) -> list[Used]:
    """Return how the command used each device, from its first iteration on."""
    begin_s = watched.found.reports[0].t_s if len(watched.found.reports) > 1 else 0.0
    return [
        _used(device, [one for one in watched.samples if one.device == place], begin_s)
        for place, device in enumerate(devices)
    ]


def _used(device: Device, samples: Sequence[DeviceSample], begin_s: float) -> Used:
    shares = [one.util_pct for one in samples if one.util_pct is not None and one.t_s >= begin_s]
    memory = [one.mem_used_mib for one in samples if one.mem_used_mib is not None]
    util_pct = fmean(shares) if shares else None
    grew = bool(memory) and max(memory) - memory[0] > USED_MIB
    worked = (util_pct or 0.0) > 0 or grew if device.is_gpu else (util_pct or 0.0) >= IDLE_PCT
    return Used(device=device, util_pct=util_pct, mem_peak_mib=max(memory, default=None), worked=worked)


def narrowed(devices: str, uses: Sequence[Used]) -> str:
    """Return the devices that the command really used, as a study names them."""
    working = [place for place, use in enumerate(uses) if use.worked]
    if len(working) in {0, len(uses)}:
        return devices
    if not uses[0].device.is_gpu:
        return f"cpu:{len(working)}"
    return ",".join(uses[place].device.name.removeprefix("cuda:") for place in working)


def study_name(words: Sequence[str]) -> str:
    """Return a study's name for a command: that of its script."""
    stem = Path(script(words) or words[0]).stem
    return re.sub(r"[^A-Za-z0-9_.-]", "_", as_parameter(stem)).lstrip("_.-") or "study"


def _is_number(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.isdecimal())


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstRun:
    """What a watched command showed, and on which devices."""

    watched: Watched
    devices: tuple[Device, ...]


def first_run(name: str, draft: Draft, folder: Path, limit_s: float) -> FirstRun:
    """Run a draft's command with its own values and watch it; its files go to `folder`.

    Raises TrainerError where the command cannot be understood, DeviceError where devices cannot be read.
    """
    spec = StudySpec.model_validate({"name": name, "trainer": draft.trainer, "space": draft.space()})
    trainer, source, clock = CommandTrainer(spec.trainer), open_devices(draft.devices), MonotonicClock()
    if program := trainer.missing_program():
        raise TrainerError(
            f"no program {program} is found; activate the environment that has it, or name its Python by --python"
        )
    variables = launch_variables(spec, source)
    watched = run_in(
        Slot(devices=source.devices, out_dir=folder.resolve(), limits=spec.probe, variables=variables),
        partial(trainer.plan, trainer.cases()[0], draft.config),
        partial(
            watch,
            launch=Launcher(clock),
            recorder=SamplingRecorder(source, clock, spec.probe.sample_seconds),
            clock=clock,
            limit_s=limit_s,
            likely=draft.likely,
        ),
    )
    return FirstRun(watched=watched, devices=source.devices)
