"""The command `tuner`; `python -m tuner` is the same."""

import signal


def main() -> None:
    """Load all that the commands need, which takes a second or two, and run the command line.

    Ctrl-C ends it meanwhile as it ends any other program: at once, and without a word.
    """
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it is not behind `&` in a script
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tuner.cli.main import main as run  # noqa: PLC0415 - this is what takes so long

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
