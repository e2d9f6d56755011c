"""What measurements tell that the model did not learn from. Pure."""

from tuner.search.arrays import Floats
from tuner.search.gain.levels import Codes
from tuner.search.gain.readings import Readings


def settled(left_out: Readings, codes: Codes, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of each config's value once its measurements that were left out count, too.

    Each such measurement tells about its own config only: it is combined with `mean` and `variance` by their precision.
    """
    if not len(left_out.values):
        return mean, variance
    mean, variance = mean.copy(), variance.copy()
    known = {code.tobytes() for code in left_out.codes}
    places = {key: place for place, code in enumerate(codes) if (key := code.tobytes()) in known}
    noises = left_out.errors**2 + left_out.shared.diagonal()
    for code, value, noise in zip(left_out.codes, left_out.values, noises, strict=True):
        if (place := places.get(code.tobytes())) is not None:
            share = variance[place] / (variance[place] + noise)
            mean[place] += share * (value - mean[place])
            variance[place] *= 1.0 - share
    return mean, variance
