"""Makes the template of a typed command, with placeholders in place of values, and fills it with a config's values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from tuner.count import Flag
from tuner.study.command_words import (
    LAUNCHERS,
    NODES,
    OVERRIDE,
    PORTS,
    RANKS,
    TOTAL_RANKS,
    WORLD,
    Setting,
    is_flag,
    nodes,
    program_place,
    ranks,
    settings,
)
from tuner.trainers.command_options import LAUNCH_FACTS
from tuner.trainers.template import fill, placeholders

HYDRA_FOLDER = "hydra.run.dir"
"""The setting with the folder of a Hydra script's run."""
_SWITCH = "{flag:"
"""The begin of a placeholder for a flag without a value."""

_PLACEHOLDER_MEANINGS = {
    "out_dir": "a folder of the probe's own",
    "port": "a free port, so that two probes do not meet",
    "ranks": "the number of ranks",
    "local_ranks": "the ranks of a machine",
    "devices": "the devices of the probe",
    "iterations": "more than a probe needs",
}
"""Placeholder → what a probe has in its place."""


class WordChange(NamedTuple):
    """Words of a command that a probe replaces or adds."""

    typed: str
    """The words as typed; empty where words are added."""
    replacement: str
    """The words that a probe has, with placeholders."""

    def is_named_in(self, text: str) -> bool:
        """Return whether a text, such as an error message, contains the name of the changed flag."""
        name = re.split("[= ]", self.replacement)[0].lstrip("-")
        return len(name) > 2 and any(form in text for form in (name, name.replace("-", "_")))

    def __str__(self) -> str:
        """Return the change in words, such as `adds --master-port {port} (a free port, …)`."""
        names = sorted(placeholders([self.replacement]) & _PLACEHOLDER_MEANINGS.keys())
        meaning = f" ({', '.join(_PLACEHOLDER_MEANINGS[name] for name in names)})" if names else ""
        return f"{f'replaces {self.typed} by' if self.typed else 'adds'} {self.replacement}{meaning}"


class Template(NamedTuple):
    """A command line with placeholders, as the study file has it."""

    words: tuple[str, ...]
    changes: tuple[WordChange, ...]
    """What differs from the typed command."""


def template(
    words: Sequence[str], searched: Mapping[str, str], variables: Iterable[str] = (), flags: Sequence[Flag] = ()
) -> Template:
    """Return a typed command with placeholders for the searched flags, and for what the tuner sets in each probe.

    The tuner sets the number of ranks, the output folder and the launcher's port, for example. A searched flag that the
    command lacks is appended, unless its placeholder is typed somewhere. All other words have their braces doubled, so
    that a typed `{x}` is no placeholder.

    Args:
        words: the words of the command, as typed.
        searched: flag, spelled as the user or the script names it → its placeholder: `{num_workers}`, or `{flag:amp}`
            for a flag without a value. For a script of Hydra, `HYDRA_FOLDER` is among them, with `{out_dir}`.
        variables: the values of the environment variables before the command, which may have placeholders.
        flags: those of the script.
    """
    literal = [literal_text(word, searched) for word in words]
    changes: list[WordChange] = []
    # the values of settings
    typed = settings(words, flags, searched)
    for setting in typed:
        of_search = (placeholder for flag, placeholder in searched.items() if setting.is_called(flag))
        placeholder = next(of_search, _launch_fact(setting, words))
        if placeholder is None:
            continue
        literal[setting.word_index] = setting.word_with(placeholder, words)
        before = "" if literal[setting.word_index] != placeholder else f"{words[setting.word_index - 1]} "  # the flag
        changes.append(WordChange(f"{before}{words[setting.word_index]}", f"{before}{literal[setting.word_index]}"))
    # switches, and flags that the command lacks
    texts = (*words, *variables)
    for flag, placeholder in searched.items():
        is_typed = any(setting.is_called(flag) for setting in typed)
        has_placeholder = any(placeholder in text for text in texts)
        if f"--{flag}" in words and placeholder.startswith(_SWITCH):
            literal[words.index(f"--{flag}")] = placeholder
            changes.append(WordChange(f"--{flag}", placeholder))
        elif not is_typed and not has_placeholder:
            added = _words_that_add(flag, placeholder, words, flags, is_hydra=HYDRA_FOLDER in searched)
            literal += added
            changes.append(WordChange("", " ".join(added)))
    return Template(tuple(_with_port(literal, changes)), tuple(changes))


def command_with_values(
    words: Sequence[str],
    template_words: Sequence[str],
    values: Mapping[str, object],
    baseline: Mapping[str, object],
    facts: Mapping[str, object],
) -> tuple[str, ...] | None:
    """Return the command that a person typed, with the values of a config in place of the typed values.

    All other words stay as typed. A flag that was not typed is added only if the config changes its value. Typed words
    and template are read side by side, from left to right: where they differ, the tuner has added a flag to the latter.

    Args:
        words: the words as typed.
        template_words: the words of its template, which may be more, for added flags and a launcher's port.
        values: parameter → its value in the config.
        baseline: parameter → the value that the typed command uses: a typed one, or a flag's default.
        facts: the values of placeholders that are typed, such as `{out_dir}`.

    Returns:
        None where the template was changed, so that it no longer belongs to the typed command.
    """
    line: list[str] = []
    changed = {name: value for name, value in values.items() if baseline.get(name) != value}
    typed_left, template_left = list(words), list(template_words)
    while typed_left and template_left:
        word = template_left.pop(0)
        names = placeholders([word])
        if names or word == literal_text(typed_left[0], {}):  # a word that was typed
            typed = literal_text(typed_left.pop(0), {})
            is_searched = bool(names - LAUNCH_FACTS)
            line.append(word if is_searched else typed)
            continue
        # a flag that the tuner has added, and its value
        value = template_left.pop(0) if template_left else ""
        names_of_value = placeholders([value])
        is_fact = bool(names_of_value & LAUNCH_FACTS) and value != "{port}"
        if not names_of_value or is_fact:  # the tuner adds no such pair, so the template was changed by hand
            return None
        if names_of_value <= changed.keys():  # never for `{port}`: a training can use the launcher's usual port
            line += [word, value]
    if typed_left:
        return None
    return (*fill(line, {**facts, **values}), *fill(template_left, changed))  # flags at the end: only changed ones


def _words_that_add(
    flag: str, placeholder: str, words: Sequence[str], flags_of_script: Sequence[Flag], *, is_hydra: bool
) -> list[str]:
    """Return the words that add a flag with its placeholder to a command, in the form of its other flags.

    That form is `--flag value`, `--flag=value` or `flag=value`. The flag is spelled as in the script, or else with
    dashes or underscores like the typed flags. Hydra takes `flag=value` alone, also behind its own `--config-name`. A
    script that reads its words in order, as nanoGPT, takes `--flag=value` alone.
    """
    if placeholder.startswith(_SWITCH):
        return [placeholder]
    script_words = words[program_place(words) or 0 :]
    names = [setting.name for setting in settings(script_words)]
    if not any(flag in known.names for known in flags_of_script) and any("-" in name for name in names):
        flag = flag if any("_" in name for name in names) else flag.replace("_", "-")
    flags = [word for word in script_words if is_flag(word)]
    if is_hydra or (not flags and any(map(OVERRIDE.fullmatch, script_words))):
        return [f"{flag}={placeholder}"]
    is_read_in_order = any(known.is_read_in_order for known in flags_of_script)
    if is_read_in_order or (flags and all("=" in word for word in flags)):
        return [f"--{flag}={placeholder}"]
    return [f"--{flag}", placeholder]


def literal_text(text: str, searched: Mapping[str, str]) -> str:
    """Return a text with doubled braces, which are literal in a template: `{x}` becomes `{{x}}`.

    Placeholders keep their braces: those of `searched`, which is flag → placeholder, and those that the tuner fills,
    such as `{out_dir}`. Behind a dollar all braces are doubled, so that a typed `${x}` is no reference to a variable of
    the study.
    """
    kept = {*searched.values(), *(f"{{{name}}}" for name in LAUNCH_FACTS)}
    pieces = re.split(rf"(?<!\$)({'|'.join(map(re.escape, sorted(kept)))})", text)
    return "".join(piece if piece in kept else piece.replace("{", "{{").replace("}", "}}") for piece in pieces)


def _launch_fact(setting: Setting, words: Sequence[str]) -> str | None:
    """Return the placeholder for a setting that the tuner sets in each probe, such as `{out_dir}`; None for others."""
    name, value = setting.parameter, setting.value
    folders = (
        *("out_dir", "output_dir", "log_dir", "logdir", "logging_dir", "save_dir", "default_root_dir", "dir"),
        *("work_dir", "workdir", "run_dir", "exp_dir", "experiment_dir", "results_dir", "checkpoint_dir", "ckpt_dir"),
    )
    limits = ("max_iterations", "max_steps", "max_iters", "num_iterations", "iterations", "steps")
    few = 1000  # a command that ends after fewer iterations may end before a probe has measured enough
    is_number = value.isdecimal()
    without_world = [word for word in words if WORLD not in word.replace("-", "_")]
    has_nodes = nodes(words) > 1
    of_nodes = {**dict.fromkeys(NODES, "{nodes}"), "node_rank": "{node_rank}", "machine_rank": "{node_rank}"}
    of_nodes |= {"master_addr": "{head}", "main_process_ip": "{head}", "rdzv_endpoint": "{head}:{port}"}
    fact = None
    if has_nodes and name in of_nodes:
        fact = of_nodes[name]
    elif name in RANKS and is_number and int(value) > 0:
        # on several nodes, most flags count the ranks of one node
        fact = "{local_ranks}" if has_nodes and name not in TOTAL_RANKS else "{ranks}"
    elif name == WORLD and is_number and str(ranks(without_world)) == value:
        fact = "{ranks}"  # a world size may count machines: that it counts ranks shows only where another flag agrees
    elif name == "devices" and re.fullmatch(r"(?:cpu|cuda:\d+)(?:,(?:cpu|cuda:\d+))+", value):
        fact = "{devices}"
    elif name in PORTS and is_number:
        fact = "{port}"
    elif name in folders and (name != "dir" or setting.name == HYDRA_FOLDER):
        fact = "{out_dir}"
    elif name in limits and is_number and int(value) < few:
        fact = "{iterations}"
    return fact


def _with_port(words: Sequence[str], changes: list[WordChange]) -> Sequence[str]:
    """Return a command in which the launcher gets the port `{port}`, because probes at one time cannot share a port.

    The added words are also appended to `changes`. A command stays as it is if it has no launcher, or says itself where
    its ranks meet.
    """
    names = {setting.parameter for setting in settings(words, with_bare=True)}
    if names & {*PORTS, "rdzv_endpoint", "standalone"}:  # the command says where its ranks meet
        return words
    for place, word in enumerate(words):
        word_before = words[place - 1] if place else ""
        if PurePath(word).name == "torchrun" or (word_before == "-m" and word in LAUNCHERS):
            flag = "--master-port"
        elif word == "launch" and PurePath(word_before).name == "accelerate":
            flag = "--main_process_port"
        else:  # no launcher
            continue
        changes.append(WordChange("", f"{flag} {{port}}"))
        return [*words[: place + 1], flag, "{port}", *words[place + 1 :]]
    return words
