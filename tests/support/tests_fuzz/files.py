"""Study files and URLs of databases, from noise to shipped files with a few changes."""

from io import BytesIO
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.support.tests_fuzz.values import KEY, VALUE, WORD

TEXTS = st.binary(max_size=60) | st.text("[]{}&*<-:?!|>'\"%@`, \n\tab1", max_size=60).map(str.encode)
_HEAD = {"trainer": {"name": "command", "options": {"command": "x {num_envs}"}}, "space": {"x": {"choices": [1, 2]}}}


def _dumped(study: dict[str, Any]) -> bytes:
    file = BytesIO()
    YAML(typ="safe").dump(study, file)
    return file.getvalue()


STUDIES = st.dictionaries(KEY, VALUE, max_size=6).map(lambda study: _dumped({**_HEAD, **_writable(study)}))


def _writable(value: Any) -> Any:
    """Return a value without what the writer of YAML refuses: halves of pairs, and whole numbers of 5,000 digits."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_writable(key): _writable(part) for key, part in value.items()}
        case list():
            return [_writable(part) for part in value]
        case _:
            return value


_SHIPPED = [path.read_bytes() for path in sorted(Path("studies").glob("*.yaml"))]
_PIECE = st.binary(max_size=4) | st.sampled_from(
    (
        *(b"\n", b": ", b"- ", b"&a ", b"*a", b"<<: *a", b"[" * 40),
        *(b"{", b"'", b"${B}", b"1e999", b"0x", b"!!python/name:os"),
    )
)


@st.composite
def _changed(draw: st.DrawFn) -> bytes:
    """Draw a shipped study file in which a few pieces are replaced."""
    content = draw(st.sampled_from(_SHIPPED))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 30)))
        content = content[:begin] + draw(_PIECE) + content[end:]
    return content


@st.composite
def _grafted(draw: st.DrawFn) -> bytes:
    """Draw a shipped study file in which one value or key is another."""
    study = YAML(typ="safe").load(draw(st.sampled_from(_SHIPPED)))
    inside = study
    while True:
        places = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        place = draw(st.sampled_from(places))
        deeper = inside[place]
        if not isinstance(deeper, dict | list) or not deeper or draw(st.integers(0, 3)) == 0:
            break
        inside = deeper
    inside[place] = _writable(draw(VALUE))
    return _dumped(study)


CHANGED = _changed() | _grafted()

URLS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["sqlite:///", "sqlite://", "postgresql+psycopg://u:p@127.0.0.1:1/", "mysql://", ""]),
    WORD,
    st.sampled_from(["", "?", "?timeout=", "?uri=true&mode=", "?host=", "?port=", "?detect_types="]),
    WORD | st.integers().map(str),
)
