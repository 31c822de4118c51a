"""Hand-made records of two arms that agree in everything."""

import msgspec

from baton.bench.compare.record import ArmRecords, Record
from baton.core.ids import Mode

CASE = "one"


def record(ran_in: Mode, /, **changes: object) -> Record:
    whole = Record(
        case=CASE,
        label="0.0",
        mode=ran_in,
        tokens=(5, 6, 7),
        logits=("a", "b", "c"),
        kv_digest="kv",
        finish_reason="length",
        prompt_tokens=4,
        completion_tokens=3,
        visible_tokens=16,
        cached_tokens=16,
        expected_visible=16,
        expected_cached=16,
    )
    return msgspec.structs.replace(whole, **changes)


def arm(mode: Mode, *records: Record, deterministic: bool = True) -> ArmRecords:
    return ArmRecords(
        arm=f"{mode} arm", mode=mode, deterministic=deterministic, records=records, handoffs=1
    )
