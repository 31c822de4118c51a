"""What the peer is asked for a deployment, in its own words."""

from baton.planner.predict.case import Case, Pool

MODELS = {
    "DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "Qwen3.5-397B-A17B": "Qwen/Qwen3.5-397B-A17B",
    "Kimi-K2.5": "moonshotai/Kimi-K2.5",
    "Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "MiniMax-M2.5": "MiniMaxAI/MiniMax-M2.5",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "GLM-5": "zai-org/GLM-5",
}
"""Configurations that the peer carries, by our names."""
CHECKPOINTS = {
    ("Kimi-K2.5", "nvfp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("Kimi-K2.5", "int4_wo"): "moonshotai/Kimi-K2.5",
    ("MiniMax-M2.5", "nvfp4"): "nvidia/MiniMax-M2.5-NVFP4",
    ("GLM-5", "nvfp4"): "nvidia/GLM-5-NVFP4",
    ("GLM-5", "fp8_block"): "zai-org/GLM-5-FP8",
}
"""Quantised checkpoints that the peer knows the precisions of, by what experts are stored in."""
_PRECISIONS = {"bf16": "bfloat16", "fp4": "nvfp4", "int4": "int4_wo"}


def asked_of(case: Case) -> dict[str, object] | None:
    """Arguments of its estimate; None for a deployment whose worker counts are not known."""
    known = MODELS.get(case.model.name)
    if known is None or not case.prefill.is_given:
        return None
    checkpoint = CHECKPOINTS.get((case.model.name, case.quantisation.moe))
    arguments: dict[str, object] = {
        "model_path": checkpoint or known,
        "system_name": case.system.name,
        "backend_name": case.backend,
        "isl": case.num_prompt,
        "osl": case.num_output,
    }
    if checkpoint is None:
        gemm, moe = case.quantisation.gemm, case.quantisation.moe
        arguments["gemm_quant_mode"] = _PRECISIONS.get(gemm, gemm)
        if case.model.num_experts:
            arguments["moe_quant_mode"] = _PRECISIONS.get(moe, moe)
    if case.decode is None:
        ranks = case.prefill.sharding.dp * case.prefill.num_workers
        arguments |= {"mode": "agg", "batch_size": max(1, round(case.concurrency / ranks))}
        return arguments | _pool(case.prefill, "")
    if not case.decode.is_given:
        return None
    ranks = case.decode.sharding.dp * case.decode.num_workers
    arguments |= {
        "mode": "disagg",
        "prefill_batch_size": 1,
        "prefill_num_workers": case.prefill.num_workers,
        "decode_batch_size": max(1, round(case.concurrency / ranks)),
        "decode_num_workers": case.decode.num_workers,
    }
    return arguments | _pool(case.prefill, "prefill_") | _pool(case.decode, "decode_")


def _pool(pool: Pool, prefix: str) -> dict[str, object]:
    sharding = pool.sharding
    return {
        f"{prefix}tp_size": sharding.tp,
        f"{prefix}pp_size": sharding.pp,
        f"{prefix}attention_dp_size": sharding.dp,
        f"{prefix}moe_tp_size": sharding.moe_tp,
        f"{prefix}moe_ep_size": sharding.ep,
    }
