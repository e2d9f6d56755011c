"""A search of `launches` that knows what each flag does: how far would such knowledge come? No part of the product.

    python -m benchmarks.search.promises --family launches --method formula --half dev --seeds 40

It knows the number of cards, the global batch, and which parameter is the tensor parallel degree, the micro-batch and so
on. It knows neither the model nor the card. Speed and memory follow rough textbook formulas with free coefficients,
which are fitted to the readings; what these do not explain is the sum of single effects of all choices. The formulas of
the tables have more terms: latencies, kernel launches, overlap, logits, attention, gathered weights.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.launches import LaunchGround
from benchmarks.search.searching import LIMITS, Probing
from tuner.search.gain.costs import chance_by_nearness, factor_by_suspects
from tuner.search.gain.expected_gain import chance_below
from tuner.search.gain.pool import Pool
from tuner.study.space import Config, Value

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Formula = Callable[[Floats, Places], Floats]
"""Coefficients and the places of configs → the expected logarithm of an amount of each config."""

PROBES = 55
SPEED = np.array(
    [
        (0.0, 4.0),  # seconds of a step
        (math.log(0.2), 1.2),  # the micro-batch, over tensor parallel ranks, at which a card is half as fast
        (-2.0, 1.5),  # traffic of tensor parallel training, as all following seconds over those of computing
        (-2.0, 1.5),  # traffic of data parallel training, stages 0 and 1
        (-2.0, 1.7),  # … stage 2
        (-2.0, 1.7),  # … stage 3
        (-4.0, 1.5),  # optimizer
        (-1.5, 1.5),  # optimizer on the host
        (0.15, 0.2),  # what follows multiplies: fp8
        (0.08, 0.1),  # compile
        (-0.5, 0.4),  # eager attention
        (0.0, 0.1),  # flash attention
        (-0.29, 0.1),  # full checkpointing
        (0.0, 0.1),  # no checkpointing
        (0.0, 0.3),  # no workers
        (0.0, 0.1),  # eight workers
        (0.0, 0.2),  # NCCL's tree
        (0.0, 0.1),  # more channels
    ]
)
"""Mean and standard deviation of each coefficient of the speed, which is a logarithm."""
MEMORY = np.array([(-2.0, 1.5), (-4.0, 1.5), (-3.5, 0.7), (math.log(0.5), 0.8)])
"""… of the share of memory: activations, those of full checkpointing, a fixed part, and all states over all cards."""


class _Launches:
    """The numbers of all configs of a launch, and the rough formulas."""

    def __init__(self, configs: list[Config], cards: int, batch: int) -> None:
        def numbers(name: str, default: float = 0.0) -> Floats:
            return np.array([float(config.get(name, default)) for config in configs])

        def are(name: str, value: Value) -> Floats:
            return np.array([float(config.get(name) == value) for config in configs])

        self.tensor, self.pipeline = numbers("tensor_parallel"), numbers("pipeline_parallel")
        self.size, self.stage, self.off = numbers("micro_batch"), numbers("zero_stage"), numbers("offload")
        self.data = cards / (self.tensor * self.pipeline)
        self.times, self.cards = batch / (self.data * self.size), cards
        self.full = are("checkpointing", "full")
        choices = [("dtype", "fp8"), ("compile", True), ("attention", "eager"), ("attention", "flash")]
        choices += [("checkpointing", "full"), ("checkpointing", "none"), ("num_workers", 0), ("num_workers", 8)]
        self.choices = np.column_stack([are(name, value) for name, value in choices])
        self.nccl = np.column_stack([are("nccl", "tree"), are("nccl", "more channels")])

    def speed(self, coefficients: Floats, at: Places) -> Floats:
        """Return the logarithm of the samples per second."""
        seconds, half, tensor_s, data_s, data_2_s, data_3_s, optimizer_s, host_s = np.exp(coefficients[:8])
        tensor, pipeline, data, stage, times = (
            each[at] for each in (self.tensor, self.pipeline, self.data, self.stage, self.times)
        )
        factors, links = coefficients[8:16].copy(), np.exp(-self.nccl[at] @ coefficients[16:])
        waits = self.choices[at, 6:] @ factors[6:]
        compute = (1.0 + half * tensor / self.size[at]) * np.exp(-self.choices[at, :6] @ factors[:6])
        sent = (data - 1.0) / data / (tensor * pipeline) * links
        sent *= np.select([stage <= 1, stage == 2], [data_s, data_2_s], data_3_s * times)
        states = 1.0 / (tensor * pipeline) / np.where(stage > 0, data, 1.0)
        states *= (1.0 - self.off[at]) * optimizer_s + self.off[at] * host_s
        steps = (compute + tensor_s * (tensor - 1.0) * links) * (1.0 + (pipeline - 1.0) / times) + sent + states
        return waits - np.log(seconds * steps)

    def memory(self, coefficients: Floats, at: Places) -> Floats:
        """Return the logarithm of the share of a card's memory."""
        kept, kept_full, fixed, states = np.exp(coefficients)
        tensor, pipeline, data, stage = (each[at] for each in (self.tensor, self.pipeline, self.data, self.stage))
        held = sum(
            part / np.where(stage >= least, data, 1.0)
            for part, least in ((2.0, 3), (4.0, 2), (12.0 * (1.0 - self.off[at]), 1))
        )
        live = self.size[at] / pipeline * np.minimum(pipeline, self.times[at])
        live = live * np.where(self.full[at] > 0.0, kept_full, kept / tensor)
        return np.log(fixed + self.cards * states * held / 18.0 / (tensor * pipeline) + live)


class _Fit:
    """A formula made linear at its most probable coefficients, with single effects of choices and of each config."""

    def __init__(self, formula: Formula, prior: Floats, codes: NDArray[np.intp], single: float, own: float) -> None:
        self._formula, self._codes, self._single, self._own = formula, codes, single, own
        self._mean, self._variance = prior[:, 0].copy(), prior[:, 1] ** 2
        self.coefficients = self._mean.copy()
        self._at, self._values, self._noise = np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)

    def learn(self, at: list[int], values: list[float], errors: list[float]) -> None:
        """Fit the coefficients to measured logarithms, by steps of Gauss and Newton."""
        self._at, self._values, self._noise = np.array(at, dtype=np.intp), np.array(values), np.square(errors)
        for _ in range(8 if at else 0):
            means, slopes = self._linear(self._at)
            gain = np.linalg.solve(self._known(slopes), slopes * self._variance).T
            self.coefficients = self._mean + gain @ (self._values - means - slopes @ (self._mean - self.coefficients))

    def expect(self, at: Places) -> tuple[Floats, Floats, Floats]:
        """Return mean and standard deviation of configs, and by how much each has learnt from each reading."""
        means, slopes = self._linear(at)
        means = means + slopes @ (self._mean - self.coefficients)
        variances = (slopes**2) @ self._variance + self._single**2 * self._codes.shape[1] + self._own**2
        if not len(self._at):
            return means, np.sqrt(variances), np.zeros((len(at), 0))
        known, known_slopes = self._linear(self._at)
        known = known + known_slopes @ (self._mean - self.coefficients)
        root = np.linalg.cholesky(self._known(known_slopes))
        learnt = np.linalg.solve(root, self._between(self._at, known_slopes, at, slopes))
        means = means + learnt.T @ np.linalg.solve(root, self._values - known)
        return means, np.sqrt(np.maximum(variances - (learnt**2).sum(axis=0), 1e-9)), learnt.T

    def covariance(self, at: Places, learnt: Floats) -> Floats:
        """Return the covariance of configs after the readings."""
        slopes = self._linear(at)[1]
        return self._between(at, slopes, at, slopes) - learnt @ learnt.T

    def _known(self, slopes: Floats) -> Floats:
        return self._between(self._at, slopes, self._at, slopes) + np.diag(self._noise)

    def _between(self, rows: Places, row_slopes: Floats, columns: Places, column_slopes: Floats) -> Floats:
        same = (self._codes[rows][:, None] == self._codes[columns][None]).sum(axis=2)
        own = self._own**2 * (rows[:, None] == columns[None])
        return (row_slopes * self._variance) @ column_slopes.T + self._single**2 * same + own

    def _linear(self, at: Places) -> tuple[Floats, Floats]:
        moves = 0.02 * np.eye(len(self.coefficients))
        slopes = [
            (self._formula(self.coefficients + move, at) - self._formula(self.coefficients - move, at)) / 0.04
            for move in moves
        ]
        return self._formula(self.coefficients, at), np.column_stack(slopes)


def formula(probing: Probing) -> None:
    """Probe what may be the best by top-two Thompson sampling, among configs that run with some probability."""
    ground = probing.ground
    assert isinstance(ground, LaunchGround)
    pool, draw = Pool(ground.space), np.random.default_rng(probing.seed)
    codes = pool.codes
    known = _Launches(pool.configs, ground.devices, ground.global_batch)
    speed = _Fit(known.speed, SPEED, codes, single=0.04, own=0.02)
    memory = _Fit(known.memory, MEMORY, codes, single=0.035, own=0.03)
    most = math.log(1.0 - LIMITS.headroom_pct / 100.0)
    fast: list[tuple[int, float, float]] = []
    full: list[tuple[int, float, float]] = []
    ran, crashed, barred, eligible = [], [], set[int](), set[int]()
    place = pool.find(ground.space.own or {}) or 0
    for number in range(PROBES):
        if number:
            place = _next(number, speed, memory, pool, (ran, crashed, barred), most, draw)
        step = probing.probe(pool.configs[place])
        result, verdict = step.row.result, step.row.verdict
        if result.failure:
            barred.add(place)
            if result.failure.overshoot_mib is None:
                crashed.append(place)
            else:  # how much it lacked is not known
                expected = float(memory.expect(np.array([place]))[0][0])
                full.append((place, max(most + 0.05, expected), 0.02))
        else:
            ran.append(place)
            share = max(
                one.mem_peak_mib / one.mem_total_mib for one in result.devices if one.mem_peak_mib and one.mem_total_mib
            )
            full.append((place, math.log(share), 0.02))
            if verdict.ineligible or step.reading is None:
                barred.add(place)
            else:
                eligible.add(place)
                fast.append((place, math.log(step.reading), (verdict.error or 0.0) / step.reading))
        speed.learn(*(list(each) for each in zip(*fast, strict=True)) if fast else ([], [], []))
        memory.learn(*(list(each) for each in zip(*full, strict=True)) if full else ([], [], []))
        if eligible:
            places = np.array(sorted(eligible))
            probing.recommended[-1] = pool.configs[places[speed.expect(places)[0].argmax()]]


def _next(
    number: int,
    speed: _Fit,
    memory: _Fit,
    pool: Pool,
    known: tuple[list[int], list[int], set[int]],
    most: float,
    draw: np.random.Generator,
) -> int:
    codes, (ran, crashed, barred) = pool.codes, known
    everything = np.arange(len(codes))
    means, deviations, _ = memory.expect(everything)
    chances = chance_below(most, means, deviations)
    chances *= chance_by_nearness(pool.levels, codes[ran], codes[crashed], codes)
    chances *= factor_by_suspects(codes[ran], codes[crashed], codes)
    chances[list(barred)] = 0.0
    least = 0.4 if number < 20 or number >= 40 else 0.15  # failures teach most once the speeds are roughly known
    possible = np.flatnonzero(chances > min(least, 0.999 * chances.max()))
    fastest = possible[np.argsort(-speed.expect(possible)[0])[:400]]
    means, deviations, learnt = speed.expect(fastest)
    order = np.argsort(-(means + 2.0 * deviations))[:150]
    covariance = speed.covariance(fastest[order], learnt[order]) + 1e-8 * np.eye(len(order))
    root = np.linalg.cholesky(covariance)
    sample = partial(_sample, means[order], root, draw)
    first = chosen = sample()
    if draw.random() < 0.5:  # the second of the two: the first other config that is the best of a draw
        chosen = next((other for other in (sample() for _ in range(30)) if other != first), first)
    return int(fastest[order][chosen])


def _sample(means: Floats, root: Floats, draw: np.random.Generator) -> int:
    return int((means + root @ draw.standard_normal(len(means))).argmax())
