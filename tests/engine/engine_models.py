"""Small random models of several families, and drivers that run them through the engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from baton.config import ModelConfig
from baton.core.request import SamplingParams
from baton.core.work import Batch, BatchResult, WorkItem
from baton.engine.engine import Engine

COMMON = {
    "vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-mha": ("LlamaConfig", {"num_key_value_heads": 4}),
    "llama-mqa": ("LlamaConfig", {"num_key_value_heads": 1}),
    "llama-scaled": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral": ("MistralConfig", {"sliding_window": 24}),
    "gemma2": (
        "Gemma2Config",
        {"sliding_window": 24, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "sliding_window": 24,
            "query_pre_attn_scalar": 16,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gpt-oss": (
        "GptOssConfig",
        {"sliding_window": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "olmo2": ("Olmo2Config", {}),
    "phi3": ("Phi3Config", {}),
    "gpt2": ("GPT2Config", {"num_key_value_heads": None, "head_dim": None, "n_positions": 512}),
}


def save_family(name: str, folder: Path, **overrides: Any) -> Path:
    """Save a seeded random model of a family; weights are scaled so that its output varies."""
    class_name, extra = FAMILIES[name]
    config = getattr(transformers, class_name)(**(COMMON | extra | overrides))
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() >= 2:
                weight.normal_(0.0, (1.0 if "embed" in key else 1.8) / weight.shape[-1] ** 0.5)
            elif "norm" not in key:
                weight.normal_(0.0, 0.5)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    return folder


def load(
    folder: Path, block_size: int = 16, num_blocks: int = 96, threads: int = 1, **config: Any
) -> Engine:
    """An engine over a private pool whose stale contents are poison."""
    settings = ModelConfig(name="test", **config)
    engine = Engine.load(folder, config=settings, block_size=block_size, threads=threads)
    engine.bind_pool(None, num_blocks)
    engine.pool.tensor.fill_(float("nan"))
    return engine


def prompt(length: int, seed: int, vocabulary: int = 200) -> list[int]:
    """Pseudo-random prompt tokens without the special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary, (length,), generator=generator).tolist()


def item(
    token_ids: Sequence[int],
    start: int,
    end: int,
    table: Sequence[int],
    num_prompt_tokens: int,
    name: str = "r",
    verify: bool = False,
    **sampling: Any,
) -> WorkItem:
    """Rows `start .. end` of a sequence, sampling greedily unless told otherwise."""
    options = {"max_tokens": 100, "temperature": 0.0, "ignore_eos": True} | sampling
    return WorkItem(
        request_id=name,
        generation=1,
        token_ids=tuple(token_ids[start:end]),
        start=start,
        num_prompt_tokens=num_prompt_tokens,
        block_table=tuple(table),
        sample=end >= num_prompt_tokens,
        sampling=SamplingParams(**options),
        verify=verify,
    )


def step(engine: Engine, *items: WorkItem, **arguments: Any) -> BatchResult:
    """Run one batch and require success."""
    result = engine.execute(Batch(batch_id=1, items=items), **arguments)
    assert not result.error, result.error
    return result


class Sequence_:
    """One request driven by hand: a prompt, a block table, and the tokens so far."""

    def __init__(self, name: str, token_ids: Sequence[int], table: Sequence[int]) -> None:
        self.name, self.table = name, list(table)
        self.token_ids = list(token_ids)
        self.num_prompt_tokens = len(token_ids)
        self.num_computed = 0
        self.digests: list[str] = []

    @property
    def generated(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    def next_item(self, chunk: int) -> WorkItem:
        """The next chunk of the prompt, or the next decode row."""
        end = min(self.num_computed + chunk, len(self.token_ids))
        return item(
            self.token_ids, self.num_computed, end, self.table, self.num_prompt_tokens,
            self.name, verify=True,
        )  # fmt: skip

    def advance(self, work: WorkItem, result: BatchResult) -> None:
        """Take the token that a step drew for this sequence."""
        self.num_computed = work.end
        for sampled in result.sampled:
            if sampled.request_id == self.name:
                self.token_ids.append(sampled.token_id)
                self.digests.append(sampled.logits_digest)


def run_mixed(engine: Engine, sequences: list[Sequence_], chunk: int, count: int) -> None:
    """Generate `count` tokens for each; sequences join one step apart, so steps mix phases."""
    number = 0
    while any(len(s.generated) < count for s in sequences):
        active = [s for s in sequences[: number + 1] if len(s.generated) < count]
        items = [s.next_item(chunk) for s in active]
        result = step(engine, *items)
        for sequence, work in zip(active, items, strict=True):
            sequence.advance(work, result)
        number += 1


def generate(folder: Path, token_ids: Sequence[int], count: int) -> list[int]:
    """Greedy tokens of plain transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    ids = torch.tensor([list(token_ids)])
    with torch.inference_mode():
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
            do_sample=False, eos_token_id=None,
        )  # fmt: skip
    return output[0, len(token_ids) :].tolist()
