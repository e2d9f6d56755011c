"""Invented trainers with a ladder of environments: new tables beside those of `surfaces`, on which searches were made.

No number here was measured. An iteration steps all environments and then updates an agent in minibatches. Simulator,
learner and host each take their time, and utilisation is the share in which kernels run. Memory grows with the
environments and the minibatch, and a start builds the environments one by one. Each fourth table holds samples per
second in place of the utilisation, and may exceed 100.

Even seeds are the half to develop on, odd seeds the half to report. The tables are frozen, as those of `scripts` are.
"""

import math
import random
from functools import cache

from benchmarks.search.surfaces import CARD_MIB, Surface, tabulated
from tuner.export.recorded_table import Table
from tuner.study.space import LADDER, VARIANT, Config
from tuner.study.spec import ParameterSpec

_LADDERS = (
    tuple(2**power for power in range(6, 16)),
    tuple(2**power for power in range(8, 17)),
    (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
    (16, 32, 64, 128, 256, 512, 1024, 2048),
)
_STEPS = 32
"""The steps of each environment in an iteration."""
_KERNEL_S = 2e-6
"""The shortest time for which a kernel keeps the card busy."""


@cache
def table(seed: int) -> Table:
    """Return the table of this seed."""
    return tabulated(_Trainer(random.Random(f"ladder {seed}"), per_second=seed % 8 in {2, 5}).surface, f"ladder_{seed}")


class _Trainer:
    """A trainer while it is drawn. Times are in seconds."""

    def __init__(self, draw: random.Random, *, per_second: bool) -> None:
        self.per_second = per_second
        self.salt = draw.random()
        ladder = ParameterSpec(ladder=draw.choice(_LADDERS))
        self.top = float(max(ladder.values))
        self.launch_s, self.host_s = _between(draw, 6e-6, 16e-6), _between(draw, 2e-4, 6e-3)
        self.sim_kernels, self.sim_half = _between(draw, 60, 800), self.top * _between(draw, 0.01, 0.3)
        self.sim_s = self.sim_kernels * self.launch_s * _between(draw, 0.1, 1.5)
        self.learn_kernels, self.learn_half = _between(draw, 100, 700), self.top * _between(draw, 0.02, 2.0)
        self.learn_s = self.learn_kernels * self.launch_s * _between(draw, 0.1, 1.0)
        self.processors = draw.choice((None, 108, 132))
        self.epochs, self.noise = draw.choice(((10, 20), (20, 40), (20, 30, 40))), _between(draw, 0.25, 1.2)
        self.odd = _between(draw, 0.003, 0.025)
        self.base_mib, self.power = _between(draw, 1_200, 8_000), draw.choice((1.0, 1.0, draw.uniform(1.02, 1.2)))
        self.env_mib = (CARD_MIB - self.base_mib) / (self.top**self.power * _between(draw, 0.2, 4.0))
        self.minibatch = draw.uniform(0.02, 0.4)
        self.ready_s, self.built_s = draw.uniform(12.0, 45.0), _between(draw, 10.0, 400.0) / self.top
        self.most = self.top * draw.uniform(0.2, 0.7) if draw.random() < 0.2 else math.inf
        space = {
            LADDER: ladder,
            VARIANT: ParameterSpec(choices=("hiutil", "default")),
            "update_epochs": ParameterSpec(choices=self.epochs, when={VARIANT: "hiutil"}),
            "batch_size": ParameterSpec(choices=draw.choice(((2, 1), (1, 2, 4))), when={VARIANT: "hiutil"}),
        }
        some = {"graph": ParameterSpec(choices=(False, True)), "horizon": ParameterSpec(choices=(16, 32, 64))}
        space |= {name: spec for name, spec in some.items() if draw.random() < 0.4}
        self.graph_mib, self.horizon_mib = _between(draw, 50, 3_000), draw.uniform(0.05, 0.6)
        self.surface = Surface(
            space=space,
            utilisation=self._value,
            mib=self._mib,
            ready_s=lambda config: self.ready_s + self.built_s * float(config[LADDER]),
            run_s=lambda config: max(6.0, 9.0 * self._iteration(config)[0]),
            error=self._error,
            crashes=lambda config: float(config[LADDER]) > self.most,
        )

    def _iteration(self, config: Config) -> tuple[float, float]:
        """Return the seconds of an iteration, and those in which kernels run."""
        envs = float(config[LADDER])
        waves = envs / self.processors if self.processors else 0.0
        last = math.ceil(waves) / waves if waves > 1.0 else 1.0
        horizon = float(config.get("horizon", _STEPS))
        launched = 0.1 if config.get("graph") else 1.0
        steps_s, busy_s = self._launched(
            self.sim_kernels, self.sim_s * (1.0 + envs / self.sim_half) * last, launched=launched
        )
        batch = float(config.get("batch_size", 4))
        updates = float(config.get("update_epochs", 5)) * horizon / batch / 4.0
        learn_s, learns_s = self._launched(
            self.learn_kernels, self.learn_s * (1.0 + 4.0 * batch * envs / self.learn_half / 10.0)
        )
        whole_s = horizon * (steps_s + self.host_s) + updates * learn_s + 20.0 * self.host_s
        return whole_s, horizon * busy_s + updates * learns_s

    def _launched(self, kernels: float, device_s: float, launched: float = 1.0) -> tuple[float, float]:
        """Return the seconds until kernels are done, and those in which they run."""
        runs_s = max(device_s, kernels * _KERNEL_S)
        return max(runs_s, launched * kernels * self.launch_s), runs_s

    def _value(self, config: Config) -> float:
        whole_s, busy_s = self._iteration(config)
        own = self._draw("own", config).gauss(0.0, self.odd)
        if self.per_second:
            return float(config.get("horizon", _STEPS)) * float(config[LADDER]) / whole_s * math.exp(own)
        return min(99.5, 100.0 * busy_s / whole_s * (1.0 + own))

    def _error(self, config: Config) -> float:
        """Return the standard error: larger for short iterations."""
        scatters = self._draw("error", config).uniform(0.7, 1.6)
        error = self.noise * scatters * (1.0 + 1.5 * (1.0 - math.log(float(config[LADDER])) / math.log(self.top)))
        return error * self._value(config) / 100.0 if self.per_second else error

    def _mib(self, config: Config) -> float:
        heavy = 1.0 + self.minibatch * float(config.get("batch_size", 4)) / 2.0
        heavy += self.horizon_mib * (float(config.get("horizon", _STEPS)) / _STEPS - 1.0)
        graph_mib = self.graph_mib if config.get("graph") else 0.0
        return self.base_mib + graph_mib + self.env_mib * float(config[LADDER]) ** self.power * heavy

    def _draw(self, what: str, config: Config) -> random.Random:
        return random.Random(f"{self.salt} {what} {sorted(config.items())}")


def _between(draw: random.Random, least: float, most: float) -> float:
    """Draw a number evenly by its logarithm."""
    return math.exp(draw.uniform(math.log(least), math.log(most)))
