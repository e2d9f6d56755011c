"""Compares the samples per second of `tuner try` with those that the trainer itself writes down.

    python -m benchmarks.probes.truth > benchmarks/results/truth.md

For each way of printing in `benchmarks/probes/printing.py`, `tuner init` makes a study from the command on two CPU
ranks. A line `samples_per_iteration` is then added, and a window of 20 s. `tuner try` probes the study. The truth is
what the ranks wrote down in the last seconds of the probe, as many as the window has.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.probes.printing import ACCUMULATED, EACH_RANK, EVERY, STYLES
from tuner.devices.found import describe_machine, open_devices

ROOT = Path(__file__).parents[2]
SCRIPT = "printing.py"
PER_STEP = {
    "accumulation": f"{{batch_size}} * {{ranks}} * {ACCUMULATED}",
    "dictionary": f"{{batch_size}} * {{ranks}} * {EVERY}",
}
"""Style → the samples of a counted iteration, where it is not a batch of each rank."""
COUNTED = ("table",)
"""The styles that print the samples of all ranks."""
LIMIT_S = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What `tuner try` showed, and what is true."""

    progress: str
    """How the study counts iterations."""
    shown: str
    """Samples per second with their standard error, as `tuner try` printed them."""
    true_per_s: float

    @property
    def off_pct(self) -> float:
        """The difference of the measured from the true samples per second, in percent of the true ones."""
        return 100 * (float(self.shown.split()[0]) / self.true_per_s - 1)


def compare(style: str, folder: Path) -> Compared:
    """Make a study for a style, and probe it. Raises CalledProcessError where a command fails."""
    (folder / SCRIPT).write_text((ROOT / "benchmarks/probes" / SCRIPT).read_text())
    truth = folder / "truth"
    environ = os.environ | {"TRUTH": str(truth), "COLUMNS": "200", "PYTHONPATH": str(ROOT)}

    def tuner(*words: str) -> str:
        truth.mkdir(exist_ok=True)
        for file in truth.iterdir():
            file.unlink()
        return subprocess.run(
            [sys.executable, "-m", "tuner", *words],
            cwd=folder,
            env=environ,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        ).stdout

    launch = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", SCRIPT)
    tuner("init", "--name", "made", "--", *launch, "--style", style, "--batch-size", "32")
    study = folder / "studies/made.yaml"
    text = study.read_text()
    if style not in COUNTED:
        text = text.replace("  options:\n", f"  options:\n    samples_per_iteration: '{samples(style)}'\n")
    study.write_text(text.replace("probe: {", "probe: {window_seconds: 20, "))
    shown = tuner("try", "--study", "made")
    window = re.search(r"in a window of ([\d.]+) s", shown)
    speed = re.search(r"^samples_per_s: (.+)$", shown, re.MULTILINE)
    found = re.search(r"^    progress:(?: (\w+)|\n      - '(.*)')$", text, re.MULTILINE)
    if not (window and speed and found):
        raise ValueError(f"tuner try shows no samples per second: {shown}")
    pattern = (found[1] or found[2]).replace("''", "'")  # YAML doubles a quote
    return Compared(progress=pattern, shown=speed[1], true_per_s=true_rate(truth, float(window[1])))


def samples(style: str) -> str:
    """Return the samples of a counted iteration, as arithmetic."""
    return PER_STEP.get(style, "{batch_size} * {ranks}")


def true_rate(folder: Path, seconds: float) -> float:
    """Return the samples per second of all ranks over the last `seconds` that they wrote down."""
    total = 0.0
    for file in folder.iterdir():
        rows = [tuple(map(float, line.split())) for line in file.read_text().splitlines()[:-1]]
        inside = [row for row in rows if row[0] >= rows[-1][0] - seconds]
        total += (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
    return total


def page(compared: dict[str, Compared], machine: dict[str, str], load: float) -> str:
    """Return the page of results."""
    rows = [
        f"| {style} | `{one.progress}` | {one.shown} | {one.true_per_s:.1f} | {one.off_pct:+.1f} |"
        for style, one in compared.items()
    ]
    shown = {style: " ⏎ ".join(line(0, 10, 0.005).splitlines()) for style, line in STYLES.items()}
    examples = [f"- {style}: `{text}`" for style, text in shown.items()]
    return "\n".join(
        [
            "# Are the samples per second true?",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, no GPU. "
            f"The load average was {load:.0f} at the end.",
            "",
            "`python -m benchmarks.probes.truth > benchmarks/results/truth.md`",
            "",
            "One small training on two CPU ranks prints its progress in several ways. `tuner init` finds what counts,",
            "and `tuner try` measures for 20 s. The ranks write down their own samples, and `tuner` does not see them.",
            "Of each study only `samples_per_iteration` and the window were set by hand. `table` prints its samples.",
            "An epoch has 200 steps, so the window has several epochs. Both numbers are of the same seconds: the",
            "machine's load moves both.",
            "",
            "| style | counted by | samples/s by `tuner` | true | difference, % |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "The lines, printed at every tenth step:",
            "",
            *examples,
            "",
            "Each rank prints bars of tqdm in three styles. `tqdm` has a bar for each epoch. `validation` has two bars",
            "without names for each epoch: of the training and of a validation. With `evaluation` one bar goes on over",
            "all epochs, and the bar of an evaluation comes inside it after each epoch.",
        ]
    )


def main() -> None:
    compared: dict[str, Compared] = {}
    for style in (*STYLES, *EACH_RANK):
        with tempfile.TemporaryDirectory() as folder:
            compared[style] = compare(style, Path(folder))
        print(style, compared[style], file=sys.stderr)
    print(page(compared, describe_machine(open_devices("cpu:1")), os.getloadavg()[0]))


if __name__ == "__main__":
    main()
