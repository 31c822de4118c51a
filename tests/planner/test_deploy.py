"""Deployments of a plan: Baton loads its file, shells read theirs, schemas accept the manifests."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

import baton
from baton.config import load_config
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.hardware.parallel import Parallel
from baton.planner.deploy.blueprint import Blueprint, Pool, pack_stages
from baton.planner.deploy.kubernetes import GROUP_LABEL, manifests
from baton.planner.deploy.schemas import to_yaml, validate
from baton.planner.deploy.target import Target
from baton.planner.deploy.vllm import VLLM_VERSION, node_scripts, servers_of
from baton.planner.deploy.write import deployment_files, write_deployments

yaml = pytest.importorskip("yaml", reason="the extra `plan` is not installed")
pytest.importorskip("kubernetes_validate", reason="the extra `plan` is not installed")

GPU = Target(
    model="meta-llama/Llama-3.1-70B-Instruct",
    max_model_len=16384,
    token_nbytes=327_680,
    ttft_ms=500,
    tpot_ms=50,
    gpus_per_node=8,
    comment="split: 1.4 times\nthe goodput",
)
CPU = Target(
    model="smollm2",
    max_model_len=2048,
    token_nbytes=46_080,
    ttft_ms=900,
    tpot_ms=60.4,
    gpus_per_node=2,
    is_cpu=True,
)


def split(prefill=(2, 1, 2), decode=(4, 2, 1)):
    pools = tuple(
        Pool(
            role=role,
            num_workers=count,
            parallel=Parallel(tp=tp, pp=pp),
            kv_tokens=200_000 + 100 * at,
            max_batch_tokens=8192,
            batch_policy="prefill_first" if role is Role.PREFILL else "decode_first",
        )
        for at, (role, (tp, count, pp)) in enumerate(
            [(Role.PREFILL, prefill), (Role.DECODE, decode)]
        )
    )
    return Blueprint(pools=pools, stages=pack_stages(pools, 8))


def colocated(tp=8, workers=2, pp=1, kv_tokens=100_000):
    pools = (
        Pool(
            role=Role.MIXED,
            num_workers=workers,
            parallel=Parallel(tp=tp, pp=pp),
            kv_tokens=kv_tokens,
            max_num_seqs=48,
        ),
    )
    return Blueprint(pools=pools, stages=pack_stages(pools, 8))


@pytest.mark.parametrize("blueprint", [split(), colocated(), colocated(pp=2, workers=1)])
@pytest.mark.parametrize("target", [GPU, CPU])
def test_serve_loads_the_configuration_that_is_written(blueprint, target, tmp_path):
    written = write_deployments(tmp_path, {"winner": blueprint}, target)
    config = load_config(tmp_path / "winner" / "baton.toml")
    counts = {"prefill": config.cluster.prefill, "decode": config.cluster.decode}
    assert {**counts, "mixed": config.cluster.mixed} == {
        "prefill": 0,
        "decode": 0,
        "mixed": 0,
        **{str(pool.role): pool.num_workers for pool in blueprint.pools},
    }
    assert config.model.name == target.model
    assert config.model.max_model_len == target.max_model_len
    assert config.worker.batch_policy == blueprint.pools[0].batch_policy
    assert config.worker.max_batch_tokens == blueprint.pools[0].max_batch_tokens
    assert config.worker.max_num_seqs == blueprint.pools[-1].max_num_seqs
    for pool in blueprint.pools:
        assert config.kv_nbytes_of(pool.role) == pool.kv_tokens * target.token_nbytes
    assert (config.router.ttft_slo_ms, config.router.tpot_slo_ms) == (
        target.ttft_ms,
        round(target.tpot_ms),
    )
    assert all(path.exists() for path in written)


def test_the_nodes_of_a_plan_are_those_of_the_configuration(tmp_path):
    blueprint = split(prefill=(4, 2, 1), decode=(2, 4, 1))
    files = deployment_files(blueprint, CPU)
    (tmp_path / "baton.toml").write_text(files["baton.toml"])
    config = load_config(tmp_path / "baton.toml")
    assert config.cluster.nodes == (0, 0, 1, 1, 1, 1)
    assert config.transfer.data_plane == "nixl"
    assert "--cluster ray://auto" in files["README.md"]
    assert "kvbaton[serve,nixl]" in files["kubernetes.yaml"]
    alone = deployment_files(split(prefill=(2, 1, 1), decode=(2, 1, 1)), CPU)
    (tmp_path / "baton.toml").write_text(alone["baton.toml"])
    config = load_config(tmp_path / "baton.toml")
    assert (config.cluster.nodes, config.transfer.data_plane) == ((), "shm")
    assert "ray" not in alone["README.md"] and "nixl" not in alone["kubernetes.yaml"]


def test_a_configuration_that_baton_cannot_run_says_so():
    text = deployment_files(split(), GPU)["baton.toml"]
    assert "up to 4 GPUs each" in text
    assert text.startswith("# split: 1.4 times\n# the goodput\n")
    tomllib.loads(text)
    alone = deployment_files(colocated(tp=1), CPU)["baton.toml"]
    assert "GPUs" not in alone


def test_a_model_that_no_engine_finds_by_its_name_is_pointed_out():
    assert "replace it" not in deployment_files(split(), GPU)["README.md"]
    named = msgspec.structs.replace(GPU, model="Llama-3.1-70B")
    assert (
        "'Llama-3.1-70B' is the name that was planned with"
        in (deployment_files(split(), named)["README.md"])
    )


def test_every_file_names_one_version_of_vllm():
    files = deployment_files(split(), GPU)
    docs = Path(baton.__file__).parents[2] / "docs" / "plan.md"
    named = {
        name: set(re.findall(r"(?:vLLM |vllm==|vllm-openai:v|`vllm serve` \()(\d[\d.]*\d)", text))
        for name, text in [*files.items(), ("docs", docs.read_text())]
    }
    for name in ("vllm-node-0.sh", "README.md", "kubernetes.yaml", "docs"):
        assert named[name] == {VLLM_VERSION}, name


def commands(script):
    """Each vllm command of a node's script as words, without its environment."""
    lines = script.replace("\\\n", " ").splitlines()
    return [line.split() for line in lines if " vllm serve " in f" {line}"]


def test_each_worker_runs_once_on_gpus_of_its_own():
    blueprint = split(prefill=(2, 2, 2), decode=(4, 2, 1))
    scripts = node_scripts(blueprint, GPU)
    used, ports, sides = [], [], []
    for name, script in scripts.items():
        for words in commands(script) if "node" in name else ():
            environment = dict(word.split("=", 1) for word in words[: words.index("vllm")])
            used += [(name, gpu) for gpu in environment["CUDA_VISIBLE_DEVICES"].split(",")]
            ports.append(words[words.index("--port") + 1])
            sides.append(environment["VLLM_NIXL_SIDE_CHANNEL_PORT"])
            tp = int(words[words.index("--tensor-parallel-size") + 1])
            pp = int(words[words.index("--pipeline-parallel-size") + 1])
            assert len(environment["CUDA_VISIBLE_DEVICES"].split(",")) == tp * pp
    assert len(used) == len(set(used)) == blueprint.num_gpus == 16
    assert len(set(ports)) == len(set(sides)) == len(ports) == 4
    for server in servers_of(blueprint):
        where = f'--{server.pool.role} "http://$NODE_{server.nodes[0]}:{server.port}"'
        assert where in scripts["vllm-proxy.sh"]


def test_a_worker_over_two_nodes_has_a_rank_on_each():
    scripts = node_scripts(colocated(tp=8, workers=1, pp=2), GPU)
    first, second = (commands(scripts[f"vllm-node-{node}.sh"])[0] for node in (0, 1))
    for words, rank in ((first, "0"), (second, "1")):
        assert words[words.index("--node-rank") + 1] == rank
        assert words[words.index("--nnodes") + 1] == "2"
        assert words[words.index("--master-addr") + 1] == '"$NODE_0"'
        assert ("--headless" in words) == (rank == "1")
    assert "--kv-transfer-config" not in first


def test_a_shell_reads_every_script_and_demands_the_addresses(tmp_path):
    write_deployments(tmp_path, {"winner": split()}, GPU)
    for script in sorted((tmp_path / "winner").glob("*.sh")):
        subprocess.run(["bash", "-n", script], check=True)
        command = [shutil.which("bash"), script]
        run = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""})
        assert run.returncode and "to the address of node" in run.stderr


@pytest.mark.parametrize(
    ("blueprint", "target"),
    [(split(), GPU), (colocated(), GPU), (colocated(pp=2, workers=1), GPU), (split(), CPU)],
)
def test_manifests_are_valid_and_read_back_as_they_were(blueprint, target):
    objects = manifests(blueprint, target)
    assert "1.30" in validate(objects)
    assert list(yaml.safe_load_all(to_yaml(objects, "a comment"))) == objects


def test_every_pod_has_the_gpus_of_its_stages_and_the_proxy_knows_all():
    blueprint = split(prefill=(4, 2, 1), decode=(2, 2, 2))
    objects = manifests(blueprint, GPU)
    sets = [one for one in objects if one["kind"] == "StatefulSet"]
    gpus = [
        int(container["resources"]["limits"]["nvidia.com/gpu"]) * one["spec"]["replicas"]
        for one in sets
        for container in one["spec"]["template"]["spec"]["containers"]
    ]
    assert gpus == [4, 4, 4, 4]
    proxy = next(one for one in objects if one["kind"] == "Deployment")
    command = proxy["spec"]["template"]["spec"]["containers"][0]["command"]
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    urls = [word for word in command if word.startswith("http://")]
    assert len(urls) == 4
    for url in urls:
        pod, service = url.removeprefix("http://").partition(":")[0].split(".")
        assert service in services and pod == f"{service}-0"


def test_pods_share_the_nodes_that_workers_share_in_the_plan():
    blueprint = split(prefill=(4, 2, 1), decode=(2, 4, 1))
    sets = [one for one in manifests(blueprint, GPU) if one["kind"] == "StatefulSet"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    groups = []
    for one in sets:
        template = one["spec"]["template"]
        group = template["metadata"]["labels"][GROUP_LABEL]
        affinity = template["spec"]["affinity"]
        (beside,), (apart,) = (affinity[kind][required] for kind in affinity)
        assert beside["labelSelector"] == {"matchLabels": {GROUP_LABEL: group}}
        assert apart["labelSelector"]["matchExpressions"][1]["values"] == [group]
        assert {beside["topologyKey"], apart["topologyKey"]} == {"kubernetes.io/hostname"}
        groups.append(group[-1])
    assert groups == ["0", "0", "1", "1", "1", "1"]
    alone = [one for one in manifests(colocated(), GPU) if one["kind"] == "StatefulSet"]
    assert all("affinity" not in one["spec"]["template"]["spec"] for one in alone)


def test_an_invalid_object_is_named_with_its_field():
    objects = manifests(colocated(), GPU)
    objects[1]["spec"]["publishNotReadyAdresses"] = True
    with pytest.raises(ConfigError, match=r"Service/llama.*spec.*publishNotReadyAdresses"):
        validate(objects)


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes_validate", None)
    with pytest.raises(ConfigError, match=r"install kvbaton\[plan\]"):
        validate(manifests(colocated(), GPU))
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"install kvbaton\[plan\]"):
        to_yaml([])


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"--out-dir .*taken"):
        write_deployments(tmp_path / "taken", {"winner": colocated()}, GPU)


@pytest.mark.parametrize("model", ["Org/Model_v1.5!", "../models/X", "-", "A" * 80])
def test_names_fit_a_host_name(model):
    name = Target(
        model=model, max_model_len=2, token_nbytes=1, ttft_ms=1, tpot_ms=1, gpus_per_node=1
    ).name
    assert 1 <= len(name) <= 40
    assert name.strip("-") == name and name.replace("-", "a").isalnum() and name == name.lower()


def test_a_stage_wider_than_a_node_is_refused():
    pool = Pool(role=Role.MIXED, num_workers=1, parallel=Parallel(tp=16), kv_tokens=1)
    with pytest.raises(ConfigError, match="TP 16 needs a node with 16 GPUs; these have 8"):
        pack_stages((pool,), 8)


def test_scripts_of_a_former_plan_go(tmp_path):
    write_deployments(tmp_path, {"winner": colocated(workers=4)}, GPU)
    place = tmp_path / "winner"
    assert (place / "vllm-node-3.sh").exists()
    (place / "notes.txt").write_text("mine")
    write_deployments(tmp_path, {"winner": colocated(workers=1)}, GPU)
    assert [one.name for one in place.glob("vllm-node-*.sh")] == ["vllm-node-0.sh"]
    assert (place / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("pp", [1, 2])
def test_splits_of_pipelines_carry_what_vllm_says_of_them(pp):
    pools = tuple(
        Pool(role=role, num_workers=1, parallel=Parallel(tp=2, pp=pp), kv_tokens=100_000)
        for role in (Role.PREFILL, Role.DECODE)
    )
    files = deployment_files(Blueprint(pools=pools, stages=pack_stages(pools, 8)), GPU)
    assert ("NIXL connector may refuse" in files["README.md"]) == (pp > 1)
