"""Real vLLM servers of different tensor-parallel sizes against plain vLLM, push and pull."""

import asyncio
import os
import subprocess
import sys

import pytest
from rich.console import Console

from baton.bench.vllm.compare import run_compare
from baton.config import load_config
from baton.engine import tiny

_PYTHON = os.environ.get("BATON_VLLM_PYTHON", sys.executable)
_CASES = (
    "length-one-token",
    "length-blocks-1-1",
    "length-blocks-1",
    "length-blocks-1+1",
    "length-step+1",
    "hit-tail-2",
    "batch-alone",
)


def _has_vllm():
    program = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    return subprocess.run([_PYTHON, "-c", program], check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not _has_vllm(), reason="vLLM is missing: name a Python that has it in BATON_VLLM_PYTHON"
    ),
]


@pytest.mark.parametrize("direction", ["pull", "push"])
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(2, 1), (1, 2)])
def test_answers_equal_plain_vllm_of_decodes_size(
    tmp_path, monkeypatch, prefill_tp, decode_tp, direction
):
    monkeypatch.setattr(tiny, "HIDDEN_SIZE", 128)
    monkeypatch.setattr(tiny, "HEAD_DIM", 32)  # vLLM's CPU attention has no kernel for 16
    tiny.write_tiny(tmp_path)
    config = load_config(
        None,
        [
            "cluster.engine=vllm",
            "cluster.start_timeout_s=240",
            f"model.name={tmp_path}",
            "model.max_model_len=1024",
            "worker.max_num_seqs=8",
            f"vllm.python={_PYTHON}",
            "vllm.connector=baton",
            f"vllm.direction={direction}",
            f"vllm.prefill_tp={prefill_tp}",
            f"vllm.decode_tp={decode_tp}",
            "vllm.first_port=18200",
        ],
    )
    outcome = asyncio.run(run_compare(config, _CASES, Console(stderr=True)))
    assert [verdict.differences for verdict in outcome.verdicts if not verdict.same] == []
    assert outcome.same and len(outcome.verdicts) == 18
