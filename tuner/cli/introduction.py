"""What commands print before they begin: what runs, on which devices, what stands in, and what is not fixed yet."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.export.wording import shared
from tuner.study.cases import Case
from tuner.study.load import load, stands_in, unmatched, without_effect
from tuner.study.parameter import RETIRED
from tuner.study.secrets import literal_keys
from tuner.study.space import LADDER
from tuner.study.spec import StudySpec
from tuner.study.variables import shell_split
from tuner.trainers.registry import not_searched

if TYPE_CHECKING:
    from tuner.replay.recorded import Table as RecordedTable
    from tuner.running.workbench import Workbench


def load_shown(console: Console, study: str, *, to_show: bool = False) -> StudySpec:
    """Load a study; print what stands in for it, and which of its keys have no effect. Raises StudyError.

    `to_show`: nothing is started, so the trainer's variables may be missing.
    """
    spec = load(study, to_show=to_show)
    for line in stand_in(spec, study):
        console.print(line)
    return spec


def stand_in(spec: StudySpec, asked_for: str) -> list[str]:
    """Return lines that say which fallback stands in for the requested study, and which keys have no effect."""
    said: list[str] = []
    if stands_in(spec, asked_for):
        said.append(
            f"{asked_for}: trainer.root is empty (is MIMICKIT_ROOT set?); "
            f"its fallback {spec.name} stands in, and the results are stored under the fallback's name"
        )
    if keys := without_effect(asked_for):
        instead = "; ".join(f"`{key}`: {RETIRED[key]}" for key in keys)
        said.append(f"warning: {spec.name} has key(s) without effect, take them out: {instead}")
    return said


def exposed(spec: StudySpec) -> list[str]:
    """Return a line for each key that stands as a literal in the trainer's command or variables."""
    options = spec.trainer.options
    env, words = options.get("env"), options.get("command")
    command = shell_split(words) if isinstance(words, str) else words
    texts = {str(name): str(text) for name, text in env.items()} if isinstance(env, dict) else {}
    words = map(str, command if isinstance(command, Sequence) else ())
    found = literal_keys(words, {**spec.environment.variables, **texts})
    return [
        f"study file: the value of {name} looks like a key; write a reference such as ${{{variable(name)}}} and "
        "export that variable, so that the study file and the trainer's own output need not hold it"
        for name in found
    ]


def variable(name: str) -> str:
    """Return the usual name of the environment variable for an option."""
    return re.sub(r"\W", "_", name).upper()


def to_be_made(rungs: Sequence[int]) -> str:
    """Return how the rungs of an `auto` ladder are found. `rungs` are the rungs of its calibration probes."""
    return f"the ladder is auto: its rungs are computed from the first probes, at {' and '.join(map(str, rungs[:2]))}"


def to_be_fitted(parameter: str) -> str:
    """Return how a batch size that is `auto` is found."""
    return f"{parameter} is auto: it follows from the memory of the first probes"


def fitted(case: str, parameter: str, why: str) -> str:
    """Return a line with a batch size that is `auto`, and how it follows."""
    return f"{case}: {parameter} is auto: {why}, fixed in this study"


def ladder(case: str, rungs: Iterable[int]) -> str:
    """Return a line with the rungs of an `auto` ladder."""
    return f"{case}: the ladder is auto: {' '.join(map(str, rungs))}, fixed in this study"


def introduction(console: Console, bench: "Workbench", cases: Sequence[Case], shown_url: str) -> None:
    """Print what runs, on which devices, and what is not searched."""
    for line in (*stand_in(bench.spec, bench.asked_for), *exposed(bench.spec)):
        console.print(line)
    models = ", ".join(f"{device.label} {device.model}" for device in bench.devices)
    console.print(f"study {bench.spec.name}: {len(cases)} case(s), trainer {bench.trainer.name}")
    console.print(f"devices {models}, measured by {bench.source.label}")
    console.print(f"database {shown_url}")
    if len(bench.spec.objectives) > 1:
        objectives = ", ".join(bench.spec.objectives)
        console.print(f"objectives {objectives}: the best are a Pareto front, no probe is pruned")
    for constraint in bench.spec.build_constraints():
        console.print(f"the best must keep {constraint.metric} {constraint}")
    for glob in unmatched(bench.spec, (case.name for case in bench.trainer.cases())):
        console.print(f"overrides: no case matches {glob!r}")
    never = [known for case in cases for known in not_searched(bench.spec_for(case), bench.trainer).items()]
    for line in (*(f"not searched: {line}" for line in shared(never)), *cut_ladders(bench, cases)):
        console.print(line)


def cut_ladders(bench: "Workbench", cases: Iterable[Case]) -> list[str]:
    """Return a line for the cases whose largest rungs the trainer cannot run. Cases with one reason share a line."""
    ends = ((case.name, bench.cut_for(case)) for case in cases)
    return shared((name, f"{LADDER} up to {end.num_envs}: {end.reason}") for name, end in ends if end)


def replaying(table: "RecordedTable", path: Path) -> str:
    """Describe the recorded table that replaces trainer and devices."""
    header = table.header
    machine = header.machine.get("gpus") or header.machine.get("cpu")
    return (
        f"replaying {path}: {len(table.configs)} config(s) of {header.case}, recorded on {machine} by {header.date}; "
        "space and devices come from the table; search, pruner, objective, constraints and limits come from the study"
    )
