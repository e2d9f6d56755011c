"""Makes the study file of a typed command: watches the command, asks what is searched, and writes the file."""

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
from tuner.drafting.asking import check_names, search_lines, searches, searches_with_placeholders
from tuner.drafting.command_lines import ranks
from tuner.drafting.draft import Draft, draft, growth_limit, with_searches
from tuner.drafting.run_flags import known_of, launch_shown_by, with_more_values
from tuner.drafting.searches import Known, SearchedFlag, no_variation
from tuner.drafting.watching import Watched, first_run, longest_start_s
from tuner.drafting.writing import asked_of, command_of_file, first_run_lines, launch_text, study_text, with_asked
from tuner.errors import DeviceError, StudyError, option
from tuner.export import write_files
from tuner.probe import duration, number_of
from tuner.study import NAME, StudySpec, exposed, load, read_mapping, shell_join, value_text
from tuner.trainers.presets import PRESETS
from tuner.trainers.typed_command import TypedCommand, split_variables, typed_command

STUDIES = Path("studies")
"""The folder of the study files."""
ELSEWHERE = ("srun", "docker", "podman")
"""Programs that let a service start the training, which is then no child of the program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The options of `tuner init` and `tuner optimize` about the study of a command."""

    search: list[str] | None = None
    name: str | None = None
    out: Path | None = None
    devices: str | None = None
    python: str | None = None
    preset: str | None = None
    launch: list[str] | None = None
    seconds: float = 60.0
    free_batch: bool = False
    free_precision: bool = False
    yes: bool = False
    force: bool = False
    runs: Path = Path("runs")

    def __post_init__(self) -> None:
        """Raises StudyError for an unknown preset, a name that no study can have, and two ways to name the space."""
        if self.launch and self.search:
            raise StudyError(
                f"--launch and {option('search')} both name the space; write further parameters into the study file"
            )
        if self.name is not None and not re.fullmatch(NAME, self.name):
            raise StudyError(
                f"{self.name[:40]!r} names no study; use at most 100 letters, digits, dots, dashes, underscores"
            )
        if self.preset is not None and self.preset not in PRESETS:
            raise StudyError(f"no preset is called {self.preset!r}; known: {', '.join(PRESETS)}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Wanted":
        """Return the options about a study's command among all `options` of a call: name → value."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})

    @property
    def free(self) -> list[str]:
        """The parts of the training that configs may change: `batch`, `precision`, or both.

        The precision may change, too, where `--search` names a flag of it.
        """
        searched = " ".join(self.search or ())
        names_precision = any(word in searched for word in ("dtype", "precision", "amp", "bf16", "tf32", "fp16"))
        is_free = {"batch": self.free_batch, "precision": self.free_precision or names_precision}
        return [part for part in is_free if is_free[part]]

    def file(self, name: str) -> Path:
        """Return the path of the study file of a study called `name`."""
        return self.out or STUDIES / f"{name}.yaml"

    def check_free(self, file: Path) -> None:
        """Raise StudyError where the study file exists and may not be overwritten."""
        if file.exists() and not self.force:
            origin = shell_join(command_of_file(file) or ())
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
    """Make the study file of a command after a first run, and return how other commands name the study.

    That is its name, or the path of its file where this is not in the usual folder.

    Args:
        command: the words as typed.
        wanted: the options about the study.
        say: shows a line.
        warn: shows a line that must not be missed.
        ask: shows a question, and returns what the person types; None where nobody is asked.
        to_search: whether a search follows. Then a file that was made from the same command is used as it is, and a
            study in which nothing varies is refused.

    Raises:
        StudyError: where another file is in the way; with `to_search`, where the file of this command has another space
            than the options name, or nothing may vary.
        TrainerError: where the command cannot be understood.
        DeviceError: where devices cannot be read.
    """
    typed = typed_command(command)
    name = wanted.name or typed.name
    file = wanted.file(name)
    known_as = name if file == STUDIES / f"{name}.yaml" else str(file)
    made_from = split_variables(tuple(command_of_file(file) or ()))
    if to_search and not wanted.force and made_from == (typed.env, typed.words):
        _check_same_options(file, wanted)
        say(f"{file} was made from this command, so it is used; {option('force')} replaces it")
        return known_as
    wanted.check_free(file)
    wanted = _with_typed_cards(wanted, typed)
    # the study before the first run, which needs the values of typed placeholders; a wrong `--search` is refused now
    searches = searches_with_placeholders(wanted.search or [], Known(words=typed.words, env=typed.env, cores=1))
    drafted = draft(typed, devices=wanted.devices, preset=wanted.preset, python=wanted.python, searches=searches)
    folder = wanted.runs / name
    if (folder / "study.db").exists():
        say(f"{folder} has trials of another {file}, which may be judged anew; another name begins without them")
    if (program := Path(typed.words[0]).name) in ELSEWHERE:
        warn(f"{program} starts the training outside of the tuner, so files that a probe writes are not protected")
    # the study file
    if wanted.launch:
        say(f"probes run on {_devices_in_words(drafted.devices)}")
        text = launch_text(name, drafted, wanted.launch)
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
    text = with_asked(text, wanted.search or ())  # a line in it keeps the `--search` options for the next call
    write_study(file, text, say, warn=warn)
    return known_as


def _with_typed_cards(wanted: Wanted, typed: TypedCommand) -> Wanted:
    """Return the options, with the cards of a CUDA_VISIBLE_DEVICES before the command as the devices.

    Raises StudyError where `--devices` names other ones, and DeviceError for cards that cannot be taken.
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


def _check_same_options(file: Path, wanted: Wanted) -> None:
    """Raise StudyError where the options name another space or other devices than the study file was made with.

    Without options about them, any file of the command will do.
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
    asked, kept_parts = wanted.search or [], spec.trainer.options.get("keeps")
    is_as_asked = not asked or sorted(asked_of(file)) == sorted(asked)
    has_launch = not wanted.launch or tuple(wanted.launch) == spec.launch
    kept = [part for part in wanted.free if isinstance(kept_parts, list) and part in kept_parts]
    if is_as_asked and has_launch and not kept:
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
    """Watch a command, ask what to search, and return the text of its study file. Its output goes to `folder`.

    The other parameters and the errors are those of `make_study`.
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
        check_names(wanted.search or (), known_of(drafted, Watched(processes=tuple(processes))))

    watched = first_run(name, drafted, folder / "init", wanted.seconds, check)
    for line in first_run_lines(watched):
        say(line)

    def most(search: SearchedFlag) -> int | None:
        """Return the size up to which a search may double the values of a flag; None where it may not."""
        (with_more,) = with_more_values([search], watched.uses)
        return growth_limit(with_more)

    # what is searched
    known = known_of(drafted, watched, free_batch=wanted.free_batch, free_precision=wanted.free_precision)
    if not wanted.search:
        known = replace(known, launch=launch_shown_by(known))
    chosen = with_more_values(searches(known, wanted.search or (), say=say, ask=ask, most=most), watched.uses)
    drafted = with_searches(drafted, chosen, known)
    if to_search and not (drafted.varies or known.launch):
        raise StudyError(no_variation(drafted.searched, known))
    text = study_text(name, drafted, watched, launch=known.launch, free=wanted.free, needs_speed=to_search)
    if not ask:  # a person who was asked has seen them
        lines = search_lines(drafted.searches, free=wanted.free_batch, most=growth_limit, precision=drafted.precision)
        for line in lines:
            say(line)
    return text


def _devices_in_words(devices: str) -> str:
    """Return in words the devices that a study names, such as `cpu:2`, `auto`, `auto:2` or `2,3`."""
    kind, _, count = devices.partition(":")
    if kind == "cpu":
        return f"the CPU, as {number_of(count, 'rank')}" if count else "the CPU"
    if kind == "auto":
        return number_of(count, "card") if count else "all cards"
    return f"card {devices}" if devices.isdigit() else f"cards {devices}"


def write_study(file: Path, text: str, say: Callable[[str], None], *, warn: Callable[[str], None]) -> None:
    """Write the file of a study, and say what it searches besides what the file shows; `warn` as of `make_study`.

    Only its owner can read the file if it holds a key; otherwise it has the mode of new files.
    """
    path = file.resolve()
    write_files(path.parent, {path.name: text.encode()})
    spec = load(str(file))
    if keys := exposed(spec):  # `write_files` has made it readable by its owner alone
        warn("\n".join([*keys, f"only you can read {file}"]))
    else:
        umask = os.umask(0o077)  # the only way to read it is to set it
        os.umask(umask)
        with suppress(OSError):
            path.chmod(0o666 & ~umask)
    say(f"wrote {file}")
    if spec.launch:
        _say_launches(spec, file, say)


def _say_launches(spec: StudySpec, file: Path, say: Callable[[str], None]) -> None:
    """Show the parameters that a study has from its ready-made spaces (`launch`), and not from its own file."""
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
