"""The flags that a script's own parse of its command line has told from inside, with the values in force."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import tuner.count

INSIDE = Path(tuner.count.__file__).parent / "inside"
ARGPARSE = """
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?")
    parser.add_argument("--batch-size", "-b", type=int, default="8", help="Size (default %(default)s)")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--shuffle", action="store_true", default=True)
    parser.add_argument("--no-shuffle", dest="shuffle", action="store_false")
    parser.add_argument("--amp", nargs="?", const=True, default=False, type=lambda word: word == "yes")
    parser.add_argument("--no_amp", dest="amp", action="store_false")  # as transformers' HfArgumentParser
    parser.add_argument("--mode", choices=["a", "b"], default="a")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--api-token", default="4096")
    parser.add_argument("--api-key", type=int, default=40964096)
    parser.add_argument("--d-key", type=int, default=64)
    parser.set_defaults(lr=0.5)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("fit").add_argument("--workers", type=int, default=2)
    commands.add_parser("test").add_argument("--other", type=int)
    print(parser.parse_args().batch_size)
"""
CLICK = """
    import click

    @click.group()
    @click.option("--seed", default=1)
    def main(seed): ...

    @main.command()
    @click.option("--batch-size", "-b", default=8, help="Size")
    @click.option("--compile/--no-compile", default=True)
    @click.option("--mode", type=click.Choice(["a", "b"]), default="a")
    @click.option("--workers", type=click.IntRange(0, 8), default="2")
    def train(batch_size, **_):
        print(batch_size)

    main()
"""
TYPER = """
    import enum
    import typer

    class Precision(enum.Enum):
        low = "bf16"
        high = "fp32"

    def main(batch_size: int = 8, lr: float = 0.1, precision: Precision = Precision.high, compile: bool = False):
        print(batch_size)

    typer.run(main)
"""
ABSL = """
    from absl import app, flags

    flags.DEFINE_integer("batch_size", 8, "Size", short_name="b")
    flags.DEFINE_bool("compile", True, "Compile")
    flags.DEFINE_enum("mode", "a", ["a", "b"], "Mode")
    app.run(lambda _: print(flags.FLAGS.batch_size))
"""
TYRO = """
    import dataclasses, tyro

    @dataclasses.dataclass
    class Optimizer:
        lr: float = 0.1

    @dataclasses.dataclass
    class Settings:
        batch_size: int = 8
        compile: bool = True
        optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)

    print(tyro.cli(Settings).batch_size)
"""
HYDRA = """
    import hydra
    from omegaconf import DictConfig

    @hydra.main(config_path=".", config_name="config", version_base=None)
    def main(config: DictConfig) -> None:
        print(config.train.batch_size)

    main()
"""
DOTLIST = """
    from omegaconf import OmegaConf

    print(OmegaConf.merge(OmegaConf.load("config.yaml"), OmegaConf.from_cli()).train.batch_size)
"""
CONFIG = """
    train: {batch_size: 8, compile: true}
    home: ${oc.env:HOME}
"""
JSONARGPARSE = """
    import dataclasses
    from jsonargparse import CLI

    @dataclasses.dataclass
    class Optimizer:
        lr: float = 0.1

    def main(batch_size: int = 8, compile: bool = True, optimizer: Optimizer = Optimizer()):
        print(batch_size)

    CLI(main)
"""
FIRE = """
    import fire

    def main(batch_size: int = 8, compile=True):
        print(batch_size)

    fire.Fire(main)
"""


def told(folder: Path, script: str, *words: str) -> list[dict[str, Any]]:
    """Return the records of a script's run whose batch size is 4: it prints that, and nothing else."""
    (folder / "train.py").write_text(dedent(script))
    (folder / "config.yaml").write_text(dedent(CONFIG))
    (folder / "count").mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(INSIDE), "TUNER_COUNT": str(folder / "count")}
    run = subprocess.run(
        [sys.executable, "train.py", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == ["4"], run.stdout + run.stderr
    assert tuner.count.has_started(folder / "count")  # even where nothing is told
    lines = [line for file in sorted((folder / "count").iterdir()) for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def flags(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of the last record of flags, by their first name."""
    parses = [record for record in records if record["type"] == "flags"]
    return {option["names"][0]: option for option in parses[-1]["options"]} if parses else {}


def of(option: dict[str, Any], *keys: str) -> list[Any]:
    return [option[key] for key in keys]


def test_argparse_tells_each_option_with_the_value_in_force_and_whether_it_was_typed(tmp_path: Path) -> None:
    words = ["-b4", "--mod=b", "--no-compile", "fit", "--workers", "3"]
    options = flags(told(tmp_path, ARGPARSE, *words))
    assert list(options) == [
        *("--batch-size", "--lr", "--compile", "--shuffle", "--amp", "--mode", "--sizes"),
        *("--max-tokens", "--api-token", "--api-key", "--d-key", "--workers"),
    ]
    size = {"names": ["--batch-size", "-b"], "switch": False, "off": [], "choices": None, "value": 4, "typed": True}
    assert options["--batch-size"] == size
    assert of(options["--lr"], "value", "typed") == [0.5, False]
    switches = [of(options[name], "switch", "off", "value") for name in ("--compile", "--shuffle", "--amp")]
    assert switches == [[True, ["--no-compile"], False], [True, ["--no-shuffle"], True], [True, ["--no_amp"], False]]
    assert of(options["--mode"], "choices", "value", "typed") == [["a", "b"], "b", True]
    assert options["--sizes"]["value"] is None
    assert [options[name]["value"] for name in ("--max-tokens", "--d-key", "--api-token", "--api-key")] == [
        *(4096, 64, None, None),
    ]
    assert of(options["--workers"], "value", "typed") == [3, True]


def test_a_parse_of_other_words_tells_nothing(tmp_path: Path) -> None:
    script = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=4)
        parser.parse_args(["--batch-size", "2"])
        print(parser.parse_args([]).batch_size)
    """
    assert not told(tmp_path, script)
    assert not flags(told(tmp_path, script, "--other", "1"))


def test_a_parse_of_another_thread_does_not_hide_that_of_the_command_line(tmp_path: Path) -> None:
    script = """
        import argparse, threading
        begun, done = threading.Event(), threading.Event()

        def wait(word):
            begun.set()
            done.wait()

        other = argparse.ArgumentParser()
        other.add_argument("--name", type=wait)
        thread = threading.Thread(target=other.parse_args, args=[["--name", "x"]])
        thread.start()
        begun.wait()
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=8)
        print(parser.parse_args().batch_size)
        done.set()
        thread.join()
    """
    assert list(flags(told(tmp_path, script, "--batch-size", "4"))) == ["--batch-size"]


def test_what_an_earlier_parser_left_over_is_parsed_as_the_same_command_line(tmp_path: Path) -> None:
    script = """
        import argparse, json
        first = argparse.ArgumentParser(add_help=False)
        first.add_argument("--settings")
        known, rest = first.parse_known_args()
        second = argparse.ArgumentParser(parents=[])
        second.add_argument("--batch-size", type=int, default=2)
        second.set_defaults(**json.loads(known.settings))
        print(second.parse_args(rest).batch_size)
    """
    options = flags(told(tmp_path, script, "--settings", '{"batch_size": 4}'))
    assert of(options["--settings"], "value", "typed") == ['{"batch_size": 4}', True]
    assert of(options["--batch-size"], "value", "typed") == [4, False]


def test_a_parsers_error_reaches_the_script(tmp_path: Path) -> None:
    script = """
        import argparse
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("--batch-size", type=int)
        try:
            parser.parse_args()
        except argparse.ArgumentError:
            print(4)
    """
    assert not flags(told(tmp_path, script, "--batch-size", "many"))


def test_click_tells_the_options_of_a_command_and_of_its_group(tmp_path: Path) -> None:
    pytest.importorskip("click")
    options = flags(told(tmp_path, CLICK, "train", "-b", "4", "--no-compile"))
    assert of(options["--seed"], "value", "typed") == [1, False]
    assert of(options["--batch-size"], "names", "value", "typed") == [["--batch-size", "-b"], 4, True]
    assert of(options["--compile"], "switch", "off", "value") == [True, ["--no-compile"], False]
    assert of(options["--mode"], "choices", "value") == [["a", "b"], "a"]
    assert of(options["--workers"], "value", "typed") == [2, False]


def test_typer_tells_a_functions_parameters(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    options = flags(told(tmp_path, TYPER, "--batch-size", "4", "--precision=bf16"))
    assert of(options["--batch-size"], "value", "typed") == [4, True]
    assert of(options["--lr"], "value", "typed") == [0.1, False]
    assert of(options["--precision"], "choices", "value", "typed") == [["bf16", "fp32"], "bf16", True]
    assert of(options["--compile"], "switch", "off", "value") == [True, ["--no-compile"], False]


@pytest.mark.parametrize(
    ("library", "script", "words", "names"),
    [
        ("absl", ABSL, ["-b=4", "--nocompile"], ("--batch_size", "--compile")),
        ("tyro", TYRO, ["--batch_size", "4", "--no-compile"], ("--batch-size", "--compile")),
        ("jsonargparse", JSONARGPARSE, ["--batch_size=4", "--compile=false"], ("--batch_size", "--compile")),
        ("hydra", HYDRA, ["train.batch_size=4", "train.compile=false"], ("train.batch_size", "train.compile")),
        ("omegaconf", DOTLIST, ["train.batch_size=4", "train.compile=false"], ("train.batch_size", "train.compile")),
    ],
)
def test_a_librarys_parser_tells_the_value_in_force(
    tmp_path: Path, library: str, script: str, words: list[str], names: tuple[str, str]
) -> None:
    pytest.importorskip(library)
    options = flags(told(tmp_path, script, *words))
    assert (str(options[names[0]]["value"]), options[names[0]]["typed"]) == ("4", True)
    assert of(options[names[1]], "value", "typed") == [False, True]
    if library in {"tyro", "jsonargparse"}:
        assert of(options["--optimizer.lr"], "value", "typed") == [0.1, False]
    if script in {HYDRA, DOTLIST}:
        assert options["home"]["value"] is None  # a resolver's value is not computed


def test_the_flags_of_fire_are_not_told_but_that_the_command_line_is_read(tmp_path: Path) -> None:
    pytest.importorskip("fire")
    assert [record["type"] for record in told(tmp_path, FIRE, "4", "--nocompile")] == ["process", "argv"]
