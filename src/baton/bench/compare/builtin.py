"""The built-in cases: block edges, every cache-hit length, sampling, batches, stops, turns."""

from baton.bench.compare.case import GREEDY, Ask, Call, Case, Round
from baton.config import WorkerConfig
from baton.core.ids import Role
from baton.core.request import SamplingParams

HIT_BLOCKS = 4
_SHORT = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
_SAMPLED = SamplingParams(max_tokens=24, temperature=0.9, top_p=0.9, top_k=40, seed=7)
_TEXT = "The harbour was quiet that morning, and the first boats came in before the fog lifted."


def builtin_cases(worker: WorkerConfig) -> tuple[Case, ...]:
    """Every built-in case; names are stable, lengths follow the block size and step size."""
    return (
        *_length_cases(worker),
        *_hit_cases(worker.block_size),
        *_sampling_cases(worker.block_size),
        *_batch_cases(worker),
        *_turn_cases(worker.block_size),
        *_gateway_cases(),
        *_restart_cases(worker.block_size),
    )


def _single(name: str, about: str, *asks: Ask) -> Case:
    return Case(name=name, about=about, rounds=(Round(asks=asks),))


def _length_cases(worker: WorkerConfig) -> tuple[Case, ...]:
    size, chunk = worker.block_size, worker.max_batch_tokens
    lengths = {"one-token": 1}
    for blocks in (1, 2, 7):
        for delta, sign in ((-1, "-1"), (0, ""), (1, "+1")):
            lengths[f"blocks-{blocks}{sign}"] = blocks * size + delta
    for delta, sign in ((-1, "-1"), (0, ""), (1, "+1")):
        lengths[f"step{sign}"] = chunk + delta
    return tuple(
        _single(f"length-{name}", f"a prompt of {length} tokens", Ask(num_tokens=length))
        for name, length in lengths.items()
        if length > 0
    )


def _hit_cases(size: int) -> tuple[Case, ...]:
    """Warm the first `hit` blocks, then ask for all: with a tail, and ending on the block edge."""
    cases = []
    for tail, name in ((3, "tail"), (0, "edge")):
        for hit in range(HIT_BLOCKS + 1):
            length = HIT_BLOCKS * size + tail
            warm = Ask(num_tokens=hit * size + 1, shared=hit * size, sampling=_SHORT)
            cached = min(hit, (length - 1) // size) * size
            full = Ask(num_tokens=length, shared=length, visible=hit * size, cached=cached)
            rounds = (Round(asks=(warm,)), Round(asks=(full,)))
            about = f"{length} tokens of which {hit * size} are warm on both sides"
            cases.append(Case(name=f"hit-{name}-{hit}", about=about, rounds=rounds))
    length = 3 * size + 5
    both = {"visible": length // size * size, "cached": (length - 1) // size * size}
    twice = Ask(num_tokens=length, shared=length)
    other = _with(twice, salt="other", visible=0, cached=0)
    cases.append(
        Case(
            name="hit-salt",
            about="a warm prompt under another cache salt, which must not hit, then under its own",
            rounds=tuple(Round(asks=(ask,)) for ask in (twice, other, _with(twice, **both))),
        )
    )
    return tuple(cases)


def _restart_cases(size: int) -> tuple[Case, ...]:
    """The two sides warm at different lengths: one restarts, and is warmed again in part."""
    cases = []
    for role, other in ((Role.PREFILL, "decode"), (Role.DECODE, "prefill")):
        decode_restarts = role is Role.DECODE
        warm = [
            Ask(num_tokens=6 * size + 1, shared=6 * size, sampling=_SHORT, salt=salt)
            for salt in ("a", "b")
        ]
        short = Ask(num_tokens=2 * size + 1, shared=2 * size, sampling=_SHORT, salt="b")
        rounds = [Round(asks=tuple(warm)), Round(asks=(short,), restart=role)]
        full = []
        for salt, kept in (("a", 0), ("b", 2)):
            lengths = (kept * size, 6 * size)
            visible, cached = lengths if decode_restarts else reversed(lengths)
            full.append(
                Ask(
                    num_tokens=6 * size + 7,
                    shared=6 * size + 7,
                    salt=salt,
                    visible=visible,
                    cached=cached,
                )
            )
        rounds.append(Round(asks=tuple(full)))
        about = f"{other} worker warm with 6 blocks, the restarted {role} worker with 0 and 2"
        cases.append(Case(name=f"restart-{role}", about=about, rounds=tuple(rounds)))
    return tuple(cases)


def _sampling_cases(size: int) -> tuple[Case, ...]:
    length = 3 * size + 5
    variants = {
        "greedy": SamplingParams(max_tokens=24, temperature=0.0),
        "temperature": SamplingParams(max_tokens=24, temperature=1.3, seed=11),
        "top-p": SamplingParams(max_tokens=24, temperature=1.0, top_p=0.7, seed=12),
        "top-k": SamplingParams(max_tokens=24, temperature=1.0, top_k=5, seed=13),
        "all-limits": _SAMPLED,
        "min-tokens": SamplingParams(max_tokens=24, min_tokens=16, temperature=1.0, seed=14),
        "ignore-eos": SamplingParams(max_tokens=24, temperature=1.0, seed=15, ignore_eos=True),
        "logprobs": SamplingParams(max_tokens=12, temperature=1.0, seed=16, num_logprobs=5),
    }
    return tuple(
        _single(
            f"sampling-{name}", "how tokens are drawn", Ask(num_tokens=length, sampling=sampling)
        )
        for name, sampling in variants.items()
    )


def _batch_cases(worker: WorkerConfig) -> tuple[Case, ...]:
    size, chunk = worker.block_size, worker.max_batch_tokens
    mixed = [1, size, 2 * size + 1, 5, 3 * size - 1, 6 * size + 2, chunk // 2, 40]
    prompts = tuple(
        Ask(num_tokens=length, sampling=_seeded(index)) for index, length in enumerate(mixed)
    )
    seeds = tuple(
        Ask(num_tokens=3 * size + 2, shared=3 * size + 2, sampling=_seeded(seed))
        for seed in range(4)
    )
    return (
        _single("batch-prompts", "eight prompts of different lengths together", *prompts),
        Case(
            name="batch-alone",
            about="six of them together when disaggregated, one by one when colocated",
            rounds=(Round(asks=prompts[:6], one_by_one=True),),
        ),
        _single("batch-seeds", "one prompt with four seeds together, as for n=4", *seeds),
        _single(
            "batch-growth",
            "eight answers that outgrow a tight pool, where decode preempts and recomputes",
            *(
                Ask(num_tokens=4 * size - i % size, sampling=_with_max(_seeded(i), 5 * size))
                for i in range(8)
            ),
        ),
        _single(
            "batch-long",
            "two prompts longer than a step together",
            *(Ask(num_tokens=chunk + 9 * i + 1) for i in range(2)),
        ),
    )


def _turn_cases(size: int) -> tuple[Case, ...]:
    first = Ask(num_tokens=2 * size + 3, sampling=_with_max(_SAMPLED, size + 4))
    following = Ask(num_tokens=size // 2 + 1, continues=0, sampling=_with_max(_SAMPLED, 20))
    given_up = Ask(num_tokens=4 * size + 3, shared=4 * size + 3, give_up_after=2)
    given_up = _with(given_up, sampling=_with_max(GREEDY, 64))
    again = Ask(num_tokens=4 * size + 3, shared=4 * size + 3)
    return (
        Case(
            name="turns",
            about="three turns, each one extending the last answer",
            rounds=(Round(asks=(first,)), Round(asks=(following,)), Round(asks=(following,))),
        ),
        Case(
            name="cancel-repeat",
            about="given up in the middle, at once asked again",
            rounds=(Round(asks=(given_up,)), Round(asks=(again,))),
        ),
        Case(
            name="cancel-beside",
            about="given up while another request with the same prompt goes on",
            rounds=(Round(asks=(given_up, again)), Round(asks=(again,))),
        ),
    )


def _gateway_cases() -> tuple[Case, ...]:
    plain = {"prompt": _TEXT, "max_tokens": 24, "temperature": 0.0, "ignore_eos": True}
    sampled = {"prompt": _TEXT, "max_tokens": 16, "temperature": 0.8, "seed": 5}
    chat = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 16}
    stream = {**sampled, "stream": True, "stream_options": {"include_usage": True}}
    prompts = [_TEXT, _TEXT[:40], "A", _TEXT * 3]
    chats = ({**chat, "temperature": 0.0}, {**chat, "seed": 3, "logprobs": True, "top_logprobs": 3})
    path = "/v1/chat/completions"
    return (
        _http("http-stop", "a stop string of the answer", plain, stop=True),
        _http("http-stop-stream", "the same as a stream", {**plain, "stream": True}, stop=True),
        _http("http-stream", "a stream with usage", stream),
        _http("http-n", "n=3 with a seed", {**sampled, "n": 3}),
        _http(
            "http-prompts", "four prompts, two answers each", {**sampled, "prompt": prompts, "n": 2}
        ),
        _http("http-logprobs", "five alternatives per token", {**sampled, "logprobs": 5}),
        _http(
            "http-limits", "min_tokens, top_p, top_k", {**sampled, "min_tokens": 9, "top_p": 0.8}
        ),
        Case(
            name="http-chat",
            about="a conversation, greedy and with a seed and logprobs",
            calls=tuple(Call(path=path, body=body) for body in chats),
        ),
    )


def _http(name: str, about: str, body: dict[str, object], *, stop: bool = False) -> Case:
    calls = [Call(body=body)]
    if stop:
        calls.append(Call(body=body, stop_from=0))
    return Case(name=name, about=about, calls=tuple(calls))


def _seeded(seed: int) -> SamplingParams:
    return SamplingParams(max_tokens=12, temperature=1.0, seed=seed, ignore_eos=True)


def _with(ask: Ask, **changes: object) -> Ask:
    fields = {name: getattr(ask, name) for name in ask.__struct_fields__}
    return Ask(**{**fields, **changes})


def _with_max(sampling: SamplingParams, max_tokens: int) -> SamplingParams:
    fields = {name: getattr(sampling, name) for name in sampling.__struct_fields__}
    return SamplingParams(**{**fields, "max_tokens": max_tokens})
