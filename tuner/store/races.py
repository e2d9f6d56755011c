"""The runs of a case's race, kept beside the trials of the case's search."""

from tuner.errors import StoreError
from tuner.kept.names import RACE
from tuner.kept.race import KeptRun, encode, place
from tuner.kept.study import KeptStudy
from tuner.store.database import Database


class RaceRuns:
    """The runs of the race of one case. Raises StoreError if the case has not been searched in this database."""

    def __init__(self, database: Database, study: str) -> None:
        self._database = database
        found = database.transact(lambda: database.storage.study_id(study))
        if found is None:
            raise StoreError(
                f"{database.shown_url} has no search of {study}; a race trains configs of a search: run `tuner "
                "optimize` first"
            )
        self._study_id: int = found

    def read(self) -> tuple[KeptRun, ...]:
        """Return the runs so far, in the order in which they ended."""
        return self._database.transact(self._runs)

    def add(self, run: KeptRun) -> None:
        """Store a run that has ended."""

        def added() -> None:
            storage = self._database.storage
            taken = [place(name) for name in storage.get_study_user_attrs(self._study_id)]
            number = 1 + max((one for one in taken if one is not None), default=-1)
            storage.set_study_user_attr(self._study_id, f"{RACE}{number:04d}", encode(run))

        self._database.transact(added, alone=True)

    def _runs(self) -> tuple[KeptRun, ...]:
        return KeptStudy(self._database.storage.get_study_user_attrs(self._study_id)).race
