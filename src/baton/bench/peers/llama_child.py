"""Runs inside a virtual environment that has xllamacpp, not Baton: llama.cpp's own HTTP server.

Imports nothing of ours; serves until standard input closes.
"""

import json
import sys


def main() -> None:
    """Start the server that the one argument (JSON) describes."""
    import xllamacpp

    start = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = start["gguf"]
    params.port = start["port"]
    params.n_parallel = start["num_seqs"]
    params.n_ctx = start["num_seqs"] * start["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = start["threads"]
    params.cache_prompt = False
    params.kv_unified = False
    if start["float_kv"]:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(params)
    print("serving at", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
