"""Asks a person which flags of a command are searched, where no option says so."""

from collections.abc import Callable, Sequence

from tuner.drafting.commands import settings
from tuner.drafting.searches import searches
from tuner.errors import StudyError

MOST_ANSWERS = 3
"""How many answers that cannot be used are asked again."""
_SHOWN = 6


def ask_searches(
    words: Sequence[str], cores_per_rank: int, *, say: Callable[[str], None], answer: Callable[[str], str]
) -> tuple[str, ...]:
    """Return what to search, as `searches` reads it; nothing where the person takes what is proposed.

    `answer` shows a prompt and returns the line that the person types. Raises StudyError after three answers that
    cannot be used.
    """
    numbers = [one for one in settings(words) if one.value.isdecimal()]
    say(f"numbers in the command: {', '.join(f'{one.name}={one.value}' for one in numbers) or 'none'}")
    proposed = _proposed(words, cores_per_rank)
    hint = f"Enter takes {proposed}" if proposed else "for example batch_size=32,64 num_envs=256..65536"
    for left in range(MOST_ANSWERS, 0, -1):
        asked = tuple(answer(f"Which flags shall be searched, over which values? ({hint}) ").split())
        try:
            searches(words, asked, cores_per_rank)
        except StudyError as error:
            if left == 1:
                raise
            say(str(error))
        else:
            return asked
    raise AssertionError("the last answer returns or raises")


def _proposed(words: Sequence[str], cores_per_rank: int) -> str:
    """Return the usual flags of the command with their values; empty where it has none."""
    try:
        usual = searches(words, (), cores_per_rank)
    except StudyError:
        return ""
    return " ".join(f"{one.flag}={','.join(map(str, one.values[:_SHOWN]))}" for one in usual)
