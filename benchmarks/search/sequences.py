"""Records which configs a search chooses, in which order, to check that a change of the code left it as it was.

    python -m benchmarks.search.sequences before.json              # on the code before
    python -m benchmarks.search.sequences after.json --compare before.json

Each search runs through the real loop and a real database on a replayed table: the recorded tables with the samplers
`gain` and `tpe`, and twenty invented tables with `gain`. The file holds the configs of each search in their order, with
their states and values.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import optuna
import typer

from benchmarks.search import surfaces
from tuner.export.recorded_table import Table
from tuner.replay import ReplayedProber, replay_bench
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.store.database import Database

RECORDED = [
    path
    for path in sorted((Path(__file__).parents[1] / "tables").glob("*/*.parquet"))
    if path.with_suffix(".json").exists()
]
SEEDS = (0, 1)
INVENTED = [(name, seed) for name in (*surfaces.CHARACTERS, *surfaces.TWISTS) for seed in (0, 1)]


def searches() -> Iterator[tuple[str, Table, str, int]]:
    """Yield name, table, sampler and seed of each search."""
    for path in RECORDED:
        for sampler in ("gain", "tpe"):
            for seed in SEEDS if sampler == "tpe" else (0,):
                yield f"{path.parent.name}/{path.stem} {sampler} {seed}", Table.load(path), sampler, seed
    for name, seed in INVENTED:
        table = surfaces.table(name, seed) if name in surfaces.CHARACTERS else surfaces.twisted(name, seed)
        yield f"invented/{name} {seed} gain", table, "gain", 0


def chosen(table: Table, sampler: str, seed: int, folder: Path) -> list[list[object]]:
    """Run one search and return a row for each trial: config, state, value."""
    bench = replay_bench(table, "reference", runs=folder)
    search = bench.spec.search.model_copy(update={"sampler": sampler, "seed": seed, "trials": 40})
    bench = replace(bench, spec=bench.spec.model_copy(update={"search": search}))
    bench.folder.mkdir(parents=True)
    database = Database(f"sqlite:///{bench.folder}/study.db")
    prober = ReplayedProber(table, *bench.spec.objectives)
    job = Job(
        bench=bench,
        database=database,
        probe=prober,
        interrupted=lambda: False,
        open_session=lambda: prober.open_session,
    )
    cases = bench.trainer.cases()
    optimize(job, cases)
    study = optuna.load_study(study_name=bench.study_name(cases[0]), storage=database.storage)
    rows: list[list[object]] = [[one.params, one.state.name, one.values] for one in study.trials]
    database.close()
    return rows


def main(out: Path, compare: Annotated[Path | None, typer.Option()] = None) -> None:
    """Write the sequences to OUT; with --compare, count those that are equal to another file's."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: dict[str, list[list[object]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for place, (name, table, sampler, seed) in enumerate(searches()):
            found[name] = chosen(table, sampler, seed, Path(folder) / str(place))
            print(f"{name}: {len(found[name])} trials", flush=True)
    out.write_text(json.dumps(found, indent=1))
    if compare:
        before = json.loads(compare.read_text())
        now = json.loads(out.read_text())
        different = [name for name in before if before[name] != now.get(name)]
        print(f"{len(before) - len(different)} of {len(before)} searches are equal")
        if different:
            print("different:", *different, sep="\n  ")
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
