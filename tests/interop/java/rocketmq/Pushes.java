import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** A benchmark load: many consumers of one topic, each a group of its own, that go on with it until they leave. */
final class Pushes {
    private static final int BATCH = 100;
    private static final int AT_ONCE = 32;
    private static final long LOOK_NS = 200_000;

    /** Those of one name server. */
    private static final class Crowd {
        private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        private final AtomicLong received = new AtomicLong();
        private long expected;
    }

    private final Clients clients;
    private final Map<String, Crowd> crowds = new HashMap<>();

    private Pushes(Clients clients) {
        this.clients = clients;
    }

    static void verbs(Clients clients, Map<String, Lines.Verb> verbs) {
        Pushes pushes = new Pushes(clients);
        verbs.put("join-push", pushes::join);
        verbs.put("load-push", pushes::load);
        verbs.put("leave-push", pushes::leave);
    }

    /** They begin with the topic's first message. */
    private Map<String, ?> join(Lines.Arguments given) throws Exception {
        Crowd crowd = new Crowd();
        crowds.put(given.text("ns"), crowd);
        for (int number = 0; number < given.count("consumers"); number++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("pushed_" + System.nanoTime() + "_" + number);
            clients.configure(consumer, given.text("ns"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
            consumer.setConsumeMessageBatchMaxSize(AT_ONCE);
            consumer.subscribe(given.text("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                crowd.received.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            crowd.consumers.add(consumer);
        }
        return Map.of();
    }

    /** Send {@code count} messages in batches, and wait until each of those that joined has had them all. */
    private Map<String, ?> load(Lines.Arguments given) throws Exception {
        Crowd crowd = crowds.get(given.text("ns"));
        DefaultMQProducer producer = clients.producer(given.text("ns"));
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < BATCH; number++) {
            batch.add(new Message(given.text("topic"), Payloads.payload(0, number, given.count("size"))));
        }
        long count = given.number("count") * crowd.consumers.size();
        crowd.expected += count;
        long started = System.nanoTime();
        long end = started + (long) (given.seconds("seconds") * 1e9);
        for (int sent = 0; sent < given.count("count"); sent += BATCH) {
            producer.send(batch);
        }
        while (crowd.received.get() < crowd.expected) {
            if (System.nanoTime() > end) {
                throw new TimeoutException(crowd.received + " of " + crowd.expected + " messages came");
            }
            LockSupport.parkNanos(LOOK_NS);
        }
        return Map.of("count", count, "seconds", (System.nanoTime() - started) / 1e9);
    }

    private Map<String, ?> leave(Lines.Arguments given) {
        crowds.remove(given.text("ns")).consumers.forEach(DefaultMQPushConsumer::shutdown);
        return Map.of();
    }
}
