"""Writes a study file with comments, and says where its samples come from."""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from statistics import fmean
from typing import Any

from tuner.count import PARTS, TrainingCounts
from tuner.drafting.amounts import Checked, check
from tuner.drafting.command_lines import settings
from tuner.drafting.draft import Draft, Used, working_ranks
from tuner.drafting.progress_found import Found
from tuner.drafting.searches import ENVIRONMENTS
from tuner.drafting.watching import Watched, iteration_s
from tuner.probe import ITERATIONS_PER_S, SAMPLES_PER_S
from tuner.study import literal_line, literal_words
from tuner.trainers.command_options import COUNTS
from tuner.trainers.presets import ACCUMULATED, PRESETS
from tuner.trainers.template import Expression

CLOSE = 0.25
"""Samples of an iteration are those of some batches if they differ from these by at most this share."""
MOST_BATCHES = 64
"""More batches in an iteration are no accumulation of gradients, but tokens or steps of environments."""

_MADE = "# Made by `tuner init` from: "
_LENGTH = re.compile(r"(?i)block|length|len$|seq|context|ctx|window")
"""Names of flags that say how many tokens a sample has."""
_ANSWER = re.compile(r"\s*# samples_per_iteration: ")
_EXAMPLE = 50_000
"""The samples of an epoch where a person has to write another number."""


def samples_said(draft: Draft, found: Found, ranks: int) -> str:
    """Return what is known of the samples of a command that worked on so many ranks, as a line for the person."""
    if known := confirmed(draft, found, ranks):
        return f"{known[0]} in each iteration: {known[1]}"
    if found.doubt:
        return f"unknown: {found.doubt}"
    if (each := of_one_rank(draft, found, ranks)) is not None:
        return (
            f"unknown: {each:.0f} in each iteration were printed, perhaps of one of {_several(found, ranks)} ranks; "
            "see the study file"
        )
    if found.counts_samples:
        return f"{found.reports[-1].samples} in all, counted by the command"
    if computed := draft.samples_per_iteration(found.preset):
        return f"{computed} in each iteration"
    speed = "the printed speed counts if it is that since the line before, and no average"
    return f"not counted; {speed}" if found.prints_speeds else "not counted, so samples/s are unknown"


def sample_lines(draft: Draft, found: Found, ranks: int) -> list[str]:
    """Return the lines of a study file's options that count samples, or that say how samples can be counted."""
    each = _samples_of_an_iteration(found)
    if known := confirmed(draft, found, ranks):
        return [f"samples_per_iteration: '{known[0]}'  # {one_line(known[1])}"]
    if found.doubt:
        return [f"# Samples/s are unknown: {found.doubt}."]
    if choices := sample_choices(draft, found, ranks):
        question = "Samples/s are unknown. What is a counted iteration? Take the # from the line that fits:"
        if each is not None:
            all_ranks = f"all {_several(found, ranks)}"
            question = f"{each:.0f} samples in each iteration were printed. Are they of one rank, or of {all_ranks}?"
        return [
            f"# {question}",
            *(f"# samples_per_iteration: '{count or _EXAMPLE}'  # {what}" for what, count in choices),
        ]
    if ranks > 1 and each is not None and not found.preset:
        return [f"# {each:.0f} samples in each iteration were printed. They are taken as those of all {ranks} ranks."]
    if computed := "" if found.counts_samples else draft.samples_per_iteration(found.preset):
        return [f"samples_per_iteration: '{computed}'  # of all ranks; check it where your batch is the total"]
    return []


def sample_choices(draft: Draft, found: Found, ranks: int) -> list[tuple[str, str]]:
    """Return what a counted iteration may stand for, each with its samples as arithmetic; empty where it is known.

    The samples of an epoch are empty: only a person knows them. What the output rules out is no choice.
    """
    if confirmed(draft, found, ranks):
        return []
    return [(what, count) for what, count in _choices(draft, found, ranks) if not against(draft, found, count, ranks)]


def confirmed(draft: Draft, found: Found, ranks: int) -> tuple[str, str] | None:
    """Return the samples of an iteration as arithmetic, and the printed fact that confirms these alone."""
    counts = list(dict.fromkeys(count for _, count in _choices(draft, found, ranks) if count))
    checked = [(count, _checked(draft, found, count, ranks)) for count in counts]
    held = [(count, said.because) for count, said in checked if said.holds]
    values = {_value(draft, count, ranks) for count, _ in held}
    return held[0] if len(values) == 1 else None


def against(draft: Draft, found: Found, samples: str, ranks: int) -> str:
    """Return the printed fact that rules out the samples of an iteration; empty where nothing speaks against them."""
    said = _checked(draft, found, samples, ranks)
    return said.because if said.holds is False else ""


def _checked(draft: Draft, found: Found, samples: str, ranks: int) -> Checked:
    each = _value(draft, samples, ranks) if samples else None
    whole = {name: int(value) for name, value in draft.known.items() if value.isdecimal()}
    lengths = [value for name, value in whole.items() if _LENGTH.search(name)] or whole.values()
    if not each:
        return Checked(holds=None)
    return check(found, each, batch=draft.batch_size, ranks=_several(found, ranks), typed=lengths)


def _value(draft: Draft, samples: str, ranks: int) -> float | None:
    values = {one.parameter: one.first for one in draft.searches}
    return Expression(samples).value({**values, **dict.fromkeys(COUNTS, ranks)})


def _choices(draft: Draft, found: Found, ranks: int) -> list[tuple[str, str]]:
    each, own = _samples_of_an_iteration(found), draft.batch_term
    if found.doubt:
        return []
    several = _several(found, ranks)
    times = "{ranks}" if several == ranks else several
    if each is not None and of_one_rank(draft, found, ranks) is not None:
        batches = max(1, round(each / draft.batch_size)) if draft.batch_size else 1
        own = (own if batches == 1 else f"{own} * {batches}") if draft.batch_size else f"{each:.0f}"
        return [("of one rank", f"{own} * {times}"), ("of all ranks", own)]
    if found.counts_samples or found.prints_speeds or draft.samples_per_iteration(found.preset):
        return []
    if found.counts_epochs:
        return [(f"an epoch, where it has {_EXAMPLE} samples", "")]
    if not (draft.batch_size and found.counts_numbers):  # a line may stand for any number of steps
        return []
    sample = "a sample, or a step of one environment"
    if found.grows_by(draft.batch_size):
        sample = f"a sample: the count always grows by a multiple of the batch, {draft.batch_size}"
    many = {"a step of all environments" if draft.batch in ENVIRONMENTS else "a batch": own}
    many |= {"a step of the optimizer": f"{own} * {draft.accumulated}"} if draft.accumulated else {}
    of_ranks = [(f"{what} of each rank", f"{count} * {times}") for what, count in many.items()]
    in_all = [(f"{what} of all ranks", count) for what, count in many.items()] if several > 1 else []
    return [*of_ranks, *in_all, (sample, "1")]


def _several(found: Found, ranks: int) -> int:
    """Return how many ranks a command has: those that worked, or those that print, where these are more."""
    return max(ranks, found.voices)


def of_one_rank(draft: Draft, found: Found, ranks: int) -> float | None:
    """Return the printed samples of an iteration if they may be those of one rank, although several ranks train.

    One batch is that of one rank, and so is one batch for each step over which the command accumulates gradients.
    As many of all ranks need no question. Any other small number may be accumulated by one rank or by all. Where more
    ranks print than worked, any number may be that of one.
    """
    batch, each, several = draft.batch_size, _samples_of_an_iteration(found), _several(found, ranks)
    if several < 2 or each is None or not batch:
        return each if several > ranks else None
    known = (one for one in settings(draft.words) if one.value.isdecimal())
    steps = {1, *(int(one.value) for one in known if "accum" in one.parameter)}
    if any(_is_close(each / batch, own) for own in steps):
        return each
    counts_steps = found.preset is None and any("(?P<iteration>" in pattern for pattern in found.patterns)
    may_accumulate = counts_steps and draft.batch not in ENVIRONMENTS and 1 < each / batch < MOST_BATCHES
    of_all = any(_is_close(each / batch, own * several) for own in steps)
    return each if (may_accumulate or several > ranks) and not of_all else None


def _is_close(batches: float, expected: float) -> bool:
    return abs(batches - expected) <= CLOSE * expected


def _samples_of_an_iteration(found: Found) -> float | None:
    first, last = found.reports[0], found.reports[-1]
    counted = last.iteration - first.iteration
    if first.samples is not None and last.samples is not None and counted:
        return (last.samples - first.samples) / counted
    speeds = [report.samples_per_s for report in found.reports if report.samples_per_s is not None]
    return fmean(speeds) * found.iteration_s if speeds and found.iteration_s else None


_NO_TEXT = {"true", "false", "null", "yes", "no", "on", "off"}
"""Words that YAML reads as other values than text."""


def counted(draft: Draft, found: Found, ranks: int) -> bool:
    """Return whether samples/s follow from what the command printed, without a word of a person."""
    if confirmed(draft, found, ranks):
        return True
    if found.doubt or sample_choices(draft, found, ranks):
        return False
    return found.counts_samples or found.prints_speeds or bool(draft.samples_per_iteration(found.preset))


def study_text(
    name: str,
    draft: Draft,
    watched: Watched,
    devices: str,
    uses: Sequence[Used],
    *,
    samples: str = "",
    free: Collection[str] = (),
) -> str:
    """Return the text of a study file for a command that was watched.

    Args:
        name: the study's name.
        draft: the command, and what is searched.
        watched: what it did while it was watched.
        devices: the devices that it used.
        uses: how it used them.
        samples: the samples of an iteration as a person has said them; see `sample_choices`.
        free: the parts of the training that may change.
    """
    if watched.training:
        lines = _counted(draft, watched.training, free)
        objective = [f"objective: {SAMPLES_PER_S}"]
        preset = None
    else:
        lines, objective = _printed(draft, watched, devices, uses, samples)
        preset = watched.found.preset if watched.found else None
    first, each = watched.reports[0], iteration_s(watched.reports)
    return "\n".join(
        [
            made_from(draft.typed),
            "# Start tuner in the folder in which that command runs.",
            f"name: {_flow(name)}",
            "trainer:",
            "  name: command",
            *([f"  python: {text(draft.python)}  # programs beside it are found, too"] if draft.python else []),
            "  options:",
            f"    command: {text(' '.join(map(_word, draft.template.words)))}",
            *lines,
            *([f"    unset: {_flow(draft.unset)}  # the flag is left out at this value"] if draft.unset else []),
            *([f"    files: {_flow(draft.files)}  # a probe gets a changed copy"] if draft.files else []),
            *_env(draft.env, preset),
            *_learning(draft),
            f"devices: {text(devices)}  # {_seen(uses)}",
            *objective,
            "space:",
            *(f"  {parameter}: {_flow(values)}{_kept(values)}" for parameter, values in draft.space().items()),
            f"# The first iteration came after {first.t_s:.0f} s{_each(each)}.",
            "probe: {iterations: 8, max_seconds: 420}",
            "search: {trials: 24}",
            "",
        ]
    )


def counted_in_words(training: TrainingCounts) -> str:
    """Return how the samples of a training are counted, as a line for the person."""
    each = training.signature.samples_per_step
    ranks = f" on {training.data_ranks} of {training.ranks} ranks" if training.ranks > 1 else ""
    step = f"{each:.6g} in each optimizer step{ranks}, " if each else ""
    return f"{step}counted inside the training by {training.witness}"


def _counted(draft: Draft, training: TrainingCounts, free: Collection[str]) -> list[str]:
    keeps = [part for part in PARTS if part not in free]
    return [
        f"    # samples: {one_line(counted_in_words(training))}",
        "    count: inside",
        f"    keeps: {_flow(keeps)}  # a config that changes one of these is never the best",
    ]


def _printed(
    draft: Draft, watched: Watched, devices: str, uses: Sequence[Used], samples: str
) -> tuple[list[str], list[str]]:
    """Return the lines for the progress and for the objective of a command whose lines are read."""
    found, ranks = watched.found, working_ranks(devices, uses)
    if found is None:
        raise ValueError("neither counts nor printed progress")
    is_unclear = bool(samples) or of_one_rank(draft, found, ranks) is not None
    is_counted = bool(samples) or counted(draft, found, ranks)
    said = [f"samples_per_iteration: '{samples}'"] if samples else sample_lines(draft, found, ranks)
    patterns = found.patterns
    if is_unclear:  # then no samples and no speeds are taken from the lines
        patterns = tuple(re.sub(r"\(\?P<samples(?:_per_s)?>", "(?:", pattern) for pattern in patterns)
    why = [f"    # not counted inside the training: {one_line(watched.uncounted)}"] if watched.uncounted else []
    lines = [*why, "    count: printed", *_progress(found, patterns), *(f"    {line}" for line in said)]
    return lines, _objective(draft, found, is_counted=is_counted)


def _objective(draft: Draft, found: Found, *, is_counted: bool) -> list[str]:
    if is_counted:
        return [f"objective: {SAMPLES_PER_S}"]
    counted = f"{SAMPLES_PER_S}, if they are counted"
    if draft.keeps_iterations and found.counts_numbers and not found.doubt:
        return [
            "# No value below changes how many samples an iteration has, so iterations/s compare the configs.",
            f"objective: {ITERATIONS_PER_S}  # or {counted}",
        ]
    return [f"objective: min_avg_util  # {counted}"]


def made_from(typed: Sequence[str]) -> str:
    """Return the first line of the study file for a command, by which the file is known again."""
    return f"{_MADE}{literal_line(typed)}"


def typed_in(study: str) -> list[str] | None:
    """Return the command from which the text of a study file was made; None for a file of another origin."""
    first = study.partition("\n")[0]
    try:
        return literal_words(first.removeprefix(_MADE)) if first.startswith(_MADE) else None
    except ValueError:
        return None


def rewritten(study: str, words: Sequence[str]) -> list[str]:
    """Return what init has changed in a command, by the text of its study file and the command's words there.

    Empty for a study file of another origin.
    """
    typed, found = typed_in(study) or list(words), list[str]()
    for change, begin, end, place, then in SequenceMatcher(None, typed, words, autojunk=False).get_opcodes():
        flag = [words[place - 1]] if place and words[place - 1].startswith("-") and change != "equal" else []
        before, after = (" ".join([*flag, *some]) for some in (typed[begin:end], words[place:then]))
        if "{" in after and change != "equal":
            found.append(f"{before} → {after}" if end > begin else f"added: {after}")
    return found


def answers(study: str) -> list[int]:
    """Return the lines of a study file that count samples once their # is taken away; the first line is 1."""
    return [number for number, line in enumerate(study.split("\n"), 1) if _ANSWER.match(line)]


def _kept(values: Mapping[str, Any]) -> str:
    return "  # kept: other values change what is learnt" if len(values.get("choices", ())) == 1 else ""


def _each(iteration_s: float | None) -> str:
    return "" if iteration_s is None else f", later ones took {iteration_s:.2g} s each"


def _progress(found: Found, patterns: Sequence[str]) -> list[str]:
    if found.preset:
        return [f"    # one iteration: {PRESETS[found.preset].counts}", f"    progress: {found.preset}"]
    if file := found.file:
        keys = {"path": f"{{out_dir}}/{file.pattern}", "format": file.format, **file.columns}
        return [f"    # found in {one_line(file.pattern)}", f"    progress_file: {_flow(keys)}"]
    if not found.patterns:
        return ["    # the trainer reports its progress itself, with report()"]
    shown = [f"    #   {one_line(line[:100])}" for line in found.lines[-1:]]
    counted = ["    # each such line counts as one iteration, however many steps it stands for"]
    after = ["    # a count before it, with a much smaller end, is taken for a warm-up, and left out"]
    return [
        "    # found in lines such as:",
        *shown,
        *([] if found.counts_numbers else counted),
        *(after if any("(?!" in pattern for pattern in patterns) else []),
        "    progress:",
        *(f"      - {text(pattern)}" for pattern in patterns),
    ]


def _env(env: Mapping[str, str], preset: str | None) -> list[str]:
    """Return the variables that the preset does not set by itself."""
    own = env.items() - (PRESETS[preset].env.items() if preset else set())
    return [f"    env: {_flow(dict(sorted(own)))}"] if own else []


def _learning(draft: Draft) -> list[str]:
    names = [search.parameter for search in draft.searched if search.changes_learning]
    computed = f"    computed: {_flow(draft.computed)}  # the total batch stays; batch norm sees its parts"
    changing = f"    learning: {_flow(names)}  # these change what is learnt, the others only the speed"
    kept = "    learning: keep  # no value below changes what is learnt"
    return [*([computed] if draft.computed else []), changing if names else kept]


def _seen(uses: Sequence[Used]) -> str:
    shares = ["-" if use.util_pct is None else f"{use.util_pct:.0f}" for use in uses]
    return ", ".join(f"{use.device.name} {share} % busy" for use, share in zip(uses, shares, strict=True))


def one_line(words: str) -> str:
    """Return text as one line for a comment; no character in it ends a line of YAML."""
    return "".join(one if one.isprintable() else "\ufffd" for one in " ".join(words.split()))


def _word(word: str) -> str:
    """Return a word in shell quoting; braces need none, because no shell runs the command."""
    return word if re.fullmatch(r"[\w@%+=:,./{}-]+", word) else shlex.quote(word)


def text(words: str) -> str:
    """Return text as YAML on one line: in single quotes, or in double quotes where a character must be escaped."""
    if not words.isprintable():
        as_is = {one for one in words if one.isprintable()} - {'"', "\\"}
        escaped = (one if one in as_is else rf"\U{ord(one):08x}" for one in words)
        return f'"{"".join(escaped)}"'
    return "'" + words.replace("'", "''") + "'"


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z_][\w.-]*", value) and value.lower() not in _NO_TEXT else text(value)
    return json.dumps(value)


def preset_text(name: str, preset: str) -> str:
    """Return the text of a study file for a popular trainer, to be filled in."""
    row = PRESETS[preset]
    if row.study:
        return row.study
    known = row.samples.removesuffix(ACCUMULATED)
    counted = f"    samples_per_iteration: {text(known)}\n" if known else ""
    space = "\n".join(f"  {parameter}: {values}" for parameter, values in row.space.items())
    return f"""\
# Put your own command in: its script, its flags, and {{placeholders}} for the values that are searched.
name: {_flow(name)}
trainer:
  name: command
  options:
    command: {text(row.command)}
    # one iteration: {row.counts}
    progress: {preset}
{counted}devices: auto
space:
{space}
probe: {{iterations: 8, max_seconds: 420}}
search: {{trials: 24}}
"""
