"""A GGUF file with every tensor in float32: what our own loader computes with, for other engines.

python -m baton.engine.gguf_float SOURCE.gguf TARGET.gguf
"""

import sys
from pathlib import Path

import numpy as np

_NOT_COPIED = ("general.architecture", "general.file_type", "general.quantization_version")
"""The writer's own fields, and what says how the source was quantised."""


def write_float_gguf(source: Path, target: Path) -> None:
    """Dequantise every tensor of `source` into `target`; tokenizer and settings are copied."""
    from gguf import GGUFReader, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name not in _NOT_COPIED and not name.startswith("GGUF."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        shape = tuple(int(size) for size in reversed(tensor.shape))
        writer.add_tensor(tensor.name, np.ascontiguousarray(values.reshape(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write_float_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
