"""Azure's SDK for Python against Forebay. Each check prints a line that begins with "ok"."""

import datetime
import os
import sys
import time
import traceback

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

client = ServiceBusClient.from_connection_string(os.environ["CONNECTION_STRING"], retry_total=0)
failures = 0


def check(f):
    global failures
    try:
        f()
        print("ok " + f.__name__, flush=True)
    except Exception:
        failures += 1
        print("failed " + f.__name__ + "\n" + traceback.format_exc(), flush=True)


def rejects(kind, f):
    try:
        f()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


@check
def send_and_complete():
    with client.get_queue_sender("py") as sender, client.get_queue_receiver("py") as receiver:
        sender.send_messages(
            ServiceBusMessage("hello", message_id="m1", subject="s", time_to_live=datetime.timedelta(minutes=1), application_properties={"a": 1, "b": "x", "c": True})
        )
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=10)
        assert str(m) == "hello" and m.message_id == "m1" and m.subject == "s", m
        assert m.application_properties == {b"a": 1, b"b": b"x", b"c": True}, m.application_properties
        assert m.delivery_count == 0 and m.locked_until_utc > datetime.datetime.now(datetime.timezone.utc)
        receiver.complete_message(m)
        assert receiver.receive_messages(max_message_count=1, max_wait_time=1) == []


@check
def batch():
    with client.get_queue_sender("py") as sender:
        messages = sender.create_message_batch()
        for i in range(120):
            messages.add_message(ServiceBusMessage(str(i)))
        sender.send_messages(messages)
    with client.get_queue_receiver("py", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        got = []
        while len(got) < 120:
            got += receiver.receive_messages(max_message_count=120 - len(got), max_wait_time=5)
        assert [str(m) for m in got] == [str(i) for i in range(120)]


@check
def settle_in_every_way():
    with client.get_queue_sender("py") as sender, client.get_queue_receiver("py") as receiver:
        sender.send_messages([ServiceBusMessage(b) for b in ("abandon", "defer", "dead-letter")])
        got = []
        while len(got) < 3:
            got += receiver.receive_messages(max_message_count=3 - len(got), max_wait_time=5)
        a, d, x = got
        receiver.abandon_message(a)
        receiver.defer_message(d)
        receiver.dead_letter_message(x, reason="broken", error_description="no use")
        [again] = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        assert str(again) == "abandon" and again.delivery_count == 1
        assert receiver.renew_message_lock(again) > datetime.datetime.now(datetime.timezone.utc)
        receiver.complete_message(again)
        [deferred] = receiver.receive_deferred_messages(d.sequence_number)
        assert str(deferred) == "defer"
        receiver.complete_message(deferred)
        rejects(MessageNotFoundError, lambda: receiver.receive_deferred_messages(d.sequence_number))
    with client.get_queue_receiver("py", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        [letter] = dead.receive_messages(max_message_count=1, max_wait_time=5)
        assert str(letter) == "dead-letter"
        assert letter.dead_letter_reason == "broken" and letter.dead_letter_error_description == "no use"
        dead.complete_message(letter)


@check
def schedule_cancel_and_peek():
    with client.get_queue_sender("py") as sender, client.get_queue_receiver("py") as receiver:
        later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        numbers = sender.schedule_messages([ServiceBusMessage("1"), ServiceBusMessage("2")], later)
        assert [str(m) for m in receiver.peek_messages(10)] == ["1", "2"]
        sender.cancel_scheduled_messages(numbers)
        assert receiver.peek_messages(10, sequence_number=1) == []
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=0.5)
        sender.schedule_messages(ServiceBusMessage("soon"), soon)
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=10)
        assert str(m) == "soon"
        receiver.complete_message(m)


@check
def iterate():
    with client.get_queue_sender("py") as sender, client.get_queue_receiver("py", max_wait_time=3, prefetch_count=20) as receiver:
        sender.send_messages([ServiceBusMessage(str(i)) for i in range(50)])
        got = []
        for m in receiver:
            got.append(str(m))
            receiver.complete_message(m)
            if len(got) == 50:
                break
        assert got == [str(i) for i in range(50)], got


@check
def sessions():
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
            got += receiver.receive_messages(max_message_count=2 - len(got), max_wait_time=5)
        assert [str(m) for m in got] == ["a1", "a2"]
        assert [str(m) for m in receiver.peek_messages(10, sequence_number=1)] == ["a1", "a2"]
        for m in got:
            receiver.complete_message(m)
    with client.get_queue_receiver("py-sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
        assert receiver.session.session_id == "b"
        for m in receiver.receive_messages(max_message_count=1, max_wait_time=5):
            receiver.complete_message(m)
    rejects(OperationTimeoutError, lambda: client.get_queue_receiver("py-sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2).__enter__())


@check
def topics():
    with client.get_topic_sender("py-topic") as sender, client.get_subscription_receiver("py-topic", "sub") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        assert str(m) == "x"
        receiver.complete_message(m)


@check
def errors():
    rejects(MessagingEntityNotFoundError, lambda: client.get_queue_sender("none").__enter__())
    rejects(MessagingEntityNotFoundError, lambda: client.get_queue_receiver("none").__enter__())
    with client.get_queue_sender("py") as sender:
        rejects(MessageSizeExceededError, lambda: sender.send_messages(ServiceBusMessage("x" * (2 << 20))))
    with client.get_queue_sender("py-short") as sender, client.get_queue_receiver("py-short") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [m] = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        [again] = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        assert again.delivery_count == 1
        rejects(MessageLockLostError, lambda: receiver.complete_message(m))
    rejects(MessagingEntityDisabledError, lambda: client.get_queue_sender("py-closed").__enter__().send_messages(ServiceBusMessage("x")))


client.close()
sys.exit(1 if failures else 0)
