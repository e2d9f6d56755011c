"""What the first run shows of a command's flags: which there are, their values in force, and values worth a probe."""

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from tuner.count import Flag, ProcessCounts
from tuner.devices.cpu import usable_cores
from tuner.drafting.draft import Draft
from tuner.drafting.searches import Known, Role, SearchedFlag
from tuner.drafting.watching import DeviceUse, Watched
from tuner.probe import BUSY_PCT
from tuner.study import Expression, Value, launch_with_flags, named_files, values_in, with_launches
from tuner.study.command_words import settings
from tuner.trainers.typed_command import TypedCommand, syntax_tree, text_of


def known_of(drafted: Draft, watched: Watched, *, free_batch: bool = False, free_precision: bool = False) -> Known:
    """Return what the first run has shown of a command: its flags with their values, its training, its cores.

    A value of a configuration file counts as a flag, too, such as `train.yaml:train.batch_size`: if the command names
    the file, the script has read it, and no flag of the same name is typed.
    """
    known = Known(
        words=drafted.command.words,
        env=drafted.command.env,
        cores=max(1, usable_cores() // max(1, len(watched.uses))),
        training=watched.training,
        on_gpu=any(use.device.is_gpu for use in watched.uses),
        is_disturbed=any((use.others_pct or 0.0) >= BUSY_PCT for use in watched.uses),
        free_batch=free_batch,
        free_precision=free_precision,
    )
    known = _with_flags(known, watched.processes, drafted.command)
    typed = {flag.parameter for flag in known.flags if flag.typed}
    of_files: list[Flag] = []
    path_of = {word: path for process in watched.processes for path, word in process.files.items()}
    for word, path in path_of.items():
        for name in {*named_files([word])} & {*named_files(known.words)}:  # of `--config=train.yaml`, `train.yaml`
            for keys, value in values_in(Path(path)).items():  # such as `train.yaml:train.batch_size`
                of_files.append(Flag(names=(f"{name}:{keys}",), value=str(value)))
    return replace(known, flags=(*known.flags, *(flag for flag in of_files if flag.parameter not in typed)))


def launch_of_script(known: Known) -> str | None:
    """Return the name of the ready-made space that fits the flags of a command and its script.

    Returns None where none fits, and where it finds nothing in the command that it could vary.
    """
    names = [name for flag in known.flags for name in flag.names]
    names += [setting.name for setting in settings(known.words, with_bare=True)]
    launch = launch_with_flags(names)
    if launch is None:
        return None
    try:
        # called for its ValueError: the space finds nothing to vary
        with_launches({"launch": launch, "trainer": {"name": "command", "options": {"command": list(known.words)}}})
    except ValueError:
        return None
    return launch


def _with_flags(known: Known, processes: Sequence[ProcessCounts], command: TypedCommand) -> Known:
    """Return `known` with the flags of the command's script, and with whether these are all its flags (`knows_all`).

    1. They are the flags that a training process has parsed, or else the first process of the script.
    2. A script such as nanoGPT's has its global variables as flags.
    3. Otherwise no flag is known. The script surely has none if it has trained without reading its command line.
    """
    name = PurePath(command.script).name
    of_script = [process for process in processes if process.argv and PurePath(process.argv[0]).name == name]
    training = [process for process in processes if process.trains]
    # 1
    if with_flags := [process for process in (*training, *of_script) if process.flags]:
        return replace(known, flags=with_flags[0].flags, reader=with_flags[0].parser, knows_all=True)
    # 2
    if re.search(r"globals\(\)|configurator\.py", command.source):  # as nanoGPT
        return replace(known, flags=tuple(_global_settings(command)), reader="its global settings", knows_all=True)
    # 3
    may_read_words = not of_script or any(process.reads_argv for process in of_script)  # no process: unknown
    return replace(known, knows_all=bool(training) and not may_read_words)


def _global_settings(command: TypedCommand) -> Iterator[Flag]:
    """Yield the global variables of a script as flags, with the values that the command gives them.

    A word `--name=value` sets a variable. A word without dashes is a configuration file, as in
    `train.py config/train_gpt2.py`. The script takes the words in order, so that a file replaces the options before it.
    """
    flags = _flags_read_in_order(command.source)
    for word in command.words:
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("--") and equals and name in flags:
            flags[name] = replace(flags[name], value=value, typed=True)
        elif word.endswith(".py") and not word.startswith("-") and word != command.script:
            flags |= {name: flag for name, flag in _flags_read_in_order(text_of(word)).items() if name in flags}
    yield from flags.values()


def _flags_read_in_order(source: str) -> dict[str, Flag]:
    """Return name → flag for each global variable of a script that is a constant, or arithmetic such as `5 * 8`.

    The flags have `is_read_in_order`: a later word of the command replaces their values.
    """
    constants: dict[str, Value] = {}
    tree = syntax_tree(source)
    for statement in tree.body if tree else ():
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=constant)):
                if isinstance(constant, int | float | str):
                    constants[name] = constant
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp() | ast.UnaryOp() as value):
                with suppress(ValueError):  # it has names or functions in it
                    number = Expression(ast.unparse(value)).value({}) or 0.0
                    constants[name] = int(number) if number.is_integer() else number
    return {name: Flag(names=(name,), value=str(value), is_read_in_order=True) for name, value in constants.items()}


def with_larger_values(searches: Sequence[SearchedFlag], uses: Sequence[DeviceUse]) -> list[SearchedFlag]:
    """Return flags with larger values added, where the devices had room for them in the first run.

    Sizes are doubled up to the first one that should need more than all memory. Where all devices were less than half
    busy, two and four times as many loader workers are added, up to the flag's `most`. Then the flags of the loader
    come first, because a search varies the first flags first.
    """
    are_devices_idle = all(use.util_pct is not None and use.util_pct < 50.0 for use in uses)
    memory_mib = [(use.device.mem_total_mib, use.mem_peak_mib) for use in uses if use.device.is_gpu]
    # the memory of the fullest card over what the run used of it; 0 on the CPU
    memory_ratio = min((total / peak for total, peak in memory_mib if total and peak), default=0.0)

    def with_larger(search: SearchedFlag) -> SearchedFlag:
        """Return a flag with larger values added, if it may grow and the devices have room for them."""
        if not search.grows:
            return search
        sizes: list[int] = [value for value in search.values if isinstance(value, int)]
        largest = max(sizes)
        if Role.WORKERS.has(search.flag):
            if are_devices_idle:
                sizes += [size for size in (2 * largest, 4 * largest) if size <= (search.most or 0)]
        elif isinstance(current := search.current, int):
            doublings = (current << power for power in range(12))
            # what fits is `memory_ratio * current`; the next doubling shows where memory ends
            sizes += [size for size in doublings if largest < size <= 2 * memory_ratio * current]
        return replace(search, values=tuple(dict.fromkeys(sizes)))

    in_order = sorted(searches, key=lambda search: not search.is_of_loader) if are_devices_idle else searches
    return list(map(with_larger, in_order))
