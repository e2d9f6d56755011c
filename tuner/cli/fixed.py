"""Opens a study's database to read it, and puts what the study has fixed for `auto` onto a workbench."""

from dataclasses import replace

from sqlalchemy import Engine

from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.store.leases import is_held
from tuner.workbench import Workbench


def open_reader(url: str, study: str) -> StudyReader:
    """Open a study to read it; a trial whose process is gone counts as interrupted. Raises StoreError."""
    return StudyReader(connect(url), study, is_held=is_held)


def with_fixed_values(bench: Workbench, engine: Engine) -> Workbench:
    """Return the bench with the rungs and the batch sizes that the database has for `auto`.

    Raises EmptyStoreError where the database has no study yet.
    """
    known = {case.name: case.facts for case in StudyReader(engine, bench.spec.name).cases}
    rungs = {name: facts.rungs for name, facts in known.items() if facts.rungs}
    batches = {name: facts.batch for name, facts in known.items() if facts.batch}
    return replace(bench, rungs=rungs, batches=batches)
