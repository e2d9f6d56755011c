"""`tuner scale`: what cannot be measured is refused with one message before anything starts."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests_cli import Tuner
from tests_docs import ROOT
from tests_scaling import point, results

from tuner.cli.scale import show_comparison, show_scaling
from tuner.tools.scaling.comparing import all_rows, short
from tuner.tools.scaling.results import read, table, write


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--counts 2 --devices cpu:1", "--counts 2 asks for 2, and tuner sees 1 CPU rank"),
        ("--counts 1,x --devices cpu:2", "--counts '1,x': write whole numbers"),
        (f"--counts {'9' * 5000} --devices cpu:2", "write whole numbers of at least 1"),
        ("nonsense --devices cpu:2", "'nonsense' is unknown; known: ppo, allreduce"),
        ("ppo allreduce --sizes 8 --devices cpu:2", "--sizes belong to one workload"),
        ("ppo --study reference --devices cpu:2", "leave out ppo"),
        ("--study nowhere --devices cpu:2", "nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: str, said: str, tuner: Tuner) -> None:
    code, out, err = tuner("scale", *words.split())
    assert code == 2
    assert said in err.replace("\n", " ")
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "mine.json is no result of `tuner scale`"),
        ('{"tuner_scale": 7}', "its 'tuner_scale' is 7, and this tuner reads 2"),
        (None, "mine.json holds results of another machine, and they are kept; name another file with --out"),
    ],
)
def test_a_file_that_cannot_be_gone_on_with_is_kept(text: str | None, said: str, tuner: Tuner, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    if text is None:
        write(results(point("single", 1000.0)), path)
    else:
        path.write_text(text)
    before = path.read_bytes()
    code, _, err = tuner("scale", "ppo", "--devices", "cpu:2", "--out", "mine.json")
    assert code == 2
    assert said in err
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["one_h200", "two_cpu_ranks", "two_h200"])
def test_the_tables_fit_into_80_columns(name: str) -> None:
    found = read(ROOT / f"benchmarks/results/scaling/{name}.json")
    shown = StringIO()
    console = Console(width=80, file=shown, soft_wrap=True)
    show_scaling(console, found)
    show_comparison(console, all_rows({name: found}))
    tables = [line for line in shown.getvalue().splitlines() if line.startswith("  ")]
    assert len(tables) > 2 * len(table(found))
    assert max(map(len, tables)) <= 80
    for row in table(found):
        assert any(f"{row.size:,} " in line and short(row.samples_per_s) in line for line in tables)
