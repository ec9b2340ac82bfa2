"""Azure's SDK for Python against Forebay. Each check prints a line that begins with "ok".

Checks run beside each other, for the SDK takes a second to close anything. So each has a client and a queue of its own.
"""

import datetime
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    SessionCannotBeLockedError,
)

checks = []


def check(f):
    checks.append(f)


def outcome(f):
    try:
        with ServiceBusClient.from_connection_string(os.environ["CONNECTION_STRING"], retry_total=0) as client:
            f(client)
        return "ok " + f.__name__
    except Exception:
        return "failed " + f.__name__ + "\n" + traceback.format_exc()


def rejects(kind, f):
    try:
        f()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


@check
def send_and_complete(client):
    with client.get_queue_sender("py-send_and_complete") as sender, client.get_queue_receiver("py-send_and_complete") as receiver:
        sender.send_messages(
            ServiceBusMessage("hello", message_id="m1", subject="s", time_to_live=datetime.timedelta(minutes=1), application_properties={"a": 1, "b": "x", "c": True})
        )
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        assert str(m) == "hello" and m.message_id == "m1" and m.subject == "s", m
        assert m.application_properties == {b"a": 1, b"b": b"x", b"c": True}, m.application_properties
        assert m.delivery_count == 0 and m.locked_until_utc > datetime.datetime.now(datetime.timezone.utc)
        receiver.complete_message(m)
        assert receiver.receive_messages(max_message_count=1, max_wait_time=1) == []


@check
def batch(client):
    with client.get_queue_sender("py-batch") as sender:
        messages = sender.create_message_batch()
        for i in range(120):
            messages.add_message(ServiceBusMessage(str(i)))
        sender.send_messages(messages)
    with client.get_queue_receiver("py-batch", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        got = []
        while len(got) < 120:
            got += receiver.receive_messages(max_message_count=120 - len(got), max_wait_time=60)
        assert [str(m) for m in got] == [str(i) for i in range(120)]


@check
def settle_in_every_way(client):
    with client.get_queue_sender("py-settle_in_every_way") as sender, client.get_queue_receiver("py-settle_in_every_way") as receiver:
        sender.send_messages([ServiceBusMessage(b) for b in ("abandon", "defer", "dead-letter")])
        got = []
        while len(got) < 3:
            got += receiver.receive_messages(max_message_count=3 - len(got), max_wait_time=60)
        a, d, x = got
        receiver.abandon_message(a)
        receiver.defer_message(d)
        receiver.dead_letter_message(x, reason="broken", error_description="no use")
        [again] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        assert str(again) == "abandon" and again.delivery_count == 1
        assert receiver.renew_message_lock(again) > datetime.datetime.now(datetime.timezone.utc)
        receiver.complete_message(again)
        [deferred] = receiver.receive_deferred_messages(d.sequence_number)
        assert str(deferred) == "defer"
        receiver.complete_message(deferred)
        rejects(MessageNotFoundError, lambda: receiver.receive_deferred_messages(d.sequence_number))
    with client.get_queue_receiver("py-settle_in_every_way", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        [letter] = dead.receive_messages(max_message_count=1, max_wait_time=60)
        assert str(letter) == "dead-letter"
        assert letter.dead_letter_reason == "broken" and letter.dead_letter_error_description == "no use"
        dead.complete_message(letter)


@check
def schedule_cancel_and_peek(client):
    with client.get_queue_sender("py-schedule_cancel_and_peek") as sender, client.get_queue_receiver("py-schedule_cancel_and_peek") as receiver:
        later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        numbers = sender.schedule_messages([ServiceBusMessage("1"), ServiceBusMessage("2")], later)
        assert [str(m) for m in receiver.peek_messages(10)] == ["1", "2"]
        sender.cancel_scheduled_messages(numbers)
        assert receiver.peek_messages(10, sequence_number=1) == []
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=0.5)
        sender.schedule_messages(ServiceBusMessage("soon"), soon)
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        assert str(m) == "soon"
        receiver.complete_message(m)


@check
def iterate(client):
    with client.get_queue_sender("py-iterate") as sender, client.get_queue_receiver("py-iterate", max_wait_time=60, prefetch_count=20) as receiver:
        sender.send_messages([ServiceBusMessage(str(i)) for i in range(50)])
        got = []
        for m in receiver:
            got.append(str(m))
            receiver.complete_message(m)
            if len(got) == 50:
                break
        assert got == [str(i) for i in range(50)], got


@check
def sessions(client):
    with client.get_queue_sender("py-sessions") as sender:
        sender.send_messages([ServiceBusMessage(b, session_id=b[0]) for b in ("a1", "b1", "a2")])
    with client.get_queue_receiver("py-sessions", session_id="a") as receiver:
        rejects(SessionCannotBeLockedError, lambda: client.get_queue_receiver("py-sessions", session_id="a").__enter__())
        session = receiver.session
        assert session.session_id == "a"
        session.set_state("half")
        assert session.get_state() == b"half"
        assert session.renew_lock() > datetime.datetime.now(datetime.timezone.utc)
        got = []
        while len(got) < 2:
            got += receiver.receive_messages(max_message_count=2 - len(got), max_wait_time=60)
        assert [str(m) for m in got] == ["a1", "a2"]
        assert [str(m) for m in receiver.peek_messages(10, sequence_number=1)] == ["a1", "a2"]
        for m in got:
            receiver.complete_message(m)
    with client.get_queue_receiver("py-sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as receiver:
        assert receiver.session.session_id == "b"
        for m in receiver.receive_messages(max_message_count=1, max_wait_time=60):
            receiver.complete_message(m)
    rejects(OperationTimeoutError, lambda: client.get_queue_receiver("py-sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2).__enter__())


@check
def topics(client):
    with client.get_topic_sender("py-topic") as sender, client.get_subscription_receiver("py-topic", "sub") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        assert str(m) == "x"
        receiver.complete_message(m)


@check
def errors(client):
    rejects(MessagingEntityNotFoundError, lambda: client.get_queue_sender("none").__enter__())
    rejects(MessagingEntityNotFoundError, lambda: client.get_queue_receiver("none").__enter__())
    with client.get_queue_sender("py-errors") as sender:
        rejects(MessageSizeExceededError, lambda: sender.send_messages(ServiceBusMessage("x" * (2 << 20))))
    with client.get_queue_sender("py-short") as sender, client.get_queue_receiver("py-short") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        [again] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        assert again.delivery_count == 1
        rejects(MessageLockLostError, lambda: receiver.complete_message(m))
    rejects(MessagingEntityDisabledError, lambda: client.get_queue_sender("py-closed").__enter__().send_messages(ServiceBusMessage("x")))


with ThreadPoolExecutor(len(checks)) as threads:
    outcomes = list(threads.map(outcome, checks))
print("\n".join(outcomes))
sys.exit(any(one.startswith("failed") for one in outcomes))
