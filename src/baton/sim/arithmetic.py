"""A model made of arithmetic: a K/V row hashes its token and the row before, a token hashes all.

One wrong, stale or missing block changes the text, and the right text is known without serving.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from baton.core.finish import finish_reason
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.core.request import Request, SamplingParams, Token, TopLogprob

VOCAB_SIZE = 997
EOS_TOKEN_ID = 996
_MASK = (1 << 63) - 1

Rows = NDArray[np.int64]
"""K/V rows of one sequence or of blocks; one integer stands for a row of one layer."""


def model_info(block_size: int, num_layers: int, max_model_len: int) -> ModelInfo:
    """The model that every simulated worker of a deployment has loaded."""
    layout = KVLayout(num_layers=num_layers, num_kv_heads=1, head_dim=1, block_size=block_size)
    return ModelInfo(
        name="arithmetic",
        max_model_len=max_model_len,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=(EOS_TOKEN_ID,),
        identity=ModelIdentity(
            model="arithmetic", checkpoint_hash="arithmetic", tokenizer_hash="none"
        ),
        layout=layout,
    )


def next_row(layer: int, position: int, token_id: int, before: int) -> int:
    """K/V of one position in one layer, from the row before it as it was read."""
    value = (
        before * 6364136223846793005
        + token_id * 1442695040888963407
        + (layer + 1) * 2862933555777941757
        + position * 3037000493
        + 1
    ) & _MASK
    return value ^ (value >> 29)


def draw(rows: Rows, seed: int, position: int) -> int:
    """The token at `position`, from every row `[layers, position]` as it was read."""
    data = np.ascontiguousarray(rows).tobytes() + seed.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "little") % VOCAB_SIZE


def evidence(
    rows: Rows, sampling: SamplingParams, *, verify: bool
) -> tuple[float | None, tuple[TopLogprob, ...], str]:
    """What is said beside a token if its request asks: log probability, alternatives, digest."""
    if sampling.num_logprobs < 0 and not verify:
        return None, (), ""
    drawn = hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=8).hexdigest()
    value = int(drawn, 16)
    logprob = -(value % 10_007) / 1_000 if sampling.num_logprobs >= 0 else None
    top = tuple(
        TopLogprob(token_id=(value >> rank) % VOCAB_SIZE, logprob=-float(rank))
        for rank in range(max(0, sampling.num_logprobs))
    )
    return logprob, top, drawn if verify else ""


def checksum(rows: Rows) -> int:
    """Checksum of the rows of a chunk."""
    data = np.ascontiguousarray(rows).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest(), "little")


class Truth:
    """What a request must answer, and what its K/V must be at every position."""

    def __init__(self, request: Request, model: ModelInfo) -> None:
        self.request = request
        sampling: SamplingParams = request.sampling
        total = min(request.num_prompt_tokens + sampling.max_tokens, model.max_model_len)
        self.rows: Rows = np.zeros((model.layout.num_layers, total), np.int64)
        tokens = list(request.prompt_token_ids)
        outputs: list[Token] = []
        self._fill(tokens, 0)
        while not (reason := finish_reason(request, outputs, model)):
            token_id = draw(self.rows[:, : len(tokens)], sampling.seed, len(tokens))
            seen = self.rows[:, : len(tokens)]
            logprob, top, logits = evidence(seen, sampling, verify=request.verify)
            outputs.append(
                Token(
                    index=len(outputs),
                    token_id=token_id,
                    logprob=logprob,
                    top_logprobs=top,
                    logits_digest=logits,
                )
            )
            tokens.append(token_id)
            self._fill(tokens, len(tokens) - 1)
        self.tokens: tuple[Token, ...] = tuple(outputs)
        self.outputs: tuple[int, ...] = tuple(token.token_id for token in outputs)
        self.finish_reason = reason
        self.token_ids: Sequence[int] = tokens

    @property
    def kv_digest(self) -> str:
        """Digest of every row that is computed when the answer is complete."""
        return f"{checksum(self.rows[:, : len(self.token_ids) - 1]):x}"

    def _fill(self, tokens: Sequence[int], start: int) -> None:
        for layer, rows in enumerate(self.rows):
            before = int(rows[start - 1]) if start else 0
            for position in range(start, min(len(tokens), len(rows))):
                before = next_row(layer, position, tokens[position], before)
                rows[position] = before
