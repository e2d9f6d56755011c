"""What a try does with a drawn value: as much of the tuner as the value can reach."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import TrialState
from sqlalchemy import create_engine
from tests_devices import RecordedProbe, ReplayedSource
from tests_replays import FakeClock, ReplayedRecorder, ScriptedTrainer, never, scripted_plan
from tests_store import case_study

from tests.support.tests_fuzz import edits, files, outputs
from tests.support.tests_fuzz.edits import Edit
from tests.support.tests_fuzz.outputs import Output
from tuner.errors import TunerError
from tuner.export import StudyReader, connect, export_study
from tuner.probe import Device, LinePatterns, LineSplitter, OutputLine
from tuner.probe.run import run
from tuner.records.trial import ProbeRecord, encode
from tuner.report.facts import gather
from tuner.search.verdict import Verdict
from tuner.store.case_study import CaseStudy, OwnTrial
from tuner.store.database import Database
from tuner.study import ProbeSpec, launch_digest, load
from tuner.trainers.registry import open_trainer

NAME = "bench/walk"
Subject = Callable[[Path], Callable[[Any], object]]
"""Prepares a folder and returns what one try does."""


def study_file(folder: Path) -> Callable[[bytes], None]:
    """Load a study file, and make its space and its trainer."""
    file = folder / "study.yaml"

    def attempt(content: bytes) -> None:
        file.write_bytes(content)
        spec = load(str(file), {"A": "a"})
        spec.build_space()
        spec.build_constraints()
        open_trainer(spec.trainer)

    return attempt


def url(_: Path) -> Callable[[str], object]:
    """Open a database for reading."""
    return connect


def attributes(folder: Path) -> Callable[[list[Edit]], None]:
    """Resume, show and export a study with edited attributes, each as far as it goes."""
    template = begun(folder / "begun.db")
    file = folder / "study.db"
    address = f"sqlite:///{file}"

    def attempt(changes: list[Edit]) -> None:
        file.write_bytes(template)
        engine = create_engine(address)
        with engine.begin() as connection:
            for change in changes:
                change.apply(connection)
        engine.dispose()
        refused: list[TunerError] = []
        for work in (resume, show, partial(export_study, study="bench", folder=folder / "tables")):
            try:
                work(address)
            except TunerError as error:
                refused.append(error)
        if refused:
            raise refused[0]

    return attempt


def console(folder: Path) -> Callable[[Output], None]:
    """Probe a trainer that prints the lines and reports the messages; store the result."""
    cards = tuple(Device(name=f"cuda:{place}", model="card") for place in range(2))
    limits = ProbeSpec(iterations=8, window_seconds=1.0, max_seconds=60.0)

    def attempt(output: Output) -> None:
        clock, splitter = FakeClock(), LineSplitter()
        lines = [OutputLine(t_s=t_s, text=text) for t_s, chunk in output.printed for text in splitter.feed(chunk)]
        lines += [OutputLine(t_s=t_s, text=text, stream="progress") for t_s, text in output.reported]
        source = ReplayedSource(
            RecordedProbe(devices=cards, samples=tuple(output.samples), marks_s=(), total_s=60.0, exit_code=0)
        )
        result = run(
            scripted_plan(folder, cards, limits, LinePatterns(patterns=output.patterns)),
            launch=ScriptedTrainer(clock, lines, exit_at_s=output.exit_at_s, exit_code=output.exit_code),
            recorder=ReplayedRecorder(source, output.samples, clock),
            clock=clock,
            stop=never,
        )
        record = ProbeRecord(failure=result.failure, samples=result.samples, notes=result.notes, devices=result.devices)
        json.dumps(encode(record), ensure_ascii=False, allow_nan=False).encode()

    return attempt


def begun(file: Path) -> bytes:
    """Make a study with trials in every state, and return its database."""
    database = Database(f"sqlite:///{file}")
    study = case_study(database, name=NAME)
    for state in (TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL):
        asked = study.ask(None)
        if asked is None:
            raise SystemExit("nothing is left to ask")
        study.report(asked, 1, 40.0)
        tell(study, asked, state)
    study.ask(None)
    database.close()
    return file.read_bytes()


def resume(address: str) -> None:
    """Go on with the study: take back what was dropped, ask and tell."""
    database = Database(address)
    try:
        study = case_study(database, name=NAME)
        study.end_abandoned_trials(Path("none"))
        if asked := study.ask(None):
            tell(study, asked, TrialState.COMPLETE)
    finally:
        database.close()


def show(address: str) -> None:
    """Read what `status` and `report` show."""
    reader = StudyReader(connect(address), "bench")
    _ = reader.rows
    gather(reader, Path("none"))


def tell(study: CaseStudy, asked: OwnTrial, state: TrialState) -> None:
    record = ProbeRecord(status="ok", config=asked.config, digest=launch_digest(asked.config))
    value = 50.0 if state is TrialState.COMPLETE else None
    study.tell(asked, Verdict(state=state, status="ok" if value else "crash", value=value), record)


SUBJECTS: dict[str, tuple[Any, Subject]] = {
    "study files of any text": (files.TEXTS, study_file),
    "study files of any values": (files.STUDIES, study_file),
    "changed study files": (files.CHANGED, study_file),
    "database URLs": (files.URLS, url),
    "console lines": (outputs.OUTPUTS, console),
    "database attributes": (edits.EDITS, attributes),
}
