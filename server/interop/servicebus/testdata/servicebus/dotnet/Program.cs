using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

// Does scenarios with the SDK, each on entities of its own, and prints a line for each: what it
// saw. The arguments are those of runs: a connection string, where to connect to if that says
// otherwise, and the scenarios.
public static class Program
{
    public static async Task Main(string[] args)
    {
        var runs = new List<Task<string[]>>();
        for (var i = 0; i < args.Length; i += 3) runs.Add(Run(args[i], args[i + 1], args[i + 2].Split(',')));
        foreach (var run in runs)
        {
            foreach (var line in await run) Console.WriteLine(line);
        }
        Console.Out.Flush();
    }

    static async Task<string[]> Run(string connection, string at, string[] names)
    {
        await using var bus = new Bus(connection, at);
        return await Task.WhenAll(names.Select(name => Task.Run(async () => name + ": " + await Said(bus, name))));
    }

    static async Task<string> Said(Bus bus, string name)
    {
        try
        {
            return await (Task<string>)typeof(Scenarios).GetMethod(name).Invoke(null, new object[] { bus });
        }
        catch (Exception e)
        {
            return "failed: " + e.ToString().Replace("\n", " | ");
        }
    }
}

// A namespace, and what scenarios do with it again and again.
public sealed class Bus : IAsyncDisposable
{
    public readonly string Connection;
    public readonly ServiceBusClient Client;
    readonly Uri at;

    public Bus(string connection, string at)
    {
        Connection = connection;
        this.at = at == "" ? null : new Uri(at);
        Client = New();
    }

    public ServiceBusClient New(Action<ServiceBusClientOptions> change = null, string connection = null)
    {
        var options = new ServiceBusClientOptions { CustomEndpointAddress = at };
        if (at?.Scheme == "wss") options.TransportType = ServiceBusTransportType.AmqpWebSockets;
        change?.Invoke(options);
        return new ServiceBusClient(connection ?? Connection, options);
    }

    public ServiceBusAdministrationClient Administration => new ServiceBusAdministrationClient(Connection);

    // The connection string with a key that is none.
    public string WrongKey => string.Join(";", Connection.Split(';').Select(part => part.StartsWith("SharedAccessKey=") ? "SharedAccessKey=wrong" : part));

    public ValueTask DisposeAsync() => Client.DisposeAsync();

    public async Task Send(string entity, params string[] bodies)
    {
        await using var sender = Client.CreateSender(entity);
        await sender.SendMessagesAsync(bodies.Select(body => new ServiceBusMessage(body)));
    }

    public ServiceBusReceiver Deleting(string entity, SubQueue sub = SubQueue.None) =>
        Client.CreateReceiver(entity, new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete, SubQueue = sub });

    // What is in an entity, by body.
    public async Task<string> Left(string entity, SubQueue sub = SubQueue.None)
    {
        await using var receiver = Client.CreateReceiver(entity, new ServiceBusReceiverOptions { SubQueue = sub });
        return string.Join(",", (await receiver.PeekMessagesAsync(100, 0)).Select(m => m.Body + "=" + m.State).Order());
    }

    // Receives n messages, however many calls that takes.
    public static async Task<List<ServiceBusReceivedMessage>> Receive(ServiceBusReceiver receiver, int n)
    {
        var got = new List<ServiceBusReceivedMessage>();
        while (got.Count < n) got.AddRange(await receiver.ReceiveMessagesAsync(n - got.Count));
        return got;
    }

    public static string Bodies(IEnumerable<ServiceBusReceivedMessage> messages) => string.Join(",", messages.Select(m => m.Body.ToString()));

    // The reason of a failure, or the name of its exception.
    public static async Task<string> Fails(Func<Task> what)
    {
        try
        {
            await what();
            return "none";
        }
        catch (ServiceBusException e)
        {
            return e.Reason + (e.IsTransient ? " transient" : "");
        }
        catch (Exception e)
        {
            return e.GetType().Name;
        }
    }
}
