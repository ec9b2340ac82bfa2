import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.policy.PortPolicy;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.*;
import java.time.Duration;
import java.util.*;

/** Scenarios of Program that manage entities. */
class Administration {
    /** The library calls port 443, whatever port the connection string has. */
    static ServiceBusAdministrationClient client(String connection) {
        int port = Integer.parseInt(connection.replaceFirst("^Endpoint=sb://localhost:([0-9]+);.*$", "$1"));
        return new ServiceBusAdministrationClientBuilder().connectionString(connection).addPolicy(new PortPolicy(port, true)).buildClient();
    }

    /** The class of an error and the status that it tells, or "none". */
    static String error(Runnable f) {
        try { f.run(); } catch (HttpResponseException e) {
            return e.getClass().getSimpleName() + " " + e.getResponse().getStatusCode();
        } catch (RuntimeException e) {
            return e.toString();
        }
        return "none";
    }

    /** What all of some calls come to. They are told one by one if they differ. */
    static String all(Map<String, Runnable> calls) {
        Map<String, String> errors = new LinkedHashMap<>();
        calls.forEach((name, f) -> errors.put(name, error(f)));
        return new HashSet<>(errors.values()).size() == 1 ? errors.values().iterator().next() : errors.toString();
    }

    /** Makes, changes, lists and deletes one of each kind of entity. */
    static String manage() {
        ServiceBusAdministrationClient c = client(Program.connection.get());
        QueueProperties q = c.createQueue("made", new CreateQueueOptions().setLockDuration(Duration.ofSeconds(45)).setSessionRequired(true).setUserMetadata("a & <b>"));
        q = c.updateQueue(q.setMaxDeliveryCount(7));
        c.createTopic("made-topic");
        SubscriptionProperties s = c.createSubscription("made-topic", "sub", new CreateSubscriptionOptions().setForwardTo("plain"));
        c.createRule("made-topic", "red", "sub", new CreateRuleOptions(new SqlRuleFilter("color = 'red'")).setAction(new SqlRuleAction("SET seen = 1")));
        c.createRule("made-topic", "label", "sub", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("go")));
        StringJoiner rules = new StringJoiner(",");
        c.listRules("made-topic", "sub").forEach(r -> rules.add(r.getName() + "=" + r.getFilter().getClass().getSimpleName()));
        StringJoiner topics = new StringJoiner(",");
        c.listTopics().forEach(t -> topics.add(t.getName()));
        String made = q.getLockDuration() + " " + q.isSessionRequired() + " " + q.getUserMetadata() + " " + q.getMaxDeliveryCount()
            + " " + s.getForwardTo().endsWith("/plain") + " " + rules + " " + topics + " " + c.getQueueRuntimeProperties("made").getTotalMessageCount()
            + " " + c.getTopicRuntimeProperties("made-topic").getSubscriptionCount() + " " + c.getNamespaceProperties().getMessagingSku();
        c.deleteRule("made-topic", "sub", "red");
        c.deleteSubscription("made-topic", "sub");
        c.deleteTopic("made-topic");
        c.deleteQueue("made");
        return made + " " + c.getQueueExists("made") + c.getTopicExists("made-topic") + c.getSubscriptionExists("made-topic", "sub");
    }

    /** What is refused: what there is already, what there is not, what is badly defined, what is too much, and what a key may not do. */
    static String refusals() {
        ServiceBusAdministrationClient c = client(Program.connection.get()), wrong = client(Program.connection.get() + "x");
        CreateRuleOptions bad = new CreateRuleOptions(new SqlRuleFilter("a = ="));
        QueueProperties queue = c.getQueue("plain");
        TopicProperties topic = c.getTopic("events");
        SubscriptionProperties subscription = c.getSubscription("events", "all");
        RuleProperties rule = c.getRule("events", "all", "$Default");
        Map<String, Runnable> exist = new LinkedHashMap<>(), missing = new LinkedHashMap<>(), invalid = new LinkedHashMap<>();
        exist.put("queue", () -> c.createQueue("plain"));
        exist.put("topic", () -> c.createTopic("events"));
        exist.put("subscription", () -> c.createSubscription("events", "all"));
        exist.put("rule", () -> c.createRule("events", "$Default", "all", new CreateRuleOptions(new SqlRuleFilter("1=1"))));
        missing.put("get queue", () -> c.getQueue("none"));
        missing.put("get topic", () -> c.getTopic("none"));
        missing.put("get subscription", () -> c.getSubscription("events", "none"));
        missing.put("get rule", () -> c.getRule("events", "all", "none"));
        missing.put("delete queue", () -> c.deleteQueue("none"));
        missing.put("delete topic", () -> c.deleteTopic("none"));
        missing.put("delete subscription", () -> c.deleteSubscription("events", "none"));
        missing.put("delete rule", () -> c.deleteRule("events", "all", "none"));
        missing.put("subscription of no topic", () -> c.createSubscription("none", "all"));
        missing.put("rule of no subscription", () -> c.createRule("events", "r", "none", new CreateRuleOptions(new SqlRuleFilter("1=1"))));
        invalid.put("queue", () -> c.createQueue("new", new CreateQueueOptions().setForwardTo("nowhere")));
        invalid.put("queue's name", () -> c.createQueue("not$valid"));
        invalid.put("queue's lock", () -> c.updateQueue(queue.setLockDuration(Duration.ofHours(1))));
        invalid.put("topic", () -> c.updateTopic(topic.setUserMetadata("x".repeat(1025))));
        invalid.put("subscription", () -> c.createSubscription("events", "new", new CreateSubscriptionOptions().setLockDuration(Duration.ofHours(1))));
        invalid.put("rule", () -> c.createRule("events", "new", "all", bad));
        return all(exist) + ", " + all(missing) + ", " + all(invalid) + ", " + error(() -> c.createRule("events", "more", "crowded", new CreateRuleOptions(new TrueRuleFilter())))
            + ", " + error(() -> wrong.getQueue("plain")) + " " + subscription.getSubscriptionName() + rule.getName();
    }
}
