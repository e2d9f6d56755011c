"""The commands with a tiny real trainer."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests_cli import Tuner, study_file
from typer.main import get_command

from tuner import __version__
from tuner.cli.main import app
from tuner.devices.cpu import usable_cores
from tuner.study.study_file import load


def test_optimize_resumes_and_then_has_nothing_left_to_do(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path)
    code, out, err = tuner("optimize", "--study", study, "--n-trials", 1)
    assert (code, err) == (0, "")
    assert "0 of 1 trials done" in out
    code, out, _ = tuner("optimize", "--study", study, "--n-trials", 2)
    assert code == 0
    assert "1 of 2 trials done" in out
    code, out, _ = tuner("optimize", "--study", study, "--n-trials", 2)
    assert (code, "nothing left to do; 0 trials" in out) == (0, True)
    best = (tmp_path / "runs/demo/best_by_case.tsv").read_text().splitlines()
    assert best[0].startswith("case\tmethod\tstatus\tvariant\tnum_envs")
    assert best[1].startswith("walk\twalk\tok\t\t16\t")


def test_a_study_without_time_left_starts_nothing_and_loses_nothing(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path)
    code, out, _ = tuner("optimize", "--study", study, "--hours", 0)
    assert (code, out.splitlines()[-1]) == (0, "the 0.0 s of --hours are over; rerun to resume")
    tuner("optimize", "--study", study, "--n-trials", 1)
    before = tuner("status", "--study", study)[1]
    code, out, _ = tuner("optimize", "--study", study, "--hours", 0, "--quiet")
    assert (code, "the 0.0 s of --hours are over" in out) == (0, True)
    assert tuner("status", "--study", study)[1] == before


def test_a_study_in_which_nothing_runs_ends_in_exit_code_1(tuner: Tuner, tmp_path: Path) -> None:
    command = "sh -c 'echo torch.OutOfMemoryError: CUDA out of memory. {num_envs}; exit 1'"
    full = study_file(tmp_path, trainer={"name": "command", "options": {"command": command, "cases": ["run", "walk"]}})
    (tmp_path / "runs/demo/report.html/in the way").mkdir(parents=True)
    code, out, err = tuner("optimize", "--study", full)
    assert (code, err) == (1, "")
    assert "no report: cannot write " in out
    assert "walk: no config has run (gpu_oom); `tuner recover` searches for a config that runs\n" in out
    code, out, _ = tuner("optimize", "--study", full)
    assert (code, "nothing left to do" in out) == (1, True)
    assert tuner("recover", "--study", full)[0] == 1
    assert tuner("status", "--study", full)[0] == 0


def test_how_many_cases_are_done_is_no_part_of_the_quiet_output(tuner: Tuner, tmp_path: Path) -> None:
    options = {"command": "sh -c 'echo torch.OutOfMemoryError: CUDA out of memory. {num_envs}; exit 1'"}
    trainer = {"name": "command", "options": {**options, "cases": ["run", "walk"]}}
    study = study_file(tmp_path, trainer=trainer, cases=["run", "walk"], space={"num_envs": {"ladder": [8]}})
    assert "2 of 2 cases are done" in tuner("optimize", "--study", study)[1]
    code, out, err = tuner("optimize", "--study", study, "--quiet")
    assert (code, err, "walk" in out, "are done" in out) == (1, "", True, False)


def test_constraints_are_shown_and_kept(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, constraints={"samples_per_s": ">=0.5 * default", "min_avg_util": "<= 6"})
    code, out, _ = tuner("optimize", "--study", study, "--n-trials", 2)
    assert code == 0
    assert "the best must keep samples_per_s >= 0.5 * default\n" in out
    assert "samples/s; not eligible as best, min_avg_util is " in out
    best = (tmp_path / "runs/demo/best_by_case.tsv").read_text().splitlines()
    assert best[1].startswith("walk\twalk\tok\t\t8\t")


def test_a_pareto_study_shows_and_writes_its_front(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, objective="samples_per_s,util", space={"num_envs": {"ladder": [8]}})
    code, out, _ = tuner("optimize", "--study", study, "--n-trials", 1)
    assert code == 0
    assert "a trial's value is samples/s and min_avg_util\nd" in out
    assert "the best are a Pareto front, and no probe is pruned\n" in out
    assert "walk: Pareto front" in out
    shown = tuner("status", "--study", study)[1]
    assert "walk: Pareto front" in shown
    assert "headroom %" in shown
    assert "tuner plan --study" in shown
    assert "changes learning" not in shown  # no parameter of this space changes what is learnt
    header, row = (tmp_path / "runs/demo/pareto.tsv").read_text().splitlines()
    assert header.startswith("case\tmethod\ttrial\tnum_envs\tsamples_per_s\tsamples_per_s_se\tmin_avg_util\t")
    assert row.startswith("walk\twalk\t0\t8\t")
    code, _, err = tuner("optimize", "--study", study_file(tmp_path, space={"num_envs": {"ladder": [8]}}))
    assert (code, "objective: was 'samples_per_s,min_avg_util', is 'min_avg_util'" in err) == (2, True)


def test_status_says_why_a_case_ended_by_itself(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, search={"sampler": "random"})
    tuner("optimize", "--study", study, "--n-trials", 1)
    shown = tuner("status", "--study", study_file(tmp_path, search={"sampler": "random"}, cases=["run"]))[1]
    assert "walk: nothing left" not in shown
    assert "  the study file no longer selects it: only `--cases walk` resumes it\n" in shown
    study = study_file(tmp_path, search={"sampler": "random"})
    tuner("optimize", "--study", study, "--n-trials", 9)
    why = "  no further probe pays: every config has been probed or cannot fit"
    shown = tuner("status", "--study", study)[1].splitlines()
    assert shown.index("walk:") < shown.index(why)


def test_status_and_export_read_what_optimize_wrote(tuner: Tuner, tmp_path: Path) -> None:
    long = {"iterations": 4, "window_seconds": 0.4}  # several readings of the devices
    overrides = [{"match": {"device": "cpu"}, "search": {"sampler": "random"}}]
    study = study_file(tmp_path, probe=long, overrides=overrides)
    assert "report: runs/demo/report.html" in tuner("optimize", "--study", study, "--n-trials", 1)[1]
    page = (tmp_path / "runs/demo/report.html").read_text(encoding="utf-8")
    assert "The best&#39;s probe over time" in page  # drawn from the probe's own devices.csv
    assert f"<li>cores: {usable_cores()}</li>" in page
    assert "1 of 1 trainable case has a best config." in page
    said = tuner("diagnose", "--study", study)[1]
    assert ("duty of the ranks" in said, "--gpu" in said) == (True, False)  # two CPU ranks
    assert re.search(rf"^  cores +{usable_cores()} *$", said, re.MULTILINE)
    (tmp_path / "runs/demo/trials.tsv").unlink()
    code, out, _ = tuner("status", "--study", study)
    assert (code, "walk" in out) == (0, True)
    code, out, _ = tuner("export", "--study", study)
    assert (code, "runs/demo/trials.tsv" in out) == (0, True)
    assert (tmp_path / "runs/demo/trials.tsv").exists()


def test_a_folder_may_have_any_name(tuner: Tuner, tmp_path: Path) -> None:
    runs, study = tmp_path / "why? 100% #1", study_file(tmp_path)
    assert tuner("optimize", "--study", study, "--n-trials", 1, "--runs", runs)[0] == 0
    assert (runs / "demo/study.db").is_file()
    assert "ok" in tuner("status", "--study", study, "--runs", runs)[1]


def logs(runs: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in (runs / "demo/probes/walk").glob("*/console.log")}


def test_two_databases_share_a_runs_folder_and_lose_no_probe_s_files(tuner: Tuner, tmp_path: Path) -> None:
    study, elsewhere = study_file(tmp_path), f"sqlite:///{tmp_path / 'other.db'}"
    tuner("optimize", "--study", study, "--n-trials", 1)
    before = logs(tmp_path / "runs")
    assert before.keys() == {"0000"}
    assert tuner("optimize", "--study", study, "--n-trials", 2, "--storage", elsewhere)[0] == 0
    assert tuner("optimize", "--study", study, "--n-trials", 2)[0] == 0
    after = logs(tmp_path / "runs")
    assert after.keys() == {"0000", "0000-2", "0001", "0001-2"}
    assert after["0000"] == before["0000"]
    tuner("export", "--study", study, "--storage", elsewhere)
    assert "\tprobes/walk/0000-2\t" in (tmp_path / "runs/demo/trials.tsv").read_text()


def test_a_plan_run_by_hand_trains(tuner: Tuner, tmp_path: Path) -> None:
    program = tmp_path / "an env/torchwalk"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho training $1 > $2/done\n")
    program.chmod(0o755)
    program.with_name("python").symlink_to(sys.executable)
    options = {"command": "torchwalk {num_envs} {out_dir}", "cases": ["walk"]}
    trainer = {"name": "command", "python": str(program.with_name("python")), "options": options}
    study = study_file(tmp_path, trainer=trainer)
    code, script, _ = tuner("plan", "--study", study, "--set", "num_envs=8")
    assert code == 0
    assert not (tmp_path / "runs").exists()
    subprocess.run(["/bin/bash", "-eu"], input=script, text=True, check=True)
    assert (tmp_path / "runs/demo/plans/walk/done").read_text() == "training 8\n"


def test_a_plan_takes_booleans_fractions_and_dotted_names(tuner: Tuner, tmp_path: Path) -> None:
    options = {"command": "true {flag:headless} env.n={env.n} --lr {lr}", "cases": ["walk"]}
    rates = {"range": [0.0001, 0.01], "log": True, "step": 10}
    space = {"headless": {"choices": [False, True]}, "env.n": {"choices": [4, 8]}, "lr": rates}
    study = study_file(tmp_path, trainer={"name": "command", "options": options}, space=space)
    code, script, _ = tuner("plan", "--study", study, "--set", "headless=True", "--set", "env.n=8", "--set", "lr=1e-3")
    assert (code, "true --headless env.n=8 --lr 0.001\n" in script) == (0, True)
    assert '# walk: {"env.n": 8, "headless": true, "lr": 0.001}' in script
    assert "true env.n=4 --lr 0.0001\n" in tuner("plan", "--study", study)[1]
    code, _, err = tuner("plan", "--study", study, "--set", "headless=maybe")
    assert (code, "headless must be one of: false, true" in err) == (2, True)


def test_a_plan_is_the_first_probe_also_where_the_database_is_still_empty(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path)
    script = tuner("plan", "--study", study)
    (tmp_path / "runs/demo").mkdir(parents=True)
    (tmp_path / "runs/demo/study.db").touch()
    assert script[0] == 0
    assert tuner("plan", "--study", study) == script
    code, _, err = tuner("plan", "--study", study, "--best")
    assert (code, "study.db holds no study yet" in err) == (2, True)


def test_a_plan_and_a_run_say_which_rungs_the_trainer_cannot_run(tuner: Tuner, tmp_path: Path) -> None:
    root = Path(__file__).parents[1] / "data" / "mimickit"
    changes = {"trainer": {"name": "mimickit", "root": str(root)}, "cases": ["amp_toy"]}
    study = study_file(tmp_path, **changes, space={"num_envs": {"ladder": [64, 8192]}})
    said = "amp_toy: num_envs up to 6250: data/agents/joint_agent.yaml keeps disc_buffer_size 200000 samples"
    code, out, _ = tuner("plan", "--study", study)
    assert (code, f"# {said}" in out, '# amp_toy: {"num_envs": 64}\n' in out) == (0, True, True)
    code, _, err = tuner("optimize", "--study", study_file(tmp_path, **changes, space={"num_envs": {"ladder": [8192]}}))
    assert (code, "no rung is left for amp_toy: the smallest is 8192" in err, said[-60:] in err) == (2, True, True)
    assert not (tmp_path / "runs/demo/best_by_case.tsv").exists()


def test_cases_marks_those_the_study_asks_for(tuner: Tuner, tmp_path: Path) -> None:
    code, out, _ = tuner("cases", "--study", study_file(tmp_path))
    assert code == 0
    marked = [line for line in out.splitlines() if "*" in line]
    assert len(marked) == 1
    assert "walk" in marked[0]


def test_a_broken_case_is_listed_beside_the_scripts_and_marks_of_the_others(tuner: Tuner, tmp_path: Path) -> None:
    root = Path(__file__).parents[1] / "data/mimickit"
    trainer = {"name": "mimickit", "root": str(root)}
    study = study_file(tmp_path, trainer=trainer, cases=["*"], devices="cpu:2", space={"num_envs": {"ladder": [8]}})
    code, out, _ = tuner("cases", "--study", study)
    marks = {words[1]: words[0] for line in out.splitlines() if len(words := line.strip("│ ").split("│")[:2]) == 2}
    assert code == 0
    assert {name.strip(): mark.strip() for name, mark in marks.items()}.items() >= {
        ("add_lost", "broken"),
        ("amp_toy", "*"),
        ("dof_toy", "not trainable"),
    }
    assert "lost_agent.yaml" in out
    assert "dof_toy cannot run: args/dof_toy_args.txt names no agent_config" in out
    assert "problem  case: add_lost: " in tuner("doctor", "--study", study)[1]
    code, out, err = tuner("plan", "--study", study, "--cases", "add_lost_args.txt,amp_toy_args.txt")
    assert (code, "# amp_toy: {" in out, "# add_lost" in out) == (2, True, False)
    assert "add_lost" in err
    assert "lost_agent.yaml" in err


def test_the_version_is_shown_without_a_command(tuner: Tuner) -> None:
    assert tuner("--version") == (0, f"tuner {__version__}\n", "")


def test_schema_is_json_schema_in_any_width(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    code, out, _ = tuner("schema")
    assert code == 0
    assert json.loads(out)["properties"]["name"]


def test_the_cases_of_a_study_without_a_root_are_those_of_its_fallback(tuner: Tuner) -> None:
    code, out, _ = tuner("cases", "--study", "pi_plus")
    assert code == 0
    assert "deepmimic_pi_plus_ppo" in out


def test_a_study_without_a_root_says_what_stands_in(tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    study_file(tmp_path).rename(tmp_path / "studies/demo.yaml")
    real = "trainer: {name: mimickit}\nfallback: demo\nspace: {num_envs: {ladder: [8]}}\n"
    (tmp_path / "studies/real.yaml").write_text(real)
    once = ("--n-trials", 1)
    for command in (("optimize", *once), ("status",), ("export",), ("cases",), ("plan",)):
        assert "its fallback demo stands in" in tuner(*command, "--study", "real")[1]
        assert "stands in" not in tuner(*command, "--study", "demo")[1]
    assert "its fallback demo stands in" in tuner("status", "--study", "studies/real.yaml")[1]


def test_parameters_that_the_trainer_cannot_vary_are_named(tuner: Tuner, tmp_path: Path) -> None:
    space = {"num_envs": {"ladder": [8]}, "num_workers": {"choices": [0, 1]}, "pruner_patience": {"choices": [1, 2]}}
    study = study_file(tmp_path, space=space, pruner={"name": "none"})
    _, out, _ = tuner("optimize", "--study", study, "--n-trials", 1)
    assert "not searched: num_workers: " in out
    assert "not searched: pruner_patience: no probe is pruned" in out


def test_an_override_that_matches_no_case_is_pointed_out(tuner: Tuner, tmp_path: Path) -> None:
    overrides = [{"match": {"cases": [glob]}, "probe": {"iterations": 3}} for glob in ("wlak", "r*")]
    _, out, _ = tuner("optimize", "--study", study_file(tmp_path, overrides=overrides), "--n-trials", 1)
    assert "overrides: no case matches 'wlak'" in out
    assert "'r*'" not in out


def test_cases_are_named_one_by_one_or_with_commas(tuner: Tuner) -> None:
    reference = ("plan", "--study", "reference", "--devices", "cpu:2")
    for asked in (("--cases", "amp*", "--cases", "add_pi_plus"), ("--cases", "amp*, add_pi_plus")):
        code, out, _ = tuner(*reference, *asked)
        planned = {name for name in ("add_pi_plus", "amp_pi_plus", "deepmimic_pi_plus_ppo") if name in out}
        assert (code, planned) == (0, {"add_pi_plus", "amp_pi_plus"})


def test_a_run_has_other_values_without_an_edited_file_and_the_same_options_resume_it(
    tuner: Tuner, tmp_path: Path
) -> None:
    study = study_file(tmp_path)
    options = ("optimize", "--study", study, "--set", "num_envs=2,4", "--max-seconds", 40, "--n-trials", 1)
    code, out, _ = tuner(*options)
    assert (code, "--study demo-2-4-40s --best" in out) == (0, True)
    assert load("runs/demo-2-4-40s/study.yaml").build_space().rungs == (2, 4)
    assert "case walk: 1 of 1 trials done" in tuner(*options)[1]
    code, _, err = tuner("optimize", "--set", "workers=2", "--", "train", "--workers", "1")
    assert (code, "--search" in err) == (2, True)


def test_the_commands_stand_in_groups_and_the_example_of_each_can_be_typed(tuner: Tuner) -> None:
    _, shown, _ = tuner("--help")
    heads = [line.strip("╭─╮ ") for line in shown.splitlines() if line.startswith("╭")][1:]
    assert [head.partition(":")[0] for head in heads[:5]] == [
        *("Start", "Set up", "Inspect", "Memory and learning", "Several GPUs")
    ]
    assert "│ failed" in shown
    assert "<bool>" not in shown
    for name, command in getattr(get_command(app), "commands").items():  # noqa: B009 - typer's type hides them
        _, shown, _ = tuner(name, "--help")
        example = " ".join(shown.partition("Example: ")[2].split())
        assert (example.startswith(f"tuner {name}"), "<bool>" in shown) == (True, False)
        command.make_context(name, example.split()[2:])
