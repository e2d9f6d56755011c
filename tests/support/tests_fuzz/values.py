"""Values that nobody expects: odd texts, huge numbers, trees of them."""

from hypothesis import strategies as st

ODD = st.sampled_from(["\ud800", "\udcf6", "\0", "\x1b[31m", "\u2028", "²", "٣", "${A}", "${", "NaN", "-", ""])
WORD = st.text(max_size=8) | ODD | st.sampled_from(["auto", "*", "num_envs", "mimickit", "command"])
BIG = st.sampled_from([2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, -1])
SCALAR = st.none() | st.booleans() | st.integers() | BIG | st.floats() | WORD
KEY = st.sampled_from(
    (
        *("name", "trainer", "options", "cases", "devices", "space", "num_envs", "ladder", "choices", "range"),
        *("step", "when", "probe", "search", "overrides", "match", "environment", "variables", "objective"),
        *("constraints", "root", "command", "sampler", "iterations", "max_seconds", "env", "progress"),
    )
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY | WORD, inner, max_size=4), max_leaves=12
)
