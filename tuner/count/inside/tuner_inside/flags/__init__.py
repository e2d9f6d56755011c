"""Tells which flags the script has parsed from its command line, and which values are in force.

Each parser stays as it is until the script itself has imported it. Only a parse of the command line counts, or of what
an earlier parse has left of it.
"""

from tuner_inside.files import is_spawned, record_argv_is_read
from tuner_inside.flags import of_argparse, of_libraries
from tuner_inside.imports import when_imported
from tuner_inside.records import errors_switch_off


def install():
    """Listen to the parsers that the script imports. A process that `multiprocessing` starts reports nothing."""
    if is_spawned():
        return
    for module, listen in (
        ("argparse", of_argparse.listen),
        ("jsonargparse", of_argparse.listen_to_jsonargparse),
        ("click.core", of_libraries.listen_to_click),
        ("typer._click.core", of_libraries.listen_to_click),
        ("absl.flags", of_libraries.listen_to_absl),
        ("tyro._calling", of_libraries.listen_to_tyro),
        ("hydra.core.hydra_config", of_libraries.listen_to_hydra),
        ("omegaconf", of_libraries.listen_to_omegaconf),
        ("fire.core", lambda _: record_argv_is_read()),
    ):
        when_imported(module, errors_switch_off("flags")(listen))
