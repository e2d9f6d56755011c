"""Copies a study for optuna-dashboard: records as attributes, files as artifacts, and notes."""

import json
import mimetypes
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import Connection, MetaData, NullPool, Table, create_engine, insert, select

from tuner.errors import OutputError
from tuner.export.case_view import CaseView
from tuner.export.reader import StudyReader, reading
from tuner.export.wording import markdown
from tuner.probe import SERIES_FILE, FailureKind, folder_of, make_private
from tuner.records.case_record import masked
from tuner.records.schema import CASE, IDENTITY, STUDIES, TRIALS, of_study, read_json
from tuner.records.trial import TrialRecord
from tuner.search.standing import Standing
from tuner.study import PATIENCE

FOLDER = "dashboard"
"""The copy's folder inside the study's folder."""
DATABASE = "study.db"
"""The copy's database, in its folder."""
ARTIFACTS = "artifacts"
"""The folder of the trials' files, in that of the copy."""
_OF_STUDY = ("studies", "study_directions", "study_user_attributes", "study_system_attributes", "trials")
_OF_TRIAL = ("trial_params", "trial_values", "trial_intermediate_values", "trial_system_attributes")
_WHOLE = ("version_info", "alembic_version")

Row = dict[str, Any]


def copy_study(reader: StudyReader, folder: Path, notes: Mapping[str, str]) -> Path:
    """Return the folder of a study's copy, which is made in `FOLDER` of the study's folder in place of an older one.

    `notes`: case → what its note says, in Markdown. Artifacts are links to the probes' files, with the names that
    Optuna's `FileSystemArtifactStore` expects.
    Raises StoreError where there is no study, and OutputError where the copy cannot be written.
    """
    target = folder / FOLDER
    new = target / f".{DATABASE}.new"
    try:
        (target / ARTIFACTS).mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        make_private(new)
        _fill(reader, new, folder, notes)
        new.replace(target / DATABASE)
    except OSError as error:
        where = error.filename or target
        raise OutputError(f"cannot write {where}: {error.strerror}; choose another --runs folder") from error
    return target


def _fill(reader: StudyReader, file: Path, folder: Path, notes: Mapping[str, str]) -> None:
    """Write the copy into a database that is empty."""
    trials = list(reader.trials())  # read before the copy begins, with connections of its own
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with reading(reader.engine) as source, engine.begin() as copy:
        tables = _tables(source)
        tables.create_all(copy)
        _copy_rows(source, copy, tables.tables, reader.study)
        ids = _ids(source, reader)
        rows = [(ids[trial.case, trial.number], trial) for trial in trials if (trial.case, trial.number) in ids]
        _write(copy, tables.tables["trial_user_attributes"], _attributes(rows))
        _write(copy, tables.tables["trial_system_attributes"], _artifacts(rows, folder))
        _write(copy, tables.tables["study_system_attributes"], _study_rows(copy, tables.tables, reader, rows, notes))


def _tables(source: Connection) -> MetaData:
    """Return the tables of the source as SQLite can make them: without the sequences of a server."""
    tables = MetaData()
    tables.reflect(bind=source, only=[*_OF_STUDY, *_OF_TRIAL, *_WHOLE, "trial_user_attributes"])
    for table in tables.tables.values():
        for column in table.columns:
            column.server_default = None
    return tables


def _copy_rows(source: Connection, copy: Connection, tables: Mapping[str, Table], study: str) -> None:
    """Copy the rows of a study, without literal keys and without the pruner's patience."""
    studies = select(STUDIES.c.study_id).where(of_study(study))
    trials = select(TRIALS.c.trial_id).where(TRIALS.c.study_id.in_(studies))
    for name in _WHOLE:
        _write(copy, tables[name], _rows(source, select(tables[name])))
    for name in _OF_STUDY:
        rows = _rows(source, select(tables[name]).where(tables[name].c.study_id.in_(studies)))
        for row in rows:
            if row.get("key") in {IDENTITY, CASE} and isinstance(known := read_json(row["value_json"]), dict):
                row["value_json"] = json.dumps(masked(known))
        _write(copy, tables[name], rows)
    for name in _OF_TRIAL:
        query = select(tables[name]).where(tables[name].c.trial_id.in_(trials))
        if name == "trial_params":
            query = query.where(tables[name].c.param_name != PATIENCE)
        _write(copy, tables[name], _rows(source, query))


def _rows(source: Connection, query: Any) -> list[Row]:
    return [dict(row) for row in source.execute(query).mappings()]


def _write(copy: Connection, table: Table, rows: Iterable[Row]) -> None:
    if made := list(rows):
        copy.execute(insert(table), made)


def _ids(source: Connection, reader: StudyReader) -> dict[tuple[str, int], int]:
    """Return the ids of the trials: case and number → id."""
    names = {case.study_id: case.name for case in reader.cases}
    query = select(TRIALS.c.study_id, TRIALS.c.number, TRIALS.c.trial_id).where(TRIALS.c.study_id.in_(list(names)))
    return {(names[row.study_id], row.number): row.trial_id for row in source.execute(query)}


def _attributes(rows: Iterable[tuple[int, TrialRecord]]) -> Iterator[Row]:
    """Yield the attributes of trials, which have their ids, one for each fact."""
    for trial_id, trial in rows:
        for name, fact in _facts(trial).items():
            yield {"trial_id": trial_id, "key": name, "value_json": json.dumps(fact)}


def _facts(trial: TrialRecord) -> dict[str, Any]:
    """Return what a person wants to see of a trial; unknown facts are left out."""
    probe, failure = trial.probe, trial.probe.failure
    facts = {
        "status": trial.status,
        "failure": failure and failure.kind,
        "out of memory": True if trial.status == FailureKind.GPU_OOM else None,
        "detail": probe.detail or None,
        "measured": None if not probe.launched else "session" if probe.warm else "plain command",
        "total_s": probe.total_s,
        "iterations": probe.iterations,
        **trial.metrics,
        "measured_on": probe.measured_on,
        "folder": probe.out_dir or None,
        "calibration": trial.calibrates or None,
        PATIENCE: trial.config.get(PATIENCE),
    }
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return {name: round(fact, 3) if isinstance(fact, float) else fact for name, fact in known.items()}


def _artifacts(rows: Iterable[tuple[int, TrialRecord]], folder: Path) -> Iterator[Row]:
    """Yield the attributes by which optuna-dashboard knows the files of trials."""
    store = folder / FOLDER / ARTIFACTS
    for trial_id, trial in rows:
        for name in _files(trial, folder, store):
            number = _artifact_id(trial, name)
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            meta = {"artifact_id": number, "filename": name, "mimetype": kind, "encoding": None}
            yield {"trial_id": trial_id, "key": f"artifacts:{number}", "value_json": json.dumps(json.dumps(meta))}


def _files(trial: TrialRecord, folder: Path, store: Path) -> Iterator[str]:
    """Yield the names of a probe's files that are there, which are linked into the store."""
    probe = folder_of(folder, trial.probe.out_dir)
    if probe is None:
        return
    for name in ("console.log", SERIES_FILE):
        if (probe / name).is_file() and not (probe / name).is_symlink():
            _link(probe / name, store / _artifact_id(trial, name))
            yield name


def _link(file: Path, link: Path) -> None:
    """Make a link to a file; the link is made beside its place first, because a dashboard may be reading."""
    beside = link.with_name(f".{link.name}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(file.resolve())
    os.replace(beside, link)  # noqa: PTH105 - Path.replace would follow no link either; this says what is done


def _artifact_id(trial: TrialRecord, name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"{trial.case}/{trial.number}/{trial.probe.out_dir}/{name}"))


def _study_rows(
    copy: Connection,
    tables: Mapping[str, Table],
    reader: StudyReader,
    rows: Sequence[tuple[int, TrialRecord]],
    notes: Mapping[str, str],
) -> Iterator[Row]:
    """Yield what the copy keeps of a case beside its trials: the names of its values, and notes."""
    table = tables["study_system_attributes"]
    known = {(row.study_id, row.key) for row in copy.execute(select(table.c.study_id, table.c.key))}
    for case in reader.cases:
        own = [(trial_id, trial) for trial_id, trial in rows if trial.case == case.name]
        paragraphs = [above_the_best(case) if len(case.objectives) == 1 else None, notes.get(case.name)]
        facts = {
            "study:metric_names": list(case.objectives),
            **_note("dashboard", "\n\n".join(filter(None, paragraphs))),
        }
        for trial_id, trial in own:
            if failure := trial.probe.failure:
                facts |= _note(f"dashboard:{trial_id}", f"**{failure.kind}**: {markdown(failure.detail)}")
        for key, fact in facts.items():
            if (case.study_id, key) not in known:
                yield {"study_id": case.study_id, "key": key, "value_json": json.dumps(fact)}


def above_the_best(case: CaseView) -> str | None:
    """Return which trial has the highest single value of a case, and why another config is the best; None if it is."""
    best = case.best
    highest = max(
        (trial for trial in case.trials if trial.value is not None), key=lambda trial: trial.value or 0.0, default=None
    )
    if best is None or highest is None or highest.value is None:
        return None
    if highest.number == best.trial and best.readings == 1:
        return None
    return (
        f"**The best is trial #{best.trial}, with {best.values[0]:.2f}.** "
        f"optuna-dashboard names the highest single value: trial #{highest.number}, with {highest.value:.2f}. "
        f"{markdown(_why_not(highest, best))}"
    )


def _why_not(highest: TrialRecord, best: Standing) -> str:
    """Return why the trial with the highest value has not the best config."""
    if highest.probe.ineligible:
        return f"That config must not be the best: {highest.probe.ineligible}."
    if highest.warm and not best.is_warm:
        return "A session measured it; the best was measured by the trainer's plain command, which counts more."
    if highest.launch == best.launch:
        return f"Both measured the same config, and the best's value is the mean of {best.readings} measurements."
    return "A config counts with the mean of its measurements, and the mean of that config is lower."


def _note(prefix: str, text: str) -> Row:
    """Return a note as optuna-dashboard keeps it; a note that somebody has written there stays."""
    if not text:
        return {}
    # optuna-dashboard allows pieces of at most 2,045 characters
    pieces = [text[at : at + 2000] for at in range(0, len(text), 2000)]
    return {f"{prefix}:note_ver": 1, **{f"{prefix}:note_str:{at}": piece for at, piece in enumerate(pieces)}}
