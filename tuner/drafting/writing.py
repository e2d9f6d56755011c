"""Writes a study file with comments, and says where its samples come from."""

import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

from tuner.count import ENVIRONMENTS, PARTS, TrainingCounts
from tuner.drafting.command_lines import deaf_script, nodes
from tuner.drafting.draft import Draft
from tuner.drafting.printed import PrintedProgress
from tuner.drafting.watching import Watched
from tuner.errors import StudyError
from tuner.probe import ITERATIONS_PER_S, SAMPLES_PER_S, duration
from tuner.study import literal_line, literal_words, with_launches
from tuner.study.spec import ProbeSpec
from tuner.trainers.presets import PRESETS

BUSY = "min_avg_util"
"""The objective where no speed is known: how busy the least busy device is."""
_MADE = "# Made by `tuner init` from: "
"""The beginning of the first line of a study file that was made from a command."""
_ASKED = "# Its space was asked for: "
"""The beginning of the second line, with the options that named the space."""


def samples_in_words(printed: PrintedProgress) -> str:
    """Return how many samples a command has printed, in words, or why that is unknown."""
    if printed.counts_samples:
        return f"{printed.reports[-1].samples} in all, counted by the command"
    return f"unknown: {printed.contradiction or 'no printed line says them'}"


def first_run_lines(watched: Watched) -> Iterator[str]:
    """Yield what the first run of a command has shown, as lines for the person."""
    yield f"understood after {duration(watched.seconds)}:"
    if watched.training:
        yield f"  samples: {counted_in_words(watched.training)}"
    elif printed := watched.printed:
        yield f"  not counted inside the training: {watched.uncounted}"
        yield f"  progress by {printed.by}; last line: {printed.lines[-1][-120:]}"
        yield f"  samples: {samples_in_words(printed)}"
    first, last = watched.reports[0], watched.reports[-1]
    took = "" if watched.iteration_s is None else f", {watched.iteration_s:.2g} s each"
    yield f"  iterations {first.iteration} to {last.iteration}, the first after {first.t_s:.1f} s{took}"
    for use in watched.uses:
        util = "unknown" if use.util_pct is None else f"{use.util_pct:.0f} % busy"
        memory = "" if use.mem_peak_mib is None else f", {use.mem_peak_mib:.0f} MiB"
        yield f"  {use.device.label}: {util}{memory}"
    idle = [use.device.name for use in watched.uses if not use.worked]
    if 0 < len(idle) < len(watched.uses):  # where none worked, that is not known
        yield f"  {', '.join(idle)} did nothing and is left out; does the command start enough ranks?"


def study_text(
    name: str,
    draft: Draft,
    watched: Watched,
    *,
    launch: str | None = None,
    free: Collection[str] = (),
    needs_speed: bool = False,
) -> str:
    """Return the text of a study file for a command that was watched.

    Args:
        name: the study's name.
        draft: the command, and what is searched.
        watched: what it did while it was watched.
        launch: the ready-made space that its flags show.
        free: the parts of the training that may change.
        needs_speed: whether a study that can only look for busy devices is refused.

    Raises:
        StudyError: where `needs_speed`, and no speed could be compared.
    """
    objective = _objective_of(draft, watched)
    if needs_speed and objective == BUSY and watched.printed:
        raise StudyError(
            f"samples are unknown: {_unknown_samples(watched.printed)}; so no config could be called faster. "
            "`tuner init` writes a study of this command: add them there, or write `objective: iterations_per_s` if no "
            "value changes what an iteration does"
        )
    # the trainer, as `trainer: options:`
    lines = _first_lines(name, draft)
    if watched.training:
        lines += _count_lines(watched.training, free)
    elif watched.printed:
        lines += _progress_lines(watched.printed, watched.uncounted)
    if draft.unset:
        lines.append(f"    unset: {yaml(draft.unset)}  # the flag is left out at this value")
    if draft.files:
        lines.append(f"    files: {yaml(draft.files)}  # a probe gets a changed copy")
    lines += _env_lines(draft.env, preset=watched.printed.preset if watched.printed else None)
    lines += _learning_lines(draft)
    # where it runs, and what is searched
    shares = ["-" if use.util_pct is None else f"{use.util_pct:.0f}" for use in watched.uses]
    busy = ", ".join(f"{use.device.name} {share} % busy" for use, share in zip(watched.uses, shares, strict=True))
    lines.append(f"devices: {yaml(watched.devices)}  # {busy}")
    if (node_count := nodes(draft.command.words)) > 1:
        lines.append(f"slurm: {{nodes: {node_count}}}  # of a probe; this run was watched on one")
    if launch:
        lines.append(f"launch: {launch}  # a ready-made space, beside the parameters here")
    lines.append(f"objective: {objective}{_why_no_samples(objective)}")
    if parameters := draft.space():
        lines.append("space:")
        for parameter, values in parameters.items():
            is_kept = len(values.get("choices", ())) == 1
            kept = "  # kept: other values change what is learnt" if is_kept else ""
            lines.append(f"  {parameter}: {yaml(values)}{kept}")
    # how long a probe takes
    later = "" if watched.iteration_s is None else f", later ones took {watched.iteration_s:.2g} s each"
    lines.append(f"# The first iteration came after {watched.reports[0].t_s:.0f} s{later}.")
    silence = _start_up_silence(draft, watched.reports[0].t_s)
    lines += [f"probe: {{iterations: 8, max_seconds: 420{silence}}}", "search: {trials: 24}", ""]
    return "\n".join(lines)


def _start_up_silence(draft: Draft, first_s: float) -> str:
    """Return the entry of `probe` for how long a start may print nothing; empty where the usual time is not too long.

    The watched start took `first_s`, with nothing in the system's cache. A start that is silent for five times as long
    hangs. But a model that some configs compile may start later than any that was watched.
    """
    least_s, factor = 120.0, 5
    silence_s = max(least_s, factor * first_s)
    compiles = any(search.varies and "compile" in search.parameter for search in draft.searches)
    is_shorter = silence_s < ProbeSpec().start_up_silence_seconds
    return f", start_up_silence_seconds: {silence_s:.0f}" if is_shorter and not compiles else ""


def launch_text(name: str, draft: Draft, launches: Sequence[str]) -> str:
    """Return the text of a study file whose space is ready-made; the command was not watched.

    Raises StudyError for an unknown launch, for a command without anything that its launches vary, and for a shell
    script that reads no flags.
    """
    options = {"command": draft.template.words, "env": draft.env}
    try:
        made = with_launches({"launch": launches, "trainer": {"name": "command", "options": options}})
    except ValueError as error:
        raise StudyError(str(error)) from error
    is_changed = list(made["trainer"]["options"]["command"]) != list(draft.template.words)
    if is_changed and (script := deaf_script(draft.command.words)):
        raise StudyError(
            f"{script} reads no flags, so a launch could not vary them; name the command that it starts, or pass "
            '"$@" on in the script'
        )
    node_count = nodes(draft.command.words)
    return "\n".join(
        [
            *_first_lines(name, draft),
            *_env_lines(draft.env, preset=None),
            f"launch: {yaml(list(launches))}  # ready-made spaces; docs/launches.md",
            f"devices: {yaml(draft.devices)}",
            *([f"slurm: {{nodes: {node_count}}}  # of a probe"] if node_count > 1 else []),
            "",
        ]
    )


def _first_lines(name: str, draft: Draft) -> list[str]:
    """Return the first lines of a study file, up to and with the command."""
    # in shell quoting, but braces need none, because no shell runs the command
    bare = re.compile(r"[\w@%+=:,./{}-]+")
    command = " ".join(word if bare.fullmatch(word) else shlex.quote(word) for word in draft.template.words)
    return [
        origin_line(draft.command.typed),
        "# Start tuner in the folder in which that command runs.",
        f"name: {yaml(name)}",
        "trainer:",
        "  name: command",
        *([f"  python: {yaml(draft.python)}  # programs beside it are found, too"] if draft.python else []),
        "  options:",
        f"    command: {yaml(command)}",
    ]


def counted_in_words(training: TrainingCounts) -> str:
    """Return how the samples of a training are counted, as a line for the person."""
    per_step = training.signature.samples_per_step
    if training.witness == ENVIRONMENTS.name:
        again = f"; an optimizer step takes {per_step:.6g} samples of the rollouts again" if per_step else ""
        return f"steps of environments, counted inside the training{again}"
    ranks = f" on {training.data_ranks} of {training.ranks} ranks" if training.ranks > 1 else ""
    step = f"{per_step:.6g} in each optimizer step{ranks}, " if per_step else ""
    _, separator, remark = training.witness.partition("; ")  # as `loader; the module takes 2 times …`
    return f"{step}counted inside the training{separator}{remark}"


def _count_lines(training: TrainingCounts, free: Collection[str]) -> list[str]:
    """Return the lines of the study file that have the samples of a training counted inside it.

    They also say which parts of the training no config may change: all but the `free` ones.
    """
    keeps = [part for part in PARTS if part not in free]
    flops = training.flops_per_sample
    return [
        f"    # samples: {one_line(counted_in_words(training))}",
        "    count: inside",
        f"    keeps: {yaml(keeps)}  # a config that changes one of these is never the best",
        *([f"    flops_per_sample: {flops:.4g}  # counted once, in a step of this run"] if flops else []),
    ]


def _objective_of(draft: Draft, watched: Watched) -> str:
    """Return what a search of a watched command compares: speeds, where they are known, else how busy devices are."""
    printed = watched.printed
    if printed is None or printed.counts_samples:
        return SAMPLES_PER_S
    return ITERATIONS_PER_S if draft.keeps_iterations and not printed.contradiction else BUSY


def _unknown_samples(printed: PrintedProgress) -> str:
    """Return why the samples of printed iterations are unknown, or which option of the study file would say them."""
    return printed.contradiction or "`samples_per_iteration` says how many a printed iteration has, on all ranks"


def _progress_lines(printed: PrintedProgress, uncounted: str | None) -> list[str]:
    """Return the lines of the study file that say how a probe reads the progress of a command.

    It is read from printed lines, or from calls of `report()`. `uncounted`: why nothing is counted inside the training.
    """
    lines = [f"    # not counted inside the training: {one_line(uncounted)}"] if uncounted else []
    lines.append("    count: printed")
    if printed.preset:
        lines += [f"    # one iteration: {PRESETS[printed.preset].counts}", f"    progress: {printed.preset}"]
    elif printed.patterns:
        lines += ["    # found in lines such as:", *(f"    #   {one_line(line[:100])}" for line in printed.lines[-1:])]
        lines += ["    progress:", *(f"      - {yaml(pattern)}" for pattern in printed.patterns)]
    else:
        lines.append("    # the trainer reports its progress itself, with report()")
    if not printed.counts_samples:
        lines.append(f"    # Samples are unknown: {one_line(_unknown_samples(printed))}.")
    return lines


def _why_no_samples(objective: str) -> str:
    """Return a comment that says when a speed would be the objective; empty where samples/s are."""
    why = "no value below changes the samples of an iteration; " if objective == ITERATIONS_PER_S else ""
    alternative = f"; {ITERATIONS_PER_S}, if no value changes what an iteration does" if objective == BUSY else ""
    return "" if objective == SAMPLES_PER_S else f"  # {why}{SAMPLES_PER_S}, if they are counted{alternative}"


def origin_line(typed: Sequence[str]) -> str:
    """Return the first line of the study file for a command, from which `command_of_file` reads the command again."""
    return f"{_MADE}{literal_line(typed)}"


def command_of_file(file: Path) -> list[str] | None:
    """Return the words of the command from which a study file was made; None without a file, or for another origin."""
    try:
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        return literal_words(first.removeprefix(_MADE)) if first.startswith(_MADE) else None
    except (OSError, ValueError):  # also a file that is not UTF-8
        return None


def with_asked(text: str, asked: Sequence[str]) -> str:
    """Return the text of a study file with a second line that keeps the `--search` options, from which it was made.

    `asked_of` reads them again.
    """
    origin, _, lines_below = text.partition("\n")
    return "\n".join([origin, f"{_ASKED}{literal_line(asked)}", lines_below]) if asked else text


def asked_of(file: Path) -> list[str]:
    """Return the `--search` options from which a study file was made; none where its space was proposed.

    None either for a file that is not made from a command, or cannot be read.
    """
    try:
        second = file.read_text(encoding="utf-8").split("\n", 2)[1]
        return literal_words(second.removeprefix(_ASKED)) if second.startswith(_ASKED) else []
    except (OSError, ValueError, IndexError):
        return []


def _env_lines(env: Mapping[str, str], preset: str | None) -> list[str]:
    """Return the line of the study file with the environment variables; none where the preset sets them all."""
    variables = env.items() - (PRESETS[preset].env.items() if preset else set())
    return [f"    env: {yaml(dict(sorted(variables)))}"] if variables else []


def _learning_lines(draft: Draft) -> list[str]:
    """Return the lines of the study file that say which parameters change what is learnt, and which are computed."""
    names = [search.parameter for search in draft.searched if search.changes_learning]
    computed = f"    computed: {yaml(draft.computed)}  # the total batch stays; batch norm sees its parts"
    changing = f"    learning: {yaml(names)}  # these change what is learnt, the others only the speed"
    kept = "    learning: keep  # no value below changes what is learnt"
    return [*([computed] if draft.computed else []), changing if names else kept]


def one_line(text: str) -> str:
    """Return a text as one line for a comment; no character in it ends a line of YAML."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


class _Representer(SafeRepresenter):
    """Quotes a text that begins as a key or a value of YAML would, which the library leaves bare inside braces."""

    def represent_str(self, data: str) -> ScalarNode:
        """Return the text as a scalar."""
        return self.represent_scalar(
            "tag:yaml.org,2002:str", data, style='"' if data[:1] in {":", "?", "\x85"} else None
        )


_Representer.add_representer(str, _Representer.represent_str)


def yaml(value: object, *, unicode: bool = True) -> str:
    """Return a value as YAML on one line. With `unicode` False, characters beyond ASCII are escaped."""
    writer, text = YAML(typ="safe", pure=True), StringIO()
    writer.Representer = _Representer
    writer.default_flow_style, writer.width, writer.allow_unicode = True, sys.maxsize, unicode
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(value, text)
    line = text.getvalue().removesuffix("...\n").strip("\n")  # dots end a document of a single value
    has_one_line = len(line.splitlines()) <= 1  # some characters beyond ASCII end a line, too
    return line if has_one_line else yaml(value, unicode=False)


def preset_text(name: str, preset: str) -> str:
    """Return the text of a study file for a popular trainer, to be filled in.

    A preset with a study file of its own has it as it is, without `name`.
    """
    row = PRESETS[preset]
    if row.study:
        return row.study
    samples = row.samples.removesuffix(" * {gradient_accumulation_steps}")  # the file's command has no such flag
    counted = f"    samples_per_iteration: {yaml(samples)}\n" if samples else ""
    space = "\n".join(f"  {parameter}: {values}" for parameter, values in row.space.items())
    return f"""\
# Put your own command in: its script, its flags, and {{placeholders}} for the values that are searched.
name: {yaml(name)}
trainer:
  name: command
  options:
    command: {yaml(row.command)}
    # one iteration: {row.counts}
    progress: {preset}
{counted}devices: auto
space:
{space}
probe: {{iterations: 8, max_seconds: 420}}
search: {{trials: 24}}
"""
