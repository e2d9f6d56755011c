"""Does the config that a soak recommends survive ten times as long, and how much of the memory does it use?

    python -m benchmarks.memory.show --python TRAINERS/bin/python     (all pairs on the CPU)

TRAINERS is an environment with torch, lightning and accelerate. `real.py` has the pairs with real trainers: MimicKit
runs where MIMICKIT_ROOT and MIMICKIT_PYTHON say so. `card.py` does the same on one GPU. For each pair of a
trainer and a condition: a search, then soaks, then a whole run with the recommended batch size and a seed of its own.
Beside them: the sizes that Lightning's `scale_batch_size` and accelerate's `find_executable_batch_size` find with the
same script.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.memory.pairs import CPU, RESULTS, Pair, whole
from benchmarks.memory.real import REAL
from tuner.cli.work import one_case
from tuner.export.case_view import CaseView
from tuner.export.reader import StudyReader, connect
from tuner.running.loop import optimise
from tuner.running.prober import open_prober
from tuner.running.workbench import Job, open_workbench, record
from tuner.search.needs import foresee
from tuner.soaking.soak import soaking, verdicts
from tuner.soaking.whole_training import Training
from tuner.store.database import Database
from tuner.study import Config

PROBE = {"iterations": 8, "window_seconds": 0.5, "headroom_pct": 1, "sample_seconds": 0.05, "max_seconds": 150}


def survives(python: str, pair: Pair, size: int, seed: int, folder: Path) -> bool:
    """Return whether a whole run with this size ends by itself."""
    found = pair.whole(python, size, seed, folder)
    return found.get("steps") == pair.steps and "error" not in found


def topmost(holds: Callable[[int], bool], near: int, floor: int, end: int) -> int:
    """Return the last place below `end` that holds, where all up to `floor` do and none after one that does not.

    The first place that is tried is `near`; from there on the steps double until the last place lies between two.
    """
    low, high, place, step = floor, end, near, 1
    while high - low > 1:
        low, high = (place, high) if holds(place) else (low, place)
        if high == end:
            place = min(low + step, high - 1)
        elif low == floor:
            place = max(high - step, low + 1)
        else:
            place = (low + high) // 2
        step *= 2
    return low


def largest(python: str, pair: Pair, near: int, folder: Path) -> int:
    """Return the largest rung that survives, from a rung near it on; the smallest is taken to survive."""
    pair = pair.short()

    def holds(place: int) -> bool:
        return survives(python, pair, pair.rungs[place], 50, folder)

    return pair.rungs[topmost(holds, pair.rungs.index(near), 0, len(pair.rungs))]


def study(python: str, pair: Pair, folder: Path) -> Path:
    """Write the study of a pair."""
    file = folder / "lasting.yaml"
    content = {
        "name": "lasting",
        **pair.spec(python),
        "devices": pair.device,
        "space": {pair.ladder: {"ladder": list(pair.rungs)}},
        "objective": "samples_per_s",
        "environment": {"memory_mib": pair.cap_mib, "variables": dict(pair.variables)},
        "probe": {**PROBE, "warm": False},
        "soak": {"flags": pair.soak, "worse": pair.worse},
    }
    with file.open("w") as text:
        YAML(typ="safe").dump(content, text)
    return file


@contextmanager
def opened(file: Path, runs: Path) -> Iterator[Job]:
    """Open the study of a pair, with its results in a folder."""
    bench = open_workbench(str(file), runs=runs)
    bench.folder.mkdir(parents=True, exist_ok=True)
    with closing(Database(f"sqlite:///{bench.folder}/study.db")) as database, closing(open_prober(bench)) as prober:
        yield Job(bench=bench, database=database, probe=prober, interrupted=lambda: False)


def view(runs: Path) -> CaseView:
    """Return what the study of a pair has come to."""
    return StudyReader(connect(f"sqlite:///{runs}/lasting/study.db"), "lasting").cases[0]


def searched(file: Path, runs: Path, pair: Pair) -> None:
    """Probe two small sizes, then the largest that is expected to fit, and from there on the largest that does."""
    with opened(file, runs) as job:
        case = one_case(job.bench, None)

        def fits(place: int) -> bool:
            size = pair.rungs[place]
            optimise(replace(job, purpose=record([{pair.ladder: size}], limited=False)), [case])
            return any(one.config[pair.ladder] == size and one.is_eligible for one in view(runs).configs)

        for place in (pair.probed, 2 * pair.probed):
            fits(place)
        sizes: list[Config] = [{pair.ladder: size} for size in pair.rungs]
        found = foresee(job.bench.space_for(case), view(runs).trials, sizes)
        near = max(at for at, one in enumerate(found) if one.memory_share and one.memory_share.mean < 0.99)
        topmost(fits, near, -1, len(pair.rungs))


def ours(python: str, pair: Pair, folder: Path) -> list[dict[str, Any]]:
    """Search once, then soak as often as the pair says, from the largest size that fits in a probe."""
    file, found = study(python, pair, folder), list[dict[str, Any]]()
    shutil.rmtree(folder / "runs", ignore_errors=True)
    searched(file, folder / "runs", pair)
    fits = [one for one in view(folder / "runs").configs if one.is_eligible]
    first = max(fits, key=lambda one: one.config[pair.ladder])
    size = int(first.config[pair.ladder])
    whole_s = pair.steps * size * pair.samples / (first.samples_per_s or 1.0)
    for repeat in range(pair.repeats):
        runs = folder / f"runs-{repeat}"
        shutil.rmtree(runs, ignore_errors=True)
        shutil.copytree(folder / "runs", runs)
        with opened(file, runs) as job:
            training = Training.of(job.bench, whole_s / 3600, None if pair.by_hours else pair.steps)
            purpose = soaking(job.bench, whole_s / 600, training, dict(first.config))
            optimise(replace(job, purpose=purpose), [one_case(job.bench, None)])
        after = view(runs)
        soaked = [one for one in after.trials if one.soaks]
        held = [int(one.config[pair.ladder]) for one in soaked if one.may_be_best]
        told = {
            "searched": size,
            "whole_s": whole_s,
            "said": list(verdicts(after, training)),
        }
        told["soaks"] = [[one.config[pair.ladder], one.probe.status, one.probe.iterations] for one in soaked]
        found.append({**told, "size": max(held, default=None)})
    return found


def lived(python: str, pair: Pair, folder: Path) -> list[dict[str, object]]:
    """Do the same as `ours`; then run to the end with what it recommends, each time with a seed of its own."""
    return [
        {**one, "survived": survives(python, pair, one["size"], 100 + repeat, folder) if one["size"] else None}
        for repeat, one in enumerate(ours(python, pair, folder))
    ]


def rival(python: str, pair: Pair, folder: Path, most: int, repeat: int) -> dict[str, dict[str, object]]:
    """Find a batch size by each rival with the same script, and run to the end with it."""
    found: dict[str, dict[str, object]] = {}
    if "lightning" in pair.rivals:
        size = whole(python, pair, 64, 200 + repeat, folder, "--find lightning").get("found")
        lived = survives(python, pair, int(size), 300 + repeat, folder) if size else None
        found["lightning"] = {"size": size, "survived": lived}
    if "accelerate" in pair.rivals:
        told = whole(python, pair, 2 * most, 400 + repeat, folder, "--find accelerate")
        tried = told.get("tried") or []
        late = [one for one in tried[:-1] if one[1] >= pair.steps / 10]
        found["accelerate"] = {"size": tried[-1][0] if tried else None, "survived": not late, "tried": tried}
    return found


def kept(pair: Pair, what: str, measure: Callable[[Path], object]) -> Any:
    """Return what was measured of a pair; a second call reads it from a file."""
    folder = (RESULTS / pair.device[:3] / pair.name.replace(", ", "-").replace(" ", "-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{what}.json"
    if not file.exists():
        file.write_text(json.dumps(measure(folder)))
    return json.loads(file.read_text())


def measured(python: str, pairs: Sequence[Pair], aside: int, repeats: int) -> list[dict[str, Any]]:
    """Return everything about the pairs: our runs, the largest size that survives, and so many runs of the rivals."""
    with ThreadPoolExecutor(aside) as pool:
        mine = list(pool.map(lambda pair: kept(pair, "tuner", lambda at: lived(python, pair, at)), pairs))

        def most(pair: Pair, own: list[dict[str, Any]]) -> int:
            near = int(own[0]["size"] or own[0]["searched"])
            return kept(pair, "largest", lambda at: largest(python, pair, near, at))

        def others(pair: Pair, top: int, repeat: int) -> Any:
            return kept(pair, f"rivals-{repeat}", lambda at: rival(python, pair, at, top, repeat))

        tops = list(pool.map(most, pairs, mine))
        beside = [list(pool.map(others, pairs, tops, [turn] * len(pairs))) for turn in range(repeats)]
    return [
        {"pair": pair.name, "largest": top, "tuner": own}
        | {name: [one[place][name] for one in beside] for name in pair.rivals}
        for place, (pair, top, own) in enumerate(zip(pairs, tops, mine, strict=True))
    ]


def row(of: Sequence[dict[str, Any]], most: int) -> str:
    """Return the cell of one method: the runs that ran out of memory, and the shares of the largest size."""
    ran_out = sum(one.get("survived") is False for one in of)
    shares = ", ".join(f"{100 * int(one['size']) / most:.0f}" if one.get("size") else "none" for one in of)
    return f"{ran_out} of {len(of)} | {shares}"


def shown(found: Sequence[dict[str, Any]], methods: Sequence[str]) -> None:
    """Print the table."""
    print(f"| pair | largest | {' | '.join(f'{one}: ran out | share, %' for one in methods)} |")
    print("|---" * (2 + 2 * len(methods)) + "|")
    for one in found:
        cells = [row(one.get(name, ()), one["largest"]) for name in methods]
        print(f"| {one['pair']} | {one['largest']} | {' | '.join(cells)} |")


def main() -> None:
    """Measure the pairs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--rivals", type=int, default=3, help="how often the rivals run; what ran before is kept")
    parser.add_argument("--only", action="append", help="the pairs whose names begin so")
    asked = parser.parse_args()
    pairs = [one for one in [*REAL, *CPU] if one.name.startswith(tuple(asked.only or ("",)))]
    shown(measured(asked.python, pairs, asked.side_by_side, asked.rivals), ["tuner", *CPU[0].rivals])


if __name__ == "__main__":
    main()
