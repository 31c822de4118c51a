"""The control link of one rank: typed messages over ZeroMQ, encrypted, members only.

A destination connects to its sources; a source answers on the same connection. Every member holds
the deployment's key pair, so whoever gets in is a member; lives are told apart by the envelope and
by the fence of each message.
"""

import contextlib
import socket
from collections import Counter

import msgspec
import zmq
from zmq.utils import z85

from baton.errors import ConfigError
from baton.integrations.vllm.info import Member
from baton.integrations.vllm.keys import MemberKeys
from baton.integrations.vllm.legs import RankKey
from baton.integrations.vllm.messages import COMPATIBILITY, Envelope, Message

MAX_MESSAGE_NBYTES = 16 << 20
_HIGH_WATER_MARK = 65_536
_PROBE_S = 1.0
_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_DOMAIN = b"baton-vllm"


def _endpoint_parts(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


class Link:
    """All sockets of one rank; owned by the thread that makes it."""

    def __init__(self, endpoint: str, keys: MemberKeys) -> None:
        """Raises ConfigError when the endpoint is not free here."""
        self.counters: Counter[str] = Counter()
        self._keys = keys
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._door = self._context.socket(zmq.REP)
        self._door.bind(_ZAP_ENDPOINT)
        self._inbox = self._context.socket(zmq.ROUTER)
        self._inbox.set_hwm(_HIGH_WATER_MARK)
        for option, value in (
            (zmq.MAXMSGSIZE, MAX_MESSAGE_NBYTES),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.ROUTER_HANDOVER, 1),
            (zmq.CURVE_SERVER, 1),
            (zmq.CURVE_SECRETKEY, keys.control_secret.encode()),
            (zmq.ZAP_DOMAIN, _DOMAIN),
            (zmq.IPV6, int("[" in endpoint)),
        ):
            self._inbox.setsockopt(option, value)
        try:
            self._inbox.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(
                f"{endpoint}: cannot listen: {error}; set kv_connector_extra_config.host to an "
                "address of this machine and .port to a free port"
            ) from error
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}
        self._ways: dict[RankKey, tuple[zmq.Socket[bytes], bytes]] = {}
        """How each life that was heard of is answered: socket, and routing id on the inbox."""
        self.poller = zmq.Poller()
        self.poller.register(self._inbox, zmq.POLLIN)
        self.poller.register(self._door, zmq.POLLIN)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Envelope)

    def open(self, member: Member, rank: int) -> bool:
        """Open the way to a rank of a member. False when nobody listens there."""
        endpoint = member.endpoints[rank]
        key = (member.worker_id, member.epoch, rank)
        if endpoint not in self._outboxes:
            if not _is_listening(endpoint):
                return False
            outbox = self._context.socket(zmq.DEALER)
            outbox.set_hwm(_HIGH_WATER_MARK)
            outbox.setsockopt(zmq.LINGER, 0)
            outbox.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_NBYTES)
            outbox.setsockopt(zmq.IPV6, int("[" in endpoint))
            _set_client_keys(outbox, self._keys)
            outbox.connect(endpoint)
            self._outboxes[endpoint] = outbox
            self.poller.register(outbox, zmq.POLLIN)
        self._ways[key] = (self._outboxes[endpoint], b"")
        return True

    def shut(self, key: RankKey) -> None:
        """Forget the way to a life that is over."""
        way = self._ways.pop(key, None)
        if way is None or way[1] or any(way[0] is other for other, _ in self._ways.values()):
            return
        for endpoint, outbox in list(self._outboxes.items()):
            if outbox is way[0]:
                del self._outboxes[endpoint]
                self.poller.unregister(outbox)
                outbox.close(linger=0)

    def send(self, key: RankKey, envelope: Envelope) -> None:
        """Send to a life that was met; what cannot go now is dropped, and repeats repair it."""
        way = self._ways.get(key)
        if way is None:
            self.counters["unknown_peer"] += 1
            return
        outbox, routing_id = way
        frames = [COMPATIBILITY, self._encoder.encode(envelope)]
        try:
            outbox.send_multipart([routing_id, *frames] if routing_id else frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            self.counters["unsent_messages"] += 1

    def receive(self, ready: dict[object, int]) -> list[tuple[Envelope, bytes]]:
        """The messages that wait on the sockets of a poll, and the routing id of those that came
        in by the own inbox."""
        if self._door in ready:
            self._let_in()
        received = []
        for box in (self._inbox, *self._outboxes.values()):
            while box in ready:
                try:
                    frames = box.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                routing_id = frames.pop(0) if box is self._inbox else b""
                if routing_id and frames[:1] != [COMPATIBILITY]:
                    self._tell_version(routing_id)
                envelope = self._decode(frames)
                if envelope is not None:
                    key = rank_key(envelope)
                    if key not in self._ways or routing_id:
                        self._ways[key] = (box, routing_id)
                    received.append((envelope, routing_id))
        return received

    def reply(self, routing_id: bytes, envelope: Envelope) -> None:
        """Answer whoever sent by the own inbox, member of a pair or not."""
        frames = [routing_id, COMPATIBILITY, self._encoder.encode(envelope)]
        try:
            self._inbox.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            self.counters["unsent_messages"] += 1

    def _tell_version(self, routing_id: bytes) -> None:
        """Whoever speaks another version gets to know it, and nothing else."""
        with contextlib.suppress(zmq.ZMQError):
            self._inbox.send_multipart([routing_id, COMPATIBILITY, b""], zmq.NOBLOCK)

    def _decode(self, frames: list[bytes]) -> Envelope | None:
        if len(frames) != 2 or frames[0] != COMPATIBILITY:
            self.counters["incompatible_messages"] += 1
            return None
        try:
            return self._decoder.decode(frames[1])
        except Exception:  # whatever a peer sends, this thread goes on
            self.counters["malformed_messages"] += 1
            return None

    def _let_in(self) -> None:
        """Answer a handshake: members have the deployment's key, others stay outside."""
        version, request_id, _, _, _, mechanism, *credentials = self._door.recv_multipart()
        mine = z85.decode(self._keys.control_public.encode())
        is_member = mechanism == b"CURVE" and credentials == [mine]
        self.counters["refused_handshakes"] += not is_member
        code, text = (b"200", b"OK") if is_member else (b"400", b"not a member")
        self._door.send_multipart([version, request_id, code, text, b"member", b""])

    def close(self) -> None:
        """Close every socket."""
        for outbox in getattr(self, "_outboxes", {}).values():
            outbox.close(linger=0)
        self._inbox.close(linger=200)
        self._door.close(linger=0)
        self._context.term()


def rank_key(envelope: Envelope) -> RankKey:
    """Who sent it."""
    return envelope.sender_id, envelope.sender_epoch, envelope.sender_rank


def _is_listening(endpoint: str) -> bool:
    """ZeroMQ retries silently for ever; a plain connection says at once that nobody is there."""
    try:
        with socket.create_connection(_endpoint_parts(endpoint), timeout=_PROBE_S):
            return True
    except (OSError, ValueError):
        return False


def _set_client_keys(outbox: "zmq.Socket[bytes]", keys: MemberKeys) -> None:
    outbox.setsockopt(zmq.CURVE_SERVERKEY, keys.control_public.encode())
    outbox.setsockopt(zmq.CURVE_PUBLICKEY, keys.control_public.encode())
    outbox.setsockopt(zmq.CURVE_SECRETKEY, keys.control_secret.encode())


class Asker:
    """A gateway's or operator's questions to connectors; one at a time, from one thread."""

    def __init__(self, name: str, keys: MemberKeys) -> None:
        self._name = name
        self._keys = keys

    def ask(self, endpoint: str, message: Message, timeout_ms: int = 2_000) -> Message | None:
        """Send one message and return the answer; None where none came in time."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        outbox = context.socket(zmq.DEALER)
        try:
            outbox.setsockopt(zmq.LINGER, timeout_ms)
            outbox.setsockopt(zmq.IPV6, int("[" in endpoint))
            _set_client_keys(outbox, self._keys)
            outbox.connect(endpoint)
            envelope = Envelope(
                sender_id=self._name, sender_epoch=0, sender_rank=0, message=message
            )
            outbox.send_multipart([COMPATIBILITY, msgspec.msgpack.encode(envelope)])
            if not outbox.poll(timeout_ms):
                return None
            frames = outbox.recv_multipart()
            if len(frames) != 2 or frames[0] != COMPATIBILITY:
                raise ConfigError(
                    f"{endpoint} speaks {frames[0][:80]!r}, and this side {COMPATIBILITY.decode()}"
                    "; install the same kvbaton on both"
                )
            return msgspec.msgpack.decode(frames[1], type=Envelope).message
        finally:
            outbox.close(linger=0)
            context.term()
