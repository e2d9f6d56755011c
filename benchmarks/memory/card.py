"""Does the config that a soak recommends survive ten times as many steps on one GPU?

    python -m benchmarks.memory.card --only NAME     (six pairs, four minutes each; with lightning and accelerate)

The searches and soaks come one after another, because NVML reads the memory of the whole card. Then all runs to the end
share the card: torch limits each process by itself. They do not wait between steps, so that 2,000 steps take minutes.
Each result is a line of JSON as soon as it is known; `--limit-s` ends what still runs.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

from benchmarks.memory.pairs import RESULTS, Pair, whole
from benchmarks.memory.show import kept, ours, shown

RUNGS = tuple(round(1600 * 1.035**power) for power in range(120))
_CARD = Pair(
    trainer="loop",
    condition="",
    cap_mib=2500,
    rungs=RUNGS,
    probed=20,
    steps=2000,
    wait_s=0.07,
    repeats=2,
    device="0",
)
PAIRS = [
    replace(_CARD, condition="buffer", flags="--grow-kib 200"),
    replace(_CARD, condition="lengths", soak="--longest-first"),
    replace(_CARD, condition="fragments", flags="--block-mib 16"),
    replace(_CARD, condition="buffer", flags="--grow-kib 200", worse=False, rivals=()),
    replace(_CARD, condition="fragments", flags="--block-mib 16", worse=False, rivals=()),
    replace(_CARD, condition="compiled", soak="--longest-first", rivals=()),
]
SEARCHING = 0.62
"""No search begins after this share of the time."""
ABOVE = (1, 2, 4, 8, 16, 24)
"""Which rungs above the recommended one run to the end, too."""


def runs(pair: Pair, sizes: Sequence[int]) -> list[tuple[str, int, int, str]]:
    """Return the runs to the end of a pair: whose it is, the size, the seed, and more flags.

    `sizes`: what each soak has recommended.
    """
    place = pair.rungs.index(max(sizes))
    return [
        *(("tuner", size, 100 + repeat, "") for repeat, size in enumerate(sizes)),
        *(("above", pair.rungs[place + more], 50, "") for more in ABOVE if place + more < len(pair.rungs)),
        *((name, pair.rungs[0 if name == "lightning" else place + 20], 200, f"--find {name}") for name in pair.rivals),
    ]


def ended(python: str, pair: Pair, run: tuple[str, int, int, str], more: str, end_s: float) -> dict[str, Any]:
    """Return how a run to the end went; for Lightning, that with the size that it finds."""
    whose, size, seed, flags = run
    folder = RESULTS / "whole" / f"{pair.name}-{whose}"
    folder.mkdir(parents=True, exist_ok=True)

    def once(size: int, seed: int, flags: str) -> dict[str, Any]:
        return whole(
            python, replace(pair, wait_s=0.0), size, seed, folder, f"{more} {flags}", max(1.0, end_s - time.monotonic())
        )

    try:
        found = once(size, seed, flags)
        if whose == "lightning":
            size = found["found"]
            found = once(size, seed + 1, "")
    except (subprocess.TimeoutExpired, KeyError) as error:
        return {"pair": pair.name, "whose": whose, "size": size, "seed": seed, "survived": None, "error": repr(error)}
    if whose == "accelerate" and (tried := found.get("tried")):
        late = [steps for _, steps in tried[:-1] if steps >= pair.steps / 10]
        found, size = {**found, "steps": tried[-1][1], "late": late}, tried[-1][0]
    survived = found.get("steps") == pair.steps and "error" not in found and not found.get("late")
    return {"pair": pair.name, "whose": whose, "size": size, "seed": seed, "survived": survived, "told": found}


def main() -> None:
    """Measure the pairs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--limit-s", type=float, default=530.0)
    parser.add_argument("--only", action="append", choices=[one.name for one in PAIRS], help="repeat for more")
    asked = parser.parse_args()
    begin_s = time.monotonic()

    def tell(what: dict[str, Any]) -> None:
        print(json.dumps({"at_s": round(time.monotonic() - begin_s), **what}), flush=True)

    RESULTS.mkdir(parents=True, exist_ok=True)
    first = whole(asked.python, replace(PAIRS[0], steps=1), RUNGS[0], 0, RESULTS.resolve())
    tell({"first": first})
    held: list[tuple[Pair, list[int]]] = []
    for pair in [one for one in PAIRS if one.name in (asked.only or [one.name])]:
        if time.monotonic() - begin_s > SEARCHING * asked.limit_s:
            break
        try:
            own = kept(pair, "tuner", lambda at, pair=pair: ours(asked.python, pair, at))
        except Exception as error:  # noqa: BLE001  the other pairs are worth their time
            own = [{"size": None, "error": repr(error)}]
        for one in own:
            tell({"pair": pair.name, **one})
        if sizes := [one["size"] for one in own if one["size"]]:
            held.append((pair, sizes))
    found: list[dict[str, Any]] = []
    more, end_s = f"--beside-mib {first.get('beside_mib') or 0}", begin_s + asked.limit_s
    with ThreadPoolExecutor(64) as pool:
        waiting: list[Future[dict[str, Any]]] = [
            pool.submit(ended, asked.python, pair, run, more, end_s)
            for pair, sizes in held
            for run in runs(pair, sizes)
        ]
        for one in as_completed(waiting):
            found.append(one.result())
            tell(found[-1])
    table = []
    for pair, sizes in held:
        of = [one for one in found if one["pair"] == pair.name]
        mine = {name: [one for one in of if one["whose"] == name] for name in ("tuner", "lightning", "accelerate")}
        top = max(
            (one["size"] for one in of if one["survived"] and one["whose"] in {"tuner", "above"}), default=max(sizes)
        )
        table.append({"pair": pair.name, "largest": top, **mine})
    shown(table, ["tuner", "lightning", "accelerate"])


if __name__ == "__main__":
    main()
