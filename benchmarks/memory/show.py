"""Does the config that a soak recommends survive ten times as long, and how much of the memory does it use?

    python -m benchmarks.memory.show cpu --python TRAINERS/bin/python     (six pairs, about 40 minutes on two cores)
    python -m benchmarks.memory.show gpu                                  (four pairs on one GPU, at most 8 minutes)

TRAINERS is an environment with torch, lightning and accelerate; on a GPU, torch is enough. For each pair of a trainer and a
condition: a search, then soaks, then a whole run of `STEPS` with the recommended batch size and a seed of its own; beside
them the sizes that Lightning's `scale_batch_size` and accelerate's `find_executable_batch_size` find with the same script.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ruamel.yaml import YAML

from tuner.export.reader import StudyReader, connect

TRAIN = Path(__file__).with_name("train.py")
STEPS = 600
"""The steps of a whole run; a soak takes at most a tenth of its time."""
RUNGS = [round(48 * 1.035**power) for power in range(110)]
RESULTS = Path("build/memory")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A trainer and a condition, in so much memory."""

    trainer: str
    condition: str
    cap_mib: int
    flags: str = ""
    soak: str = ""
    rungs: Sequence[int] = tuple(RUNGS)
    wait_s: float = 0.04
    repeats: int = 3
    rivals: Sequence[str] = ("lightning", "accelerate")

    @property
    def name(self) -> str:
        """What the pair is called in tables."""
        return f"{self.trainer}, {self.condition}{', not provoked' if self.condition == 'lengths' and not self.soak else ''}"

    @property
    def words(self) -> str:
        """The flags of a usual run."""
        return f"--trainer {self.trainer} --condition {self.condition} --wait-s {self.wait_s} {self.flags}"


RARELY, OFTEN = "--every 150", "--every 12"
CPU = [
    Pair(trainer="loop", condition="evaluation", cap_mib=400, flags=RARELY, soak=OFTEN),
    Pair(trainer="loop", condition="buffer", cap_mib=400, flags="--grow-kib 60"),
    Pair(trainer="loop", condition="lengths", cap_mib=400, soak="--longest-first"),
    Pair(trainer="accelerate", condition="lengths", cap_mib=460),
    Pair(trainer="accelerate", condition="checkpoints", cap_mib=460, flags=f"{RARELY} --state-mib 40", soak=OFTEN),
    Pair(trainer="lightning", condition="evaluation", cap_mib=700, flags=RARELY, soak=OFTEN),
]
_CARD = Pair(
    trainer="loop",
    condition="",
    cap_mib=6000,
    rungs=tuple(rung * 16 for rung in RUNGS),
    wait_s=0.01,
    repeats=1,
    rivals=(),
)
GPU = [
    replace(_CARD, condition="lengths", soak="--longest-first"),
    replace(_CARD, condition="buffer", flags="--grow-kib 2000"),
    replace(_CARD, condition="compiled", soak="--longest-first"),
    replace(_CARD, condition="fragments"),
]


def command(python: str, pair: Pair, size: int, seed: int, told: Path, more: str = "") -> list[str]:
    """Return the command of a whole run."""
    words = f"{pair.words} --cap-mib {pair.cap_mib} --batch-size {size} --seed {seed} --steps {STEPS} {more}"
    return [python, str(TRAIN), *shlex.split(words), "--told", str(told)]


def whole(python: str, pair: Pair, size: int, seed: int, folder: Path, more: str = "") -> dict[str, object]:
    """Run a whole training; return what it says of itself."""
    told = folder / f"{seed}-{size}.json"
    told.unlink(missing_ok=True)
    log = told.with_suffix(".log")
    with log.open("w") as output:
        subprocess.run(
            command(python, pair, size, seed, told, more),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=900,
        )
    return json.loads(told.read_text()) if told.exists() else {"error": log.read_text()[-300:], "steps": 0}


def survives(python: str, pair: Pair, size: int, seed: int, folder: Path) -> bool:
    """Return whether a whole run with this size ends by itself."""
    found = whole(python, pair, size, seed, folder)
    return found.get("steps") == STEPS and "error" not in found


def largest(python: str, pair: Pair, near: int, folder: Path) -> int:
    """Return the largest rung that survives a whole run, from a rung near it on."""
    place, alive, dead = pair.rungs.index(near), -1, len(pair.rungs)
    step = 1
    while dead - alive > 1:
        if survives(python, pair, pair.rungs[place], 50, folder):
            alive = place
            place = min(place + step, dead - 1) if dead == len(pair.rungs) else (alive + dead) // 2
        else:
            dead = place
            place = max(place - step, alive + 1, 0) if alive < 0 else (alive + dead) // 2
        step *= 2
    return pair.rungs[alive]


def study(python: str, pair: Pair, folder: Path) -> Path:
    """Write the study of a pair."""
    file = folder / "lasting.yaml"
    content = {
        "name": "lasting",
        "trainer": {
            "name": "command",
            "python": python,
            "options": {"command": f"{{python}} {TRAIN} {pair.words} --batch-size {{batch_size}} --seed 1"},
        },
        "devices": "cpu:1" if pair in CPU else "0",
        "space": {"batch_size": {"ladder": list(pair.rungs)}},
        "objective": "samples_per_s",
        "environment": {"memory_mib": pair.cap_mib},
        "probe": {"iterations": 8, "window_seconds": 1.0, "headroom_pct": 1, "max_seconds": 45},
        "search": {"trials": 6},
        "soak": {"flags": pair.soak},
    }
    if pair not in CPU:
        content["trainer"]["options"]["command"] += f" --cap-mib {pair.cap_mib}"
    with file.open("w") as text:
        YAML(typ="safe").dump(content, text)
    return file


def tuner(*words: object, log: Path) -> None:
    """Run a command of the tuner."""
    with log.open("a") as output:
        subprocess.run(
            [sys.executable, "-m", "tuner", *map(str, words)], stdout=output, stderr=subprocess.STDOUT, check=False
        )


def view(runs: Path):
    """Return what the study of a pair has come to."""
    return StudyReader(connect(f"sqlite:///{runs}/lasting/study.db"), "lasting").cases[0]


def ours(python: str, pair: Pair, folder: Path) -> list[dict[str, object]]:
    """Search once, then soak and run to the end with each seed."""
    file, found = study(python, pair, folder), list[dict[str, object]]()
    began_s = time.monotonic()
    tuner("optimize", "--study", file, "--runs", folder / "runs", "--quiet", log=folder / "search.log")
    searched_s = time.monotonic() - began_s
    best = view(folder / "runs").best
    if best is None or not best.samples_per_s:
        return [{"error": "the search found no best config"}]
    whole_s = STEPS * float(best.config["batch_size"]) / best.samples_per_s
    for repeat in range(pair.repeats):
        runs = folder / f"runs-{repeat}"
        shutil.rmtree(runs, ignore_errors=True)
        shutil.copytree(folder / "runs", runs)
        began_s = time.monotonic()
        times = ("--minutes", whole_s / 600, "--hours", whole_s / 3600)
        tuner("soak", "--study", file, "--runs", runs, *times, log=folder / f"soak-{repeat}.log")
        soaked_s = time.monotonic() - began_s
        after = view(runs)
        soaked = [one for one in after.trials if one.soaks]
        told = {
            "searched": best.config["batch_size"],
            "soaks": [[one.config["batch_size"], one.probe.status, one.probe.ineligible] for one in soaked],
            "search_s": searched_s,
            "soak_s": soaked_s,
            "steps": max((one.probe.iterations or 0 for one in soaked), default=0),
        }
        if after.best is None or not any(one.launch == after.best.launch and one.may_be_best for one in soaked):
            found.append({**told, "size": None, "survived": None})
            continue
        size = int(after.best.config["batch_size"])
        found.append({**told, "size": size, "survived": survives(python, pair, size, 100 + repeat, folder)})
    return found


def rivals(python: str, pair: Pair, folder: Path, most: int) -> dict[str, list[dict[str, object]]]:
    """Find batch sizes by the rivals with the same script, and run to the end with them."""
    found: dict[str, list[dict[str, object]]] = {name: [] for name in pair.rivals}
    for repeat in range(pair.repeats):
        if "lightning" in found:
            size = whole(python, pair, 64, 200 + repeat, folder, "--find lightning").get("found")
            lived = survives(python, pair, int(size), 300 + repeat, folder) if size else None
            found["lightning"].append({"size": size, "survived": lived})
        if "accelerate" in found:
            told = whole(python, pair, 2 * most, 400 + repeat, folder, "--find accelerate")
            tried = told.get("tried") or []
            late = [one for one in tried[:-1] if one[1] >= STEPS / 10]
            found["accelerate"].append({"size": tried[-1][0] if tried else None, "survived": not late, "tried": tried})
    return found


def measured(python: str, pair: Pair, place: int) -> dict[str, object]:
    """Return everything about a pair; keep it in a file, so that a second call goes on."""
    folder = (RESULTS / f"{'cpu' if pair in CPU else 'gpu'}-{place}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "result.json"
    if not kept.exists():
        mine = ours(python, pair, folder)
        near = next((int(one["size"] or one["searched"]) for one in mine if "searched" in one), pair.rungs[30])
        most = largest(python, pair, near, folder)
        others = rivals(python, pair, folder, most)
        kept.write_text(json.dumps({"pair": pair.name, "largest": most, "tuner": mine, **others}))
    return json.loads(kept.read_text())


def row(of: Sequence[dict[str, object]], most: int) -> str:
    """Return the cell of one method: the runs that ran out of memory, and the shares of the largest size."""
    ran_out = sum(one.get("survived") is False for one in of)
    shares = ", ".join(f"{100 * int(one['size']) / most:.0f}" if one.get("size") else "none" for one in of)
    return f"{ran_out} of {len(of)} | {shares}"


def main() -> None:
    """Measure the pairs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("where", choices=["cpu", "gpu"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--side-by-side", type=int, default=2)
    asked = parser.parse_args()
    pairs = CPU if asked.where == "cpu" else GPU
    aside = asked.side_by_side if asked.where == "cpu" else 1
    with ThreadPoolExecutor(aside) as pool:
        found = list(pool.map(lambda one: measured(asked.python, one[1], one[0]), enumerate(pairs)))
    methods = ["tuner", *pairs[0].rivals]
    print(f"| pair | largest | {' | '.join(f'{one}: ran out | share, %' for one in methods)} |")
    print("|---" * (2 + 2 * len(methods)) + "|")
    for one in found:
        print(
            f"| {one['pair']} | {one['largest']} | {' | '.join(row(one[name], one['largest']) for name in methods)} |"
        )


if __name__ == "__main__":
    main()
