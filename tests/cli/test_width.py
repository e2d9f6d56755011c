"""All that commands print fits a terminal of 80 columns, and so do pipes and files."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from test_board import ended, probe
from tests_cli import Tuner, study_file
from tests_docs import ROOT

from tuner.cli.options import open_console
from tuner.cli.scale import show_scaling
from tuner.cli.screen import Bars, open_screen
from tuner.tools.scaling.results import read

RESULTS = ROOT / "benchmarks/results"
SEARCHED = f"sqlite:///{RESULTS}/pi_plus_auto_two_h200/study.db"
SCALED = [RESULTS / "scaling/one_h200.json", RESULTS / "scaling/two_cpu_ranks.json"]
COPIED = re.compile(r"`[^`]{76,}`|\S{60,}")
"""What a user copies stays in one piece, however long it is: a path, a URL, or a command between backticks."""
CONFIG = {
    "num_envs": 32768,
    "agent_variant": "hiutil",
    "update_epochs": 40,
    "gradient_accumulation_steps": 16,
    "dataloader_persistent_workers": True,
    "num_workers": 16,
    "prefetch_factor": 4,
}


@pytest.fixture(params=["a pipe of unknown width", "80"])
def columns(request: pytest.FixtureRequest, tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Print to a pipe whose width is not told, and to 80 columns. `tuner` sets a width of its own."""
    monkeypatch.delenv("COLUMNS")
    if request.param == "80":
        monkeypatch.setenv("COLUMNS", "80")


def lines(text: str) -> list[str]:
    """Return the visible lines of an output, without those that hold a single long thing to copy."""
    drawn_anew = text.replace("\r\x1b[2K", "\n")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", drawn_anew).splitlines()
    return [line.rstrip() for line in shown if not COPIED.search(line)]


def fit(text: str) -> None:
    assert [line for line in lines(text) if len(line) > 80] == []


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_the_line_of_a_trial_is_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    if kind == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
    notes = ("not eligible as best, the memory has 3.1 % left, and 5 % are required for a training of many hours",)
    event = replace(ended(), config=CONFIG, notes=notes, origin="deepmimic_pi_plus_ppo")
    screen = open_screen(open_console())
    screen.show(event)
    screen.show(event, "worker 1")
    screen.close()
    shown = capsys.readouterr().out
    fit(shown)
    words = " ".join(" ".join(lines(shown)).split())
    assert all(f"{name}={str(value).lower()}" in words for name, value in CONFIG.items() if name != "agent_variant")
    assert "61.2 ± 0.8" in shown  # in one line


def test_the_live_view_shows_a_long_config_on_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=80)
    bars = Bars(console)
    bars.handle(replace(probe(), config=CONFIG))
    console.print(bars)
    shown = capsys.readouterr().out
    fit(shown)
    assert all(f"{name}={str(value).lower()}" in shown.split() for name, value in CONFIG.items())


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize(
    "command",
    [
        ["status", "--study", "pi_plus", "--storage", SEARCHED],
        ["diagnose", "--storage", SEARCHED, "--study-name", "pi_plus/amp_pi_plus"],
        ["compare", *SCALED, "--out", "compared"],
        ["doctor", "--study", "reference"],
        ["cases", "--study", "reference"],
        ["race", "--study", "pi_plus", "--storage", SEARCHED, "--cases", "amp_pi_plus", "--dry-run"],
        ["scale", "--help"],
        ["plan", "--study", "nowhere"],
    ],
    ids=lambda command: command[0],
)
def test_what_a_command_prints_fits(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    monkeypatch.setenv("MIMICKIT_ROOT", str(ROOT / "tests/data/mimickit"))
    (tmp_path / "torch.py").write_text("__version__ = '2.9.0+cu128'")  # `doctor` would load the real one for seconds
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    _, out, err = tuner(*command)
    assert out or err
    fit(out)
    fit(err)
    assert "deepmimic_pi_plus_ppo" in out or command[0] != "status"  # a name stays in one piece


@pytest.mark.parametrize("file", SCALED, ids=lambda file: file.stem)
def test_the_results_of_scaling_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    results = read(file)
    show_scaling(open_console(), results)
    shown = capsys.readouterr().out
    assert "speed-up" in shown
    fit(shown)


@pytest.mark.usefixtures("columns")
def test_a_search_and_what_follows_fit(tuner: Tuner, tmp_path: Path) -> None:
    study = shutil.move(study_file(tmp_path), "short.yaml")
    for command in (["optimize", "--n-trials", "2"], ["status"], ["plan", "--best"], ["report"], ["export"]):
        code, out, err = tuner(command[0], "--study", study, *command[1:])
        assert code == 0
        fit("".join(line for line in out.splitlines(keepends=True) if command[0] != "plan" or line.startswith("#")))
        fit(err)
