"""Writes pyamqp.txt with what the AMQP of azure-servicebus 7.15.0 encodes, and checks ours.txt.

pip install azure-servicebus==7.15.0 && python pyamqp.py
"""
import pathlib
import uuid

from azure.servicebus._pyamqp import _decode as decode
from azure.servicebus._pyamqp import _encode as encode
from azure.servicebus._pyamqp import performatives as p
from azure.servicebus._pyamqp.endpoints import Source, Target
from azure.servicebus._pyamqp.error import AMQPError
from azure.servicebus._pyamqp.message import Header, Message, Properties
from azure.servicebus._pyamqp.outcomes import Modified, Rejected
from azure.servicebus._pyamqp.types import AMQPTypes, TYPE, VALUE

HERE = pathlib.Path(__file__).parent
ID = uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
CHANNEL = b"\x00\x03"  # which the transport adds to the header
out = []


def value(name, v, kind=None):
    b = bytearray()
    encode.encode_value(b, {TYPE: kind, VALUE: v} if kind else v)
    out.append(f"value {name} {bytes(b).hex()}")


value("ulong", 300, AMQPTypes.ulong)
value("long", -5, AMQPTypes.long)
value("timestamp", 1311704463521, AMQPTypes.timestamp)
value("uuid", ID)
value("symbols", [{TYPE: AMQPTypes.symbol, VALUE: b"a"}, {TYPE: AMQPTypes.symbol, VALUE: b"b"}], AMQPTypes.array)
value("list", [{TYPE: AMQPTypes.int, VALUE: 1}, "a", None, True])
value("map", {"a": {TYPE: AMQPTypes.float, VALUE: 0.25}})

b = bytearray()
encode.encode_payload(b, Message(
    header=Header(durable=True, priority=7, ttl=60000, first_acquirer=True, delivery_count=3),
    message_annotations={b"x-opt-sequence-number": {TYPE: AMQPTypes.long, VALUE: 1 << 40}},
    properties=Properties(message_id="id", user_id=b"user", to="to", subject="", reply_to="reply",
                          correlation_id=ID, content_type="text/plain", content_encoding="gzip",
                          absolute_expiry_time=1311704463521, creation_time=1311704464521,
                          group_id="group", group_sequence=4, reply_to_group_id="other"),
    application_properties={"span": 7},
    data=[b"first", b"second"],
))
out.append(f"message {bytes(b).hex()}")


def frame(title, kind, **fields):
    performative = kind(**{field: fields.get(field) for field in kind._fields})
    header, body = encode.encode_frame(performative)
    out.append(f"frame {title} {(bytes(header) + CHANNEL + bytes(body)).hex()}")


frame("open", p.OpenFrame, container_id=b"client", hostname=b"host", max_frame_size=65536, channel_max=100,
                          idle_timeout=60000, properties={"product": "p"})
frame("begin", p.BeginFrame, next_outgoing_id=0, incoming_window=2048, outgoing_window=4294967295, handle_max=10)
frame("attach", p.AttachFrame, name=b"link", handle=1, role=True, send_settle_mode=0, rcv_settle_mode=1,
                              source=Source(address=b"queue"), target=Target(address=b"t"), initial_delivery_count=0,
                              max_message_size=0)
frame("flow", p.FlowFrame, next_incoming_id=1, incoming_window=2048, next_outgoing_id=0, outgoing_window=2048,
                          handle=1, delivery_count=0, link_credit=10, drain=True, echo=False)
frame("transfer", p.TransferFrame, handle=0, delivery_id=5, delivery_tag=b"t", message_format=0, settled=False,
                                  more=False, payload=b"payload")
frame("disposition", p.DispositionFrame, role=True, first=5, last=6, settled=True, batchable=False,
                                        state=Modified(delivery_failed=True, message_annotations={b"a": "b"}))
frame("rejected", p.DispositionFrame, role=True, first=5, last=5, settled=True, batchable=False,
                                     state=Rejected(error=AMQPError(condition=b"amqp:not-found", description="why")))
frame("detach", p.DetachFrame, handle=1, closed=True, error=AMQPError(condition=b"amqp:not-found", description="why"))
frame("end", p.EndFrame, error=None)
frame("close", p.CloseFrame, error=None)
(HERE / "pyamqp.txt").write_text("\n".join(out) + "\n")

checked = 0
for line in (HERE / "ours.txt").read_text().split("\n"):
    if not line:
        continue
    name, data = line.split()
    data = memoryview(bytes.fromhex(data))
    if name == "message":
        m = decode.decode_payload(data)
        assert m.properties.message_id == b"id" and m.properties.group_id == b"group", m
        assert m.header.ttl == 60000 and m.header.delivery_count == 3 and m.header.priority == 7, m
        assert m.message_annotations[b"x-opt-sequence-number"] == 1 << 40, m
        assert m.delivery_annotations[b"x-opt-lock-token"] == ID, m
        assert m.data[0] == b"first", m
        checked += 1
        continue
    code, fields = decode.decode_frame(data[8:])
    got = {
        "open": lambda f: (code, f[0], f[1], f[2], f[4]) == (0x10, b"client", b"host", 65536, 60000),
        "begin": lambda f: (code, f[0], f[2], f[4]) == (0x11, 3, 5000, 255),
        "attach": lambda f: (code, f[0], f[1], f[2], f[5][0], f[9], len(f)) == (0x12, b"link", 1, False, b"queue", 0, 14),
        "flow": lambda f: (code, f[0], f[4], f[6], f[8]) == (0x13, 1, 1, 10, True),
        "transfer": lambda f: (code, f[1], f[2], f[-1]) == (0x14, 5, ID.bytes, b"payload"),
        "accepted": lambda f: (code, f[:4], f[4]) == (0x15, [True, 5, 6, True], {"accepted": []}),
        "detach": lambda f: (code, f[0], f[1], f[2][0], f[2][1], len(f[2])) == (0x16, 1, True, b"amqp:not-found", b"why", 3),
        "close": lambda f: (code, f) == (0x18, [None]),
    }[name](fields)
    assert got, (name, code, fields)
    checked += 1
print(f"pyamqp decodes all {checked} of ours.txt")
