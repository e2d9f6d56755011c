"""Tells which flags the script has parsed from its command line, and which values are in force.

Each parser stays as it is until the script itself has imported it. Only a parse of the command line counts, or of what
an earlier parse has left of it.
"""

from tuner_inside.files import argv_is_read, is_spawned
from tuner_inside.flags import of_absl, of_argparse, of_click, of_omegaconf, of_tyro
from tuner_inside.imports import when_imported
from tuner_inside.tell import guarded


def install():
    """Listen to the parsers that the script imports. A process that `multiprocessing` starts reports nothing."""
    if is_spawned():
        return
    for module, listen in (
        ("argparse", of_argparse.listen),
        ("jsonargparse", of_argparse.listen_to_jsonargparse),
        ("click.core", of_click.listen),
        ("typer._click.core", of_click.listen),
        ("absl.flags", of_absl.listen),
        ("tyro._calling", of_tyro.listen),
        ("hydra.core.hydra_config", of_omegaconf.listen_to_hydra),
        ("omegaconf", of_omegaconf.listen),
        ("fire.core", lambda _: argv_is_read()),
    ):
        when_imported(module, guarded("flags")(listen))
