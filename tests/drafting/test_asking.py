import pytest

from tuner.drafting.searches import ask_searches
from tuner.errors import StudyError


def asked(command: str, *answers: str) -> tuple[tuple[str, ...], list[str]]:
    """Return what is searched after these answers, and all that was said."""
    said: list[str] = []
    left = iter(answers)

    def answer(prompt: str) -> str:
        said.append(prompt)
        return next(left)

    return ask_searches(command.split(), 4, say=said.append, answer=answer), said


def test_a_person_names_flags_or_takes_what_is_proposed() -> None:
    found, said = asked("train.py --batch-size 32 --lr 3", "")
    assert (found, said[0]) == ((), "numbers in the command: batch-size=32, lr=3")
    assert "(Enter takes batch-size=16,32,64,128,256)" in said[1]
    assert asked("train.py --lr 3", " lr=1,2  num_envs=8..64 ")[0] == ("lr=1,2", "num_envs=8..64")


def test_an_answer_that_cannot_be_used_is_asked_again() -> None:
    found, said = asked("train.py", "", "lr", "lr=1,2")
    assert found == ("lr=1,2",)
    assert any("name at least one" in text for text in said)
    assert any("the command has no number for it" in text for text in said)
    with pytest.raises(StudyError, match="has no number"):
        asked("train.py", *["lr"] * 3)
