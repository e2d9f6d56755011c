"""What a race comes to, in sentences: which config learns most, how clearly, and what foretold it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from tuner.export.wording import figure
from tuner.kept.trial import over
from tuner.probe.metrics import SAMPLES_PER_S
from tuner.probe.steady import student_tail
from tuner.racing.contest import Place
from tuner.racing.entrants import Entrant
from tuner.search.scores import Mean, agreement, ahead, means

UPDATES = "updates/s"
BY_CHANCE = 0.05
"""A winner is clear if chance alone would put two equal configs so far apart with at most this probability."""
LEAST_CHANCE = 0.01
"""A smaller probability is not told as a number: two or three seeds do not show it."""
_NAMES = {SAMPLES_PER_S: "samples/s"}


def forecasts(places: Sequence[Place], updates: Mapping[int, float | None]) -> dict[str, list[float | None]]:
    """Return what could have foretold a race: metric → its value for each place.

    Utilisation is that of the search. Samples/s and updates/s are those of the race itself, and those of the search
    where the race has none. `updates` holds the updates of an iteration, by position.
    """
    searched = dict.fromkeys(name for place in places for name in place.entrant.measured)
    found = {name: [place.entrant.measured.get(name) for place in places] for name in searched if name != SAMPLES_PER_S}
    for place in places:
        speed = over(fmean, [run.samples_per_s for run in place.runs])
        found.setdefault(SAMPLES_PER_S, []).append(speed or place.entrant.measured.get(SAMPLES_PER_S))
    speeds = [over(fmean, [run.iterations_per_s for run in place.runs]) for place in places]
    found[UPDATES] = [one * count if one and (count := updates.get(at)) else None for at, one in enumerate(speeds)]
    return found


def verdict(places: Sequence[Place], updates: Mapping[int, float | None]) -> Iterator[str]:
    """Yield the sentences about a race. `updates` holds the updates of an iteration, by position."""
    finalists = [(one, one.mean) for one in places if one.mean is not None and one.seconds == places[0].seconds]
    yield from (f"{one.entrant} left the race: {one.failure}" for one in places if one.failure)
    if not finalists:
        yield "No run has a score yet, so nothing is known about what is learnt."
        return
    first, mean = finalists[0]
    yield (
        f"{first.entrant} learns most: {_of(mean)} after {first.seconds:.0f} s of training, mean of {mean.runs} run(s)."
    )
    if len(finalists) > 1:
        second, follows = finalists[1]
        yield _lead(mean, second.entrant, follows)
    yield from _foretold(places, updates)
    devices = {found for place in places for run in place.runs if (found := run.host.get("devices"))}
    if len(devices) > 1:
        named = "; ".join(sorted(devices))
        yield f"The runs had {len(devices)} sets of devices: {named}. This alone may change scores."


def _lead(first: Mean, second: Entrant, follows: Mean) -> str:
    """Say how far the second is behind, and how often chance alone would do this (Student's t test)."""
    by = f"{second} follows with {_of(follows)}"
    lead = ahead(first, follows)
    if lead is None and max(first.runs, follows.runs) < 2:
        return f"{by}. How sure this is cannot be said: each of the two was trained with one seed."
    if lead is None:
        return f"{by}. The seeds make no difference: each config's runs have one score. Does the command use {{seed}}?"
    chance = student_tail(lead.errors, lead.freedom)
    behind = f"{by}, {lead.errors:.1f} standard errors behind"
    often = f"{100 * chance:.0f} %" if chance >= LEAST_CHANCE else f"less than {100 * LEAST_CHANCE:g} %"
    said = f"{behind}. Two equal configs would differ so in {often} of races"
    return f"{said}." if chance <= BY_CHANCE else f"{said}: the winner is not clear, and more hours or seeds may tell."


def _foretold(places: Sequence[Place], updates: Mapping[int, float | None]) -> Iterator[str]:
    """Yield for each metric whether its order is that of the scores after the time that all configs were trained."""
    shortest = min((place.seconds for place in places if place.mean), default=0.0)
    scores = means({at: place.runs for at, place in enumerate(places)}, shortest)
    for name, values in forecasts(places, updates).items():
        both = [(value, scores[at].value) for at, value in enumerate(values) if value is not None and at in scores]
        if len(both) < 2 or (tau := agreement(*zip(*both, strict=True))) is None:
            continue
        right = max(both)[1] == max(score for _, score in both)
        yield (
            f"{_NAMES.get(name, name)} {'names' if right else 'does not name'} the winner after {shortest:.0f} s; its "
            f"order agrees with that of the scores by {tau:+.2f} (Kendall's tau of {len(both)} configs)."
        )


def _of(mean: Mean) -> str:
    error = "" if mean.error is None else f" ± {mean.error:.3g}"
    return f"{figure(mean.value)}{error}"
