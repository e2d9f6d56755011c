from pathlib import Path

from tests_devices import check_device_source

from tuner.devices.cpu import CpuSource, Rapl


def zone(root: Path, name: str, microjoules: int, kind: str = "package-0") -> Path:
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{kind}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder


def test_packages_are_added_and_a_counter_that_begins_again_goes_on(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 9_000_000)
    zone(tmp_path, "intel-rapl:1", 1_000_000, "package-1")
    zone(tmp_path, "intel-rapl:0:0", 5, "dram")
    zone(tmp_path, "intel-rapl:2", 7, "psys")
    rapl = Rapl(tmp_path)
    zone(tmp_path, "intel-rapl:0", 500_000)
    zone(tmp_path, "intel-rapl:1", 1_250_000, "package-1")
    assert rapl.total_j() == 1.75
    zone(tmp_path, "intel-rapl:0", 750_000)
    assert rapl.total_j() == 2.0


def test_energy_is_unknown_where_no_counter_can_be_read(tmp_path: Path) -> None:
    assert Rapl(tmp_path).total_j() is None
    (zone(tmp_path, "intel-rapl:0", 5) / "energy_uj").write_text("denied")
    assert Rapl(tmp_path).total_j() is None


def test_ranks_share_the_energy_of_the_processors(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 0)
    source = CpuSource(2, cores=2, rapl=Rapl(tmp_path))
    check_device_source(source)
    zone(tmp_path, "intel-rapl:0", 3_000_000)
    assert [sample.energy_j for sample in source.sample(2.0)] == [1.5, 1.5]
