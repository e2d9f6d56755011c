"""Every study file in README and docs is valid, and every Python example runs."""

import contextlib
import io
import re
import shutil
from pathlib import Path

import optuna
import pytest
from ruamel.yaml import YAML
from tests_docs import ROOT, Shown, of, shown

from tuner.study.study_file import load, narrowed
from tuner.trainers.registry import declined_parameters, open_trainer

TABLE = ROOT / "benchmarks/tables/pi_plus_two_h200/deepmimic_pi_plus_ppo.parquet"

PRINTED = {
    "python.md": ["72", "47 configs; 71914."],
    "sampler.md": ["{'num_envs': 4096, 'batch_size': 1} "],
}
"""The beginning of each example's output, by page, in the order of the examples."""

EXAMPLES = [
    (piece, begins) for page, begin in PRINTED.items() for piece, begins in zip(of(page, "python"), begin, strict=True)
]

AROUND: dict[str, object] = {"name": "shown", "trainer": {"name": "reference"}, "space": {"num_envs": {"ladder": [8]}}}
"""The keys that complete a part of a study file."""


STUDIES = shown("yaml")


@pytest.mark.parametrize("piece", STUDIES, ids=lambda piece: piece.place)
def test_a_study_file_is_accepted(piece: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = YAML(typ="safe").load(piece.text)
    around = {key: part for key, part in AROUND.items() if not ("launch" in own and key == "space")}
    with Path("shown.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(around | own, file)
    spec = load("shown.yaml", {"MIMICKIT_ROOT": "x"})
    assert declined_parameters(open_trainer(spec.trainer), spec.space) == {}
    assert narrowed(spec, "amp_pi_plus", "gpu").build_space().names


@pytest.mark.parametrize(("piece", "begins"), EXAMPLES, ids=[piece.place for piece, _ in EXAMPLES])
def test_an_example_in_python_runs(piece: Shown, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in (TABLE, TABLE.with_suffix(".json")):
        shutil.copy(file, tmp_path)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(piece.text, piece.place, "exec"), {})  # noqa: S102 - the code of our own page
    assert printed.getvalue().startswith(begins)
    assert "None" not in printed.getvalue()


def test_every_example_is_run() -> None:
    assert {piece.page for piece in shown("python")} == PRINTED.keys()


def test_what_is_linked_is_there() -> None:
    assert [f"{link.place}: {link.text}" for link in shown("link") if not leads_somewhere(link)] == []


def leads_somewhere(link: Shown) -> bool:
    """Check whether the file of a link exists, and has the heading that the link names."""
    target, _, heading = link.text.partition("#")
    folder = ROOT if (ROOT / link.page).exists() else ROOT / "docs"
    path = folder / (target or link.page)
    if not heading:
        return path.exists()
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.exists() else []
    return heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_language_is_checked() -> None:
    assert {piece.language for piece in shown()} == {"console", "inline", "json", "link", "python", "yaml", ""}
