from itertools import pairwise
from pathlib import Path

import pytest

from tuner.errors import StudyError
from tuner.study.study_file import find, load, narrowed

HEAD = "name: demo\ntrainer: {name: reference}\n"
SPACE = "space:\n  num_envs: {ladder: [8, 16]}\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, so that its `studies/` belongs to the test."""
    monkeypatch.chdir(tmp_path)
    Path("studies").mkdir()


def written(text: str, name: str = "demo") -> str:
    path = Path("studies") / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(study: str, **environ: str) -> str:
    with pytest.raises(StudyError) as caught:
        load(study, environ)
    return str(caught.value)


def test_a_study_is_found_by_name_or_path() -> None:
    path = written(HEAD + SPACE)
    assert load("demo", {}) == load(path, {})
    assert find("demo") == Path(path)


def test_the_folder_at_hand_comes_before_the_shipped_studies() -> None:
    written(HEAD + SPACE, "reference")
    assert load("reference", {}).name == "demo"


def test_a_study_without_a_name_takes_its_file_s() -> None:
    assert load(written("trainer: {name: reference}\n" + SPACE, "mine"), {}).name == "mine"


def test_a_misspelt_study_lists_the_known_ones() -> None:
    written(HEAD + SPACE, "mine")
    message = refusal("pi_pluss")
    assert "'pi_pluss'" in message
    for known in ("all_cases", "mine", "pi_plus", "reference"):
        assert known in message


@pytest.mark.parametrize("path", ["nowhere.yaml", "studies.yml"])
def test_a_path_without_a_file_is_named(path: str) -> None:
    Path("studies.yml").mkdir()
    assert refusal(path).startswith(f"study file {path} does not exist; known studies: ")


def test_all_errors_come_at_once_with_their_paths() -> None:
    message = refusal(
        written(
            HEAD
            + "tirals: 3\ndevices: ${DEVICES}\nprobe: {iterations: 0, second: 5}\n"
            + "space:\n  num_envs: {ladder: [8, 0]}\n  batch_size: {choices: []}\n"
            + "  num_workers: {ladder: fast}\n  prefetch_factor: {ladder: [2], max: 8}\n"
            + "overrides:\n  - {match: {device: tpu}}\n"
        )
    )
    assert "10 error(s)" in message
    for path in (
        "devices: environment variable DEVICES is not set",
        "devices: is none of: auto, auto:CARDS, cpu, cpu:RANKS, or CUDA indices such as 0,1",
        "tirals: unknown key; known: name, trainer, fallback",
        "probe.iterations: Input should be greater than or equal to 1 (found 0)",
        "probe.second: unknown key; did you mean max_seconds?",
        "space.num_envs.ladder.1: Input should be greater than or equal to 1 (found 0)",
        "space.batch_size.choices: is empty",
        "space.num_workers.ladder: write rungs such as [256, 512, 1024], or auto (found 'fast')",
        "space.prefetch_factor: only `ladder: auto` allows max",
        "overrides.0.match.device: Input should be 'cpu' or 'gpu' (found 'tpu')",
    ):
        assert f"\n  {path}" in message


def test_a_bad_file_is_refused_with_its_path() -> None:
    for text, words in [
        ("", ["contains no mapping"]),
        ("- 1\n", ["contains no mapping"]),
        ("name: [\n", ["cannot be read: line 2: expected the node content, but found"]),
        ("name: &a [*a]\n", ["aliases contains itself"]),
        (HEAD + f"space: {'[' * 1000}", ["nested too deeply"]),
        (HEAD + SPACE + "cases: [*pi_plus*]\n", ["undefined alias 'pi_plus*'; put text that begins with * in quotes"]),
        (HEAD + SPACE + "cases: *\n", ["put text that begins with * in quotes"]),
        (
            HEAD + SPACE + "constraints: {samples_per_s: >= 3}\n",
            ["line 5: found character '>'", "put the text"],
        ),
        (HEAD + SPACE + "probe:\n\titerations: 3\n", ["line 6: found character", "; indent with spaces"]),
        (
            HEAD + SPACE + 'fallback: "(?P<iteration>\\d+)"\n',
            ["unknown escape character 'd'; use single quotes"],
        ),
        (HEAD + SPACE + "devices: 0\n", ["devices: should be text; put it in quotes (found 0)"]),
        (
            HEAD + SPACE + "space:\n  num_envs: {ladder: [4]}\n",
            ["cannot be read: line 5: found", 'duplicate key "space"'],
        ),
        (
            HEAD + "space:\n  num_envs: {ladder: [4]}\n  num_envs: {ladder: [8]}\n",
            ['duplicate key "num_envs"', "leave one of them out"],
        ),
        (HEAD + SPACE + "objective: !!python/name:os.system\n", ["cannot be read", "tag"]),
        (HEAD + SPACE + "objective: 2026-13-45\n", ["cannot be read", "month"]),
        (HEAD + SPACE + "1: 2\n", ["Keys should be strings"]),
        (HEAD + SPACE + "probe:\n", ["probe: should be a mapping of keys to values (found None)"]),
        (HEAD, ["space: is required"]),
        (SPACE, ["trainer: is required"]),
        (
            HEAD + SPACE + 'environment: {variables: {A: "1\\0"}}\n',
            ["environment.variables.A: contains a NUL character or half of a pair, which nothing may contain"],
        ),
        ('trainer: {name: mimickit, root: "a\\0b"}\n' + SPACE, ["trainer.root: contains a NUL character"]),
        (HEAD + "space: {a: {choices: [1], when: {b: 1}}}\n", ["condition on unknown parameter 'b'"]),
        (HEAD + "space: {a: {choices: [1], when: {a: 1}}}\n", ["cycle: a"]),
    ]:
        path = written(text)
        message = refusal(path)
        for word in (path, *words):
            assert word in message


def test_a_file_that_is_not_utf_8_is_refused() -> None:
    path = written("")
    Path(path).write_bytes(b"name: \xff\xfe")
    message = refusal(path)
    assert path in message
    assert message.endswith("byte 6 is not UTF-8; save the file as UTF-8")


@pytest.mark.parametrize(
    ("environ", "root"),
    [({}, "~/checkout"), ({"ROOT": ""}, "~/checkout"), ({"ROOT": "/opt/x"}, "/opt/x")],
)
def test_variables_take_their_default_where_unset_or_empty(environ: dict[str, str], root: str) -> None:
    study = written("trainer: {name: reference, root: '${ROOT:-~/checkout}/${SUB:-}'}\n" + SPACE)
    assert load(study, environ).trainer.root == f"{root}/"


def test_variables_are_expanded_in_every_string() -> None:
    study = written(HEAD + "cases: ['${CASE}_*', '*']\nspace: {num_envs: {ladder: ['${RUNG:-8}', 16]}}\n")
    spec = load(study, {"CASE": "amp"})
    assert spec.cases == ("amp_*", "*")
    assert spec.build_space().values("num_envs") == (8, 16)


def test_an_unset_variable_is_named_with_its_path_and_what_to_do() -> None:
    study = written(HEAD + SPACE + "cases: [walk, '${CASE}']\n")
    assert "cases.1: environment variable CASE is not set; set it or write ${CASE:-default}" in refusal(study)


def test_a_fallback_stands_in_for_a_trainer_without_a_root() -> None:
    study = written("trainer: {name: mimickit, root: '${ROOT:-}'}\nfallback: stand_in\n" + SPACE)
    written("trainer: {name: reference}\n" + SPACE, "stand_in")
    assert load(study, {}).name == "stand_in"
    assert load(study, {"ROOT": "here"}).name == "demo"


def test_a_fallback_that_does_not_exist_is_named() -> None:
    study = written(HEAD + "fallback: nowhere\n" + SPACE)
    said = refusal(study)
    assert f"{study}: trainer.root is empty, and its fallback cannot be used: no study is called 'nowhere'" in said


def test_studies_that_fall_back_on_each_other_come_to_an_end() -> None:
    first = written("trainer: {name: mimickit}\nfallback: second\n" + SPACE, "first")
    written("trainer: {name: mimickit}\nfallback: first\n" + SPACE, "second")
    assert load(first, {}).name == "second"


OVERRIDES = """
probe: {iterations: 6}
overrides:
  - match: {cases: ["*_pi_plus", "run*"]}
    space: {num_envs: {ladder: [2, 4]}}
    search: {trials: 7}
  - match: {device: cpu}
    probe: {max_seconds: 60}
  - match: {cases: ["run*"], device: cpu}
    space: {batch_size: {choices: [1]}}
    search: {seed: 3}
"""


def test_overrides_apply_by_case_and_device() -> None:
    for case, device, rungs, trials, max_seconds in [
        ("walk", "gpu", (8, 16), 60, 420),
        ("walk", "cpu", (8, 16), 60, 60),
        ("amp_pi_plus", "gpu", (2, 4), 7, 420),
        ("run", "cpu", (2, 4), 7, 60),
    ]:
        spec = narrowed(load(written(HEAD + SPACE + OVERRIDES), {}), case, "cpu" if device == "cpu" else "gpu")
        assert spec.build_space().values("num_envs") == rungs
        assert (spec.search.trials, spec.probe.max_seconds, spec.probe.iterations) == (trials, max_seconds, 6)


def test_overrides_add_up_in_the_file_s_order() -> None:
    spec = narrowed(load(written(HEAD + SPACE + OVERRIDES), {}), "run", "cpu")
    assert spec.build_space().names == ("num_envs", "batch_size")
    assert (spec.search.trials, spec.search.seed) == (7, 3)


def test_an_override_that_makes_the_study_invalid_is_reported_with_its_path() -> None:
    message = refusal(
        written(
            HEAD
            + SPACE
            + "overrides:\n"
            + "  - {match: {cases: [a]}, search: {trials: 3}}\n"
            + "  - {match: {cases: [b]}, space: {num_envs: {ladder: []}}, search: {tirals: 3}}\n"
            + "  - {match: {cases: [c]}, probe: {warmup_iterations: 8}}\n"
        )
    )
    assert "3 error(s)" in message
    assert "overrides.1.space.num_envs.ladder: is empty" in message
    assert "overrides.1.search.tirals: unknown key; did you mean trials?" in message
    assert "overrides.2.probe: warmup_iterations 8 leaves none of" in message


def test_overrides_that_contradict_each_other_are_a_study_error() -> None:
    overrides = "overrides:\n  - {match: {}, probe: {iterations: 2}}\n  - {match: {}, probe: {warmup_iterations: 3}}\n"
    spec = load(written(HEAD + SPACE + overrides), {})
    with pytest.raises(StudyError, match=r"(?s)demo.*walk.*probe: warmup_iterations 3 leaves none of the 2 iterations"):
        narrowed(spec, "walk", "gpu")


OWN = "name: own\ntrainer: {name: command, options: {command: 'x {num_envs}'}}\n"
BOMBS = {
    "size": (OWN + SPACE + "cases: [" + "c, " * 100_000 + "]\n", "larger than 256 KiB"),
    "aliases": (
        "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 9}]\n" for a, b in pairwise("abcdefghijkl")) + OWN + SPACE,
        "more than 20,000 values, those of aliases included",
    ),
    "merges": (
        "a: &a {x: 1}\n" + "".join(f"{b}: &{b} {{<<: [*{a}, *{a}]}}\n" for a, b in pairwise("abcdefghijklmnopq")) + OWN,
        "more than 20,000 values, those of aliases included",
    ),
    "depth": (OWN + f"space: {'[' * 40}{']' * 40}\n", "nested too deeply"),
    "overrides": (OWN + SPACE + "overrides:\n" + "  - {match: {}}\n" * 201, "overrides: has too many values"),
    "cases": (OWN + SPACE + f"cases: [{'c, ' * 1001}]\n", "cases: has too many values"),
    "choices": (OWN + f"space: {{x: {{choices: {list(range(1001))}}}}}\n", "space.x.choices: has too many values"),
    "parameters": (
        OWN + "space:\n" + "".join(f"  p{one}: {{choices: [1]}}\n" for one in range(101)),
        "space: has too many values",
    ),
    "digits": (OWN + f"space: {{num_envs: {{ladder: [{10**400}]}}}}\n", "should be less than"),
    "half a pair": (
        OWN + 'space: {x: {choices: ["\\ud800"]}}\n',
        "choices.0: contains a NUL character or half",
    ),
    "half a key": (OWN + 'space: {"\\ud800": {choices: [1]}}\n', "space: contains a NUL character or half of a pair"),
    "errors": (OWN + SPACE + "".join(f"key{one}: 1\n" for one in range(30)), "… and 10 more"),
}


def test_a_file_beyond_all_bounds_is_one_short_message() -> None:
    for text, message in BOMBS.values():
        found = refusal(written(text))
        assert message in found
        assert len(found) < 8_000


WITH_KEY = """
name: own
trainer:
  name: command
  root: "${OWN_ROOT}"
  options: {command: "x ${OWN_KEY} {num_envs}", session: ["x", "${OWN_KEY}"], env: {KEY: "a-${OWN_KEY}"}}
environment: {variables: {TOKEN: "${OWN_KEY}"}}
space: {num_envs: {ladder: [8, 16]}}
"""


def test_a_variable_of_the_trainer_s_command_and_environment_stays_a_reference() -> None:
    study = written(WITH_KEY)
    spec = load(study, {"OWN_ROOT": "/own", "OWN_KEY": "s3cret"})
    assert spec.trainer.root == "/own"
    assert spec.trainer.options["env"] == {"KEY": "a-${OWN_KEY}"}
    assert spec.trainer.options["command"] == "x ${OWN_KEY} {num_envs}"
    assert spec.trainer.options["session"] == ["x", "${OWN_KEY}"]
    assert spec.environment.variables == {"TOKEN": "${OWN_KEY}"}
    for place in ("command", "session.1", "env.KEY"):
        assert f"trainer.options.{place}: environment variable OWN_KEY is not set" in refusal(study, OWN_ROOT="/own")


def test_to_show_results_the_trainer_s_variables_may_be_missing() -> None:
    study = written(WITH_KEY)
    assert load(study, {}, to_show=True).trainer.root == "${OWN_ROOT}"
    study = written(WITH_KEY.replace("name: own", 'name: "${OWN_NAME}"'))
    with pytest.raises(StudyError, match=r"name: environment variable OWN_NAME is not set"):
        load(study, {}, to_show=True)
