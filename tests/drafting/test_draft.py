"""From a command to the text of its study, without a run: the lines are those that real trainers printed."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tuner.drafting.draft import Used, draft, environment, imported, narrowed, study_name, used, widened, working_ranks
from tuner.drafting.progress_found import Found, find_progress
from tuner.drafting.watching import Watched
from tuner.drafting.writing import against, preset_text, sample_choices, samples_said, study_text
from tuner.errors import StudyError
from tuner.probe.output import LineSplitter
from tuner.probe.probe_plan import Device, ProgressFile
from tuner.probe.protocols import OutputLine
from tuner.probe.result import DeviceSample, Progress
from tuner.study.spec import StudySpec
from tuner.trainers.presets import PRESETS
from tuner.trainers.registry import open_trainer, split_parameters

DATA = Path(__file__).parents[1] / "data/progress"
EXAMPLES = Path(__file__).parents[2] / "examples"

USES = [Used(device=Device(name="cpu:0", model="a CPU"), util_pct=51.0, mem_peak_mib=300.0, worked=True)]
STEPS = tuple(Progress(iteration=number, t_s=float(number)) for number in range(3))


def watched(file: str, likely: tuple[str, ...], samples: tuple[DeviceSample, ...] = ()) -> Watched:
    texts = LineSplitter().feed((DATA / file).read_bytes())
    found = find_progress([OutputLine(t_s=0.1 * place, text=text) for place, text in enumerate(texts)], likely)
    assert found is not None
    return Watched(found=found, samples=samples, seconds=30.0)


def study(command: str, file: str, *, asked: tuple[str, ...] = (), devices: str = "cpu:2") -> StudySpec:
    """Draft a command whose lines are recorded, and read the study that is written."""
    drafted = draft(shlex.split(command), asked, devices=devices)
    text = study_text("made", drafted, watched(file, drafted.likely), devices, USES)
    spec = StudySpec.model_validate(YAML(typ="safe").load(text))
    assert split_parameters(open_trainer(spec.trainer), spec.space) == (tuple(spec.space), {})
    return spec


@pytest.mark.parametrize(
    ("command", "file", "progress", "samples"),
    [
        (
            f"python {EXAMPLES}/lightning_ddp.py --devices 2 --batch-size 8",
            "lightning.log",
            "lightning",
            "{batch_size} * {ranks}",
        ),
        (
            f"torchrun --nproc-per-node 2 {EXAMPLES}/huggingface_gpt2.py --per_device_train_batch_size 8",
            "huggingface.log",
            "huggingface",
            "{per_device_train_batch_size} * {ranks}",
        ),
        (
            f"torchrun {EXAMPLES}/huggingface_gpt2.py --per_device_train_batch_size=8 --gradient_accumulation_steps=4",
            "huggingface.log",
            "huggingface",
            "{per_device_train_batch_size} * {ranks} * {gradient_accumulation_steps}",
        ),
        (f"python {EXAMPLES}/skrl_ppo.py --num_envs 16", "skrl.log", "skrl", "{num_envs} * {ranks}"),
        (f"python {EXAMPLES}/sb3_ppo.py --n-envs 8", "sb3.log", "sb3", None),
        (f"python {EXAMPLES}/rsl_rl_ppo.py --num_envs 8", "rsl_rl.log", "rsl_rl", None),
        (f"python {EXAMPLES}/cleanrl_ppo.py --num-envs 8", "cleanrl.log", "cleanrl", None),
        ("python elsewhere.py --batch-size 8", "skrl.log", "tqdm", None),
        ("python elsewhere.py --batch-size 8", "lightning.log", "lightning", None),
    ],
)
def test_a_study_names_the_preset_and_counts_samples(
    command: str, file: str, progress: str, samples: str | None
) -> None:
    options = study(command, file).trainer.options
    assert options["progress"] == progress
    assert options.get("samples_per_iteration") == samples


def test_lines_of_an_unknown_form_give_patterns() -> None:
    command = f"torchrun --nproc-per-node 2 {EXAMPLES}/torchrun_ddp.py --batch-size 64"
    options = study(command, "torchrun.log").trainer.options
    assert options["progress"] == [r"step\s*(?P<iteration>\d+)/.*?samples\s*(?P<samples>\d+)"]
    assert options["learning"] == "keep"


def text_of(command: str, *lines: str, ranks: int = 1, asked: Sequence[str] = ()) -> str:
    """Return the study file for a command that prints these lines, one a second."""
    drafted = draft(shlex.split(command), asked, devices=f"cpu:{ranks}")
    found = find_progress([OutputLine(t_s=float(place), text=text) for place, text in enumerate(lines)])
    assert found is not None
    devices = [Device(name=f"cpu:{rank}", model="a CPU") for rank in range(ranks)]
    uses = [Used(device=device, util_pct=51.0, mem_peak_mib=300.0, worked=True) for device in devices]
    written = study_text("made", drafted, Watched(found=found, samples=(), seconds=30.0), drafted.devices, uses)
    StudySpec.model_validate(YAML(typ="safe").load(written))
    return written


@pytest.mark.parametrize(
    ("line", "ranks", "said"),
    [
        ("step {n}", 1, "samples_per_iteration: '{{per_device_train_batch_size}} * {{ranks}}'"),
        (
            "epoch 1 [{n}20/6000]",
            1,
            "samples_per_iteration: '1'  # a sample: the count always grows by a multiple of the batch, 10",
        ),
        (
            "| Epoch | {n} |",
            1,
            "samples_per_iteration: '50000'  # an epoch, where it has 50000 samples",
        ),
        ("Epoch: [0][{n}/977] Loss 6.9", 1, "'{{per_device_train_batch_size}} * {{ranks}}'  # a batch of each rank"),
        ("loss 2.3{n}", 1, "counts as one iteration, however many steps"),
        ("step {n} samples {n}0", 2, "(?:\\d+)'\n    # 10 samples in each iteration were printed. Are they"),
        ("step {n} speed 21.{n} samples/s", 2, "Are they of one rank, or of all 2?"),
    ],
    ids=["steps", "batches", "epochs", "within epochs", "lines", "samples of a rank", "speed of a rank"],
)
def test_the_comment_about_samples_fits_what_is_counted(line: str, ranks: int, said: str) -> None:
    lines = [line.format(n=2 * n) for n in range(1, 9)]
    assert said.format() in text_of("python train.py --per_device_train_batch_size 10", *lines, ranks=ranks)


@pytest.mark.parametrize(("line", "ranks"), [("step {n} samples {n}0", 1), ("step {n} samples {m}0", 2)])
def test_samples_of_all_ranks_need_no_comment(line: str, ranks: int) -> None:
    lines = [line.format(n=2 * n, m=4 * n) for n in range(1, 9)]
    assert "samples_per_iteration" not in text_of("python train.py --batch-size 10", *lines, ranks=ranks)


@pytest.mark.parametrize(
    ("line", "accumulated", "lines"),
    [
        (
            "step {n} speed {speed}.{n} samples/s",
            1,
            "'{batch_size} * 4 * {ranks}'  # of one rank\n    # samples_per_iteration: '{batch_size} * 4'",
        ),
        ("step {n} samples {n}00", 1, "# samples_per_iteration: '{batch_size} * 10 * {ranks}'  # of one rank\n"),
        ("step {n} samples {m}0", 2, "# samples_per_iteration: '{batch_size} * 2 * {ranks}'  # of one rank\n"),
        ("step {n} samples {m}0", 1, "# 20 samples in each iteration were printed. They are taken as those of all 2"),
        ("step {n} samples {n}000", 1, "# 1000 samples in each iteration were printed. They are taken as those of all"),
    ],
    ids=["a speed", "batches", "known steps", "all ranks", "tokens"],
)
def test_batches_that_one_rank_may_accumulate_are_asked_about(line: str, accumulated: int, lines: str) -> None:
    printed = [line.format(n=2 * n, m=4 * n, speed=80) for n in range(1, 9)]
    assert lines in text_of(f"python train.py --batch-size 10 --grad-accum {accumulated}", *printed, ranks=2)


@pytest.mark.parametrize(
    ("busy", "total", "largest", "waits"),
    [(20.0, None, 64, True), (90.0, None, 64, False), (90.0, 8000.0, 128, False)],
)
def test_sizes_follow_from_memory_and_workers_from_waiting(
    busy: float, total: float | None, largest: int, waits: bool
) -> None:
    command = ["train.py", "--batch-size", "8", "--workers", "2"]
    drafted = draft(command, devices="cpu:2", free_batch=True)
    device = Device(name="cuda:0", model="a card", uuid="GPU-1", mem_total_mib=total)
    uses = [Used(device=device, util_pct=busy, mem_peak_mib=1000.0, worked=True)]
    batch, workers = sorted(widened(drafted, uses).searches, key=lambda one: one.parameter)
    assert batch.values == tuple(4 << power for power in range(int(math.log2(largest // 4)) + 1))
    assert (workers.values != drafted.searches[1].values) is waits
    named = draft(command, ["batch-size=8,16", "workers=0,2"], devices="cpu:2")
    assert widened(named, uses).space() == named.space()
    last = draft(command, ["compile=True,False", "workers=0,2"], devices="cpu:2")
    assert next(iter(widened(last, uses).space())) == ("workers" if waits else "compile")


def test_lines_that_stand_for_any_number_of_steps_offer_no_answer() -> None:
    written = text_of("python train.py --batch-size 10", *(f"loss 2.3{number}" for number in range(9)))
    assert "samples_per_iteration" not in written
    assert "objective: min_avg_util" in written


@pytest.mark.parametrize("typed", ["--batch-size 10", ""])
def test_where_the_batch_changes_by_itself_nothing_is_asked_and_iterations_compare_nothing(typed: str) -> None:
    lines = [f"step {n} bs {10 * (1 + n // 5)}" for n in range(15)]
    written = text_of(f"python train.py {typed} --workers 2", *lines)
    assert "# Samples/s are unknown: the batch that the command prints changes within a run, from 10 to 20." in written
    assert "samples_per_iteration" not in written
    assert "objective: min_avg_util" in written


@pytest.mark.parametrize(
    ("asked", "objective"),
    [
        (("workers=0,2", "compile=True,False", "opt=adam,sgd"), "iterations_per_s"),
        (("workers=0,2", "batch-size=10,20"), "min_avg_util"),
        (("width=64,128",), "min_avg_util"),
    ],
)
def test_iterations_compare_configs_where_no_value_changes_an_iteration(asked: tuple[str, ...], objective: str) -> None:
    lines = [f"step {n}" for n in range(9)]
    assert f"objective: {objective}" in text_of("python train.py --batch-size 10", *lines, asked=asked)


def test_a_script_of_several_lines_stays_whole() -> None:
    written = text_of("python -c 'import a\nprint(1)' --batch-size 8", *(f"step {n}" for n in range(9)))
    command = StudySpec.model_validate(YAML(typ="safe").load(written)).trainer.options["command"]
    assert shlex.split(command)[2] == "import a\nprint(1)"


def test_all_that_is_asked_for_stands_in_the_study() -> None:
    asked = ("num_envs=256..65536", "num-workers=0,2", "prefetch-factor=2,4", "opt=adam,sgd 2")
    spec = study("A=b python train.py --num_envs 256 --name 'it''s'", "rsl_rl.log", asked=asked)
    assert spec.space["num_envs"].ladder == "auto"
    assert (spec.space["num_envs"].min, spec.space["num_envs"].max) == (256, 65536)
    assert spec.space["prefetch_factor"].when["num_workers"].model_dump() == {"min": 1}  # type: ignore[union-attr]
    assert spec.space["opt"].choices == ("adam", "sgd 2")
    assert spec.trainer.options["env"] == {"A": "b"}
    words = shlex.split(spec.trainer.options["command"])
    assert words[-6:] == ["--num-workers", "{num_workers}", "--prefetch-factor", "{prefetch_factor}", "--opt", "{opt}"]


def test_a_flag_without_a_value_is_there_or_not(tmp_path: Path) -> None:
    asked = ("num-workers=0,2", "persistent-workers=true,false")
    spec = study("python train.py --num-workers 0 --persistent-workers", "torchrun.log", asked=asked)
    assert shlex.split(spec.trainer.options["command"])[2:] == [
        "--num-workers",
        "{num_workers}",
        "{flag:persistent-workers}",
    ]
    switch = spec.space["persistent-workers"]
    assert (switch.choices, switch.when["num_workers"].model_dump()) == ((True, False), {"min": 1})  # type: ignore


def test_presets_are_likely_by_what_a_script_imports(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom rsl_rl.runners import OnPolicyRunner\nimport isaaclab.sim\nimport tqdm\n")
    assert imported(["python", str(script)]) == ("isaaclab", "rsl_rl")
    assert imported(["python", "nowhere.py"]) == imported(["./train"]) == ()


def test_a_script_with_bars_of_rich_shows_them_without_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from rich.progress import track\n")
    drafted = draft(["python", str(script), "--batch-size", "8"], devices="cpu:1")
    assert drafted.env == {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}


def test_a_device_that_did_nothing_is_left_out() -> None:
    devices = [Device(name=f"cuda:{index}", model="a card") for index in range(2)]
    idle = tuple(DeviceSample(t_s=t_s, device=1, util_pct=0.0, mem_used_mib=4.0) for t_s in (0.0, 2.0))
    busy = tuple(DeviceSample(t_s=t_s, device=0, util_pct=60.0, mem_used_mib=500 * t_s) for t_s in (0.0, 2.0))
    uses = used(watched("torchrun.log", (), (*busy, *idle)), devices)
    assert [(use.util_pct, use.mem_peak_mib, use.worked) for use in uses] == [(60.0, 1000.0, True), (0.0, 4.0, False)]
    assert narrowed("auto", uses) == "0"
    assert narrowed("auto", uses[:1]) == "auto"
    share = [Used(device=Device(name="cpu:0", model="a CPU"), util_pct=60.0, mem_peak_mib=None, worked=True)]
    assert (narrowed("cpu:1", share, spawned=2), working_ranks("cpu:2", share)) == ("cpu:2", 2)


@pytest.mark.parametrize(
    ("command", "name"), [("python src/my train.py", "train"), ("./run.sh", "run"), ("-- x", "study")]
)
def test_a_study_is_named_after_the_script(command: str, name: str) -> None:
    assert study_name(command.split()) == name


def test_a_command_in_one_word_is_split() -> None:
    assert draft(["python train.py --batch_size 8"], devices="cpu:1").words[-2:] == ("--batch_size", "8")


def test_the_environment_of_a_program_stands_in_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "venv/bin"
    programs.mkdir(parents=True)
    for name in ("python", "torchrun"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert environment("torchrun") == ""
    (tmp_path / "venv/pyvenv.cfg").touch()
    assert environment("torchrun") == str(programs / "python")
    assert environment("./torchrun") == environment("nowhere") == ""
    spec = study("torchrun --nproc-per-node 2 train.py --batch-size 8", "torchrun.log")
    assert spec.trainer.python == str(programs / "python")


@pytest.mark.parametrize(
    ("script", "command", "is_refused"),
    [
        ("python train.py --bs 64", "{script}", True),
        ("python train.py --bs 64", "bash -e {script} 64", True),
        ("python train.py $1", "{script} {{bs}}", False),
        ('python train.py "$@"', "{script}", False),
        ("while [ $# -gt 0 ]; do shift; done", "bash {script}", False),
    ],
)
def test_no_flag_is_added_to_a_shell_script_that_reads_none(
    tmp_path: Path, script: str, command: str, is_refused: bool
) -> None:
    path = tmp_path / "train.sh"
    path.write_text(script)
    words = command.format(script=path).split()
    if is_refused:
        with pytest.raises(StudyError, match=r"train.sh reads no flags, so adding --bs \{bs\} would change nothing"):
            draft(words, ["bs=32,64"], devices="cpu:1")
    else:
        assert draft(words, ["bs=32,64"], devices="cpu:1").searches[0].parameter == "bs"


def test_a_command_is_needed() -> None:
    with pytest.raises(StudyError, match="no command after"):
        draft(["A=1"], devices="cpu:1")


@pytest.mark.parametrize("name", PRESETS)
def test_the_study_of_a_preset_is_accepted(name: str) -> None:
    spec = StudySpec.model_validate(YAML(typ="safe").load(preset_text("made", name)))
    assert split_parameters(open_trainer(spec.trainer), spec.space) == (tuple(spec.space), {})


@given(st.text(), st.text(), st.text(min_size=1))
@example("a\nsearch: {trials: 1}", "b\u2028objective: x", "c\r\nname: d")
def test_what_a_trainer_prints_and_how_its_files_are_called_adds_no_key(line: str, file: str, name: str) -> None:
    drafted = draft(["python", "train.py", "--batch-size", "8", name], (), devices="cpu:2")
    printed = Watched(found=Found(preset=None, patterns=(), reports=STEPS, lines=()), samples=(), seconds=1.0)
    for found in (
        replace(printed.found, preset=None, patterns=("a",), lines=(line,)),
        replace(
            printed.found,
            preset=None,
            patterns=(),
            file=ProgressFile(folder=Path(), pattern=file, format="csv", columns={"iteration": line}),
        ),
    ):
        text = study_text(name, drafted, replace(printed, found=found), "cpu:2", USES)
        made = YAML(typ="safe").load(text)
        assert list(made) == ["name", "trainer", "devices", "objective", "space", "probe", "search"]
        assert made["name"] == name
        assert made["search"] == {"trials": 24}
        if found.file:
            assert made["trainer"]["options"]["progress_file"]["path"] == f"{{out_dir}}/{file}"


@pytest.mark.parametrize(
    ("samples", "line", "is_refuted"),
    [
        ("{batch_size} * {grad_accum} * {ranks}", "tokens per iteration will be: 2,048", False),
        ("{batch_size} * {grad_accum} * {ranks} * 3", "tokens per iteration will be: 2,048", True),
        ("{batch_size} * {ranks} * 3", "  Total train batch size (w. parallel, distributed & accumulation) = 64", True),
        ("{batch_size} * {ranks}", "  Total train batch size (w. parallel, distributed & accumulation) = 64", False),
        ("{batch_size} * {grad_accum} * {ranks}", "  Total train batch size (w. parallel) = 64", False),
        ("{batch_size} * 16", "effective batch size: 64", True),
        ("{batch_size}", "samples per second: 31; loss 0.1", False),
    ],
)
def test_an_answer_is_checked_against_printed_totals(samples: str, line: str, is_refuted: bool) -> None:
    drafted = draft(["train.py", "--batch-size", "8", "--grad-accum", "4"], devices="cpu:2")
    steps = [f"step {n}" for n in range(9)]
    found = find_progress([OutputLine(t_s=float(place), text=text) for place, text in enumerate([line, *steps])])
    assert found is not None
    fact = against(drafted, found, samples, 2)
    assert ("2048" in fact or "64" in fact) is is_refuted, fact


@pytest.mark.parametrize(
    ("form", "batch", "choices"),
    [
        ("iter {n}/900 samples {m} loss 0.{n}{rank}", "--batch-size 10", ["{batch_size} * 2", "{batch_size}"]),
        ("iter {n}/900 samples {m} loss 0.{n}{rank}", "", ["10 * 2", "10"]),
        ("iter {n}/900 loss 0.{n}{rank}", "--batch-size 10", ["{batch_size} * 2", "{batch_size}", "1"]),
        ("iter {n}/900 samples {m} loss 0.{n}", "--batch-size 10", []),
        ("iter {n}/900 samples {m} loss 0.{n}{rank}", "--batch-size 5", []),
    ],
    ids=["one batch", "no batch", "no samples", "twice the same line", "batches of both"],
)
def test_ranks_that_print_equal_counts_with_other_numbers_are_a_question(
    form: str, batch: str, choices: list[str]
) -> None:
    drafted = draft(["train.py", "--num-workers", "2", *batch.split()], devices="cpu:1")
    texts = [form.format(n=n, m=10 * n, rank=rank) for n in range(1, 9) for rank in range(2)]
    found = find_progress([OutputLine(t_s=float(place // 2), text=text) for place, text in enumerate(texts)])
    assert found is not None
    assert [count for _, count in sample_choices(drafted, found, 1)] == choices
    if "samples" in form:
        text = study_text("made", drafted, Watched(found=found, samples=(), seconds=9.0), "cpu:1", USES)
        assert ("Are they of one rank, or of all 2?" in text) is ("(?P<samples>" not in text) is bool(choices)


@pytest.mark.parametrize("form", ["episode {n} return {n}.5", "episode {n} step {n} return {n}.5"])
def test_episodes_alone_compare_no_speeds(form: str) -> None:
    drafted = draft(["train.py", "--num-envs", "8", "--num-workers", "2"], devices="cpu:1")
    found = find_progress([OutputLine(t_s=float(n), text=form.format(n=n)) for n in range(9)])
    assert found is not None
    is_doubted = "step" not in form
    assert ("episodes differ in length" in samples_said(drafted, found, 1)) is is_doubted
    assert (not sample_choices(drafted, found, 1)) is is_doubted
    text = study_text("made", drafted, Watched(found=found, samples=(), seconds=9.0), "cpu:1", USES)
    assert ("min_avg_util" in text) is is_doubted


def test_a_rounded_count_that_stays_for_some_lines_shows_no_ranks() -> None:
    texts = [f"it {1 + n // 5}.0k/500k loss 0.{n}" for n in range(40)]
    found = find_progress([OutputLine(t_s=float(n), text=text) for n, text in enumerate(texts)])
    assert found is not None
    assert found.voices == 1
