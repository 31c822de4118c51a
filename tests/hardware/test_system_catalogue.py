"""Machines by name and by file."""

import pytest
from tests.data import DATA, data_file

from baton.errors import ConfigError
from baton.hardware.system import SYSTEMS, find_system

FILE = """
gpu:
  mem_bw: 1000000000000
  mem_capacity: 17179869184
  bfloat16_tc_flops: 100000000000000
  power: 200
  price_per_hour: 1.5
node:
  num_gpus_per_node: 4
  inter_node_bw: 25000000000
  intra_node_bw: 64000000000
  p2p_latency: 0.00001
"""


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a100", "a100_sxm"),
        ("A100-80GB", "a100_sxm"),
        ("h100", "h100_sxm"),
        ("DGX-H100", "h100_sxm"),
        ("h100cap", "h100_sxm_cap"),
        ("RTXPRO6000", "rtx_pro_6000_server"),
        ("rtx-4090", "rtx_4090"),
        ("gb200", "gb200"),
    ],
)
def test_names_and_aliases(given, name):
    assert find_system(given) is SYSTEMS[name]


def test_data_sheets():
    h100 = find_system("h100")
    assert h100.flops_of(2.0) == ("bfloat16", 989e12)
    assert h100.flops_of(1.0) == ("fp8", 1978e12)
    assert h100.flops_of(0.5625) == ("bfloat16", 989e12)  # no 4-bit products: weights widen
    assert find_system("b200").flops_of(0.5625) == ("fp4", 9000e12)
    assert find_system("a100").flops_of(1.0) == ("int8", 624e12)
    assert find_system("a100").price_per_hour == pytest.approx(17.6 / 8)
    assert all(system.source and system.power_w for system in SYSTEMS.values())


def test_links_are_the_fast_ones_within_a_domain():
    rack, node = find_system("gb200"), find_system("h100")
    assert rack.link_bytes_per_s(72) == 900e9
    assert node.link_bytes_per_s(8) == 450e9
    assert node.link_bytes_per_s(9) == 50e9


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ConfigError, match="system 'h10' is not known; nearest: h100"):
        find_system("h10")
    with pytest.raises(ConfigError, match="needs the profile of this machine: --profile"):
        find_system("this")


def test_a_file_of_the_same_facts(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    mine = find_system(path)
    assert (mine.name, mine.gpus_per_node, mine.flops) == ("mine", 4, {"bfloat16": 1e14})
    assert (mine.power_w, mine.price_per_hour, mine.link_us) == (200.0, 1.5, pytest.approx(10.0))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("gpu:", "gpus:", "the section gpu is missing"),
        ("mem_bw: 1000000000000", "mem_bw: fast", "mem_bw is 'fast'; a number"),
        ("mem_capacity: 17179869184", "x: 1", "mem_capacity is None"),
        ("bfloat16_tc_flops: 100000000000000", "x: 1", "flops is {}"),
        ("inter_node_bw: 25000000000", "inter_node_bw: 0", "inter_bytes_per_s is 0.0; above 0"),
        ("gpu:", "[", "not YAML"),
    ],
)
def test_a_bad_file_names_the_field(tmp_path, old, new, text):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=text):
        find_system(path)
    with pytest.raises(ConfigError, match="cannot read the system"):
        find_system(tmp_path / "other.yaml")


def test_the_catalogue_says_what_the_published_files_say():
    data_file("aiconfigurator/systems")
    for path in sorted((DATA / "aiconfigurator" / "systems").glob("*.yaml")):
        theirs, ours = find_system(path), SYSTEMS[path.stem]
        for field in ("flops", "memory_bytes_per_s", "memory_nbytes", "gpus_per_node",
                      "intra_bytes_per_s", "inter_bytes_per_s", "power_w"):  # fmt: skip
            assert getattr(theirs, field) == getattr(ours, field), (path.name, field)
