from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.trainers.mimickit_driver import LARGEST_FACTOR, LEAST_S, LEAST_SHARE_OF_REST, MOST_SHARE, Thinning


class Training:
    """An agent whose iteration takes `rest_s` seconds of other work and then `updates_s` seconds for all updates."""

    def __init__(self, updates_s: float, rest_s: float, others: int = 0, **epochs: object) -> None:
        """`others` is the number of updates that belong to no epochs."""
        self.now_s, self._rest_s, self._others = 100.0, rest_s, others
        self.agent = SimpleNamespace(**epochs)
        self._whole = self._epochs() or 1
        self._each_s = updates_s / self._whole
        self._made = 0

    def _epochs(self) -> int:
        return sum(count for name, count in vars(self.agent).items() if name.endswith("_epochs"))

    def thinning(self, *, wanted: bool) -> Thinning:
        """Return the thinning of this agent, on this training's clock."""
        return Thinning(self.agent, wanted=wanted, now=lambda: self.now_s)

    def iterate(self, thin: Thinning) -> dict[str, float]:
        """Train for an iteration; return the fields for its report."""
        self.now_s += self._rest_s
        thin.begin(self._made)
        self.now_s += self._each_s * (self._epochs() or 1)
        self._made += 16 * self._epochs() + self._others
        thin.end(self._made)
        fields = thin.report_fields()
        thin.take(thin.parts_needed())
        return fields


@given(st.floats(0.01, 300), st.floats(0.01, 60), st.integers(1, 40), st.integers(1, 4))
def test_enough_is_a_share_of_all_epochs_alike_and_takes_no_longer_than_asked_for(updates_s, rest_s, actor, times):
    training = Training(updates_s, rest_s, _actor_epochs=actor, _critic_epochs=times * actor)
    thin = training.thinning(wanted=True)
    for _ in range(3):
        training.iterate(thin)
    began_s = training.now_s + rest_s
    fields = training.iterate(thin)
    by = fields.get("thin_by", 1.0)
    took_s = training.now_s - began_s

    assert took_s * by == pytest.approx(updates_s)
    assert fields.get("thin_from_s", began_s) == pytest.approx(began_s)
    wanted_s = max(LEAST_S, LEAST_SHARE_OF_REST * rest_s, updates_s / LARGEST_FACTOR)
    if by > 1:
        assert 1 / MOST_SHARE <= by <= LARGEST_FACTOR
        assert took_s >= min(wanted_s, updates_s) * (1 - 1e-9)
        assert took_s <= wanted_s + updates_s * 2 / actor
    else:
        assert wanted_s + updates_s * 2 / actor >= MOST_SHARE * updates_s * (1 - 1e-9)


def test_the_first_iteration_makes_the_least_there_is():
    training = Training(30.0, 2.0, _actor_epochs=40, _critic_epochs=20)
    thin = training.thinning(wanted=True)
    assert (training.agent._actor_epochs, training.agent._critic_epochs) == (2, 1)
    assert training.iterate(thin) == {"thin_from_s": 102.0, "thin_by": 20.0}


@pytest.mark.parametrize("epochs", [{"_actor_epochs": 3, "_critic_epochs": 2}, {"_actor_epochs": 20.0}, {}])
def test_what_has_no_equal_parts_is_left_whole(epochs):
    training = Training(30.0, 2.0, **epochs)
    before = dict(vars(training.agent))
    thin = training.thinning(wanted=True)
    assert [training.iterate(thin) for _ in range(3)] == [{}] * 3
    assert vars(training.agent) == before


def test_nothing_is_thin_that_is_not_wanted():
    training = Training(30.0, 2.0, _update_epochs=40)
    thin = training.thinning(wanted=False)
    assert training.iterate(thin) == {}
    assert training.agent._update_epochs == 40


def test_updates_that_no_epochs_count_make_it_whole():
    training = Training(30.0, 2.0, others=5, _update_epochs=40)
    thin = training.thinning(wanted=True)
    training.iterate(thin)
    assert training.iterate(thin) == {}
    assert training.agent._update_epochs == 40
    assert training.iterate(thin) == {}
