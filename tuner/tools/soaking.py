"""Soaks: run the best config until it is known whether its memory lasts, then a smaller config where it does not.

A soak is a long trial of one config. It passes if the memory lasts for the whole training, by what the soak has shown,
and else its config is refused. The ladder is the parameter that decides how much memory a config needs, and its values
are the rungs. A study also learns here that a real training has run out of memory.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import numpy as np

from tuner import probe
from tuner.errors import StudyError
from tuner.export import CaseView, in_words, with_error
from tuner.probe import HOUR_S, MIB_PER_GIB, DeviceSummary, ProbeResult, duration
from tuner.records.trial import COMPLETE, MEMORY_SHARE, ProbeRecord, SoakSettings, TrialRecord
from tuner.running.job import Job, Purpose, Workbench
from tuner.search.choosing import Aim, Choice, Done, History, Starts, Strategy
from tuner.search.memory_growth import (
    PILING_UP,
    PROVOKED,
    SPARE,
    SURE,
    USUAL,
    MemoryForecast,
    RecordPrior,
    forecast_memory,
)
from tuner.search.resource_model import fitted_after_siblings
from tuner.search.standing import leader, with_newest_soaks
from tuner.search.trials import Observed
from tuner.study import Config, DeviceKind, Space, Value, ladder_of, launch_digest, launched, quoted, without_keys
from tuner.trainers.base import Trainer
from tuner.trainers.registry import open_trainer


class CachingAllocator(NamedTuple):
    """The allocator of a trainer: it keeps freed memory for later, so that this memory counts as used."""

    name: str
    variables: tuple[str, ...]
    """The environment variables that change this, the most usual first."""
    value: str
    """The value with which freed memory is given back, as in YAML; the training may then be slower."""


ALLOCATORS: Mapping[DeviceKind, CachingAllocator] = {
    "gpu": CachingAllocator("torch", ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True"),
    "cpu": CachingAllocator("the C library", ("MALLOC_MMAP_THRESHOLD_",), '"65536"'),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTraining:
    """The training that a soak stands for: how long its memory must last, and what of it needs most memory."""

    hours: float
    iterations: int | None = None
    """The length of the training in iterations; None where `hours` are its length.

    Iterations say more where they are known: a smaller config takes less time for each, and makes no more of them.
    """
    meets_peak: bool = False
    """Whether a soak meets what needs most memory, such as the largest batch, so that nothing larger comes later."""
    allocator: CachingAllocator | None = None
    """What may keep far more memory than the training needs; None where freed memory is given back."""
    soak: SoakSettings = field(default_factory=SoakSettings)
    """The flags, command and limit of memory of a soak; by default the trainer's own command."""

    @classmethod
    def of(cls, bench: Workbench, hours: float | None = None, iterations: int | None = None) -> "WholeTraining":
        """Return the training that the soaks of a study stand for: how long it is, and what of it needs most memory.

        Args:
            bench: the study; its `soak` says how a soak provokes what needs most memory, and with which command.
            hours: the length of the training; None for the study's `search.training_hours`.
            iterations: the length in iterations, which replaces the hours; None where only hours are known.
        """
        # With its `value`, batches that lasted on an H100 with a limit of 2.5 GB were 1.5 to 2.4 times as large.
        # On the CPU, twice as many environments of the reference trainer lasted (`benchmarks/results/memory.md`).
        allocator = ALLOCATORS[bench.kind]
        is_set_already = any(name in os.environ or name in bench.variables for name in allocator.variables)
        return cls(
            hours=hours or bench.spec.search.training_hours,
            iterations=iterations,
            meets_peak=bench.spec.soak.provokes or not bench.spec.soak.worse,  # `worse: false`: nothing larger comes
            allocator=None if is_set_already else allocator,
            soak=SoakSettings(
                flags=bench.spec.soak.flags,
                command=bench.spec.soak.command,
                memory_mib=bench.spec.environment.memory_mib,
            ),
        )

    def forecast(self, devices: tuple[DeviceSummary, ...], probe: ProbeResult | ProbeRecord) -> MemoryForecast | None:
        """Return how surely memory lasts for the training; None where that is unknown.

        Args:
            devices: What the memory of each device did in a soak.
            probe: The soak so far, or its record.
        """
        if self.iterations is None:
            return forecast_memory(devices, self.hours, self._prior)
        if not probe.numbered_iterations or probe.window_s is None:  # an iteration's time is unknown
            return None
        iteration_s = probe.window_s / probe.numbered_iterations
        return forecast_memory(devices, self.iterations * iteration_s / HOUR_S, self._prior)

    def ineligibility(self, result: ProbeResult) -> str | None:
        """Return why a config that was soaked may not be the best; None where it may."""
        forecast = self.forecast(result.devices, result)
        return None if forecast is None or forecast.chance >= SURE else self.in_short(forecast)

    @property
    def _prior(self) -> RecordPrior:
        """The prior for new records of memory use: what is expected before a soak has shown any."""
        if not self.meets_peak:
            return USUAL
        return PILING_UP if self.allocator else PROVOKED

    def in_short(self, forecast: MemoryForecast) -> str:
        """Return in one part of a sentence whether memory lasts, and which growth the soak would not show.

        For example: memory lasts 24 h with 98 % probability: 61.2 GiB now, flat, at most 63.0 of 80.0.
        """
        rise = forecast.rise
        is_large = forecast.total_mib >= 10 * MIB_PER_GIB
        divisor, decimals, unit = (MIB_PER_GIB, 1, "GiB") if is_large else (1, 0, "MiB")
        amounts_mib = (rise.now_mib, forecast.most_mib, forecast.total_mib)
        now, most, total = (f"{amount_mib / divisor:.{decimals}f}" for amount_mib in amounts_mib)
        shape = {"flat": "flat", "steps": "in steps that become rarer", "slope": "growing all the time"}[rise.kind]
        if rise.hidden_mib_per_h:
            shape += f" (growth below {rise.hidden_mib_per_h:,.0f} MiB an hour would not show)"
        is_likely, is_sure = forecast.chance >= 0.5, forecast.chance >= SURE
        # 99 % at most, because a soak may not meet all that a training does
        percent = 100.0 * min(max(forecast.chance, 1.0 - forecast.chance), 0.99)
        confidence = f" with {percent:.0f} % probability"
        if is_sure and rise.end_s < 60.0:  # seconds (chosen): so short a soak shows too little for a percentage
            confidence = f", as far as a soak of {duration(rise.end_s)} can show"
        claim = f"lasts {self}" if is_likely else f"runs out within {self}"
        bound = "at most" if is_sure else "it may reach"
        return f"memory {claim}{confidence}: {now} {unit} now, {shape}, {bound} {most} of {total}"

    def __str__(self) -> str:
        """Return the length of the training in words."""
        return f"{self.iterations:,} iterations" if self.iterations else f"{self.hours:g} h"


def reported_failure(lines: Iterable[str], *, oom: bool, gpu: bool) -> probe.Failure:
    """Return the out-of-memory failure that the output of a training shows, or that its user reports.

    Args:
        lines: The training's output; empty where there is none.
        oom: Whether the user says that memory ran out, which counts where the output does not show it.
        gpu: Whether the training ran on GPUs; otherwise it was the host's memory.

    Raises:
        StudyError: Neither output nor user says that memory ran out, so the study would learn nothing.
    """
    evidence = probe.Evidence()
    for line in lines:
        evidence.feed(without_keys(line), 0.0)
    failure = evidence.failure()
    if failure and failure.kind in probe.OUT_OF_MEMORY:
        return failure
    if not oom:
        shown = f"the output shows {failure.kind}: {failure.detail}" if failure else "no output shows why it failed"
        raise StudyError(f"{shown}; give --oom where the training ran out of memory")
    kind = probe.FailureKind.GPU_OOM if gpu else probe.FailureKind.HOST_OOM
    detail = "a training with this config ran out of memory, as its user reported"
    return probe.Failure(kind=kind, rule=probe.REPORTED, detail=detail)


def job_of_failure(job: Job, config: Config, failure: probe.Failure, ladder: str | None) -> Job:
    """Return a job that stores one trial of a config with this failure, as if it had been probed, and starts nothing.

    So a study learns of a training that ran out of memory outside of it. From then on, no config that needs as much
    memory may be the best. Memory grows with the values of `ladder`.
    """
    choices = [Choice(config=config, aim=Aim.REPORT, cold=True, details=ladder or "")]  # a search's only choice

    def choose(history: History, _starts_needed: Starts) -> Choice | Done:
        """Return the choice of the config in the first call, and the end of the search in the second."""
        return choices.pop() if choices else Done(reason="the study knows it now")

    def unlaunched(plan: probe.ProbePlan, stop: probe.Stop) -> probe.ProbeResult:
        """Return the failure as the result of a probe that was not launched."""
        return probe.unlaunched(plan.config, failure, plan.digest)

    purpose = Purpose(
        strategy=lambda *_: Strategy(choosers=(choose,)), has_target=False, configs_compete=False, stores_ending=False
    )
    return replace(job, probe=unlaunched, purpose=purpose)


CLEAR_CHANCE = 0.97
"""A soak ends early once it is so probable that memory lasts, or that it does not; see `SoakFollower`. Chosen."""
FAR_RATIO = 1.1
"""From this ratio on, two soaks show how memory grows along the ladder, and a rung between them may be soaked."""
RUNG_RATIO = 1.015
"""From this ratio on, two rungs are worth a soak each."""


def soak_purpose(
    bench: Workbench, minutes: float, training: WholeTraining | None = None, first: Config | None = None
) -> Purpose:
    """Return the purpose of a job that soaks one config after another, until the memory of one lasts.

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
        has_target=False,
        configs_compete=False,
        stores_ending=False,
        ineligible=training.ineligibility,
        next_answer=SoakFollower(60.0 * minutes, training, ends_when_good=bench.spec.soak.provokes),
        limits=lambda limits: limits.timed(60.0 * minutes),
        trainer=_provoking_trainer(bench),
    )


def _provoking_trainer(bench: Workbench) -> Trainer | None:
    """Return a trainer whose command meets what needs most memory, such as the longest batch, by the study's `soak:`.

    None where the study says nothing about it.
    """
    soak, options = bench.spec.soak, bench.spec.trainer.options
    if not soak.provokes:
        return None
    if "command" not in options:
        raise StudyError(f"soak: the trainer {bench.trainer.name} takes no flags; leave `soak` out of the study")
    usual = options["command"]
    line = usual if isinstance(usual, str) else " ".join(map(quoted, usual))
    changed = {**options, "command": soak.command or f"{line} {soak.flags}"}
    return open_trainer(bench.spec.trainer.model_copy(update={"options": changed}))


class SoakFollower:
    """Follows soaks: ends each once it is known whether memory lasts, and how fast the training is."""

    def __init__(self, seconds: float, training: WholeTraining, *, ends_when_good: bool = True) -> None:
        """Follow soaks of up to `seconds` of training, after the start-up.

        A soak ends early once its memory will surely not last. Once it will surely last, the soak ends early only with
        `ends_when_good`, and if the soak meets what needs most memory: in any other soak, that may still come.
        """
        self._seconds, self._training = seconds, training
        self._good_chance = CLEAR_CHANCE if training.meets_peak and ends_when_good else 1.0  # which no chance exceeds

    def __call__(self, so_far: probe.ProbeResult) -> probe.Answer:
        """Return whether the soak goes on, by its result so far.

        It ends after all its time, or once two things are known: whether memory lasts, and the speed within 2 %. It is
        judged from a fifth of its time on, because early memory says little.
        """
        trained_s = 0.0 if so_far.start_up_s is None else so_far.total_s - so_far.start_up_s
        if trained_s >= self._seconds:
            return probe.Answer(probe.Next.ENOUGH)
        goes_on = probe.Answer(probe.Next.MORE, next_result_s=self._seconds)
        if trained_s < 0.2 * self._seconds:
            return goes_on
        forecast = self._training.forecast(so_far.devices, so_far)
        bad_chance = 1.0 - CLEAR_CHANCE
        is_clear = forecast is not None and (forecast.chance <= bad_chance or forecast.chance > self._good_chance)
        speed, error = so_far.samples_per_s, so_far.samples_per_s_se
        is_speed_known = speed is None or (error is not None and error <= 0.02 * speed)  # None: it counts no samples
        return probe.Answer(probe.Next.ENOUGH) if is_clear and is_speed_known else goes_on


class Soak(NamedTuple):
    """What the newest soak of a config showed."""

    trial: TrialRecord
    forecast: MemoryForecast | None
    """None where the config failed, or its memory is unknown."""

    @property
    def passed(self) -> bool:
        """Whether the config ran, may be the best, and its memory lasts. Unknown memory counts as lasting."""
        lasts = self.forecast is None or self.forecast.chance >= SURE
        return self.trial.state == COMPLETE and self.trial.may_be_best and lasts

    @property
    def trained_s(self) -> float:
        """How many seconds the soak trained after its start-up."""
        begin_s, end_s = self.trial.probe.start_up_s, self.trial.probe.total_s
        return 0.0 if begin_s is None or end_s is None else end_s - begin_s

    @property
    def shows_growth(self) -> bool:
        """Whether memory grew all the time, as a slope and not in steps."""
        return self.forecast is not None and self.forecast.rise.kind == "slope"

    @property
    def share(self) -> float:
        """The share of the usable memory that the training will need; 1 where that is not known."""
        return 1.0 if self.forecast is None else self.forecast.share / SPARE  # a part of all memory stays unused

    def suffices(self, wanted: SoakSettings) -> bool:
        """Return whether this soak answers what a soak with the `wanted` settings would, so that none is made.

        It does if it failed, or trained for as long. A soak that ended early, because it was sure, answers only for
        trainings that are no longer than its own.
        """
        if self.trial.state != COMPLETE:
            return True  # it would fail again
        settings = self.trial.soak
        if settings is None or wanted.minutes > settings.minutes:
            return False
        if self.trained_s >= 0.9 * 60.0 * settings.minutes:
            return True
        if (wanted.iterations is None) != (settings.iterations is None):  # hours and iterations cannot be compared
            return False
        return (wanted.iterations or wanted.hours) <= (settings.iterations or settings.hours)


def newest_soaks(trials: Sequence[TrialRecord], training: WholeTraining) -> Mapping[str, Soak]:
    """Return launch key → the newest soak of each config that was soaked, in the order of these soaks.

    Empty where the newest soak of all had other flags, or another limit of memory, than those of the training.
    """
    trials_of_soaks = [trial for trial in with_newest_soaks(trials) if trial.soaks and trial.counts]
    newest = trials_of_soaks[-1].soak if trials_of_soaks else None
    if newest is None or newest.kind != training.soak.kind:
        return {}
    soaks: dict[str, Soak] = {}
    for trial in trials_of_soaks:
        forecast = training.forecast(trial.probe.devices, trial.probe) if trial.state == COMPLETE else None
        soaks[trial.launch_key] = Soak(trial=trial, forecast=forecast)
    return soaks


def may_be_soaked(view: CaseView, training: WholeTraining) -> bool:
    """Return whether there is a config to soak: the best, one that was soaked before, or the best of the probes alone.

    The last case matters where soaks with other flags have refused all configs: those soaks are left out.
    """
    probes = [trial for trial in view.trials if not trial.soaks]
    return bool(view.best or newest_soaks(view.trials, training) or _best_config(probes))


class SoakChooser:
    """Chooses the config to soak: the best, then along the ladder towards the largest rung whose memory lasts."""

    def __init__(self, space: Space, training: WholeTraining, settings: SoakSettings, first: Config | None) -> None:
        """Choose which configs of a case are soaked, one after another.

        Args:
            space: The parameters and their values.
            training: The training for which memory is to last.
            settings: How each soak is made.
            first: The config to begin with; None for the best.
        """
        self._space, self._training, self._settings = space, training, settings
        self._ladder, self._first = ladder_of(space), first

    def choose(self, history: History, _starts_needed: Starts) -> Choice | Done:
        """Return the next soak: first that of the best config, and after a config that was refused, another rung.

        Done where no config was refused and the best has passed, or where no rung is left that may pass.
        """
        trials = history.records
        soaks = newest_soaks(trials, self._training)
        # a soak that was too short for these settings is made again
        long_enough = {launch: soak for launch, soak in soaks.items() if soak.suffices(self._settings)}
        refused = [soak for soak in long_enough.values() if not soak.passed]
        probes = [trial for trial in trials if not trial.soaks]
        first = self._first
        if first is None and not refused:  # after a refusal, only the ladder of the refused config is followed
            # `soaks` is empty where the newest soaks had other flags; then those are left out when the best is chosen
            first = _best_config(trials if soaks else probes)
        config: Config | None = None
        if first and launch_digest(first) not in long_enough:
            config = first
        elif refused:
            config = self._next_rung(refused[-1].trial.config, long_enough, history)
            none_has_passed = len(refused) == len(long_enough)
            if config is None and none_has_passed:
                config = self._best_not_refused(probes, long_enough)
        if config is None:
            return Done(reason="each config is soaked" if long_enough else "no config has run yet, so none is soaked")
        return Choice(config=config, aim=Aim.SOAK, cold=True, details=asdict(self._settings))

    def _best_not_refused(self, probes: Sequence[TrialRecord], soaks: Mapping[str, Soak]) -> Config | None:
        """Return the best probed config that may still pass, after all soaks were refused; None without such a config.

        Neither this config nor the same config on a smaller rung was soaked. `soaks`: launch key → soak.
        """

        def is_below_soaked(config: Config) -> bool:
            """Return whether a config is on a smaller rung than all soaked configs that otherwise equal it."""
            rungs = self._soaks_by_rung(config, soaks)
            return not rungs or float(config[str(self._ladder)]) < min(rungs)

        return _best_config(
            [trial for trial in probes if trial.launch_key not in soaks and is_below_soaked(trial.config)]
        )

    def _soaks_by_rung(self, config: Config, soaks: Mapping[str, Soak]) -> dict[float, Soak]:
        """Return rung → the soak of the config that equals `config` in all parameters but the ladder.

        `soaks`: launch key → soak. Empty for a space without a ladder.
        """
        if (ladder := self._ladder) is None:
            return {}
        without_rung = {**launched(config), ladder: 0}  # equal for all configs along the ladder
        siblings = [soak for soak in soaks.values() if {**launched(soak.trial.config), ladder: 0} == without_rung]
        return {float(soak.trial.config[ladder]): soak for soak in siblings}

    def _next_rung(self, config: Config, known: Mapping[str, Soak], history: History) -> Config | None:
        """Return the config on the next rung to soak; None where no rung is worth a soak.

        `config` was refused, `known` holds the soaks so far by launch key, and `history` the probes.

        The rung is between the largest that passed and the smallest that was refused:
        1. the largest rung that is expected to pass;
        2. where none is, and one has passed: the rung in their middle, if the two are far apart, and the refused soak
           showed no clear growth. Without clear growth, a refused soak says little about the rungs below it;
        3. where none has passed yet: the largest rung that is at least a quarter below the refused rung.
        """
        if (ladder := self._ladder) is None:
            return None
        soaks = self._soaks_by_rung(config, known)
        passed = max((rung for rung, soak in soaks.items() if soak.passed), default=0.0)
        refused = min((rung for rung, soak in soaks.items() if not soak.passed), default=math.inf)
        between = {float(rung): rung for rung in self._rungs(refused) if passed * RUNG_RATIO < float(rung) < refused}
        if not between or len(soaks) >= 8:  # eight soaks of one ladder are enough
            return None
        shares = {rung: soak.share for rung, soak in soaks.items() if soak.forecast}
        expected = self._expected_to_pass(config, shares, sorted(between), history) if shares else []
        if expected:  # 1
            rung = max(expected)
        elif passed:  # 2
            is_growth_sure = soaks[refused].shows_growth and soaks[refused].trained_s > 0.5 * soaks[passed].trained_s
            if refused <= FAR_RATIO * passed or is_growth_sure:
                return None
            middle = math.sqrt(passed * refused)  # as rungs usually double
            rung = min(between, key=lambda rung: abs(math.log(rung / middle)))
        else:  # 3
            rung = max((rung for rung in between if rung <= 0.75 * refused), default=min(between))
        return {**config, ladder: between[rung]}

    def _rungs(self, below: float) -> Sequence[Value]:
        """Return the rungs that may be soaked: all rungs of the ladder, or numbers `below` a rung of an `auto` ladder.

        An `auto` ladder has only bounds, and any number between them may be a rung. The returned ones lie apart by the
        factor `RUNG_RATIO`. Where `below` is infinite, they are the rungs of its calibration.
        """
        ladder = next((parameter for parameter in self._space.parameters if parameter.name == self._ladder), None)
        bounds = ladder.bounds if ladder else None
        if bounds is None or below == math.inf:
            return self._space.rungs or self._space.values(str(self._ladder))
        least, most = bounds
        count = math.ceil(math.log(below / least, RUNG_RATIO))
        rungs = (round(below / RUNG_RATIO**step) for step in range(1, count + 1))
        return [rung for rung in dict.fromkeys(rungs) if least <= rung <= most]  # rounded, some are equal

    def _expected_to_pass(
        self, config: Config, shares: Mapping[float, float], rungs: Sequence[float], history: History
    ) -> Sequence[float]:
        """Return the rungs whose training is expected to need no more than the usable memory.

        1. With two soaks that are far apart, memory is a straight line over the rungs.
        2. Otherwise, memory is that of a probe, and what a soak needs beyond that is proportional to the rung. Where no
           probe has shown memory, all that a soak needs is proportional.

        Args:
            config: the config, whose rung does not matter.
            shares: rung → the share of the usable memory that a training on it needs, by its soak.
            rungs: the rungs to judge.
            history: the probes so far.
        """
        # the rungs of the two soaks that come nearest to using all usable memory
        nearest = sorted(shares, key=lambda rung: abs(shares[rung] - 1.0))[:2]
        low, high = min(nearest), max(nearest)
        if high >= FAR_RATIO * low and shares[high] > shares[low]:  # 1
            expected = np.polyval(np.polyfit(nearest, [shares[rung] for rung in nearest], 1), rungs)
        else:  # 2
            # a model of the memory of probes over the space, if any probe has shown its memory
            amounts = Observed(history.trials, ladder=self._ladder).known_amounts(MEMORY_SHARE, self._space)
            # as `search.resource_model` fits it
            of_probes = fitted_after_siblings(self._space, amounts, error=0.004, choice_deviation=0.25)
            soaked = nearest[0]
            probed = np.zeros(len(rungs) + 1)  # the shares that probes need on the soaked rung, and on those to judge
            if of_probes:
                probed = of_probes.expect([{**config, str(self._ladder): rung} for rung in (soaked, *rungs)])[0]
            beyond_probe = shares[soaked] - probed[0]
            expected = probed[1:] + beyond_probe * np.array(rungs) / soaked
        return [rung for rung, share in zip(rungs, expected, strict=True) if share <= 1.0]


def _best_config(trials: Sequence[TrialRecord]) -> Config | None:
    """Return the best config of some trials; None where no config is eligible."""
    leading = leader(trials)
    return dict(leading.best.trials[-1].config) if leading else None


def verdicts(view: CaseView, training: WholeTraining) -> Iterator[str]:
    """Yield a sentence about each config that was soaked, in the order of the soaks, and then what to do now.

    `training` is the whole training that a soak stands for. It says whether soaks meet what needs most
    memory, such as the largest batch. Its allocator is one that keeps freed memory, where there is such an allocator.
    """
    soaks = list(newest_soaks(view.trials, training).values())
    for soak in soaks:
        yield f"{view.name}: #{soak.trial.number} {in_words(soak.trial.config)}: {_outcome(soak, training)}"
    passed = [soak for soak in soaks if soak.passed]
    best = view.best
    of_best = [soak for soak in passed if best and soak.trial.launch_key == launch_digest(best.config)]
    unprovoked = (
        "flags in `soak:` bring the largest batch, evaluation and checkpoint into a soak; what is far larger than "
        "all in this soak may not fit"
    )
    if best and of_best:
        yield f"{view.name}: train with {in_words(best.config)}"
        hints = [*_longer_soak(of_best[0])] if training.meets_peak else [*_longer_soak(of_best[0]), unprovoked]
        if hints:
            yield f"{view.name}: to be surer: {'; '.join(hints)}"
    elif best and passed:
        yield f"{view.name}: {in_words(passed[-1].trial.config)} lasts; the best is {in_words(best.config)}, not soaked"
    elif soaks:
        longer = "".join(f", or soak longer: {hint}" for hint in _longer_soak(soaks[-1]))
        forecast = f"of no config it is {100 * SURE:.0f} % sure that its memory lasts"
        yield f"{view.name}: {forecast}; add smaller values to the ladder{longer}"
    was_refused = len(passed) < len(soaks)
    # another allocator is another setting of the study, whose results may not mix with these
    if was_refused and (allocator := training.allocator):
        setting = f"`environment: {{variables: {{{allocator.variables[0]}: {allocator.value}}}}}`"
        kept = f"freed memory that {allocator.name} keeps for later counts as used"
        yield f"{view.name}: {kept}; in a study with another name, and {setting}, larger values may last"


def _outcome(soak: Soak, training: WholeTraining) -> str:
    """Return what a soak showed: whether memory lasts, or why the config failed; and the samples/s."""
    record = soak.trial.probe
    if soak.forecast:
        memory = training.in_short(soak.forecast)
    else:
        memory = record.failure.detail if record.failure else "its memory is unknown"
    speed = soak.trial.samples_per_s
    return f"{memory}; {with_error(speed, record.samples_per_s_se)} samples/s" if speed else memory


def _longer_soak(soak: Soak) -> Iterator[str]:
    """Yield how many `--minutes` of a soak would exclude all growth that fills the memory within the training.

    Nothing is yielded if this soak was long enough. Growth that hides in a soak of twice the time is half as fast.
    """
    forecast = soak.forecast
    if forecast is None or forecast.filled_h >= forecast.hours:
        return  # growth that hides would fill the memory only after the training
    minutes = math.ceil(soak.trained_s / 60.0 * forecast.hours / forecast.filled_h)
    growth = f"growth of less than {forecast.rise.hidden_mib_per_h:.0f} MiB an hour"
    soaked = probe.duration(soak.trained_s)
    yield f"`--minutes {minutes}` would show {growth}, which hides in this soak of {soaked} and is allowed for"
