"""Writes a study file with comments, as a person would."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.drafting.draft import Draft, Used
from tuner.drafting.progress import Found
from tuner.drafting.samples import of_one_rank, sample_lines, without_samples
from tuner.drafting.watching import Watched
from tuner.trainers.presets import ACCUMULATED, PRESETS

_MIMICKIT = (
    "name: mimickit",
    "trainer:",
    "  name: mimickit",
    "  root: ${MIMICKIT_ROOT}",
    "  python: ${MIMICKIT_PYTHON:-python3}",
    "  options: {engine_config: data/engines/newton_engine.yaml}",
    'cases: ["*"]',
    "devices: auto",
    "space:",
)
_NO_TEXT = {"true", "false", "null", "yes", "no", "on", "off"}
"""Words that YAML reads as other values than text."""


def study_text(name: str, draft: Draft, watched: Watched, devices: str, uses: Sequence[Used]) -> str:
    """Return the text of a study file for a command that was watched."""
    found, ranks = watched.found, sum(use.worked for use in uses)
    is_unclear = of_one_rank(draft, found, ranks) is not None
    return "\n".join(
        [
            f"# Made by `tuner init` from: {one_line(shlex.join(draft.words))}",
            "# Start tuner in the folder in which that command runs.",
            f"name: {_flow(name)}",
            "trainer:",
            "  name: command",
            *([f"  python: {text(draft.python)}  # programs beside it are found, too"] if draft.python else []),
            "  options:",
            f"    command: {text(' '.join(map(_word, draft.template.words)))}",
            *_progress(found, without_samples(found.patterns) if is_unclear else found.patterns),
            *(f"    {line}" for line in sample_lines(draft, found, ranks)),
            *_env(draft.env, found.preset),
            *_learning(draft),
            f"devices: {text(devices)}  # {_seen(uses)}",
            "objective: min_avg_util  # or samples_per_s, if samples are counted",
            "space:",
            *(f"  {parameter}: {_flow(values)}" for parameter, values in draft.space().items()),
            f"# The first iteration came after {found.reports[0].t_s:.0f} s{_each(found.iteration_s)}.",
            "probe: {iterations: 8, max_seconds: 420}",
            "search: {trials: 24}",
            "",
        ]
    )


def _each(iteration_s: float | None) -> str:
    return "" if iteration_s is None else f", later ones took {iteration_s:.2g} s each"


def _progress(found: Found, patterns: Sequence[str]) -> list[str]:
    if found.preset:
        return [
            f"    # one iteration: {PRESETS[found.preset].counts}",
            f"    progress: {found.preset}",
        ]
    if file := found.file:
        keys = {"path": f"{{out_dir}}/{file.pattern}", "format": file.format, **file.columns}
        return [f"    # found in {one_line(file.pattern)}", f"    progress_file: {_flow(keys)}"]
    if not found.patterns:
        return ["    # the trainer reports its progress itself, with report()"]
    shown = [f"    #   {one_line(line[:100])}" for line in found.lines[-1:]]
    counted = ["    # each such line counts as one iteration, however many steps it stands for"]
    return [
        "    # found in lines such as:",
        *shown,
        *([] if found.counts_numbers else counted),
        "    progress:",
        *(f"      - {text(pattern)}" for pattern in patterns),
    ]


def _env(env: Mapping[str, str], preset: str | None) -> list[str]:
    """Return the variables that the preset does not set by itself."""
    own = env.items() - (PRESETS[preset].env.items() if preset else set())
    return [f"    env: {_flow(dict(sorted(own)))}"] if own else []


def _learning(draft: Draft) -> list[str]:
    names = [search.parameter for search in draft.searches if search.changes_learning]
    return [f"    learning: {_flow(names)}  # these change what is learnt, the others only the speed"] if names else []


def _seen(uses: Sequence[Used]) -> str:
    return ", ".join(
        f"{use.device.name} {'-' if use.util_pct is None else f'{use.util_pct:.0f}'} % busy" for use in uses
    )


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
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z_][\w.-]*", value) and value.lower() not in _NO_TEXT else text(value)
    return json.dumps(value)


def preset_text(name: str, preset: str) -> str:
    """Return the text of a study file for a popular trainer, to be filled in."""
    row = PRESETS[preset]
    space = [f"  {parameter}: {values}" for parameter, values in row.space.items()]
    if not row.command:
        return "\n".join([*_MIMICKIT, *space, ""])
    known = row.samples.removesuffix(ACCUMULATED)
    counted = [f"    samples_per_iteration: {text(known)}"] if known else []
    return "\n".join(
        [
            "# Put your own command in: its script, its flags, and {placeholders} for the values that are searched.",
            f"name: {_flow(name)}",
            "trainer:",
            "  name: command",
            "  options:",
            f"    command: {text(row.command)}",
            f"    # one iteration: {row.counts}",
            f"    progress: {preset}",
            *counted,
            "devices: auto",
            "space:",
            *space,
            "probe: {iterations: 8, max_seconds: 420}",
            "search: {trials: 24}",
            "",
        ]
    )
