"""Sends and receives through the server at the port given, and fails at the first surprise."""

import faulthandler
import sys

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.authentication import SASLPlainAuth
from azure.servicebus._pyamqp.constants import SenderSettleMode
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._pyamqp.message import Message, Properties

faulthandler.dump_traceback_later(120, exit=True)
port = sys.argv[1]
count = 300


def options():
    return {"auth": SASLPlainAuth("me", "secret"), "use_tls": False}


def body(n):
    return [(b"x" * 200_000 if n % 100 == 0 else b"message ") + str(n).encode()]


host = "127.0.0.1:" + port
with SendClient(host, "amqps://" + host + "/q", **options()) as sender:
    for n in range(count):
        sender.send_message(Message(data=body(n), properties=Properties(message_id=n)))



class Receiver(ReceiveClient):
    """Keeps the ids of deliveries and their tags, which are needed to settle."""

    def _message_received(self, frame, message):
        got.append((frame[1], frame[2], message))
        super()._message_received(frame, message)


got = []
settled = 0
with Receiver(host, "amqps://" + host + "/q", link_credit=50, **options()) as receiver:
    while len(got) < count:
        receiver.receive_message_batch(max_batch_size=50, timeout=30)
        for delivery_id, tag, message in got[settled:]:
            assert list(message.data) == body(settled), "message %d differs" % settled
            outcome = ["accepted", "released", "rejected", "modified"][settled % 4]
            receiver.settle_messages(delivery_id, tag, outcome, await_outcome=True, outcome_timeout=30)
            settled += 1
assert settled == count

# Received and deleted, with less credit than there are messages.
with SendClient(host, "amqps://" + host + "/q", **options()) as sender:
    for n in range(1, 51):
        sender.send_message(Message(data=body(n)))
got = 0
with ReceiveClient(host, "amqps://" + host + "/q", send_settle_mode=SenderSettleMode.Settled, link_credit=7, **options()) as receiver:
    while got < 50:
        got += len(receiver.receive_message_batch(max_batch_size=7, timeout=30))

try:
    with SendClient(host, "amqps://" + host + "/none", **options()) as sender:
        sender.send_message(Message(data=[b"lost"]), timeout=10)
    sys.exit("a link to nothing was accepted")
except AMQPException as e:
    assert e.condition == b"amqp:not-found", e.condition

print("done")
