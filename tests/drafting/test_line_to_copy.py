"""What is printed is what was measured: a typed command, the line to copy and the script of `tuner plan`."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tuner.cli.plan import script
from tuner.drafting.asking import flags_to_search, flags_with_placeholders
from tuner.drafting.draft import Draft, draft, with_searches
from tuner.drafting.outcome import command_line
from tuner.drafting.printed import PrintedLines
from tuner.drafting.run_flags import known_of
from tuner.drafting.searches import Known
from tuner.drafting.watching import DeviceUse, Watched
from tuner.drafting.writing import command_of_file, origin_line, study_text
from tuner.errors import StudyError
from tuner.probe.probe_plan import Device, OutputLine
from tuner.study.spec import StudySpec, TrainerSpec
from tuner.trainers.base import make_slot
from tuner.trainers.command import CommandTrainer
from tuner.trainers.typed_command import typed_command

PIECES = [
    *(
        "${HOME}/x",
        "${NOPE:-$(touch pwned)}",
        "$(touch pwned)",
        "`touch pwned`",
        "$HOME",
        "${port}",
        "$${HOME}",
        "$",
        "$'",
    ),
    *(
        "'",
        '"',
        "\\",
        " ",
        "  ",
        "\t",
        "\n",
        "\r",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "{",
        "}",
        "{{x}}",
        "~",
        "!",
        "#",
        "&",
        ";",
    ),
    *(
        "|",
        "<",
        ">",
        "(",
        ")",
        "=",
        "-",
        "%s",
        "a",
        "b1",
        "é",
        "日",
        "\u202e",
        "\xa0",
        "\x1b[31m",
        "\x01",
        "\x7f",
        "\x85",
    ),
]
PLACEHOLDERS = {"{port}", "{case}", "{seed}"}
"""Typed texts that stand for something."""
TEXTS = st.lists(st.sampled_from(PIECES), max_size=4).map("".join) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6
).filter(lambda text: text not in PLACEHOLDERS)
PROGRAM = ("bash", "-c", r"""printf '%s\0' "$TAG" "$@" """, "train")
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/home/somebody", "a": "changed"}
LINES = [OutputLine(t_s=float(step), text=f"step {step} samples {8 * step}") for step in range(9)]
USES = [DeviceUse(device=Device(name="cpu:0", model="a CPU"), util_pct=51.0, mem_peak_mib=300.0, worked=True)]


def drafted(command: Sequence[str]) -> tuple[Draft, Watched]:
    """Return the draft of a command whose workers are searched, and what was seen of it."""
    lines = PrintedLines()
    lines.feed(LINES)
    found = lines.progress
    assert found is not None
    watched, made = (
        Watched(printed=found, reports=found.reports, seconds=30.0, uses=tuple(USES), devices="cpu:1"),
        draft(typed_command(command), devices="cpu:1"),
    )
    known = known_of(made, watched)
    return with_searches(made, flags_to_search(known, ["workers=1,2"]), known), watched


def study_of(command: Sequence[str]) -> str:
    """Return the text of the study that `tuner init` makes of a command with `--workers 1`."""
    return study_text("made", *drafted(command))


def started_by_bash(line: str, folder: Path) -> list[str]:
    """Return the variable and the arguments that a program gets from a shell, which has nothing else to do."""
    said = subprocess.run(["/bin/bash", "-c", line], env=ENVIRON, cwd=folder, capture_output=True, check=True)
    assert not list(folder.rglob("pwned"))
    return said.stdout.decode().split("\0")[:-1]


@settings(max_examples=20)
@given(TEXTS, st.lists(TEXTS, max_size=4))
@example("a  b", ["--tag", "${NOPE:-$(touch pwned)}", "${HOME}/x", "a\tb", "", "it's", "$${HOME}", "${port}"])
@example("?$(touch pwned)", [":x", "\x85"])
@example("\x85", ["?", ":"])
@example("${HOME}", ["\x1b\u202e\n", "${A:-", "${HOME}}", "{workers", "$`"])
def test_the_line_to_copy_and_the_script_start_what_was_measured(
    tmp_path_factory: pytest.TempPathFactory, tag: str, arguments: Sequence[str]
) -> None:
    folder = tmp_path_factory.mktemp("copied")
    words = [*PROGRAM, "--workers", "1", "--", *arguments]
    spec = StudySpec.model_validate(YAML(typ="safe").load(study_of([f"TAG={tag}", *words])))
    trainer = CommandTrainer(replace_root(spec, folder).trainer)
    slot = make_slot(folder / "${HOME}", ranks=1)

    measured = trainer.plan(trainer.cases()[0], {"workers": 2}, slot)
    started = [measured.environment(ENVIRON)["TAG"], *measured.command(ENVIRON)[len(PROGRAM) :]]
    assert started == [tag, "--workers", "2", "--", *arguments]
    line = command_line([f"TAG={tag}", *words], spec.trainer.command, {"workers": 2}, {"workers": 1})
    assert line is not None
    assert line.isprintable()
    assert started_by_bash(line, folder) == started
    to_train = trainer.plan(trainer.cases()[0], {"workers": 2}, replace(slot, to_train=True))
    assert started_by_bash(script(to_train), folder) == started


def replace_root(spec: StudySpec, folder: Path) -> StudySpec:
    """Return the study with another folder to run in."""
    return spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"root": str(folder)})})


@given(st.lists(TEXTS, min_size=1))
@example(["train", "--tag", "a  b", "\t", "\x01", " ", "\ufffd"])
def test_a_study_is_known_again_by_the_words_of_its_command(
    tmp_path_factory: pytest.TempPathFactory, typed: list[str]
) -> None:
    line, file = origin_line(typed), tmp_path_factory.getbasetemp() / "study.yaml"
    assert line.isprintable()
    file.write_text(f"{line}\nname: x", encoding="utf-8")
    assert command_of_file(file) == typed


@pytest.mark.parametrize("typed", [["train", "--tag", "a\udcff"], ["TAG=\udcff", "train"]])
def test_a_word_that_no_study_file_can_hold_is_refused_before_a_run(typed: Sequence[str]) -> None:
    with pytest.raises(StudyError, match=r"xff' is not UTF-8"):
        draft(typed_command(typed), devices="cpu:1")


@pytest.mark.parametrize("text", ["${HOME}/x", "{a,b}", "${NOPE:-$(x)}", "{}", "$${workers}"])
def test_the_first_run_has_what_was_typed(tmp_path: Path, text: str) -> None:
    made = CommandTrainer(
        TrainerSpec.model_validate(draft(typed_command([f"TAG={text}", "train", text]), devices="cpu:1").trainer)
    )
    plan = made.plan(made.cases()[0], {}, make_slot(tmp_path))
    assert (plan.environment(ENVIRON)["TAG"], plan.command(ENVIRON)) == (text, ("train", text))


def test_a_line_to_copy_is_in_shell_quoting() -> None:
    for typed, line in [
        (["TAG=a b", "train", "--workers", "1"], "TAG='a b' train --workers 2"),
        (["env", "TAG=a b", "train", "--workers", "1"], "TAG='a b' train --workers 2"),
        (["WORKERS={workers}", "OUT={out_dir}", "train"], "WORKERS=2 OUT=best train"),
        (["workers=1", "train", "1"], "workers=2 train 1"),
        (["train.py", "--fp16", "workers", "1"], "train.py --fp16 workers 2"),
        (["sh", "-c", "x {workers} > {out_dir}/a; train {out_dir}/a"], "sh -c 'x 2 > best/a; train best/a'"),
        (["train", "--workers", "1", "--tag", "a\tb"], r"train --workers 2 --tag $'a\tb'"),
        (["train", "--workers", "1", "--at", "${HOME}"], "train --workers 2 --at '${HOME}'"),
    ]:
        template = drafted(typed)[0].template.words
        values: Mapping[str, object] = {"workers": 2}
        assert command_line(typed, template, values, {"workers": 1}, facts={"out_dir": "best"}) == line


def test_the_first_run_has_a_value_for_each_typed_placeholder(tmp_path: Path) -> None:
    typed, asked = typed_command(["A={b}", "sh", "-c", "x {n} {other}"]), ["n=1,2", "b=3,4", "c=5,6"]
    named = flags_with_placeholders(asked, Known(words=typed.words, env=typed.env, cores=1))
    made = draft(typed, devices="cpu:1", searches=named)
    trainer = CommandTrainer(TrainerSpec.model_validate(made.trainer))
    plan = trainer.plan(trainer.cases()[0], made.config, make_slot(tmp_path))
    assert (plan.environment(ENVIRON)["A"], plan.command(ENVIRON)) == ("3", ("sh", "-c", "x 1 {other}"))


def test_a_searched_variable_is_set_in_each_probe(tmp_path: Path) -> None:
    spec = StudySpec.model_validate(YAML(typ="safe").load(study_of(["workers=1", "train"])))
    trainer = CommandTrainer(spec.trainer)
    plan = trainer.plan(trainer.cases()[0], {"workers": 2}, make_slot(tmp_path, ranks=1))
    assert (plan.environment(ENVIRON)["workers"], plan.command(ENVIRON)) == ("2", ("train",))
    assert spec.space["workers"].values == (1, 2)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("python a.py", "CUDA_VISIBLE_DEVICES=2,3 python a.py"),
        ("CUDA_VISIBLE_DEVICES=2,3 A=1 python a.py", "CUDA_VISIBLE_DEVICES=2,3 A=1 python a.py"),
    ],
)
def test_a_line_to_copy_names_the_cards_on_which_it_was_measured(typed: str, line: str) -> None:
    words = ("python", "a.py")
    assert command_line(typed.split(), words, {}, {}, variables={"CUDA_VISIBLE_DEVICES": "2,3"}) == line
