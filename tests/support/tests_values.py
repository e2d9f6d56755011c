"""A space with every kind of value: booleans, fractions, a logarithmic range, and names with dots."""

from tuner.study.space import Space
from tuner.study.spec import StudySpec

EVERY_KIND = {
    "env.num_envs": {"range": [64, 512], "log": True},
    "headless": {"choices": [False, True]},
    "agent.lr": {"range": [0.0001, 0.01], "log": True, "step": 10},
    "dropout": {"range": [0.1, 0.3], "step": 0.1, "when": {"headless": True}},
    "clip": {"choices": [0.2, 1]},
}
"""4 rungs, 3 learning rates, 2 clips, and 1 or 3 dropouts: 96 configs."""


def every_kind() -> Space:
    return StudySpec.model_validate(
        {"name": "kinds", "trainer": {"name": "command"}, "space": EVERY_KIND}
    ).build_space()
