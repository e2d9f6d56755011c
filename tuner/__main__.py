"""The command `tuner`; `python -m tuner` is the same."""

import signal


def main() -> None:
    """Import the commands, which takes a second or two, and run the command line.

    During the import, Ctrl-C ends the program at once and without a traceback.
    """
    handles_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False after `&` in a script
    if handles_ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tuner.cli.main import main as run  # noqa: PLC0415 - this import takes the second or two

    if handles_ctrl_c:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
