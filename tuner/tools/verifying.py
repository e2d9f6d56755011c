"""Measures a person's own command and the best of a study again, in turns, and says whether their speeds still hold.

A config is surely slower if its speed is below `at_least` times the speed in the study, such as 0.99. A session is a
started trainer that serves several probes, in which a config may be faster than by the trainer's plain command.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import count
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from tuner import probe
from tuner.count import differences
from tuner.errors import StudyError, TrainerError
from tuner.export import SPEEDS, CaseView, figure, in_words, no_best, with_error
from tuner.probe import Quantity, error_of_mean, student_tail
from tuner.records.case_record import FACTS, changed_facts
from tuner.running.job import Budget, Job
from tuner.running.prober import run_in
from tuner.search.standing import Standing
from tuner.search.verdict import next_answer
from tuner.store import opening
from tuner.study import Case, Config, launch_digest

FALSE_ALARM = 0.01
"""The probability with which a test calls a config slower that is just as fast as it must be. Chosen."""
PRECISE = 0.02
"""A test needs no more runs once it sees a slowdown that is larger than the allowed one by this share. Chosen."""


class Scatter(NamedTuple):
    """How far the speeds of several runs of one config lie apart."""

    share: float
    """The standard deviation as a share of the speed."""
    freedom: int
    """The degrees of freedom of this estimate."""


def scatter(configs: Iterable[Sequence[Quantity]]) -> Scatter:
    """Return how far the runs of one config scatter: the pooled relative standard deviation of several configs.

    `configs`: for each config the speeds of its runs, two at least. The scatter is 0.3 % at least (chosen): runs may be
    equal by chance.
    """
    squares, freedom = 0.0, 0
    for runs in configs:
        mean = fmean(run.value for run in runs)
        squares += sum((run.value / mean - 1.0) ** 2 for run in runs)
        freedom += len(runs) - 1
    return Scatter(max(math.sqrt(squares / freedom), 0.003), freedom)


def mean(runs: Sequence[Quantity], scatter: Scatter) -> Quantity:
    """Return the mean speed of some runs of a config, with its standard error.

    The error is the larger of two estimates: from these runs alone, and from the `scatter` of all configs' runs.
    """
    value = fmean(run.value for run in runs)
    by_runs = error_of_mean([run.value for run in runs], [run.error for run in runs]) or 0.0
    by_scatter = value * scatter.share / math.sqrt(len(runs))
    return Quantity(value, max(by_runs, by_scatter))


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
    """How fast a config is now in multiples of its speed in the study, and how sure that is."""

    ratio: float
    error: float
    """The standard error of `ratio`."""
    of_study: float
    """The part of this error that comes from the study, and that more runs do not reduce."""
    freedom: int
    """The degrees of freedom of the error."""

    @classmethod
    def of(cls, now: Sequence[Quantity], before: Quantity, readings: int, scatter: Scatter) -> "Slowdown":
        """Return how the speeds of new runs compare with the speed that the study has measured.

        Args:
            now: The speed of each new run.
            before: The speed in the study.
            readings: The number of measurements of which `before` is the mean.
            scatter: How far new runs lie apart. Those of the study are taken to scatter as much.
        """
        mean_now = mean(now, scatter)
        # the standard error of the speed in the study, as a share of it
        error_share = max((before.error or 0.0) / before.value, scatter.share / math.sqrt(readings))
        ratio = mean_now.divided_by(Quantity(before.value, error_share * before.value))
        of_study = ratio.value * error_share
        return cls(ratio=ratio.value, error=ratio.error or 0.0, of_study=of_study, freedom=scatter.freedom)

    def is_below(self, at_least: float, delayed_share: float = 0.0) -> bool:
        """Return whether the config is surely slower than `at_least` times its speed in the study (Student's t test).

        `delayed_share` is the share of its time in which it waited for a processor that other programs used. The speed
        is judged as if it had not waited: those programs may be at fault.
        """
        ratio_without_delays = self.ratio / (1.0 - delayed_share)
        return at_least - ratio_without_delays >= self._critical_errors * self.error

    def is_above(self, at_least: float) -> bool:
        """Return whether the config is surely faster than `at_least` times its speed in the study."""
        return self.ratio - at_least >= self._critical_errors * self.error

    @property
    def detectable(self) -> float:
        """The slowdown that the test sees with 90 % probability (chosen): the share of speed lost beyond `at_least`."""
        return (self._critical_errors + NormalDist().inv_cdf(0.9)) * self.error

    @property
    def is_precise(self) -> bool:
        """Whether no more runs are needed: small slowdowns are seen, or more than 90 % of the error is the study's."""
        return self.detectable <= PRECISE or self.of_study > 0.9 * self.error

    def power(self, slowdown: float, at_least: float) -> float:
        """Return the power of the test: the probability with which it sees a `slowdown`, such as 0.03 for 3 %."""
        return NormalDist().cdf((at_least - (1.0 - slowdown)) / self.error - self._critical_errors)

    @property
    def _critical_errors(self) -> float:
        """How many standard errors a difference must have to be sure, by Student's one-sided test, in steps of 0.01."""
        steps = (0.01 * step for step in count(1))
        both_tails = 2 * FALSE_ALARM  # of which `student_tail` is the probability
        return next(errors for errors in steps if student_tail(errors, self.freedom) <= both_tails)


class Outcome(IntEnum):
    """What a verification finds out about the best config of a study; the number is the exit code of the command."""

    HOLDS = 0
    """Nothing is surely slower."""
    SLOWER = 1
    """The best is surely slower."""
    UNKNOWN = 2
    """It cannot be said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedConfig:
    """A config that is measured again, with its runs so far."""

    name: str
    """What the user calls it, such as `your command`."""
    in_study: Standing
    """What the study knows of the config."""
    metric: str
    """The speed that is compared."""
    results: list[probe.ProbeResult] = field(default_factory=list)
    """The new runs."""

    @property
    def config(self) -> Config:
        """The values of the config, also of a parameter that only the study's pruner reads."""
        return self.in_study.trials[-1].config

    @property
    def study_speed(self) -> probe.Quantity:
        """The speed that the study has measured."""
        if self.metric == probe.SAMPLES_PER_S:
            return probe.Quantity(self.in_study.samples_per_s or 0.0, self.in_study.widened_speed_error)
        return probe.Quantity(self.in_study.value, self.in_study.widened_error)

    @property
    def speeds(self) -> list[probe.Quantity]:
        """The speeds of the new runs."""
        speeds = ((probe.value(result, self.metric), probe.error(result, self.metric)) for result in self.results)
        return [probe.Quantity(speed, spread) for speed, spread in speeds if speed]

    @property
    def delayed_share(self) -> float:
        """The mean share of the time in which the new runs waited for a processor that others used; 0.9 at most."""
        waits_pct = [
            probe.of_known(max, (device.delayed_mean_pct for device in result.devices)) for result in self.results
        ]
        return min((probe.of_known(fmean, waits_pct) or 0.0) / 100.0, 0.9)


def subjects(view: CaseView, baseline: Config | None) -> list[RepeatedConfig]:
    """Return the configs of a case to measure again: the one that the best is compared with, and then the best.

    The former is left out if the study has not measured it. `baseline`: the person's own config, which the best is
    compared with; None for a study that has a default config.

    Raises StudyError where the study has no best, where only sessions have measured it, and where speeds are unknown.
    """
    best = view.best
    if best is None:
        raise StudyError(no_best(view.name))
    if best.is_warm:
        raise StudyError(f"only sessions have measured the best of {view.name}; `tuner optimize` confirms it first")
    metric = view.objectives[0] if view.objectives[0] in SPEEDS else probe.SAMPLES_PER_S
    if metric == probe.SAMPLES_PER_S and not best.samples_per_s:
        raise StudyError(f"the study has no speed of {view.name}'s best, so no slowdown of it can be measured")
    measured = {standing.launch_key: standing for standing in view.configs if not standing.is_warm}
    base = measured.get(launch_digest(baseline)) if baseline else view.default
    name = "your command" if baseline else "the default"
    repeated = partial(RepeatedConfig, metric=metric)
    if base is None or (metric == probe.SAMPLES_PER_S and not base.samples_per_s):
        return [repeated(name="the best", in_study=best)]
    if base.launch_key == best.launch_key:
        return [repeated(name=f"{name} (the best)", in_study=base)]
    return [repeated(name=name, in_study=base), repeated(name="the best", in_study=best)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What the runs of a verification have shown."""

    subjects: Sequence[RepeatedConfig]
    """The configs that are measured again; the last is the best of the study."""
    at_least: float
    """The least speed that is allowed, in multiples of the speed in the study."""

    @property
    def rounds(self) -> int:
        """How many runs each config has."""
        return min(len(subject.results) for subject in self.subjects)

    def slowdown(self, subject: RepeatedConfig) -> Slowdown:
        """Return how a config compares with its speed in the study."""
        spread = scatter(each.speeds for each in self.subjects)
        return Slowdown.of(subject.speeds, subject.study_speed, subject.in_study.readings, spread)

    @property
    def gain(self) -> probe.Quantity | None:
        """How many times as fast as the other config the best is: the mean over pairs of runs.

        None where only one config was measured.
        """
        if len(self.subjects) < 2:
            return None
        base, best = (subject.speeds for subject in self.subjects)
        ratios = [fast.value / slow.value for slow, fast in zip(base, best, strict=True)]
        return probe.Quantity(fmean(ratios), probe.error_of_mean(ratios, ()))

    @property
    def verdict(self) -> Outcome:
        """What the runs say of the best: that its speed holds, that it is slower, or that it cannot be said."""
        best = self.subjects[-1]
        slowdown = self.slowdown(best)
        if slowdown.is_below(self.at_least, best.delayed_share):
            return Outcome.SLOWER
        if slowdown.is_below(self.at_least):  # it is slower, and its waits for a processor explain that
            return Outcome.UNKNOWN
        # a test that would not see even a slowdown 5 % larger than the allowed one says nothing (chosen)
        is_coarse = slowdown.detectable > 0.05 and not slowdown.is_above(self.at_least)
        return Outcome.UNKNOWN if is_coarse else Outcome.HOLDS

    @property
    def is_precise(self) -> bool:
        """Whether no config needs more runs."""
        return all(self.slowdown(subject).is_precise for subject in self.subjects)


class Verification:
    """The verification of one case: a few runs that the study does not keep."""

    def __init__(self, job: Job, case: Case, view: CaseView, budget: Budget, say: Callable[[str], None]) -> None:
        """Choose the configs to measure again.

        Raises StudyError as `subjects` does.

        Args:
            job: What the runs are made with.
            case: The case.
            view: What the study says of the case.
            budget: The time in which all runs but the first four are to end.
            say: Shows a line.
        """
        self._job, self._case, self._budget, self._say = job, case, budget, say
        self.subjects = subjects(view, job.bench.space_for(case).own)

    def run(self, at_least: float) -> Findings | None:
        """Run the configs in turns, and return what the runs show; None where the user stopped them.

        There are four runs at least, however long they take: fewer do not show how far runs scatter. More follow until
        a small slowdown would be seen, or the time is over.

        `at_least`: the least speed that is allowed, in multiples of the speed in the study.

        Raises TrainerError where a run fails, or trains something else than in the study.
        """
        findings = Findings(subjects=self.subjects, at_least=at_least)
        taken_s = 0.0
        while True:
            has_four = findings.rounds * len(self.subjects) >= 4
            if has_four and (findings.is_precise or not self._budget.has_time_for(taken_s / findings.rounds)):
                return findings
            # every second round runs backwards, so that a slow drift of the machine concerns both alike
            turn = self.subjects if findings.rounds % 2 == 0 else self.subjects[::-1]
            for subject in turn:
                result = self._measure(subject)
                if result is None:
                    return None
                subject.results.append(result)
                taken_s += result.total_s
            self._say(f"  round {findings.rounds}: {'; '.join(map(_speed_of_newest_run, self.subjects))}")

    def _measure(self, subject: RepeatedConfig) -> probe.ProbeResult | None:
        """Run a config once, and return the result; None where the user stopped it. Raises TrainerError as `run`."""
        bench, spec = self._job.bench, self._job.bench.spec_for(self._case)
        slot = bench.slot(self._case, f"verify/{self._case.name}/{len(subject.results):04d}", subject.config)

        def stop(so_far: probe.ProbeResult | None) -> probe.Answer:
            """Return whether the run goes on: it ends when a probe of the study would."""
            if self._job.interrupted():
                return probe.Answer(probe.Next.INTERRUPTED)
            return next_answer(so_far, spec.objectives, slot.limits) if so_far else probe.Answer(probe.Next.GO)

        self._budget.begin()
        result = run_in(
            slot, partial(bench.trainer.plan, self._case, subject.config), lambda plan: self._job.probe(plan, stop)
        )
        if result.failure and result.failure.kind is probe.FailureKind.INTERRUPTED:
            return None
        if result.failure:
            raise TrainerError(f"{subject.name} fails now: {result.failure.kind}: {result.failure.detail}")
        if not probe.value(result, subject.metric):
            raise TrainerError(f"{subject.name} ran, and its {subject.metric} could not be measured")
        # a training is known where it was counted inside
        trainings = (trial.probe.training for trial in reversed(subject.in_study.trials))
        before, now = next(filter(None, trainings), None), result.training
        if before and now and (changed := differences(before.signature, now.signature)):
            raise TrainerError(
                f"{subject.name} trains something else than in the study, so speeds do not compare: "
                f"{'; '.join(map(str, changed))}; `tuner optimize` with another --name searches anew"
            )
        return result


def _speed_of_newest_run(subject: RepeatedConfig) -> str:
    """Return the speed of a config's newest run."""
    last = subject.speeds[-1]
    return f"{subject.name} {with_error(last.value, last.error)} {SPEEDS[subject.metric]}"


def changed_settings(view: CaseView, identity: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each setting that differs from those with which a case was measured.

    `identity`: the present settings that decide what is measured.
    """
    stored = view.attributes.identity
    for line in opening.differences(stored, dict(identity)) if stored else ():
        yield f"changed in the study file: {line.strip()}"


def introduction(subjects: Sequence[RepeatedConfig], minutes: float, at_least: float) -> Iterator[str]:
    """Yield what is measured, and for how long: up to so many minutes.

    `at_least`: the least speed that is allowed, in multiples of the speed in the study.
    """
    for subject in subjects:
        yield f"{subject.name}: {in_words(subject.in_study.config)}"
    slower = 1.0 - at_least + PRECISE
    turns = "in turns" if len(subjects) > 1 else "again and again"
    ends = f"until {100 * slower:.3g} % slower would be seen, for up to {probe.duration(60 * minutes)}"
    yield f"measured {turns}, {ends}; four runs are made in any case"


def report(findings: Findings) -> Iterator[str]:
    """Yield what has changed, how fast the configs are now, the verdict, and what such a test can see."""
    *_, best = findings.subjects
    yield _changes_since_study(best)
    for subject in findings.subjects:
        slowdown, before = findings.slowdown(subject), subject.study_speed
        yield (
            f"{subject.name}: {with_error(slowdown.ratio, slowdown.error, 3)} times the study's {figure(before.value)} "
            f"{SPEEDS[subject.metric]}, by {findings.rounds} runs and {subject.in_study.readings} of the study"
        )
    if gain := findings.gain:
        base = findings.subjects[0]
        gain_in_study = best.study_speed.value / base.study_speed.value
        times = f"{with_error(gain.value, gain.error, 3)} times the {SPEEDS[base.metric]} of {base.name}"
        in_study = f"by {findings.rounds} pairs; in the study {gain_in_study:.2f} times"
        yield f"pauses left out, the best makes {times}, {in_study}"
    slowdown_of_best = findings.slowdown(best)
    yield _verdict_sentence(findings, slowdown_of_best)
    power = {slower: slowdown_of_best.power(slower, findings.at_least) for slower in (0.03, 0.05, 0.10)}
    chances = (f"{100 * slower:.0f} %: {100 * chance:.0f} %" for slower, chance in power.items())
    yield f"the chance that such a test sees a slowdown of {', of '.join(chances)}"


def _verdict_sentence(findings: Findings, of_best: Slowdown) -> str:
    """Return the verdict as a sentence; `of_best` says how the best compares with its speed in the study."""
    *bases, best = findings.subjects
    allowed = f"{findings.at_least:g} times its speed in the study"
    match findings.verdict:
        case Outcome.SLOWER:
            is_below = [(base.name, findings.slowdown(base).is_below(findings.at_least)) for base in bases]
            also = "".join(f", and {name} is {'too' if is_too else 'not'}" for name, is_too in is_below)
            return f"slower: {best.name} is below {allowed}{also}"
        case Outcome.UNKNOWN if of_best.is_below(findings.at_least):
            return (
                f"unknown: {best.name} is slower, and waited {100 * best.delayed_share:.0f} % of its time for a "
                "processor that other programs used; verify again on a quiet machine"
            )
        case Outcome.UNKNOWN:
            unseen = f"{100 * of_best.detectable:.0f} % slower" if of_best.detectable < 1.0 else "any slowdown"
            return f"unknown: runs differ so much that {unseen} may stay unseen; quiet the machine, or see --minutes"
        case _:
            return f"it holds: {best.name} is not surely below {allowed}"


def _changes_since_study(best: RepeatedConfig) -> str:
    """Return a sentence: which facts, such as the driver, changed since the study measured the best, and which may."""
    trial = best.in_study.trials[-1]
    before, now = trial.probe.facts, best.results[-1].facts
    same = [what for name, what in FACTS.items() if name in before and before[name] == now.get(name)]
    unknown = [what for name, what in FACTS.items() if name in now and name not in before]
    parts = [
        f"changed: {', '.join(changed_facts(before, now)) or 'nothing'}",
        f"unchanged: {', '.join(same) or 'nothing'}",
        *([f"unknown of then: {', '.join(unknown)}"] if unknown else []),
    ]
    return f"since #{trial.number} of {(trial.probe.started_at or 'an unknown day')[:10]}, {'; '.join(parts)}"
