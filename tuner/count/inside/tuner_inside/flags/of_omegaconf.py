"""The settings of Hydra and OmegaConf, which words such as `train.batch_size=4` change."""

from tuner_inside.files import argv_is_read
from tuner_inside.flags.command_line import is_argv, option, tell_options
from tuner_inside.tell import around

_overrides = []
"""The configuration that has the command line's words in it, with these words; empty before there is one."""


def listen_to_hydra(module):
    """Listen to Hydra, which keeps its configuration once it is composed."""
    around("flags", module.HydraConfig, "set_config", _on_composed)


def listen(module):
    """Listen to configurations of OmegaConf that have words of the command line in them."""
    around("flags", module.OmegaConf, "from_dotlist", _before_read, _after_read)
    for name in ("merge", "unsafe_merge"):
        around("flags", module.OmegaConf, name, _before_merge, _after_merge)


def _on_composed(_, cfg, **__):
    _tell("hydra", cfg, [str(word) for word in cfg.hydra.overrides.task])


def _before_read(words):
    """Return words as texts if they are the command line; None otherwise."""
    return [str(word) for word in words] if is_argv(words) else None


def _after_read(words, config):
    """Remember the configuration that was made of the command line's words."""
    argv_is_read()
    _overrides[:] = [(config, words)]


def _before_merge(*configs):
    """Return the command line's words if one of the configurations that are merged has them in it; None otherwise."""
    return next((words for config, words in _overrides if any(config is part for part in configs)), None)


def _after_merge(words, config):
    """Tell the settings of a merged configuration, and remember that the command line's words are in it now."""
    if isinstance(getattr(config, "_content", None), dict):
        _overrides[:] = [(config, words)]
        _tell("omegaconf", config, words)


def _tell(parser, config, words):
    """Tell the settings of a configuration, and which of them `words` name. `train={…}` names all under `train.`."""
    # with a dot, so that `batch` is no beginning of `batches`; `+` adds a setting, `~` removes it
    typed_paths = tuple(word.split("=", 1)[0].lstrip("+~") + "." for word in words)
    leaves = [(path, value) for path, value in _leaves(config) if not path.startswith("hydra.")]
    options = [option([path], value, typed=(path + ".").startswith(typed_paths)) for path, value in leaves]
    tell_options(parser, options)


def _leaves(config, prefix=""):
    """Yield the path and the value of each setting; the value of a list, or of what a resolver may compute, is None."""
    if not isinstance(config._content, dict):  # a group of settings that is missing, or None
        return
    for key, node in config._content.items():
        if hasattr(node, "items"):  # a group
            yield from _leaves(node, "%s%s." % (prefix, key))
        elif node._is_none() or node._is_missing() or node._is_interpolation() or hasattr(node, "append"):
            yield prefix + str(key), None
        else:
            yield prefix + str(key), node._value()
