"""`tuner cases`, `tuner plan`, `tuner schema`: what would run, without running it."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tuner.cli.options import DATABASE, RUNS, Cases, Devices, Runs, Storage, Study, chosen_cases, database_url
from tuner.cli.show import cut_ladders, load_shown, open_console, stand_in, to_be_made
from tuner.cli.tables import print_tables
from tuner.errors import StudyError
from tuner.export.database import connect
from tuner.export.ladders import fixed_rungs
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.port import reserved_port
from tuner.search.calibration import calibration_configs
from tuner.study.cases import select
from tuner.study.space import LADDER, Config, Parameter, Space, Value
from tuner.study.spec import StudySpec
from tuner.trainers.base import open_trainer
from tuner.workbench import Workbench, open_workbench

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="name=value, once per parameter; the rest as in the first probe.")
]


def cases(study: Study) -> None:
    """List the cases that the study's trainer knows; those that the study asks for are marked."""
    console = open_console()
    spec = load_shown(console, study)
    known = open_trainer(spec.trainer).cases()
    chosen = {case.name for case in select(known, spec.cases)}
    table = Table("", "case", "method", "mode", "agent_config", "env_config")
    for case in known:
        mark = "*" if case.name in chosen else "" if case.trainable else "not trainable"
        options = case.options
        table.add_row(mark, case.name, case.method, case.mode, options.get("agent_config"), options.get("env_config"))
    print_tables(console, table)


def plan(
    study: Study,
    cases: Cases = None,
    settings: Settings = None,
    devices: Devices = None,
    storage: Storage = None,
    runs: Runs = RUNS,
) -> None:
    """Print one config's files, environment and command per case as a shell script; start nothing."""
    bench = _with_fixed_rungs(open_workbench(study, devices=devices, runs=runs), storage)
    for line in stand_in(bench.spec, study):
        typer.echo(f"# {line}")
    for case in chosen_cases(bench, cases):
        space = bench.space_for(case)
        for line in cut_ladders(bench, [case]):
            typer.echo(f"# {line}")
        first = space.seeds(1)
        if bench.calibrates(case):
            first = calibration_configs(space)
            typer.echo(f"# {case.name}: {to_be_made([int(config[LADDER]) for config in first])}")
        config = _config(space, first[0], settings or [])
        with reserved_port() as port:
            slot = Slot(
                devices=bench.devices,
                out_dir=bench.folder / "plans" / case.name,
                port=port,
                limits=bench.spec_for(case).probe,
                variables=bench.variables,
            )
        typer.echo(f"# {case.name}: {json.dumps(config)}")
        typer.echo(_script(bench.trainer.plan(case, config, slot)))


def schema() -> None:
    """Print the JSON schema of study files."""
    typer.echo(json.dumps(StudySpec.model_json_schema(), indent=2))


def _with_fixed_rungs(bench: Workbench, storage: str | None) -> Workbench:
    """Give the bench with the rungs that the study has made for `auto` ladders, where it has a database."""
    if storage is None and not (bench.folder / DATABASE).is_file():
        return bench
    return replace(bench, rungs=fixed_rungs(connect(database_url(storage, bench.folder)), bench.spec.name))


def _config(space: Space, first: Config, settings: list[str]) -> Config:
    """Give the first config with the settings put in. Raises StudyError for a setting outside the space."""
    wanted = dict(_setting(text, space) for text in settings)

    def pick(parameter: Parameter) -> Value:
        return wanted.get(parameter.name, first.get(parameter.name, parameter.values[0]))

    config = space.draw(pick)
    if idle := wanted.keys() - config.keys():
        raise StudyError(f"--set {', '.join(sorted(idle))}: its condition does not hold beside {json.dumps(config)}")
    return config


def _setting(text: str, space: Space) -> tuple[str, Value]:
    name, _, written = text.partition("=")
    for value in space.values(name):
        if str(value) == written:
            return name, value
    if name not in space.names:
        raise StudyError(f"--set {text}: no parameter {name!r} is searched; name one of {', '.join(space.names)}")
    raise StudyError(f"--set {text}: {name} takes one of: {', '.join(map(str, space.values(name)))}")


def _script(plan: ProbePlan) -> str:
    """Write a plan as shell commands that do by hand what a probe does."""
    lines = [f"mkdir -p {shlex.quote(str(plan.slot.out_dir))}"]
    for path, text in plan.files.items():
        lines += [f"mkdir -p {shlex.quote(str(path.parent))}", f"cat > {shlex.quote(str(path))} <<'END_OF_FILE'"]
        lines += [text.rstrip("\n"), "END_OF_FILE"]
    lines += [f"cd {shlex.quote(str(Path(plan.cwd)))}"]
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in plan.env.items())
    lines += [f"{variables} {shlex.join(plan.argv)}".strip()]
    return "\n".join(lines) + "\n"
