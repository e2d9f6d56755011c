"""Reads one study from the study database with SQL.

This is faster than Optuna's `trials_dataframe()`, which builds an object for every trial. It reads and checks each
trial once, a page at a time. Only what the search asks of a trial stays in memory, or the whole trial on request.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain

from sqlalchemy import Connection, Engine, and_, select

from tuner.collecting import uncollected
from tuner.errors import EmptyStoreError
from tuner.export.database import reading
from tuner.export.pooled import pooled
from tuner.export.readings import CaseReadings
from tuner.export.records import CaseRecord, Tally, TrialRecord
from tuner.export.trials import StoredTrial, stored_trials
from tuner.kept.case import KeptCase
from tuner.kept.case import decode_json as case_of
from tuner.kept.names import CASE, RACE
from tuner.kept.pages import PAGE_TRIALS
from tuner.kept.race import KeptRun, newest_scored
from tuner.kept.race import decode_json as run_of
from tuner.kept.tables import FACTS, STEPS, STUDIES, TRIALS, of_study
from tuner.search.front import front
from tuner.search.standing import best, fastest
from tuner.study.space import LADDER
from tuner.urls import shown

MOST_UNREAD = 10_000
"""More iterations than this between two reports of a probe, which come some times a second, are none."""


class StudyReader:
    """One study of a database. Each property is read once, when it is first used.

    `keeps`: a study of at most so many trials stays in memory as a whole, so that `trials` does not read it again.
    """

    def __init__(self, engine: Engine, study: str, *, keeps: int = 0) -> None:
        self.engine = engine
        self.study = study
        self._keeps = keeps
        self._whole: list[TrialRecord] | None = None
        """The trials that have been read; None where they are not kept."""

    @cached_property
    def cases(self) -> list[CaseRecord]:
        """The cases, in the order of their start. Raises EmptyStoreError if there is no such study."""
        prefix = f"{self.study}/"
        is_facts = and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == CASE)
        query = (
            select(STUDIES.c.study_id, STUDIES.c.study_name, FACTS.c.value_json)
            .outerjoin_from(STUDIES, FACTS, is_facts)
            .where(of_study(self.study))
            .order_by(STUDIES.c.study_id)
        )
        with reading(self.engine) as connection:
            rows = connection.execute(query).all()
            if not rows:
                names = connection.scalars(select(STUDIES.c.study_name))
                known = ", ".join(sorted({name.split("/", 1)[0] for name in names})) or "none"
                raise EmptyStoreError(f"{shown(self.engine.url)} has no study {self.study!r}; its studies are {known}")
        return [
            CaseRecord(study_id=number, name=name.removeprefix(prefix), kept=case_of(record) or KeptCase())
            for number, name, record in rows
        ]

    @cached_property
    def best(self) -> dict[str, TrialRecord]:
        """Case → its best config, with the pooled measurements of the config's trials. `standing.best` chooses it.

        With several objectives, the best is the member of the front with the largest first objective.
        """
        return {name: members[0] for name, members in self._leaders.items()}

    @cached_property
    def fronts(self) -> dict[str, list[TrialRecord]]:
        """Case → its Pareto front, the largest first objective first; only cases with several objectives."""
        several = {known.name for known in self.cases if len(known.objectives) > 1}
        return {name: members for name, members in self._leaders.items() if name in several}

    def fastest(self, known: CaseRecord) -> TrialRecord | None:
        """Return the fastest eligible config; None where no speed is known."""
        found = fastest(self._read[known.name].readings)
        return found and pooled(self._records(known, found.trials))

    def beside_others(self, known: CaseRecord) -> TrialRecord | None:
        """Return what the best config measured beside other probes; None where it was not measured in both ways.

        Only a study that confirms alone counts which probes ran beside others.
        """
        best = self.best.get(known.name)
        if best is None or best.probe.beside != 0:
            return None
        ended = self._read[known.name].readings
        trials = [one.trial for one in ended if one.beside and one.values and one.launch == best.probe.digest]
        return pooled(self._records(known, trials)) if trials else None

    @cached_property
    def _leaders(self) -> dict[str, list[TrialRecord]]:
        """Case → its best config or, with several objectives, its front."""
        leaders: dict[str, list[TrialRecord]] = {}
        for known in self.cases:
            ended = self._read[known.name].readings
            chosen = front(ended) if len(known.objectives) > 1 else filter(None, [best(ended)])
            if members := [pooled(self._records(known, one.trials)) for one in chosen]:
                leaders[known.name] = members
        return leaders

    @cached_property
    def _read(self) -> dict[str, CaseReadings]:
        """What the trials of each case come to."""
        self._whole = [] if self._keeps else None  # an earlier attempt may have failed half-way
        with uncollected(), reading(self.engine) as connection:
            return {
                known.name: CaseReadings(known, self._noted(self._stored(connection, known))) for known in self.cases
            }

    def _noted(self, found: Iterator[StoredTrial | None]) -> Iterator[StoredTrial | None]:
        """Yield the trials as they come, and keep them while they are few enough."""
        for one in found:
            if one and self._whole is not None:
                self._whole.append(one.trial)
                if len(self._whole) > self._keeps:
                    self._whole = None
            yield one

    @staticmethod
    def _stored(
        connection: Connection, known: CaseRecord, page_trials: int = PAGE_TRIALS
    ) -> Iterator[StoredTrial | None]:
        return stored_trials(connection, known, TRIALS.c.study_id == known.study_id, page_trials=page_trials)

    def _records(self, known: CaseRecord, trials: Sequence[int]) -> list[TrialRecord]:
        wanted = and_(TRIALS.c.study_id == known.study_id, TRIALS.c.trial_id.in_(trials))
        with reading(self.engine) as connection:
            return [one.trial for one in stored_trials(connection, known, wanted, page_trials=PAGE_TRIALS) if one]

    @cached_property
    def vs_default(self) -> dict[str, float]:
        """Case → the ratio of its best config's samples/s to those of the default config at the same rung.

        A case is missing where one of the two is unknown. A default with several probes counts with their mean, also
        the probes that the pruner stopped. Warm probes count only if there is no cold one.
        """
        best = [(known, self.best[known.name]) for known in self.cases if known.name in self.best]
        return {known.name: ratio for known, trial in best if (ratio := self.beside_default(known, trial)) is not None}

    def beside_default(self, known: CaseRecord, trial: TrialRecord) -> float | None:
        """Return the ratio of a trial's samples/s to those of the default config at its rung: see `vs_default`."""
        speed = trial.probe.samples_per_s
        usual = self._read[known.name].usual_speed(known.default_at(trial.config.get(LADDER)))
        return speed / usual if speed and usual else None

    @cached_property
    def largest_ok(self) -> dict[str, int]:
        """Case → the largest `num_envs` at which an eligible config has run, if there is one."""
        return {name: most for name, read in self._read.items() if (most := read.largest_ok) is not None}

    @cached_property
    def races(self) -> dict[str, tuple[KeptRun, ...]]:
        """Case → the runs of its race, in their order; only cases that had a race.

        Where a study has changed what it takes as the score, the runs with the newest score count.
        """
        query = (
            select(FACTS.c.study_id, FACTS.c.key, FACTS.c.value_json)
            .where(FACTS.c.study_id.in_(list(self._names)), FACTS.c.key.startswith(RACE, autoescape=True))
            .order_by(FACTS.c.study_id, FACTS.c.key)
        )
        found: dict[str, list[KeptRun]] = {}
        with reading(self.engine) as connection:
            for row in connection.execute(query):
                if run := run_of(row.value_json):
                    found.setdefault(self._names[row.study_id], []).append(run)
        return {name: tuple(newest_scored(runs)) for name, runs in found.items()}

    @cached_property
    def tallies(self) -> dict[str, list[Tally]]:
        """Case → how many of its trials have which state, status and devices, and the seconds that they took."""
        return {name: read.tallies for name, read in self._read.items()}

    @property
    def left_out(self) -> dict[str, int]:
        """Case → how many of its trials do not count: another program added them, or their records are damaged."""
        return {name: read.left_out for name, read in self._read.items()}

    def trials(self, *, page_trials: int = PAGE_TRIALS) -> Iterator[TrialRecord]:
        """Yield all trials, case by case, in the order of their numbers. Each query reads at most `page_trials`."""
        if self._keeps and self._read and self._whole is not None:
            yield from self._whole
            return
        with reading(self.engine) as connection:
            for known in self.cases:
                yield from (one.trial for one in self._stored(connection, known, page_trials) if one)

    @cached_property
    def series(self) -> dict[tuple[str, int], list[float | None]]:
        """Case and trial number → the objective after each whole iteration of the window, None where unknown.

        Trials whose steps jump by more than `MOST_UNREAD` are left out: an older version counted a trainer's own steps.
        """
        query = (
            select(TRIALS.c.study_id, TRIALS.c.number, STEPS.c.step, STEPS.c.intermediate_value)
            .join_from(TRIALS, STEPS, STEPS.c.trial_id == TRIALS.c.trial_id)
            .where(TRIALS.c.study_id.in_(list(self._names)))
            .order_by(TRIALS.c.study_id, TRIALS.c.number, STEPS.c.step)
        )
        series: dict[tuple[str, int], list[float | None]] = {}
        jumping: set[tuple[str, int]] = set()
        with reading(self.engine) as connection:
            for study_id, number, step, value in connection.execute(query):
                if not (isinstance(step, int) and isinstance(value, float | int | None)):
                    continue  # damaged
                known = series.setdefault((self._names[study_id], number), [])
                if step - len(known) > MOST_UNREAD:
                    jumping.add((self._names[study_id], number))
                else:
                    known += [None] * (step - 1 - len(known))
                    known.append(value)
        return {probe: known for probe, known in series.items() if probe not in jumping}

    @cached_property
    def fields(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of all parameters, and of all metrics, that occur in the study, in the order of appearance."""
        read = self._read.values()
        parameters = dict.fromkeys(chain.from_iterable(one.parameters for one in read))
        metrics = dict.fromkeys(chain.from_iterable(one.metrics for one in read))
        return tuple(parameters), tuple(metrics)

    @cached_property
    def _names(self) -> dict[int, str]:
        return {case.study_id: case.name for case in self.cases}
