"""The runs of a case's race, kept beside the trials of the case's search.

A race trains a few configs for the same time, each with several random seeds, to see which config learns most.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from tuner.errors import StoreError
from tuner.records.case_record import Claim, RunRecord, StudyAttributes, read_claim, run_number
from tuner.records.schema import RACE
from tuner.store.database import Database, FileLockedError
from tuner.store.leases import BEAT_S, is_held
from tuner.study import Config, same_launch


class RaceRuns:
    """The runs of the race of one case. Raises StoreError if the case has not been searched in this database.

    Several processes may share a race. A process claims a run before it makes it, and makes one run at a time. It
    renews its claim as a sign that it lives.
    """

    def __init__(self, database: Database, study: str) -> None:
        """Find the study of a case in the database. `study`: its name. Raises StoreError if it is not there."""
        self._database = database
        self._claimed: tuple[int, Claim] | None = None
        """The number of the run that this process has claimed, and its claim."""
        self._beat_s = 0.0
        """When the claim was renewed last."""
        study_id = database.transact(lambda: database.storage.study_id(study))
        if study_id is None:
            raise StoreError(
                f"{database.shown_url} has no search of {study}; a race trains configs of a search: run `tuner "
                "optimize` first"
            )
        self._study_id: int = study_id

    def read(self) -> tuple[RunRecord, ...]:
        """Return the runs that have ended, in the order in which they began."""
        return self._database.transact(lambda: StudyAttributes(self._attributes()).race)

    def claim(self, config: Config, seed: int, is_needless: Callable[[Sequence[RunRecord]], bool]) -> bool:
        """Claim the run of a config with a seed for this process, so that no other process makes it.

        The claim of a process that is gone is taken over.

        Args:
            config: The config.
            seed: The seed.
            is_needless: Returns whether the run is not needed any more, given the runs so far.

        Returns:
            Whether the run is claimed now. It is not if another process makes it, or if it is not needed.
        """

        def try_claim() -> bool:
            """Claim the run if no living process makes it and it is needed; return whether it is claimed now."""
            number = self._next_number()
            for name, attribute in self._attributes().items():
                claimed_number, claim = run_number(name), read_claim(attribute)
                if claimed_number is None or claim is None:  # no claim
                    continue
                if claim.seed == seed and same_launch(claim.config, config):
                    if is_held(claim.lease, self._database.lives):
                        return False
                    number = claimed_number  # in place of the claim of a process that is gone
            if is_needless(self.read()):
                return False
            self._write_claim(number, Claim(config=config, seed=seed, lease=self._database.lease()))
            return True

        return self._database.transact(try_claim, exclusive=True)

    def renew_claim(self) -> None:
        """Renew the claim, if any, every `BEAT_S` seconds: so processes on other hosts know that this process lives."""
        if self._claimed and time.monotonic() - self._beat_s >= BEAT_S:
            number, claim = self._claimed
            self._beat_s = time.monotonic()
            with suppress(FileLockedError):  # the trainer itself may lock the file, so do not wait for it
                self._database.transact(
                    lambda: self._write_claim(number, replace(claim, lease=self._database.lease())), short_wait=True
                )

    def release(self) -> None:
        """Give back the claim, if any, of a run that was not made, so that another process may make the run."""
        if self._claimed:
            number, _ = self._claimed
            self._claimed = None
            self._database.transact(lambda: self._write(number, None), exclusive=True)

    def add(self, run: RunRecord) -> None:
        """Store a run that has ended, in place of its claim."""

        def store() -> None:
            """Store the run in one transaction."""
            number = self._claimed[0] if self._claimed else self._next_number()
            self._write(number, asdict(run))

        self._database.transact(store, exclusive=True)
        self._claimed = None

    def _write_claim(self, number: int, claim: Claim) -> None:
        """Store a claim of this process under the number of a run, where the run's record will stand once it ended."""
        self._claimed, self._beat_s = (number, claim), time.monotonic()
        self._write(number, {"claim": asdict(claim)})

    def _write(self, number: int, record: object) -> None:
        """Store a run or a claim under its number; None as the `record` removes it."""
        self._database.storage.set_study_user_attr(self._study_id, f"{RACE}{number:04d}", record)

    def _attributes(self) -> dict[str, object]:
        """Return the attributes of the case's study."""
        return self._database.storage.get_study_user_attrs(self._study_id)

    def _next_number(self) -> int:
        """Return the first number after those of all runs and claims."""
        numbers = [number for number in map(run_number, self._attributes()) if number is not None]
        return 1 + max(numbers, default=-1)
