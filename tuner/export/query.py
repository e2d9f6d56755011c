"""Reads one study from the study database with SQL. Optuna's `trials_dataframe()` builds an object for every trial.

To find the best, only a few columns are read. The database counts the trials. Whole trials are read a page at a time.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, and_, case, func, select

from tuner.errors import EmptyStoreError
from tuner.export.database import (
    FACTS,
    PROBE_OF_TRIAL,
    PROBES,
    STATE,
    STEPS,
    STUDIES,
    TRIALS,
    VALUES,
    probe_columns,
    reading,
)
from tuner.export.pooled import pooled
from tuner.export.readings import stored_readings
from tuner.export.records import COMPLETE, CaseRecord, Tally, TrialRecord, status_of
from tuner.kept.case import KeptCase
from tuner.kept.case import decode_json as case_of
from tuner.kept.columns import ProbeColumns
from tuner.kept.names import CASE, INELIGIBLE
from tuner.kept.probe import OK, PRUNED, KeptProbe
from tuner.kept.probe import decode_json as probe_of
from tuner.search.front import front
from tuner.search.standing import Reading, best, eligible, fastest
from tuner.search.trials import same_launch
from tuner.study.space import LADDER, Config
from tuner.urls import shown

PAGE_TRIALS = 1000
"""The number of trials in a page. On SQLite a read makes writers wait, so each read must be short."""

MOST_UNREAD = 10_000
"""More iterations than this between two reports of a probe, which come some times a second, are none."""


class StudyReader:
    """One study of a database. Each property is read once, when it is first used."""

    def __init__(self, engine: Engine, study: str) -> None:
        self._engine = engine
        self.study = study

    @cached_property
    def cases(self) -> list[CaseRecord]:
        """The cases, in the order of their start. Raises EmptyStoreError if there is no such study."""
        prefix = f"{self.study}/"
        is_facts = and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == CASE)
        query = (
            select(STUDIES.c.study_id, STUDIES.c.study_name, FACTS.c.value_json)
            .outerjoin_from(STUDIES, FACTS, is_facts)
            .where(func.substr(STUDIES.c.study_name, 1, len(prefix)) == prefix)
            .order_by(STUDIES.c.study_id)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
            if not rows:
                names = connection.scalars(select(STUDIES.c.study_name))
                known = ", ".join(sorted({name.split("/", 1)[0] for name in names})) or "none"
                raise EmptyStoreError(f"{shown(self._engine.url)} has no study {self.study!r}; its studies are {known}")
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
        found = fastest(self._readings[known.study_id])
        return found and pooled(self._records(found.trials))

    @cached_property
    def _leaders(self) -> dict[str, list[TrialRecord]]:
        """Case → its best config or, with several objectives, its front."""
        leaders: dict[str, list[TrialRecord]] = {}
        for known in self.cases:
            ended = self._readings[known.study_id]
            chosen = front(ended) if len(known.objectives) > 1 else filter(None, [best(ended)])
            if members := [pooled(self._records(one.trials)) for one in chosen]:
                leaders[known.name] = members
        return leaders

    @cached_property
    def _readings(self) -> dict[int, list[Reading]]:
        """Id of a case's study → what its trials say about their configs."""
        with reading(self._engine) as connection:
            return {study_id: stored_readings(connection, study_id) for study_id in self._names}

    def _records(self, trials: Sequence[int]) -> list[TrialRecord]:
        query = _whole_trials().where(TRIALS.c.trial_id.in_(trials)).order_by(TRIALS.c.trial_id)
        with reading(self._engine) as connection:
            return [self._trial(row) for row in connection.execute(query)]

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
        usual = self._usual_speed(known, known.default_at(trial.config.get(LADDER)))
        return speed / usual if speed and usual else None

    def _usual_speed(self, known: CaseRecord, wanted: Config) -> float | None:
        probe, rung = self._probe, wanted.get(LADDER)
        query = (
            select(probe.config, probe.samples_per_s, probe.warm)
            .join_from(TRIALS, PROBES, PROBE_OF_TRIAL)
            .where(TRIALS.c.study_id == known.study_id, probe.rung.is_not_distinct_from(rung))
            .where(probe.status.in_((OK, PRUNED)), probe.samples_per_s.is_not(None))
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        same = [(number, warm) for probed, number, warm in rows if same_launch(probed, wanted)]
        speeds = [number for number, warm in same if not warm] or [number for number, _ in same]
        return fmean(speeds) if speeds else None

    @cached_property
    def largest_ok(self) -> dict[str, int]:
        """Case → the largest `num_envs` at which an eligible config has run, if there is one."""
        ran = {trial for ended in self._readings.values() for one in eligible(ended).values() for trial in one.trials}
        rung = self._probe.rung
        query = (
            select(TRIALS.c.study_id, TRIALS.c.trial_id, rung)
            .join_from(TRIALS, PROBES, PROBE_OF_TRIAL)
            .where(TRIALS.c.study_id.in_(list(self._names)), STATE == COMPLETE, rung.is_not(None))
            .order_by(rung)
        )
        with reading(self._engine) as connection:
            return {self._names[study_id]: most for study_id, trial, most in connection.execute(query) if trial in ran}

    @cached_property
    def tallies(self) -> dict[str, list[Tally]]:
        """Case → how many of its trials have which state, status and devices, and the seconds that they took."""
        probe = self._probe
        ends = (
            select(
                TRIALS.c.study_id,
                STATE.label("state"),
                case((probe.ineligible.is_not(None), INELIGIBLE), else_=probe.status).label("status"),
                probe.measured_on.label("measured_on"),
                probe.total_s.label("total_s"),
            )
            .outerjoin_from(TRIALS, PROBES, PROBE_OF_TRIAL)
            .where(TRIALS.c.study_id.in_(list(self._names)))
            .subquery()
        )
        kinds = (ends.c.study_id, ends.c.state, ends.c.status, ends.c.measured_on)
        query = select(*kinds, func.count(), func.coalesce(func.sum(ends.c.total_s), 0.0)).group_by(*kinds)
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(*kinds)).all()
        tallies: dict[str, list[Tally]] = {name: [] for name in self._names.values()}
        for study_id, state, reported, where, count, spent_s in rows:
            status = status_of(state, reported)
            tally = Tally(state=state, status=status, trials=count, probe_s=spent_s, measured_on=where)
            tallies[self._names[study_id]].append(tally)
        return tallies

    def trials(self, *, page_trials: int = PAGE_TRIALS) -> Iterator[TrialRecord]:
        """Yield all trials, case by case, in the order of their numbers. Each query reads at most `page_trials`."""
        with reading(self._engine) as connection:
            for study_id in self._names:
                of_case = _whole_trials().where(TRIALS.c.study_id == study_id)
                yield from map(self._trial, _pages(connection, of_case, page_trials))

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
        with reading(self._engine) as connection:
            for study_id, number, step, value in connection.execute(query):
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
        parameters: dict[str, None] = {}
        metrics: dict[str, None] = {}
        for trial in self.trials():
            parameters |= dict.fromkeys(trial.config)
            metrics |= dict.fromkeys(trial.metrics)
        return tuple(parameters), tuple(metrics)

    @cached_property
    def _names(self) -> dict[int, str]:
        return {case.study_id: case.name for case in self.cases}

    @property
    def _probe(self) -> ProbeColumns:
        return probe_columns(self._engine)

    def _trial(self, row: Row[Any]) -> TrialRecord:
        return TrialRecord(
            case=self._names[row.study_id],
            number=row.number,
            state=row.state,
            value=row.value,
            started=row.datetime_start,
            completed=row.datetime_complete,
            probe=probe_of(row.value_json) or KeptProbe(),
        )


def _whole_trials() -> Select[Any]:
    first_value = and_(VALUES.c.trial_id == TRIALS.c.trial_id, VALUES.c.objective == 0)
    return (
        select(*TRIALS.c, VALUES.c.value, PROBES.c.value_json)
        .outerjoin_from(TRIALS, VALUES, first_value)
        .outerjoin(PROBES, PROBE_OF_TRIAL)
    )


def _pages(connection: Connection, query: Select[Any], page_trials: int) -> Iterator[Row[Any]]:
    ordered = query.order_by(TRIALS.c.trial_id).limit(page_trials)
    page = connection.execute(ordered).all()
    while page:
        connection.rollback()  # release locks and snapshot while the caller works on the page
        yield from page
        page = connection.execute(ordered.where(TRIALS.c.trial_id > page[-1].trial_id)).all()
