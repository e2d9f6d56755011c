import ast
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from tests_later import Later

from tuner.export.tables import export_study

if TYPE_CHECKING:
    import matplotlib
    import nbformat
    from matplotlib import pyplot as plt
else:
    nbformat = Later("nbformat")
    matplotlib, plt = Later("matplotlib"), Later("matplotlib.pyplot")

pytestmark = pytest.mark.early

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NOTEBOOK = NOTEBOOKS / "first_study.ipynb"


def exported(tmp_path: Path, *, ladder: str = "num_envs", rungs: tuple[int, ...] = (64, 128)) -> Path:
    """Return the exports of a small study with two cases, both variants at each rung that ran, and a failure."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'study.db'}")
    for name, gain_pct in (("add_pi_plus", 0.0), ("amp_pi_plus", 9.0)):
        case = optuna.create_study(storage=storage, study_name=f"small/{name}", direction="maximize")
        case.set_user_attr("case", {"case": name, "objective": "min_avg_util"})
        for variant, num_envs in product(("default", "hiutil"), rungs):
            util_pct = gain_pct + num_envs / 2
            config = {ladder: num_envs, "agent_variant": variant}
            trial = case.ask()
            probe = {"config": config, "digest": f"{trial.number}", "metrics": {"min_avg_util": util_pct}}
            trial.set_user_attr("probe", probe | {"status": "ok", "launched": True, "warm": num_envs == rungs[0]})
            case.tell(trial, util_pct)
        trial = case.ask()
        failure = {"kind": "gpu_oom", "rule": "torch", "detail": "CUDA out of memory"}
        config = {ladder: 256, "agent_variant": "hiutil"}
        probe = {"config": config, "digest": f"{trial.number}", "metrics": {"min_avg_util": None}}
        trial.set_user_attr("probe", probe | {"status": "gpu_oom", "failure": failure})
        case.tell(trial, state=optuna.trial.TrialState.PRUNED)
    storage.engine.dispose()
    export_study(f"sqlite:///{tmp_path / 'study.db'}", "small", tmp_path / "run")
    return tmp_path / "run"


def run_here(notebook: Path) -> dict[str, Any]:
    """Run the cells of a notebook in this process, because another kernel takes longer than the cells.

    Returns the notebook's names. As in IPython, `_` is the latest value that a cell ends with and shows.
    """
    matplotlib.use("Agg")
    plt.close("all")
    names: dict[str, Any] = {}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code":
            *statements, last = ast.parse(cell.source, cell.id).body
            shown = isinstance(last, ast.Expr)
            body = statements if shown else [*statements, last]
            exec(compile(ast.Module(body, []), cell.id, "exec"), names)  # noqa: S102 - the code of our own notebook
            if shown:
                names["_"] = eval(compile(ast.Expression(last.value), cell.id, "eval"), names)  # noqa: S307
    return names


def test_the_notebook_plots_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_RUN", str(exported(tmp_path)))
    names = run_here(NOTEBOOK)
    assert len(plt.get_fignums()) == 3
    assert capsys.readouterr() == ("", "")
    assert "CUDA out of memory" in repr(names["_"])
    assert names["curves"]["add_pi_plus", "hiutil"].to_dict() == {64: 32.0, 128: 64.0}  # sessions alone measured 64


def test_the_notebook_shows_the_failures_of_a_study_in_which_nothing_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_RUN", str(exported(tmp_path, ladder="batch_size", rungs=())))
    assert [*run_here(NOTEBOOK)["endings"].columns] == ["gpu_oom"]
    assert len(plt.get_fignums()) == 1


def test_the_notebook_about_tables_compares_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOKS)
    names = run_here(NOTEBOOKS / "reading_a_table.ipynb")
    assert names["ends"].keys() == {"gain", "TPE", "random"}
    assert names["ends"]["gain"][0] > 95.0
    assert all(80.0 < value < 100.0 for values in names["ends"].values() for value in values)


def test_the_notebook_about_python_searches_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOKS)
    names = run_here(NOTEBOOKS / "from_python.ipynb")
    assert names["result"].best["num_envs"] > 1024
    assert len(names["trials"]) >= 8
    assert len(names["study"].trials) < 100
    assert names["sampler"].best(names["study"]) == names["study"].best_params


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
