"""What the device-seconds of a case were spent on, and when its best was found. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.kept.probe import INTERRUPTED, OK, PRUNED
from tuner.kept.trial import KeptTrial
from tuner.search.standing import Standing
from tuner.study.launch import launched
from tuner.study.space import Config

WAITING = "waiting"
"""What a trial takes beside its probe: until the cards are idle, and until its result is stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """The device-seconds that were spent on one thing."""

    what: str
    until_found_s: float
    """Those up to the end of the trial that first measured the best."""
    after_s: float
    """The later ones: they made sure that no other config is better."""

    @property
    def whole_s(self) -> float:
        """All of them."""
        return self.until_found_s + self.after_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One trial that gave a number, as a step of the search."""

    trial: int
    config: Config
    value: float
    error: float | None
    ended_s: float
    """The device-seconds that all trials up to this one took."""


def found_at(trials: Iterable[KeptTrial], best: Standing | None) -> int | None:
    """Return the first trial that measured the best config; None without a best."""
    measured = (one for one in trials if one.status == OK)
    return next((one.number for one in measured if best and one.launch == best.launch), None)


def spent(trials: Sequence[KeptTrial], devices: int, found: int | None) -> list[Spent]:
    """Return what the device-seconds of the probes were spent on, the largest first.

    `found` is the trial that first measured the best.
    """
    until: defaultdict[str, float] = defaultdict(float)
    after: defaultdict[str, float] = defaultdict(float)
    for trial in trials:
        counted = until if found is None or trial.number <= found else after
        for what, seconds in _parts(trial).items():
            counted[what] += devices * seconds
    whole = [Spent(what=what, until_found_s=until[what], after_s=after[what]) for what in until.keys() | after.keys()]
    return sorted((one for one in whole if one.whole_s > 0.0), key=lambda one: (-one.whole_s, one.what))


def _parts(trial: KeptTrial) -> dict[str, float]:
    """Return the seconds of one probe by what they were spent on. They add up to the whole probe."""
    probe = trial.probe
    whole = probe.total_s or 0.0
    if trial.status not in {OK, PRUNED}:
        return {_in_words(trial.status): whole}
    start_up = min(probe.start_up_s or 0.0, whole)
    window = min(probe.window_s or 0.0, whole - start_up)
    name = "window" if trial.status == OK else "window of pruned probes"
    return {"start-up": start_up, name: window, "warm-up and end": whole - start_up - window}


def _in_words(status: str | None) -> str:
    if status is None:
        return "still running"
    return {"gpu_oom": "out of memory", "host_oom": "out of the host's memory"}.get(status, status.replace("_", " "))


def waited(trials: Iterable[KeptTrial], devices: int) -> Spent:
    """Return the device-seconds that passed within trials and outside of their probes.

    A replayed probe takes no real time, and a killed one is ended much later; neither waits.
    """
    seconds = 0.0
    for trial in trials:
        if trial.started and trial.completed and trial.status != INTERRUPTED:
            whole = (trial.completed - trial.started).total_seconds()
            seconds += max(0.0, whole - (trial.probe.total_s or 0.0))
    return Spent(what=WAITING, until_found_s=devices * seconds, after_s=0.0)


def steps(trials: Sequence[KeptTrial], devices: int) -> tuple[Step, ...]:
    """Return the trials that gave a number, in their order, with the device-seconds that had passed."""
    so_far, made = 0.0, list[Step]()
    for trial in trials:
        so_far += (trial.probe.total_s or 0.0) * devices
        if trial.status == OK and trial.value is not None:
            made.append(
                Step(
                    trial=trial.number,
                    config=launched(trial.config),
                    value=trial.value,
                    error=trial.error,
                    ended_s=so_far,
                )
            )
    return tuple(made)
