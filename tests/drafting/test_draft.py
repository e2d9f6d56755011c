"""From a command that was watched to the text of its study, without a run."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from tests_counts import COUNTED_TRAINING

from tuner.count import Flag
from tuner.count.signature import Shares
from tuner.drafting.asking import flags_to_search
from tuner.drafting.command_template import command_with_values
from tuner.drafting.draft import Draft, draft, environment_python, growth_limit, with_searches
from tuner.drafting.printed import PrintedLines, PrintedProgress
from tuner.drafting.run_flags import known_of, launch_of_script, with_larger_values
from tuner.drafting.searches import Known
from tuner.drafting.watching import DeviceUse, Watched, device_uses, devices_of
from tuner.drafting.writing import samples_in_words, study_text
from tuner.errors import StudyError
from tuner.probe.output import LineSplitter
from tuner.probe.probe_plan import Device, OutputLine
from tuner.probe.result import DeviceSample, Progress
from tuner.study import launches, load
from tuner.study.spec import StudySpec
from tuner.trainers.registry import declined_parameters, open_trainer
from tuner.trainers.typed_command import typed_command

DATA = Path(__file__).parents[1] / "data/progress"
EXAMPLES = Path(__file__).parents[2] / "examples"
USES = [DeviceUse(device=Device(name="cpu:0", model="a CPU"), util_pct=51.0, mem_peak_mib=300.0, worked=True)]
STEPS = tuple(Progress(iteration=number, t_s=float(number)) for number in range(3))
TRAINING = replace(COUNTED_TRAINING, ranks=2, data_ranks=2)
COUNTED = Watched(training=TRAINING, reports=STEPS, seconds=9.0)


def printed(texts: Sequence[str], likely: Sequence[str] = ()) -> Watched:
    """Return what is known of a command that printed these lines, one a second."""
    lines = PrintedLines(likely)
    lines.feed(OutputLine(t_s=float(place), text=text) for place, text in enumerate(texts))
    assert lines.progress is not None
    return Watched(printed=lines.progress, why_uncounted="no torch", reports=lines.progress.reports, seconds=30.0)


def drafted(
    command: str | Sequence[str],
    watched: Watched,
    asked: Sequence[str] = (),
    *,
    devices: str = "cpu:2",
    free_batch: bool = False,
) -> Draft:
    """Return a command with the flags that are searched."""
    words = shlex.split(command) if isinstance(command, str) else command
    found = draft(typed_command(words), devices=devices)
    known = known_of(found, replace(watched, uses=tuple(USES)), free_batch=free_batch)
    return with_searches(found, flags_to_search(known, asked), known)


def text_of(command: str, watched: Watched, asked: Sequence[str] = ()) -> str:
    """Return the text of the study that is written."""
    return study_text("made", drafted(command, watched, asked), replace(watched, uses=tuple(USES), devices="cpu:2"))


def study(command: str, watched: Watched, asked: Sequence[str] = ()) -> StudySpec:
    """Return the study that is written, as it is read."""
    spec = StudySpec.model_validate(YAML(typ="safe").load(text_of(command, watched, asked)))
    assert declined_parameters(open_trainer(spec.trainer), spec.space) == {}
    return spec


def test_what_is_counted_inside_needs_no_printed_line() -> None:
    spec = study("python train.py --batch-size 8 --workers 2", COUNTED)
    assert (spec.objective, spec.trainer.options["count"]) == ("samples_per_s", "inside")
    assert spec.trainer.options["keeps"] == ["batch", "sample", "model", "optimizer", "precision", "loss"]
    assert not spec.trainer.options.keys() & {"progress", "samples_per_iteration"}
    said = text_of("python train.py --batch-size 8 --workers 2", COUNTED, ("batch-size=8", "workers=2"))
    assert "32 in each optimizer step on 2 of 2 ranks, counted inside the training" in said
    assert ["# kept" in line for line in said.splitlines() if "choices" in line] == [True, False]


@pytest.mark.parametrize(
    ("asked", "varies"), [(["batch-size=8,16"], True), (["batch-size=8,16", "lr=1,2"], True), (["lr=1,2"], False)]
)
def test_a_batch_may_vary_that_a_person_has_named(asked: Sequence[str], varies: bool) -> None:
    keeps = study("python train.py --batch-size 8 --lr 1", COUNTED, asked).trainer.options["keeps"]
    assert isinstance(keeps, list)
    assert ("batch" not in keeps) is varies


def test_a_named_batch_keeps_the_total_where_another_flag_accumulates() -> None:
    spec = study("python train.py --batch-size 8 --grad-accum-steps 4", COUNTED, ["batch-size=8,16"])
    keeps = spec.trainer.options["keeps"]
    assert isinstance(keeps, list)
    assert "batch" in keeps


def test_steps_of_environments_are_not_told_as_samples_of_an_optimizer_step() -> None:
    rollouts = replace(COUNTED, training=replace(TRAINING, witness="environments"))
    text = text_of("python ppo.py --num-envs 8", rollouts)
    assert "samples: steps of environments, counted inside the training; an optimizer step takes 32 samples" in text


def lines_of(file: str) -> list[str]:
    return LineSplitter().feed((DATA / file).read_bytes())


@pytest.mark.parametrize(
    ("command", "file", "progress"),
    [
        ("python {}/lightning_ddp.py --batch-size 8", "lightning.log", "lightning"),
        ("python {}/sb3_ppo.py --n-envs 8", "sb3.log", "sb3"),
        ("python elsewhere.py --batch-size 8 --workers 0", "skrl.log", "tqdm"),
    ],
)
def test_a_preset_is_known_by_its_lines_and_by_what_a_script_imports(command: str, file: str, progress: str) -> None:
    words = command.format(EXAMPLES)
    spec = study(words, printed(lines_of(file), typed_command(words.split()).presets))
    assert spec.trainer.options["progress"] == progress
    assert spec.trainer.options["count"] == "printed"
    assert (spec.objective == "samples_per_s") is (progress == "sb3")


PLAIN = printed([f"step {n} loss 0.{n} samples {64 * n}" for n in range(9)])


@pytest.mark.parametrize(
    ("asked", "objective"),
    [
        (("workers=0,2", "compile=True,False", "opt=adam,sgd", "nthread=1,2"), "iterations_per_s"),
        (("workers=0,2", "batch-size=10,20"), "min_avg_util"),
        (("width=64,128",), "min_avg_util"),
    ],
)
def test_without_samples_iterations_compare_what_changes_no_iteration(asked: tuple[str, ...], objective: str) -> None:
    command = "python train.py --batch-size 10"
    assert study(command, PLAIN, asked).objective == objective
    assert "Samples are unknown" in text_of(command, PLAIN, asked)


def test_counts_in_doubt_compare_nothing() -> None:
    watched = printed([f"step {n % 10}" for n in range(30)])
    text = text_of("python train.py --batch-size 10", watched, ("workers=0,2",))
    assert "# Samples are unknown: the count fell from 9 to 0." in text
    assert "objective: min_avg_util  # samples_per_s, if they are counted; iterations_per_s, if" in text


@pytest.mark.parametrize(("watched", "said"), [(PLAIN, "unknown"), (printed(lines_of("sb3.log")), "6144 in all")])
def test_what_is_known_of_printed_samples_is_said(watched: Watched, said: str) -> None:
    assert watched.printed
    assert said in samples_in_words(watched.printed)


def test_what_a_trainer_reports_by_itself_needs_no_pattern() -> None:
    reported = Watched(printed=PrintedProgress(reports=STEPS), reports=STEPS)
    assert "progress" not in study("train.py --batch-size 8", reported, ("batch-size=8,16",)).trainer.options


@pytest.mark.parametrize(
    ("busy", "total", "largest", "waits"),
    [(20.0, None, 64, True), (90.0, None, 64, False), (90.0, 8000.0, 128, False)],
)
def test_sizes_follow_from_memory_and_workers_from_waiting(
    busy: float, total: float | None, largest: int, waits: bool
) -> None:
    command = ["train.py", "--batch-size", "8", "--workers", "2"]
    found = drafted(command, COUNTED, free_batch=True)
    device = Device(name="cuda:0", model="a card", uuid="GPU-1", mem_total_mib=total)
    uses = [DeviceUse(device=device, util_pct=busy, mem_peak_mib=1000.0, worked=True)]
    batch, workers = sorted(with_larger_values(found.searches, uses), key=lambda one: one.parameter)
    assert batch.values == tuple(4 << power for power in range(int(math.log2(largest // 4)) + 1))
    assert (workers.values != found.searches[1].values) is waits
    named = drafted(command, COUNTED, ["batch-size=8,16", "workers=0,2"])
    assert {*with_larger_values(named.searches, uses)} == {*named.searches}
    last = drafted(command, COUNTED, ["compile=True,False", "workers=0,2"])
    assert with_larger_values(last.searches, uses)[0].parameter == ("workers" if waits else "compile")


def test_many_more_workers_than_cores_are_only_tried_where_a_person_names_them() -> None:
    for cores, typed, largest, limit in [(1, 0, 8, None), (2, 0, 8, 16), (16, 4, 64, None), (2, 40, 40, None)]:
        known = Known(words=["train.py", "--workers", str(typed)], cores=cores)
        idle = [use._replace(util_pct=5.0) for use in USES]
        (workers,) = with_larger_values(flags_to_search(known), idle)
        assert (max(workers.values), growth_limit(workers)) == (largest, limit)


def test_ranges_that_no_person_has_chosen_may_grow() -> None:
    own = drafted("train.py --batch-size 8 --num-workers 2", COUNTED, free_batch=True).space()
    assert {name: values.get("grow") for name, values in own.items()} == {
        name: 4 * max(values["choices"]) for name, values in own.items()
    }
    named = drafted("train.py --batch-size 8 --num-workers 2", COUNTED, ["num-workers=0,2,4"]).space()
    assert "grow" not in named["num_workers"]


def test_a_script_of_several_lines_stays_whole() -> None:
    written = text_of("python -c 'import a\nprint(1)' --batch-size 8 --workers 0", PLAIN)
    command = StudySpec.model_validate(YAML(typ="safe").load(written)).trainer.options["command"]
    assert shlex.split(command)[2] == "import a\nprint(1)"


def test_all_that_is_asked_for_stands_in_the_study() -> None:
    asked = ("num_envs=512..65536", "num-workers=0,2", "prefetch-factor=2,4", "opt=adam,sgd 2")
    spec = study("A=b python train.py --num_envs 256 --name 'it''s'", COUNTED, asked)
    assert spec.space["num_envs"].ladder == "auto"
    envs = spec.space["num_envs"]
    assert (envs.min, envs.max, envs.own) == (256, 65536, 256)  # the typed number is probed, too
    assert spec.space["prefetch_factor"].when["num_workers"].model_dump() == {"min": 1}  # type: ignore[union-attr]
    assert spec.space["opt"].choices == ("adam", "sgd 2")
    assert spec.trainer.options["env"] == {"A": "b"}
    words = shlex.split(spec.trainer.options["command"])
    assert words[-6:] == ["--num-workers", "{num_workers}", "--prefetch-factor", "{prefetch_factor}", "--opt", "{opt}"]


def test_a_flag_without_a_value_is_there_or_not() -> None:
    asked = ("num-workers=0,2", "persistent-workers=true,false")
    spec = study("python train.py --num-workers 0 --persistent-workers", COUNTED, asked)
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
    assert typed_command(["python", str(script)]).presets == ("isaaclab", "rsl_rl")
    assert typed_command(["python", "nowhere.py"]).presets == typed_command(["./train"]).presets == ()


def test_a_parser_with_the_flags_of_a_launch_gets_its_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = "torchrun pretrain_gpt.py --num-workers 2 --global-batch-size 64 --micro-batch-size 2"
    flags = tuple(Flag(names=(name,)) for name in launches()["megatron"].typical_flags)
    known = Known(words=command.split(), cores=4, flags=flags)
    assert launch_of_script(known) == "megatron"
    with_equals = [f"--{name}=1" for name in (*launches()["megatron"].typical_flags, "global-batch-size")]
    assert launch_of_script(Known(words=["torchrun", "pretrain_gpt.py", *with_equals], cores=4)) == "megatron"
    known = replace(known, launch=launch_of_script(known))
    found = with_searches(draft(typed_command(command.split()), devices="cpu:2"), flags_to_search(known), known)
    assert [search.parameter for search in found.searched] == ["num_workers"]
    watched = replace(COUNTED, uses=tuple(USES), devices="cpu:2")
    Path("made.yaml").write_text(study_text("made", found, watched, launch=known.launch))
    spec = load("made.yaml")
    assert spec.space["micro_batch_size"].choices == (2, 1, 4, 8, 16, 32, 64)
    assert {"num_workers", "tensor_model_parallel_size"} <= spec.space.keys()
    lone = Known(words=["pretrain_gpt.py"], cores=4, flags=flags)
    assert flags_to_search(replace(lone, launch="megatron")) == ()  # nothing else needs to vary


def test_a_device_that_did_nothing_is_left_out() -> None:
    devices = [Device(name=f"cuda:{index}", model="a card") for index in range(2)]
    idle = tuple(DeviceSample(t_s=t_s, device=1, util_pct=0.0, mem_used_mib=4.0) for t_s in (0.0, 2.0))
    busy = tuple(DeviceSample(t_s=t_s, device=0, util_pct=60.0, mem_used_mib=500 * t_s) for t_s in (0.0, 2.0))
    uses = device_uses(STEPS, (*busy, *idle), devices)
    assert [(use.util_pct, use.mem_peak_mib, use.worked) for use in uses] == [(60.0, 1000.0, True), (0.0, 4.0, False)]
    assert (devices_of("auto", None, uses), devices_of("auto", 2, uses[:1])) == ("0", "auto")
    assert (devices_of("cpu:1", 2, USES), devices_of("cpu:1", None, USES)) == ("cpu:2", "cpu:1")


@pytest.mark.parametrize("others_pct", [None, 2.0, 60.0])
def test_a_short_wait_for_data_beside_other_programs_is_not_believed(others_pct: float | None) -> None:
    samples = [DeviceSample(t_s=t_s, device=0, others_pct=others_pct) for t_s in (0.0, 2.0)]
    uses = tuple(device_uses(STEPS, samples, [Device(name="cpu:0", model="a CPU")]))
    training = replace(TRAINING, shares=Shares(data=0.0, evaluation=0.0, saves=0.0), passes=0)
    known = known_of(draft(typed_command(["train.py"]), devices="cpu:1"), Watched(training=training, uses=uses))
    assert known.waits_for_data is (others_pct == 60.0)


@pytest.mark.parametrize(
    ("command", "name"), [("python src/my train.py", "train"), ("./run.sh", "run"), ("-- x", "study")]
)
def test_a_study_is_named_after_the_script(command: str, name: str) -> None:
    assert typed_command(command.split()).name == name


def test_a_command_in_one_word_is_split() -> None:
    assert typed_command(["python train.py --batch_size 8"]).words[-2:] == ("--batch_size", "8")


def test_the_environment_of_a_program_stands_in_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "venv/bin"
    programs.mkdir(parents=True)
    for name in ("python", "torchrun"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert environment_python("torchrun") == ""
    (tmp_path / "venv/pyvenv.cfg").touch()
    assert environment_python("torchrun") == str(programs / "python")
    assert environment_python("./torchrun") == environment_python("nowhere") == ""
    spec = study("torchrun --nproc-per-node 2 train.py --batch-size 8 --workers 0", COUNTED)
    assert spec.trainer.python == str(programs / "python")


@pytest.mark.parametrize(
    ("script", "command", "is_refused"),
    [
        ("python train.py --bs 64", "{script}", True),
        ("python train.py --bs 64", "bash -e {script} 64", True),
        ("python train.py --bs 64", "bash -ec '{text} | tee log'", True),
        ("python train.py --bs 64", "bash -euo pipefail -c '{text} | tee log'", True),
        ("python train.py", "bash -c '{text} \"$@\"' train", False),
        ("", "make train", True),
        ("", "env A=1 -u HOME nice -n 10 gmake train", True),
        ("", "timeout -s KILL 10m nohup taskset 0x3 make -s train", True),
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
    words = shlex.split(command.format(script=path, text=script))
    if is_refused:
        with pytest.raises(StudyError, match=r"reads no flags, so adding --bs \{bs\} would change nothing"):
            drafted(words, PLAIN, ["bs=32,64"])
    else:
        assert drafted(words, PLAIN, ["bs=32,64"]).searches[0].parameter == "bs"


@pytest.mark.parametrize(("first_s", "silence_s"), [(9, 120), (40, 200), (90, 300)])
def test_a_start_hangs_that_is_silent_for_longer_than_the_watched_start_explains(
    first_s: float, silence_s: float
) -> None:
    reports = tuple(replace(report, t_s=report.t_s + first_s) for report in STEPS)
    watched = replace(COUNTED, reports=reports)
    assert study("python train.py --workers 2", watched).probe.start_up_silence_seconds == silence_s
    compiled = replace(watched, training=replace(TRAINING, compiled=True))
    for may_compile in (  # its start may take far longer
        study("python train.py --workers 2", compiled),
        study("python train.py --workers 2 --compile", watched),
        study("python train.py --workers 2", watched, ["compile=true,false", "workers=0"]),
        study("python train.py --workers 2", replace(PLAIN, reports=reports)),
    ):
        assert may_compile.probe.start_up_silence_seconds == 300


def test_a_command_is_needed() -> None:
    with pytest.raises(StudyError, match="no command after"):
        typed_command(["A=1"])


@settings(max_examples=25)
@given(st.text(), st.text(), st.text(min_size=1))
@example("a\nsearch: {trials: 1}", "b\u2028objective: x", "c\r\nname: d")
def test_what_a_trainer_prints_and_says_adds_no_key(line: str, why: str, name: str) -> None:
    found = drafted(["python", "train.py", "--batch-size", "8", name], PLAIN, ("batch-size=8,16",))
    read = PrintedProgress(patterns=("a",), reports=STEPS, lines=(line,), contradiction=why)
    watched = replace(PLAIN, printed=read, why_uncounted=why, uses=tuple(USES), devices="cpu:2")
    text = study_text(name, found, watched)
    made = YAML(typ="safe").load(text)
    assert list(made) == ["name", "trainer", "devices", "objective", "space", "probe", "search"]
    assert made["name"] == name
    assert made["search"] == {"trials": 24}


def test_a_config_file_replaces_the_options_before_it_as_the_script_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("batch_size = 4\nlr = 1e-3\nsteps = 5 * 8\nexec(open('configurator.py').read())\n")
    Path("big.py").write_text("batch_size = 64\nunknown = 1\n")
    command = typed_command(["python", "train.py", "--batch_size=8", "big.py", "--lr=0.1"])
    flags = known_of(draft(command, devices="cpu:1"), COUNTED).flags
    assert {flag.parameter: (flag.value, flag.typed) for flag in flags} == {
        "batch_size": ("64", False),
        "lr": ("0.1", True),
        "steps": ("40", False),
    }
    for line in ("python train.py --batch_size=8 big.py", "python train.py big.py"):
        made = drafted(line, COUNTED, ("batch_size=64,128",))
        words = shlex.split(line)
        assert list(made.template.words) == [*words, "--batch_size={batch_size}"]
        assert (made.searched[0].values, made.unset) == ((64, 128), {"batch_size": 64})
        copied = command_with_values(words, made.template.words, {"batch_size": 128}, {"batch_size": 64}, {})
        assert copied == (*words, "--batch_size=128")
