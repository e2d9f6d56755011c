"""`tuner status`, which shows where a study stands."""

from tuner.cli.case_tables import front_rows, front_tables, print_tables, summary_table
from tuner.cli.console import open_console
from tuner.cli.hints import notes
from tuner.cli.introduction import fitted, ladder, load_shown
from tuner.cli.opened import open_reader
from tuner.cli.options import RUNS, Json, Runs, Storage, Study, plain, print_document, storage_url
from tuner.export.wording import at_its_end


def status(study: Study, storage: Storage = None, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Show where a study stands."""
    console = open_console(stderr=as_json)
    spec = load_shown(console, study, to_show=True)
    reader = open_reader(storage_url(storage, spec, runs), spec.name)
    rows = reader.rows
    if as_json:
        more = [
            {
                "front": front_rows(case),
                "rungs": case.facts.rungs,
                "batch": case.facts.batch,
                "ended": case.facts.ended,
            }
            for case in reader.cases
        ]
        cases = [{**plain(row), **facts} for row, facts in zip(rows, more, strict=True)]
        print_document({"study": spec.name, "cases": cases, "notes": notes(rows)})
        return
    print_tables(console, summary_table(rows), *front_tables(reader))
    for line in (
        *(ladder(case.name, case.facts.rungs) for case in reader.cases if case.facts.rungs),
        *(fitted(case.name, "the batch size", str(case.facts.batch)) for case in reader.cases if case.facts.batch),
        *(f"{case.name}: {at_its_end(case.facts.ended)}" for case in reader.cases if case.facts.ended),
        *notes(rows),
    ):
        console.print(line)
