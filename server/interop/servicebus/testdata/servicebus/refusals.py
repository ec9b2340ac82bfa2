"""What Forebay refuses, by Azure's SDK for Python. Each check prints a line that begins with "ok".

Checks run beside each other, for the SDK takes a second to close anything.
"""

import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)

checks = []


def client(name):
    return ServiceBusClient.from_connection_string(os.environ[name], retry_total=0)


def check(f):
    checks.append(f)


def outcome(f):
    try:
        f()
        return "ok " + f.__name__
    except Exception:
        return "failed " + f.__name__ + "\n" + traceback.format_exc()


def rejects(kind, f):
    try:
        f()
    except kind:
        return
    raise AssertionError(f"no {kind}")


def until_error(f):
    for _ in range(1000):
        f()


def of_no_kind(condition, f):
    """The SDK has no exception of its own for some conditions."""
    try:
        f()
    except ServiceBusError as e:
        assert type(e) is ServiceBusError and condition in repr(e) + str(e), repr(e)
        return
    raise AssertionError("no ServiceBusError")


@check
def full():
    with client("FULL") as c, c.get_queue_sender("full") as sender:
        rejects(ServiceBusQuotaExceededError, lambda: until_error(lambda: sender.send_messages(ServiceBusMessage("x"))))


@check
def busy():
    with client("BUSY") as c, c.get_queue_receiver("busy") as receiver:
        rejects(ServiceBusServerBusyError, lambda: until_error(lambda: receiver.peek_messages(1)))


@check
def wrong_key():
    with client("WRONG") as c:
        rejects(ServiceBusAuthenticationError, lambda: c.get_queue_sender("orders").__enter__())


@check
def may_not_send():
    with client("LISTENS") as c:
        rejects(ServiceBusAuthorizationError, lambda: c.get_queue_sender("orders").__enter__().send_messages(ServiceBusMessage("x")))


@check
def may_not_listen():
    with client("SENDS") as c:
        rejects(ServiceBusAuthorizationError, lambda: c.get_queue_receiver("orders").__enter__().receive_messages(max_wait_time=60))


@check
def disabled():
    with client("OWNER") as c:
        rejects(MessagingEntityDisabledError, lambda: c.get_queue_receiver("closed").__enter__().receive_messages(max_wait_time=60))


@check
def no_such_message():
    with client("OWNER") as c, c.get_queue_receiver("orders") as receiver, c.get_queue_sender("orders") as sender:
        rejects(MessageNotFoundError, lambda: receiver.receive_deferred_messages(2**40))
        rejects(MessageNotFoundError, lambda: sender.cancel_scheduled_messages(2**40))


@check
def an_argument_and_not_allowed():
    with client("OWNER") as c, c.get_queue_sender("orders") as orders, c.get_queue_sender("sessions") as sessions:
        of_no_kind("com.microsoft:argument-error", lambda: orders.send_messages(ServiceBusMessage("x", message_id="\x01")))
        of_no_kind("amqp:not-allowed", lambda: sessions.send_messages(ServiceBusMessage("x")))
        of_no_kind("amqp:not-allowed", lambda: c.get_queue_receiver("sessions").__enter__().receive_messages(max_wait_time=60))


@check
def session_lock_lost():
    with client("OWNER") as c, client("OWNER") as other:
        with c.get_queue_sender("sessions") as sender:
            sender.send_messages(ServiceBusMessage("x", session_id="a"))
        lost = c.get_queue_receiver("sessions", session_id="a").__enter__()
        [m] = lost.receive_messages(max_message_count=1, max_wait_time=60)
        with other.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as then:  # once the lock has ended
            assert then.session.session_id == "a"
            rejects(SessionLockLostError, lambda: lost.session.get_state())
            rejects(SessionLockLostError, lambda: lost.complete_message(m))


with ThreadPoolExecutor(len(checks)) as threads:
    outcomes = list(threads.map(outcome, checks))
print("\n".join(outcomes))
sys.exit(any(one.startswith("failed") for one in outcomes))
