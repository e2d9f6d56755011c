"""Is a search ever wrong in silence? Scripts that print what misleads, and what they really train.

    python -m benchmarks.scripts.sceptic [--only NAME] [--jobs 2] > page.md      (about two minutes a script)

Each script in `tricky` says in its first lines what a person types, and what that person answers to the question on
samples. The person is played at a terminal. Then the own command and the best run without `tuner`, from the start, and
a side file says what they train in that time, pauses included. A gain is wrong if it is off by more than `OFF` and no
line beside it names a cause. A row is written as soon as it is known; the same command goes on with the others.
"""

import argparse
import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.scripts.trial import HERE, ROOT, Place, end, plain_run, truth_of
from tuner.devices.found import describe_machine, open_devices

TRICKY = HERE / "tricky"
OFF = 0.15
"""By which share a told gain may differ from the true one."""
LIMIT_S = 240.0
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_QUESTION = re.compile(r"\(Enter: unknown\)\s*$")
_FLAGS = re.compile(r"leaves one out:\s*$")
_SPEED = re.compile(r"^(your command|the best): +([\d.,]+)(?: ± [\d.,]+)? ([^\s,]+)(?:, ([\d.]+))?", re.MULTILINE)


def head(name: str) -> dict[str, str]:
    """Return what the first lines of a script say: `own`, and perhaps `answer` and `options`."""
    lines = (TRICKY / f"{name}.py").read_text().splitlines()
    return {"what": lines[0].strip('"'), **dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))}


def searched(place: Place, name: str, said: dict[str, str], trials: int) -> str:
    """Search at a terminal as a person would who answers one question; return what was shown."""
    options = said.get("options", "").split()
    words = ["optimize", *options, "--n-trials", str(trials), "--", "python", f"{name}.py", *said["own"].split()]
    above, below = pty.openpty()
    env = place.environ(place.folder / "search.tsv") | {"PYTHONPATH": str(ROOT), "TERM": "dumb"}
    command = [sys.executable, "-m", "tuner", *words]
    process = subprocess.Popen(command, cwd=place.folder, env=env, stdin=below, stdout=below, stderr=below)
    os.close(below)
    shown, seen, limit_s = "", 0, time.monotonic() + LIMIT_S
    with suppress(OSError):  # the terminal is closed once the command has ended
        while time.monotonic() < limit_s:
            if select.select([above], [], [], 1.0)[0]:
                shown += _COLOUR.sub("", os.read(above, 1 << 16).decode(errors="replace"))
            for asks, answer in ((_QUESTION, said.get("answer", "")), (_FLAGS, "")):
                if asks.search(shown, seen):
                    seen = len(shown)
                    os.write(above, f"{answer}\n".encode())
    end(process)
    os.close(above)
    (place.folder / "search.log").write_text(shown)
    return shown.replace("\r", "")


def rate(place: Place, which: str, command: list[str], seconds: float) -> float | None:
    """Return the samples per second of a command that runs for so many seconds, pauses included."""
    side = place.folder / f"{which}.tsv"
    plain_run(command, place, side, seconds)
    truth = truth_of(side)
    return truth.rate(truth.first_s, truth.last_s) if truth else None


def tried(name: str, settings: argparse.Namespace) -> dict[str, str]:
    """Search one script, run both commands, and return the row."""
    place, said = Place(folder=(settings.work / name).absolute(), python=Path(sys.executable)), head(name)
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    for file in (TRICKY / f"{name}.py", TRICKY / "tools.py", HERE / "truth_file.py"):
        shutil.copy(file, place.folder)
    shown = searched(place, name, said, settings.trials)
    told = {found[1]: found for found in _SPEED.finditer(shown)}
    row = {"script": name, "what": said["what"], "told": "", "true": "", "beside": " ".join(_beside(shown))}
    if "your command" not in told:
        refused = [line for line in shown.splitlines() if line.strip()][-1:]
        return row | {"verdict": "nothing told", "beside": row["beside"] or " ".join(refused)}
    own = ["python", f"{name}.py", *said["own"].split()]
    best = shlex.split(shown[shown.rindex("command line to copy:") :].splitlines()[1]) if "to copy:" in shown else own
    speeds = [rate(place, which, line, settings.seconds) for which, line in (("own", own), ("best", best))]
    true = speeds[1] / speeds[0] if best != own and speeds[0] and speeds[1] else 1.0
    gain = told.get("the best", told["your command"])[4]
    numbers = " → ".join(told[one][2] for one in ("your command", "the best") if one in told)
    row["told"] = f"{numbers} {told['your command'][3]}{f', {gain} times' if gain else ''}"
    row["true"] = " → ".join("?" if one is None else f"{one:.0f}" for one in speeds) + f", {true:.2f} times"
    if not gain:
        return row | {"verdict": "no gain told" if best != own else "the command stays"}
    is_right = abs(float(gain) / true - 1) <= OFF
    return row | {"verdict": "right" if is_right else "off, to be judged by what stands beside it"}


def _beside(shown: str) -> Iterator[str]:
    """Yield what stands beside the gain, and what cannot be compared."""
    lines = shown.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("the best:"):
            said = lines[place + 1 :]
            after = next((at for at, one in enumerate(said) if not one.startswith("  ")), len(said))
            yield from (one.strip() for one in said[:after] if "→" not in one)
        elif "cannot be compared" in line or line.strip().startswith("samples: unknown"):
            yield line.strip()


def page(rows: list[dict[str, str]]) -> str:
    """Return the rows as a page."""
    machine, keys = describe_machine(open_devices("cpu:1")), ("script", "what", "told", "true", "verdict", "beside")
    return "\n".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, no GPU; "
            f"load {os.getloadavg()[0]:.0f}.",
            "",
            f"| {' | '.join(keys)} |",
            "|---" * len(keys) + "|",
            *(f"| {' | '.join(row[key].replace('|', '/') for key in keys)} |" for row in rows),
        ]
    )


def main() -> None:
    names = sorted(path.stem for path in TRICKY.glob("*.py") if path.stem != "tools")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=names, help="one script; repeat for more")
    parser.add_argument("--trials", type=int, default=6, help="the most probes of a search")
    parser.add_argument("--seconds", type=float, default=40.0, help="the time of a run without tuner")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time; most of them wait")
    parser.add_argument("--work", type=Path, default=Path("runs/sceptic"), help="the folder of all scripts")
    settings = parser.parse_args()
    settings.work.mkdir(parents=True, exist_ok=True)
    table = settings.work / "rows.json"
    rows: dict[str, dict[str, str]] = json.loads(table.read_text()) if table.exists() else {}
    wanted = settings.only or [name for name in names if name not in rows]
    with ThreadPoolExecutor(settings.jobs) as pool:
        for one in as_completed(pool.submit(tried, name, settings) for name in wanted):
            rows[one.result()["script"]] = one.result()
            table.write_text(json.dumps(rows, indent=1))
            print(*one.result().values(), sep=" | ", file=sys.stderr, flush=True)
    print(page([rows[name] for name in names if name in rows]))


if __name__ == "__main__":
    main()
