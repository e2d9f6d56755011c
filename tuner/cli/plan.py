"""`tuner plan`, which prints a shell script with the files, environment and command of a config for each case."""

import json
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tuner import export
from tuner.cli import options
from tuner.cli.hints import cut_ladders
from tuner.cli.slurm import job_bench, script_header
from tuner.cli.work import Cases, Settings, first_config, with_stored_rungs
from tuner.devices.found import VISIBLE_CARDS, AbsentDevices
from tuner.drafting.outcome import best_folder, typed_line
from tuner.drafting.searches import Role
from tuner.errors import StoreError, StudyError, TrainerError
from tuner.probe import HEAD, THREADS, ProbePlan, Slot, number_of, reserved_port
from tuner.records.urls import DATABASE, database_url
from tuner.running.events import auto_to_come
from tuner.running.job import Workbench, chosen_cases, open_workbench
from tuner.search.resource_model import expected_resources
from tuner.search.standing import Standing
from tuner.study import NODES, Case, Config, SlurmSpec, key_warnings, literal_word, shell_join, with_references
from tuner.study.command_words import split_variables
from tuner.tools.prediction import LARGEST_SHARE, LEAST_SHARE, predicted_mib
from tuner.trainers.base import with_folder_in_path
from tuner.trainers.registry import check_program


def script(plan: ProbePlan, *, left_to_slurm: bool = False, typed: str | None = None) -> str:
    """Return a shell script that starts what a probe with this plan starts, with its files and variables.

    On several nodes, `srun` starts the command on each of them; the batch script runs on the first.

    Args:
        plan: the plan.
        left_to_slurm: whether SLURM chooses the cards, so that the script does not set `VISIBLE_CARDS`.
        typed: a command line as the user typed it, with the config's values; it replaces that of the plan.
    """
    # folders and files
    folders = dict.fromkeys([plan.slot.out_dir, *(path.parent for path in plan.files)])
    if typed is not None:  # a typed command needs only the folders that it names
        folders = [folder for folder in folders if str(folder) in typed]
    lines = [f"mkdir -p {literal_word(str(folder))}" for folder in folders]
    for path, text in plan.files.items():
        lines += _lines_that_write(text, literal_word(str(path)))
    lines.append(f"cd {literal_word(str(Path(plan.cwd)))}")
    # the command, with its variables before it: as a person typed it, or that of the plan
    env = dict(plan.env)
    if left_to_slurm:
        env.pop(VISIBLE_CARDS, None)
    if typed is not None:
        typed_variables, _ = split_variables(shlex.split(typed))
        # the line to copy has a number of threads where the training needs one
        added = {name: value for name, value in env.items() if name not in {*typed_variables, THREADS}}
        return "\n".join([*lines, with_references(f"{shell_join((), added)} {typed}".lstrip())]) + "\n"
    if plan.programs:  # the folder of the trainer's Python, for programs that the command starts
        env = {name: with_folder_in_path(plan.programs, value) for name, value in {"PATH": "${PATH}", **env}.items()}
    command = with_references(shell_join(plan.argv, env))
    if plan.slot.nodes > 1:
        # without the second variable, srun gives a task one core whatever the job has
        lines += [f'export {HEAD}="$(hostname)"', 'export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"']
        command = f"srun --nodes={plan.slot.nodes} --kill-on-bad-exit=1 bash -c {literal_word(command)}"
    return "\n".join([*lines, command]) + "\n"


def _lines_that_write(text: str, file: str) -> list[str]:
    """Return the lines of a shell script that write a text to a file, whose name is a word of the shell.

    Lines of usual characters are a here-document, which is easy to read; any other text is a quoted word.
    """
    *lines, after_last_break = text.split("\n")  # a here-document always ends with a line break
    if after_last_break or not all(map(str.isprintable, lines)):
        return [f"printf %s {literal_word(text)} > {file}"]
    end = "END_OF_FILE"
    while end in lines:
        end += "_"
    return [f"cat > {file} <<'{end}'", *lines, end]


Best = Annotated[
    bool, typer.Option("--best", help="Print the best config, to train with; of a typed command, the line to copy.")
]
Predict = Annotated[
    bool, typer.Option("--predict", help="Say what memory and samples/s the config is expected to have.")
]
Member = Annotated[
    int | None,
    typer.Option("--trial", min=0, help="With --best: the trial of the Pareto front to print; default: the first."),
]


class _Planned(NamedTuple):
    """A config of a case whose script is printed."""

    case: Case
    config: Config
    folder: str
    """The folder for its output, below the study's folder."""
    remarks: Sequence[str]
    """The lines to print before its script."""
    most_cores: str = ""
    """The number of cores of the machine that has measured the config, as text; empty where it is unknown."""


def plan(
    study: options.Study,
    cases: Cases = None,
    best: Best = False,
    member: Member = None,
    settings: Settings = None,
    predict: Predict = False,
    devices: options.Devices = None,
    launcher: options.Launcher = "local",
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Print a shell script with the files, environment and command of one config per case. Nothing is started.

    Without --best, the command is that of a probe, which may end by itself.

    Example: tuner plan --study train --best
    """
    if best and settings:
        raise StudyError("--best prints the config that was found, and --set your own config; give only one of them")
    if member is not None and not best:
        raise StudyError("--trial is for the best config; give --best too")
    # which configs
    options.need_own_study(study if best else None, storage, runs)
    bench = _open_bench(study, devices, launcher, storage, runs)
    chosen = chosen_cases(bench, cases)
    plans = _best_plans(bench, chosen, storage, member) if best else _first_plans(bench, chosen, settings or [])
    planned = list(plans)
    # the script: the header of a job, and for each config its remarks, its values and its commands
    if launcher == "slurm":
        for line in script_header(_job_of(bench, planned), bench.spec.devices_for(devices), bench.spec.name):
            options.say(line)
    for line in (*options.fallback_lines(bench.spec, study), *key_warnings(bench.spec)):
        options.comment(line)
    errors: list[str] = []  # of cases without a script; the others still have theirs
    for case, config, folder, remarks, _ in planned:
        try:
            made = bench.trainer.plan(case, config, _slot(bench, case, config, folder, to_train=best))
            typed = typed_line(bench, case, config, folder) if best and made.slot.nodes == 1 else None
        except TrainerError as error:
            errors.append(f"{case.name}: {error}")
            continue
        predictions = _predictions(bench, case, config, storage) if predict else ()
        for line in (*remarks, *(f"{case.name}: {text}" for text in predictions)):
            options.comment(line)
        options.say(f"# {case.name}: {json.dumps(config)}".replace("\n", " "))
        options.print_to_copy(script(made, left_to_slurm=launcher == "slurm", typed=typed))
    if errors:
        raise TrainerError("\n".join([f"no script for {len(errors)} of {number_of(len(chosen), 'case')}:", *errors]))


def _open_bench(study: str, devices: str | None, launcher: str, storage: str | None, runs: Path) -> Workbench:
    """Return the workbench of a study, for `slurm` on the devices of a job, with the stored values that are `auto`."""
    bench = (job_bench if launcher == "slurm" else open_workbench)(study, devices=devices, runs=runs)
    has_begun = storage is not None or (bench.folder / DATABASE).is_file()
    return with_stored_rungs(bench, database_url(storage, bench.folder)) if has_begun else bench


def _best_plans(
    bench: Workbench, cases: Sequence[Case], storage: str | None, trial_number: int | None
) -> Iterator[_Planned]:
    """Yield the best config of each case that has one; of a Pareto front its trial `trial_number`, or the first one.

    Raises StoreError when no case has a best config, and StudyError when the front has no such trial.
    """
    if trial_number is not None and len(cases) > 1:
        raise StudyError(f"--trial {trial_number} is a trial of one case; name the case with --cases")
    reader = export.StudyReader(export.connect(database_url(storage, bench.folder)), bench.spec.name)
    views = {view.name: view for view in reader.cases if view.best}
    without_best = [case.name for case in cases if case.name not in views]
    if len(without_best) == len(cases):
        raise StoreError(export.no_best(*without_best))
    for name in without_best:
        options.say(f"{name}: left out, because it has no best config yet", to_stderr=True)
    for case in cases:
        view = views.get(case.name)
        if view is None or view.best is None:
            continue
        chosen = _member_of_front(case, view.front or [view.best], trial_number)  # no front: a study of one objective
        remarks = [*_front_lines(view, chosen), *_origin_lines(bench, case, view, chosen)]
        folder = best_folder(case.name, chosen.trial if view.front else None)
        measured_with = chosen.trials[-1].probe.host.get("cores", "")
        yield _Planned(case, chosen.config, folder, [f"{case.name}: {line}" for line in remarks], measured_with)


def _member_of_front(case: Case, members: Sequence[Standing], number: int | None) -> Standing:
    """Return the member with this trial number, or the first member. Raises StudyError for an unknown number."""
    for member in members:
        if number in {None, member.trial}:
            return member
    numbers = ", ".join(f"#{member.trial}" for member in members)
    raise StudyError(f"--trial {number} is not among the best of {case.name}; name one of {numbers}")


def _predictions(bench: Workbench, case: Case, config: Config, storage: str | None) -> Iterator[str]:
    """Yield what memory and samples/s a config is expected to have: by the study's probes, or else by its command."""
    url, name = database_url(storage, bench.folder), bench.spec.name
    view = None
    if export.has_study(url, name):
        view = export.StudyReader(export.connect(url), name).case(case.name)
    (expected,) = expected_resources(bench.space_for(case), view.trials if view else (), [config])
    share, speed = expected.memory_share, expected.samples_per_s  # each is None without enough probes
    if share:
        yield f"memory {100 * share.mean:.1f} % of a device, 90 % sure {100 * share.low:.1f} to {100 * share.high:.1f}"
    if speed:
        yield f"samples/s {speed.mean:.4g}, 90 % sure {speed.low:.4g} to {speed.high:.4g}"
    if share is None and bench.kind == "gpu":
        yield from _memory_without_run(bench, case, config)
    elif share is None and speed is None:
        yield "nothing is expected of it: no probe has run"


def _memory_without_run(bench: Workbench, case: Case, config: Config) -> Iterator[str]:
    """Yield what memory a config would take on a card, without a probe: by steps with tensors that have no data."""
    total_mib = bench.devices[0].mem_total_mib
    with tempfile.TemporaryDirectory(prefix="tuner-") as folder:
        try:
            memory_mib = predicted_mib(bench.trainer.plan(case, config, _slot(bench, case, config, f"{folder}/probe")))
        except TrainerError as error:
            yield f"no probe has run, and without one nothing is known of its memory: {error}"
            return
    share = f", {100 * memory_mib / total_mib:.0f} % of a device" if total_mib else ""
    low_mib, high_mib = LEAST_SHARE * memory_mib, LARGEST_SHARE * memory_mib
    yield (
        f"memory about {memory_mib:,.0f} MiB{share}, probably {low_mib:,.0f} to {high_mib:,.0f}: so near were 45 of 48 "
        "trainings on an H200, by which this range was chosen; no probe has run, this is from its steps with tensors "
        "that have no data"
    )


def _front_lines(view: export.CaseView, chosen: Standing) -> Iterator[str]:
    """Yield a line for each config of a Pareto front, so that the user can weigh the objectives; none without one."""
    if len(view.front) > 1:
        yield f"Pareto front of {', '.join(view.objectives)}:"
        yield from (f"  {_measured_values(view, member)}: {export.in_words(member.config)}" for member in view.front)
        yield f"the script is for trial #{chosen.trial}; --trial N prints another one"


def _measured_values(view: export.CaseView, member: Standing) -> str:
    """Return the trial of a config and the values of its objectives, each with its error, as text."""
    errors = (member.printed_metrics.get(f"{name}_se") for name in view.objectives)
    measured = zip(view.objectives, member.values, errors, strict=True)
    values = ", ".join(f"{name} {export.with_error(value, error)}" for name, value, error in measured)
    mean_of = f", mean of {member.readings}" if member.readings > 1 else ""
    return f"trial #{member.trial}: {values}{mean_of}"


def _origin_lines(bench: Workbench, case: Case, view: export.CaseView, best: Standing) -> Iterator[str]:
    """Yield where a best config comes from: its trial, values and gain, and what is different from a launch here."""
    row = export.summary(view)
    gained = export.gain_text(row) if row.gain and row.best and row.best.trial == best.trial else ""
    yield _measured_values(view, best) + (f"; the gain: {gained}" if gained else "")
    for finding in export.findings(row):
        if finding.topic in {export.Topic.CHOICE, export.Topic.DOUBT}:
            yield str(finding)
    present = bench.device_names
    measured_on = view.record.devices or present
    if isinstance(bench.source, AbsentDevices):  # those of a job, on a node that is not known yet
        if len(measured_on) != len(present):
            yield f"measured on {number_of(len(measured_on), 'device')}, and a job has {len(present)}"
    elif measured_on != present:
        yield f"measured on {', '.join(measured_on)}, launched here on {', '.join(present)}"
    elif not _is_launch_unchanged(bench, case, best):
        yield "command, environment or files have changed since this config was measured"


def _is_launch_unchanged(bench: Workbench, case: Case, measured_config: Standing) -> bool:
    """Return whether a config would be launched now as it was when it was measured; True where that is unknown.

    Command, variables and files are compared by the digest of the plan, which each trial stores.
    """
    trial = measured_config.trials[-1]
    slot = _slot(bench, case, trial.config, f"plans/{case.name}")
    make_plan = bench.trainer.warm_plan if trial.warm else bench.trainer.plan
    plan = make_plan(case, trial.config, slot)
    measured = trial.probe.plan_digest
    return not measured or plan is None or plan.digest == measured


def _first_plans(bench: Workbench, cases: Sequence[Case], settings: Sequence[str]) -> Iterator[_Planned]:
    """Yield each case's first config, changed by the settings.

    Raises StudyError for a setting outside the space, and TrainerError if the program to start does not exist.
    """
    if not isinstance(bench.source, AbsentDevices):  # a job may run where other programs are
        check_program(bench.trainer)
    for case in cases:
        remarks = cut_ladders(bench, [case])
        if bench.needs_calibration(case):
            remarks.append(f"{case.name}: {auto_to_come(str(bench.space_for(case).ladder))}")
        yield _Planned(case, first_config(bench, case, settings), f"plans/{case.name}", remarks)


def _job_of(bench: Workbench, planned: Sequence[_Planned]) -> SlurmSpec:
    """Return the resources of a SLURM job that trains with these configs: the nodes, cards and cores that they need."""
    slots = [bench.slot(case_plan.case, case_plan.folder, case_plan.config) for case_plan in planned]
    slurm = bench.spec.slurm
    if slots and NODES in bench.spec.space:  # otherwise all configs of the study have the same placement
        nodes = max(slot.nodes for slot in slots)
        cards = max(len(slot.local_devices) for slot in slots) if bench.kind == "gpu" else None
        slurm = slurm.model_copy(update={"nodes": nodes, "gpus": cards})
    if slurm.cpus_per_task is None:
        wanted = [_cores(case_plan, len(slot.local_devices)) for case_plan, slot in zip(planned, slots, strict=True)]
        cores = max((known for known in wanted if known is not None), default=None)
        slurm = slurm.model_copy(update={"cpus_per_task": cores})
    return slurm


def _cores(planned: _Planned, ranks: int) -> int | None:
    """Return the cores that a config needs on a node: one for each of its `ranks`, and one for each loader worker.

    These are at most the cores of the machine that has measured it. None where no parameter is a number of workers.
    """
    values = (value for name, value in planned.config.items() if Role.WORKERS.has(name))
    workers = next((value for value in values if type(value) is int and value >= 0), None)  # True is no number
    if workers is None:
        return None
    wanted = ranks * (1 + workers)
    return min(wanted, int(planned.most_cores)) if planned.most_cores.isdecimal() else wanted


def _slot(bench: Workbench, case: Case, config: Config, folder: str, *, to_train: bool = False) -> Slot:
    """Return the slot of a launch: the devices, a folder for its output, and a port that is free now.

    `to_train`: whether the launch is a whole training instead of a probe.
    """
    with reserved_port() as port:
        return replace(bench.slot(case, folder, config), port=port, to_train=to_train)
