"""The agent that a variant and a config ask for; this file does not import torch, because planning needs it too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.study.space import VARIANT, Value

Method = Literal["add", "amp", "deepmimic"]

CASES: dict[str, Method] = {"add_pi_plus": "add", "amp_pi_plus": "amp", "deepmimic_pi_plus_ppo": "deepmimic"}
"""Case → its method; the names are MimicKit's, so that the same glob selects the cases of both trainers."""

STEPS_PER_ITERATION = 32
"""The control steps of each environment in one iteration."""

HIUTIL_MIN_EPOCHS = 20
HIUTIL_MAX_BATCH_SIZE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """What the agent is built and trained with."""

    hidden_layers: int
    hidden_units: int
    update_epochs: int
    batch_size: int
    """The minibatch in multiples of `num_envs`."""
    minibatch: int | None = None
    """The minibatch in samples of one rank, in place of `batch_size`; at most all samples of an iteration."""

    def minibatch_of(self, num_envs: int) -> int:
        """Return the minibatch in samples of one rank."""
        return self.minibatch or self.batch_size * num_envs


def default_hidden_units(device: str) -> int:
    """Choose the width of hidden layers: 1024 on a GPU, as MimicKit's agents; 64 on a CPU, so that a probe is short."""
    return 1024 if device.startswith("cuda") else 64


def agent_settings(config: Mapping[str, Value], *, hidden_units: int) -> AgentSettings:
    """Return the agent of the config's variant; `hiutil` bounds the epochs and the batch size of the config.

    Raises TrainerError for an unknown variant, and for a value that is not a whole number above 0. Raises
    ConfigRefusedError if two parameters name a minibatch.
    """
    variant = config.get(VARIANT, "default")
    minibatch = whole(config, "minibatch", default=1) if "minibatch" in config else None
    if minibatch and ("batch_size" in config or variant == "hiutil"):
        other = "batch_size" if "batch_size" in config else f"{VARIANT} hiutil"
        raise ConfigRefusedError(f"minibatch {minibatch}: {other} sets the minibatch, too; leave one of them out")
    if variant == "default":
        return AgentSettings(
            hidden_layers=2,
            hidden_units=hidden_units,
            update_epochs=whole(config, "update_epochs", default=5),
            batch_size=whole(config, "batch_size", default=4),
            minibatch=minibatch,
        )
    if variant == "hiutil":
        return AgentSettings(
            hidden_layers=3,
            hidden_units=hidden_units,
            update_epochs=max(HIUTIL_MIN_EPOCHS, whole(config, "update_epochs", default=HIUTIL_MIN_EPOCHS)),
            batch_size=min(HIUTIL_MAX_BATCH_SIZE, whole(config, "batch_size", default=HIUTIL_MAX_BATCH_SIZE)),
        )
    raise TrainerError(f"{VARIANT} {variant!r} is unknown to the reference trainer; it knows default and hiutil")


def whole(values: Mapping[str, object], name: str, *, default: int, least: int = 1) -> int:
    """Return a whole number of at least `least`. Raises TrainerError for any other value."""
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TrainerError(f"{name} {value!r}: the reference trainer needs a whole number of at least {least}")
    return value
