"""The script of docs/sampler.md does what the page says."""

import contextlib
import io
import re
from pathlib import Path

import optuna

PAGE = Path(__file__).parents[2] / "docs/sampler.md"


def test_the_script_finds_the_best_config_that_fits() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script, str(PAGE), "exec"), {})  # noqa: S102 - our own page
    assert printed.getvalue().startswith("{'num_envs': 4096, 'batch_size': 1} ")
    assert "None" not in printed.getvalue()
