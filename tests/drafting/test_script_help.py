import sys
from pathlib import Path

import psutil
import pytest

from tuner.drafting.command_lines import Flag
from tuner.drafting.draft import draft, printed_help
from tuner.drafting.script_help import help_command, known_flags
from tuner.errors import StudyError

ARGPARSE = """
usage: train.py [-h] [-b N]

options:
  -h, --help            show this help message and exit
  -a ARCH, --arch ARCH  model: resnet18 | vit
  -b N, --batch-size N  Input batch size for training
  --workers N, -j N     how many
                        processes (default: 4)
  --dtype {float32,bfloat16}
                        the type of all numbers
  --channels-last       Use channels_last memory layout
  --bf16 [BF16]         mixed precision (default: False)
  --pin_memory [PIN_MEMORY], --pin-memory [PIN_MEMORY]
                        copy (default: True)
  --fused, --no-fused   Fuse the optimizer. (default: False)
"""
CLICK = """
Usage: train.py [OPTIONS]

Options:
  -b, --batch-size INTEGER        samples  [default: 32]
  --precision [fp32|bf16]
  --amp / --no-amp                mixed  [default: no-amp]
  --help                          Show this message and exit.
"""
TYPER = """
╭─ Options ─────────────────────────────────────────────────────╮
│ --batch-size  -b      INTEGER  samples of a step [default: 8] │
│ --compile                      compile the model              │
│ --help                         Show this message and exit.    │
╰───────────────────────────────────────────────────────────────╯
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "train.py"


def read(script: Path, source: str, printed: str = "") -> dict[str, Flag]:
    script.write_text(source)
    return {flag.parameter: flag for flag in known_flags(["python", "train.py"], lambda words: printed)}


def test_a_help_of_argparse_tells_spellings_choices_switches_and_defaults(script: Path) -> None:
    flags = read(script, "import argparse\nparser.add_argument('-b', '--batch-size', default=16)", ARGPARSE)
    assert {name: (flag.default, flag.is_switch) for name, flag in flags.items()} == {
        "arch": (None, False),
        "batch_size": ("16", False),
        "workers": ("4", False),
        "dtype": (None, False),
        "channels_last": (None, True),
        "bf16": ("False", True),
        "pin_memory": ("True", False),
        "fused": ("False", True),
    }
    assert flags["batch_size"].names == ("batch-size", "b")
    assert flags["dtype"].choices == ("float32", "bfloat16")


def test_a_help_of_click_and_of_typer_is_read(script: Path) -> None:
    flags = read(script, "import click", CLICK)
    assert (flags["batch_size"].names, flags["batch_size"].default) == (("batch-size", "b"), "32")
    assert flags["precision"].choices == ("fp32", "bf16")
    assert flags["amp"].names == ("amp",)
    flags = read(script, "import typer", TYPER)
    assert (flags["batch_size"].names, flags["batch_size"].default) == (("batch-size", "b"), "8")
    assert flags["compile"].is_switch


def test_settings_of_hydra_and_of_globals_are_flags(script: Path) -> None:
    flags = read(script, "import hydra", "num_envs: 64\nagent:\n  steps: 24\n")
    assert {flag.names: flag.default for flag in flags.values()} == {("num_envs",): "64", ("agent.steps",): "24"}
    flags = read(script, "batch_size = 8\ndtype = 'float32'\nglobals()[key] = 1\ndef f():\n    inner = 2\n")
    assert {name: flag.default for name, flag in flags.items()} == {"batch_size": "8", "dtype": "float32"}


@pytest.mark.parametrize(
    ("source", "command", "asked"),
    [
        ("import argparse", "torchrun --nproc-per-node 2 train.py -b 3", "py train.py --help"),
        ("import hydra", "python train.py task=a +x=2 -m", "py train.py task=a +x=2 --cfg job"),
        ("import sys", "python train.py -b 3", ""),
        ("import argparse", "./train.sh train.py.txt", ""),
    ],
)
def test_only_a_script_that_reads_its_help_is_asked(script: Path, source: str, command: str, asked: str) -> None:
    script.write_text(source)
    assert " ".join(help_command(command.split(), "py")) == asked


def test_a_real_help_is_read_and_a_script_that_hangs_is_ended(script: Path) -> None:
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('-b', '--batch-size', default=8)\n"
        "parser.add_argument('--workers', default=2)\nprint(parser.parse_args())\n"
    )
    command = [sys.executable, "train.py", "-b", "4"]
    drafted = draft(command, devices="cpu:1", print_help=printed_help(script.parent / "help"))
    assert drafted.template.words[2:] == ("-b", "{batch_size}", "--workers", "{workers}")
    assert drafted.config == {"batch_size": 4, "workers": 2}
    script.write_text("import argparse, subprocess\nsubprocess.run(['sleep', '600'])")
    drafted = draft(command, devices="cpu:1", print_help=printed_help(script.parent / "help", limit_s=1.0))
    assert drafted.flags == ()
    assert not [one for one in psutil.Process().children(recursive=True) if "sleep" in one.name()]


def test_a_command_of_hydra_writes_into_the_folder_of_its_probe_and_runs_once(script: Path) -> None:
    script.write_text("import hydra")
    drafted = draft(["python", "train.py", "task=a", "num_envs=64", "+trainer.max_steps=20"], devices="cpu:1")
    assert drafted.template.words[2:] == (
        *("task=a", "num_envs={num_envs}", "+trainer.max_steps={iterations}", "hydra.run.dir={out_dir}"),
    )
    with pytest.raises(StudyError, match="--multirun starts several trainings"):
        draft(["python", "train.py", "num_envs=1,2", "--multirun"], devices="cpu:1")
