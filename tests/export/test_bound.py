"""The class of a case, by what its devices did."""

from hypothesis import given
from hypothesis import strategies as st

from tuner.export.bound import DRAM_PCT, SM_BUSY_PCT, TENSOR_PCT, Bound, Profile, advice, bound

MEASURED_ON_H200 = [
    (Profile(util_pct=46.5, sm_pct=4.7, tensor_pct=0.0, dram_pct=0.1), Bound.HOST),  # amp_pi_plus, 64 environments
    (
        Profile(util_pct=78.3, sm_pct=63.4, tensor_pct=0.1, dram_pct=6.8),
        Bound.BALANCED,
    ),  # amp_pi_plus, 4,096 with hiutil
    (
        Profile(util_pct=97.0, sm_pct=88.6, tensor_pct=0.1, dram_pct=14.1),
        Bound.COMPUTE,
    ),  # amp_pi_plus, 6,250 with hiutil
    (Profile(util_pct=88.1, sm_pct=78.2, tensor_pct=0.2, dram_pct=10.8), Bound.BALANCED),  # deepmimic, 32,768, default
]
OTHERS = [
    (Profile(util_pct=99.0, sm_pct=95.0, tensor_pct=20.0, dram_pct=70.0), Bound.MEMORY),
    (Profile(util_pct=99.0, sm_pct=70.0, tensor_pct=75.0, dram_pct=50.0), Bound.COMPUTE),
    (Profile(util_pct=99.0, sm_pct=90.0, tensor_pct=61.0, dram_pct=79.0), Bound.MEMORY),
    (Profile(util_pct=40.0), Bound.HOST),  # a card without GPM, or a processor
    (Profile(util_pct=40.0, others_pct=96.0), None),  # it may wait for a processor that others use
    (Profile(util_pct=40.0, sm_pct=30.0, others_pct=96.0), None),
    (Profile(util_pct=40.0, others_pct=3.0), Bound.HOST),
    (Profile(util_pct=96.0), None),
    (Profile(), None),
]


def test_a_profile_has_the_class_that_its_numbers_show() -> None:
    for profile, kind in MEASURED_ON_H200 + OTHERS:
        assert bound(profile) == kind


share = st.floats(0, 100)


@given(util=share, sm=share, tensor=share, dram=share, more=share)
def test_a_busier_device_never_turns_into_one_that_waits(
    util: float, sm: float, tensor: float, dram: float, more: float
) -> None:
    before = bound(Profile(util_pct=util, sm_pct=sm, tensor_pct=tensor, dram_pct=dram))
    after = bound(Profile(util_pct=util, sm_pct=max(sm, more), tensor_pct=tensor, dram_pct=dram))
    assert before is not None
    assert not (before is not Bound.HOST and after is Bound.HOST)
    if max(tensor / TENSOR_PCT, dram / DRAM_PCT) < 1.0 and sm >= SM_BUSY_PCT:
        assert before is Bound.COMPUTE


def test_only_a_case_with_room_is_told_to_run_twice() -> None:
    small, large = Profile(sm_pct=20.0, mem_share_pct=30.0), Profile(sm_pct=20.0, mem_share_pct=80.0)
    assert "side by side" in advice(Bound.HOST, small)
    assert "side by side" not in advice(Bound.HOST, large)


def test_a_training_that_waits_for_data_is_told_to_load_faster_and_not_to_grow() -> None:
    for on_gpu in (True, False):
        said = advice(Bound.HOST, Profile(util_pct=4.0, data_pct=99.0, on_gpu=on_gpu))
        assert ("99 %" in said, "data workers" in said, "batches" in said) == (True, True, False)
    assert "batches" in advice(Bound.HOST, Profile(util_pct=4.0, data_pct=20.0))


def test_a_processor_is_not_told_to_use_what_only_a_gpu_has() -> None:
    assert "GPU" not in advice(Bound.HOST, Profile(util_pct=30.0, mem_share_pct=10.0, on_gpu=False))


def test_each_class_says_what_to_do_next() -> None:
    texts = {advice(kind, Profile(sm_pct=90.0, tensor_pct=tensor)) for kind in Bound for tensor in (0.1, 70.0)}
    assert len(texts) == len(Bound) + 1


def test_a_profile_is_shown_without_what_is_unknown() -> None:
    assert str(Profile(util_pct=97.0, sm_pct=88.6, power_w=1240.0)) == "utilisation 97 %, SM 89 %, 1240 W"
