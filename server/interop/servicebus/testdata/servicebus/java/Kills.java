import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.*;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;

/**
 * One of several programs that send to two queues and receive from them while servers are killed
 * and connections cut. It prints a line of JSON for each thing that it knows to have happened, and
 * ends when its standard input does.
 */
public class Kills {
    static String connection, name;
    static volatile boolean ending;
    static final AtomicInteger completing = new AtomicInteger();

    static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder().connectionString(connection)
            .retryOptions(new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(1).setDelay(Duration.ofMillis(50)).setTryTimeout(Duration.ofSeconds(5)));
    }

    static synchronized void say(String format, Object... args) {
        System.out.println(String.format(format, args));
    }

    static void complain(String what) { System.err.println(java.time.Instant.now() + " " + what); }

    static void pause() {
        try { Thread.sleep(50); } catch (InterruptedException e) { throw new IllegalStateException(e); }
    }

    /** Sends messages one after the other. What is not known to be accepted is sent again. */
    static void send(String queue, int count, IntFunction<String> session) {
        ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient();
        for (int i = 0; i < count && !ending; i++) {
            String id = name + "-" + queue + "-" + i;
            for (boolean sent = false; !sent; ) {
                ServiceBusMessage m = new ServiceBusMessage(BinaryData.fromString(id)).setMessageId(id);
                if (session != null) m.setSessionId(session.apply(i));
                try {
                    sender.sendMessage(m);
                    sent = true;
                } catch (RuntimeException e) {
                    complain("send " + id + ": " + e);
                    pause();
                }
            }
            say("{\"kind\":\"sent\",\"id\":\"%s\"}", id);
        }
        say("{\"kind\":\"finished\",\"id\":\"%s\"}", queue);
    }

    /** Completes a message. It returns false if the message is not known to be completed. */
    static boolean complete(ServiceBusReceiverClient r, ServiceBusReceivedMessage m) {
        String about = String.format("\"id\":\"%s\",\"seq\":%d,\"session\":\"%s\",\"count\":%d", m.getMessageId(), m.getSequenceNumber(), m.getSessionId() == null ? "" : m.getSessionId(), m.getDeliveryCount());
        say("{\"kind\":\"received\",%s,\"locked\":%d}", about, m.getLockedUntil() == null ? 0 : m.getLockedUntil().toInstant().toEpochMilli());
        if (ending) return false;
        completing.incrementAndGet();
        try {
            long from = System.currentTimeMillis();
            r.complete(m);
            say("{\"kind\":\"completed\",%s,\"from\":%d,\"to\":%d}", about, from, System.currentTimeMillis());
            return true;
        } catch (RuntimeException e) {
            complain("complete " + m.getMessageId() + ": " + e);
            say("{\"kind\":\"tried\",%s}", about);
            return false;
        } finally {
            completing.decrementAndGet();
        }
    }

    static void receivePlain() {
        while (!ending) {
            try (ServiceBusReceiverClient r = builder().receiver().queueName("plain").maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient()) {
                while (!ending) {
                    for (ServiceBusReceivedMessage m : r.receiveMessages(10, Duration.ofSeconds(1))) complete(r, m);
                }
            } catch (RuntimeException e) {
                complain("receive: " + e);
                pause();
            }
        }
    }

    /** One message at a time: the SDK returns what comes when nobody waits, and it may come back behind a later one. */
    static void receiveSessions() {
        ServiceBusSessionReceiverClient all = builder().sessionReceiver().queueName("ordered").disableAutoComplete().buildClient();
        while (!ending) {
            try (ServiceBusReceiverClient r = all.acceptNextSession()) {
                boolean more = true;
                for (int i = 0; i < 15 && more; i++) {
                    int got = 0;
                    for (ServiceBusReceivedMessage m : r.receiveMessages(1, Duration.ofMillis(500))) {
                        got++;
                        if (more) more = complete(r, m);
                    }
                    more &= got > 0;
                }
            } catch (RuntimeException e) {
                complain("session: " + e);
                pause();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        connection = args[0];
        name = args[1];
        int plain = Integer.parseInt(args[2]), ordered = Integer.parseInt(args[3]), sessions = Integer.parseInt(args[4]);
        new Thread(() -> send("plain", plain, null)).start();
        new Thread(() -> send("ordered", ordered, i -> "s" + i % sessions)).start();
        new Thread(Kills::receivePlain).start();
        new Thread(Kills::receiveSessions).start();
        while (System.in.read() >= 0) { }
        ending = true;
        while (completing.get() > 0) pause();
        System.exit(0); // the library's threads would stay a while
    }
}
