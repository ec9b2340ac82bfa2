import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.*;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.*;

/** Uses Service Bus as ordinary programs do. It prints a line for each scenario that it is asked for. */
public class Program {
    /** What the scenario of a thread connects to: a connection string, and the address of a web socket or nothing. */
    static final ThreadLocal<String> connection = new ThreadLocal<>(), webSocket = new ThreadLocal<>();

    /** The scenario that works holds it. One that waits for locks to end lets others work meanwhile. */
    static final ReentrantLock turn = new ReentrantLock(true);

    /** Waits for locks to end, on a queue that no other scenario uses meanwhile. */
    static <T> T meanwhile(Supplier<T> waits) {
        turn.unlock();
        try { return waits.get(); } finally { turn.lock(); }
    }

    static ServiceBusClientBuilder builder() { return builder(connection.get()); }

    static ServiceBusClientBuilder builder(String connection) {
        ServiceBusClientBuilder b = new ServiceBusClientBuilder().connectionString(connection);
        if (!webSocket.get().isEmpty()) b.transportType(AmqpTransportType.AMQP_WEB_SOCKETS).customEndpointAddress(webSocket.get());
        return b.retryOptions(new AmqpRetryOptions().setMaxRetries(1).setDelay(Duration.ofMillis(100)).setTryTimeout(Duration.ofSeconds(20)));
    }

    static ServiceBusMessage text(String s) { return new ServiceBusMessage(BinaryData.fromString(s)); }

    /** Locks are not renewed behind the scenes. */
    static ServiceBusReceiverClient receiver(String queue) {
        return builder().receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient();
    }

    static ServiceBusSenderClient sender(String queue) { return builder().sender().queueName(queue).buildClient(); }

    /** Receives exactly n messages. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient r, int n) {
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (got.size() < n && System.nanoTime() < end) {
            for (ServiceBusReceivedMessage m : r.receiveMessages(n - got.size(), Duration.ofSeconds(10))) got.add(m);
        }
        if (got.size() != n) throw new IllegalStateException("got " + got.size() + " messages instead of " + n);
        return got;
    }

    static String bodies(Iterable<ServiceBusReceivedMessage> list) {
        StringJoiner j = new StringJoiner(",");
        for (ServiceBusReceivedMessage m : list) j.add(m.getBody().toString());
        return j.toString();
    }

    /** Peeks at all of a queue without changing it. */
    static String peeked(String queue) {
        try (ServiceBusReceiverClient r = receiver(queue)) { return bodies(r.peekMessages(100)); }
    }

    static String reason(Runnable f) {
        try { f.run(); } catch (RuntimeException e) {
            for (Throwable t = e; t != null; t = t.getCause()) {
                if (t instanceof ServiceBusException) return ((ServiceBusException) t).getReason().toString();
                if (t instanceof AmqpException) return String.valueOf(((AmqpException) t).getErrorCondition());
            }
            return e.getClass().getSimpleName();
        }
        return "none";
    }

    static String send() {
        try (ServiceBusSenderClient s = sender("plain"); ServiceBusReceiverClient gone = builder().receiver().queueName("plain").receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            s.sendMessage(text("1"));
            ServiceBusMessageBatch batch = s.createMessageBatch();
            batch.tryAddMessage(text("2"));
            batch.tryAddMessage(text("3"));
            s.sendMessages(batch);
            String got = bodies(take(gone, 3));
            long first = s.scheduleMessage(text("never"), OffsetDateTime.now().plusHours(1));
            List<Long> more = new ArrayList<>();
            s.scheduleMessages(List.of(text("a"), text("b")), OffsetDateTime.now().plusHours(1)).forEach(more::add);
            String scheduled = peeked("plain");
            s.cancelScheduledMessage(first);
            s.cancelScheduledMessages(more);
            s.scheduleMessage(text("soon"), OffsetDateTime.now().plusSeconds(1));
            return got + " " + scheduled + " " + bodies(take(gone, 1));
        }
    }

    static String settle() {
        try (ServiceBusSenderClient s = sender("settle"); ServiceBusReceiverClient r = receiver("settle");
             ServiceBusReceiverClient dead = builder().receiver().queueName("settle").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient()) {
            s.sendMessages(List.of(text("complete"), text("abandon"), text("defer"), text("dead")));
            List<ServiceBusReceivedMessage> got = take(r, 4);
            r.complete(got.get(0));
            r.abandon(got.get(1), new AbandonOptions().setPropertiesToModify(Map.of("tried", 1L)));
            r.defer(got.get(2));
            r.deadLetter(got.get(3), new DeadLetterOptions().setDeadLetterReason("broken").setDeadLetterErrorDescription("no use"));
            ServiceBusReceivedMessage again = take(r, 1).get(0);
            boolean renewed = r.renewMessageLock(again).isAfter(OffsetDateTime.now());
            r.complete(again);
            ServiceBusReceivedMessage deferred = r.receiveDeferredMessage(got.get(2).getSequenceNumber());
            r.complete(deferred);
            ServiceBusReceivedMessage d = take(dead, 1).get(0);
            dead.complete(d);
            return again.getBody() + ":" + again.getDeliveryCount() + ":" + again.getApplicationProperties().get("tried") + ":" + renewed + " " + deferred.getBody()
                + " " + d.getBody() + ":" + d.getDeadLetterReason() + ":" + d.getDeadLetterErrorDescription() + " left=" + peeked("settle");
        }
    }

    static String sessions() {
        try (ServiceBusSenderClient s = sender("sessions"); ServiceBusSessionReceiverClient other = builder().sessionReceiver().queueName("sessions").buildClient();
             ServiceBusSessionReceiverClient all = builder().sessionReceiver().queueName("sessions").disableAutoComplete().buildClient()) {
            s.sendMessages(List.of(text("a1").setSessionId("a"), text("b1").setSessionId("b"), text("a2").setSessionId("a")));
            String out;
            try (ServiceBusReceiverClient a = all.acceptSession("a"); ServiceBusReceiverClient next = all.acceptNextSession()) {
                a.setSessionState("half".getBytes());
                boolean renewed = a.renewSessionLock().isAfter(OffsetDateTime.now());
                List<ServiceBusReceivedMessage> got = take(a, 2);
                got.forEach(a::complete);
                out = bodies(got) + ":" + new String(a.getSessionState()) + ":" + renewed + " " + next.getSessionId() + ":" + bodies(take(next, 1))
                    + " " + reason(() -> other.acceptSession("a"));
            }
            return out;
        }
    }

    static String processors() throws Exception {
        Queue<String> seen = new ConcurrentLinkedQueue<>();
        CountDownLatch left = new CountDownLatch(4);
        Consumer<ServiceBusReceivedMessageContext> each = c -> { seen.add(c.getMessage().getBody().toString()); left.countDown(); };
        ServiceBusProcessorClient plain = builder().processor().queueName("work").processMessage(each).processError(e -> System.err.println(e.getException())).buildProcessorClient();
        ServiceBusProcessorClient inSessions = builder().sessionProcessor().queueName("sessionwork").maxConcurrentSessions(2).processMessage(each).processError(e -> System.err.println(e.getException())).buildProcessorClient();
        plain.start();
        inSessions.start();
        try (ServiceBusSenderClient s = sender("work"); ServiceBusSenderClient o = sender("sessionwork")) {
            s.sendMessages(List.of(text("p1"), text("p2")));
            o.sendMessages(List.of(text("x").setSessionId("x"), text("y").setSessionId("y")));
        }
        boolean done = left.await(60, TimeUnit.SECONDS);
        plain.close();
        inSessions.close();
        return done + " " + new TreeSet<>(seen);
    }

    static String rules() {
        ServiceBusRuleManagerClient r = builder().ruleManager().topicName("events").subscriptionName("all").buildClient();
        try (ServiceBusSenderClient s = builder().sender().topicName("events").buildClient();
             ServiceBusReceiverClient in = builder().receiver().topicName("events").subscriptionName("all").receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            r.deleteRule("$Default");
            r.createRule("red", new CreateRuleOptions(new SqlRuleFilter("color = 'red'")));
            r.createRule("label", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("go")));
            SortedSet<String> names = new TreeSet<>();
            r.listRules().forEach(p -> names.add(p.getName() + "=" + p.getFilter().getClass().getSimpleName()));
            ServiceBusMessage red = text("red");
            red.getApplicationProperties().put("color", "red");
            s.sendMessages(List.of(red, text("no"), text("go").setSubject("go")));
            return names + " " + bodies(take(in, 2)) + " " + reason(() -> r.createRule("red", new CreateRuleOptions(new SqlRuleFilter("1=1"))));
        } finally { r.close(); }
    }

    /** Completes and sends within one entity: nothing is seen before the commit, nor after a rollback. */
    static String transaction() {
        try (ServiceBusSenderClient s = sender("tx"); ServiceBusReceiverClient r = receiver("tx")) {
            s.sendMessage(text("in"));
            ServiceBusReceivedMessage in = take(r, 1).get(0);
            ServiceBusTransactionContext t = s.createTransaction();
            s.sendMessage(text("dropped"), t);
            s.scheduleMessage(text("dropped later"), OffsetDateTime.now().plusHours(1), t);
            String before = peeked("tx");
            s.rollbackTransaction(t);
            String rolledBack = peeked("tx");
            t = s.createTransaction();
            s.sendMessages(List.of(text("out1"), text("out2")), t);
            s.scheduleMessage(text("later"), OffsetDateTime.now().plusHours(1), t);
            s.commitTransaction(t);
            t = r.createTransaction();
            r.complete(in, new CompleteOptions().setTransactionContext(t));
            String held = peeked("tx");
            r.commitTransaction(t);
            return before + " " + rolledBack + " " + held + " " + peeked("tx");
        }
    }

    /** Moves messages between entities. */
    static String crossEntity() {
        ServiceBusClientBuilder shared = builder().enableCrossEntityTransactions();
        try (ServiceBusSenderClient s = sender("from")) { s.sendMessages(List.of(text("1"), text("2"), text("3"))); }
        try (ServiceBusReceiverClient r = shared.receiver().queueName("from").disableAutoComplete().buildClient();
             ServiceBusSenderClient s = shared.sender().queueName("to").buildClient()) {
            List<ServiceBusReceivedMessage> got = take(r, 3);
            ServiceBusTransactionContext t = r.createTransaction();
            r.complete(got.get(0), new CompleteOptions().setTransactionContext(t));
            r.deadLetter(got.get(1), new DeadLetterOptions().setDeadLetterReason("why").setTransactionContext(t));
            s.sendMessage(text("moved"), t);
            String before = peeked("from") + "|" + peeked("to");
            r.commitTransaction(t);
            String after = peeked("from") + "|" + peeked("to");
            t = r.createTransaction();
            r.complete(got.get(2), new CompleteOptions().setTransactionContext(t));
            s.sendMessage(text("not moved"), t);
            r.rollbackTransaction(t);
            ServiceBusTransactionContext ended = t;
            return before + " " + after + " " + peeked("from") + "|" + peeked("to") + " ended=" + !reason(() -> r.commitTransaction(ended)).equals("none");
        }
    }

    static String errors() {
        StringJoiner j = new StringJoiner(" ");
        try (ServiceBusSenderClient s = sender("none")) { j.add(reason(() -> s.sendMessage(text("x")))); }
        try (ServiceBusSenderClient s = sender("settle")) { j.add(reason(() -> s.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[2 << 20]))))); }
        try (ServiceBusSenderClient s = sender("closed")) { j.add(reason(() -> s.sendMessage(text("x")))); }
        try (ServiceBusSenderClient s = sender("short"); ServiceBusReceiverClient r = receiver("short"); ServiceBusReceiverClient second = receiver("short")) {
            s.sendMessage(text("x"));
            ServiceBusReceivedMessage lost = take(r, 1).get(0);
            meanwhile(() -> take(second, 1)); // once the lock has ended
            j.add(reason(() -> r.complete(lost)));
        }
        return j.toString();
    }

    static ServiceBusSenderClient sender(String as, String queue) { return builder(System.getenv(as)).sender().queueName(queue).buildClient(); }

    static ServiceBusReceiverClient receiver(String as, String queue) {
        return builder(System.getenv(as)).receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient();
    }

    static String reasonOfMany(Runnable f) { return reason(() -> { for (int i = 0; i < 1000; i++) f.run(); }); }

    /** What is refused to the connection strings of the environment. */
    static String refusals() {
        StringJoiner j = new StringJoiner(" ");
        try (ServiceBusSenderClient s = sender("FULL", "full")) { j.add(reasonOfMany(() -> s.sendMessage(text("x")))); }
        try (ServiceBusReceiverClient r = receiver("BUSY", "busy")) { j.add(reasonOfMany(() -> r.peekMessage())); }
        try (ServiceBusSenderClient s = sender("WRONG", "orders")) { j.add(reason(() -> s.sendMessage(text("x")))); }
        try (ServiceBusSenderClient s = sender("LISTENS", "orders")) { j.add(reason(() -> s.sendMessage(text("x")))); }
        try (ServiceBusReceiverClient r = receiver("SENDS", "orders")) { j.add(reason(() -> r.peekMessage())); }
        try (ServiceBusReceiverClient r = receiver("OWNER", "orders")) { j.add("deferred=" + reason(() -> r.receiveDeferredMessage(1L << 40))); }
        try (ServiceBusSenderClient s = sender("OWNER", "orders")) {
            j.add("scheduled=" + reason(() -> s.cancelScheduledMessage(1L << 40)));
            j.add("argument=" + reason(() -> s.sendMessage(text("x").setMessageId("\u0001"))));
        }
        try (ServiceBusReceiverClient r = receiver("OWNER", "none")) { j.add("none=" + reason(() -> r.peekMessage())); }
        try (ServiceBusSenderClient s = sender("OWNER", "sessions")) { j.add("allowed=" + reason(() -> s.sendMessage(text("x")))); }
        j.add("rules=" + ruleRefusals());
        try (ServiceBusSenderClient s = sender("OWNER", "sessions"); ServiceBusSessionReceiverClient first = sessions("OWNER"); ServiceBusSessionReceiverClient second = sessions("OWNER")) {
            s.sendMessage(text("x").setSessionId("a"));
            ServiceBusReceiverClient lost = first.acceptSession("a");
            meanwhile(() -> second.acceptNextSession()).close(); // once the lock has ended
            j.add(reason(() -> lost.getSessionState()));
            lost.close();
        }
        return j.toString();
    }

    /** What is refused to rule managers: a rule that is there, one that is not, one badly defined, and one too many. */
    static String ruleRefusals() {
        CreateRuleOptions all = new CreateRuleOptions(new SqlRuleFilter("1=1"));
        ServiceBusRuleManagerClient r = rules("OWNER", "all"), crowded = rules("OWNER", "crowded"), sends = rules("SENDS", "all");
        try {
            return reason(() -> r.createRule("$Default", all)) + "," + reason(() -> r.deleteRule("none")) + "," + reason(() -> r.createRule("bad", new CreateRuleOptions(new SqlRuleFilter("a = ="))))
                + "," + reason(() -> crowded.createRule("more", all)) + "," + reason(() -> sends.createRule("more", all));
        } finally {
            r.close();
            crowded.close();
            sends.close();
        }
    }

    static ServiceBusRuleManagerClient rules(String as, String subscription) {
        return builder(System.getenv(as)).ruleManager().topicName("events").subscriptionName(subscription).buildClient();
    }

    static ServiceBusSessionReceiverClient sessions(String as) {
        return builder(System.getenv(as)).sessionReceiver().queueName("sessions").maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient();
    }

    /** Does a scenario, and returns the line that is printed. */
    static String line(String name, Callable<String> scenario, String connects, String by) {
        connection.set(connects);
        webSocket.set(by);
        turn.lock();
        try { return name + ": " + scenario.call(); } catch (Throwable e) { e.printStackTrace(); return name + ": failed: " + e; } finally { turn.unlock(); }
    }

    /**
     * Each three arguments are a connection string, the address of a web socket or nothing, and the names of scenarios.
     * The lines come in the order of the names. leaveOpen is the last of all, for it ends with the process.
     */
    public static void main(String[] args) throws Exception {
        Map<String, Callable<String>> all = new LinkedHashMap<>();
        all.put("send", Program::send);
        all.put("settle", Program::settle);
        all.put("sessions", Program::sessions);
        all.put("processors", Program::processors);
        all.put("rules", Program::rules);
        all.put("transaction", Program::transaction);
        all.put("crossEntity", Program::crossEntity);
        all.put("errors", Program::errors);
        all.put("refusals", Program::refusals);
        all.put("manage", Administration::manage);
        all.put("managementRefusals", Administration::refusals);
        all.put("settleWithin", Transactions::settleWithin);
        all.put("settleDeferred", Transactions::settleDeferred);
        all.put("refused", Transactions::refused);
        all.put("timeout", Transactions::timeout);
        all.put("leaveOpen", Transactions::leaveOpen);
        List<FutureTask<String>> told = new ArrayList<>();
        for (int i = 0; i < args.length; i += 3) {
            String connects = args[i], by = args[i + 1];
            for (String name : args[i + 2].split(",")) {
                FutureTask<String> one = new FutureTask<>(() -> line(name, all.get(name), connects, by));
                if (told.isEmpty()) one.run(); // alone, for it takes seconds to load the library, which no lock should last through
                else if (!name.equals("leaveOpen")) new Thread(one).start();
                told.add(one);
            }
        }
        for (FutureTask<String> one : told) {
            one.run(); // unless it has begun
            System.out.println(one.get());
        }
        System.exit(0); // the library's threads would stay a while
    }
}
