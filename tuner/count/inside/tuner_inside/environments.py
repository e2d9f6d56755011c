"""Counts the steps of reinforcement learning's environments where a library's own interface shows them.

A rollout is all steps of environments between two steps of the optimizer: its samples train the module.
"""

import collections
import functools

from tuner_inside.imports import when_imported
from tuner_inside.records import errors_switch_off

RL_LIBRARIES = ("gymnasium", "gym", "stable_baselines3", "rsl_rl", "skrl", "tianshou", "torchrl", "isaaclab", "brax")
RL_LIBRARIES += ("newton", "pufferlib", "mujoco", "dm_control", "envpool", "procgen", "ray.rllib")
"""Libraries of reinforcement learning, where an optimizer uses the same samples again and again."""


class Environments:
    """The steps of the environments of this process."""

    def __init__(self):
        """Count the steps of environments from 0."""
        self.steps = collections.Counter()
        """An environment's id → its steps, times the environments that it holds."""
        self.rollouts_by_id = collections.Counter()
        """An environment's id → the rollouts whose last step was its own. The one with most of them trains."""
        self.depth = 0
        """How many environments step now, each inside another one."""
        self.latest = None
        """The id of the environment that has stepped last since the optimizer's last step; None without one."""

    @property
    def rollouts(self):
        """The rollouts so far."""
        return sum(self.rollouts_by_id.values())

    @property
    def training(self):
        """The steps of the environment that trains: the others evaluate, however long."""
        return self.steps[max(self.rollouts_by_id, key=self.rollouts_by_id.get, default=None)]

    def add_steps(self, environment, count):
        """Add the steps of an environment."""
        self.steps[id(environment)] += count
        self.latest = id(environment)

    def after_step(self):
        """Note that the optimizer has made a step."""
        if self.latest is not None:
            self.rollouts_by_id[self.latest] += 1
            self.latest = None


environments = Environments()


@errors_switch_off("environments")
def _count_step(environment, answer):
    """Count as many steps as `environment` has environments in it; `answer` is what its step has returned.

    If it returns fewer rewards, it has stepped only so many, as tianshou's may. A single environment always steps once:
    its reward may have several numbers.
    """
    holders = (environment, getattr(environment, "unwrapped", None))
    counts = (getattr(holder, name, None) for holder in holders for name in ("num_envs", "env_num"))
    stepped = next((count for count in counts if isinstance(count, int) and count > 0), 1)
    has_rewards = isinstance(answer, tuple) and len(answer) > 1  # observations, rewards, …
    rewards_shape = getattr(answer[1], "shape", None) if has_rewards else None
    if rewards_shape:
        stepped = min(stepped, int(rewards_shape[0]))
    environments.add_steps(environment, stepped)


def _count_in(kind, method):
    """Let the step method of a class count, if the class itself defines the method."""
    step = vars(kind).get(method)
    if step is None or getattr(step, "__isabstractmethod__", False):
        return

    @functools.wraps(step)
    def counted(self, *args, **kwargs):
        """Step as without this wrapper, and count it."""
        environments.depth += 1
        try:
            answer = step(self, *args, **kwargs)
        finally:
            environments.depth -= 1
        if not environments.depth:  # the outer one of nested environments counts
            _count_step(self, answer)
        return answer

    setattr(kind, method, counted)


def _wrapper_of(name, method):
    """Return a function that makes a module's class `name` count the calls of its step method `method`."""

    @errors_switch_off("environments")
    def wrap(module):
        """Let the class count its steps, or if its method is abstract, its subclasses."""
        kind = getattr(module, name, None)
        if kind is None:  # another version of the library
            return
        _count_in(kind, method)
        if getattr(getattr(kind, method, None), "__isabstractmethod__", False):
            _count_in_subclasses(kind, method)

    return wrap


def _count_in_subclasses(kind, method):
    """Let the classes that are derived from `kind` later count their steps: the step method of `kind` is abstract."""
    original = kind.__init_subclass__.__func__ if "__init_subclass__" in vars(kind) else None

    def init_subclass(subclass, **kwargs):
        """Derive a class as without this wrapper, and let it count its steps."""
        if original is None:
            super(kind, subclass).__init_subclass__(**kwargs)
        else:
            original(subclass, **kwargs)
        errors_switch_off("environments")(_count_in)(subclass, method)

    kind.__init_subclass__ = classmethod(init_subclass)


@errors_switch_off("environments")
def _wrap_rllib(module):
    """Count the steps that RLlib's environments report to its trainer: they step in other processes.

    The trainer's logger of metrics merges these reports. A key says what they are about, such as an evaluation.
    """
    logger_class = module.MetricsLogger
    name = "aggregate" if hasattr(logger_class, "aggregate") else "merge_and_log_n_dicts"  # in older versions
    merge = getattr(logger_class, name)

    @functools.wraps(merge)
    def counted(self, stats_dicts, *args, **kwargs):
        """Merge reports as without this wrapper, and count their steps. `key` is the first of the other arguments."""
        reports = list(stats_dicts)  # an iterator gives them only once
        _count_reports(self, reports, kwargs.get("key", args[0] if args else None))
        return merge(self, reports, *args, **kwargs)

    setattr(logger_class, name, counted)


@errors_switch_off("environments")
def _count_reports(logger, reports, key):
    """Count the steps in reports of environments that train. They count as those of one environment, the `logger`."""
    if key in ("env_runners", ("env_runners",)):
        count = sum(int(report.get("num_env_steps_sampled", 0)) for report in reports)
        if count:
            environments.add_steps(logger, count)


def install():
    """Count the steps of environments, from their library's import on."""
    for module, name, method in (
        ("gymnasium.vector.sync_vector_env", "SyncVectorEnv", "step"),
        ("gymnasium.vector.async_vector_env", "AsyncVectorEnv", "step_wait"),
        ("gym.vector.vector_env", "VectorEnv", "step"),
        ("stable_baselines3.common.vec_env.base_vec_env", "VecEnv", "step"),
        ("tianshou.env.venvs", "BaseVectorEnv", "step"),
        ("rsl_rl.env.vec_env", "VecEnv", "step"),
        # `gymnasium.make` puts these around each environment
        ("gymnasium.wrappers.common", "OrderEnforcing", "step"),
        ("gymnasium.wrappers.order_enforcing", "OrderEnforcing", "step"),
        ("gym.wrappers.order_enforcing", "OrderEnforcing", "step"),
    ):
        when_imported(module, _wrapper_of(name, method))
    when_imported("ray.rllib.utils.metrics.metrics_logger", _wrap_rllib)
