"""Puts what a study has fixed for `auto` onto a workbench."""

from dataclasses import replace

from sqlalchemy import Engine

from tuner.export.facts import fitted_batches, fixed_rungs
from tuner.workbench import Workbench


def with_fixed_values(bench: Workbench, engine: Engine) -> Workbench:
    """Return the bench with the rungs and the batch sizes that the database has for `auto`.

    Raises EmptyStoreError where the database has no study yet.
    """
    name = bench.spec.name
    return replace(bench, rungs=fixed_rungs(engine, name), batches=fitted_batches(engine, name))
