"""Whatever a study file, or the URL of a database, holds: it is read, or refused with one message."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tuner.errors import TunerError
from tuner.export.database import connect
from tuner.study.load import load

TEXTS = st.text(max_size=8) | st.sampled_from(["auto", "${A}", "${", "*", "num_envs", "mimickit", "\0", "\ud800"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
WORDS = """
name trainer options cases devices space num_envs ladder choices range step when probe search overrides match
environment variables objective constraints root command
"""
KEYS = st.sampled_from(WORDS.split())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | TEXTS, inner, max_size=4), max_leaves=12
)
STUDIES = st.dictionaries(KEYS, VALUES, max_size=6)
URLS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["sqlite:///", "sqlite://", "postgresql+psycopg://u:p@127.0.0.1:1/", "mysql://", ""]),
    TEXTS,
    st.sampled_from(["", "?", "?timeout=", "?uri=true&mode=", "?host=", "?port=", "?detect_types="]),
    TEXTS | st.integers().map(str),
)
TRIES = int(os.environ.get("TUNER_FUZZ_TRIES", "60"))
"""The tries of each test; a larger number in the environment makes a longer run."""
FAST = settings(max_examples=TRIES, phases=[Phase.explicit, Phase.generate])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "study.yaml"


@FAST
@given(text=st.binary(max_size=40) | st.text("[]{}&*<-:?!|>'\"%@`, \n\tab1", max_size=40).map(str.encode))
def test_no_text_stops_the_reader_of_study_files(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    with suppress(TunerError):
        load(str(file), {})


@FAST
@given(study=STUDIES)
def test_no_values_stop_the_reader_of_study_files(file: Path, study: dict[str, object]) -> None:
    head = {"trainer": {"name": "command", "options": {"command": "x {num_envs}"}}, "space": {"x": {"choices": [1, 2]}}}
    with suppress(UnicodeEncodeError):
        YAML(typ="safe").dump({**head, **study}, file)
        with suppress(TunerError):
            load(str(file), {"A": "a"}).build_space()


@FAST
@given(url=URLS)
def test_no_url_stops_a_reader_of_databases(url: str) -> None:
    with suppress(TunerError):
        connect(url)
