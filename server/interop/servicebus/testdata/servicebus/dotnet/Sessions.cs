using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

public static partial class Scenarios
{
    static ServiceBusMessage InSession(string body, string session) => new ServiceBusMessage(body) { SessionId = session };

    public static async Task<string> sessions(Bus b)
    {
        await using var sender = b.Client.CreateSender("sessions");
        await sender.SendMessagesAsync(new[] { InSession("a1", "a"), InSession("b1", "b"), InSession("a2", "a") });
        var said = "";
        await using (var a = await b.Client.AcceptSessionAsync("sessions", "a"))
        {
            var got = await Bus.Receive(a, 2);
            said += $"{Bus.Bodies(got)} {await a.GetSessionStateAsync() == null}";
            await a.CompleteMessageAsync(got[0]);
            await a.AbandonMessageAsync(got[1]);
            await a.SetSessionStateAsync(BinaryData.FromString("half"));
            var until = a.SessionLockedUntil;
            await a.RenewSessionLockAsync();
            said += $" {await a.GetSessionStateAsync()} {a.SessionLockedUntil > until} {await Bus.Fails(() => b.Client.AcceptSessionAsync("sessions", "a"))}";

            await using var next = await b.Client.AcceptNextSessionAsync("sessions");
            var m = await next.ReceiveMessageAsync();
            said += $" {next.SessionId}:{m.Body}:{m.SessionId}";
            await next.DeferMessageAsync(m);
            await next.DeadLetterMessageAsync(await next.ReceiveDeferredMessageAsync(m.SequenceNumber), "broken", "no use");
            said += ":" + (await next.PeekMessageAsync() == null);

            m = (await Bus.Receive(a, 1)).Single();
            said += $" {m.Body}:{m.DeliveryCount}";
            await a.CompleteMessageAsync(m);
            await a.SetSessionStateAsync(null);
            said += ":" + (await a.GetSessionStateAsync() == null);
        }
        await using var dead = b.Deleting("sessions", SubQueue.DeadLetter);
        var corpse = (await Bus.Receive(dead, 1)).Single();
        await using var hasty = b.New(o => o.RetryOptions = new ServiceBusRetryOptions { TryTimeout = TimeSpan.FromSeconds(2), MaxRetries = 0 });
        return said + $" {corpse.Body}:{corpse.SessionId}:{corpse.DeadLetterReason} {await Bus.Fails(() => hasty.AcceptNextSessionAsync("sessions"))}";
    }

    // Another takes the session when its lock has ended. It has a connection of its own, for those
    // of one share their sessions.
    public static async Task<string> sessionLost(Bus b)
    {
        await using var receiver = await b.Client.AcceptSessionAsync("shortsessions", "s");
        await using (var sender = b.Client.CreateSender("shortsessions")) await sender.SendMessageAsync(InSession("x", "s"));
        await using var client = b.New();
        await using var other = await client.AcceptNextSessionAsync("shortsessions");
        var said = other.SessionId;
        foreach (var use in new Func<Task>[] { () => receiver.RenewSessionLockAsync(), () => receiver.SetSessionStateAsync(null), () => receiver.GetSessionStateAsync() })
        {
            said += " " + await Bus.Fails(use);
        }
        return said;
    }

    public static async Task<string> sessionProcessor(Bus b)
    {
        await using (var sender = b.Client.CreateSender("sessionwork")) await sender.SendMessagesAsync(Enumerable.Range(0, 9).Select(i => InSession(i.ToString(), "s" + i % 3)));
        var (seen, errors, all) = (new List<string>(), new List<string>(), new TaskCompletionSource());
        await using var processor = b.Client.CreateSessionProcessor("sessionwork", new ServiceBusSessionProcessorOptions { MaxConcurrentSessions = 2, SessionIdleTimeout = TimeSpan.FromMilliseconds(100), AutoCompleteMessages = false });
        processor.SessionInitializingAsync += args => args.SetSessionStateAsync(BinaryData.FromString("begun"));
        processor.ProcessMessageAsync += async args =>
        {
            var state = await args.GetSessionStateAsync();
            await args.RenewSessionLockAsync();
            await args.CompleteMessageAsync(args.Message);
            lock (seen)
            {
                seen.Add($"{args.SessionId}:{args.Message.Body}:{state}");
                if (seen.Count == 9) all.SetResult();
            }
        };
        processor.ProcessErrorAsync += args =>
        {
            lock (errors) errors.Add(args.ErrorSource + ":" + args.Exception.Message);
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await all.Task;
        await processor.StopProcessingAsync();
        // Those of a session are in order.
        return string.Join(" ", seen.GroupBy(s => s.Split(':')[0]).OrderBy(g => g.Key).Select(g => string.Join(",", g))) + " " + string.Join(",", errors) + "left=" + await b.Left("sessionwork");
    }
}
