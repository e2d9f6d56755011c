"""Calibration: small probes, and the rungs of an `auto` ladder that follow from them.

The ladder is the parameter that decides how much memory a config needs, and its values are the rungs. A study file may
say `auto` in place of the rungs. A few cheap probes then show how memory grows, and so which rungs are worth a probe.
Until then, the doublings stand for the rungs: numbers of which each is twice the number before.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from optuna.trial import FrozenTrial

from tuner.records.case_record import StudyAttributes
from tuner.records.trial import MEMORY_SHARE, START_S
from tuner.search.choosing import ALL_PROBED, Aim, Choice, Done, History, StartsNeeded, Strategy, retry
from tuner.search.observed import Observed
from tuner.search.resource_model import fitted_after_siblings
from tuner.study import Config, ProbeSpec, Space

Expects = Callable[[int], bool]
"""Returns whether a rung is expected to run, for example. Where it is, all smaller rungs are, too."""


def calibration_rungs(doublings: Sequence[int]) -> list[int]:
    """Return the rungs to probe, in order, until two have run: two show how memory grows.

    First comes a rung near the bottom, then a rung far above it. If that is too large, those below it follow,
    downwards. Of the doublings 16, 32, 64, 128, 256 and 512, these are 32, 256, 128, 64 and 16.
    """
    far = min(4, len(doublings) - 1)  # both places are low, so that probes are cheap, but far apart
    close = max(min(1, far - 1), 0)
    downwards = reversed(doublings[: far + 1])
    return list(dict.fromkeys((doublings[close], *downwards)))  # each once


def make_rungs(
    doublings: Sequence[int], *, safe: Expects, possible: Expects, tried: Iterable[int] = ()
) -> tuple[int, ...]:
    """Return the rungs of an `auto` ladder, in rising order.

    1. All doublings that are possible, without a gap. The smallest doubling is always a rung.
    2. Up to two finer rungs where safety ends between two doublings: the largest safe number, and the number half-way
       from the last safe doubling to it. Each must be at least 1.25 times that doubling: on two H200s, 34,816 and
       36,864 environments differed by less than their errors, and a probe of either took seven minutes.
    3. All rungs that were tried.

    Args:
        doublings: The numbers that may be rungs, each twice the one before.
        safe: Says of a number whether it is expected to leave enough memory free.
        possible: Says of a number whether it may run at all.
        tried: The rungs of all trials so far.
    """
    possible_doublings = [doublings[0], *takewhile(possible, doublings)]
    return tuple(sorted({*possible_doublings, *_finer_rungs(doublings, safe), *tried}))


def _finer_rungs(doublings: Sequence[int], safe: Expects) -> list[int]:
    """Return up to two rungs between the last safe doubling and the next: see `make_rungs`.

    None where all doublings are safe, or none is: safety then ends nowhere between two of them.
    """
    safe_doublings = list(takewhile(safe, doublings))
    if not 0 < len(safe_doublings) < len(doublings):
        return []
    last, unsafe = safe_doublings[-1], doublings[len(safe_doublings)]
    step = max(last // 8, 1)  # an eighth of a doubling: rungs are then round numbers
    *_, largest = takewhile(safe, range(last, unsafe, step))
    half_way = (last + largest) // 2
    return [rung for rung in (half_way, largest) if rung >= 1.25 * last]  # see `make_rungs` for 1.25


def ladder_calibration(space: Space) -> Strategy:
    """Return the strategy that probes one small rung after another, until the rungs of an `auto` ladder can be made."""
    configs, ladder = calibration_configs(space), str(space.ladder)

    def next_config(history: History) -> Config | None:
        """Return a config that was not probed yet, else a config that another worker probes now; None after two rungs.

        A worker rather repeats the other's probe than waits for its end.
        """
        if len({trial.config[ladder] for trial in history.complete}) >= 2:  # two points give a straight line
            return None
        unfinished = [config for config in configs if not history.is_over(config)]
        return min(unfinished, key=lambda config: not history.is_new(config), default=None)  # False comes before True

    def choose(history: History, starts_needed: StartsNeeded) -> Choice | Done:
        """Choose the config to probe next; end once a worker has stored the rungs, or the probes suffice."""
        is_stored = StudyAttributes(history.study.user_attrs).rungs is not None
        config = next_config(history)
        if is_stored or config is None:
            return Done(reason=ALL_PROBED)
        return retry(history, starts_needed) or Choice(config=config, aim=Aim.CALIBRATE)

    return Strategy(choosers=(choose,))


def calibration_configs(space: Space) -> list[Config]:
    """Return the configs that calibration probes, in this order, until two have run: defaults of some rungs."""
    return [usual(space) | {str(space.ladder): rung} for rung in calibration_rungs(list(map(int, space.rungs)))]


def rungs_after(trials: Sequence[FrozenTrial], space: Space, limits: ProbeSpec) -> tuple[int, ...]:
    """Return the rungs of an `auto` ladder, by a study's trials so far.

    A rung is left out only if it surely needs too much memory or time to start: even two standard deviations below the
    prediction. A rung that has run out of memory or time stays as the last rung.

    Args:
        trials: The trials of the study.
        space: The space, whose ladder holds the doublings.
        limits: How long a start may take, and how much memory must stay free.
    """
    ladder, usual_config = str(space.ladder), usual(space)
    observed = Observed(trials, ladder=ladder)
    known_shares, known_s = (observed.known_amounts(amount, space) for amount in (MEMORY_SHARE, START_S))
    # the errors and deviations are those of logarithms
    memory_model = fitted_after_siblings(space, known_shares, error=0.02, choice_deviation=0.1)
    start_model = fitted_after_siblings(space, known_s, error=0.1, choice_deviation=0.0)

    def possible(rung: int) -> bool:
        """Return whether the usual config on a rung may fit into memory and start in time."""
        config = usual_config | {ladder: rung}
        for model, limit in ((memory_model, 1.0), (start_model, observed.longest_start_s(limits, space))):
            if model is not None:  # something was measured
                mean, deviation = model.expect([config])
                if mean[0] - 2.0 * deviation[0] > limit:
                    return False
        return observed.frontier.exceeded_failure(config) is None  # nothing that needs less has run out

    def safe(rung: int) -> bool:
        """Return whether the usual config on a rung is possible, and expected to leave enough memory free."""
        mean_share = memory_model.expect([usual_config | {ladder: rung}]).mean[0] if memory_model else 0.0
        return possible(rung) and bool(mean_share <= 1.0 - limits.headroom_pct / 100.0)

    tried = {int(trial.params[ladder]) for trial in trials if ladder in trial.params}
    # The user's own rung stays, so that the search compares with it.
    own_rung = next(parameter.own for parameter in space.parameters if parameter.is_ladder)
    if isinstance(own_rung, int) and possible(own_rung):
        tried.add(own_rung)
    return make_rungs(list(map(int, space.rungs)), safe=safe, possible=possible, tried=tried)


def usual(space: Space) -> Config:
    """Return the config that calibration varies: the default of the smallest rung.

    It is the first config of the space where no variant of the agent is called default.
    """
    default = space.default_at(next(iter(space.rungs), None))
    return default if default in space else space.config_of(lambda parameter: parameter.values[0])
