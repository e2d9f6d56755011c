"""What the best config of a case gains over another one, with its error, and why this may not hold.

A config is measured by the plain command, which starts the trainer for it, or in a session: a trainer that is started
once for many configs. A reading is one such measurement. A pause is the part of an iteration in which nothing is
trained, such as an evaluation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, hypot, log, sqrt
from statistics import fmean

from tuner.export.case_view import CaseView
from tuner.export.wording import SPEEDS, with_error
from tuner.probe import WITHOUT_PAUSE, Quantity, duration, of_known
from tuner.records.trial import PRUNED
from tuner.search.standing import SURE, Standing, least_times, why_incomparable
from tuner.study import launched


@dataclass(frozen=True, kw_only=True, slots=True)
class BestGain:
    """What the best gains over its default or the user's own command, both measured in the same way.

    Terminal, live view, report and scripts tell this gain and no other.
    """

    before: float
    """The first objective of the config with which the best is compared."""
    before_error: float | None
    after: float
    """That of the best."""
    after_error: float | None
    times: float | None
    """How many times as fast the best is; None where a speed is unknown: then only the objective is compared."""
    error: float | None
    """The standard error of `times`; None where it is unknown."""
    overall: bool
    """Whether `times` is that of a whole training, its pauses included; otherwise it is that of its steps."""
    in_sessions: bool
    """Whether sessions have measured both, although the value of the best comes from the plain command."""
    may_be_slower_later: bool
    """Whether the best may be slower in later passes over the data, which no probe of the other config has seen."""

    @property
    def factor(self) -> str:
        """How many times as fast the best is, as text such as `1.52 ± 0.03 times`; empty where it is unknown."""
        return f"{with_error(self.times, self.error, 2)} times" if self.times else ""

    @property
    def over(self) -> str:
        """` over the whole training` where `times` is that of a whole training, otherwise empty."""
        return " over the whole training" if self.overall else ""

    @property
    def values(self) -> str:
        """The values of both configs, with their errors, such as `58.0 ± 0.2 → 87.0 ± 0.3`."""
        return f"{with_error(self.before, self.before_error)} → {with_error(self.after, self.after_error)}"

    @property
    def is_within_error(self) -> bool:
        """Whether the best may be no faster, because it is by less than `SURE` standard errors."""
        return self.times is not None and self.error is not None and self.times - SURE * self.error <= 1.0

    def difference(self, form: str) -> str:
        """Return the difference of the objective, written as `form` says, with its standard error where that hides it.

        The error hides a difference of less than `SURE` standard errors.
        """
        difference, error = self.after - self.before, hypot(self.before_error or 0.0, self.after_error or 0.0)
        hidden = f" ± {error:.1f}" if abs(difference) < SURE * error else ""
        return f"{difference:{form}}{hidden}"


def gain(view: CaseView) -> BestGain | None:
    """Return what the best of a case gains over its default, which is the user's own command if that was typed.

    None where the two are the same config, and where the gain is unknown: the two were not measured in the same way, or
    the default config failed when it was measured again, so that its measurements cannot be relied on.
    """
    best, baseline = view.best, view.default
    if best is None or baseline is None or baseline.launch_key == best.launch_key or _why_unknown(view):
        return None
    pair = view.comparable_pair(baseline)  # both by the plain command, or both in sessions
    if pair is None:
        return None
    of_steps = _speed_ratio(pair.second, baseline=pair.first, is_speed=view.objective in SPEEDS)
    overall = None
    before, after = _step_share(pair.first), _step_share(pair.second)
    if of_steps and before and after:  # a share of 0.5 halves the speed over the whole training
        overall = of_steps.times(after / before)
    times = overall or of_steps
    return BestGain(
        before=pair.first.value,
        before_error=pair.first.widened_error,
        after=pair.second.value,
        after_error=pair.second.widened_error,
        times=times and times.value,
        error=times and times.error,
        overall=overall is not None,
        in_sessions=pair.second.is_warm and not best.is_warm,
        may_be_slower_later=_saw_first_pass_alone(baseline, best) and _is_as_fast_without_waits(baseline, best),
    )


def times_default(view: CaseView, config: Standing) -> Quantity | None:
    """Return how many times as many samples/s a config makes as the default config of its rung.

    None where one of the two speeds is unknown, or where they cannot be compared. If the pruner has stopped all probes
    of the default, the mean of the speeds until then counts, without an error.
    """
    default = launched(view.default_for(config.config))
    if measured := next((standing for standing in view.configs if standing.config == default), None):
        pair = None if why_incomparable(measured.trials, config.trials) else view.comparable_pair(measured, config)
        ratio = pair and _speed_ratio(pair.second, baseline=pair.first, is_speed=False)
        is_default = measured.launch_key == config.launch_key  # it is once as fast as itself
        return Quantity(ratio.value) if ratio and is_default else ratio
    pruned = [trial for trial in view.ended if launched(trial.config) == default and trial.status == PRUNED]
    # The newest of these decides which readings are compared: those of sessions, or of the plain command.
    is_warm = bool(pruned) and pruned[-1].warm
    alike = config if config.is_warm == is_warm else view.warm_standings.get(config.launch_key)
    speed = of_known(fmean, (trial.samples_per_s for trial in pruned if trial.warm == is_warm))
    return Quantity(alike.samples_per_s / speed) if alike and alike.samples_per_s and speed else None


def _speed_ratio(config: Standing, baseline: Standing, *, is_speed: bool) -> Quantity | None:
    """Return how many times as fast as `baseline` a config is, pauses left out; None where a speed is unknown.

    The error assumes independent errors of the two. A config that ran once does not show how much its runs differ: it
    is taken to scatter as much as the other config, if that ran several times. `_disturbance` adds other programs.

    Args:
        config: The config.
        baseline: The config with which it is compared.
        is_speed: Whether the first objective is the speed to compare; otherwise it is samples/s.
    """
    speed, error = (config.value, config.error) if is_speed else (config.samples_per_s, config.speed_error)
    base_speed, base_error = (
        (baseline.value, baseline.error) if is_speed else (baseline.samples_per_s, baseline.speed_error)
    )
    if not speed or not base_speed:
        return None
    times = speed / base_speed
    if error is None or base_error is None:
        return Quantity(times)
    relative_errors = ((error / speed, config.readings), (base_error / base_speed, baseline.readings))
    # the mean of n runs has the scatter of one run, divided by √n, as its error
    run_scatter = max((mean_error * sqrt(runs) for mean_error, runs in relative_errors if runs > 1), default=0.0)
    relative = (max(mean_error, run_scatter / sqrt(runs)) for mean_error, runs in relative_errors)
    return Quantity(times, times * hypot(*relative, _disturbance(config.possible_loss, baseline.possible_loss)))


def _disturbance(loss: float, base_loss: float) -> float:
    """Return the relative standard error of a ratio of speeds that other programs may have made too small.

    Without them, each speed may be up to `1 + loss` times as large, with the probabilities of `error_with_disturbance`.
    The factor of one config says nothing of the other's, because waits may cost a training much or nothing. So the
    error has the standard deviation of each factor, relative to its mean, and the ratio of the two means.
    """
    means = 1.0 + loss * 2.0 / 3.0, 1.0 + base_loss * 2.0 / 3.0
    scatter = (most / sqrt(18.0) / mean for most, mean in zip((loss, base_loss), means, strict=True))
    return hypot(*scatter, log(means[0] / means[1]))


def _why_unknown(view: CaseView) -> str | None:
    """Return why the best cannot be compared with the default, as a sentence; None where it can."""
    return view.unlike_best(view.default) or view.failed_again_text


def least_gain(view: CaseView) -> float | None:
    """Return how many times as fast as the default the best probably is at least, where the gain is unknown.

    The bound has one decimal, rounded down. None where it is unknown, too, or shows no gain.
    """
    best, baseline = view.best, view.default
    if baseline is None or best is None or view.failed_again_text or not view.unlike_best(baseline):
        return None
    times = floor(10.0 * (least_times(best, baseline, is_speed=view.objective in SPEEDS) or 0.0)) / 10.0
    return times if times > 1.0 else None


def unknown_gain(view: CaseView) -> Iterator[str]:
    """Yield why the gain of the best over the default is unknown, as a sentence; nothing where it is known.

    The sentence has the least gain, where that is known.
    """
    if why := _why_unknown(view):
        least = least_gain(view)
        yield f"the gain is unknown{f'; the best is probably at least {least} times as fast' if least else ''}: {why}"


def doubts(view: CaseView) -> Iterator[str]:
    """Yield why the gain of the best over the default may not hold, as sentences, the largest doubt first."""
    yield from unknown_gain(view)
    yield from filter(None, [view.loaded_text, view.slowing_text])
    yield from unmeasured(view)
    best, baseline, name = view.best, view.default, view.default_name
    if baseline is None or best is None:
        return
    if baseline.readings == 1:
        yield f"{name} ran once: ± holds the scatter within a run, and other runs may differ by more"
    yield from _later_start(baseline, best, name)
    if not _pause_notes(baseline, best):
        yield "no evaluation or save was seen, so a whole training may gain more or less"


def unmeasured(view: CaseView) -> Iterator[str]:
    """Yield which parts of a whole training the probes have not seen, although a few minutes show them, as sentences.

    These are passes over the data after the first one, and pauses such as evaluations.
    """
    best, baseline, name = view.best, view.default, view.default_name
    if best is None or baseline is None:
        return
    if _saw_first_pass_alone(baseline, best):
        cached = f"if later passes find the data in a cache, {name} is faster than that"
        if _is_as_fast_without_waits(baseline, best):
            cached += ", and may be faster than the best"
        yield f"{name} was measured in its first pass over the data alone: {cached}"
    shares = [_step_share(baseline), _step_share(best)]
    pause_notes = _pause_notes(baseline, best)
    if not pause_notes or all(shares):
        return
    text = f"the gain is that of training steps alone; with pauses it is unknown: {pause_notes[0]}"
    speeds = [baseline.samples_per_s, best.samples_per_s]
    pauses_s = [(1 / share - 1) / speed for share, speed in zip(shares, speeds, strict=True) if share and speed]
    if pauses_s and all(speeds):  # the seconds of pauses for each sample, of the config whose pauses are known
        base_s, best_s = (1 / speed + pauses_s[0] for speed in speeds if speed)
        text += f"; if both pause alike, the best is {base_s / best_s:.2f} times as fast"
    yield text


def _saw_first_pass_alone(baseline: Standing, best: Standing) -> bool:
    """Return whether `baseline` waits for data and was measured in its first pass alone, and the best also later."""
    waits_for_data = _data_share(baseline) > 0.02  # chosen
    return waits_for_data and _passes(baseline) == 0 and bool(_passes(best))


def _is_as_fast_without_waits(baseline: Standing, best: Standing) -> bool:
    """Return whether `baseline` would be at least as fast as the best if it never waited for data."""
    return (baseline.samples_per_s or 0.0) >= (1.0 - _data_share(baseline)) * (best.samples_per_s or 0.0)


def _passes(config: Standing) -> int | None:
    """Return the most passes over the data that a probe of a config has seen to the end; None if they are unknown."""
    counted = [trial.probe.training.passes for trial in config.trials if trial.probe.training]
    return max((passes for passes in counted if passes is not None), default=None)


def _data_share(config: Standing) -> float:
    """Return the share of its time, from 0 to 1, in which a config waits for data: at most all, where it is unknown."""
    counted = [trial.probe.training for trial in config.trials if trial.probe.training]
    share = of_known(fmean, (counts.shares.data if counts.shares else None for counts in counted))
    return 1.0 if share is None else share


def whole_training(view: CaseView) -> Iterator[str]:
    """Yield a sentence with the gain over a whole training, its pauses included; nothing where pauses are unknown."""
    best, baseline, name, gained = view.best, view.default, view.default_name, gain(view)
    if best and baseline and gained and gained.overall:
        texts = [f"over the whole training the best is {gained.factor} as fast as {name}"]
        before, after = (_step_share(config) for config in (baseline, best))
        if before and after:
            shares = f"{100 * before:.0f} % of the time of {name} and {100 * after:.0f} % of that of the best"
            texts.append(f"steps are {shares}")
        yield "; ".join([*texts, *_pause_notes(baseline, best)[:1]])


def _pause_notes(baseline: Standing, best: Standing) -> list[str]:
    """Return what evaluations and saves cost, as sentences, those of the best first.

    Each probe has noted this sentence itself, among its other notes.
    """
    notes = [note for trial in (*best.trials, *baseline.trials) for note in trial.probe.notes]
    return [note.removesuffix(f"; {WITHOUT_PAUSE}") for note in notes if note.endswith(WITHOUT_PAUSE)]


def _step_share(config: Standing) -> float | None:
    """Return the share of a training's time, from 0 to 1, that its steps take and pauses do not; None if unknown."""
    return of_known(fmean, (trial.probe.step_share for trial in config.trials))


def _later_start(baseline: Standing, best: Standing, name: str) -> Iterator[str]:
    """Yield after which time of training the best is ahead of `baseline` although it starts later.

    Nothing is yielded where it starts less than 5 s later (chosen), or is not faster. `name`: what a person
    calls `baseline`.
    """
    base_start_s = of_known(fmean, [trial.probe.start_up_s for trial in baseline.trials])
    best_start_s = of_known(fmean, [trial.probe.start_up_s for trial in best.trials])
    before, after = baseline.samples_per_s, best.samples_per_s
    if base_start_s is None or best_start_s is None or not before or not after or after <= before:
        return
    later_s = best_start_s - base_start_s
    if later_s >= 5.0:
        pays_s = later_s * after / (after - before)  # both have then made as many samples: before·t = after·(t - later)
        yield f"the best starts {duration(later_s)} later: it pays where {name} trains for over {duration(pays_s)}"
