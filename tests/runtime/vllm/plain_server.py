"""Stands where a Python with vLLM is expected: answers what a server says of itself, no more.

Runs as `PYTHON -c ...` (is vLLM there? yes) and as `PYTHON -m vllm... --port N`. A file `broken`
beside it makes it end at once, as a server does whose arguments are wrong.
"""

import http.server
import json
import os
import subprocess
import sys
import time
from pathlib import Path

STARTED = time.time()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        pages = {
            "/health": "",
            "/metrics": f"process_start_time_seconds {STARTED}\n",
            "/v1/models": json.dumps({"data": [{"id": "m", "root": "m", "max_model_len": 8}]}),
            "/version": json.dumps({"version": "plain"}),
        }
        body = pages[self.path].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


if "-c" in sys.argv:
    sys.exit(0)
if (Path(__file__).parent / "broken").exists():
    sys.exit("ValueError: arguments that no server takes")
child = subprocess.Popen(["sleep", "600"])
(Path(__file__).parent / f"child-{os.getpid()}").write_text(str(child.pid))
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
