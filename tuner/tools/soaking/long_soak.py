"""Soaks: run the best config until it is known whether its memory lasts, then a smaller one where it does not.

A study also learns here that a real training has run out of memory.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tuner import probe
from tuner.errors import StudyError
from tuner.export import CaseView, in_words, with_error
from tuner.records.trial import COMPLETE, MEMORY_SHARE, SoakSettings, TrialRecord
from tuner.running.job import Job, Purpose
from tuner.running.workbench import Workbench
from tuner.search.choosing import Choice, Done, History, Price, Strategy, Why
from tuner.search.memory_growth import SPARE, SURE, Lasts
from tuner.search.observed import Observed
from tuner.search.resource_model import inherited
from tuner.search.standing import leader, with_newest_soaks
from tuner.study import Config, Space, Value, ladder_of, launch_digest, launched, without_keys
from tuner.tools.soaking.whole_training import WholeTraining
from tuner.trainers.base import Trainer
from tuner.trainers.registry import open_trainer


def reported(lines: Iterable[str], *, oom: bool, gpu: bool) -> probe.Failure:
    """Return the out-of-memory failure that the output of a training shows, or that its user reports.

    Args:
        lines: The training's output; empty where there is none.
        oom: Whether the user says that memory ran out.
        gpu: Whether the training ran on GPUs.

    Raises:
        StudyError: Neither output nor user says that memory ran out: the study would learn nothing from it.
    """
    evidence, is_empty = probe.Evidence(), True
    for line in lines:
        evidence.feed(without_keys(line), 0.0)
        is_empty = False
    failure = evidence.failure()
    if failure and failure.kind in probe.OUT_OF_MEMORY:
        return failure
    if not oom:
        shown = (
            f"it shows {failure.kind}: {failure.detail}" if failure else "no line of it shows why the training failed"
        )
        raise StudyError(f"{'nothing is told' if is_empty else shown}; give --oom where the training ran out of memory")
    kind = probe.FailureKind.GPU_OOM if gpu else probe.FailureKind.HOST_OOM
    detail = "a training with this config ran out of memory, as its user told"
    return probe.Failure(kind=kind, rule=probe.REPORTED, detail=detail)


def telling(job: Job, config: Config, failure: probe.Failure, ladder: str | None) -> Job:
    """Return the job that stores a trial of a config with this failure, and starts nothing.

    From then on no config may be the best that needs as much memory. It grows with the values of `ladder`.
    """
    choices = [Choice(config=config, why=Why.TELL, cold=True, mark=ladder or "")]

    def choose(history: History, price: Price) -> Choice | Done:
        """Choose the config, once."""
        return choices.pop() if choices else Done(reason="the study knows it now")

    def unlaunched(plan: probe.ProbePlan, stop: probe.Stop) -> probe.ProbeResult:
        """Return the failure as the result of a probe that was not launched."""
        return probe.unlaunched(plan.config, failure, plan.digest)

    purpose = Purpose(
        strategy=lambda *_: Strategy(choosers=(choose,)), limited=False, competing=False, stores_ending=False
    )
    return replace(job, probe=unlaunched, purpose=purpose)


CLEAR_CHANCE = 0.97
"""A soak ends early once its answer has this probability. A good answer ends it only where flags provoke the worst."""
FAR_RATIO = 1.1
"""From this ratio on, two soaks show how memory grows along the ladder, and a rung between them may be soaked."""
RUNG_RATIO = 1.015
"""From this ratio on, two rungs are worth a soak each."""


def soaking(
    bench: Workbench, minutes: float, training: WholeTraining | None = None, first: Config | None = None
) -> Purpose:
    """Return the purpose: one config after another runs for up to so many minutes, until the memory of one lasts.

    Args:
        bench: the study's set-up.
        minutes: the longest soak.
        training: the training for which memory is to last; None for that of the study.
        first: the config to begin with; None for the best.

    Raises:
        StudyError: where the study names flags for a soak, and its trainer takes none.
    """
    training = training or WholeTraining.of(bench)
    settings = replace(training.soak, minutes=minutes, hours=training.hours, iterations=training.iterations)
    return Purpose(
        strategy=lambda space, *_: Strategy(choosers=(SoakChooser(space, training, settings, first).choose,)),
        limited=False,
        competing=False,
        stores_ending=False,
        ineligible=partial(_ineligibility, training=training),
        next_answer=SoakFollower(60.0 * minutes, training, ends_when_good=bench.spec.soak.provokes),
        limits=lambda limits: limits.timed(60.0 * minutes),
        trainer=_provoking_trainer(bench),
    )


def _provoking_trainer(bench: Workbench) -> Trainer | None:
    """Return the trainer with the command that provokes the worst batch; None where the study names none."""
    soak, options = bench.spec.soak, bench.spec.trainer.options
    if not soak.provokes:
        return None
    if "command" not in options:
        raise StudyError(f"soak: the trainer {bench.trainer.name} takes no flags; leave `soak` out of the study")
    usual = options["command"]
    with_flags = f"{usual} {soak.flags}" if isinstance(usual, str) else [*usual, *soak.flags.split()]
    changed = {**options, "command": soak.command or with_flags}
    return open_trainer(bench.spec.trainer.model_copy(update={"options": changed}))


def _ineligibility(result: probe.ProbeResult, *, training: WholeTraining) -> str | None:
    """Return why a config that was soaked may not be the best; None where it may."""
    lasting = training.lasts(result.devices, result)
    return None if lasting is None or lasting.chance >= SURE else training.in_short(lasting)


class SoakFollower:
    """Follows soaks: ends each once it is known whether memory lasts, and how fast the training is."""

    def __init__(self, seconds: float, training: WholeTraining, *, ends_when_good: bool = True) -> None:
        """Follow soaks of up to `seconds` from the first mark on.

        `ends_when_good`: whether memory that lasts ends a soak of the worst batch early, and not only memory that
        does not.
        """
        self._seconds, self._training = seconds, training
        self._sure_chance = CLEAR_CHANCE if training.provoked and ends_when_good else 1.0

    def __call__(self, so_far: probe.ProbeResult) -> probe.Answer:
        """Return whether the soak goes on.

        It ends after all its time, or once two things are known: whether memory lasts, and the speed within 2 %. It is
        judged from a fifth of its time on.
        """
        trained_s = 0.0 if so_far.start_up_s is None else so_far.total_s - so_far.start_up_s
        if trained_s >= self._seconds:
            return probe.Answer(probe.Next.ENOUGH)
        goes_on = probe.Answer(probe.Next.MORE, again_s=self._seconds)
        if trained_s < 0.2 * self._seconds:
            return goes_on
        lasting = self._training.lasts(so_far.devices, so_far)
        fills, lasts = 1.0 - CLEAR_CHANCE, self._sure_chance
        is_clear = lasting is not None and (lasting.chance <= fills or lasting.chance > lasts)
        speed, error = so_far.samples_per_s, so_far.samples_per_s_se
        may_end = speed is None or (error is not None and error <= 0.02 * speed)
        return probe.Answer(probe.Next.ENOUGH) if is_clear and may_end else goes_on


class Soak(NamedTuple):
    """What the newest soak of a config showed."""

    trial: TrialRecord
    lasting: Lasts | None
    """None where the config failed, or its memory is unknown."""

    @property
    def passed(self) -> bool:
        """Whether memory lasts."""
        is_sure = self.lasting is None or self.lasting.chance >= SURE  # of unknown memory, nothing is asked
        return self.trial.state == COMPLETE and self.trial.may_be_best and is_sure

    @property
    def trained_s(self) -> float:
        """How long the soak took, in seconds from its first mark on."""
        begin_s, end_s = self.trial.probe.start_up_s, self.trial.probe.total_s
        return 0.0 if begin_s is None or end_s is None else end_s - begin_s

    @property
    def shows_growth(self) -> bool:
        """Whether memory grew all the time."""
        return self.lasting is not None and self.lasting.rising.kind == "slope"

    @property
    def share(self) -> float:
        """The share of the usable memory that the training will need; 1 where that is not known."""
        return 1.0 if self.lasting is None else self.lasting.share / SPARE

    def suffices(self, asked: SoakSettings) -> bool:
        """Return whether a soak with the asked settings is needless after this one: it failed, or lasted as long.

        A soak that ended early, because it was sure for its training, may not be sure for a longer training.
        """
        if self.trial.state != COMPLETE:
            return True  # it would fail again
        settings = self.trial.soak
        if settings is None or asked.minutes > settings.minutes:
            return False
        used_all_time = self.trained_s >= 0.9 * 60.0 * settings.minutes
        return used_all_time or not _trains_longer(asked, settings)


def _trains_longer(settings: SoakSettings, others: SoakSettings) -> bool:
    """Return whether the training of some settings is longer than that of others, or cannot be compared with it."""
    if (settings.iterations is None) != (others.iterations is None):
        return True
    return (settings.iterations or settings.hours) > (others.iterations or others.hours)


def newest_soaks(trials: Sequence[TrialRecord], training: WholeTraining) -> Mapping[str, Soak]:
    """Return the newest soak of each config that says something about it: launch key → soak, in their order.

    Empty where the newest soak has other flags, or another limit of memory, than those of the training.
    """
    trials_of_soaks = [trial for trial in with_newest_soaks(trials) if trial.soaks and trial.counts]
    newest = trials_of_soaks[-1].soak if trials_of_soaks else None
    if newest is None or newest.kind != training.soak.kind:
        return {}
    soaks: dict[str, Soak] = {}
    for trial in trials_of_soaks:
        lasting = training.lasts(trial.devices, trial.probe) if trial.state == COMPLETE else None
        soaks[trial.launch] = Soak(trial=trial, lasting=lasting)
    return soaks


def may_be_soaked(view: CaseView, training: WholeTraining) -> bool:
    """Return whether the case has a best config, or has one where its soaks with other flags say nothing."""
    probed = [trial for trial in view.trials if not trial.soaks]
    return bool(view.best or newest_soaks(view.trials, training) or _best_config(probed))


class SoakChooser:
    """Chooses the config to soak: the best, then along the ladder towards the largest rung whose memory lasts."""

    def __init__(
        self, space: Space, training: WholeTraining, settings: SoakSettings, first: Config | None = None
    ) -> None:
        """`settings` are those of the soaks. `first`: the config to begin with, in place of the best."""
        self._space, self._training, self._settings = space, training, settings
        self._ladder, self._first = ladder_of(space), first

    def choose(self, history: History, price: Price) -> Choice | Done:
        """Return the next soak: that of the best config, and after one that failed that of a smaller rung.

        Done where the best config has passed, or no rung is left that may pass.
        """
        trials = history.records
        soaks = newest_soaks(trials, self._training)
        sufficient = {launch: soak for launch, soak in soaks.items() if soak.suffices(self._settings)}
        refused = [soak for soak in sufficient.values() if not soak.passed]
        probes = [trial for trial in trials if not trial.soaks]
        first = self._first or (None if refused else _best_config(trials if soaks else probes))
        config: Config | None = None
        if first and launch_digest(first) not in sufficient:
            config = first
        elif refused:
            config = self._next_rung(refused[-1].trial.config, sufficient, history)
            none_has_passed = len(refused) == len(sufficient)
            if config is None and none_has_passed:
                config = self._best_below(probes, sufficient)
        if config is None:
            return Done(reason="each config is soaked" if sufficient else "no config has run yet, so none is soaked")
        return Choice(config=config, why=Why.SOAK, cold=True, mark=asdict(self._settings))

    def _best_below(self, probes: Sequence[TrialRecord], soaks: Mapping[str, Soak]) -> Config | None:
        """Return the best config of the probes on a rung below all its soaked rungs; None where there is none."""

        def is_below_all(config: Config) -> bool:
            """Return whether a config is on a rung below all soaks of configs like it."""
            rungs = self._soaks_by_rung(config, soaks)
            return not rungs or float(config[str(self._ladder)]) < min(rungs)

        return _best_config([trial for trial in probes if trial.launch not in soaks and is_below_all(trial.config)])

    def _soaks_by_rung(self, config: Config, soaks: Mapping[str, Soak]) -> dict[float, Soak]:
        """Return the soaks of configs that differ from a config at most in their rung: rung → soak."""
        if (ladder := self._ladder) is None:
            return {}
        without_rung = {**launched(config), ladder: 0}
        configs = ((soak.trial.config, soak) for soak in soaks.values())
        return {float(other[ladder]): soak for other, soak in configs if {**launched(other), ladder: 0} == without_rung}

    def _next_rung(self, config: Config, known: Mapping[str, Soak], history: History) -> Config | None:
        """Return a config with the largest rung between what passed and what did not that is expected to pass.

        None where there is no such rung. A soak that was refused without clear growth says little about the rungs
        below it. So where none is expected to pass, but the two are far apart, the rung in their middle is soaked.
        Where nothing has passed yet, the rung is at least a quarter smaller than the one that was refused.
        """
        if (ladder := self._ladder) is None:
            return None
        soaks = self._soaks_by_rung(config, known)
        passed = max((rung for rung, soak in soaks.items() if soak.passed), default=0.0)
        refused = min((rung for rung, soak in soaks.items() if not soak.passed), default=math.inf)
        between = {float(rung): rung for rung in self._rungs(refused) if passed * RUNG_RATIO < float(rung) < refused}
        if not between or len(soaks) >= 8:
            return None
        shares = {rung: soak.share for rung, soak in soaks.items() if soak.lasting}
        if expected := self._expected_to_pass(config, shares, sorted(between), history) if shares else []:
            rung = max(expected)
        elif passed:
            is_growth_sure = soaks[refused].shows_growth and soaks[refused].trained_s > 0.5 * soaks[passed].trained_s
            if refused <= FAR_RATIO * passed or is_growth_sure:
                return None
            middle = math.sqrt(passed * refused)
            rung = min(between, key=lambda rung: abs(math.log(rung / middle)))
        else:
            rung = max((rung for rung in between if rung <= 0.75 * refused), default=min(between))
        return {**config, ladder: between[rung]}

    def _rungs(self, below: float) -> Sequence[Value]:
        """Return the rungs; on an `auto` ladder all that are worth a soak."""
        bounds = next(
            (parameter.bounds for parameter in self._space.parameters if parameter.name == self._ladder), None
        )
        if bounds is None or below == math.inf:
            return self._space.rungs or self._space.values(str(self._ladder))
        count = math.ceil(math.log(below / bounds[0], RUNG_RATIO))
        steps = (round(below / RUNG_RATIO**step) for step in range(1, count + 1))
        return [rung for rung in dict.fromkeys(steps) if bounds[0] <= rung <= bounds[1]]

    def _expected_to_pass(
        self, config: Config, shares: Mapping[float, float], rungs: Sequence[float], history: History
    ) -> Sequence[float]:
        """Return the rungs whose training is expected to need no more than the usable memory.

        With two soaks that are far apart, memory is a straight line over the rungs. Otherwise it is that of a probe,
        and what the soak needs beyond that is proportional to the rung.

        Args:
            config: the config, whose rung does not matter.
            shares: rung → the share of the usable memory that a training of it needs, by its soak.
            rungs: those to judge.
            history: the probes so far.
        """
        nearest = sorted(shares, key=lambda rung: abs(shares[rung] - 1.0))[:2]
        low, high = min(nearest), max(nearest)
        if high >= FAR_RATIO * low and shares[high] > shares[low]:
            expected = np.polyval(np.polyfit(nearest, [shares[rung] for rung in nearest], 1), rungs)
        else:
            costs = Observed(history.trials, ladder=self._ladder).known_amounts(MEMORY_SHARE, self._space)
            growth = inherited(self._space, costs, error=0.004, choices=0.25)
            soaked = nearest[0]
            probed = np.zeros(len(rungs) + 1)
            if growth:
                probed = growth.expect([{**config, str(self._ladder): rung} for rung in (soaked, *rungs)])[0]
            expected = probed[1:] + (shares[soaked] - probed[0]) * np.array(rungs) / soaked
        return [rung for rung, share in zip(rungs, expected, strict=True) if share <= 1.0]


def _best_config(trials: Sequence[TrialRecord]) -> Config | None:
    """Return the best config of some trials; None where none may be the best."""
    best = leader(trials)
    return dict(best.best.trials[-1].config) if best else None


def verdicts(view: CaseView, training: WholeTraining) -> Iterator[str]:
    """Yield a sentence about each config that was soaked, in their order, and what to use."""
    soaks = list(newest_soaks(view.trials, training).values())
    for soak in soaks:
        yield f"{view.name}: #{soak.trial.number} {in_words(soak.trial.config)}: {_outcome(soak, training)}"
    passed, refused = [soak for soak in soaks if soak.passed], [soak for soak in soaks if not soak.passed]
    best = view.best
    chosen = [soak for soak in passed if best and soak.trial.launch == launch_digest(best.config)]
    unprovoked = (
        "flags in `soak:` bring the largest batch, evaluation and checkpoint into a soak; one that is far larger than "
        "all in this soak may not fit"
    )
    if best and chosen:
        yield f"{view.name}: train with {in_words(best.config)}"
        if hints := [*_longer_soak(chosen[0]), *([] if training.provoked else [unprovoked])]:
            yield f"{view.name}: to be surer: {'; '.join(hints)}"
    elif best and passed:
        yield f"{view.name}: {in_words(passed[-1].trial.config)} lasts; the best is {in_words(best.config)}, not soaked"
    elif soaks:
        longer = "".join(f", or soak longer: {hint}" for hint in _longer_soak(soaks[-1]))
        lasting = f"no config's memory lasts with {100 * SURE:.0f} % probability"
        yield f"{view.name}: {lasting}; add smaller values to the ladder{longer}"
    if refused and (keeper := training.keeper):
        variable, slower = f"{keeper.variables[0]}: {keeper.value}", ", and be slower" if keeper.at_a_cost else ""
        yield (
            f"{view.name}: freed memory that {keeper.name} keeps for later counts as used; in a study with another "
            f"name, and `environment: {{variables: {{{variable}}}}}`, larger values may last{slower}"
        )


def _outcome(soak: Soak, training: WholeTraining) -> str:
    """Return what a soak showed of memory and speed."""
    record = soak.trial.probe
    if soak.lasting:
        memory = training.in_short(soak.lasting)
    else:
        memory = record.failure.detail if record.failure else "its memory is unknown"
    speed = soak.trial.samples_per_s
    return f"{memory}; {with_error(speed, record.samples_per_s_se)} samples/s" if speed else memory


def _longer_soak(soak: Soak) -> Iterator[str]:
    """Yield the `--minutes` of a soak that excludes growth which would fill the memory, if this soak was too short.

    The growth that hides in a soak of twice the time is half as fast.
    """
    lasting = soak.lasting
    if lasting is None or lasting.filled_h >= lasting.hours:
        return
    minutes = math.ceil(soak.trained_s / 60.0 * lasting.hours / lasting.filled_h)
    growth = f"growth of less than {lasting.rising.hidden_mib_per_h:.0f} MiB an hour"
    soaked = probe.duration(soak.trained_s)
    yield f"`--minutes {minutes}` would show {growth}, which hides in this soak of {soaked} and is allowed for"
