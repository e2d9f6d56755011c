"""Soaks: run the best config until it is known whether its memory lasts, then a smaller one where it does not.

A study also learns here that a real training has run out of memory.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from tuner.errors import StudyError
from tuner.export import CaseView, in_words, with_error
from tuner.probe import (
    OUT_OF_MEMORY,
    TOLD,
    Answer,
    Enough,
    Evidence,
    Failure,
    FailureKind,
    More,
    ProbePlan,
    ProbeResult,
    Stop,
    duration,
    unlaunched,
)
from tuner.records.trial import COMPLETE, MEMORY_SHARE, SoakSettings, TrialRecord
from tuner.running.workbench import Job, Purpose, Workbench
from tuner.search.choosing import Choice, Done, History, Price, Strategy, Why
from tuner.search.memory_growth import SPARE, SURE, Lasts
from tuner.search.observed import Observed
from tuner.search.resource_model import inherited
from tuner.search.standing import leader, with_newest_soaks
from tuner.search.trials import all_kept
from tuner.study import Config, ProbeSpec, Space, Value, ladder_of, launch_digest, launched, without_keys
from tuner.tools.soaking.whole_training import Training
from tuner.trainers.base import Trainer
from tuner.trainers.registry import open_trainer


def reported(lines: Iterable[str], *, oom: bool, gpu: bool) -> Failure:
    """Return the failure that the output of a training shows, or that its user tells.

    Raises StudyError where neither says that memory ran out: the study would learn nothing from it.
    """
    evidence, is_told = Evidence(), False
    for line in lines:
        evidence.feed(without_keys(line), 0.0)
        is_told = True
    found = evidence.failure()
    if found and found.kind in OUT_OF_MEMORY:
        return found
    if not oom:
        said = f"it shows {found.kind}: {found.detail}" if found else "no line of it shows why the training failed"
        raise StudyError(f"{said if is_told else 'nothing is told'}; give --oom where the training ran out of memory")
    kind = FailureKind.GPU_OOM if gpu else FailureKind.HOST_OOM
    return Failure(kind=kind, rule=TOLD, detail="a training with this config ran out of memory, as its user told")


def telling(job: Job, config: Config, failure: Failure, ladder: str | None) -> Job:
    """Return the job that stores one trial of a config with this failure, and starts nothing.

    From then on no config may be the best that needs as much memory. It grows with the values of `ladder`.
    """
    left = [Choice(config=config, why=Why.TELL, cold=True, mark=ladder or "")]

    def choose(history: History, price: Price) -> Choice | Done:
        return left.pop() if left else Done(reason="the study knows it now")

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return unlaunched(plan.config, failure, plan.digest)

    purpose = Purpose(strategy=lambda *_: Strategy(choosers=(choose,)), limited=False, competing=False, keeps_end=False)
    return replace(job, probe=probe, purpose=purpose)


MINUTE_S = 60.0
USUAL_MINUTES = 15.0
MANY = 10_000_000
"""The iterations that no soak reaches."""
LEAST = 0.2
"""A soak takes at least this share of its time."""
CLEAR = 0.97
"""A soak ends early once its answer has this probability. A good answer ends it only where flags provoke the worst."""
SPEED_KNOWN = 0.02
"""Samples/s are known well enough at this standard error, as a share."""
APART = 1.015
"""Two rungs are worth a soak of their own from this ratio on."""
MOST = 8
"""The most soaks along one ladder."""
FAR = 1.1
"""From this ratio on, two soaks tell how memory grows along the ladder, and a rung between them may be soaked."""
SHORT = 0.5
"""A soak that took at most this share of another one's time is short beside it."""
WHOLE = 0.9
"""A soak that took this share of its time did not end early."""
BELOW = 0.75
"""While no rung is expected to last, the next one is at most this share of the smallest that did not."""


def soaking(bench: Workbench, minutes: float, training: Training | None = None, first: Config | None = None) -> Purpose:
    """Return the purpose: one config after another runs for up to so many minutes, until the memory of one lasts.

    `training`: None for that of the study. `first`: the config to begin with; None for the best.
    Raises StudyError where the study names flags for a soak, and its trainer takes none.
    """
    training = training or Training.of(bench)
    settings = replace(training.soak, minutes=minutes, hours=training.hours, iterations=training.iterations)
    return Purpose(
        strategy=lambda space, *_: Strategy(choosers=(Soaks(space, training, settings, first).choose,)),
        limited=False,
        competing=False,
        keeps_end=False,
        ineligible=partial(_why_not, training=training),
        settled=Following(minutes * MINUTE_S, training, whole=not bench.spec.soak.provokes),
        limits=partial(_limits, seconds=minutes * MINUTE_S),
        trainer=_provoking(bench),
    )


def _provoking(bench: Workbench) -> Trainer | None:
    """Return the trainer with the command that provokes the worst batch; None where the study names none."""
    soak, options = bench.spec.soak, bench.spec.trainer.options
    if not soak.provokes:
        return None
    if "command" not in options:
        raise StudyError(f"soak: the trainer {bench.trainer.name} takes no flags; leave `soak` out of the study")
    usual = options["command"]
    more = soak.flags if isinstance(usual, str) else soak.flags.split()
    longer = f"{usual} {more}" if isinstance(usual, str) else [*usual, *more]
    changed = {**options, "command": soak.command or longer}
    return open_trainer(bench.spec.trainer.model_copy(update={"options": changed}))


def _limits(probe: ProbeSpec, *, seconds: float) -> ProbeSpec:
    """Return the limits of a soak: only its time ends it, and no iteration is shortened."""
    changes = {"iterations": MANY, "max_seconds": probe.max_seconds + 2.0 * seconds, "thin": False, "warm": False}
    return probe.model_copy(update=changes)


def _why_not(result: ProbeResult, *, training: Training) -> str | None:
    found = training.lasts(result.devices, result)
    return None if found is None or found.chance >= SURE else training.in_short(found)


class Following:
    """Follows soaks: ends each once it is known whether memory lasts, and how fast the training is."""

    def __init__(self, seconds: float, training: Training, *, whole: bool = False) -> None:
        """`seconds`: the longest soak, from its first mark on; `whole`: only a bad answer ends it early."""
        self._seconds, self._training = seconds, training
        self._good = CLEAR if training.provoked and not whole else 1.0
        self._looked = "", 0.0

    def __call__(self, so_far: ProbeResult) -> Answer:
        """Return whether the soak goes on. It looks again each time the soak has become a fiftieth longer."""
        trained_s = so_far.total_s - (so_far.start_up_s or so_far.total_s)
        if trained_s >= self._seconds:
            return Enough()
        which, looked_s = self._looked
        if trained_s < max(LEAST * self._seconds, 1.02 * looked_s if which == so_far.started_at else 0.0):
            return More()
        self._looked = so_far.started_at, trained_s
        found, error = self._training.lasts(so_far.devices, so_far), so_far.samples_per_s_se
        is_clear = found is not None and not 1.0 - CLEAR < found.chance <= self._good
        known = so_far.samples_per_s is None or (error is not None and error <= SPEED_KNOWN * so_far.samples_per_s)
        return Enough() if is_clear and known else More()


@dataclass(frozen=True, kw_only=True, slots=True)
class Soaked:
    """What the newest soak of a config showed."""

    trial: TrialRecord
    found: Lasts | None
    """None where the config failed, or its memory is unknown."""

    @property
    def config(self) -> Config:
        """The config."""
        return self.trial.config

    @property
    def held(self) -> bool:
        """Whether memory lasts."""
        known = self.found is None or self.found.chance >= SURE
        return self.trial.state == COMPLETE and self.trial.may_be_best and known

    @property
    def trained_s(self) -> float:
        """How long the soak took, from its first mark on."""
        probe = self.trial.probe
        return 0.0 if probe.start_up_s is None or probe.total_s is None else probe.total_s - probe.start_up_s

    def suffices(self, asked: SoakSettings) -> bool:
        """Return whether a soak of these settings would say no more: this one was as long as that one will be.

        A soak that ended early, because it was sure for its training, may not be sure for a longer one.
        """
        made = self.trial.soak
        if self.trial.state != COMPLETE or made is None:
            return self.trial.state != COMPLETE
        if made.iterations is None and asked.iterations is None:
            is_longer = asked.hours > made.hours
        else:
            is_longer = asked.iterations is None or made.iterations is None or asked.iterations > made.iterations
        was_whole = self.trained_s >= WHOLE * made.minutes * MINUTE_S
        return asked.minutes <= made.minutes and (was_whole or not is_longer)

    def is_sure_beside(self, other: "Soaked") -> bool:
        """Return whether growth was seen, for at least half as long as in another soak: then more soaks say no more."""
        return bool(self.found and self.found.kind == "slope") and self.trained_s > SHORT * other.trained_s

    @property
    def share(self) -> float:
        """The share of the memory that a training will need; 1 where that is not known."""
        return 1.0 if self.found is None else self.found.share / SPARE


def soaks(trials: Sequence[TrialRecord], training: Training) -> Mapping[str, Soaked]:
    """Return the newest soak of each config that says something about it: launch key → soak, in their order.

    There are none where the newest one is of another kind than the training's.
    """
    told = [one for one in with_newest_soaks(trials) if one.soaks and one.counts]
    if told and (told[-1].soak is None or told[-1].soak.kind != training.soak.kind):
        return {}
    return {
        one.launch: Soaked(trial=one, found=training.lasts(one.devices, one.probe) if one.state == COMPLETE else None)
        for one in told
    }


def may_be_soaked(view: CaseView, training: Training) -> bool:
    """Return whether the case has a best config, or has one where its soaks with other flags say nothing."""
    trials = view.trials
    return bool(view.best or soaks(trials, training) or _best([one for one in trials if not one.soaks]))


class Soaks:
    """Chooses the config to soak: the best, then along the ladder towards the largest rung whose memory lasts."""

    def __init__(self, space: Space, training: Training, settings: SoakSettings, first: Config | None = None) -> None:
        """`settings` are those of the soaks. `first`: the config to begin with, in place of the best."""
        self._space, self._training, self._settings = space, training, settings
        self._ladder, self._first = ladder_of(space), first

    def choose(self, history: History, price: Price) -> Choice | Done:
        """Choose the next soak; done once the best config has lasted, or none is left that may."""
        trials = all_kept(history.trials)
        soaked = soaks(trials, self._training)
        known = {launch: one for launch, one in soaked.items() if one.suffices(self._settings)}
        if not soaked:  # those with other flags say nothing
            trials = [one for one in trials if not one.soaks]
        refused = [one for one in known.values() if not one.held]
        wanted = self._first or (None if refused else _best(trials))
        config: Config | None = None
        if wanted and launch_digest(wanted) not in known:
            config = wanted
        elif refused:
            config = self._on_line(refused[-1].config, known, history)
            if config is None and len(refused) == len(known):
                config = self._measured(trials, known)
        if config is None:
            return Done(reason="each config is soaked" if known else "no config has run yet, so none is soaked")
        return Choice(config=config, why=Why.SOAK, cold=True, mark=asdict(self._settings))

    def _measured(self, trials: Sequence[TrialRecord], known: Mapping[str, Soaked]) -> Config | None:
        """Return the best config that was not soaked and is below each rung of its line that was; None without one."""

        def below_all(config: Config) -> bool:
            line = self._line(config, known)
            return not line or float(config[str(self._ladder)]) < min(line)

        return _best([one for one in trials if not one.soaks and one.launch not in known and below_all(one.config)])

    def _line(self, config: Config, known: Mapping[str, Soaked]) -> dict[float, Soaked]:
        """Return the soaks of configs that differ from one at most in their rung: rung → soak."""
        if (ladder := self._ladder) is None:
            return {}
        same = {**launched(config), ladder: 0}
        alike = [one for one in known.values() if {**launched(one.config), ladder: 0} == same]
        return {float(one.config[ladder]): one for one in alike}

    def _on_line(self, config: Config, known: Mapping[str, Soaked], history: History) -> Config | None:
        """Return the largest rung between what lasted and what did not that is expected to last; None without one.

        Unless the soak that was refused is sure, it says little about the rungs below it. So where none is expected to
        last, but the two are far apart, return the rung in their middle.
        """
        if (ladder := self._ladder) is None:
            return None
        line = self._line(config, known)
        low = max((rung for rung, one in line.items() if one.held), default=0.0)
        high = min((rung for rung, one in line.items() if not one.held), default=float("inf"))
        between = {float(rung): rung for rung in self._rungs(high) if low * APART < float(rung) < high}
        if not between or len(line) >= MOST:
            return None
        shares = {rung: one.share for rung, one in line.items() if one.found}
        fits: list[float] = []
        if shares:
            needs = self._needs(config, shares, sorted(between), history)
            fits = [rung for rung, need in zip(sorted(between), needs, strict=True) if need <= 1.0]
        if not fits and low:
            if high <= FAR * low or line[high].is_sure_beside(line[low]):
                return None
            middle = math.sqrt(low * high)
            return {**config, ladder: between[min(between, key=lambda rung: abs(math.log(rung / middle)))]}
        fits = fits or [rung for rung in between if rung <= BELOW * high]
        return {**config, ladder: between[max(fits, default=min(between))]}

    def _rungs(self, below: float) -> Sequence[Value]:
        """Return the rungs; on an `auto` ladder all that are worth a soak."""
        bounds = next((one.bounds for one in self._space.parameters if one.name == self._ladder), None)
        if bounds is None or below == float("inf"):
            return self._space.rungs or self._space.values(str(self._ladder))
        steps = (round(below / APART**count) for count in range(1, math.ceil(math.log(below / bounds[0], APART)) + 1))
        return [rung for rung in dict.fromkeys(steps) if bounds[0] <= rung <= bounds[1]]

    def _needs(
        self, config: Config, line: Mapping[float, float], rungs: Sequence[float], history: History
    ) -> Sequence[float]:
        """Return the share of the memory that a training of each rung is expected to need.

        With two soaks that are far apart, memory is a straight line over the rungs. Otherwise it is that of a probe,
        and what the nearest soak needs beyond that is proportional to the rung.
        """
        near = sorted(line, key=lambda rung: abs(line[rung] - 1.0))[:2]
        if max(near) >= FAR * min(near) and line[max(near)] > line[min(near)]:
            return list(np.polyval(np.polyfit(near, [line[rung] for rung in near], 1), rungs))
        costs = Observed(history.trials, ladder=self._ladder).known_amounts(MEMORY_SHARE, self._space)
        growth = inherited(self._space, costs, error=0.004, choices=0.25)
        ladder, (rung, *_) = str(self._ladder), near
        whole = np.array([rung, *rungs])
        probed = growth.expect([{**config, ladder: one} for one in whole])[0] if growth else np.zeros(len(whole))
        return list(probed[1:] + (line[rung] - probed[0]) * whole[1:] / rung)


def _best(trials: Sequence[TrialRecord]) -> Config | None:
    found = leader(trials)
    return dict(found.best.trials[-1].config) if found else None


def verdicts(view: CaseView, training: Training) -> Iterator[str]:
    """Yield a sentence about each config that was soaked, in their order, and what to use."""
    known = list(soaks(view.trials, training).values())
    for one in known:
        failure = one.trial.probe.failure
        said = training.in_short(one.found) if one.found else failure.detail if failure else "its memory is unknown"
        speed = one.trial.samples_per_s
        fast = f"; {with_error(speed, one.trial.probe.samples_per_s_se)} samples/s" if speed else ""
        yield f"{view.name}: #{one.trial.number} {in_words(one.config)}: {said}{fast}"
    best = view.best
    chosen = next((one for one in known if best and one.held and one.trial.launch == launch_digest(best.config)), None)
    if best and chosen:
        yield f"{view.name}: train with {in_words(best.config)}"
        if unseen := [*_growth_unseen(chosen), *([] if training.provoked else [UNPROVOKED])]:
            yield f"{view.name}: to be surer: {'; '.join(unseen)}"
    elif best and (lasting := [one for one in known if one.held]):
        yield f"{view.name}: {in_words(lasting[-1].config)} lasts; the best is {in_words(best.config)}, not soaked"
    elif known:
        yield f"{view.name}: no config's memory is known to last; add smaller values to the ladder"
    if (keeper := training.keeper) and any(not one.held for one in known):
        variable, slower = f"{keeper.variables[0]}: {keeper.value}", ", and be slower" if keeper.at_a_cost else ""
        yield (
            f"{view.name}: freed memory that {keeper.name} keeps for later counts as used; in a study with another "
            f"name, and `environment: {{variables: {{{variable}}}}}`, larger values may last{slower}"
        )


UNPROVOKED = (
    "flags in `soak:` bring the largest batch, evaluation and checkpoint into a soak; one that is far larger than all "
    "in this soak may not fit"
)


def _growth_unseen(soak: Soaked) -> Iterator[str]:
    """Yield how long a soak shows growth that would fill the memory, where this one was too short for it.

    What hides in a soak of twice the time is half as fast.
    """
    found = soak.found
    if found is None or found.filled_h >= found.hours:
        return
    minutes = math.ceil(soak.trained_s / MINUTE_S * found.hours / found.filled_h)
    yield (
        f"`--minutes {minutes}` would show growth of less than {found.hidden_mib_per_h:.0f} MiB an hour, which hides "
        f"in this soak of {duration(soak.trained_s)} and is allowed for"
    )
