"""X6 and X9: every byte on the wire is accounted for, and only missing rows are sent."""

import msgspec

from baton.bench.effects.effect import Effect
from baton.bench.effects.rig import Handoff, Rig, open_rig
from baton.bench.traffic import prompt_of
from baton.core.layout import DTYPE_NBYTES, KVLayout
from baton.errors import BatonError

NOTIFICATION_NBYTES = 32
"""One chunk's notification on the wire: four 64-bit words (docs/protocol.md, section 13)."""
_ANSWER = 24
_NEW = 37
_FIRST = 100


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """One handoff: what should have moved, what the workers exported, what the planes moved."""

    prompt_tokens: int
    rows: int
    logical_nbytes: int
    padding_nbytes: int
    framing_nbytes: int
    exported_logical_nbytes: int
    exported_padding_nbytes: int
    exported_framing_nbytes: int
    exported_duplicate_nbytes: int
    wire_nbytes: int

    @property
    def is_exact(self) -> bool:
        """True when all three agree to the byte."""
        expected = (self.logical_nbytes, self.padding_nbytes, self.framing_nbytes, 0)
        exported = (
            self.exported_logical_nbytes,
            self.exported_padding_nbytes,
            self.exported_framing_nbytes,
            self.exported_duplicate_nbytes,
        )
        return expected == exported and self.wire_nbytes == sum(expected)


def row_nbytes(layout: KVLayout) -> int:
    """One row of K/V over all layers: L * 2 * H_kv * d_h * b, from the shape alone."""
    assert layout.dtype_k == layout.dtype_v and not layout.latent_dim
    scalar = DTYPE_NBYTES[layout.dtype_k]
    return layout.num_layers * 2 * layout.num_kv_heads * layout.head_dim * scalar


def bill_of(handoff: Handoff, prompt_tokens: int, rows: int, layout: KVLayout) -> Bill:
    """Compare a handoff with what `rows` rows in whole blocks must take."""
    logical = rows * row_nbytes(layout)
    padded = -rows % layout.block_size * row_nbytes(layout)
    ledger = handoff.ledger
    return Bill(
        prompt_tokens=prompt_tokens,
        rows=rows,
        logical_nbytes=logical,
        padding_nbytes=padded,
        framing_nbytes=NOTIFICATION_NBYTES * len(handoff.put),
        exported_logical_nbytes=ledger.get("handoff_logical_bytes", 0),
        exported_padding_nbytes=ledger.get("handoff_padding_bytes", 0),
        exported_framing_nbytes=ledger.get("handoff_framing_bytes", 0),
        exported_duplicate_nbytes=ledger.get("handoff_duplicate_bytes", 0),
        wire_nbytes=handoff.wire_nbytes,
    )


def awkward_lengths(block_size: int, step: int, longest: int) -> tuple[int, ...]:
    """Block and step edges, and the rows beside them."""
    edges = (1, block_size, 7 * block_size, step)
    near = {edge + delta for edge in edges for delta in (-1, 0, 1)} | {2 * step + 3}
    return tuple(sorted(length for length in near if 0 < length <= longest))


async def measure_ledger(model: str) -> Effect:
    """X6: cold prompts of awkward lengths, one after another."""
    bills = []
    async with open_rig(model) as rig:
        layout = rig.info.layout
        longest = min(rig.info.max_model_len - 2, 520)
        for length in awkward_lengths(layout.block_size, 512, longest):
            prompt = prompt_of(length, rig.info.vocab_size, length)
            handoff = await rig.ask(prompt, salt=f"cold-{length}")
            bills.append(bill_of(handoff, length, length, layout))
    wrong = [bill for bill in bills if not bill.is_exact]
    total = {
        name: sum(getattr(bill, name) for bill in bills)
        for name in ("logical_nbytes", "padding_nbytes", "framing_nbytes", "wire_nbytes")
    }
    return Effect(
        id="X6",
        title="Ledger: bytes on the wire",
        measured=(
            f"{len(bills)} cold prompts of {bills[0].prompt_tokens} to {bills[-1].prompt_tokens} "
            f"tokens, blocks of {layout.block_size}: wire {total['wire_nbytes']:,} B = "
            f"rows*L*2*H_kv*d_h*b {total['logical_nbytes']:,} + padding of last blocks "
            f"{total['padding_nbytes']:,} + framing {total['framing_nbytes']:,}; "
            f"{len(wrong)} of {len(bills)} differ"
        ),
        accept="equal to the byte, for each prompt, in the exported counters and in the data plane",
        met=not wrong,
        figures={**total, "row_nbytes": row_nbytes(layout), "bills": bills},
    )


class _Turns(msgspec.Struct, frozen=True, kw_only=True):
    """Bills of the turns of one conversation; `is_same` compares with answers served cold."""

    reuse_generated: bool
    bills: tuple[Bill, ...]
    cold_nbytes: int
    """What the same turns would have moved without reuse."""
    is_same: bool


async def _turns(model: str, *, reuse_generated: bool) -> _Turns:
    setting = f"cache.milestone={'decode' if reuse_generated else 'prompt'}"
    async with open_rig(model, [setting]) as rig:
        layout, vocab = rig.info.layout, rig.info.vocab_size
        prompt = prompt_of(_FIRST, vocab, 5)
        bills, held, same, cold_rows = [], 0, True, 0
        for turn in range(3):
            visible = held // layout.block_size * layout.block_size
            handoff = await rig.ask(prompt, _ANSWER, salt="talk")
            bills.append(bill_of(handoff, len(prompt), len(prompt) - visible, layout))
            same &= reuse_generated or await _is_same_cold(rig, handoff, prompt, turn)
            cold_rows += layout.num_blocks(len(prompt)) * layout.block_size
            # The last answered token was never fed back, so its row does not exist.
            held = len(prompt) + (_ANSWER - 1 if reuse_generated else 0)
            prompt = (*prompt, *handoff.timed.token_ids, *prompt_of(_NEW, vocab, 11 + turn))
    return _Turns(
        reuse_generated=reuse_generated,
        bills=tuple(bills),
        cold_nbytes=cold_rows * row_nbytes(layout),
        is_same=same,
    )


async def _is_same_cold(rig: Rig, handoff: Handoff, prompt: tuple[int, ...], turn: int) -> bool:
    cold = await rig.ask(prompt, _ANSWER, salt=f"cold-{turn}")
    if len(cold.timed.token_ids) != _ANSWER:
        raise BatonError(f"an answer of {len(cold.timed.token_ids)} tokens instead of {_ANSWER}")
    return cold.timed.token_ids == handoff.timed.token_ids


async def measure_reuse(model: str) -> Effect:
    """X9: three turns on the same pair, with and without the rows of answers kept."""
    both = [await _turns(model, reuse_generated=reuse) for reuse in (False, True)]
    later = [bill for turns in both for bill in turns.bills[1:]]
    exact = all(bill.is_exact for turns in both for bill in turns.bills)
    same = both[0].is_same
    shown = "; ".join(
        f"{'prompt and answer' if turns.reuse_generated else 'prompt'} rows kept: sent "
        + ", ".join(f"{b.rows} of {b.prompt_tokens}" for b in turns.bills)
        + f" rows, {sum(b.wire_nbytes for b in turns.bills) / turns.cold_nbytes:.2f} of cold bytes"
        for turns in both
    )
    return Effect(
        id="X9",
        title="Destination reuse: later turns send only what is missing",
        measured=f"3 turns each; {shown}; with prompt rows kept, answers "
        f"{'equal' if same else 'DIFFER from'} cold ones",
        accept="each turn moves exactly the rows behind the last whole block held; answers as cold",
        met=exact and same and all(bill.rows < bill.prompt_tokens for bill in later),
        figures={"turns": both},
    )
