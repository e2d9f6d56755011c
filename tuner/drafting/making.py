"""Makes the study file of a typed command: runs the command once, asks what to search, and writes the file."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from tuner.count import ProcessCounts
from tuner.devices.found import VISIBLE_CARDS, named_devices, open_devices
from tuner.drafting import writing
from tuner.drafting.asking import check_flags_exist, flags_to_search, flags_with_placeholders, search_lines
from tuner.drafting.draft import Draft, draft, growth_limit, with_searches
from tuner.drafting.run_flags import known_of, launch_of_script, with_larger_values
from tuner.drafting.searches import Known, SearchedFlag, no_variation
from tuner.drafting.watching import Watched, first_run, longest_start_s
from tuner.errors import DeviceError, StudyError, option
from tuner.export import write_files
from tuner.probe import duration, number_of
from tuner.study import NAME, StudySpec, key_warnings, load, read_mapping, shell_join, value_text
from tuner.study.command_words import ranks, split_variables
from tuner.trainers.typed_command import TypedCommand, typed_command

STUDIES = Path("studies")
"""The folder of the study files."""
SERVICE_CLIENTS = ("srun", "docker", "podman")
"""Programs that let a service start the training, so that the training is no child process of the program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The options of `tuner init` and `tuner optimize` about the study of a command."""

    search: list[str] | None = None
    name: str | None = None
    out: Path | None = None
    devices: str | None = None
    python: str | None = None
    launch: list[str] | None = None
    seconds: float = 60.0
    free_batch: bool = False
    free_precision: bool = False
    yes: bool = False
    force: bool = False
    runs: Path = Path("runs")

    def __post_init__(self) -> None:
        """Raise StudyError for an impossible name, and for both `--launch` and `--search`."""
        if self.launch and self.search:
            raise StudyError(
                f"--launch and {option('search')} both name the space; write further parameters into the study file"
            )
        if self.name is not None and not re.fullmatch(NAME, self.name):
            raise StudyError(
                f"{self.name[:40]!r} names no study; use at most 100 letters, digits, dots, dashes, underscores"
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Wanted":
        """Return the options about a study's command among all `options` of a call: name → value."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})

    @property
    def free(self) -> list[str]:
        """The parts of the training that configs may change: `batch`, `precision`, both or none.

        The options allow a part by name. A `--search` of a flag such as `--dtype` allows the precision, too.
        """
        searched = " ".join(self.search or ())
        names_precision = any(word in searched for word in ("dtype", "precision", "amp", "bf16", "tf32", "fp16"))
        is_free = {"batch": self.free_batch, "precision": self.free_precision or names_precision}
        return [part for part in is_free if is_free[part]]

    def file(self, name: str) -> Path:
        """Return the path of the study file of a study called `name`."""
        return self.out or STUDIES / f"{name}.yaml"

    def check_may_write(self, file: Path) -> None:
        """Raise StudyError where the study file exists and may not be overwritten."""
        if file.exists() and not self.force:
            origin = shell_join(writing.command_of_file(file) or ())
            how = f"was made from another command, {origin[:200]}" if origin else "exists"
            raise StudyError(f"{file} {how}; give {option('force')} to overwrite it, or another {option('name')}")


def make_study(
    command: Sequence[str],
    wanted: Wanted,
    say: Callable[[str], None],
    *,
    warn: Callable[[str], None],
    ask: Callable[[str], str] | None = None,
    to_search: bool = False,
) -> str:
    """Run a command once, write its study file, and return how other commands of the tuner name the study.

    They name it by its name, or by the path of its file where the file is not in the usual folder.

    Args:
        command: the words as typed.
        wanted: the options about the study.
        say: shows a line.
        warn: shows a line that must not be missed.
        ask: shows a question, and returns what the person types; None where nobody is asked.
        to_search: whether a search follows. Then an existing file of the same command is used without a first run, and
            StudyError is raised where no flag has several values.

    Raises:
        StudyError: where a file of another command exists; with `to_search`, also where the file of this command has
            another space than the options name, or no flag has several values.
        TrainerError: where the first run shows no progress.
        DeviceError: where devices cannot be read.
    """
    typed = typed_command(command)
    name = wanted.name or typed.name
    file = wanted.file(name)
    known_as = name if file == STUDIES / f"{name}.yaml" else str(file)
    made_from = split_variables(tuple(writing.command_of_file(file) or ()))
    if to_search and not wanted.force and made_from == (typed.env, typed.words):
        _check_options_of_file(file, wanted)
        say(f"{file} was made from this command, so it is used; {option('force')} replaces it")
        return known_as
    wanted.check_may_write(file)
    wanted = _with_devices_of_variable(wanted, typed)
    # the study before the first run, which needs the values of typed placeholders; a wrong `--search` is refused now
    searches = flags_with_placeholders(wanted.search or [], Known(words=typed.words, env=typed.env, cores=1))
    drafted = draft(typed, devices=wanted.devices, python=wanted.python, searches=searches)
    folder = wanted.runs / name
    if (folder / "study.db").exists():
        say(f"{folder} has trials of another {file}, which may be judged anew; another name begins without them")
    if (program := Path(typed.words[0]).name) in SERVICE_CLIENTS:
        warn(f"{program} starts the training outside of the tuner, so files that a probe writes are not protected")
    # the study file
    if wanted.launch:
        say(f"probes run on {_devices_in_words(drafted.devices)}")
        text = writing.launch_text(name, drafted, wanted.launch)
    else:
        ask = None if wanted.yes or wanted.search else ask
        had_a_first_run = (folder / "init").exists()
        try:
            text = _watched_text(name, drafted, wanted, folder, say, ask=ask, to_search=to_search)
        except KeyboardInterrupt:
            if not had_a_first_run:
                rmtree(folder / "init", ignore_errors=True)
                with suppress(OSError):  # a folder with the results of a search is not empty, and stays
                    folder.rmdir()
                say("the first run is not kept; rerun to start again")
            raise
    text = writing.with_search_options(text, wanted.search or ())
    write_study(file, text, say, warn=warn, to_search=to_search)
    return known_as


def _with_devices_of_variable(wanted: Wanted, typed: TypedCommand) -> Wanted:
    """Return the options with the devices of a CUDA_VISIBLE_DEVICES before the command; unchanged without one.

    Raises StudyError where `--devices` names other devices, and DeviceError for cards that do not exist here.
    """
    cards = typed.env.get(VISIBLE_CARDS)
    if cards is None:
        return wanted
    if cards in {"", "-1"}:  # it hides all cards
        return replace(wanted, devices=wanted.devices or f"cpu:{ranks(typed.words) or 1}")
    devices = named_devices(cards, os.environ.get(VISIBLE_CARDS))
    if wanted.devices not in {None, devices}:
        raise StudyError(
            f"the command has {VISIBLE_CARDS}={cards}, and you ask for {wanted.devices}; leave one of them out"
        )
    return replace(wanted, devices=devices)


def _check_options_of_file(file: Path, wanted: Wanted) -> None:
    """Raise StudyError where the options differ from those with which an existing study file was made.

    Only options about the devices and the space are compared. An option that is not given differs from nothing.
    """
    if not (wanted.search or wanted.launch or wanted.free or wanted.devices):
        return
    spec = load(str(file), to_show=True)
    # a first run may have written fewer than the devices asked for: the cards, or ranks, that worked
    devices = wanted.devices or "auto"
    is_cpu = devices.startswith("cpu") and spec.devices.startswith("cpu")
    if not (devices.startswith("auto") or is_cpu or set(spec.devices.split(",")) <= set(devices.split(","))):
        raise StudyError(
            f"{file} was made from this command for devices {spec.devices}, not {wanted.devices}; leave out the "
            f"devices to go on with the file, or give another {option('name')}, or {option('force')} to overwrite it"
        )
    has_same_search = not wanted.search or sorted(writing.search_options_of(file)) == sorted(wanted.search)
    has_same_launch = not wanted.launch or tuple(wanted.launch) == spec.launch
    kept_parts = spec.trainer.options.get("keeps")  # parts of the training that no config of the file may change
    kept = [part for part in wanted.free if isinstance(kept_parts, list) and part in kept_parts]
    if has_same_search and has_same_launch and not kept:
        return
    searched = " ".join(f"{name}={','.join(map(value_text, part.values))}" for name, part in spec.space.items())
    keeps = f", and keeps {' and '.join(kept)}" if kept else ""
    raise StudyError(
        f"{file} was made from this command with other options for its space: it searches {searched[:200]}{keeps}; "
        f"leave these options out to go on with the file, or give another {option('name')}, or {option('force')} to "
        "overwrite it"
    )


def _watched_text(
    name: str,
    drafted: Draft,
    wanted: Wanted,
    folder: Path,
    say: Callable[[str], None],
    *,
    ask: Callable[[str], str] | None,
    to_search: bool,
) -> str:
    """Run a command once, ask what to search, and return the text of its study file.

    `folder` is the study's folder for results: the output of the first run goes to its folder `init`. `say` shows a
    line, `ask` shows a question and returns the answer, and `to_search` says whether a search follows. Raises the
    errors of `make_study`.
    """
    longest = duration(longest_start_s(wanted.seconds))
    on = _devices_in_words(drafted.devices)
    say(f"watching the command for up to {duration(wanted.seconds)}, or {longest} before its first step, on {on}")
    if changes := drafted.template.changes:
        say("your script and your command stay as they are; to start a probe, the tuner")
        for change in changes:
            say(f"  {change}")

    def check(processes: Sequence[ProcessCounts]) -> None:
        """Raise StudyError for a `--search` of a flag that the script does not have."""
        check_flags_exist(wanted.search or (), known_of(drafted, Watched(processes=tuple(processes))))

    watched = first_run(name, drafted, folder / "init", wanted.seconds, check)
    for line in writing.first_run_lines(watched):
        say(line)

    def limit_with_larger(search: SearchedFlag) -> int | None:
        """Return the `growth_limit` of a flag once `chosen` below has added larger values to it; None without one."""
        (with_larger,) = with_larger_values([search], watched.uses)
        return growth_limit(with_larger)

    # what is searched
    known = known_of(drafted, watched, free_batch=wanted.free_batch, free_precision=wanted.free_precision)
    if not wanted.search:
        known = replace(known, launch=launch_of_script(known))
    flags = flags_to_search(known, wanted.search or (), say=say, ask=ask, growth_limit=limit_with_larger)
    chosen = with_larger_values(flags, watched.uses)
    drafted = with_searches(drafted, chosen, known)
    if to_search and not (drafted.varies or known.launch):
        raise StudyError(no_variation(drafted.searched, known))
    text = writing.study_text(name, drafted, watched, launch=known.launch, free=wanted.free, needs_speed=to_search)
    if not ask:  # `flags_to_search` shows the flags only to a person who is asked
        for line in search_lines(
            drafted.searches, free=wanted.free_batch, growth_limit=growth_limit, precision=drafted.precision
        ):
            say(line)
    return text


def _devices_in_words(devices: str) -> str:
    """Return a study's `devices` in words: `2 cards` for `auto:2`, `the CPU, as 2 ranks` for `cpu:2`."""
    kind, _, count = devices.partition(":")
    if kind == "cpu":
        return f"the CPU, as {number_of(count, 'rank')}" if count else "the CPU"
    if kind == "auto":
        return number_of(count, "card") if count else "all cards"
    return f"card {devices}" if devices.isdigit() else f"cards {devices}"


def write_study(
    file: Path, text: str, say: Callable[[str], None], *, warn: Callable[[str], None], to_search: bool = False
) -> None:
    """Write the text of a study to its file, and show the parameters that its ready-made spaces add to the file's own.

    Only its owner can read a file that holds a secret key; any other file has the usual mode of new files. `say`
    and `warn` show a line. With `to_search`, a search follows, which warns of keys itself.
    """
    path = file.resolve()
    write_files(path.parent, {path.name: text.encode()})
    spec = load(str(file))
    if keys := key_warnings(spec):  # `write_files` has made it readable by its owner alone
        warn("\n".join([*([] if to_search else keys), f"only you can read {file}, as it holds a key"]))
    else:
        umask = os.umask(0o077)  # Python reads the mask only by setting it
        os.umask(umask)
        with suppress(OSError):
            path.chmod(0o666 & ~umask)
    say(f"wrote {file}")
    if spec.launch:
        _say_launches(spec, file, say)


def _say_launches(spec: StudySpec, file: Path, say: Callable[[str], None]) -> None:
    """Show the parameters that a study has only from its ready-made spaces (`launch`), with their values."""
    say(f"searched for {', '.join(spec.launch)}, your own value first; rules leave out what cannot run together:")
    device_count = None
    with suppress(DeviceError):  # unknown on another machine than that of the devices
        device_count = spec.devices_of_trial(len(open_devices(spec.devices).devices))
    named_in_file = read_mapping(file).get("space", {})
    for parameter, searched in spec.space.items():
        if parameter in named_in_file:
            continue
        values = searched.values if device_count is None else spec.possible(parameter, searched.values, device_count)
        say(f"  {parameter}={','.join(map(value_text, values))}")
