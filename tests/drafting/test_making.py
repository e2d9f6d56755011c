"""A study that is made of a command, and what is left where a person stops that."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.drafting.making import Wanted, make_study, write_study
from tuner.drafting.writing import origin_line, with_search_options
from tuner.errors import StudyError, TunerError


def test_what_was_there_before_a_stopped_first_run_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    kept = tmp_path / "train/init/mine.txt"
    kept.parent.mkdir(parents=True)
    kept.touch()

    def stopped(line: str) -> None:
        raise KeyboardInterrupt

    wanted = Wanted(devices="cpu:1", runs=Path())
    with pytest.raises(KeyboardInterrupt):
        make_study(["python", "train.py", "--batch-size", "8"], wanted, stopped, warn=stopped)
    assert kept.exists()


@pytest.mark.parametrize("typed", ["env A=1 python train.py", "A=1 python train.py"])
@pytest.mark.parametrize("made_from", ["env A=1 python train.py", "A=1 python train.py"])
def test_the_study_of_the_same_command_is_used(tmp_path: Path, typed: str, made_from: str) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(f"{origin_line(made_from.split())}\nname: made\n")
    said: list[str] = []
    assert make_study(typed.split(), Wanted(out=file), said.append, warn=said.append, to_search=True) == str(file)
    assert len(said) == 1


MADE = """name: made
trainer:
  name: command
  options:
    command: python train.py -b {batch_size} --num-workers {num_workers}
    unset: {num_workers: 1}
    keeps: [batch]
space: {batch_size: {choices: [8]}, num_workers: {choices: [1, 0, 2]}}
"""
TYPED = ["python", "train.py", "-b", "8"]


def test_only_a_search_itself_warns_of_a_key(tmp_path: Path) -> None:
    text, said = MADE.replace("-b {batch_size}", "-b {batch_size} --auth sk-0a1b2c3d4e5f"), list[str]()
    for to_search in (True, False):
        write_study(tmp_path / "made.yaml", text, lambda _: None, warn=said.append, to_search=to_search)
    assert ["looks like a key" in line for line in said] == [False, True]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A study file of a command whose flag `--num-workers` is 1 without being typed."""
    file = tmp_path / "made.yaml"
    file.write_text(with_search_options(f"{origin_line(TYPED)}\n{MADE}", ["j=0,2"]))
    return file


@pytest.mark.parametrize("asked", [["j=0,2"], None])
def test_a_study_is_used_again_for_the_options_that_it_was_made_with(made: Path, asked: list[str] | None) -> None:
    wanted = Wanted(out=made, search=asked)
    assert make_study(TYPED, wanted, lambda _: None, warn=print, to_search=True) == str(made)


@pytest.mark.parametrize(
    "other",
    [
        Wanted(search=["num_workers=0,4"]),
        Wanted(search=["num_workers=0,2", "b=8,16"]),
        Wanted(search=["hidden=8,16"]),
        Wanted(launch=["megatron"]),
        Wanted(free_batch=True),
    ],
)
def test_another_space_than_that_of_the_study_is_refused(made: Path, other: Wanted) -> None:
    with pytest.raises(
        StudyError, match=r"other options for its space: it searches batch_size=8 num_workers=1,0,2.*--force"
    ):
        make_study(TYPED, replace(other, out=made), print, warn=print, to_search=True)


@pytest.mark.parametrize(
    ("of_file", "devices", "is_refused"),
    [
        ("cpu:1", "cpu:1", False),
        ("'2'", "2,3", False),
        ("'2'", "auto", False),
        ("'2'", "3", True),
        ("cpu:1", "3", True),
    ],
)
def test_a_study_of_other_devices_is_not_used(made: Path, of_file: str, devices: str, is_refused: bool) -> None:
    made.write_text(f"{made.read_text()}devices: {of_file}\n")
    wanted = Wanted(out=made, devices=devices)
    with pytest.raises(StudyError, match=r"for devices (2|cpu:1), not 3;.*--force") if is_refused else nullcontext():
        make_study(TYPED, wanted, print, warn=print, to_search=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("cpu:2", "on the CPU, as 2 ranks"),
        ("auto", "on all cards"),
        ("auto:2", "on 2 cards"),
        ("2,3", "on cards 2,3"),
        ("CUDA_VISIBLE_DEVICES=4,2", "on cards 0,1"),  # typed before the command: their places in the exported 4,2,3
        ("CUDA_VISIBLE_DEVICES=", "on the CPU, as 1 rank"),
    ],
)
def test_a_person_reads_which_devices_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,2,3")
    Path("train.py").touch()
    said: list[str] = []

    def stopped(line: str) -> None:  # at the first line
        said.append(line)
        raise KeyboardInterrupt

    is_typed = "=" in given
    wanted = Wanted(devices=None if is_typed else given)
    with pytest.raises(KeyboardInterrupt):
        make_study([given, *TYPED] if is_typed else TYPED, wanted, stopped, warn=stopped)
    assert said[0].endswith(words)


@pytest.mark.parametrize(
    ("cards", "devices", "exported"), [("2,3", "0,1", ""), ("GPU-1a", None, ""), ("7", None, "4,2,3")]
)
def test_cards_of_a_command_that_cannot_be_taken_are_refused(
    monkeypatch: pytest.MonkeyPatch, cards: str, devices: str | None, exported: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", exported)
    with pytest.raises(TunerError, match=f"{cards}.*command|command.*{cards}"):
        make_study([f"CUDA_VISIBLE_DEVICES={cards}", *TYPED], Wanted(devices=devices), print, warn=print)


def test_a_program_that_starts_the_training_elsewhere_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warned: list[str] = []
    make_study(
        ["srun", "torchrun", "--nproc-per-node", "2", "train.py"],
        Wanted(launch=["nccl"], devices="cpu:2"),
        lambda _: None,
        warn=warned.append,
    )
    assert "srun" in warned[0]
    assert "not protected" in warned[0]


def test_a_launch_shows_only_degrees_that_the_cards_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    command = "torchrun --nproc-per-node 2 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 64"
    make_study(command.split(), Wanted(launch=["megatron"], devices="cpu:2"), said.append, warn=said.append)
    assert {"  tensor_model_parallel_size=1,2", "  pipeline_model_parallel_size=1,2"} <= {*said}


def test_a_study_of_another_command_is_named_with_its_command(made: Path) -> None:
    with pytest.raises(StudyError, match=r"another command, python train.py -b 8; give --force"):
        make_study([*TYPED, "--wide"], Wanted(out=made), print, warn=print, to_search=True)
