from pathlib import Path

import pytest

from benchmarks.probes.truth import Compared, page, true_rate


def test_the_samples_of_all_ranks_in_the_last_seconds_are_true(tmp_path: Path) -> None:
    for rank, speed in enumerate((10, 30)):
        slow = [f"{t_s} {t_s}" for t_s in range(100)]
        rows = [f"{100 + t_s} {100 + speed * t_s}" for t_s in range(21)]
        (tmp_path / str(rank)).write_text("\n".join([*slow, *rows, "121 cut o"]))
    assert true_rate(tmp_path, 20.0) == pytest.approx(40.0)


def test_the_page_shows_how_far_a_measurement_is_off() -> None:
    compared = {"tqdm": Compared(progress="tqdm", shown="101.0 ± 3.0", true_per_s=100.0)}
    shown = page(compared, {"cpu": "a CPU", "cores": "2", "memory": "8 GiB"}, 1.0)
    assert "| tqdm | `tqdm` | 101.0 ± 3.0 | 100.0 | +1.0 |" in shown
