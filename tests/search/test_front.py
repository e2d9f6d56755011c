from hypothesis import given
from hypothesis import strategies as st

from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.search.standing import Values, dominates, front, values_to_compare

FEW = st.integers(0, 5).map(float)
"""Few values, so that many values are equal and many dominate each other."""


@st.composite
def histories(draw: st.DrawFn) -> list[TrialRecord]:
    """Return trials of up to six configs with two or three objectives. Some trials are not eligible."""
    values = st.tuples(*[FEW] * draw(st.integers(2, 3)))
    one = st.tuples(st.integers(0, 5), st.booleans(), values | st.none())
    return [
        reading(number, *(known or ()), launch=launch, warm=warm)
        for number, (launch, warm, known) in enumerate(draw(st.lists(one, max_size=15)))
    ]


def reading(trial: int, *values: float, launch: int | None = None, warm: bool = False) -> TrialRecord:
    digest = str(trial if launch is None else launch)
    return TrialRecord(number=trial, values=values, probe=ProbeRecord(status="ok", digest=digest, warm=warm))


def numbers(*readings: TrialRecord) -> list[int]:
    """Return the newest trial of each member."""
    return [one.trial for one in front(readings)]


@given(histories())
def test_no_member_is_dominated_and_whatever_else_counts_is_dominated_by_one(readings: list[TrialRecord]) -> None:
    known = values_to_compare(readings)
    members = front(readings)
    compared = [values for values, one in known if one in members]
    for values, one in known:
        assert any(dominates(member, values) for member in compared) == (one not in members)


@given(histories())
def test_a_config_counts_once_and_by_its_cold_readings_where_it_was_tried_cold(readings: list[TrialRecord]) -> None:
    counted = {tuple(trial.number for trial in one.trials): one for _, one in values_to_compare(readings)}
    expected = set()
    for launch in {one.launch_key for one in readings}:
        same = [one for one in readings if one.launch_key == launch]
        deciding = [one for one in same if not one.warm] or same
        if all(one.values for one in deciding):
            expected.add(tuple(one.number for one in deciding))
    assert len(counted) == len(values_to_compare(readings))
    assert counted.keys() == expected


@given(histories())
def test_the_first_member_has_most_of_the_first_objective(readings: list[TrialRecord]) -> None:
    known = values_to_compare(readings)
    first = [values for one in front(readings)[:1] for values, other in known if one == other]
    assert first == sorted(values for values, _ in known)[-1:]


@given(st.tuples(FEW, FEW), st.tuples(FEW, FEW))
def test_two_values_never_dominate_each_other(one: Values, other: Values) -> None:
    assert not dominates(one, one)
    assert not (dominates(one, other) and dominates(other, one))


def test_a_front_trades_one_objective_for_the_other() -> None:
    ends = reading(0, 50.0, 900.0), reading(1, 80.0, 100.0)
    assert numbers(*ends, reading(2, 60.0, 500.0), reading(3, 55.0, 400.0), reading(4)) == [1, 2, 0]


def test_equals_stand_side_by_side_the_earlier_first() -> None:
    assert numbers(reading(0, 1.0, 1.0), reading(1, 2.0, 2.0), reading(2, 2.0, 2.0)) == [1, 2]


def test_a_config_that_failed_cold_is_not_a_member_for_what_a_session_read() -> None:
    assert numbers(reading(0, 9.0, 9.0, warm=True), reading(1, 5.0, 5.0)) == [0]
    assert numbers(reading(0, 9.0, 9.0, warm=True), reading(1, 5.0, 5.0), reading(2, launch=0)) == [1]


def test_a_member_read_several_times_is_compared_by_its_mean() -> None:
    lucky = reading(0, 70.0, 700.0, launch=7), reading(1, 50.0, 500.0, launch=7)
    assert numbers(*lucky, reading(2, 65.0, 650.0)) == [2]
    assert [one.readings for one in front([*lucky, reading(2, 65.0, 550.0)])] == [1, 2]


def test_what_sessions_read_too_high_is_taken_off_by_its_share() -> None:
    both = [
        *(reading(0, 80.0, 1000.0, launch=10, warm=True), reading(1, 60.0, 500.0, launch=10)),
        *(reading(2, 40.0, 2000.0, launch=20, warm=True), reading(3, 30.0, 1000.0, launch=20)),
    ]
    assert values_to_compare([*both, reading(4, 80.0, 1800.0, warm=True)])[-1][0] == (60.0, 900.0)
    assert numbers(*both, reading(4, 76.0, 980.0, warm=True)) == [1, 3]
    assert numbers(*both, reading(4, 84.0, 980.0, warm=True)) == [4, 1, 3]


def test_one_config_alone_shows_half_of_what_sessions_measure_too_high() -> None:
    one = reading(0, 80.0, 100.0, launch=1, warm=True), reading(1, 60.0, 100.0, launch=1)
    known = values_to_compare([*one, reading(2, 80.0, 0.0, warm=True)])
    assert [values for values, _ in known] == [(60.0, 100.0), (70.0, 0.0)]


def test_a_config_that_beats_a_member_in_sessions_stays_beside_it_until_it_is_confirmed() -> None:
    both = [
        *(reading(0, 90.0, 100.0, launch=10, warm=True), reading(1, 88.0, 98.0, launch=10)),
        *(reading(2, 50.0, 200.0, launch=20, warm=True), reading(3, 25.0, 100.0, launch=20)),
    ]
    assert numbers(*both, reading(4, 91.0, 101.0, warm=True)) == [1, 4, 3]
    refuted = reading(5, 95.0, 105.0, launch=30, warm=True), reading(6, 20.0, 20.0, launch=30)
    assert numbers(*both, *refuted, reading(7, 91.0, 101.0, warm=True)) == [1, 3]
