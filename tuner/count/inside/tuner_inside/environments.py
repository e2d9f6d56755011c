"""Counts the steps of reinforcement learning's environments where a library's own interface shows them."""

import functools

from tuner_inside.imports import when_imported
from tuner_inside.tell import guarded

VECTORS = (
    ("gymnasium.vector.sync_vector_env", "SyncVectorEnv", "step"),
    ("gymnasium.vector.async_vector_env", "AsyncVectorEnv", "step_wait"),
    ("gym.vector.vector_env", "VectorEnv", "step"),
    ("stable_baselines3.common.vec_env.base_vec_env", "VecEnv", "step"),
    ("tianshou.env.venvs", "BaseVectorEnv", "step"),
    ("rsl_rl.env.vec_env", "VecEnv", "step"),
)
"""Module, class and method that steps several environments at once."""
SINGLES = (
    ("gymnasium.wrappers.common", "OrderEnforcing", "step"),
    ("gymnasium.wrappers.order_enforcing", "OrderEnforcing", "step"),
    ("gym.wrappers.order_enforcing", "OrderEnforcing", "step"),
)
"""The wrapper that `gymnasium.make` puts around each environment."""
REUSING = ("gymnasium", "gym", "stable_baselines3", "rsl_rl", "skrl", "tianshou", "torchrl", "isaaclab", "brax")
REUSING += ("newton", "pufferlib", "mujoco", "dm_control", "envpool", "procgen", "ray.rllib")
"""Modules of reinforcement learning: there an optimizer uses the same samples again and again."""


class Environments:
    """The steps of the environments of this process."""

    def __init__(self):
        self.steps = {}
        """The environment's number → its steps, times the environments that it holds."""
        self.rollouts = 0
        """How often the optimizer has begun to step after the environments have."""
        self._depth = 0
        self._has_stepped = False

    @property
    def training(self):
        """The steps of the environment that has stepped most: the others evaluate."""
        return max(self.steps.values(), default=0)

    def stepped(self, environment, count):
        """Add the steps of an environment."""
        self.steps[id(environment)] = self.steps.get(id(environment), 0) + count
        self._has_stepped = True

    def after_step(self):
        """Note that the optimizer has made a step."""
        if self._has_stepped:
            self.rollouts += 1
            self._has_stepped = False


environments = Environments()


def _held(environment):
    for holder in (environment, getattr(environment, "unwrapped", None)):
        for name in ("num_envs", "env_num"):
            count = getattr(holder, name, None)
            if isinstance(count, int) and count > 0:
                return count
    return 1


@guarded("environments")
def _stepped(environment):
    environments.stepped(environment, _held(environment))


def _counting(method):
    @functools.wraps(method)
    def counted(self, *args, **kwargs):
        environments._depth += 1
        try:
            found = method(self, *args, **kwargs)
        finally:
            environments._depth -= 1
        if not environments._depth:  # an environment inside another one is counted by the outer one
            _stepped(self)
        return found

    return counted


def _wrapping(name, method):
    @guarded("environments")
    def wrap(module):
        kind = getattr(module, name, None)
        if kind is not None and method in vars(kind) and not getattr(vars(kind)[method], "__isabstractmethod__", False):
            setattr(kind, method, _counting(vars(kind)[method]))

    return wrap


def install():
    """Count the steps of environments, from their library's import on."""
    for module, name, method in (*VECTORS, *SINGLES):
        when_imported(module, _wrapping(name, method))
