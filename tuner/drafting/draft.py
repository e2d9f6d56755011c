"""Makes a study from a command line, and runs the command once to watch it."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from tuner.count import Flag
from tuner.devices.cpu import usable_cores
from tuner.devices.found import open_devices
from tuner.drafting import command_lines
from tuner.drafting.roles import Role
from tuner.drafting.run_flags import flags_in_files, flags_of
from tuner.drafting.searches import Known, SearchedFlag, proposed
from tuner.drafting.typed import TypedCommand
from tuner.drafting.watching import Watched, watch
from tuner.errors import StudyError, TrainerError
from tuner.probe import IDLE_PCT, Device, DeviceSample, MonotonicClock, Process, SamplingRecorder, Slot
from tuner.running.prober import run_in
from tuner.running.workbench import launch_variables
from tuner.study import Config, StudySpec, Value
from tuner.trainers.command import CommandTrainer
from tuner.trainers.presets import PRESETS

WAITS_PCT, MOST_WORKERS, MOST_DOUBLINGS = 50.0, 64, 12
"""Where devices are less busy, more workers than cores are tried, up to so many; sizes double at most so often."""
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

    command: TypedCommand
    env: Mapping[str, str]
    template: command_lines.Template
    searches: tuple[SearchedFlag, ...]
    devices: str
    """The devices to watch, as a study names them."""
    likely: tuple[str, ...]
    """Presets of the libraries that the script imports, or the preset that the user names."""
    python: str = ""
    """The Python of the environment that has the command's program; empty for programs of the system."""
    precision: tuple[SearchedFlag, ...] = ()
    """The flags of the precision that nobody has confirmed, and that are not searched."""
    flags: tuple[Flag, ...] = ()
    """The flags of the command's script, as far as they are known."""

    @property
    def searched(self) -> tuple[SearchedFlag, ...]:
        """The flags that are parameters of the study."""
        return tuple(search for search in self.searches if not search.computed)

    @property
    def computed(self) -> dict[str, str]:
        """The flags that follow from others, and their arithmetic."""
        return {search.parameter: search.computed for search in self.searches if search.computed}

    @property
    def config(self) -> Config:
        """The config with which the command is watched: its own values."""
        config = {search.parameter: search.first for search in self.searched}
        return {name: value for name, value in config.items() if not self._needs(name) or config[self._workers] != 0}

    @property
    def trainer(self) -> dict[str, Any]:
        """The trainer of the study before its progress is known."""
        options = {"command": self.template.words, "env": self.env, "computed": self.computed, "files": self.files}
        options["count"] = "inside"
        return {"name": "command", "python": self.python, "options": options}

    @property
    def unset(self) -> dict[str, Value]:
        """The searched flags that the command does not name, with the values that the script has without them."""
        typed = {one.parameter for one in command_lines.settings(self.command.words, self.flags)}
        return {
            search.parameter: search.typed
            for search in self.searched
            if search.typed is not None and not (search.is_switch or search.file) and search.parameter not in typed
        }

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """Configuration file → parameter → the keys to its value."""
        found: dict[str, dict[str, str]] = {}
        for search in self.searches:
            if search.file:
                found.setdefault(search.file, {})[search.parameter] = search.flag.partition(":")[2]
        return found

    @property
    def varies(self) -> bool:
        """Whether a flag has more than one value."""
        return any(search.varies for search in self.searches)

    @property
    def keeps_iterations(self) -> bool:
        """Whether an iteration has the same samples with all values, so that iterations/s compare configs."""
        return all(search.keeps_iterations for search in self.searches)

    @property
    def _typed(self) -> dict[str, str]:
        return {one.parameter: one.value for one in command_lines.settings(self.command.words, self.flags)}

    def space(self) -> dict[str, dict[str, Any]]:
        """Return the study's space."""
        return {search.parameter: self._values(search) for search in self.searched}

    @property
    def _workers(self) -> str:
        """The parameter with the workers of the loader, where no worker is among its values; otherwise empty."""
        without = [search for search in self.searched if Role.WORKERS.has(search.flag) and 0 in search.values]
        return without[0].parameter if without else ""

    def _needs(self, parameter: str) -> bool:
        return bool(self._workers) and Role.OF_WORKERS.has(parameter)

    def _values(self, search: SearchedFlag) -> dict[str, Any]:
        if search.auto:
            return {"ladder": "auto", "min": search.values[0], "max": search.values[-1]}
        needs = {"when": {self._workers: {"min": 1}}} if self._needs(search.parameter) else {}
        return {"choices": list(search.ordered), **_growth(search), **needs}

    def samples_per_iteration(self, preset: str | None) -> str:
        """Return the samples of an iteration as arithmetic, as the preset knows them; empty where they are unknown.

        A trainer that only prints lines like those of a preset may count something else.
        """
        same = [name for name in self.likely if preset and PRESETS[name].progress == PRESETS[preset].progress]
        return next(filter(None, (self._arithmetic(PRESETS[name].samples) for name in same)), "")

    def _arithmetic(self, expression: str) -> str:
        """Fill an expression with what the command sets; empty where it lacks a flag that has no neutral value."""
        kept = {"ranks", *(search.parameter for search in self.searches)}
        listed = {flag.parameter: flag.value for flag in self.flags if flag.value}
        known = {"gradient_accumulation_steps": "1", **listed, **self._typed}
        fixed = {name: known.get(name, "") for name in re.findall(r"\{(\w+)\}", expression) if name not in kept}
        if not all(map(str.isdecimal, fixed.values())):
            return ""
        filled = re.sub(r"\{(\w+)\}", lambda found: fixed.get(found[1], found[0]), expression)
        return filled.removesuffix(" * 1")


def _growth(search: SearchedFlag) -> dict[str, int]:
    """Return how far a range of sizes grows that no person has chosen: to four times its largest value."""
    sizes = [value for value in search.values if isinstance(value, int) and not isinstance(value, bool)]
    if not search.grows or len(sizes) < max(2, len(search.values)):
        return {}
    return {"grow": 4 * max(sizes)}


def draft(
    command: TypedCommand,
    *,
    devices: str | None = None,
    preset: str | None = None,
    python: str | None = None,
) -> Draft:
    """Read a command line that nobody has watched yet: nothing is searched. Raises DeviceError for unknown devices."""
    python = python or environment(command.words[0])
    likely = (preset,) if preset else command.presets
    texts = {name: command_lines.literal_text(text, _placeholders_in(text)) for name, text in command.env.items()}
    drafted = Draft(
        command=command,
        env={**(PRESETS[likely[0]].env if likely else {}), **texts},
        template=command_lines.Template(words=(), replaced=()),
        searches=(),
        devices=devices or _devices(command_lines.ranks(command.words)),
        likely=likely,
        python=python,
    )
    return replace(drafted, template=_template(drafted))


def _placeholders_in(text: str) -> dict[str, str]:
    return {found: found for found in re.findall(r"\{[A-Za-z_]\w*\}", text)}


def known_of(
    drafted: Draft, watched: Watched, uses: Sequence["Used"], *, free_batch: bool = False, free_precision: bool = False
) -> Known:
    """Return what is known of a command that was watched."""
    read = flags_of(watched.processes, drafted.command)
    return Known(
        words=drafted.command.words,
        cores=max(1, usable_cores() // max(1, len(uses))),
        flags=(*read.flags, *_beside(flags_in_files(watched.processes), read.flags)),
        reader=read.reader,
        knows_all=read.is_known,
        training=watched.training,
        on_gpu=any(use.device.is_gpu for use in uses),
        free_batch=free_batch,
        free_precision=free_precision,
    )


def _beside(in_files: Iterable[Flag], flags: Sequence[Flag]) -> list[Flag]:
    """Return the settings in files that no flag of the script has: a flag goes before a file."""
    named = {flag.parameter for flag in flags if flag.typed}
    return [flag for flag in in_files if flag.parameter not in named]


def searching(drafted: Draft, found: Sequence[SearchedFlag], known: Known) -> Draft:
    """Return a draft that searches these flags. Raises StudyError where a flag would be added in vain."""
    named = {search.flag for search in found}
    left = tuple(one for one in proposed(known) if one.is_precision and one.flag not in named)
    whole = replace(drafted, searches=tuple(found), precision=left, flags=tuple(known.flags))
    whole = replace(whole, template=_template(whole), env=_with_placeholders(whole))
    _check_added(whole.command.words, whole.template)
    return whole


def _template(drafted: Draft) -> command_lines.Template:
    placeholders = {search.flag: search.placeholder for search in drafted.searches if not search.file}
    folder = {"hydra.run.dir": "{out_dir}"} if drafted.command.uses_hydra else {}
    typed = drafted.command
    return command_lines.template(typed.words, {**placeholders, **folder}, typed.env.values(), drafted.flags)


def _with_placeholders(drafted: Draft) -> dict[str, str]:
    placeholders = {search.flag: search.placeholder for search in drafted.searches}
    typed = {name: command_lines.literal_text(value, placeholders) for name, value in drafted.command.env.items()}
    return {**drafted.env, **typed}


def widened(drafted: Draft, uses: Sequence["Used"]) -> Draft:
    """Return a draft with values that are worth a probe by what was watched.

    Sizes that may grow do so until memory is used up. More workers than cores help where devices and cores wait. There
    the flags of the loader come first, because a search tries the first flags first.
    """
    waits = all(use.util_pct is not None and use.util_pct < WAITS_PCT for use in uses)
    totals = [(use.device.mem_total_mib, use.mem_peak_mib) for use in uses if use.device.is_gpu]
    room = min((total / used for total, used in totals if total and used), default=0.0)

    def grown(search: SearchedFlag) -> SearchedFlag:
        sizes: list[int] = [value for value in search.values if isinstance(value, int)]
        if not search.grows:
            return search
        if Role.WORKERS.has(search.flag) and waits:
            sizes += [more for factor in (2, 4) if (more := max(sizes) * factor) <= MOST_WORKERS]
        elif not Role.WORKERS.has(search.flag) and isinstance(typed := search.typed, int):
            doubled = (typed << power for power in range(MOST_DOUBLINGS))
            sizes += [size for size in doubled if max(sizes) < size <= 2 * room * typed]
        return replace(search, values=tuple(dict.fromkeys(sizes)))

    first = sorted(drafted.searches, key=lambda search: waits and not search.is_of_loader)
    return replace(drafted, searches=tuple(map(grown, first)))


def _check_added(words: Sequence[str], filled: command_lines.Template) -> None:
    added = [instead for typed, instead in filled.replaced if not typed]
    if added and (script := command_lines.deaf_script(words)):
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
    found = open_devices("auto").devices
    if not found[0].is_gpu:
        return f"cpu:{count or 1}"
    return "auto" if count is None or count >= len(found) else ",".join(map(str, range(count)))


def used(watched: Watched, devices: Sequence[Device]) -> list[Used]:
    """Return how the command used each device, from its first iteration on."""
    begin_s = watched.reports[0].t_s if len(watched.reports) > 1 else 0.0
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


def devices_of(drafted: Draft, watched: Watched, uses: Sequence[Used]) -> str:
    """Return the devices that a command has used, as a study names them.

    On the CPU, each process whose optimizer steps is a rank, where these are counted.
    """
    working = [use.device for use in uses if use.worked]
    if not uses[0].device.is_gpu and (watched.training or len(working) not in {0, len(uses)}):
        return f"cpu:{watched.training.ranks if watched.training else len(working)}"
    if len(working) in {0, len(uses)}:
        return drafted.devices
    return ",".join(device.name.removeprefix("cuda:") for device in working)


def first_run(name: str, draft: Draft, folder: Path, limit_s: float) -> tuple[Watched, list[Used]]:
    """Run a draft's command with its own values and watch it and its devices; its files go to `folder`.

    Raises TrainerError where the command cannot be understood, DeviceError where devices cannot be read.
    """
    spec = StudySpec.model_validate(
        {"name": name, "trainer": draft.trainer, "space": draft.space() or {"nothing": {"choices": [0]}}}
    )
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
            launch=partial(Process, clock=clock),
            recorder=SamplingRecorder(source, clock, spec.probe.sample_seconds),
            clock=clock,
            limit_s=limit_s,
            likely=draft.likely,
            rewritten=", ".join(draft.template.changes),
        ),
    )
    return watched, used(watched, source.devices)
