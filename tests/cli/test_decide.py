"""`tuner decide`: whether a training on one card is worth a move to several."""

import re
import shlex
from pathlib import Path

from tests_cli import Tuner
from tests_docs import ROOT


def test_the_example_of_the_page_is_what_the_command_prints(tuner: Tuner) -> None:
    page = (ROOT / "docs/scaling.md").read_text()
    (command, shown) = re.findall(r"^\$ (tuner decide .*)\n((?:[^`].*\n)+)", page, re.MULTILINE)[0]
    code, out, err = tuner(*shlex.split(command)[1:])
    assert (code, err) == (0, "")
    assert " ".join(out.split()).endswith(" ".join(shown.split()).removeprefix("…"))


def test_the_seconds_a_step_come_from_the_bar_of_the_training(tuner: Tuner, tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    bars = [f"Epoch 0: {step}%| | {step}/100 [00:10<00:50, {rate}, v_num=0]" for step, rate in enumerate(RATES)]
    log.write_bytes("\r".join(bars).encode())
    asked = ("--steps-left", 3600, "--cards", 2, "--cards-step-seconds", 1, "--log", log)
    code, out, _ = tuner("decide", *asked)
    assert (code, "one card: 3,600 steps left, 2.0 h" in out) == (0, True)
    log.write_text("loss 0.1")
    code, _, err = tuner("decide", *asked)
    assert (code, "shows no it/s or s/it; say how long" in " ".join(err.split())) == (2, True)


RATES = ["?it/s", "9.00s/it", "2.00s/it", "0.50it/s", "2.00s/it"]
"""The first steps are slower."""
