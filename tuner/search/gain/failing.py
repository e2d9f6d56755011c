"""Learns from failures which values, and which pairs of values, do not run. Pure."""

import numpy as np
from numpy.typing import NDArray

from tuner.search.gain.pool import Codes, Levels
from tuner.search.resource_model import Floats

SINGLE = 0.05
"""The number of causes of failure that a config is expected to have among its sets of values, before anything ran."""
PAIR = 0.15
"""The number that it is expected to have among the pairs of these sets."""
SETS = 2.5
"""The usual number of sets that a value is in."""
_ROUNDS = 20


def chance_to_run(levels: Levels, ran: Codes, failed: Codes, otherwise: Floats, codes: Codes) -> Floats:
    """Return the probability that each config runs, by the configs that ran and failed; 1 if none failed.

    A possible cause is a set of values of one parameter, or a pair of such sets of two parameters: see `Levels.sets`. A
    config fails if it has any cause, whatever else it has: a noisy or (Pearl, "Probabilistic Reasoning in Intelligent
    Systems", 1988, 4.3). What has run is no cause, so each failure has its cause among what has not.

    Args:
        levels: The values of each parameter.
        ran: The configs that ran.
        failed: The configs that failed.
        otherwise: The probability that each failed config fails without any such cause, above 0.
        codes: The configs in question.
    """
    if not len(failed):
        return np.ones(len(codes))
    columns, sets = levels.sets()
    have_ran, have_failed = (sets[np.arange(len(sets))[:, None], rows[:, columns].T].T for rows in (ran, failed))

    # A suspect is a pair of sets that no config that ran has; a pair of a set with itself is the single set.
    is_single = np.eye(len(columns), dtype=bool)
    is_suspect = ((columns[:, None] < columns) | is_single) & (have_ran.T @ have_ran == 0.0)
    in_config = SETS * codes.shape[1]
    prior = is_suspect * np.where(is_single, SINGLE / in_config, 2.0 * PAIR / in_config**2)
    first, second = np.nonzero(is_suspect & (have_failed.T @ have_failed > 0.0))
    has = have_failed[:, first] * have_failed[:, second] > 0.0  # failure by suspect
    innocence = np.where(has, np.log1p(-_suspicion(has, prior[first, second], otherwise)), 0.0)

    # The logarithm of the probability that no suspect of a config is a cause: before the failures, and beside each. It
    # is summed over pairs of parameters, each by a table of their values.
    before, beside = np.zeros(len(codes)), np.zeros((len(codes), len(failed)))
    for one in range(codes.shape[1]):
        for other in range(one, codes.shape[1]):
            rows, of_one, of_other = codes[:, one], columns == one, columns == other
            of_values = sets[of_one].T @ np.log1p(-prior[np.ix_(of_one, of_other)]) @ sets[of_other]
            before += of_values[rows, codes[:, other]]
            at = of_one[first] & of_other[second]
            if at.any():
                of_pair = np.einsum("sv,sw,fs->vwf", sets[first[at]], sets[second[at]], innocence[:, at], optimize=True)
                beside += of_pair[rows, codes[:, other]]

    # If a config runs, the suspects that it does not have must explain all failures.
    of_failure = innocence.sum(axis=1)
    explained = 1.0 - (1.0 - otherwise) * np.exp(of_failure)
    explained_by_others = 1.0 - (1.0 - otherwise) * np.exp(np.minimum(of_failure - beside, 0.0))
    return np.exp(before) * (explained_by_others / explained).prod(axis=1)


def _suspicion(has: NDArray[np.bool_], prior: Floats, otherwise: Floats) -> Floats:
    """Return the probability that each suspect is a cause, by the prior and all failures but one: failure by suspect.

    This is belief propagation between failures and suspects. A failure says less against a suspect, the more probable
    it is that another suspect of the failed config is the cause.
    """
    odds, messages = np.log(prior / (1.0 - prior)), np.zeros(has.shape)
    suspicion = np.broadcast_to(prior, has.shape)
    for _ in range(_ROUNDS):
        innocence = np.where(has, np.log1p(-suspicion), 0.0)
        of_others = innocence.sum(axis=1, keepdims=True) - innocence
        no_other = (1.0 - otherwise[:, None]) * np.exp(np.minimum(of_others, 0.0))
        messages = 0.5 * (messages + np.where(has, -np.log(1.0 - no_other), 0.0))
        suspicion = 1.0 / (1.0 + np.exp(-(odds + messages.sum(axis=0) - messages)))
        suspicion = np.minimum(suspicion, 1.0 - 1e-9)
    return suspicion
