using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

public static partial class Scenarios
{
    public static async Task<string> rules(Bus b)
    {
        await using var manager = b.Client.CreateRuleManager("events", "all");
        await manager.DeleteRuleAsync("$Default");
        await manager.CreateRuleAsync(new CreateRuleOptions("red", new SqlRuleFilter("color = 'red' AND n > 3")) { Action = new SqlRuleAction("SET tagged = 1; SET sys.Label = 'marked'") });
        await manager.CreateRuleAsync("go", new CorrelationRuleFilter { Subject = "go", CorrelationId = "c", ApplicationProperties = { ["k"] = 5 } });
        var found = new List<string>();
        await foreach (var rule in manager.GetRulesAsync()) found.Add($"{rule.Name}={rule.Filter}/{rule.Action}");
        var said = string.Join("; ", found.Order());
        said += $" {await Bus.Fails(() => manager.CreateRuleAsync("red", new TrueRuleFilter()))} {await Bus.Fails(() => manager.DeleteRuleAsync("missing"))} {await Bus.Fails(() => manager.CreateRuleAsync("bad", new SqlRuleFilter("a = = b")))}";
        await using var sender = b.Client.CreateSender("events");
        await sender.SendMessagesAsync(new[]
        {
            new ServiceBusMessage("red") { ApplicationProperties = { ["color"] = "red", ["n"] = 4 } }, new ServiceBusMessage("paler") { ApplicationProperties = { ["color"] = "red", ["n"] = 3 } },
            new ServiceBusMessage("go") { Subject = "go", CorrelationId = "c", ApplicationProperties = { ["k"] = 5 } }, new ServiceBusMessage("stay") { Subject = "go" },
        });
        await using var receiver = b.Client.CreateReceiver("events", "all");
        foreach (var m in await Bus.Receive(receiver, 2))
        {
            said += $" {m.Body}:{m.Subject}:{m.ApplicationProperties.GetValueOrDefault("tagged")}";
            await receiver.CompleteMessageAsync(m);
        }
        return said + " left=" + await b.Left("events/Subscriptions/all");
    }

    public static async Task<string> manage(Bus b)
    {
        var admin = b.Administration;
        QueueProperties queue = await admin.CreateQueueAsync(new CreateQueueOptions("made")
        {
            LockDuration = TimeSpan.FromSeconds(45), MaxDeliveryCount = 7, DeadLetteringOnMessageExpiration = true, DefaultMessageTimeToLive = TimeSpan.FromDays(2), UserMetadata = "a & <b>",
            RequiresDuplicateDetection = true, DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(3), AutoDeleteOnIdle = TimeSpan.FromDays(30), ForwardDeadLetteredMessagesTo = "plain",
        });
        var said = $"{queue.Name} {queue.LockDuration} {queue.MaxDeliveryCount} {queue.DeadLetteringOnMessageExpiration} {queue.DefaultMessageTimeToLive} {queue.UserMetadata}";
        said += $" {queue.RequiresDuplicateDetection} {queue.DuplicateDetectionHistoryTimeWindow} {queue.AutoDeleteOnIdle} {new Uri(queue.ForwardDeadLetteredMessagesTo).AbsolutePath} {queue.Status}";
        (queue.MaxDeliveryCount, queue.Status) = (9, EntityStatus.SendDisabled);
        queue = await admin.UpdateQueueAsync(queue);
        said += $" {queue.MaxDeliveryCount} {queue.Status} {queue.Equals((await admin.GetQueueAsync("made")).Value)}";
        QueueRuntimeProperties runtime = await admin.GetQueueRuntimePropertiesAsync("made");
        said += $" {runtime.TotalMessageCount} {runtime.ActiveMessageCount} {runtime.CreatedAt > DateTimeOffset.UtcNow.AddHours(-1)};";

        TopicProperties topic = await admin.CreateTopicAsync(new CreateTopicOptions("made-topic") { UserMetadata = "m" });
        topic.UserMetadata = "n";
        topic = await admin.UpdateTopicAsync(topic);
        SubscriptionProperties all = await admin.CreateSubscriptionAsync(new CreateSubscriptionOptions("made-topic", "all") { LockDuration = TimeSpan.FromSeconds(33) }, new CreateRuleOptions("first", new SqlRuleFilter("x = 1")));
        all.MaxDeliveryCount = 4;
        all = await admin.UpdateSubscriptionAsync(all);
        said += $" {topic.Name} {topic.UserMetadata} {all.SubscriptionName} {all.LockDuration} {all.MaxDeliveryCount}";
        RuleProperties rule = await admin.CreateRuleAsync("made-topic", "all", new CreateRuleOptions("second", new CorrelationRuleFilter
        {
            Subject = "s", ApplicationProperties = { ["int"] = 1, ["long"] = 1L << 40, ["time"] = new DateTime(2026, 1, 2, 3, 4, 5, DateTimeKind.Utc), ["double"] = 1.5, ["bool"] = true, ["string"] = "<&>" },
        }) { Action = new SqlRuleAction("SET y = 2") });
        said += $" {rule.Name} {string.Join(",", ((CorrelationRuleFilter)rule.Filter).ApplicationProperties.OrderBy(p => p.Key).Select(p => p.Key + "=" + p.Value + ":" + p.Value.GetType().Name))} {rule.Action}";
        rule.Filter = new SqlRuleFilter("x = @p") { Parameters = { ["@p"] = 7 } };
        rule = await admin.UpdateRuleAsync("made-topic", "all", rule);
        said += $" {rule.Filter} {((SqlRuleFilter)rule.Filter).Parameters["@p"]};";

        var names = new List<string>();
        await foreach (var x in admin.GetQueuesAsync()) names.Add(x.Name);
        await foreach (var x in admin.GetQueuesRuntimePropertiesAsync()) names.Add(x.Name + x.TotalMessageCount);
        await foreach (var x in admin.GetTopicsAsync()) names.Add(x.Name);
        await foreach (var x in admin.GetTopicsRuntimePropertiesAsync()) names.Add(x.Name + x.SubscriptionCount);
        names.RemoveAll(name => !name.StartsWith("made"));
        await foreach (var x in admin.GetSubscriptionsAsync("made-topic")) names.Add(x.SubscriptionName);
        await foreach (var x in admin.GetSubscriptionsRuntimePropertiesAsync("made-topic")) names.Add(x.SubscriptionName + x.TotalMessageCount);
        await foreach (var x in admin.GetRulesAsync("made-topic", "all")) names.Add(x.Name);
        said += " " + string.Join(",", names) + " " + (await admin.GetNamespacePropertiesAsync()).Value.MessagingSku;

        async Task<string> exist() => string.Join(",", new[] { await admin.QueueExistsAsync("made"), await admin.TopicExistsAsync("made-topic"), await admin.SubscriptionExistsAsync("made-topic", "all"), await admin.RuleExistsAsync("made-topic", "all", "first") }.Select(r => r.Value));
        said += "; " + await exist();
        await admin.DeleteRuleAsync("made-topic", "all", "first");
        said += " " + await exist();
        await admin.DeleteSubscriptionAsync("made-topic", "all");
        await admin.DeleteTopicAsync("made-topic");
        await admin.DeleteQueueAsync("made");
        return said + " " + await exist();
    }

    public static async Task<string> manageErrors(Bus b)
    {
        var admin = b.Administration;
        QueueProperties queue = await admin.CreateQueueAsync("gone");
        await admin.DeleteQueueAsync("gone");
        var tries = new Func<Task>[][]
        {
            new Func<Task>[] { () => admin.CreateQueueAsync("errors"), () => admin.CreateTopicAsync("errors"), () => admin.CreateSubscriptionAsync("tx-events", "all"), () => admin.CreateRuleAsync("tx-events", "all", new CreateRuleOptions("$Default", new TrueRuleFilter())) },
            new Func<Task>[] { () => admin.GetQueueAsync("gone"), () => admin.GetTopicAsync("gone"), () => admin.GetTopicAsync("errors"), () => admin.GetSubscriptionAsync("tx-events", "gone"), () => admin.GetRuleAsync("tx-events", "all", "gone"),
                () => admin.GetQueueRuntimePropertiesAsync("gone"), () => admin.DeleteQueueAsync("gone"), () => admin.UpdateQueueAsync(queue), () => admin.CreateSubscriptionAsync("gone", "all") },
            new Func<Task>[] { () => admin.CreateRuleAsync("tx-events", "all", new CreateRuleOptions("bad", new SqlRuleFilter("a = = b"))), () => admin.CreateQueueAsync(new CreateQueueOptions("made-badly") { ForwardTo = "gone" }) },
        };
        var said = new List<string>();
        foreach (var alike in tries)
        {
            var reasons = new List<string>();
            foreach (var one in alike) reasons.Add(await Bus.Fails(one));
            said.Add(string.Join(",", reasons.Distinct()));
        }
        return string.Join(" ", said);
    }
}
