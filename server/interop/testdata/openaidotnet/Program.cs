#pragma warning disable OPENAI001
using System;
using System.ClientModel;
using System.ClientModel.Primitives;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure;
using Azure.AI.Inference;
using Azure.AI.OpenAI;
using Azure.Core;
using OpenAI;
using OpenAI.Batch;
using OpenAI.Chat;
using OpenAI.Embeddings;
using OpenAI.Files;

// What a program does with OpenAI's and Azure's SDKs for .NET. Each check prints its name once it holds.
public static class Program
{
    static readonly string address = Environment.GetEnvironmentVariable("BASE_URL"), key = Environment.GetEnvironmentVariable("API_KEY");
    static readonly string direct = Environment.GetEnvironmentVariable("SERVER_URL");
    static readonly OpenAIClient client = Client(key, address);
    static readonly ChatClient chatting = client.GetChatClient("chat");
    const string greeting = "Hi there, what can I do for you today?";
    static readonly float[] vector = { 0.25f, -0.5f, 0.125f, 1.5f };

    public static async Task Main(string[] args)
    {
        foreach (var check in new Func<Task>[] { Models, Chat, Stream, Tools, Structured, Images, Embeddings, Errors, TooLarge, Cancel, Files, Batches, AzureOpenAI, Inference })
        {
            await check();
            Console.WriteLine("ok " + check.Method.Name);
            Console.Out.Flush();
        }
    }

    static OpenAIClient Client(string key, string address) =>
        new OpenAIClient(new ApiKeyCredential(key), new OpenAIClientOptions { Endpoint = new Uri(address + "/v1"), RetryPolicy = new ClientRetryPolicy(0) });

    static void Equal<T>(T got, T want)
    {
        if (!Equals(got, want)) throw new Exception($"got {got} instead of {want}");
    }

    static async Task<E> Raises<E>(Func<Task> call) where E : Exception
    {
        try
        {
            await call();
        }
        catch (E e)
        {
            return e;
        }
        throw new Exception("no " + typeof(E).Name);
    }

    static async Task Refused(Func<Task> call, int status, string code)
    {
        var e = await Raises<ClientResultException>(call);
        Equal(e.Status, status);
        if (!e.Message.Contains(": " + code + ")")) throw new Exception(e.Message);
    }

    static async Task<(string Text, ChatTokenUsage Usage)> Streamed(ChatClient chat, string text, CancellationToken cancel = default)
    {
        var said = "";
        ChatTokenUsage usage = null;
        await foreach (var update in chat.CompleteChatStreamingAsync(new[] { new UserChatMessage(text) }, cancellationToken: cancel))
        {
            said += string.Concat(update.ContentUpdate.Select(part => part.Text));
            usage = update.Usage ?? usage;
        }
        return (said, usage);
    }

    static async Task Models()
    {
        var models = client.GetOpenAIModelClient();
        Equal(string.Join(",", (await models.GetModelsAsync()).Value.Select(model => model.Id)), "chat,embedding");
        Equal((await models.GetModelAsync("chat")).Value.Id, "chat");
        await Refused(() => models.GetModelAsync("a/b"), 404, "model_not_found");
    }

    static async Task Chat()
    {
        var done = (await chatting.CompleteChatAsync(new[] { new UserChatMessage("hello") }, new ChatCompletionOptions { Seed = 7, MaxOutputTokenCount = 100 })).Value;
        Equal(done.Content[0].Text, greeting);
        Equal(done.FinishReason, ChatFinishReason.Stop);
        Equal(done.Usage.TotalTokenCount > 0, true);
        Equal(chatting.CompleteChat("hello").Value.Content[0].Text, greeting);
        var many = await Task.WhenAll(Enumerable.Range(0, 50).Select(_ => chatting.CompleteChatAsync("hello")));
        Equal(many.All(one => one.Value.Content[0].Text == greeting), true);
    }

    static async Task Stream()
    {
        var (said, usage) = await Streamed(chatting, "hello");
        Equal(said, greeting);
        Equal(usage.TotalTokenCount > 0, true);
    }

    static async Task Tools()
    {
        var options = new ChatCompletionOptions { Tools = { ChatTool.CreateFunctionTool("get_weather", "the weather", BinaryData.FromString("{\"type\":\"object\",\"properties\":{}}")) } };
        var messages = new List<OpenAI.Chat.ChatMessage> { new UserChatMessage("umbrella") };
        var asked = (await chatting.CompleteChatAsync(messages, options)).Value;
        Equal(asked.FinishReason, ChatFinishReason.ToolCalls);
        Equal(asked.ToolCalls[0].FunctionName, "get_weather");
        Equal(JsonDocument.Parse(asked.ToolCalls[0].FunctionArguments).RootElement.GetProperty("city").GetString(), "Oslo");
        messages.Add(new AssistantChatMessage(asked));
        messages.Add(new ToolChatMessage(asked.ToolCalls[0].Id, "rain"));
        Equal((await chatting.CompleteChatAsync(messages, options)).Value.Content[0].Text, "Take one.");

        var (name, arguments) = ("", "");
        await foreach (var update in chatting.CompleteChatStreamingAsync(new[] { new UserChatMessage("weather") }, options))
        {
            foreach (var part in update.ToolCallUpdates)
            {
                name += part.FunctionName;
                arguments += part.FunctionArgumentsUpdate;
            }
        }
        Equal(name, "get_weather");
        Equal(JsonDocument.Parse(arguments).RootElement.GetProperty("city").GetString(), "Oslo");
    }

    static async Task Structured()
    {
        var schema = BinaryData.FromString("{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}");
        var options = new ChatCompletionOptions { ResponseFormat = ChatResponseFormat.CreateJsonSchemaFormat("person", schema, jsonSchemaIsStrict: true) };
        var done = (await chatting.CompleteChatAsync(new[] { new UserChatMessage("person") }, options)).Value;
        Equal(JsonDocument.Parse(done.Content[0].Text).RootElement.GetProperty("age").GetInt32(), 36);
    }

    static async Task Images()
    {
        var message = new UserChatMessage(
            ChatMessageContentPart.CreateTextPart("image"),
            ChatMessageContentPart.CreateImagePart(BinaryData.FromBytes(new byte[] { 1, 2, 3 }), "image/png", "low"));
        Equal((await chatting.CompleteChatAsync(message)).Value.Content[0].Text, "A red square.");
    }

    static async Task Embeddings()
    {
        var embedding = client.GetEmbeddingClient("embedding");
        Equal((await embedding.GenerateEmbeddingAsync("vector")).Value.ToFloats().ToArray().SequenceEqual(vector), true);
        var several = (await embedding.GenerateEmbeddingsAsync(new[] { "vector", "vector" })).Value;
        Equal(several[1].Index, 1);
        Equal(several[1].ToFloats().ToArray().SequenceEqual(vector), true);
    }

    static async Task Errors()
    {
        await Refused(() => chatting.CompleteChatAsync("forbidden"), 400, "content_policy_violation");
        await Refused(() => client.GetChatClient("none").CompleteChatAsync("hello"), 404, "model_not_found");
        await Refused(() => Streamed(client.GetChatClient("none"), "hello"), 404, "model_not_found");
        await Refused(() => Client("sk-wrong", address).GetChatClient("chat").CompleteChatAsync("hello"), 401, "invalid_api_key");
        // What is not served is told as an error, too.
        Equal((await Raises<ClientResultException>(() => client.GetAudioClient("chat").GenerateSpeechAsync("hello", OpenAI.Audio.GeneratedSpeechVoice.Alloy))).Status, 404);
        Equal((await Raises<ClientResultException>(() => client.GetImageClient("chat").GenerateImageAsync("hello"))).Status, 404);
    }

    // The SDK reads no answer before it has sent everything.
    static async Task TooLarge() =>
        await Refused(() => Client(key, direct).GetChatClient("chat").CompleteChatAsync(new string('x', 32 << 20)), 413, "payload_too_large");

    static async Task Cancel()
    {
        using var leaves = new CancellationTokenSource();
        var (read, cancelled) = ("", false);
        try
        {
            await foreach (var update in chatting.CompleteChatStreamingAsync(new[] { new UserChatMessage("long") }, cancellationToken: leaves.Token))
            {
                read += string.Concat(update.ContentUpdate.Select(part => part.Text));
                if (read != "") leaves.Cancel();
            }
        }
        catch (OperationCanceledException)
        {
            cancelled = true;
        }
        Equal(cancelled, true);
    }

    static async Task Files()
    {
        var files = client.GetOpenAIFileClient();
        var content = new byte[] { 0xef, 0xbb, 0xbf, (byte)'{', (byte)'}', 13, 10, 0, 0xff };
        var made = (await files.UploadFileAsync(BinaryData.FromBytes(content), "línes.jsonl", FileUploadPurpose.Batch)).Value;
        Equal((made.Filename, made.SizeInBytes, made.Purpose, made.Status), ("línes.jsonl", content.Length, FilePurpose.Batch, FileStatus.Processed));
        await files.UploadFileAsync(new MemoryStream(content), "other", FileUploadPurpose.Assistants);
        Equal((await files.DownloadFileAsync(made.Id)).Value.ToArray().SequenceEqual(content), true);
        Equal((await files.GetFileAsync(made.Id)).Value.Id, made.Id);
        Equal((await files.GetFilesAsync(FilePurpose.Batch)).Value.Single().Id, made.Id);
        var all = (await files.GetFilesAsync()).Value;
        Equal(all.Count, 2);
        foreach (var file in all) Equal((await files.DeleteFileAsync(file.Id)).Value.Deleted, true);
        Equal((await Raises<ClientResultException>(() => files.GetFileAsync(made.Id))).Status, 404);
        await Refused(() => files.UploadFileAsync(BinaryData.FromString("x"), "x", new FileUploadPurpose("nonsense")), 400, "invalid_request");
    }

    static async Task Batches()
    {
        var files = client.GetOpenAIFileClient();
        var line = "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}}";
        var input = (await files.UploadFileAsync(BinaryData.FromString(line), "l.jsonl", FileUploadPurpose.Batch)).Value;
        var request = BinaryContent.Create(BinaryData.FromObjectAsJson(new { input_file_id = input.Id, endpoint = "/v1/chat/completions", completion_window = "24h" }));
        var batches = client.GetBatchClient();
        var batch = await batches.CreateBatchAsync(request, waitUntilCompleted: false);
        await batch.WaitForCompletionAsync();
        var done = JsonDocument.Parse((await batch.GetBatchAsync(null)).GetRawResponse().Content).RootElement;
        Equal(done.GetProperty("status").GetString(), "completed");
        var output = done.GetProperty("output_file_id").GetString();
        Equal((await files.GetFileAsync(output)).Value.Purpose, FilePurpose.BatchOutput);
        Equal((await files.DownloadFileAsync(output)).Value.ToString().Contains(greeting), true);
        Equal((await Raises<ClientResultException>(() => batch.CancelAsync(null))).Status, 409);
        Equal((await CreateBatchOperation.RehydrateAsync(batches, batch.RehydrationToken)).BatchId, batch.BatchId);
        var pages = 0;
        await foreach (var page in batches.GetBatchesAsync(null, 2, null).GetRawPagesAsync()) pages++;
        Equal(pages, 1);
    }

    // The key as an API key, and as a token of Entra ID.
    static async Task AzureOpenAI()
    {
        var options = new AzureOpenAIClientOptions { RetryPolicy = new ClientRetryPolicy(0) };
        foreach (var azure in new[] { new AzureOpenAIClient(new Uri(address), new ApiKeyCredential(key), options), new AzureOpenAIClient(new Uri(address), new Token(), options) })
        {
            Equal((await azure.GetChatClient("chat").CompleteChatAsync("hello")).Value.Content[0].Text, greeting);
            Equal((await Streamed(azure.GetChatClient("chat"), "hello")).Text, greeting);
            Equal((await azure.GetEmbeddingClient("embedding").GenerateEmbeddingAsync("vector")).Value.ToFloats().ToArray().SequenceEqual(vector), true);
            await Refused(() => azure.GetChatClient("none").CompleteChatAsync("hello"), 404, "model_not_found");
        }
    }

    sealed class Token : TokenCredential
    {
        public override AccessToken GetToken(TokenRequestContext context, CancellationToken cancel) => new AccessToken(key, DateTimeOffset.MaxValue);

        public override ValueTask<AccessToken> GetTokenAsync(TokenRequestContext context, CancellationToken cancel) => new ValueTask<AccessToken>(GetToken(context, cancel));
    }

    // At OpenAI's addresses a request names the model, at Azure's the address does.
    static async Task Inference()
    {
        var options = new AzureAIInferenceClientOptions { Retry = { MaxRetries = 0 } };
        foreach (var (at, ofDeployment) in new[] { ("/openai/v1", false), ("/openai/deployments/", true) })
        {
            var chat = new ChatCompletionsClient(new Uri(address + at + (ofDeployment ? "chat" : "")), new AzureKeyCredential(key), options);
            ChatCompletionsOptions Ask(string text) => new ChatCompletionsOptions(new[] { new ChatRequestUserMessage(text) })
            {
                Model = ofDeployment ? null : "chat", AdditionalProperties = { ["seed"] = BinaryData.FromString("7") },
            };
            Equal((await chat.CompleteAsync(Ask("hello"))).Value.Content, greeting);
            var said = "";
            await foreach (var update in await chat.CompleteStreamingAsync(Ask("hello"))) said += update.ContentUpdate;
            Equal(said, greeting);
            var refused = await Raises<RequestFailedException>(() => chat.CompleteAsync(Ask("forbidden")));
            Equal((refused.Status, refused.ErrorCode), (400, "content_policy_violation"));

            var embedding = new EmbeddingsClient(new Uri(address + at + (ofDeployment ? "embedding" : "")), new AzureKeyCredential(key), options);
            var made = (await embedding.EmbedAsync(new EmbeddingsOptions(new[] { "vector" }) { Model = ofDeployment ? null : "embedding" })).Value;
            Equal(made.Data[0].Embedding.ToObjectFromJson<float[]>().SequenceEqual(vector), true);
        }
    }
}
