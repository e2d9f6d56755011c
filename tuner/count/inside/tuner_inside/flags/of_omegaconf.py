"""The settings of Hydra and OmegaConf, which words such as `train.batch_size=4` change."""

from tuner_inside.files import argv_is_read
from tuner_inside.flags.command_line import is_own, tell_options
from tuner_inside.flags.options import option
from tuner_inside.tell import around

_overrides = []
"""The configuration that has the command line's words in it, and these words."""


def listen_to_hydra(module):
    """Listen to Hydra, which has composed its configuration when it keeps it."""
    around("flags", module.HydraConfig, "set_config", _composed)


def listen(module):
    """Listen to configurations of OmegaConf that have words of the command line in them."""
    around("flags", module.OmegaConf, "from_dotlist", _words, _read)
    for name in ("merge", "unsafe_merge"):
        around("flags", module.OmegaConf, name, _words_in, _merged)


def _composed(_, cfg, **__):
    _tell("hydra", cfg, [str(word) for word in cfg.hydra.overrides.task])


def _words(words):
    return [str(word) for word in words] if is_own(words) else None


def _read(words, config):
    argv_is_read()
    _overrides[:] = [(config, words)]


def _words_in(*configs):
    return next((words for config, words in _overrides if any(config is part for part in configs)), None)


def _merged(words, config):
    if isinstance(getattr(config, "_content", None), dict):
        _overrides[:] = [(config, words)]
        _tell("omegaconf", config, words)


def _tell(parser, config, words):
    typed = tuple(word.split("=", 1)[0].lstrip("+~") + "." for word in words)
    options = [option([path], value) for path, value in _leaves(config) if not path.startswith("hydra.")]
    tell_options(parser, [dict(setting, typed=(setting["names"][0] + ".").startswith(typed)) for setting in options])


def _leaves(config, before=""):
    """Yield the path and the value of each setting. What a resolver may compute is not told."""
    for key, node in config._content.items() if isinstance(config._content, dict) else ():
        if hasattr(node, "items"):
            yield from _leaves(node, "%s%s." % (before, key))
        else:
            is_known = not (
                node._is_none() or node._is_missing() or node._is_interpolation() or hasattr(node, "append")
            )
            yield "%s%s" % (before, key), node._value() if is_known else None
