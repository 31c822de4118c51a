"""Models become complete local folders or a clear error."""

import json
import subprocess
import sys

import pytest
import torch
import transformers
from engine_models import Sequence_, generate, load, prompt, run_mixed, save_family
from tokenizers import Tokenizer

from baton.engine.loader import resolve_model
from baton.engine.manifest import is_complete, publish
from baton.errors import ConfigError, ModelRefused


def test_tiny_is_ready_and_stable(tiny):
    assert is_complete(tiny)
    assert resolve_model("tiny") == tiny
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    text = "Hello, wörld\n 漢 \x00\x7f"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode("<|im_start|>a<|im_end|>").ids == [258, 97, 259]
    assert tokenizer.get_vocab_size() == 260


def test_tiny_in_transformers(tiny):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    assert ids == [258, *b"user\nhi", 259, 10, 258, *b"assistant\n"]


def test_tiny_output_varies(tiny, engine):
    sequence = Sequence_("a", prompt(20, 1), list(range(16)))
    run_mixed(engine, [sequence], chunk=64, count=100)
    assert len(set(sequence.generated)) > 30
    assert sequence.generated[:40] == generate(tiny, prompt(20, 1), 40)
    assert engine.info.eos_token_ids == (257, 259)


def test_torn_folder_is_built_again(tmp_path):
    built = []

    def build(folder):
        built.append(folder)
        (folder / "a").write_text("x" * 10)

    folder = publish(tmp_path / "m", build)
    assert publish(folder, build) == folder
    assert len(built) == 1
    (folder / "a").write_text("y" * 10)
    assert not is_complete(folder)
    publish(folder, build)
    assert (folder / "a").read_text() == "x" * 10
    (folder / "a").unlink()
    publish(folder, build)
    assert len(built) == 3
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == ["m"]


def test_failed_build_leaves_nothing(tmp_path):
    def build(folder):
        (folder / "a").write_text("half")
        raise ModelRefused("no")

    with pytest.raises(ModelRefused):
        publish(tmp_path / "m", build)
    assert not (tmp_path / "m").exists()
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("smolm2", ConfigError, "known names: smollm2, tiny"),
        ("/no/such/folder", ConfigError, "no such model, file or folder"),
        ("", ConfigError, "no such model"),
    ],
)
def test_unknown_names(baton_home, name, error, text):
    with pytest.raises(error, match=text):
        resolve_model(name)


def test_hub_name_without_network(baton_home, monkeypatch):
    import huggingface_hub

    def fail(name, **_):
        raise OSError(f"cannot reach the hub for {name}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelRefused, match="owner/model: the hub download failed: cannot reach"):
        resolve_model("owner/model")


def test_local_folders(baton_home, tmp_path):
    with pytest.raises(ConfigError, match="no safetensors"):
        resolve_model(str(tmp_path))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ConfigError, match="a file must be"):
        resolve_model(str(tmp_path / "notes.txt"))
    save_family("llama", tmp_path)
    with pytest.raises(ModelRefused, match="no tokenizer"):
        resolve_model(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert resolve_model(str(tmp_path)) == tmp_path.resolve()


def test_broken_gguf(baton_home, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(ModelRefused, match="not a readable GGUF"):
        resolve_model(str(tmp_path))


def test_prepare_speaks_json_without_torch(tiny):
    code = (
        "import sys; from baton.engine.prepare import main; status = main(['tiny']); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"path": str(tiny)}
    done = subprocess.run(
        [sys.executable, "-m", "baton.engine.prepare", "nonsense"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "known names" in json.loads(done.stdout.splitlines()[-1])["error"]


def test_identity_follows_content(tiny, tmp_path):
    first = load(save_family("llama", tmp_path / "a"), self_test=False).info.identity
    same = load(save_family("llama", tmp_path / "b"), self_test=False).info.identity
    other = load(save_family("llama-mha", tmp_path / "c"), self_test=False).info.identity
    assert first.digest == same.digest
    assert first.digest != other.digest
    folder = save_family("llama", tmp_path / "d", rms_norm_eps=1e-5)
    assert load(folder, self_test=False).info.identity.digest != first.digest


def test_bfloat16(tmp_path):
    """A smoke test: close to the reference, and honest about its bits."""
    folder = save_family("llama", tmp_path)
    engine = load(folder, dtype="bfloat16")
    assert not engine.deterministic
    assert "bfloat16" in engine.deterministic_report
    assert engine.info.layout.dtype_k == "bfloat16"
    sequence = Sequence_("a", prompt(70, 1), list(range(8)))
    run_mixed(engine, [sequence], chunk=30, count=8)
    expected = generate(folder, prompt(70, 1), 8)
    assert sequence.generated[0] == expected[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_cuda(name, tmp_path):
    folder = save_family(name, tmp_path)
    engine = load(folder, device="cuda")
    assert not engine.deterministic
    sequences = [Sequence_("a", prompt(75, 1), list(range(20, 10, -1))),
                 Sequence_("b", prompt(33, 2), [3, 9, 5, 1, 2])]  # fmt: skip
    run_mixed(engine, sequences, chunk=28, count=16)
    assert sequences[0].generated == generate(folder, prompt(75, 1), 16)
    assert sequences[1].generated == generate(folder, prompt(33, 2), 16)


@pytest.mark.slow
def test_smollm2_from_gguf(baton_home):
    """The default model: downloaded, converted, exact on this machine, and coherent."""
    folder = resolve_model("smollm2")
    assert is_complete(folder)
    engine = load(folder, num_blocks=200)
    assert engine.deterministic, engine.deterministic_report
    engine.self_test()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True, return_dict=False,
    )  # fmt: skip
    sequence = Sequence_("a", ids, list(range(16)))
    run_mixed(engine, [sequence], chunk=64, count=7)
    assert "The capital of France is Paris" in tokenizer.decode(sequence.generated)
