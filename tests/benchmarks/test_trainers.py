"""The small real scripts of `examples/`, from `tuner init` to a first value.

They run with `pytest -m trainers`. TRAINERS_PYTHON names a Python that has their libraries.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.probes.trainers import EXAMPLES, Figures, first_value, page

PYTHON = Path(os.environ.get("TRAINERS_PYTHON", sys.executable)).absolute()
VALUE = re.compile(r"\d+\.\d ± \d+\.\d")


@pytest.mark.trainers
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_first_value_without_an_edit(name: str, tmp_path: Path) -> None:
    module = EXAMPLES[name].module
    if subprocess.run([PYTHON, "-c", f"import torch, {module}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{PYTHON} has no {module}; name another Python in TRAINERS_PYTHON")
    figures = first_value(EXAMPLES[name], PYTHON, tmp_path)
    assert VALUE.fullmatch(figures.read("min_avg_util"))
    assert VALUE.fullmatch(figures.read("samples_per_s"))


def test_the_page_shows_what_was_measured() -> None:
    figures = Figures(
        init_s=30.0,
        try_s=45.0,
        study="trainer:\n  options:\n    progress: sb3\ndevices: 'cpu:1'  # busy",
        shown="min_avg_util: 61.0 ± 1.5\nsamples_per_s: 1500.0 ± 20.0",
    )
    shown = page({"skrl": figures}, {"cpu": "a CPU", "cores": "2", "memory": "8 GiB"}, 1.0)
    assert "| skrl | sb3 | cpu:1 | 30 | 45 | 1.2 | 0 | 61.0 ± 1.5 | 1500.0 ± 20.0 |" in shown
