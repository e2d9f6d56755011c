"""`tuner status`, `export`, `cases` and `schema` show what a study holds, or may hold."""

from rich.table import Table

from tuner.cli import options
from tuner.cli.hints import line_about_script, lines_by_case, notes_beside_table
from tuner.cli.screen import front_tables, print_tables, summary_table
from tuner.errors import TunerError
from tuner.export import StudyReader, at_its_end, connect, export_study, findings, front_rows, merged_lines, reading
from tuner.running.events import auto_text
from tuner.store.leases import database_s, is_held, lives_at
from tuner.study import Case, StudySpec, is_meant, select
from tuner.trainers.registry import open_trainer


def cases(study: options.Study, as_json: options.Json = False) -> None:
    """List the cases that the study's trainer knows. The cases of the study that can run are marked with `*`.

    Example: tuner cases --study pi_plus
    """
    console = options.open_console(stderr=as_json)
    spec = options.load_shown(console, study)
    known = open_trainer(spec.trainer).cases()
    chosen = {case.name for case in select(known, spec.cases) if not case.fault}
    if as_json:
        keys = ("method", "mode", "trainable", "options")
        listed = [
            {"case": case.name, "in_study": case.name in chosen, "fault": case.fault or None}
            | {key: getattr(case, key) for key in keys}
            for case in known
        ]
        options.print_document({"study": spec.name, "trainer": spec.trainer.name, "cases": listed})
        return
    table = Table("", "case", "method", "mode")
    for case in known:
        if case.name in chosen:
            remark = "*"
        elif not case.trainable:
            remark = "not trainable"
        else:
            remark = "broken" if case.fault else ""
        table.add_row(remark, case.name, case.method, case.mode)
    print_tables(console, table)
    for case in known:
        if case.fault:
            console.print(f"{case.name} cannot run: {case.fault}")


def schema() -> None:
    """Print the JSON schema of study files.

    Example: tuner schema
    """
    options.print_document(StudySpec.model_json_schema())


def selected_cases(spec: StudySpec) -> list[Case] | None:
    """Return the cases that a study selects; None where the trainer is not on this machine."""
    try:
        return select(open_trainer(spec.trainer).cases(), spec.cases)
    except TunerError:
        return None


def open_reader(url: str, study: str) -> StudyReader:
    """Return a reader of the study in the database at `url`. Raises StoreError.

    A running trial whose process has given no sign of life lately counts as interrupted.
    """
    engine = connect(url)
    with reading(engine) as connection:
        lives = lives_at(database_s(engine.url, connection.scalar))
    return StudyReader(engine, study, is_held=lambda lease: is_held(lease, lives))


def status(
    study: options.Study,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
    as_json: options.Json = False,
) -> None:
    """Show where a study stands.

    Example: tuner status --study train
    """
    console = options.open_console(stderr=as_json)
    spec, _, url = options.open_shown(console, study, storage, runs)
    reader = open_reader(url, spec.name)
    rows = reader.rows
    if as_json:
        # front: the configs that no other beats in all objectives; rungs: those that were worked out for an `auto`
        # ladder; ended: why the search found nothing left to probe
        cases = [
            {**options.plain(row), "findings": findings(row), "front": front_rows(case)}
            | {"rungs": case.attributes.rungs, "ended": case.attributes.ended}
            for row, case in zip(rows, reader.cases, strict=True)
        ]
        options.print_document({"study": spec.name, "cases": cases, "notes": merged_lines(notes_beside_table(rows))})
        return
    print_tables(console, summary_table(rows), *front_tables(reader))
    attributes = [(case.name, case.attributes) for case in reader.cases]
    texts = notes_beside_table(rows)
    for row in rows:
        if row.stopped and not any(is_meant(row.case, pattern) for pattern in spec.cases):
            texts.append((row.case, f"the study file no longer selects it: only `--cases {row.case}` resumes it"))
    texts += [(name, at_its_end(kept.ended)) for name, kept in attributes if kept.ended]
    texts += [(name, auto_text("the ladder", kept.rungs)) for name, kept in attributes if kept.rungs]
    for line in lines_by_case(texts):
        console.print(line)
    if any(row.best and not row.replay_of for row in rows):  # a replay has no trainer to train with
        console.print(line_about_script(study, devices=None, storage=storage, runs=runs))


def export(
    study: options.Study,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
    as_json: options.Json = False,
) -> None:
    """Write a study's tables: best_by_case, case_manifest, method_summary, trials; pareto for several objectives.

    Example: tuner export --study train
    """
    console = options.open_console(stderr=as_json)
    spec, folder, url = options.open_shown(console, study, storage, runs)
    paths = export_study(url, spec.name, folder, selected_cases(spec) or ())
    if as_json:
        options.print_document({"study": spec.name, "files": paths})
    else:
        options.print_written(console, paths)
