"""What the trials of a case come to: what each config read, how many ended how, and what is named in their records."""

from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean

from tuner.export.records import COMPLETE, FINISHED, CaseRecord, Tally, TrialRecord
from tuner.export.trials import StoredTrial
from tuner.kept.names import INELIGIBLE
from tuner.kept.probe import OK, PRUNED
from tuner.kept.trial import failure_of
from tuner.search.standing import EndedTrial, counted, eligible
from tuner.study.launch import launched
from tuner.study.space import LADDER, Config


class CaseReadings:
    """The trials of a case, read once one after another; nothing is kept of a trial that was not read here."""

    def __init__(self, case: CaseRecord, trials: Iterable[StoredTrial | None]) -> None:
        self.readings: list[EndedTrial] = []
        """What each trial that has ended says of its config, known by its id in the database."""
        self.left_out = 0
        """So many trials are another program's, or damaged."""
        self.parameters: dict[str, None] = {}
        """The names of all parameters, as first found."""
        self.metrics: dict[str, None] = {}
        """The names of all metrics, as first found; also `beside` and `total_batch` if a trial has them."""
        self._tallies: dict[tuple[str, str | None, str | None], tuple[int, float]] = {}
        self._rungs: dict[Hashable, int] = {}
        self._speeds: dict[Hashable, dict[bool, list[float]]] = {
            _key(config): {False: [], True: []} for config in ({}, *case.kept.defaults)
        }
        for one in trials:
            if one is None:
                self.left_out += 1
            else:
                self._count(one.trial)
                if one.trial.state in FINISHED:
                    self._note(one)

    @property
    def tallies(self) -> list[Tally]:
        """How many trials ended how and where, and the seconds spent."""
        return [
            Tally(state=state, status=status, trials=trials, probe_s=probe_s, measured_on=where)
            for (state, status, where), (trials, probe_s) in self._tallies.items()
        ]

    @property
    def largest_ok(self) -> int | None:
        """The largest `num_envs` at which an eligible config has run."""
        return max((self._rungs[launch] for launch in eligible(self.readings) if launch in self._rungs), default=None)

    def usual_speed(self, default: Config) -> float | None:
        """Give the mean samples/s of a default config, of its cold readings where it has some."""
        speeds = self._speeds.get(_key(default), {})
        known: Sequence[float] = speeds.get(False) or speeds.get(True) or ()
        return fmean(known) if known else None

    def _count(self, trial: TrialRecord) -> None:
        status = INELIGIBLE if trial.probe.ineligible is not None else trial.status
        kind = trial.state, status, trial.measured_on
        trials, probe_s = self._tallies.get(kind, (0, 0.0))
        self._tallies[kind] = trials + 1, probe_s + (trial.probe.total_s or 0.0)
        self.parameters |= dict.fromkeys(trial.config)
        self.metrics |= dict.fromkeys(trial.metrics)
        known = {"beside": trial.probe.beside, "total_batch": trial.probe.total_batch}
        self.metrics |= {name: None for name, number in known.items() if number is not None}

    def _note(self, one: StoredTrial) -> None:
        trial, probe = one.trial, one.trial.probe
        rung = trial.config.get(LADDER)
        if trial.state == COMPLETE and isinstance(rung, int):
            self._rungs[probe.digest] = rung
        if probe.status in {OK, PRUNED} and probe.samples_per_s is not None:
            speeds = self._speeds.get(_key(trial.config))
            if speeds is not None:
                speeds[bool(probe.warm)].append(probe.samples_per_s)
        self.readings.append(
            EndedTrial(
                trial=one.trial_id,
                launch=probe.digest,
                state=trial.state,
                warm=bool(probe.warm),
                beside=bool(probe.beside),
                failure=failure_of(probe.status),
                retry=one.retry,
                values=counted(one.values, state=trial.state, ineligible=probe.ineligible is not None),
                samples_per_s=probe.samples_per_s,
            )
        )


def _key(config: Config) -> Hashable:
    return frozenset(launched(config).items())
