"""`tuner status`, which shows where a study stands."""

from itertools import starmap

from tuner.cli.console import open_console
from tuner.cli.document import Json, plain, print_document
from tuner.cli.front import front_rows, front_tables
from tuner.cli.hints import at_its_end, notes
from tuner.cli.loaded import fitted, ladder, load_shown
from tuner.cli.options import RUNS, Runs, Storage, Study, storage_url
from tuner.cli.tables import print_tables, summary_table
from tuner.export.database import connect
from tuner.export.facts import fitted_batches, fixed_rungs, reasons_to_end
from tuner.export.query import StudyReader
from tuner.export.summary import summarise


def status(study: Study, storage: Storage = None, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Show where a study stands."""
    console = open_console(stderr=as_json)
    spec = load_shown(console, study, to_show=True)
    engine = connect(storage_url(storage, spec, runs))
    reader = StudyReader(engine, spec.name)
    rows = summarise(reader)
    rungs, reasons = fixed_rungs(engine, spec.name), reasons_to_end(engine, spec.name)
    batches = fitted_batches(engine, spec.name)
    if as_json:
        more = [
            {
                "front": front_rows(reader, case),
                "rungs": rungs.get(case.name),
                "batch": batches.get(case.name),
                "ended": reasons.get(case.name),
            }
            for case in reader.cases
        ]
        cases = [{**plain(row), **facts} for row, facts in zip(rows, more, strict=True)]
        print_document({"study": spec.name, "cases": cases, "notes": notes(rows)})
        return
    print_tables(console, summary_table(rows), *front_tables(reader))
    for line in (
        *starmap(ladder, rungs.items()),
        *(fitted(case, "the batch size", str(batch)) for case, batch in batches.items()),
        *starmap(at_its_end, reasons.items()),
        *notes(rows),
    ):
        console.print(line)
