import com.azure.messaging.servicebus.*;
import com.azure.messaging.servicebus.models.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.locks.LockSupport;

/** Scenarios of Program about settlements in transactions, and transactions that do not end well. */
class Transactions {
    static ServiceBusReceiverClient dead(String queue) {
        return Program.builder().receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient();
    }

    /** Abandons, defers and dead-letters in a transaction, by body. */
    static void settle(ServiceBusReceiverClient r, List<ServiceBusReceivedMessage> messages, ServiceBusTransactionContext t) {
        for (ServiceBusReceivedMessage m : messages) {
            switch (m.getBody().toString()) {
                case "abandon": r.abandon(m, new AbandonOptions().setPropertiesToModify(Map.of("tried", 1L)).setTransactionContext(t)); break;
                case "defer": r.defer(m, new DeferOptions().setPropertiesToModify(Map.of("later", true)).setTransactionContext(t)); break;
                default: r.deadLetter(m, new DeadLetterOptions().setDeadLetterReason("broken").setDeadLetterErrorDescription("no use").setTransactionContext(t));
            }
        }
    }

    static Void pause() {
        LockSupport.parkNanos(Duration.ofMillis(50).toNanos());
        return null;
    }

    static String states(String queue) {
        StringJoiner j = new StringJoiner(",");
        try (ServiceBusReceiverClient r = Program.receiver(queue); ServiceBusReceiverClient d = dead(queue)) {
            for (ServiceBusReceivedMessage m : r.peekMessages(10)) j.add(m.getBody() + "=" + m.getState());
            for (ServiceBusReceivedMessage m : d.peekMessages(10)) j.add("dead " + m.getBody());
        }
        return j.toString();
    }

    /** Nothing is settled by a rollback, nor before a commit. */
    static String settleWithin() {
        List<ServiceBusMessage> three = List.of(Program.text("abandon"), Program.text("defer"), Program.text("dead"));
        StringJoiner j = new StringJoiner(" ");
        try (ServiceBusSenderClient s = Program.sender("short-lock"); ServiceBusReceiverClient r = Program.receiver("short-lock")) {
            s.sendMessages(three);
            List<ServiceBusReceivedMessage> got = Program.take(r, 3);
            ServiceBusTransactionContext t = r.createTransaction();
            settle(r, got, t);
            r.rollbackTransaction(t);
            j.add(states("short-lock"));
            for (ServiceBusReceivedMessage m : Program.meanwhile(() -> Program.take(r, 3))) j.add(m.getBody() + ":" + m.getDeliveryCount()); // once their locks have ended
        }
        try (ServiceBusSenderClient s = Program.sender("within"); ServiceBusReceiverClient r = Program.receiver("within"); ServiceBusReceiverClient d = dead("within")) {
            s.sendMessages(three);
            List<ServiceBusReceivedMessage> got = Program.take(r, 3);
            ServiceBusTransactionContext t = r.createTransaction();
            settle(r, got, t);
            j.add(states("within"));
            r.commitTransaction(t);
            j.add(states("within"));
            ServiceBusReceivedMessage deferred = r.receiveDeferredMessage(got.get(1).getSequenceNumber());
            r.complete(deferred);
            ServiceBusReceivedMessage again = Program.take(r, 1).get(0), letter = Program.take(d, 1).get(0);
            r.complete(again);
            d.complete(letter);
            j.add(again.getBody() + ":" + again.getDeliveryCount() + ":" + again.getApplicationProperties().get("tried"));
            j.add("" + deferred.getApplicationProperties().get("later"));
            j.add(letter.getDeadLetterReason() + ":" + letter.getDeadLetterErrorDescription());
        }
        return j.toString();
    }

    /** Settles deferred messages, which the library does by requests of the management node. */
    static String settleDeferred() {
        StringJoiner j = new StringJoiner(" ");
        for (boolean commit : new boolean[] {false, true}) {
            String queue = commit ? "deferred" : "short-deferred";
            try (ServiceBusSenderClient s = Program.sender(queue); ServiceBusReceiverClient r = Program.receiver(queue)) {
                s.sendMessages(List.of(Program.text("complete"), Program.text("dead")));
                List<Long> numbers = new ArrayList<>();
                for (ServiceBusReceivedMessage m : Program.take(r, 2)) {
                    numbers.add(m.getSequenceNumber());
                    r.defer(m);
                }
                List<ServiceBusReceivedMessage> got = new ArrayList<>();
                r.receiveDeferredMessageBatch(numbers).forEach(got::add);
                ServiceBusTransactionContext t = r.createTransaction();
                r.complete(got.get(0), new CompleteOptions().setTransactionContext(t));
                r.deadLetter(got.get(1), new DeadLetterOptions().setDeadLetterReason("broken").setTransactionContext(t));
                j.add(states(queue));
                if (commit) r.commitTransaction(t); else r.rollbackTransaction(t);
                j.add(states(queue));
                while (!commit && !r.receiveDeferredMessageBatch(numbers).iterator().hasNext()) Program.meanwhile(() -> pause()); // until the locks have ended
            }
        }
        return j.toString();
    }

    /** Transactions fail with steps that are refused. The library does not tell whether a send was. */
    static String refused() throws Exception {
        StringJoiner j = new StringJoiner(" ");
        try (ServiceBusSenderClient s = Program.sender("refusing"); ServiceBusReceiverClient r = Program.receiver("refusing"); ServiceBusReceiverClient second = Program.receiver("refusing")) {
            ServiceBusTransactionContext sends = s.createTransaction();
            s.sendMessage(Program.text("dropped"), sends);
            s.sendMessage(Program.text("x".repeat(2000)), sends); // more than the queue takes
            j.add(condition(() -> s.commitTransaction(sends)));
            s.sendMessage(Program.text("x"));
            ServiceBusReceivedMessage lost = Program.take(r, 1).get(0);
            ServiceBusReceivedMessage kept = Program.meanwhile(() -> Program.take(second, 1)).get(0); // once the lock has ended
            ServiceBusTransactionContext settles = r.createTransaction();
            s.sendMessage(Program.text("y"));
            ServiceBusReceivedMessage other = Program.take(r, 1).get(0);
            r.complete(other, new CompleteOptions().setTransactionContext(settles));
            try { r.complete(lost, new CompleteOptions().setTransactionContext(settles)); } catch (RuntimeException e) { } // it may be known now, or by the commit
            j.add(condition(() -> r.commitTransaction(settles)));
            ServiceBusReceivedMessage again = Program.take(r, 1).get(0);
            j.add(condition(() -> r.complete(again, new CompleteOptions().setTransactionContext(settles)))); // which has ended
            j.add(states("refusing"));
            return j.toString();
        }
    }

    /** The condition of AMQP that an error has in its text. */
    static String condition(Runnable f) {
        try { f.run(); } catch (RuntimeException e) {
            java.util.regex.Matcher m = java.util.regex.Pattern.compile("amqp:transaction:[a-z-]+").matcher(String.valueOf(e));
            return m.find() ? m.group() : e.toString();
        }
        return "none";
    }

    /** Commits a transaction that has lasted too long. */
    static String timeout() throws Exception {
        try (ServiceBusSenderClient s = Program.sender("late")) {
            ServiceBusTransactionContext t = s.createTransaction();
            s.sendMessage(Program.text("dropped"), t);
            Thread.sleep(Duration.ofSeconds(121).toMillis());
            String more = condition(() -> s.sendMessage(Program.text("dropped"), t));
            return more + " " + condition(() -> s.commitTransaction(t)) + " left=" + Program.peeked("late");
        }
    }

    /** Says what it has done in a transaction, and waits to be killed. */
    static String leaveOpen() throws Exception {
        ServiceBusClientBuilder shared = Program.builder().enableCrossEntityTransactions();
        ServiceBusReceiverClient r = shared.receiver().queueName("open").disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO).buildClient();
        ServiceBusSenderClient s = shared.sender().queueName("opento").buildClient();
        List<ServiceBusReceivedMessage> got = Program.take(r, 2);
        ServiceBusTransactionContext t = r.createTransaction();
        r.complete(got.get(0), new CompleteOptions().setTransactionContext(t));
        r.deadLetter(got.get(1), new DeadLetterOptions().setTransactionContext(t));
        s.sendMessage(Program.text("dropped"), t);
        System.out.println("open");
        Thread.sleep(Long.MAX_VALUE);
        return "";
    }
}
