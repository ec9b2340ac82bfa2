using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using Azure.Core.Amqp;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

public static partial class Scenarios
{
    public static async Task<string> send(Bus b)
    {
        await using var sender = b.Client.CreateSender("plain");
        await sender.SendMessageAsync(new ServiceBusMessage("1"));
        await sender.SendMessagesAsync(new[] { new ServiceBusMessage("2"), new ServiceBusMessage("3") });
        using (var batch = await sender.CreateMessageBatchAsync())
        {
            var fits = batch.TryAddMessage(new ServiceBusMessage("4")) && !batch.TryAddMessage(new ServiceBusMessage(new byte[batch.MaxSizeInBytes]));
            if (!fits) return "the batch takes what it should not";
            await sender.SendMessagesAsync(batch);
        }
        await using var receiver = b.Deleting("plain");
        var said = Bus.Bodies(await Bus.Receive(receiver, 4));
        var never = await sender.ScheduleMessageAsync(new ServiceBusMessage("never"), DateTimeOffset.UtcNow.AddHours(1));
        await sender.ScheduleMessagesAsync(new[] { new ServiceBusMessage("soon"), new ServiceBusMessage("also") }, DateTimeOffset.UtcNow.AddMilliseconds(10));
        said += " " + ((await b.Left("plain")).Contains("never=Scheduled"));
        await sender.CancelScheduledMessageAsync(never);
        said += " " + await Bus.Fails(() => sender.CancelScheduledMessageAsync(never));
        return said + " " + string.Join(",", (await Bus.Receive(receiver, 2)).Select(m => m.Body.ToString()).Order()) + " left=" + await b.Left("plain");
    }

    public static async Task<string> settle(Bus b)
    {
        await b.Send("settle", "complete", "abandon", "defer", "dead");
        await using var receiver = b.Client.CreateReceiver("settle");
        var said = "";
        long deferred = 0;
        var changed = new Dictionary<string, object> { ["changed"] = "yes" };
        foreach (var m in await Bus.Receive(receiver, 4))
        {
            var until = m.LockedUntil;
            await receiver.RenewMessageLockAsync(m);
            said += m.DeliveryCount + (m.LockedUntil > until ? "" : " not renewed");
            switch (m.Body.ToString())
            {
                case "complete": await receiver.CompleteMessageAsync(m); break;
                case "abandon": await receiver.AbandonMessageAsync(m, changed); break;
                case "defer": await receiver.DeferMessageAsync(m, changed); deferred = m.SequenceNumber; break;
                case "dead": await receiver.DeadLetterMessageAsync(m, changed, "broken", "no use"); break;
            }
        }
        var again = (await Bus.Receive(receiver, 1)).Single();
        said += $" {again.Body}:{again.DeliveryCount}:{again.ApplicationProperties["changed"]}";
        await using (var other = b.Client.CreateReceiver("settle")) await other.CompleteMessageAsync(again);

        var one = await receiver.ReceiveDeferredMessageAsync(deferred);
        said += $" {one.Body}:{one.State}:{one.ApplicationProperties["changed"]}";
        await receiver.AbandonMessageAsync(one);
        one = (await receiver.ReceiveDeferredMessagesAsync(new[] { deferred })).Single();
        await receiver.CompleteMessageAsync(one);
        said += ":" + await Bus.Fails(() => receiver.CompleteMessageAsync(one)) + ":" + await Bus.Fails(() => receiver.ReceiveDeferredMessageAsync(deferred));

        await using var dead = b.Deleting("settle", SubQueue.DeadLetter);
        var m1 = (await Bus.Receive(dead, 1)).Single();
        return said + $" {m1.Body}:{m1.DeadLetterReason}:{m1.DeadLetterErrorDescription}:{m1.ApplicationProperties["changed"]} left=" + await b.Left("settle") + await b.Left("settle", SubQueue.DeadLetter);
    }

    // Each type of a property that the SDK takes, and each field of a message.
    public static async Task<string> types(Bus b)
    {
        var at = new DateTime(2026, 2, 3, 4, 5, 6, 789, DateTimeKind.Utc);
        var want = new Dictionary<string, object>
        {
            ["byte"] = (byte)200, ["sbyte"] = (sbyte)-3, ["char"] = 'x', ["short"] = (short)-300, ["ushort"] = (ushort)60000, ["int"] = -5, ["uint"] = 4000000000u,
            ["long"] = long.MinValue, ["ulong"] = ulong.MaxValue, ["float"] = 1.5f, ["double"] = 2.25, ["decimal"] = 1234.5678m, ["bool"] = true,
            ["guid"] = new Guid("0f8fad5b-d9cb-469f-a165-70867728950e"), ["string"] = "grüße", ["DateTime"] = at, ["DateTimeOffset"] = new DateTimeOffset(at),
            ["TimeSpan"] = TimeSpan.FromMilliseconds(1234567), ["Uri"] = new Uri("https://example.com/a?b=c"), ["null"] = null, ["bytes"] = new byte[] { 1, 2, 3 },
        };
        var sent = new ServiceBusMessage(BinaryData.FromBytes(new byte[] { 0, 255 }))
        {
            MessageId = "id", CorrelationId = "c", ContentType = "application/x", Subject = "subject", To = "to", ReplyTo = "reply", ReplyToSessionId = "rs", PartitionKey = "pk", TimeToLive = TimeSpan.FromMinutes(5),
        };
        foreach (var p in want) sent.ApplicationProperties.Add(p.Key, p.Value);
        sent.ApplicationProperties.Add("stream", new MemoryStream(new byte[] { 4, 5 }));
        await using (var sender = b.Client.CreateSender("types")) await sender.SendMessageAsync(sent);
        await using var receiver = b.Deleting("types");
        var m = (await Bus.Receive(receiver, 1)).Single();
        var said = $"{m.MessageId} {m.CorrelationId} {m.ContentType} {m.Subject} {m.To} {m.ReplyTo} {m.ReplyToSessionId} {m.PartitionKey} {m.TimeToLive} {BitConverter.ToString(m.Body.ToArray())} {m.DeliveryCount}";
        said += $" {m.SequenceNumber > 0 && m.EnqueuedTime > DateTimeOffset.UtcNow.AddHours(-1) && m.ExpiresAt > m.EnqueuedTime} {m.ApplicationProperties.Count}";
        foreach (var p in want.Append(new KeyValuePair<string, object>("stream", new byte[] { 4, 5 })))
        {
            var got = m.ApplicationProperties[p.Key];
            var same = p.Value is byte[] bytes ? got is byte[] read && bytes.SequenceEqual(read) : Equals(got, p.Value);
            if (!same) said += $" {p.Key} is {got?.GetType().Name} {got}";
        }
        return said;
    }

    // What only the AMQP message has: other bodies, and all sections.
    public static async Task<string> bodies(Bus b)
    {
        var value = new ServiceBusMessage();
        var raw = value.GetRawAmqpMessage();
        raw.Body = AmqpMessageBody.FromValue(new Dictionary<string, object> { ["a"] = 1, ["b"] = new List<object> { "x", 2L } });
        (raw.Header.Priority, raw.Header.Durable) = (7, true);
        (raw.Properties.GroupSequence, raw.Properties.ContentEncoding, raw.Properties.UserId) = (3, "gzip", new byte[] { 9 });
        raw.Properties.CreationTime = new DateTimeOffset(2026, 1, 1, 0, 0, 0, TimeSpan.Zero);
        raw.MessageAnnotations["x-mine"] = "annotation";
        raw.Footer["x-foot"] = true;
        var sequence = new ServiceBusMessage();
        sequence.GetRawAmqpMessage().Body = AmqpMessageBody.FromSequence(new IList<object>[] { new List<object> { "a", 1 }, new List<object> { true } });
        var data = new ServiceBusMessage();
        data.GetRawAmqpMessage().Body = AmqpMessageBody.FromData(new[] { new ReadOnlyMemory<byte>(new byte[] { 1 }), new ReadOnlyMemory<byte>(new byte[] { 2, 3 }) });
        await using (var sender = b.Client.CreateSender("bodies")) await sender.SendMessagesAsync(new[] { value, sequence, data });

        await using var receiver = b.Deleting("bodies");
        var got = (await Bus.Receive(receiver, 3)).Select(m => m.GetRawAmqpMessage()).ToList();
        got[0].Body.TryGetValue(out var body);
        var map = (IDictionary<string, object>)body;
        var (h, p) = (got[0].Header, got[0].Properties);
        var said = $"{map["a"]}:{map["a"].GetType().Name} {string.Join(";", (IEnumerable<object>)map["b"])}";
        said += $" {h.Priority} {h.Durable} {p.GroupSequence} {p.ContentEncoding} {BitConverter.ToString(p.UserId.Value.ToArray())} {p.CreationTime:yyyy} {got[0].MessageAnnotations["x-mine"]} {got[0].Footer["x-foot"]}";
        got[1].Body.TryGetSequence(out var lists);
        got[2].Body.TryGetData(out var parts);
        return said + " " + string.Join("|", lists.Select(l => string.Join(";", l))) + " " + string.Join("|", parts.Select(d => BitConverter.ToString(d.ToArray())));
    }

    public static async Task<string> peek(Bus b)
    {
        await b.Send("peek", "1", "2", "3");
        await using var receiver = b.Client.CreateReceiver("peek");
        var first = await receiver.PeekMessageAsync();
        var said = $"{first.Body} {Bus.Bodies(await receiver.PeekMessagesAsync(10))} {await receiver.PeekMessageAsync() == null} {(await receiver.PeekMessageAsync(first.SequenceNumber + 1)).Body} ";
        await foreach (var m in receiver.ReceiveMessagesAsync())
        {
            said += m.Body;
            await receiver.CompleteMessageAsync(m);
            if (m.Body.ToString() == "3") break;
        }
        said += $" {await receiver.ReceiveMessageAsync(TimeSpan.FromMilliseconds(50)) == null} {(await receiver.ReceiveMessagesAsync(5, TimeSpan.FromMilliseconds(50))).Count}";
        using (var stop = new CancellationTokenSource(50)) said += " " + await Bus.Fails(() => receiver.ReceiveMessageAsync(cancellationToken: stop.Token));
        await b.Send("peek", "after");
        return said + " " + Bus.Bodies(await Bus.Receive(receiver, 1));
    }

    // Stops the processor while it waits, and sees what the callback threw.
    public static async Task<string> processor(Bus b)
    {
        await b.Send("work", "1", "2", "3", "fails", "4");
        var (seen, errors, all) = (new List<string>(), new List<string>(), new TaskCompletionSource());
        await using var processor = b.Client.CreateProcessor("work", new ServiceBusProcessorOptions { MaxConcurrentCalls = 2, PrefetchCount = 3 });
        processor.ProcessMessageAsync += args =>
        {
            lock (seen)
            {
                seen.Add(args.Message.Body.ToString());
                if (seen.Count == 6) all.SetResult();
            }
            return args.Message.Body.ToString() == "fails" && args.Message.DeliveryCount == 1 ? throw new InvalidOperationException() : Task.CompletedTask;
        };
        processor.ProcessErrorAsync += args =>
        {
            lock (errors) errors.Add(args.ErrorSource + ":" + args.Exception.GetType().Name);
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await all.Task;
        await processor.StopProcessingAsync();
        return string.Join(",", seen.Order()) + " " + string.Join(",", errors) + " left=" + await b.Left("work");
    }

    // The SDK has these methods, and does not show them yet.
    public static async Task<string> purge(Bus b)
    {
        await b.Send("purge", "1", "2", "3", "4", "5");
        await using var receiver = b.Client.CreateReceiver("purge");
        Task<int> hidden(string name, params object[] args) => (Task<int>)typeof(ServiceBusReceiver).GetMethod(name, BindingFlags.Instance | BindingFlags.NonPublic).Invoke(receiver, args);
        var before = (DateTimeOffset?)DateTimeOffset.UtcNow.AddMinutes(1);
        var deleted = await hidden("DeleteMessagesAsync", 2, before, CancellationToken.None);
        return deleted + " " + await hidden("PurgeMessagesAsync", before, CancellationToken.None) + " left=" + await b.Left("purge");
    }

    public static async Task<string> errors(Bus b)
    {
        async Task<string> sends(string entity, params ServiceBusMessage[] messages)
        {
            await using var sender = b.Client.CreateSender(entity);
            return await Bus.Fails(() => sender.SendMessagesAsync(messages));
        }
        async Task<string> receives(ServiceBusReceiver receiver, Func<ServiceBusReceiver, Task> what = null)
        {
            await using var r = receiver;
            return await Bus.Fails(() => what == null ? r.ReceiveMessageAsync() : what(r));
        }
        var x = new ServiceBusMessage("x");
        var said = $"missing: {await sends("missing", x)}, {await receives(b.Client.CreateReceiver("missing"))}, {await receives(b.Client.CreateReceiver("missing"), r => r.PeekMessageAsync())}, {await receives(b.Client.CreateReceiver("events", "missing"))};";
        said += $" disabled: {await sends("closed", x)}, {await receives(b.Client.CreateReceiver("closed"))};";
        said += $" large: {await sends("errors", new ServiceBusMessage(new byte[2 << 20]))}, {await sends("errors", new ServiceBusMessage(new byte[1 << 20]), new ServiceBusMessage(new byte[1 << 19]))};";
        said += $" sessions: {await sends("sessions", x)}, {await receives(b.Client.CreateReceiver("sessions"))}, {await Bus.Fails(() => b.Client.AcceptSessionAsync("errors", "s"))};";
        return said + $" never: {await sends("errors/$deadletterqueue", x)}, {await receives(b.Client.CreateReceiver("events"))}";
    }

    public static async Task<string> lockLost(Bus b)
    {
        await b.Send("short", "x");
        await using var receiver = b.Client.CreateReceiver("short");
        await using var other = b.Client.CreateReceiver("short");
        var m = (await Bus.Receive(receiver, 1)).Single();
        var said = (await Bus.Receive(other, 1)).Single().DeliveryCount.ToString();
        foreach (var settle in new Func<Task>[] { () => receiver.CompleteMessageAsync(m), () => receiver.AbandonMessageAsync(m), () => receiver.DeferMessageAsync(m), () => receiver.DeadLetterMessageAsync(m), () => receiver.RenewMessageLockAsync(m) })
        {
            said += " " + await Bus.Fails(settle);
        }
        return said;
    }

    // The SDK would try again.
    public static async Task<string> wrongKey(Bus b)
    {
        await using var client = b.New(o => o.RetryOptions = new ServiceBusRetryOptions { MaxRetries = 0 }, b.WrongKey);
        await using var sender = client.CreateSender("plain");
        await using var receiver = client.CreateReceiver("plain");
        return await Bus.Fails(() => sender.SendMessageAsync(new ServiceBusMessage("x"))) + " " + await Bus.Fails(() => receiver.ReceiveMessageAsync()) + " " + await Bus.Fails(() => receiver.PeekMessageAsync())
            + " " + await Bus.Fails(() => new ServiceBusAdministrationClient(b.WrongKey).GetQueueAsync("plain"));
    }
}
