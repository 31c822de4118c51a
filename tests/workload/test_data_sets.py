"""The published traces give the published counts, means and medians, exactly."""

import numpy as np
import pytest

from baton.workload.load import load_trace
from tests.data import data_file


@pytest.mark.parametrize(
    ("name", "num", "prompt_mean", "output_mean", "medians"),
    [
        ("mooncake/conversation_trace.jsonl.gz", 12_031, 12_035.1, 342.6, (6909, 350)),
        ("mooncake/synthetic_trace.jsonl.gz", 3_993, 15_325.5, 149.1, (11587, 69)),
        ("azure-llm-2023/AzureLLMInferenceTrace_conv.csv", 19_366, 1154.7, 211.1, (1020, 129)),
        ("azure-llm-2023/AzureLLMInferenceTrace_code.csv", 8_819, 2047.8, 27.9, (1469, 13)),
        ("lengths/sharegpt_8k_llama2_tokenizer.csv", 30_731, 2340.0, 438.7, (1730, 415)),
        ("lengths/arxiv_summarization_llama2_tokenizer.csv", 28_257, 2588.1, 291.4, (2730, 167)),
        ("lengths/humaneval_gpt2_tokenizer.csv", 164, 170.3, 97.2, (146, 78)),
        ("bench-inputs/azconv_native_n19366.csv", 19_366, 1154.7, 211.1, (1020, 129)),
    ],
)
def test_statistics(name, num, prompt_mean, output_mean, medians):
    workload = load_trace(data_file(name))
    prompts = [one.num_prompt_tokens for one in workload.requests]
    outputs = [one.num_output_tokens for one in workload.requests]
    assert len(workload.requests) == num
    assert (round(np.mean(prompts), 1), round(np.mean(outputs), 1)) == (prompt_mean, output_mean)
    # A published median is one of the two middle values or their mean.
    assert abs(np.median(prompts) - medians[0]) <= 0.5
    assert abs(np.median(outputs) - medians[1]) <= 0.5


def test_every_conversation_of_the_counted_turns_is_a_request_or_left_out():
    workload = load_trace(data_file("lengths/sharegpt_v3_turns_gpt2_tokenizer.csv.gz"))
    left_out = [int(note.split()[2]) for note in workload.notes if note.startswith("left out")]
    sessions = [int(one.session_id) for one in workload.requests]
    assert sessions == sorted(set(sessions))
    assert len(sessions) + sum(left_out) <= 17_671
    assert (len(sessions), sorted(left_out)) == (17_379, [13, 153])


def variation(workload) -> float:
    gaps = np.diff([one.arrival_us for one in workload.requests])
    return round(float(gaps.std() / gaps.mean()), 2)


def test_the_three_second_ticks_of_the_conversation_trace_can_be_undone():
    path = data_file("mooncake/conversation_trace.jsonl.gz")
    raw, spread = load_trace(path), load_trace(path, tick_us=3_000_000)
    assert variation(raw) == 3.03
    assert variation(spread) == pytest.approx(1.0, abs=0.03)
    assert spread.duration_us == pytest.approx(raw.duration_us, abs=3_000_000)


def test_one_hour_of_each_azure_trace_has_its_rate_and_burstiness():
    conversation = load_trace(data_file("azure-llm-2023/AzureLLMInferenceTrace_conv.csv"))
    code = load_trace(data_file("azure-llm-2023/AzureLLMInferenceTrace_code.csv"))
    assert (variation(conversation), round(variation(code), 1)) == (1.09, 13.2)
    assert round(len(conversation.requests) * 1e6 / conversation.duration_us, 2) == 5.53
    assert round(len(code.requests) * 1e6 / code.duration_us, 2) == 2.57


@pytest.mark.parametrize(("name", "reuse"), [("conversation", 0.374), ("synthetic", 0.651)])
def test_the_hash_ids_give_the_known_prefix_reuse(name, reuse):
    workload = load_trace(data_file(f"mooncake/{name}_trace.jsonl.gz"))
    seen: set[int] = set()
    hit = total = 0
    for request in workload.requests:
        leading = 0
        for hash_id in request.hash_ids:
            if hash_id not in seen:
                break
            leading += 1
        hit += min(leading * workload.tokens_per_hash, request.num_prompt_tokens)
        total += request.num_prompt_tokens
        seen.update(request.hash_ids)
    assert round(hit / total, 3) == reuse
