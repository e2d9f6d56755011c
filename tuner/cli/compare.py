"""`tuner compare`: results of `tuner scale` from several machines, side by side."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.console import open_console
from tuner.cli.hints import written
from tuner.cli.options import RUNS
from tuner.cli.report import NEEDED
from tuner.cli.scale_tables import show_comparison
from tuner.errors import TunerError, installs
from tuner.export.write import write_files
from tuner.scaling.comparing import Machine, comparison_tsv, lines, read_prices, recommendation
from tuner.scaling.results import read
from tuner.scaling.scaling_table import link_table
from tuner.scaling.sentences import number, sized, topology
from tuner.scaling.subjects import LINKS

Files = Annotated[list[Path], typer.Argument(dir_okay=False, help="Files that `tuner scale --out` has written.")]
PricesFile = Annotated[
    Path | None, typer.Option("--prices", dir_okay=False, help="A YAML file with the price of a device for an hour.")
]
Out = Annotated[Path, typer.Option(file_okay=False, help="The folder for compare.html and compare.tsv.")]


def compare(files: Files, prices: PricesFile = None, out: Out = RUNS / "compare") -> None:
    """Compare machines: speed-up, efficiency, samples for the money, and what to choose."""
    console = open_console()
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise TunerError(f"tuner compare needs {', '.join(missing)}: {installs('report')} installs it")
    machines = _machines(files)
    needed = [(one.name, one.results.devices[0]) for one in machines]
    known = None if prices is None else read_prices(prices, needed)
    currency = known.currency if known else None
    rows = lines(machines, known)
    if not rows:
        raise TunerError(
            f"{', '.join(map(str, files))}: no baseline of a single device, so there is nothing to compare; "
            "`tuner scale --gpus 1,2` measures one, too"
        )
    sentences = list(recommendation(rows, currency or ""))
    show_comparison(console, rows, currency)
    for line in sentences:
        console.print(line)
    from tuner.report.page import filled  # noqa: PLC0415 - the extra `report` brings plotly and jinja2
    from tuner.scaling.scaling_pictures import pictures  # noqa: PLC0415 - likewise

    page = filled(
        "comparison.html",
        filters={"number": number, "sized": sized, "topology": topology},
        machines=machines,
        sentences=sentences,
        lines=rows,
        links=[(one.name, link) for one in machines for link in link_table(one.results, LINKS)],
        pictures=pictures(rows, currency),
        currency=currency,
    )
    texts = {"compare.html": [page.encode()], "compare.tsv": [comparison_tsv(rows, currency).encode()]}
    written(console, write_files(out.resolve(), texts))


def _machines(files: list[Path]) -> list[Machine]:
    """Read the files. A machine has the name of its file; the folder tells files of one name apart."""
    stems = [file.stem for file in files]
    names = [file.stem if stems.count(file.stem) == 1 else f"{file.parent.name}/{file.stem}" for file in files]
    if len(set(names)) < len(names):
        raise TunerError(f"{', '.join(map(str, files))}: a file is named twice; name each result once")
    return [Machine(name=name, results=read(file)) for name, file in zip(names, files, strict=True)]
