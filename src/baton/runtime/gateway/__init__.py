"""The HTTP edge: an OpenAI-compatible server in front of a backend that runs requests."""

from baton.runtime.gateway.app import GatewayApp, create_app
from baton.runtime.gateway.backend import Backend
from baton.runtime.gateway.server import serve_app
from baton.runtime.gateway.tokenizer import Tokenizer

__all__ = ["Backend", "GatewayApp", "Tokenizer", "create_app", "serve_app"]
