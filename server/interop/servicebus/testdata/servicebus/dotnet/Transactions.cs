using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using System.Transactions;
using Azure.Messaging.ServiceBus;

public static partial class Scenarios
{
    // What is done in a scope that is not completed is rolled back.
    static async Task<string> InScope(bool complete, Func<Task> what)
    {
        try
        {
            using var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled);
            await what();
            if (complete) scope.Complete();
            return "";
        }
        catch (Exception e)
        {
            return e.GetType().Name;
        }
    }

    public static async Task<string> transaction(Bus b)
    {
        await b.Send("tx", "in");
        await using var sender = b.Client.CreateSender("tx");
        await using var receiver = b.Client.CreateReceiver("tx");
        var m = (await Bus.Receive(receiver, 1)).Single();
        var said = "";
        foreach (var complete in new[] { false, true })
        {
            var before = "";
            said += await InScope(complete, async () =>
            {
                await sender.SendMessagesAsync(new[] { new ServiceBusMessage("out1"), new ServiceBusMessage("out2") });
                await sender.ScheduleMessageAsync(new ServiceBusMessage("later"), DateTimeOffset.UtcNow.AddHours(1));
                await receiver.CompleteMessageAsync(m);
                using var outside = new TransactionScope(TransactionScopeOption.Suppress, TransactionScopeAsyncFlowOption.Enabled);
                before = await b.Left("tx");
            });
            said += before + " then " + await b.Left("tx") + " ";
        }
        return said + await Bus.Fails(() => receiver.CompleteMessageAsync(m));
    }

    public static async Task<string> transactionSettles(Bus b)
    {
        await b.Send("txsettle", "abandon", "defer", "dead", "complete");
        await using var receiver = b.Client.CreateReceiver("txsettle");
        var m = await Bus.Receive(receiver, 4);
        var said = await InScope(true, async () =>
        {
            await receiver.AbandonMessageAsync(m[0]);
            await receiver.DeferMessageAsync(m[1]);
            await receiver.DeadLetterMessageAsync(m[2], "broken", "no use");
            await receiver.CompleteMessageAsync(m[3]);
        });
        said += await b.Left("txsettle") + " " + await b.Left("txsettle", SubQueue.DeadLetter);
        var deferred = await receiver.ReceiveDeferredMessageAsync(m[1].SequenceNumber);
        foreach (var complete in new[] { false, true }) said += " " + await InScope(complete, () => receiver.CompleteMessageAsync(deferred)) + await b.Left("txsettle");
        return said + " " + await InScope(true, () => receiver.CompleteMessageAsync(deferred)) + " " + await Bus.Fails(() => receiver.CompleteMessageAsync(deferred));
    }

    // A session's message can be settled after a rollback, and not after a commit.
    public static async Task<string> transactionSession(Bus b)
    {
        await using var sender = b.Client.CreateSender("txsessions");
        await sender.SendMessageAsync(InSession("in", "s"));
        await using var receiver = await b.Client.AcceptSessionAsync("txsessions", "s");
        var m = (await Bus.Receive(receiver, 1)).Single();
        var said = "";
        foreach (var complete in new[] { false, true })
        {
            said += await InScope(complete, async () =>
            {
                await receiver.SetSessionStateAsync(BinaryData.FromString("done"));
                await receiver.CompleteMessageAsync(m);
                await sender.SendMessageAsync(InSession("out", "s"));
            });
            said += $"{await receiver.GetSessionStateAsync() == null} {Bus.Bodies(await receiver.PeekMessagesAsync(10, 0))} ";
        }
        return said + await Bus.Fails(() => receiver.CompleteMessageAsync(m));
    }

    public static async Task<string> crossEntity(Bus b)
    {
        await b.Send("from", "1", "2");
        await using var client = b.New(o => o.EnableCrossEntityTransactions = true);
        await using var receiver = client.CreateReceiver("from");
        await using var queue = client.CreateSender("to");
        await using var topic = client.CreateSender("tx-events");
        var m = await Bus.Receive(receiver, 2);
        var said = "";
        foreach (var complete in new[] { true, false })
        {
            said += await InScope(complete, async () =>
            {
                await receiver.CompleteMessageAsync(m[complete ? 0 : 1]);
                await queue.SendMessageAsync(new ServiceBusMessage("moved"));
                await topic.SendMessageAsync(new ServiceBusMessage("told"));
            });
        }
        return said + $"{await b.Left("from")} {await b.Left("to")} {await b.Left("tx-events/Subscriptions/all")}";
    }
}
