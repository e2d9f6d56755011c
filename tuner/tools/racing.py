"""Runs a race: trains its configs in turns, keeps each run, and says how the race stands and what it comes to.

A race trains a few configs for the same time, each with several random seeds, to see which config learns most. The
score of a run is what its trainer prints as the return. In each round, the better half of the configs goes on (see
`rounds`). Several processes may share a race: each claims a run before it makes it.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from statistics import median
from typing import NamedTuple

from tuner.errors import StoreError, TrainerError
from tuner.export import CaseView, figure, in_words, no_best, score_text
from tuner.probe import (
    SAMPLES_PER_S,
    Answer,
    Blame,
    Failure,
    FailureKind,
    Next,
    ProbeResult,
    number_of,
    without_rough_speed,
)
from tuner.records.case_record import RunRecord, scored_by
from tuner.running.job import Job
from tuner.running.prober import run_in
from tuner.search.scores import Mean, RaceStanding, are_constant, lead_of, means, standings, thinned
from tuner.search.standing import Standing, undominated_in_value_and_speed
from tuner.store.races import RaceRuns
from tuner.study import Case, Config, ProbeSpec, grouped, launch_digest, launched, same_launch


class Round(NamedTuple):
    """A round of a race."""

    configs: int
    """How many configs train."""
    seconds: float
    """How long each run trains."""
    seeds: tuple[int, ...]
    """The random seeds: each config has a run with each."""


def rounds(configs: int, *, seeds: int, total_s: float) -> list[Round]:
    """Return the rounds of a race whose runs train for `total_s` seconds together; two configs are in the last round.

    The better half of the configs goes on to the next round, whose runs take twice as long. Each run begins from
    scratch, with a seed that no other round uses. So 5 configs make rounds of 5, 3 and 2, with runs of 1, 2 and 4 parts
    of the time.
    """
    sizes = [configs]
    while sizes[-1] > 2:
        sizes.append((sizes[-1] + 1) // 2)
    parts = seeds * sum(size * 2**index for index, size in enumerate(sizes))
    first_s = total_s / parts  # of a run in the first round
    return [
        Round(configs=size, seconds=first_s * 2**index, seeds=tuple(range(index * seeds, (index + 1) * seeds)))
        for index, size in enumerate(sizes)
    ]


def better_half(scores: Sequence[float | None]) -> list[int]:
    """Return which configs go on after a round: the positions of the better half, the best first.

    `scores`: the mean score of each config; None where it has none. At least two go on, if two have a score.
    """
    scored = [place for place, score in enumerate(scores) if score is not None]
    best_first = sorted(scored, key=lambda place: -(scores[place] or 0.0))
    return best_first[: max(2, (len(scores) + 1) // 2)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrant:
    """A config of a race: why it takes part, and what the search measured of it."""

    config: Config
    why: str
    """Why the config takes part, such as `best of the search`; several reasons are separated by commas."""
    measured: Mapping[str, float]
    """Metric → its mean over the config's probes: the study's first objective, and samples/s. Empty if not measured."""
    shared: frozenset[str] = frozenset()
    """The parameters that have the same value in all configs of the race."""

    def __hash__(self) -> int:
        return hash(launch_digest(self.config))

    @property
    def differing(self) -> str:
        """The parameters in which the config differs from others of the race, as one line of NAME=VALUE."""
        return in_words({name: value for name, value in self.config.items() if name not in self.shared})

    def __str__(self) -> str:
        return f"{self.differing} ({self.why})"


def entrants(case: CaseView, *, also: Sequence[int] = ()) -> list[Entrant]:
    """Return the configs that take part: the best, the fastest, the default of the best's rung, and a compromise.

    The compromise does well in the first objective and in samples/s: see `_between`. The configs of the trials with the
    numbers in `also` take part, too. Raises StoreError for fewer than two different configs, and an unknown trial.
    """
    # the configs, each with why it takes part
    best, fastest = case.best, case.fastest
    if best is None:
        raise StoreError(no_best(case.name))
    chosen: list[tuple[str, Config]] = [("best of the search", best.config)]
    chosen += [("most samples/s", fastest.config)] if fastest else []
    chosen += [("default", default)] if (default := case.default_for(best.config)) else []
    taken = {launch_digest(config) for _, config in chosen}
    if fastest and (between := _between(case.configs, taken)):
        chosen.append(("between", between.config))
    configs_of_trials = {trial.number: trial.config for trial in case.trials if trial.config}
    for number in also:
        if number not in configs_of_trials:
            raise StoreError(f"--trial {number}: {case.name} has no measured trial of this number; see trials.tsv")
        chosen.append((f"trial #{number}", configs_of_trials[number]))
    # a config that was chosen twice has one launch key: it takes part once, with both reasons
    configs = {launch_digest(config): launched(config) for _, config in chosen}
    reasons = grouped(chosen, lambda reason_and_config: launch_digest(reason_and_config[1]))
    if len(configs) < 2:
        raise StoreError(
            f"a race of {case.name} needs two configs: the best of its search is also the fastest and the default; "
            "name a trial with another config: --trial NUMBER"
        )
    first = next(iter(configs.values()))
    shared = frozenset(name for name in first if all(config.get(name) == first[name] for config in configs.values()))
    measured = _measured(case)
    return [
        Entrant(
            config=config,
            why=", ".join(reason for reason, _ in reasons[digest]),
            measured=measured.get(digest, {}),
            shared=shared,
        )
        for digest, config in configs.items()
    ]


def _measured(case: CaseView) -> dict[str, dict[str, float]]:
    """Return launch key → what the search measured of this config: the first objective, and samples/s if known."""
    measured: dict[str, dict[str, float]] = {}
    for standing in case.configs:
        if standing.is_eligible:
            speed = {} if standing.samples_per_s is None else {SAMPLES_PER_S: standing.samples_per_s}
            measured[launch_digest(standing.config)] = {case.objectives[0]: standing.value, **speed}
    return measured


def _between(configs: Sequence[Standing], taken: set[str]) -> Standing | None:
    """Return a compromise: the config on the Pareto front of the first objective and samples/s that is best by maximin.

    Both numbers are scaled from 0 to 1, from the smallest to the largest on the front, and the smaller of the two
    counts. None where all configs on the front are `taken`, by their launch keys.
    """
    front = undominated_in_value_and_speed(standing for standing in configs if standing.samples_per_s is not None)
    candidates = [standing for standing in front if launch_digest(standing.config) not in taken]
    values, speeds = [point.value for point in front], [point.samples_per_s or 0.0 for point in front]

    def scaled(number: float, numbers: Sequence[float]) -> float:
        """Return where a number lies between the smallest and the largest, from 0 to 1."""
        return (number - min(numbers)) / ((max(numbers) - min(numbers)) or 1.0)

    def weaker_side(point: Standing) -> float:
        """Return the smaller one of a config's two scaled numbers."""
        return min(scaled(point.value, values), scaled(point.samples_per_s or 0.0, speeds))

    return max(candidates, key=weaker_side, default=None)


def run_limits(probe: ProbeSpec, seconds: float) -> ProbeSpec:
    """Return the limits of a run that trains for `seconds`.

    A quarter of its time is enough to measure its samples per second. Its devices are read at most once a second: a
    long run would otherwise keep very many readings.
    """
    window_s, sample_s = min(probe.window_seconds, 0.25 * seconds), max(1.0, probe.sample_seconds)
    return probe.timed(seconds).model_copy(update={"window_seconds": window_s, "sample_seconds": sample_s})


class RunFollower:
    """Follows a run: keeps its scores, and ends it once it has trained long enough."""

    def __init__(self, seconds: float, interrupted: Callable[[], bool]) -> None:
        """Follow a run of a race, whose scores say how much it has learnt.

        Args:
            seconds: How long the run trains, without its start-up.
            interrupted: Returns whether the user wants to stop; then the run ends at once.
        """
        self._seconds, self._interrupted = seconds, interrupted
        self.curve: list[tuple[float, float]] = []
        """The finite scores in order: seconds of training, and the score then."""
        self.trained_s = 0.0
        """The seconds since the start-up ended."""
        self.longest_s = 0.0
        """The seconds of the longest iteration after the start-up."""
        self._last_s = -1.0
        """The time of the newest score."""
        self._not_finite = self._longest_not_finite = 0
        """How many of the last scores in a row are not finite; and the longest such row that a finite score ended."""

    def __call__(self, so_far: ProbeResult | None) -> Answer:
        """Keep the newest score, and return whether the run goes on.

        `so_far`: its result after the newest iteration; None at calls between iterations, to which `GO` is the answer.
        """
        if self._interrupted():
            return Answer(Next.INTERRUPTED)
        if so_far is None:
            return Answer(Next.GO)
        trained_s = so_far.total_s - (so_far.start_up_s or so_far.total_s)  # 0 before the start-up has ended
        self.longest_s, self.trained_s = max(self.longest_s, trained_s - self.trained_s), trained_s
        self.note(so_far)
        # beyond the usual number of iterations, with a result after each of them, because each may have a new score
        return Answer(Next.ENOUGH) if self.is_complete else Answer(Next.MORE, next_result_s=0.0)

    @property
    def is_complete(self) -> bool:
        """Whether the run has trained long enough, even if its window is too short for a probe."""
        return self.trained_s >= self._seconds

    @property
    def failure(self) -> str | None:
        """Why the training has diverged, so that its config leaves the race; None where it has not diverged.

        It has if it ends with a row of scores that are not finite, longer than any such row before. A shorter row is no
        failure: a mean over episodes is not finite while no episode ends.
        """
        if self._not_finite > self._longest_not_finite:
            return f"diverged: no finite number in the last {number_of(self._not_finite, 'return')} of the run"
        return None

    def note(self, result: ProbeResult) -> None:
        """Keep the score of a result in the curve, if it is new; a score that is not finite is only counted."""
        score = result.score
        if score is None or score.t_s <= self._last_s or result.start_up_s is None:  # none, kept, or before training
            return
        self._last_s = score.t_s
        if not isfinite(score.value):
            self._not_finite += 1
            return
        self._longest_not_finite = max(self._longest_not_finite, self._not_finite)
        self._not_finite = 0
        self.curve.append((max(0.0, score.t_s - result.start_up_s), score.value))


Place = RaceStanding[Entrant]
"""Where a config stands in a race."""


class Race:
    """The race of one case, whose runs are made in rounds of successive halving."""

    def __init__(
        self,
        job: Job,
        case: Case,
        runs: RaceRuns,
        say: Callable[[str], None],
        *,
        configs: Sequence[Entrant],
        seeds: int,
        total_s: float,
    ) -> None:
        """Plan the race.

        Args:
            job: What the runs are made with.
            case: The case that is trained.
            runs: The runs so far, which the study keeps.
            say: Takes a line about what happens.
            configs: The configs that take part.
            seeds: The runs of each config in each round.
            total_s: The seconds that all runs take together, without their start-ups.
        """
        self._job, self._case, self._runs, self._say = job, case, runs, say
        self._entrants = list(configs)
        self.rounds = rounds(len(configs), seeds=seeds, total_s=total_s)

    def run(self) -> list[Place]:
        """Make the runs that are missing, and return how the configs stand.

        Those that trained longest come first, and of these the best score.

        A race that is interrupted, or whose time is over, returns how it stands then; another call continues it. Raises
        TrainerError where the machine or the set-up is at fault, and where the first run gives no score.
        """
        entrants = list(self._entrants)
        for race_round in self.rounds:
            is_complete = self._run_round(race_round, entrants)
            if not is_complete:
                break
            scores = means(self._runs_of(entrants), race_round.seconds)
            order = better_half([scores[entrant].value if entrant in scores else None for entrant in entrants])
            entrants = [entrants[place] for place in order]
            if len(entrants) < 2:  # the others have failed
                break
        return standings(self._runs_of(self._entrants))

    def _past_runs(self) -> list[RunRecord]:
        """Return the runs so far whose scores compare: those before the study named another source are left out."""
        return scored_by(self._runs.read(), self._job.bench.trainer.score_source)

    def _runs_of(self, entrants: Sequence[Entrant]) -> dict[Entrant, list[RunRecord]]:
        """Return the runs so far of each of some configs."""
        runs = self._past_runs()
        return {entrant: [run for run in runs if same_launch(run.config, entrant.config)] for entrant in entrants}

    def _run_round(self, race_round: Round, entrants: Sequence[Entrant]) -> bool:
        """Make the missing runs of a round, and return whether the round is complete.

        Wait for runs that other processes make, where the job can wait.
        """
        is_waiting = False
        while True:
            runs_elsewhere = self._make_missing(race_round, entrants)
            if runs_elsewhere == 0:
                return True
            if runs_elsewhere is None or self._job.wait is None:  # the race stops, or it cannot wait
                return False
            if not is_waiting:
                self._say("waiting for runs of this race that other processes make")
            is_waiting = True
            self._job.wait()

    def _make_missing(self, race_round: Round, entrants: Sequence[Entrant]) -> int | None:
        """Make the missing runs of a round, and return the number of its runs that other processes make now.

        Returns None where the race stops: on the user's wish, or because too little time is left for a run.
        """
        runs_elsewhere = 0
        for seed, entrant in itertools.product(race_round.seeds, entrants[: race_round.configs]):
            is_needless = partial(self._is_needless, entrant, seed, race_round.seconds)
            if is_needless(self._runs.read()):
                continue
            if self._job.interrupted() or not self._job.has_time(self._expected_s(race_round.seconds)):
                return None
            if not self._runs.claim(entrant.config, seed, is_needless=is_needless):  # another process makes this run
                runs_elsewhere += 1
            elif not self._run_claimed(entrant, seed, race_round.seconds):
                return None
        return runs_elsewhere

    def _is_needless(self, entrant: Entrant, seed: int, seconds: float, runs: Sequence[RunRecord]) -> bool:
        """Return whether a config needs no run with this seed any more, by all `runs` so far.

        It needs none if such a run has trained for `seconds` or more, or if the config has left the race.
        """
        return any(
            run.why_out or (run.seed == seed and run.seconds >= seconds)
            for run in scored_by(runs, self._job.bench.trainer.score_source)
            if same_launch(run.config, entrant.config)
        )

    def _run_claimed(self, entrant: Entrant, seed: int, seconds: float) -> bool:
        """Make and store a run that this process has claimed; return False where the user has stopped it.

        Raises TrainerError where the machine or the set-up is at fault, and where the runs so far give no scores.
        """
        try:
            self._say(f"training {entrant}, seed {seed}, for {seconds:.0f} s")
            run = self._train(entrant, seed, seconds)
            if run is None:
                return False
            self._check_scored(run)
            self._runs.add(run)
        finally:
            self._runs.release()  # does nothing once the run is stored
        scored = f"{len(run.curve)} scores, the last {figure(run.curve[-1][1])}" if run.curve else "no score"
        self._say(f"  {run.why_out or f'{run.trained_s:.0f} s of training, {scored}'}")
        return True

    def _keep_claim(self) -> bool:
        """Renew the claim, as a sign to other processes that this one lives; return whether the user wants to stop."""
        self._runs.renew_claim()
        return self._job.interrupted()

    def _expected_s(self, seconds: float) -> float:
        """Return the seconds that a run will take: those of its training, and the median of all starts so far.

        A mean would be too long: the first start on a machine may compile kernels for minutes.
        """
        starts_s = [run.start_up_s for run in self._runs.read() if run.start_up_s is not None]
        return seconds + (median(starts_s) if starts_s else 0.0)

    def _check_scored(self, run: RunRecord) -> None:
        """Raise TrainerError where no run so far has a score, or no score changes: further runs would be useless."""
        if run.failure:  # it says nothing about scores
            return
        curves = [past.curve for past in (*self._past_runs(), run) if past.failure is None]
        if not any(curves):
            problem = f"{in_words(run.config)} gave no return in {run.seconds:.0f} s of training"
        elif len(curves) > 1 and are_constant(curves):
            problem = f"no return changed within any of its {len(curves)} runs"
        else:
            return
        raise TrainerError(
            f"the race stopped: {problem}; let the study name what the trainer prints as its return ("
            "MimicKit: `trainer.options.score_row`; a command: the group `return` in `progress`), or give more "
            "--train-hours: the first runs are the shortest"
        )

    def _train(self, entrant: Entrant, seed: int, seconds: float) -> RunRecord | None:
        """Train a config from scratch, and return the record of the run; None where the user stopped it.

        A failure of the config is kept in the record. Raises TrainerError where the machine or the set-up is at fault,
        and where an iteration takes longer than the run, so that it has no score of a trained config.
        """
        bench = self._job.bench
        follower = RunFollower(seconds, self._keep_claim)
        slot = bench.slot(self._case, f"races/{self._case.name}/{len(self._runs.read()):04d}", entrant.config)
        try:
            result = run_in(
                replace(slot, limits=run_limits(slot.limits, seconds), seed=seed),
                partial(bench.trainer.plan, self._case, entrant.config),
                lambda plan: without_rough_speed(self._job.probe(plan, follower)),
            )
        except TrainerError as refusal:
            failure = Failure(kind=FailureKind.INVALID_CONFIG, rule="trainer", detail=str(refusal))
            return RunRecord(config=entrant.config, seed=seed, seconds=seconds, failure=_in_words(failure))
        # where no score came after a training iteration, those of all configs show nothing learnt
        if follower.longest_s > seconds and not any(0.0 < at_s <= seconds for at_s, _ in follower.curve):
            raise TrainerError(
                f"the race stopped: an iteration of {in_words(entrant.config)} took {follower.longest_s:.0f} s, and a "
                f"run trains for {seconds:.0f} s; give more --train-hours: the first runs are the shortest"
            )
        follower.note(result)  # with the score after the last answer, if any
        failure = None if follower.is_complete else result.failure  # a window too short for a probe is no failure
        if failure and failure.kind == FailureKind.INTERRUPTED:
            return None
        if failure and failure.kind.blame in {Blame.HOST, Blame.SETUP}:  # they say nothing about the config
            raise TrainerError(
                f"the race stopped at {in_words(entrant.config)}: {_in_words(failure)}; whole runs are kept; "
                "rerun to resume"
            )
        return RunRecord(
            config=entrant.config,
            seed=seed,
            seconds=seconds,
            start_up_s=result.start_up_s,
            trained_s=follower.trained_s,
            samples_per_s=result.samples_per_s,
            curve=thinned(follower.curve),
            score_source=bench.trainer.score_source,
            failure=_in_words(failure) if failure else follower.failure,
            host=result.host,
        )


def _in_words(failure: Failure) -> str:
    """Return the kind of a failure and what shows it, as text."""
    return f"{failure.kind.value}: {failure.detail}"


def verdict(places: Sequence[Place]) -> Iterator[str]:
    """Yield the sentences about a race: which configs left it, which learns most, and how sure that is.

    `places`: how the configs stand, the best first.
    """
    # only those that trained as long as the first: scores after shorter runs do not compare
    finalists = [(place, place.mean) for place in places if place.mean and place.seconds == places[0].seconds]
    yield from (f"{place.entrant} left the race: {place.failure}" for place in places if place.failure)
    if not finalists:
        yield "No run has a score yet, so nothing is known about what is learnt."
        return
    first, mean = finalists[0]
    yield (
        f"{first.entrant} learns most: {score_text(mean.value, mean.error)} after {first.seconds:.0f} s of training, "
        f"mean of {number_of(mean.runs, 'run')}."
    )
    if len(finalists) > 1:
        second, second_mean = finalists[1]
        yield _distance_of_second(second.entrant, second_mean, winner=mean)
    devices = {run.host["devices"] for place in places for run in place.runs if run.host.get("devices")}
    if len(devices) > 1:
        names = "; ".join(sorted(devices))
        yield f"The runs had {len(devices)} sets of devices: {names}. This alone may change scores."


def _distance_of_second(second: Entrant, mean: Mean, *, winner: Mean) -> str:
    """Return a sentence: how far the second is behind the winner, and the p-value of this distance.

    The p-value is how often two equal configs would differ so much. `mean` is the second's mean score, `winner` the
    winner's.
    """
    lag = f"{second} follows with {score_text(mean.value, mean.error)}"
    lead = lead_of(winner, mean)
    if lead is None and max(winner.runs, mean.runs) < 2:
        return f"{lag}. How sure this is cannot be said: each of the two was trained with one seed."
    if lead is None:
        return f"{lag}. The seeds make no difference: each config's runs have one score. Does the command use {{seed}}?"
    often = f"{100 * lead.chance:.0f} %" if lead.chance >= 0.01 else "less than 1 %"  # a few seeds do not show less
    lag += f", {lead.errors:.1f} standard errors behind. Two equal configs would differ so in {often} of races"
    return f"{lag}." if lead.is_clear else f"{lag}: the winner is not clear, and more hours or seeds may tell."
