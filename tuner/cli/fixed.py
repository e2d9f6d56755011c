"""Puts what a study has fixed for `auto` onto a workbench."""

from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Engine

from tuner.errors import EmptyStoreError
from tuner.export.query import StudyReader
from tuner.workbench import Workbench


def with_fixed_values(bench: Workbench, engine: Engine) -> Workbench:
    """Return the bench with the rungs and the batch sizes that the database has for `auto`, if it has the study."""
    rungs, batches = dict(bench.rungs), dict(bench.batches)
    with suppress(EmptyStoreError):
        for case in StudyReader(engine, bench.spec.name).cases:
            rungs |= {case.name: case.facts.rungs} if case.facts.rungs else {}
            batches |= {case.name: case.facts.batch} if case.facts.batch else {}
    return replace(bench, rungs=rungs, batches=batches)
