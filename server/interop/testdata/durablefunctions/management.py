"""Manages instances with Microsoft's client for Durable Functions, as a function app would, and prints what it saw."""
import asyncio
import json
import sys
import time
from datetime import datetime, timedelta, timezone

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus as Status
from azure.durable_functions.models.utils import http_utils

base = sys.argv[1]
client = DurableOrchestrationClient(json.dumps({
    "taskHubName": "hub", "creationUrls": {}, "managementUrls": {"id": "INSTANCE"}, "rpcBaseUrl": base + "/"}))
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


async def until(instance, status):
    begun = time.monotonic()
    while True:
        seen = await client.get_status(instance, show_input=True)
        if seen.runtime_status == status:
            return seen
        if time.monotonic() - begun > 60:
            raise RuntimeError(f"{instance} is {seen.runtime_status}, not {status}")
        await asyncio.sleep(0.005)


def ids(instances):
    return sorted(i.instance_id for i in instances)


async def main():
    saw = {"started": await client.start_new("wait", "a", {"n": 1})}
    await until("a", Status.Running)
    await client.suspend("a", "lunch")
    await until("a", Status.Suspended)
    await client.resume("a", "lunch is over")
    await until("a", Status.Running)
    await client.raise_event("a", "go", {"ok": True})
    ended = await until("a", Status.Completed)
    saw["raised"] = [json.loads(ended.input_), json.loads(ended.output)]  # this client encodes twice
    await client.start_new("wait", "b")
    await client.terminate("b", "enough")
    saw["terminated"] = (await until("b", Status.Terminated)).output
    await client.start_new("flaky", "c")
    await until("c", Status.Failed)
    await client.rewind("c", "mended")
    saw["rewound"] = (await until("c", Status.Completed)).output
    await client.restart("b", restart_with_new_instance_id=False)
    await client.raise_event("b", "go", None)
    await until("b", Status.Completed)
    await client.start_new("wait", "b", "again")  # its id is free
    await client.raise_event("b", "go", None)
    saw["again"] = json.loads((await until("b", Status.Completed)).input_)
    await client.start_new("wait", "d")
    await client.terminate("d", "enough")
    await until("d", Status.Terminated)
    await client.start_new("wait", "e")
    try:
        saw["taken"] = await client.start_new("wait", "e")
    except Exception:
        saw["taken"] = "refused"
    saw["all"] = ids(await client.get_status_all())
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    saw["some"] = ids(await client.get_status_by(LONG_AGO, soon, [Status.Completed, Status.Failed]))
    saw["one"] = (await client.purge_instance_history("a")).instances_deleted
    saw["none"] = (await client.purge_instance_history("a")).instances_deleted
    saw["ended"] = (await client.purge_instance_history_by(LONG_AGO, runtime_status=[Status.Terminated])).instances_deleted
    saw["rest"] = (await client.purge_instance_history_by(LONG_AGO, soon)).instances_deleted
    saw["left"] = ids(await client.get_status_all())
    print(json.dumps(saw))
    await http_utils._close_session()

asyncio.run(main())
