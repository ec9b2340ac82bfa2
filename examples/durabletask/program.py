"""A whole program with Microsoft's Durable Task SDK for Python (PyPI: durabletask) and Forebay.

    forebay serve                      # with orchestrations.grpc.address: 127.0.0.1:4001
    pip install -r requirements.txt
    python program.py 127.0.0.1:4001 [KEY]

It is a worker and a client in one process. Each line that it prints says what became of one orchestration.
"""

import sys
from datetime import timedelta

from durabletask import client, task, worker

failures = {}


def hello(ctx, name):
    return f"Hello {name}!"


def square(ctx, number):
    return number * number


def flaky(ctx, key):
    """Fails twice."""
    failures[key] = failures.get(key, 0) + 1
    if failures[key] < 3:
        raise RuntimeError("not yet")
    return failures[key]


def chain(ctx, name):
    greeting = yield ctx.call_activity(hello, input=name)
    return (yield ctx.call_activity(hello, input=greeting))


def fan_out(ctx, n):
    return sum((yield task.when_all([ctx.call_activity(square, input=i) for i in range(n)])))


def retried(ctx, key):
    policy = task.RetryPolicy(first_retry_interval=timedelta(milliseconds=100), max_number_of_attempts=5)
    return (yield ctx.call_activity(flaky, input=key, retry_policy=policy))


def timer(ctx, _):
    yield ctx.create_timer(timedelta(milliseconds=200))
    return "later"


def approval(ctx, _):
    return (yield ctx.wait_for_external_event("approved"))


def parent(ctx, n):
    return (yield ctx.call_sub_orchestrator(fan_out, input=n))


def main(address, key=None):
    metadata = [("authorization", "Bearer " + key)] if key else None
    with worker.TaskHubGrpcWorker(host_address=address, metadata=metadata) as w:
        for orchestrator in (chain, fan_out, retried, timer, approval, parent):
            w.add_orchestrator(orchestrator)
        for activity in (hello, square, flaky):
            w.add_activity(activity)
        w.start()
        c = client.TaskHubGrpcClient(host_address=address, metadata=metadata)

        def ended(name, instance):
            state = c.wait_for_orchestration_completion(instance, timeout=60)
            print(name, state.runtime_status.name, state.serialized_output, flush=True)

        for orchestrator, given in ((chain, "you"), (fan_out, 5), (retried, "k"), (timer, None), (parent, 4)):
            ended(orchestrator.__name__, c.schedule_new_orchestration(orchestrator, input=given))

        instance = c.schedule_new_orchestration(approval)
        c.wait_for_orchestration_start(instance, timeout=60)
        c.resume_orchestration(instance)  # it is not suspended: nothing happens
        c.suspend_orchestration(instance)
        c.resume_orchestration(instance)
        c.raise_orchestration_event(instance, "approved", data="by me")
        ended("approval", instance)

        instance = c.schedule_new_orchestration(approval)
        c.wait_for_orchestration_start(instance, timeout=60)
        c.terminate_orchestration(instance, output="enough")
        ended("terminated", instance)


if __name__ == "__main__":
    main(*sys.argv[1:])
