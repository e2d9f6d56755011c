"""Changes MimicKit's agent files as a config asks; agent files have one of two schemas.

Until February 2026, `update_epochs` and `batch_size` held for the whole update. Since then each network has its own
pair, such as `actor_epochs` and `actor_batch_size`. The batch size of a pair is a multiple of `num_envs`. A batch size
without epochs of its own (`critic_eval_batch_size`, the old `disc_batch_size`) counts samples and is left unchanged.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.study.space import VARIANT, Value
from tuner.trainers.base import LadderEnd

EPOCHS, BATCH_SIZE = "update_epochs", "batch_size"
REPLAY_BUFFER = "disc_buffer_size"
"""The key for the size of the replay buffer: the samples, per device, that a discriminator sees again."""
STEPS_PER_ITER = 32
"""The steps per iteration in every agent file of MimicKit; also used for a file that does not say."""

_LOOKED_FOR = {EPOCHS: "*_epochs", BATCH_SIZE: "batch_size beside update_epochs, *_batch_size beside *_epochs"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """Bounds for the values of an agent file."""

    min_epochs: int = 0
    max_batch_size: float = math.inf
    nets: Mapping[str, str] = field(default_factory=dict)
    """The networks to replace, by name → their replacement."""


VARIANTS = {
    "default": Variant(),
    "hiutil": Variant(min_epochs=20, max_batch_size=2, nets={"fc_2layers_1024units": "fc_3layers_1024units"}),
}


def adapted(text: str, config: Mapping[str, Value], source: str) -> str:
    """Return the agent file `text` as `config` asks for; order, comments and the spelling of numbers stay.

    `update_epochs` and `batch_size` of the config replace the shipped values, then the bounds of its variant apply. A
    file that needs no change is returned as it is. `source` names the file in messages.

    Raises TrainerError when the text is no agent file. Raises ConfigRefusedError when hiutil would change nothing in
    the shipped file, and when the file has no key for a parameter of the config.
    """
    agent = _mapping(text, source)
    name = config.get(VARIANT, "default")
    check_value(VARIANT, name)
    variant = VARIANTS[str(name)]
    if variant != Variant() and not _changes(agent, variant, {}, source):
        raise ConfigRefusedError(
            f"{source}: {VARIANT} {name!r} would change nothing; looked for {_LOOKED_FOR[EPOCHS]} below "
            f"{variant.min_epochs}, {_LOOKED_FOR[BATCH_SIZE]} above {variant.max_batch_size}, and model.*_net: "
            f"{', '.join(variant.nets)}; search this case with {VARIANT} 'default' alone"
        )
    changes = _changes(agent, variant, config, source)
    for mapping, key, value in changes:
        mapping[key] = value
    return _written(agent) if changes else text


def check_value(parameter: str, value: Value) -> None:
    """Raise TrainerError for a value that no agent file can take."""
    if parameter == VARIANT and value not in VARIANTS:
        raise TrainerError(f"{VARIANT} {value!r} is unknown to mimickit; known: {', '.join(VARIANTS)}")
    if parameter in _LOOKED_FOR:
        _positive(value, f"{parameter} of the study")


def steps_per_iter(text: str, source: str) -> int:
    """Return the steps of each environment per iteration. Raises TrainerError when the text is no agent file."""
    return int(_positive(_mapping(text, source).get("steps_per_iter", STEPS_PER_ITER), f"{source}: steps_per_iter"))


def updates_per_iteration(text: str, source: str) -> int:
    """Return how many minibatches the networks of an agent learn from in an iteration, on each rank.

    A minibatch has `batch_size * num_envs` samples, of `num_envs * steps_per_iter` in an iteration.
    Raises TrainerError when the text is no agent file.
    """
    agent, steps = _mapping(text, source), steps_per_iter(text, source)
    epochs = {key: _positive(agent[key], f"{source}: {key}") for key in _epoch_keys(agent)}
    sizes = {key: _positive(agent.get(_batch_key(key), 1), f"{source}: {_batch_key(key)}") for key in epochs}
    return sum(int(epochs[key]) * math.ceil(steps / sizes[key]) for key in epochs)


def ladder_end(text: str, source: str) -> LadderEnd | None:
    """Return the most environments whose samples of one iteration fit into the agent's replay buffer.

    None for an agent without a replay buffer. In AMP, ADD and ASE each rank puts all samples of its first iteration
    into its own buffer. MimicKit asserts that they fit (`learning/experience_buffer.py`, `push`). Raises TrainerError
    when the text is no agent file.
    """
    size = _mapping(text, source).get(REPLAY_BUFFER)
    if size is None:
        return None
    samples, steps = int(_positive(size, f"{source}: {REPLAY_BUFFER}")), steps_per_iter(text, source)
    return LadderEnd(
        num_envs=samples // steps,
        reason=f"{source} keeps {REPLAY_BUFFER} {samples} samples, and each environment brings {steps} at once "
        f"(steps_per_iter); raise {REPLAY_BUFFER} for more, which changes what is learnt",
    )


def _changes(
    agent: dict[Any, Any], variant: Variant, config: Mapping[str, Value], source: str
) -> list[tuple[dict[Any, Any], str, Any]]:
    """List each mapping and key whose value has to change, with the new value."""
    epoch_keys = _epoch_keys(agent)
    batch_keys = [key for key in map(_batch_key, epoch_keys) if key in agent]
    epochs = _chosen(agent, epoch_keys, config, EPOCHS, source)
    batch_sizes = _chosen(agent, batch_keys, config, BATCH_SIZE, source)
    model = agent.get("model")
    nets = {key: net for key, net in model.items() if isinstance(net, str)} if isinstance(model, dict) else {}
    wanted = [
        *((agent, key, max(value, variant.min_epochs)) for key, value in epochs.items()),
        *((agent, key, min(value, variant.max_batch_size)) for key, value in batch_sizes.items()),
        *((model, key, variant.nets.get(net, net)) for key, net in nets.items()),
    ]
    return [(mapping, key, value) for mapping, key, value in wanted if mapping[key] != value]


def _epoch_keys(agent: Mapping[Any, Any]) -> list[str]:
    return [key for key in agent if isinstance(key, str) and key.endswith("_epochs")]


def _batch_key(epoch_key: str) -> str:
    return BATCH_SIZE if epoch_key == EPOCHS else epoch_key.removesuffix("_epochs") + "_batch_size"


def _chosen(
    agent: Mapping[Any, Any], keys: Sequence[str], config: Mapping[str, Value], parameter: str, source: str
) -> dict[str, float]:
    """Return each key with the config's value of `parameter`, or with the shipped value where the config has none."""
    if parameter not in config:
        return {key: _positive(agent[key], f"{source}: {key}") for key in keys}
    if not keys:
        raise ConfigRefusedError(f"{source}: has no key for {parameter}; looked for {_LOOKED_FOR[parameter]}")
    return dict.fromkeys(keys, _positive(config[parameter], f"{parameter} of the study"))


def _positive(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise TrainerError(f"{what} is {value!r}; it must be a number above 0")
    return value


def _mapping(text: str, source: str) -> dict[Any, Any]:
    try:
        agent = _yaml().load(text)
    except (YAMLError, ValueError) as error:
        raise TrainerError(f"agent file {source} is not YAML: {error}; restore it from the checkout") from error
    if not isinstance(agent, dict):
        raise TrainerError(f"agent file {source} holds no mapping; it should start with `agent_name:`")
    return agent


def _written(agent: Mapping[Any, Any]) -> str:
    stream = io.StringIO()
    _yaml().dump(agent, stream)
    return stream.getvalue()


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16  # so that no line of an agent file is folded
    return yaml
