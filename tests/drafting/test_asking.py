from pathlib import Path

import pytest

from tuner.count import Flag
from tuner.drafting.asking import check_flags_exist, check_search_options, flags_to_search
from tuner.drafting.searches import Known
from tuner.errors import StudyError

AMP = Flag(names=("amp",), is_switch=True)


def asked(command: str, *answers: str, flags: tuple[Flag, ...] = ()) -> tuple[list[str], list[str]]:
    """Return what is searched after these answers, and all that was said."""
    said: list[str] = []
    left = iter(answers)

    def answer(prompt: str) -> str:
        said.append(prompt)
        return next(left)

    found = flags_to_search(Known(words=command.split(), cores=4, flags=flags), say=said.append, ask=answer)
    assert next(left, None) is None
    return [str(one) for one in found], said


def test_a_person_takes_what_is_proposed_or_changes_it() -> None:
    command = "train.py --batch-size 32 --workers 2 --lr 3"
    found, said = asked(command, "")
    assert found == ["batch-size=32", "workers=2,0,4"]
    assert ("batch-size=32  (kept: other" in said[0], said[1]) == (True, "  workers=2,0,4")
    assert asked(command, " workers=1  lr=1,2 batch-size=")[0] == ["workers=2,1", "lr=3,1,2"]
    assert asked("train.py --lr 3", "num_envs=8..64")[0] == ["num_envs=8..64"]


def test_a_precision_is_a_question_of_its_own() -> None:
    for answer, found in (("", []), ("n", []), ("y", ["amp=false,true"])):
        assert asked("train.py --batch-size 32", "", answer, flags=(AMP,))[0] == ["batch-size=32", *found]
    assert asked("train.py --batch-size 32", "amp=true,false", flags=(AMP,))[0] == ["batch-size=32", "amp=false,true"]


def test_an_answer_that_cannot_be_used_is_asked_again() -> None:
    found, said = asked("train.py", "", "lr", "lr=1,2")
    assert found == ["lr=1,2"]
    assert any("name at least one" in text for text in said)
    assert any("the command has no number for it" in text for text in said)


def test_a_value_that_cannot_be_meant_is_asked_again() -> None:
    for answer in [
        "workers=50k",
        "lr=50'000",
        "lr=1,000",
        "lr=1e400",
        "lr=\uff15",
        "workers=-5",
        "workers={nope}",
        "lr=" + "9" * 200,
    ]:
        found, said = asked("train.py --workers 2 --lr 3", answer, "workers=2,4")
        assert found == ["workers=2,4"]
        assert any(text.startswith(answer.partition("=")[0]) and "write" in text for text in said[1:])


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("exq.yaml:data.batch_size=8,16", ["exq.yaml is no", "it names exp.yaml"]),
        ("exp.ini:batch_size=8,16", ["exp.ini is no YAML"]),
        ("exp.yaml:data.batchsize=8,16", ["exp.yaml has no value data.batchsize", "did you mean data.batch_size?"]),
        ("exp.yaml:data.workers=0,2", ["sets data.workers to null", "write the value"]),
    ],
)
def test_a_search_in_a_file_needs_a_value_of_a_file_that_the_command_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exp.yaml").write_text("data: {batch_size: 8, workers: }\n")
    command = Known(words=["python", "train.py", "--config=exp.yaml", "exp.ini"], cores=4)
    check_search_options(["exp.yaml:data.batch_size=8,16"], command)
    with pytest.raises(StudyError) as refused:
        check_search_options([search], command)
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_file_of_a_search_may_lie_in_any_folder() -> None:
    flag = "../lr=0.1/exp.yaml:lr"
    known = Known(words=["train.py", flag.removesuffix(":lr")], cores=4, flags=[Flag(names=(flag,), value="1")])
    assert [(search.parameter, str(search)) for search in flags_to_search(known, [f"{flag}=1,2"])] == [
        ("lr", f"{flag}=1,2")
    ]


def test_a_misspelt_flag_is_refused_with_the_name_that_is_most_like_it() -> None:
    flags = (Flag(names=("data.loader.num_workers",)), Flag(names=("lr",)))
    known = Known(words=["python", "train.py"], cores=4, flags=flags, reader="hydra", knows_all=True)
    check_flags_exist(["data.loader.num_workers=0,2", "num_workers=0,2"], known)
    for search, words in (("data.loader.num_worker=0,2", "did you mean data.loader.num_workers?"), ("x=1", "lr")):
        with pytest.raises(StudyError) as refused:
            check_flags_exist([search], known)
        assert f"{search}: the script has no flag" in str(refused.value)
        assert words in str(refused.value)
