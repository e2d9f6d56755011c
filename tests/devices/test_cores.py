"""The cores to which workers are pinned."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.devices.cards import disjoint_cores

CORES = st.frozensets(st.integers(0, 15))


def test_workers_on_one_socket_share_its_cores() -> None:
    first, second = frozenset(range(8)), frozenset(range(8, 16))
    assert disjoint_cores([first, first, second, second], range(16)) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
        [12, 13, 14, 15],
    ]


def test_without_an_answer_of_the_driver_all_cores_are_divided() -> None:
    assert disjoint_cores([frozenset(), frozenset()], range(4)) == [[0, 1], [2, 3]]


def test_a_container_s_limit_holds() -> None:
    assert disjoint_cores([frozenset(range(8))], {2, 3, 9}) == [[2, 3]]


@given(near=st.lists(CORES, min_size=1, max_size=5), allowed=CORES)
def test_no_core_belongs_to_two_workers(near: list[frozenset[int]], allowed: frozenset[int]) -> None:
    shares = disjoint_cores(near, allowed)
    used = [core for share in shares for core in share]
    assert len(set(used)) == len(used)
    assert set(used) <= allowed
    assert len(shares) == len(near)
