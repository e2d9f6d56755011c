"""Makes the text of a study file, with comments; reads from such a file the command that it was made from."""

import json
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

from tuner.count import DIVERGES, ENVIRONMENTS, PARTS, TrainingCounts
from tuner.drafting.draft import Draft
from tuner.drafting.printed import PrintedProgress
from tuner.drafting.watching import Watched
from tuner.errors import StudyError
from tuner.probe import ITERATIONS_PER_S, SAMPLES_PER_S, duration
from tuner.study import open_regular, with_launches
from tuner.study.command_words import nodes, script_without_flags
from tuner.study.spec import ProbeSpec
from tuner.trainers.command_options import PRESETS

LEAST_SILENCE_S = 120.0
"""The shortest silence, in seconds, after which a start hangs (chosen)."""
SILENCE_PER_START = 5
"""How many times as long as the watched start another may be silent (chosen)."""
BUSY = "min_avg_util"
"""The objective where no speed is known: how busy the least busy device is."""
_MADE = "# Made by `tuner init` from: "
"""The beginning of the first line of a study file that was made from a command."""
_SEARCHED_BY = "# Its space was asked for: "
"""The beginning of the second line, with the options that named the space."""


def samples_in_words(printed: PrintedProgress) -> str:
    """Return in words how many samples a command has printed, or why this is unknown."""
    if printed.counts_samples:
        return f"{printed.reports[-1].samples} in all, counted by the command"
    return f"unknown: {printed.contradiction or 'no printed line says them'}"


def first_run_lines(watched: Watched) -> Iterator[str]:
    """Yield what the first run of a command has shown, as lines for the person."""
    yield f"understood after {duration(watched.seconds)}:"
    if watched.training:
        yield f"  samples: {counted_in_words(watched.training)}"
        if watched.training.signature.diverges:
            yield f"  {DIVERGES}: mend the training first"
    elif printed := watched.printed:
        yield f"  not counted inside the training: {watched.why_uncounted}"
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
    if 0 < len(idle) < len(watched.uses):  # where all seem idle, it is not known which worked
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
        launch: the name of the ready-made space that fits the command; None without one.
        free: the parts of the training that configs may change.
        needs_speed: whether the study must compare speeds.

    Raises:
        StudyError: where `needs_speed`, and samples are unknown, so that no config could be called faster.
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
        # who names sizes of a batch lets it vary; what is proposed varies only where the whole batch stays
        named = {"batch"} if any(search.changes_learning for search in draft.searches) else set[str]()
        lines += _count_lines(watched.training, {*free, *named})
    elif watched.printed:
        lines += _progress_lines(watched.printed, watched.why_uncounted)
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
    lines.append(f"objective: {objective}{_comment_on_objective(objective)}")
    if parameters := draft.space():
        sizes = {search.parameter for search in draft.searched if search.is_size}
        lines.append("space:")
        for parameter, values in parameters.items():
            is_kept = parameter in sizes and len(values.get("choices", ())) == 1
            kept = "  # kept: other values change what is learnt" if is_kept else ""
            lines.append(f"  {parameter}: {yaml(values)}{kept}")
    # how long a probe takes
    later = "" if watched.iteration_s is None else f", later ones took {watched.iteration_s:.2g} s each"
    lines.append(f"# The first iteration came after {watched.reports[0].t_s:.0f} s{later}.")
    silence = _start_up_silence(draft, watched)
    lines += [f"probe: {{iterations: 8, max_seconds: 420{silence}}}", "search: {trials: 24}", ""]
    return "\n".join(lines)


def _start_up_silence(draft: Draft, watched: Watched) -> str:
    """Return the entry of `probe` for how long a start may print nothing; empty where the usual time is not too long.

    A start hangs that is silent for `SILENCE_PER_START` times as long as the watched one. But another config may
    compile its model anew, where the watched start found it in a cache. So the usual time stays unless nothing seems to
    be compiled.
    """
    silence_s = max(LEAST_SILENCE_S, SILENCE_PER_START * watched.reports[0].t_s)
    texts = [*draft.command.words, *(search.parameter for search in draft.searches if search.varies)]
    compiles = watched.training is None or watched.training.compiled or any("compile" in text for text in texts)
    is_shorter = silence_s < ProbeSpec().start_up_silence_seconds
    return f", start_up_silence_seconds: {silence_s:.0f}" if is_shorter and not compiles else ""


def launch_text(name: str, draft: Draft, launches: Sequence[str]) -> str:
    """Return the text of a study file with the ready-made spaces `launches`, for a command that was not watched.

    Raises StudyError for an unknown launch, for a command in which the launches find nothing to vary, and for a shell
    script that reads no flags.
    """
    options = {"command": draft.template.words, "env": draft.env}
    try:
        made = with_launches({"launch": launches, "trainer": {"name": "command", "options": options}})
    except ValueError as error:
        raise StudyError(str(error)) from error
    adds_flags = list(made["trainer"]["options"]["command"]) != list(draft.template.words)
    if adds_flags and (script := script_without_flags(draft.command.words)):
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
    """Return the first lines of a study file: from the comment with the typed command to the key `command`."""
    # in shell quoting, but with bare braces, because no shell runs the command
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
    """Return in words how the samples of a training are counted inside it: by environments, or by batches."""
    per_step = training.signature.samples_in_words
    if training.witness == ENVIRONMENTS.name:
        again = f"; an optimizer step takes {per_step} samples of the rollouts again" if per_step else ""
        return f"steps of environments, counted inside the training{again}"
    ranks = f" on {training.data_ranks} of {training.ranks} ranks" if training.ranks > 1 else ""
    step = f"{per_step} in each optimizer step{ranks}, " if per_step else ""
    _, separator, remark = training.witness.partition("; ")  # as `loader; the module takes 2 times …`
    return f"{step}counted inside the training{separator}{remark}"


def _count_lines(training: TrainingCounts, free: Collection[str]) -> list[str]:
    """Return the lines of the study file about counting inside the training.

    They have the samples counted there, and name the parts of a training, such as its optimizer, that no config may
    change: all but the `free` ones.
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
    """Return the objective of the study: a speed if it can be known, or else how busy the devices are."""
    printed = watched.printed
    if printed is None or printed.counts_samples:
        return SAMPLES_PER_S
    return ITERATIONS_PER_S if draft.keeps_iterations and not printed.contradiction else BUSY


def _unknown_samples(printed: PrintedProgress) -> str:
    """Return in words why the samples of printed iterations are unknown, or which option of the study gives them."""
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


def _comment_on_objective(objective: str) -> str:
    """Return the comment behind an objective that says when a better objective can be used; empty for samples/s."""
    if objective == SAMPLES_PER_S:
        return ""
    if objective == ITERATIONS_PER_S:
        return f"  # no value below changes the samples of an iteration; {SAMPLES_PER_S}, if they are counted"
    return f"  # {SAMPLES_PER_S}, if they are counted; {ITERATIONS_PER_S}, if no value changes what an iteration does"


def origin_line(typed: Sequence[str]) -> str:
    """Return the first line of the study file for a command, from which `command_of_file` reads the command again."""
    return f"{_MADE}{_in_one_line(typed)}"


def _in_one_line(words: Sequence[str]) -> str:
    """Return words in shell quoting, or as a list of JSON where they would be no printable line."""
    line = shlex.join(words)
    return line if line.isprintable() else json.dumps(list(words))


def command_of_file(file: Path) -> list[str] | None:
    """Return the words of the command from which a study file was made; None without a file, or for another origin."""
    return _words_of_comment(file, 0, _MADE)


def _words_of_comment(file: Path, place: int, beginning: str) -> list[str] | None:
    """Return the words behind the `beginning` of the line at a place, from 0 on, of a study file; None without it."""
    try:
        with open_regular(file) as content:  # no pipe, which would be waited for
            line = content.read().decode().split("\n")[place]
        text = line.removeprefix(beginning)
        return (json.loads(text) if text.startswith("[") else shlex.split(text)) if text != line else None
    except (OSError, ValueError, IndexError):  # also a file that is not UTF-8
        return None


def with_search_options(text: str, options: Sequence[str]) -> str:
    """Return the text of a study file with the `--search` options in its second line, for `search_options_of`."""
    origin, _, lines_below = text.partition("\n")
    return "\n".join([origin, f"{_SEARCHED_BY}{_in_one_line(options)}", lines_below]) if options else text


def search_options_of(file: Path) -> list[str]:
    """Return the `--search` options from which a study file was made.

    The list is empty where the space was proposed, where the file was not made from a command, and where the file
    cannot be read.
    """
    return _words_of_comment(file, 1, _SEARCHED_BY) or []


def _env_lines(env: Mapping[str, str], preset: str | None) -> list[str]:
    """Return the line of the study file with the environment variables that the preset does not set already, if any."""
    variables = env.items() - (PRESETS[preset].env.items() if preset else set())
    return [f"    env: {yaml(dict(sorted(variables)))}"] if variables else []


def _learning_lines(draft: Draft) -> list[str]:
    """Return the lines of the study file that say which parameters change what is learnt, and which are computed."""
    lines: list[str] = []
    if draft.computed:
        lines.append(f"    computed: {yaml(draft.computed)}  # the total batch stays; batch norm sees its parts")
    if names := [search.parameter for search in draft.searched if search.changes_learning]:
        lines.append(f"    learning: {yaml(names)}  # these change what is learnt, the others only the speed")
    else:
        lines.append("    learning: keep  # no value below changes what is learnt")
    return lines


def one_line(text: str) -> str:
    """Return a text as one line for a comment of YAML: white space becomes spaces, other control characters `�`."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


class _Representer(SafeRepresenter):
    """Writes YAML, and quotes texts that begin with `:`, `?` or U+0085, which the library leaves bare inside braces."""

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
