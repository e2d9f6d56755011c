"""What the parts of a step lead to expect of its speed: each part depends on few parameters. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tuner.search.gain.kernels import _matern_kernel
from tuner.search.gain.pool import Codes, Levels
from tuner.search.resource_model import Floats, Prediction
from tuner.study import Space

FITTED_AT = (3, 4, 5, 7, 9, 12, 16, 21, 27, 35, 45, 60, 80, 110, 150, 200, 300, 400)
_FITS: dict = {}
FLOOR = 0.08
OTHER = "other"
SLOPE = 0.35
PAIR = 0.5
NORM = False
SINGLE = 0.3


class Basis:
    """The covariance of each parameter alone, by the places of its values."""

    def __init__(self, space: Space, levels: Levels) -> None:
        self.tables: list[Floats] = []
        for column, parameter in enumerate(space.parameters):
            codes = np.zeros((len(parameter.values) + 1, len(space.parameters)), dtype=np.intp)
            codes[:, column] = np.arange(len(parameter.values) + 1)
            squares = levels.distances(codes)[column]
            table = _matern_kernel(4.0 * squares)
            numbers = [v for v in parameter.values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0]
            if len(numbers) == len(parameter.values) > 1:
                logs = np.append(np.log2(np.array(numbers, dtype=float)), 0.0)
                logs[-1] = logs[:-1].mean()
                logs = logs - logs[:-1].mean()
                table = table + (logs[:, None] * logs[None, :]) * (SLOPE / 0.3) ** 2
            self.tables.append(table)

    def each(self, rows: Codes, columns: Codes) -> Floats:
        """Return parameter by row by column."""
        return np.stack([t[:, columns[:, p]][rows[:, p]] for p, t in enumerate(self.tables)])


class PartModel:
    """A Gaussian process of the logarithm of one part: level, effects of single parameters and of pairs."""

    def __init__(self, basis: Basis, codes: Codes, values: Floats, start: Floats | None = None, noise: Floats | None = None, mean: float | None = None, fit: bool = True) -> None:
        self.basis, self.codes = basis, codes
        self.mean = float(values.mean()) if mean is None else mean
        self.noise = np.zeros(len(values)) if noise is None else noise**2
        self.y = values - self.mean
        self.each = basis.each(codes, codes)
        if fit:
            first = max(count for count in FITTED_AT if count <= max(len(values), FITTED_AT[0]))
            key = codes[:first].tobytes(), values[:first].tobytes()
            if key not in _FITS:
                _FITS[key] = self._fitted(values[:first], self.each[:, :first, :first])
            best = _FITS[key]
        else:
            best = start
        self.h = best
        cov = self._cov(best, self.each)
        cov.flat[:: len(cov) + 1] += math.exp(2 * best[-1]) + self.noise
        self.root = np.linalg.cholesky(cov)
        self.white = np.linalg.inv(self.root)
        self.weights = self.white.T @ (self.white @ self.y)
        squares = np.minimum(np.square(self.weights) / np.square(self.white).sum(axis=0), 16.0)
        self.inflation = max(1.0, float(squares.sum() + 4.0) / (len(squares) + 4.0))

    def _fitted(self, values: Floats, each: Floats) -> Floats:
        y, count = values - values.mean(), len(each)
        prior = np.log(np.array([SINGLE] * count + [PAIR, 0.03]))
        scale = np.array([1.2] * count + [1.0, 0.7])
        best = prior
        score = self._score(best, y, each, prior, scale)
        for step in (1.2, 0.6):
            for _ in range(2):
                before = score
                for i in range(len(best)):
                    for sign in (1.0, -1.0):
                        moved = best.copy()
                        moved[i] += sign * step
                        while (new := self._score(moved, y, each, prior, scale)) > score:
                            best, score = moved, new
                            moved = best.copy()
                            moved[i] += sign * step
                if score - before < 0.1:
                    break
        return best

    def _cov(self, h: Floats, each: Floats) -> Floats:
        w = np.exp(2 * h[:-2])
        scaled = each * w[:, None, None]
        total = scaled.sum(axis=0)
        pairs = (total**2 - np.square(scaled).sum(axis=0)) / 2.0
        return 1.5**2 + total + math.exp(2 * h[-2]) / (w.sum() if NORM else 0.09) * pairs

    def _score(self, h: Floats, y: Floats, each: Floats, prior: Floats, scale: Floats) -> float:
        cov = self._cov(h, each)
        cov.flat[:: len(cov) + 1] += math.exp(2 * h[-1])
        root = np.linalg.cholesky(cov)
        z = np.linalg.solve(root, y)
        return float(-0.5 * z @ z - np.log(root.diagonal()).sum() - 0.5 * np.square((h - prior) / scale).sum())

    def cross(self, rows: Codes) -> Floats:
        return self._cov(self.h, self.basis.each(rows, self.codes))

    def predict(self, rows: Codes) -> tuple[Floats, Floats]:
        means, variances = [], []
        own = self.basis
        w = np.exp(2 * self.h[:-2])
        for at in range(0, len(rows), 4000):
            some = rows[at : at + 4000]
            c = self.cross(some)
            diag = np.stack([np.diag(t)[some[:, p]] for p, t in enumerate(own.tables)]) * w[:, None]
            total = diag.sum(axis=0)
            var = 1.5**2 + total + math.exp(2 * self.h[-2]) / (w.sum() if NORM else 0.09) * (total**2 - np.square(diag).sum(axis=0)) / 2
            means.append(self.mean + c @ self.weights)
            variances.append(np.maximum(var - np.square(c @ self.white.T).sum(axis=1), 1e-8))
        return np.concatenate(means), np.concatenate(variances)

    def covariance(self, rows: Codes, columns: Codes) -> Floats:
        return self._cov(self.h, self.basis.each(rows, columns)) - (self.cross(rows) @ self.white.T) @ (
            self.cross(columns) @ self.white.T
        ).T


class StepParts:
    """The speed of a step as a sum of its parts."""

    measured = 0.0

    def __init__(self, space: Space, levels: Levels, codes: Codes, totals: Floats, parts: Sequence[Mapping[str, float]]) -> None:
        """`totals`: seconds of a step."""
        basis = Basis(space, levels)
        names = sorted({name for one in parts for name in one})
        table = np.array([[one.get(name, 0.0) for name in names] for one in parts]).reshape(len(parts), len(names))
        shares = table / totals[:, None]
        # factors near 1 by which the parts are read wrongly
        noise, prior = 0.02, 0.15
        a = shares.T @ shares / noise**2 + np.eye(len(names)) / prior**2
        b = shares.T @ (1.0 - shares.sum(axis=1)) / noise**2
        factors = 1.0 + np.linalg.solve(a, b)
        if np.median(shares.sum(axis=1)) < 1.02:  # what is missing is a part of its own
            factors[:] = 1.0
        self.factors = dict(zip(names, factors))
        table = table * np.maximum(factors, 0.3)
        self.floor = FLOOR * float(totals.min())
        kept = [column for column in range(len(names)) if (table[:, column] / totals).max() > 0.03]
        table, names = table[:, kept], [names[column] for column in kept]
        other = np.maximum(totals - table.sum(axis=1), 0.0)
        if (other / totals).max() > 0.03 or not kept:
            names.append(OTHER)
            table = np.column_stack([table, other])
        self.kept, self.rows = names, len(codes)
        self.models = [PartModel(basis, codes, np.log(column + self.floor)) for column in table.T]
        self._codes = None

    def _all(self, codes: Codes):
        if self._codes is None or self._codes is not codes:
            each = [m.predict(codes) for m in self.models]
            means, variances = np.array([e[0] for e in each]), np.array([e[1] for e in each])
            if len(codes) > 200:
                self._codes, self._kept = codes, (means, variances)
            return means, variances
        return self._kept

    def _sum(self, means: Floats):
        seconds = np.maximum(np.exp(means) - self.floor, 0.1 * self.floor)
        total = seconds.sum(axis=0)
        return total, seconds / total  # the slope of log total by log part

    def left_out(self) -> Prediction:
        """What all other readings say of each one."""
        precision = [np.square(m.white).sum(axis=0) for m in self.models]
        means = np.array([m.mean + m.y - m.weights / p for m, p in zip(self.models, precision)])
        variances = np.array([np.maximum(1 / p - math.exp(2 * m.h[-1]), 1e-6) for m, p in zip(self.models, precision)])
        total, shares = self._sum(means)
        return Prediction(-np.log(total), np.sqrt((shares**2 * variances).sum(axis=0)))

    def predict(self, codes: Codes) -> Prediction:
        means, variances = self._all(codes)
        total, shares = self._sum(means)
        return Prediction(-np.log(total), np.sqrt((shares**2 * variances).sum(axis=0)))

    def covariance_between(self, rows: Codes, columns: Codes) -> Floats:
        _, of_rows = self._sum(self._all(rows)[0])
        _, of_columns = self._sum(self._all(columns)[0])
        result = np.zeros((len(rows), len(columns)))
        for model, r, c in zip(self.models, of_rows, of_columns):
            result += r[:, None] * c[None, :] * model.covariance(rows, columns)
        return result


class Memory:
    """The logarithm of the share of memory, by configs that ran and configs that ran out."""

    def __init__(self, space: Space, levels: Levels, codes: Codes, shares: Floats, over: Codes) -> None:
        basis = Basis(space, levels)
        ones = np.zeros(0)
        self.model = PartModel(basis, codes, np.log(shares))
        if len(over):
            means, variances = self.model.predict(over)
            sd = np.sqrt(variances + 0.02**2)
            for _ in range(2):
                z = (math.log(1.02) - means) / sd
                tail = np.maximum(np.array([0.5 * math.erfc(x / math.sqrt(2.0)) for x in z]), 1e-12)
                ratio = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / tail
                ratio = np.where(z < 5.0, ratio, z)
                target = means + sd * ratio
                spread = sd * np.sqrt(np.maximum(1.0 - ratio * (ratio - z), 0.02))
                # what the bound adds, as a normal reading beside the prediction
                added = np.maximum(1.0 / spread**2 - 1.0 / sd**2, 1e-6)
                value = (target / spread**2 - means / sd**2) / added
                noise = np.sqrt(1.0 / added)
                use = ratio > 1e-3
                full = PartModel(
                    basis,
                    np.concatenate([codes, over[use]]),
                    np.concatenate([np.log(shares), value[use]]),
                    start=self.model.h,
                    noise=np.concatenate([np.zeros(len(codes)), noise[use]]),
                    mean=self.model.mean,
                    fit=False,
                )
                # cavity: leave each out
                if _ == 0:
                    w2 = np.square(full.white).sum(axis=0)[len(codes) :]
                    loo_var = 1.0 / w2
                    loo_mean = full.y[len(codes) :] - full.weights[len(codes) :] * loo_var
                    m, s = means.copy(), sd.copy()
                    m[use] = loo_mean + full.mean
                    s[use] = np.sqrt(np.maximum(loo_var - noise[use] ** 2, 1e-4) + 0.02**2)
                    means, sd = m, s
            self.model = full

    def logarithms_at(self, codes: Codes) -> Prediction:
        means, variances = self.model.predict(codes)
        return Prediction(means, np.sqrt(self.model.inflation * variances + math.exp(2 * self.model.h[-1])))
