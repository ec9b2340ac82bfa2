import com.microsoft.durabletask.*;
import io.grpc.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.*;

/**
 * A whole program with Microsoft's Durable Task SDK for Java (Maven: com.microsoft:durabletask-client) and Forebay.
 *
 * <pre>
 *   forebay serve                      # with orchestrations.grpc.address: 127.0.0.1:4001
 *   mvn compile exec:java -Dexec.mainClass=Program -Dexec.args="127.0.0.1:4001 KEY"
 * </pre>
 *
 * It is a worker and a client in one process. Each line that it prints says what became of one orchestration.
 */
public class Program {
    private static final Duration PATIENCE = Duration.ofMinutes(1);
    private static final AtomicInteger tries = new AtomicInteger();

    /** Fails twice. */
    private static Object flaky(TaskActivityContext ctx) {
        int n = tries.incrementAndGet();
        if (n < 3) {
            throw new IllegalStateException("not yet");
        }
        return n;
    }

    private static void chain(TaskOrchestrationContext ctx) {
        String greeting = ctx.callActivity("hello", ctx.getInput(String.class), String.class).await();
        ctx.complete(ctx.callActivity("hello", greeting, String.class).await());
    }

    private static void fanOut(TaskOrchestrationContext ctx) {
        List<Task<Integer>> squares = IntStream.range(0, ctx.getInput(Integer.class))
            .mapToObj(i -> ctx.callActivity("square", i, Integer.class)).collect(Collectors.toList());
        ctx.complete(ctx.allOf(squares).await().stream().mapToInt(Integer::intValue).sum());
    }

    private static void retried(TaskOrchestrationContext ctx) {
        TaskOptions options = new TaskOptions(new RetryPolicy(5, Duration.ofMillis(100)));
        ctx.complete(ctx.callActivity("flaky", null, options, Integer.class).await());
    }

    private static void timer(TaskOrchestrationContext ctx) {
        ctx.createTimer(Duration.ofMillis(200)).await();
        ctx.complete("later");
    }

    private static void approval(TaskOrchestrationContext ctx) {
        ctx.complete(ctx.waitForExternalEvent("approved", String.class).await());
    }

    private static void parent(TaskOrchestrationContext ctx) {
        ctx.complete(ctx.callSubOrchestrator("fanOut", ctx.getInput(Integer.class), Integer.class).await());
    }

    private static void orchestrator(DurableTaskGrpcWorkerBuilder builder, String name, TaskOrchestration implementation) {
        builder.addOrchestration(new TaskOrchestrationFactory() {
            @Override
            public String getName() {
                return name;
            }

            @Override
            public TaskOrchestration create() {
                return implementation;
            }
        });
    }

    private static void activity(DurableTaskGrpcWorkerBuilder builder, String name, TaskActivity implementation) {
        builder.addActivity(new TaskActivityFactory() {
            @Override
            public String getName() {
                return name;
            }

            @Override
            public TaskActivity create() {
                return implementation;
            }
        });
    }

    private static void ended(DurableTaskClient client, String name, String instance) throws TimeoutException {
        OrchestrationMetadata state = client.waitForInstanceCompletion(instance, PATIENCE, true);
        System.out.println(name + " " + state.getRuntimeStatus() + " " + state.getSerializedOutput());
    }

    private static Channel connect(String address, String key) {
        Metadata metadata = new Metadata();
        if (key != null) {
            metadata.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + key);
        }
        ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        return ClientInterceptors.intercept(channel, io.grpc.stub.MetadataUtils.newAttachHeadersInterceptor(metadata));
    }

    public static void main(String[] args) throws Exception {
        Channel channel = connect(args[0], args.length > 1 ? args[1] : null);
        DurableTaskGrpcWorkerBuilder builder = new DurableTaskGrpcWorkerBuilder().grpcChannel(channel);
        orchestrator(builder, "chain", Program::chain);
        orchestrator(builder, "fanOut", Program::fanOut);
        orchestrator(builder, "retried", Program::retried);
        orchestrator(builder, "timer", Program::timer);
        orchestrator(builder, "approval", Program::approval);
        orchestrator(builder, "parent", Program::parent);
        activity(builder, "hello", ctx -> "Hello " + ctx.getInput(String.class) + "!");
        activity(builder, "square", ctx -> ctx.getInput(Integer.class) * ctx.getInput(Integer.class));
        activity(builder, "flaky", Program::flaky);
        builder.build().start();
        DurableTaskClient client = new DurableTaskGrpcClientBuilder().grpcChannel(channel).build();

        ended(client, "chain", client.scheduleNewOrchestrationInstance("chain", "you"));
        ended(client, "fanOut", client.scheduleNewOrchestrationInstance("fanOut", 5));
        ended(client, "retried", client.scheduleNewOrchestrationInstance("retried"));
        ended(client, "timer", client.scheduleNewOrchestrationInstance("timer"));
        ended(client, "parent", client.scheduleNewOrchestrationInstance("parent", 4));

        String instance = client.scheduleNewOrchestrationInstance("approval");
        client.waitForInstanceStart(instance, PATIENCE);
        client.suspendInstance(instance);
        client.resumeInstance(instance);
        client.raiseEvent(instance, "approved", "by me");
        ended(client, "approval", instance);

        instance = client.scheduleNewOrchestrationInstance("approval");
        client.waitForInstanceStart(instance, PATIENCE);
        client.terminate(instance, "enough");
        ended(client, "terminated", instance);
        System.exit(0);
    }
}
