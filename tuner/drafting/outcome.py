"""Says what a search has found for a typed command: its own speed, the best config's, and the line to copy.

The command's own config has the values that were typed. The line to copy is the command with the best config's values.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

from tuner import export
from tuner.count import TrainingCounts, differences
from tuner.devices.found import variables_of_line
from tuner.drafting.command_template import command_with_values, literal_text
from tuner.drafting.writing import command_of_file
from tuner.probe import Quantity, of_known, reserved_port
from tuner.running.job import Workbench
from tuner.search.standing import Standing
from tuner.study import Case, Config, copy_name, escaped, find, shell_join, with_copies, with_references
from tuner.trainers.base import program_folder, with_folder_in_path
from tuner.trainers.command import CommandTrainer
from tuner.trainers.command_options import fill, placeholders
from tuner.trainers.typed_command import typed_command


class CommandOutcome(NamedTuple):
    """What the search for a typed command has found, in words."""

    lines: tuple[str, ...] = ()
    """Lines for the person who typed the command."""
    command: str | None = None
    """The command line with the best values, in shell quoting; None where the typed command stays as it is."""


def outcome_of(bench: Workbench, view: export.CaseView, command: Sequence[str]) -> CommandOutcome:
    """Return what the search has found for a typed command, as lines for the person, and the line to copy.

    The files that the line to copy needs are written. `view` is what is stored about the command's case. The last line
    says how many configs failed, if any did.
    """
    failed = export.failed_configs(view, bench.folder)
    outcome = _outcome_of_measured(bench, view, command)
    return outcome._replace(lines=(*outcome.lines, failed)) if failed else outcome


def _outcome_of_measured(bench: Workbench, view: export.CaseView, command: Sequence[str]) -> CommandOutcome:
    """Return what `outcome_of` returns, without its line about configs that failed."""
    own_values = bench.space_for(Case(name=view.name)).own or {}
    view = replace(view, own=own_values)
    best, baseline, trainer = view.best, view.default, bench.trainer
    if best is None:
        return CommandOutcome((str(export.result_finding(export.summary(view))),))
    if not isinstance(trainer, CommandTrainer):
        return CommandOutcome()
    own_line = f"your command: {_speed(baseline, view)}{_share_of_peak_in_words(baseline)}"
    # the command stays as it is: its own config is the best, speeds are unknown, or it was faster before it failed
    is_own_best = baseline is not None and baseline.launch_key == best.launch_key
    has_speeds = view.objective in export.SPEEDS or bool(baseline and baseline.samples_per_s and best.samples_per_s)
    is_best_slower = view.objective in export.SPEEDS and baseline is not None and baseline.value >= best.value
    if is_own_best or not has_speeds or (view.failed_again_text and is_best_slower):
        times = _time_shares(baseline) if baseline else ()
        doubt = [f"  not sure: {why}" for why in (view.slowing_text, view.loaded_text) if why]
        return CommandOutcome((own_line, _why_it_stays(baseline, best, view), *times, *doubt))
    # another config is better: both speeds, the changed values, doubts, and the line to copy
    gained = export.gain(view)
    changes = _changed_values(bench, trainer, view, own_values)
    learns_otherwise = any(best.config.get(name) != own_values.get(name) for name in trainer.learning)
    kept = "a step is the same" if learns_otherwise else "the same training"
    learning = _learning_compared(baseline, best, kept) if baseline else ()
    to_copy = _make_line_to_copy(bench, view, command)
    faster = f", {gained.factor} as many{gained.over}" if gained and gained.times else ""
    best_line = f"the best:     {_speed(best, view)}{_share_of_peak_in_words(best)}{faster}"
    unknown = list(export.unknown_gain(view))
    # what was disturbed or not seen must not hide another doubt
    shown_count = max(1, len(list(export.unmeasured(view)))) + bool(view.loaded_text) + bool(view.slowing_text)
    doubt = [] if unknown else [f"  not sure: {why}" for why in islice(export.doubts(view), shown_count)]
    lines = (*unknown, own_line, best_line, *changes, *learning, *_time_shares(best), *doubt, *to_copy.lines)
    return CommandOutcome(lines, to_copy.command)


def _changed_values(bench: Workbench, trainer: CommandTrainer, view: export.CaseView, values: Config) -> Iterator[str]:
    """Yield a line for each value in which the best config differs from `values`, those of the typed command."""
    ranks = len(bench.devices)
    best = view.best.config if view.best else {}
    before, after = trainer.with_computed(values, ranks), trainer.with_computed(best, ranks)
    remarks = dict.fromkeys(trainer.learning, "; this changes what is learnt")
    remarks |= dict.fromkeys(after.keys() - best.keys(), "; the total batch stays")  # of computed values
    typed = {parameter.name: parameter.own for parameter in bench.space_for(Case(name=view.name)).parameters}
    for name in {**before, **after}:
        if name not in before:  # the own config does not meet its condition; the typed command may name it still
            if after[name] != typed.get(name):
                yield f"  {name}: {after[name]} (not used before)"
        elif name not in after:
            yield f"  {name}: {before[name]} (not used any more)"
        elif str(before[name]) != str(after[name]):
            yield f"  {name}: {before[name]} → {after[name]}{remarks.get(name, '')}"


def _make_line_to_copy(bench: Workbench, view: export.CaseView, command: Sequence[str]) -> CommandOutcome:
    """Write the files that the line to copy for the best config needs, and return the line, and what was written.

    The files are copies of configuration files, with the best values. The result is empty where the command in the
    study file was changed by hand.
    """
    trainer, case = bench.trainer, Case(name=view.name)
    best = view.best.config if view.best else {}
    folder = best_folder(case.name)
    line = line_to_copy(bench, case, best, command, folder)
    if line is None or not isinstance(trainer, CommandTrainer):
        return CommandOutcome()
    out_dir = bench.slot(case, folder, best).out_dir
    if str(out_dir) in line:  # a shell that writes there makes no folder
        out_dir.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    files = trainer.changed_files(best, len(bench.devices))  # configuration files with the best values
    for name, text in files.items():
        copy = trainer.folder / copy_name(Path(name), out_dir)
        copy.write_text(text, encoding="utf-8")
        lines.append(f"wrote {copy}, which is {name} with these values")
    return CommandOutcome(tuple(lines), line)


def best_folder(case: str, member: int | None = None) -> str:
    """Return the folder, below the study's, for the output of a training with a case's best config.

    A study of several objectives has several best configs, the members of a front. Each `member`, the number of a
    trial, has a folder of its own.
    """
    return f"best/{case}" if member is None else f"best/{case}/{member:04d}"


def typed_line(bench: Workbench, case: Case, config: Config, folder: str) -> str | None:
    """Return what `line_to_copy` returns for the typed command from which a study file was made; None without one.

    A reference stands in place of each key that was typed.
    """
    command = command_of_file(find(bench.requested_study))
    line = line_to_copy(bench, case, config, command, folder) if command else None
    return line and with_references(line)


def line_to_copy(bench: Workbench, case: Case, config: Config, command: Sequence[str], folder: str) -> str | None:
    """Return a typed command with the values of a config, as a line for a shell.

    `folder` is the folder for its output, below the study's folder. Returns None where the trainer takes no command,
    and where the command in the study file was changed by hand, so that it no longer belongs to the typed one.
    """
    trainer = bench.trainer
    if not isinstance(trainer, CommandTrainer):
        return None
    ranks = len(bench.devices)
    own_values = trainer.with_computed(bench.space_for(case).own or {}, ranks)
    values = trainer.with_computed(config, ranks)
    with reserved_port() as port:  # a port that is free now: a person starts the line later
        slot = replace(bench.slot(case, folder, config), port=port, to_train=True)
    copies = {name: copy_name(Path(name), slot.out_dir) for name in trainer.changed_files(config, ranks)}
    facts = trainer.values(case, config, slot)
    path_folder = program_folder(bench.spec.trainer.python)
    program = shutil.which(typed_command(command).words[0])
    if program and Path(program).parent == path_folder:  # the folder is in the shell's PATH already
        path_folder = None
    template = bench.spec.trainer.command
    variables = variables_of_line(bench.spec, trainer.plan(case, config, slot).env, ranks)
    return command_line(
        command, template, values, own_values, copies=copies, facts=facts, variables=variables, path_folder=path_folder
    )


def command_line(
    command: Sequence[str],
    template: Sequence[str],
    values: Mapping[str, object],
    baseline: Mapping[str, object],
    *,
    copies: Mapping[str, Path | str] = MappingProxyType({}),
    facts: Mapping[str, object] = MappingProxyType({}),
    variables: Mapping[str, str] = MappingProxyType({}),
    path_folder: Path | None = None,
) -> str | None:
    """Return a typed command with the values of a config, quoted so that a shell starts exactly what was measured.

    Args:
        command: the words as typed.
        template: the command in the study file, with placeholders.
        values: parameter → its value in the config.
        baseline: parameter → the value with which the command was typed.
        copies: a file as the command names it → the file to take.
        facts: the values of placeholders such as `{out_dir}`.
        variables: the variables that the line sets, whatever is typed.
        path_folder: the folder that goes to the front of PATH, as in a probe; None for an unchanged PATH.

    Returns:
        None where the template no longer belongs to the command.
    """
    # the words
    typed = typed_command(command)
    line = command_with_values(typed.words, template, values, baseline, facts)
    if not line:
        return None
    # the variables before them: typed with a placeholder, searched by their name, or as typed
    placeholder_of = {name: f"{{{name}}}" for name in values}
    searched_variables = typed.env.keys() & (values.keys() - placeholders(template))
    env = dict(variables)
    for name, text in typed.env.items():
        to_fill = placeholder_of[name] if name in searched_variables else literal_text(text, placeholder_of)
        for filled in fill((to_fill,), {**facts, **values}):  # none where its placeholder has no value
            env.setdefault(name, escaped(filled))
    if path_folder:
        env["PATH"] = with_folder_in_path(path_folder, env.get("PATH", "${PATH}"))
    return shell_join(map(escaped, with_copies(line, copies)), env)


def _newest_counts(config: Standing) -> TrainingCounts | None:
    """Return what was counted inside the newest probe of a config in which something was counted; None without one."""
    return next((trial.probe.training for trial in reversed(config.trials) if trial.probe.training), None)


def _time_shares(config: Standing) -> Iterator[str]:
    """Yield a line with the shares of a training's time that data, evaluation and saves take; no line if uncounted.

    They are those of the longest probe, because a short one may see no pause.
    """
    counted = [trial.probe for trial in config.trials if trial.probe.training and trial.probe.training.shares]
    longest = max(counted, key=lambda probe: probe.total_s or 0.0, default=None)
    shares = longest and longest.training and longest.training.shares
    if not shares:
        return
    share_of = {"waiting for data": shares.data, "evaluation": shares.evaluation, "saves": shares.saves}
    parts = [f"{100 * share:.0f} % {what}" for what, share in share_of.items() if share >= 0.01]
    yield f"  its time: {', '.join(parts)}, the rest training steps" if parts else "  its time: training steps alone"


def _learning_compared(baseline: Standing, best: Standing, kept: str) -> Iterator[str]:
    """Yield a line that says whether the best config learns the same as `baseline`, the config of the typed command.

    `kept` begins the line where counting shows no difference.

    What was counted inside the first steps of both trainings decides. Without counts of both, there is no line.
    """
    before, after = _newest_counts(baseline), _newest_counts(best)
    if before is None or after is None:
        return
    if changed := differences(before.signature, after.signature):
        yield f"  this changes what is learnt: {'; '.join(map(str, changed))}"
        return
    samples_of_step, tokens = before.signature.samples_in_words, before.tokens_per_sample
    of_tokens = f" of {tokens} tokens" if tokens and tokens > 1 else ""
    samples = f"{samples_of_step} samples{of_tokens} a step, " if samples_of_step else ""
    parameters = f"{before.signature.parameters:,} parameters, {before.signature.precision}"
    yield f"  {kept}: {samples}{parameters}"


def _why_it_stays(baseline: Standing | None, best: Standing, view: export.CaseView) -> str:
    """Return the line that says why the command stays as it is: speeds are unknown, or no other config is better.

    `baseline` is the config with the typed values, None where it was not measured.
    """
    # the first config whose speed cannot be compared with the best's, as on another machine
    incomparable = next(filter(None, map(view.unlike_best, view.configs)), None)
    if incomparable:
        why = f"which config is faster is unknown, because {incomparable}"
    elif view.failed_again_text:
        why = f"{view.failed_again_text}; no other config measured more"
    elif baseline is None or baseline.launch_key != best.launch_key:  # another config is the best
        reached = f"{view.objective} of {best.value:.1f}"
        why = f"{reached} was reached, but speeds are unknown, so there is no line to copy"
    elif len(view.configs) == 1:
        why = "each other config failed" if view.failures else "no other config was measured"
    elif view.objective in export.SPEEDS:
        why = _unclear_rival(baseline, view) or "no other config is better"
    else:
        why = f"no other config is better by {view.objective}, and speeds are unknown"
    return f"{why}; your command stays as it is"


def _unclear_rival(baseline: Standing, view: export.CaseView) -> str | None:
    """Return in words that another config measured more than `baseline`, but within the errors; None where none did.

    `baseline` is the config with the typed values, and the best of the case.
    """
    rival = view.chosen.instead_of if view.chosen else None  # it measured more than the config that was chosen
    if rival is None:
        return None
    times = Quantity(rival.value, rival.widened_error).divided_by(Quantity(baseline.value, baseline.widened_error))
    changed = {name: value for name, value in rival.config.items() if baseline.config.get(name) != value}
    made = f"{export.in_words(changed)} made {export.with_error(times.value, times.error, 2)} times as many"
    return f"which config is faster is unknown: {made}, which the errors do not tell from 1"


def _speed(config: Standing | None, view: export.CaseView) -> str:
    """Return in words the speed of a config with its error, or the value of another objective; None: not measured."""
    if config is None:
        return "not measured"
    mean = f" (mean of {config.readings})" if config.readings > 1 else ""
    if unit := export.SPEEDS.get(view.objective):
        return f"{export.with_error(config.value, config.widened_error)} {unit}{mean}"
    speed = "" if config.samples_per_s is None else f", {export.figure(config.samples_per_s)} samples/s"
    return f"{config.value:.1f} {view.objective}{speed}{mean}"


def _share_of_peak_in_words(config: Standing | None) -> str:
    """Return `, 41 % of the card's bf16 peak`: a config's model FLOPs utilisation; empty where it is unknown."""
    share_pct = of_known(fmean, (trial.probe.mfu_pct for trial in config.trials)) if config else None
    return "" if share_pct is None else f", {share_pct:.3g} % of the card's bf16 peak"
