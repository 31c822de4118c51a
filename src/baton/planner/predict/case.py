"""What a row of the table describes: pools of workers, their sharding, and who asks them."""

import msgspec

from baton.errors import ConfigError
from baton.hardware.model import ModelShape, find_model
from baton.hardware.operators.precision import ALIASES, PRECISIONS
from baton.hardware.operators.sharding import Quantisation, Sharding
from baton.hardware.system import System, find_system
from baton.planner.predict.rows import MEASURED, Row

BACKENDS = ("vllm", "sglang", "trtllm")
NODE_GPUS, RACK_GPUS, MOST_GPUS = 8, 4, 4096
"""Of a node, of one tray of a rack, and of the largest worker that is taken for one."""
_SIXTEEN = ("bfloat16", "bf16", "int4", "int4_wo")
_NATIVE = {2.0: "bfloat16", 1.0: "fp8"}


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Equal workers."""

    sharding: Sharding
    num_workers: int
    is_given: bool = True
    """Or else the table does not say how many workers, and how attention is spread."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment under a closed loop: `concurrency` requests are in it at any time."""

    model: ModelShape
    system: System
    backend: str
    quantisation: Quantisation
    num_prompt: int
    num_output: int
    concurrency: int
    prefill: Pool
    decode: Pool | None
    """None: the workers of `prefill` do both."""


def case_of(row: Row) -> Case:
    """Raises ConfigError that names the line."""
    try:
        return _case(row)
    except ConfigError as error:
        raise ConfigError(f"line {row.line}: {error}") from error


def _case(row: Row) -> Case:
    if row.problem:
        raise ConfigError(row.problem)
    for name in MEASURED:
        row.number(name)
    model, system = find_model(row.text("model_path")), find_system(row.text("system"))
    backend, mode = row.text("backend"), row.text("mode")
    if backend not in BACKENDS:
        raise ConfigError(f"backend is {backend!r}; use one of {', '.join(BACKENDS)}")
    if mode not in ("agg", "disagg"):
        raise ConfigError(f"mode is {mode!r}; use agg or disagg")
    lengths = {name: row.count(name) for name in ("isl", "osl")}
    for name, value in lengths.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}; at least 1")
    if mode == "agg":
        prefill, decode, concurrency = _colocated(row, model)
    else:
        prefill, decode, concurrency = _split(row, model)
    for pool in (prefill, decode):
        if pool is not None:
            _check_cut(model, pool.sharding)
    return Case(
        model=model,
        system=system,
        backend=backend,
        quantisation=_quantisation(row, model),
        num_prompt=lengths["isl"],
        num_output=lengths["osl"],
        concurrency=concurrency,
        prefill=prefill,
        decode=decode,
    )


def _check_cut(model: ModelShape, sharding: Sharding) -> None:
    """Refuse what no engine runs; racks of a mixture are named by all their GPUs in some tables."""
    tp, width = sharding.tp, sharding.width
    if sharding.gpus > MOST_GPUS:
        raise ConfigError(f"a worker of {sharding.gpus} GPUs ({sharding}); at most {MOST_GPUS}")
    is_rack = model.num_experts > 0 and width > NODE_GPUS and width % RACK_GPUS == 0
    if model.num_heads % tp and not is_rack:
        fitting = [str(n) for n in range(1, model.num_heads + 1) if model.num_heads % n == 0]
        raise ConfigError(
            f"tp_size {tp} does not divide the {model.num_heads} heads of {model.name}; use one of "
            f"{', '.join(fitting)}"
        )
    if sharding.pp > model.num_layers:
        raise ConfigError(
            f"pp_size {sharding.pp} is more than the {model.num_layers} layers of {model.name}"
        )


def _quantisation(row: Row, model: ModelShape) -> Quantisation:
    """As the row says, else as its precision or the checkpoint does; K/V has 8 bits if weights
    have no more.
    """
    native = _NATIVE.get(model.weight_nbytes_per_param, "nvfp4")
    precision = row.text("precision") or native
    gemm = row.text("gemm_quant_mode") or precision
    moe = row.text("moe_quant_mode") or row.text("precision") or precision
    for name in (gemm, moe):
        if name not in PRECISIONS and name not in ALIASES:
            known = ", ".join([*PRECISIONS, *ALIASES])
            raise ConfigError(f"gemm_quant_mode or precision is {name!r}; use one of {known}")
    if model.expert_nbytes_per_param and row.text("precision") not in ("fp8", "bf16"):
        # Such checkpoints keep everything but the experts in 16 bits.
        gemm = "bfloat16"
    # TensorRT-LLM keeps K/V in 8 bits with 8-bit weights; the others in 16 unless they are told.
    is_narrow = row.text("backend") == "trtllm" and moe not in _SIXTEEN
    kv_nbytes = 1.0 if is_narrow or model.kv_nbytes_per_scalar < 2 else 2.0
    return Quantisation(gemm=gemm, moe=moe, kv_nbytes=kv_nbytes)


def _colocated(row: Row, model: ModelShape) -> tuple[Pool, None, int]:
    sharding = _sharding(row, "", model)
    batch, concurrency = row.count("batch_size"), row.count("concurrency")
    if not batch and not concurrency:
        raise ConfigError("batch_size and concurrency are both empty; give one")
    concurrency = concurrency or batch
    workers = 1
    if batch and sharding.dp == 1 and concurrency >= 2 * batch:
        # A batch below the concurrency is that of one rank of several.
        if model.num_experts and sharding.tp > 1:
            sharding = _spread(sharding)
        else:
            workers = max(1, round(concurrency / batch))
    return Pool(sharding=sharding, num_workers=workers), None, concurrency


def _spread(sharding: Sharding) -> Sharding:
    """The same GPUs, each with attention of its own."""
    width = sharding.width
    return msgspec.structs.replace(sharding, tp=1, dp=width)


def _split(row: Row, model: ModelShape) -> tuple[Pool, Pool, int]:
    pools = []
    for name in ("prefill_", "decode_"):
        workers = row.count(f"{name}num_workers")
        sharding = _sharding(row, name, model)
        pools.append(Pool(sharding=sharding, num_workers=max(1, workers), is_given=workers > 0))
    concurrency = row.count("concurrency")
    if not concurrency:
        batch = row.count("decode_batch_size")
        concurrency = batch * pools[1].num_workers * pools[1].sharding.dp
    if not concurrency:
        raise ConfigError("concurrency and decode_batch_size are both empty; give one")
    return pools[0], pools[1], concurrency


def _sharding(row: Row, pool: str, model: ModelShape) -> Sharding:
    tp, dp, moe_tp, ep, pp = (
        max(1, row.count(pool + name))
        for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "pp_size")
    )
    if moe_tp == ep > 1 and max(tp, dp) == moe_tp * ep:
        # Some tables multiply the two splits of the same GPUs.
        tp, dp, moe_tp = (1, ep, 1) if dp > 1 else (ep, 1, 1)
    elif dp > 1 and tp == dp and ep >= tp * dp:
        tp, ep, moe_tp = 1, dp, 1
    if not model.num_experts:
        return Sharding(tp=tp, dp=dp, pp=pp)
    if dp == 1 and moe_tp * ep % tp == 0:
        # Experts over more GPUs than attention: the others have attention of their own.
        dp = max(1, moe_tp * ep // tp)
    width = tp * dp
    ep = min(ep, width)
    return Sharding(tp=tp, dp=dp, moe_tp=max(1, width // ep), ep=ep, pp=pp)
