"""The command `tuner`; `python -m tuner` is the same."""

from tuner.cli import ended_by_ctrl_c


def main() -> None:
    """Import and run the command line."""
    with ended_by_ctrl_c():
        from tuner.cli.main import main as run  # noqa: PLC0415 - Ctrl-C ends this import without a traceback
    run()


if __name__ == "__main__":
    main()
