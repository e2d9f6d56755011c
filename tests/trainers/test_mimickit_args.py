import re

from hypothesis import given
from hypothesis import strategies as st

from tuner.trainers.mimickit import arguments_of_file

WORDS = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=6)
VALUES = WORDS.filter(lambda word: not word.startswith("#") and (not word.startswith("--") or word == "--"))
KEYS = st.text("abc_-1", min_size=1, max_size=2)
GROUPS = st.lists(st.tuples(KEYS, st.lists(VALUES, max_size=3)), max_size=6)
GAPS = st.sampled_from([" ", "\t", "\n", "\r\n", "\n\n", " #said ", "\n# a whole line\n", "\n#--a 9\n"])


@given(st.data(), st.lists(VALUES, max_size=2), GROUPS)
def test_the_first_occurrence_of_a_key_wins_whatever_lies_between_words(data, orphans, groups):
    words = orphans + [word for key, values in groups for word in (f"--{key}", *values)]
    text = "\n" + "".join(word + data.draw(GAPS) for word in words)

    first = {key: tuple(values) for key, values in reversed(groups)}

    assert arguments_of_file(text) == first


@given(st.text("-# ab\n\r\t", max_size=40))
def test_any_text_is_parsed_into_its_own_words_without_comments(text):
    table = arguments_of_file(text)

    words = [f"--{key}" for key in table] + [value for values in table.values() for value in values]
    assert set(words) <= set(re.split(r"\s+", text))
    assert not any(word.startswith("#") for word in words)


def test_a_comment_word_hides_itself_but_not_the_rest_of_its_line():
    assert arguments_of_file("--devices cuda:0 #cuda:1 cuda:2") == {"devices": ("cuda:0", "cuda:2")}


def test_only_a_line_that_starts_with_the_mark_is_a_comment_as_a_whole():
    assert arguments_of_file("# --a 1\n # --b 2") == {"b": ("2",)}


def test_a_key_may_have_no_value_and_two_dashes_are_a_value():
    assert arguments_of_file("--test --mode -- x") == {"test": (), "mode": ("--", "x")}
