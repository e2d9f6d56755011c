"""What of a config its launch depends on. Configs that launch the same probe count as one."""

from collections.abc import Mapping

from tuner.study.space import PATIENCE, Config, Value, config_digest


def same_launch(config: Config, other: Config) -> bool:
    """Check whether two configs launch the same probe."""
    return launched(config) == launched(other)


def launch_digest(config: Config) -> str:
    """Return what identifies a config everywhere. Configs that launch the same probe have the same digest."""
    return config_digest(launched(config))


def launched(config: Mapping[str, Value]) -> Config:
    """Return a config without the pruner's patience, which changes nothing about the launch."""
    return {name: value for name, value in config.items() if name != PATIENCE}
