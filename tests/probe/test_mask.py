"""Values of environment variables in a trainer's output: hidden wherever the output is cut into chunks."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.probe.output import MAX_LINE_BYTES, LineSplitter, Mask, printable

KEY, OTHER = "wk-0a1b2c3d4e5f", 'wk-0a"quoted"\\9'
MASK = {"WANDB_API_KEY": KEY, "OTHER_KEY": OTHER}
RED, PLAIN = "\x1b[31m", "\x1b[0m"
COLOURED = [f"{KEY[:4]}{RED}{KEY[4:]}", f"{RED}{KEY[:9]}{PLAIN}{RED}{KEY[9:]}{PLAIN}"]
SPELT = [KEY, OTHER, json.dumps(OTHER), repr(OTHER), *COLOURED, KEY[:7], KEY[5:], "wk-", RED, "\x1b[", "\n", "größe"]
PIECES = st.sampled_from(SPELT)


@given(pieces=st.lists(PIECES, max_size=12), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_a_stream_hides_what_its_whole_text_hides(pieces: list[str], cuts: list[int]) -> None:
    splitter, stream = LineSplitter(Mask(MASK)), "".join(pieces).encode()
    places = [0, *sorted(cuts), len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(places)]
    lines = [*(line for chunk in chunks for line in splitter.feed(chunk)), *splitter.close()]
    assert lines == [Mask(MASK).text(line) for line in map(printable, stream.decode().split("\n")) if line]
    assert KEY not in "".join(lines)
    assert OTHER not in "".join(lines)


@pytest.mark.parametrize("before", range(MAX_LINE_BYTES // 2 - 15, MAX_LINE_BYTES // 2 + 15, 5))
def test_a_line_that_loses_its_middle_loses_no_part_of_a_value_alone(before: int) -> None:
    splitter = LineSplitter(Mask(MASK))
    chunks = ["." * before, KEY, "." * MAX_LINE_BYTES, KEY, "." * (MAX_LINE_BYTES // 2), "\n"]
    shown = "".join(line for chunk in chunks for line in splitter.feed(chunk.encode()))
    assert not any(part in shown for part in (KEY[:6], KEY[-6:]))


def test_each_line_of_a_value_is_hidden() -> None:
    splitter = LineSplitter(Mask({"PEM": "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\n-----END KEY-----"}))
    assert splitter.feed(b"cat: -----BEGIN KEY-----\nMIIEowIBAAKCAQEA\n") == ["cat: ${PEM}", "${PEM}"]


def test_usual_words_and_numbers_stay() -> None:
    for value in ["short-1", "iteration", "1234567", "12,800.5", "2026-11-23", "1.28e+04"]:
        assert Mask({"NAME": value}).text(f"iteration 4: {value}") == f"iteration 4: {value}"


def test_other_values_are_hidden() -> None:
    for value in ["hunter2!", "correcthorsebatterystaple", "1234567812345678", "/scratch/me", "\udcff" * 9]:
        raw = value.encode(errors="surrogateescape")
        assert LineSplitter(Mask({"NAME": value})).feed(b"is " + raw + b"\n") == ["is ${NAME}"]


def test_half_a_character_in_a_text_is_no_error() -> None:
    assert Mask(MASK).text(f"gr\ud800sse {KEY}") == "gr\ud800sse ${WANDB_API_KEY}"


@pytest.mark.parametrize("spelt", [*COLOURED, "".join(f"{one}{RED}" for one in KEY)])
def test_a_value_among_colour_codes_is_hidden(spelt: str) -> None:
    assert LineSplitter(Mask(MASK)).feed(f"key {spelt}!\n".encode()) == ["key ${WANDB_API_KEY}!"]


@pytest.mark.parametrize("value", ['it\'s a "key"', "back\\slash-key", "grösse-key-1", "tab\tin-a-key"])
@pytest.mark.parametrize("spell", [repr, ascii, json.dumps])
def test_a_value_is_hidden_as_python_and_json_spell_it(value: str, spell: Callable[[str], str]) -> None:
    assert "${NAME}" in Mask({"NAME": value}).text(f"environ({spell(value)})")
