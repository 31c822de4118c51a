"""The float32 GGUF that other engines get holds the values that ours computes with."""

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from baton.engine.gguf_float import write_float_gguf


def test_every_value_and_field_is_kept(tmp_path):
    values = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    packed = quantize(values, GGMLQuantizationType.Q4_1)
    writer = GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_tensor("x.weight", packed, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("norm.weight", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_float_gguf(tmp_path / "a.gguf", tmp_path / "b.gguf")
    reader = GGUFReader(tmp_path / "b.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert {t.tensor_type for t in tensors.values()} == {GGMLQuantizationType.F32}
    wide = dequantize(packed, GGMLQuantizationType.Q4_1)
    assert np.array_equal(tensors["x.weight"].data, wide)
    assert np.array_equal(tensors["norm.weight"].data, values[0])
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert reader.fields["llama.rope.freq_base"].contents() == 10000.0
    assert reader.fields["general.architecture"].contents() == "llama"
