"""Counts the steps of reinforcement learning's environments where a library's own interface shows them."""

import functools

from tuner_inside.imports import when_imported
from tuner_inside.tell import guarded

STEPPING = (
    ("gymnasium.vector.sync_vector_env", "SyncVectorEnv", "step"),
    ("gymnasium.vector.async_vector_env", "AsyncVectorEnv", "step_wait"),
    ("gym.vector.vector_env", "VectorEnv", "step"),
    ("stable_baselines3.common.vec_env.base_vec_env", "VecEnv", "step"),
    ("tianshou.env.venvs", "BaseVectorEnv", "step"),
    ("rsl_rl.env.vec_env", "VecEnv", "step"),
    ("gymnasium.wrappers.common", "OrderEnforcing", "step"),
    ("gymnasium.wrappers.order_enforcing", "OrderEnforcing", "step"),
    ("gym.wrappers.order_enforcing", "OrderEnforcing", "step"),
)
"""Module, class and method that steps environments. `gymnasium.make` puts the last ones around each environment."""
REUSING = ("gymnasium", "gym", "stable_baselines3", "rsl_rl", "skrl", "tianshou", "torchrl", "isaaclab", "brax")
REUSING += ("newton", "pufferlib", "mujoco", "dm_control", "envpool", "procgen", "ray.rllib")
"""Modules of reinforcement learning: there an optimizer uses the same samples again and again."""


class Environments:
    """The steps of the environments of this process."""

    def __init__(self):
        self.steps = {}
        """The environment's number → its steps, times the environments that it holds."""
        self.feeds = {}
        """The environment's number → how often the optimizer has begun to step right after it."""
        self.rollouts = 0
        """How often the optimizer has begun to step after an environment has."""
        self._depth = 0
        self.last = None

    @property
    def training(self):
        """The steps of the environment that the optimizer steps follow: the others evaluate, however long."""
        if not self.feeds:
            return 0
        return self.steps[max(self.feeds, key=lambda number: self.feeds[number])]

    def stepped(self, environment, count):
        """Add the steps of an environment."""
        self.steps[id(environment)] = self.steps.get(id(environment), 0) + count
        self.last = id(environment)

    def after_step(self):
        """Note that the optimizer has made a step."""
        if self.last is not None:
            self.feeds[self.last] = self.feeds.get(self.last, 0) + 1
            self.rollouts += 1
            self.last = None


environments = Environments()


@guarded("environments")
def _stepped(environment, answer):
    """Count as many steps as environments have stepped: tianshou steps some of its environments alone."""
    holders = (environment, getattr(environment, "unwrapped", None))
    counts = (getattr(holder, name, None) for holder in holders for name in ("num_envs", "env_num"))
    held = next((count for count in counts if isinstance(count, int) and count > 0), 1)
    shape = getattr(answer[1], "shape", None) if isinstance(answer, tuple) and len(answer) > 1 else None
    environments.stepped(environment, min(held, int(shape[0])) if shape else held)


def _count_in(kind, method):
    """Count the steps of a class that has a method of its own, not only the name of one."""
    own = vars(kind).get(method)
    if own is None or getattr(own, "__isabstractmethod__", False):
        return

    @functools.wraps(own)
    def counted(self, *args, **kwargs):
        environments._depth += 1
        try:
            answer = own(self, *args, **kwargs)
        finally:
            environments._depth -= 1
        if not environments._depth:  # an environment inside another one is counted by the outer one
            _stepped(self, answer)
        return answer

    setattr(kind, method, counted)


def _wrapping(name, method):
    @guarded("environments")
    def wrap(module):
        kind = getattr(module, name, None)
        if kind is None:
            return
        _count_in(kind, method)
        if getattr(getattr(kind, method, None), "__isabstractmethod__", False):
            _count_in_heirs(kind, method)

    return wrap


def _count_in_heirs(kind, method):
    """Count the steps of the classes that are derived from now on, because the class itself has none."""
    own = kind.__init_subclass__.__func__ if "__init_subclass__" in vars(kind) else None

    def derived(heir, **kwargs):
        if own is None:
            super(kind, heir).__init_subclass__(**kwargs)
        else:
            own(heir, **kwargs)
        guarded("environments")(_count_in)(heir, method)

    kind.__init_subclass__ = classmethod(derived)


@guarded("environments")
def _wrap_rllib(module):
    """Take the environment steps that RLlib's environments report to its trainer: they step in other processes."""
    kind = module.MetricsLogger
    name = "aggregate" if hasattr(kind, "aggregate") else "merge_and_log_n_dicts"
    own = getattr(kind, name)

    @functools.wraps(own)
    def aggregate(self, stats_dicts, *args, **kwargs):
        stats_dicts = list(stats_dicts)
        _reported(self, stats_dicts, kwargs.get("key", args[0] if args else None))
        return own(self, stats_dicts, *args, **kwargs)

    setattr(kind, name, aggregate)


@guarded("environments")
def _reported(trainer, reports, key):
    if key in ("env_runners", ("env_runners",)):  # those of an evaluation have another key
        count = sum(int(report.get("num_env_steps_sampled", 0)) for report in reports)
        if count:
            environments.stepped(trainer, count)


def install():
    """Count the steps of environments, from their library's import on."""
    for module, name, method in STEPPING:
        when_imported(module, _wrapping(name, method))
    when_imported("ray.rllib.utils.metrics.metrics_logger", _wrap_rllib)
