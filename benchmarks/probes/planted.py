"""Plants changes of speed in a script, and counts how often `tuner verify` is right about them.

    python -m benchmarks.probes.planted --kind sleeping --out FOLDER [--cards 0,1] [--minutes 4] [--within 9]

The script is searched once on each card, or once on the CPU. Then its copy is made slower by 3, 5 or 10 %, or stays as
it is, and `tuner verify` judges it: ten changes, half of them equal, and five more equal ones. A row is written as soon
as it is known. `--within`: the minutes after which no more begins.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FACTORS = (1.03, 1.0, 1.05, 1.0, 1.10, 1.0, 1.03, 1.0, 1.05, 1.0)
"""The planted changes, half of them none."""
EQUAL = (1.0,) * 5
"""More runs without a change, so that there are ten."""
SCRIPT = Path(__file__).with_name("train_planted.py")
SEARCH = ("--search", "workers=1,2", "--seconds", "15", "--yes", "--name", "planted")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A folder in which one command after another runs, on a card of its own or on the CPU."""

    folder: Path
    card: str | None
    kind: str
    window_s: float
    trials: int

    def tuner(self, *words: str, folder: Path | None = None) -> tuple[int, str, float]:
        """Return the exit code of a command, what it has said, and its seconds."""
        began_s = time.monotonic()
        visible = {} if self.card is None else {"CUDA_VISIBLE_DEVICES": self.card}
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *words],
            cwd=folder or self.folder,
            env={**os.environ, **visible, "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, time.monotonic() - began_s

    def search(self) -> str:
        """Search the script as it is; return what was said. Raises RuntimeError where that fails."""
        self.folder.mkdir(parents=True)
        shutil.copy(SCRIPT, self.folder / "train.py")
        devices = ("--devices", "cpu:1") if self.card is None else ()
        command = (sys.executable, "train.py", self.kind, "--workers", "1")
        code, said, _ = self.tuner("init", *SEARCH, *devices, "--", *command)
        study = self.folder / "studies/planted.yaml"
        if code == 0:
            study.write_text(study.read_text().replace("{iterations: 8,", f"{{window_seconds: {self.window_s:g},"))
            code, more, _ = self.tuner("optimize", "--study", "planted", "--n-trials", str(self.trials))
            said += more
        if code:
            raise RuntimeError(said)
        return said

    def verify(self, number: int, factor: float, minutes: float) -> str:
        """Return the row of one planted change, tab-separated."""
        folder = self.folder.with_name(f"{self.folder.name}.{number}")
        shutil.copytree(self.folder, folder)
        script = folder / "train.py"
        script.write_text(script.read_text().replace("FACTOR = 1.0\n", f"FACTOR = {factor}\n"))
        code, said, seconds = self.tuner("verify", "--study", "planted", "--minutes", f"{minutes:g}", folder=folder)
        (folder / "verify.txt").write_text(said)
        is_right = code == (1 if factor > 1.0 else 0)
        speeds = re.findall(r": ([\d.]+ ± [\d.]+) times the study's", said)
        rounds = len(re.findall(r"^  round ", said, re.MULTILINE))
        parts = (number, self.card or "cpu", factor, code, "right" if is_right else "WRONG", *speeds, rounds)
        return "\t".join([*map(str, parts), f"{seconds:.0f} s"])


def lane_rows(lane: Lane, planted: Sequence[tuple[int, float]], minutes: float, end_s: float, file: Path) -> None:
    """Search in a lane, then verify its planted changes while there is time; write a row for each."""
    said = lane.search()
    (lane.folder / "search.txt").write_text(said)
    longest_s = 0.0
    for number, factor in planted:
        if time.monotonic() + longest_s > end_s:
            return
        began_s = time.monotonic()
        row = lane.verify(number, factor, minutes)
        longest_s = max(longest_s, time.monotonic() - began_s)
        print(row, flush=True)
        with file.open("a") as rows:
            rows.write(f"{row}\n")


def main() -> None:
    """Run all lanes side by side, and print how many answers are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["sleeping", "computing", "multiplying"], default="sleeping")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cards", default="", help="CUDA indices, separated by commas; none for the CPU")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--window", type=float, default=5.0, help="seconds")
    parser.add_argument("--trials", type=int, default=4, help="of the search")
    parser.add_argument("--within", type=float, default=600.0)
    args = parser.parse_args()
    end_s = time.monotonic() + 60.0 * args.within
    cards = [card for card in args.cards.split(",") if card] or [None]
    planted = list(enumerate((*FACTORS, *EQUAL)))
    rows = args.out / "rows.tsv"
    args.out.mkdir(parents=True, exist_ok=True)
    lanes = [
        Lane(
            folder=(args.out / f"lane{place}").resolve(),
            card=card,
            kind=args.kind,
            window_s=args.window,
            trials=args.trials,
        )
        for place, card in enumerate(cards)
    ]
    with ThreadPoolExecutor(len(lanes)) as pool:
        shares = (planted[place :: len(lanes)] for place in range(len(lanes)))
        running = [pool.submit(lane_rows, *pair, args.minutes, end_s, rows) for pair in zip(lanes, shares, strict=True)]
    for lane in running:
        lane.result()
    known = [line.split("\t") for line in rows.read_text().splitlines()]
    changes = [row for row in known if int(row[0]) < len(FACTORS)]
    equal = [row for row in known if float(row[2]) == 1.0]
    print(f"right: {sum(row[4] == 'right' for row in changes)} of {len(changes)} planted changes")
    print(f"false alarms: {sum(row[3] == '1' for row in equal)} of {len(equal)} equal ones")


if __name__ == "__main__":
    main()
