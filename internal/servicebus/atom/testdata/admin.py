"""Drives Microsoft's administration client for Python. Prints "ok" and a name for each check."""
import os
from datetime import datetime, timedelta, timezone

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import (
    AccessRights, AuthorizationRule, CorrelationRuleFilter, FalseRuleFilter, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter, TrueRuleFilter,
)


def client_of(name):
    return ServiceBusAdministrationClient.from_connection_string(os.environ[name], connection_verify=os.environ["CA"], retry_total=0)


client, weak = client_of("CONNECTION"), client_of("WEAK")


def fails(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{call} does not fail")


rule = AuthorizationRule(type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None", rights=[AccessRights.SEND], key_name="k", primary_key="a", secondary_key="b",
                         created_at_utc=datetime(2026, 1, 2, tzinfo=timezone.utc), modified_at_utc=datetime(2026, 1, 2, tzinfo=timezone.utc))
options = dict(
    lock_duration=timedelta(seconds=45), requires_session=True, requires_duplicate_detection=True, duplicate_detection_history_time_window=timedelta(hours=4),
    default_message_time_to_live=timedelta(days=1, hours=2), dead_lettering_on_message_expiration=True, max_delivery_count=7, enable_batched_operations=False,
    user_metadata="hello & <bye>", max_size_in_megabytes=2048, auto_delete_on_idle=timedelta(hours=1), max_message_size_in_kilobytes=512, enable_express=False,
)
made = client.create_queue("py/queue", authorization_rules=[rule], **options)
got = client.get_queue("py/queue")
for q in (made, got):
    for name, value in options.items():
        assert q[name] == value, (name, q[name], value)
    assert q.authorization_rules[0].key_name == "k" and q.authorization_rules[0].rights == ["Send"], q.authorization_rules
    assert q.status == "Active" and q.name == "py/queue"
got.lock_duration, got.status = timedelta(seconds=50), "ReceiveDisabled"
client.update_queue(got)
got = client.get_queue("py/queue")
assert got.lock_duration == timedelta(seconds=50) and got.status == "ReceiveDisabled"
runtime = client.get_queue_runtime_properties("py/queue")
assert runtime.total_message_count == 0 and runtime.active_message_count == 0 and runtime.scheduled_message_count == 0 and runtime.created_at_utc.year >= 2026 and runtime.size_in_bytes == 0, runtime
print("ok queues")

topic = client.create_topic("topic", default_message_time_to_live="PT5M", support_ordering=True)
assert topic.default_message_time_to_live == timedelta(minutes=5)
topic.user_metadata = "u"
client.update_topic(topic)
assert client.get_topic("topic").user_metadata == "u"
client.create_queue("target")
sub = client.create_subscription("topic", "sub", forward_to="target", forward_dead_lettered_messages_to="target", max_delivery_count=3)
assert sub.forward_to.endswith("target") and sub.max_delivery_count == 3, sub
sub.max_delivery_count = 4
client.update_subscription("topic", sub)
assert client.get_subscription("topic", "sub").max_delivery_count == 4
assert client.get_subscription_runtime_properties("topic", "sub").total_message_count == 0
assert client.get_topic_runtime_properties("topic").subscription_count == 1
print("ok topics and subscriptions")

at = datetime(2001, 1, 1, 1, 2, 3, tzinfo=timezone.utc)
parameters = {"@s": "it's", "@i": 7, "@l": 2**40, "@x": 1.5, "@b": True, "@at": at}
made = client.create_rule("topic", "sub", "sql", filter=SqlRuleFilter("a=@s OR b=@i OR c=@l OR d=@x OR e=@b OR f=@at", parameters), action=SqlRuleAction("SET a=@s", {"@s": "x"}))
read = client.get_rule("topic", "sub", "sql")
for r in (made, read):
    assert r.filter.parameters == parameters, r.filter.parameters
    assert r.action.sql_expression == "SET a=@s" and r.action.parameters == {"@s": "x"}, r.action
properties = {"s": "x", "i": 7, "l": -(2**40), "x": 2.5, "b": False, "at": at}
made = client.create_rule("topic", "sub", "correlation", filter=CorrelationRuleFilter(correlation_id="a", label="b", to="c", reply_to="d", reply_to_session_id="e", session_id="f", message_id="g",
                                                                                  content_type="h", properties=properties))
assert made.filter.properties == properties and made.filter.label == "b" and made.filter.content_type == "h", made.filter
assert isinstance(client.create_rule("topic", "sub", "false", filter=FalseRuleFilter()).filter, FalseRuleFilter)
assert isinstance(client.get_rule("topic", "sub", "$Default").filter, TrueRuleFilter)
read.filter = SqlRuleFilter("a=2")
client.update_rule("topic", "sub", read)
assert client.get_rule("topic", "sub", "sql").filter.sql_expression == "a=2"
assert [r.name for r in client.list_rules("topic", "sub")] == ["$Default", "correlation", "false", "sql"]
client.delete_rule("topic", "sub", "sql")
fails(ResourceNotFoundError, "", client.get_rule, "topic", "sub", "sql")
print("ok rules")

for i in range(203):
    client.create_topic(f"list-{i:03}")
names = [t.name for t in client.list_topics()]
assert names == ["crowded"] + [f"list-{i:03}" for i in range(203)] + ["topic"], names
assert [q.name for q in client.list_queues()] == ["py/queue", "target"]
assert [s.name for s in client.list_subscriptions("topic")] == ["sub"]
assert [q.name for q in client.list_queues_runtime_properties()] == ["py/queue", "target"]
print("ok lists by pages")

fails(ResourceExistsError, "SubCode=40900", client.create_queue, "py/queue")
fails(ResourceExistsError, "SubCode=40900", client.create_topic, "topic")
fails(ResourceExistsError, "SubCode=40900", client.create_subscription, "topic", "sub")
fails(ResourceExistsError, "SubCode=40900", client.create_rule, "topic", "sub", "correlation")
fails(ResourceNotFoundError, "", client.get_queue, "missing")
fails(ResourceNotFoundError, "", client.get_topic, "missing")
fails(ResourceNotFoundError, "", client.get_subscription, "missing", "sub")
fails(ResourceNotFoundError, "", client.get_rule, "topic", "sub", "missing")
fails(ResourceNotFoundError, "", client.create_subscription, "missing", "sub")
fails(ResourceNotFoundError, "", client.create_rule, "topic", "missing", "rule")
fails(ResourceNotFoundError, "", client.delete_queue, "missing")
fails(ResourceNotFoundError, "", client.delete_topic, "missing")
fails(ResourceNotFoundError, "", client.delete_subscription, "topic", "missing")
fails(ResourceNotFoundError, "", client.delete_rule, "topic", "sub", "missing")
fails(HttpResponseError, "SubCode=40000", client.create_queue, "wrong", lock_duration="PT1H")
fails(HttpResponseError, "SubCode=40000", client.create_topic, "wrong", user_metadata="x" * 1025)
fails(HttpResponseError, "SubCode=40000", client.create_subscription, "topic", "wrong", lock_duration="PT1H")
fails(HttpResponseError, "SubCode=40000", client.create_rule, "topic", "sub", "bad", filter=SqlRuleFilter("a = ="))
fails(HttpResponseError, "SubCode=40300", client.create_rule, "crowded", "sub", "more")
got.requires_session = False
fails(HttpResponseError, "RequiresSession property of an existing Queue cannot be changed", client.update_queue, got)
fails(ClientAuthenticationError, "Manage,EntityRead claims required", weak.get_queue, "py/queue")
fails(ClientAuthenticationError, "Manage,EntityWrite", weak.create_queue, "x")
fails(ClientAuthenticationError, "Manage,EntityDelete", weak.delete_queue, "py/queue")
print("ok errors")

n = client.get_namespace_properties()
assert n.messaging_sku == "Premium" and n.messaging_units == 1 and n.name == "acme", n
print("ok the namespace")

client.delete_subscription("topic", "sub")
client.delete_topic("topic")
client.delete_queue("py/queue")
fails(ResourceNotFoundError, "", client.get_topic, "topic")
print("ok deletes")
