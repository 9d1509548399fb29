import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.CommandUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The original's producers, consumers and admin commands, driven by lines on standard input (see Lines). */
final class Driver {
    private static final int BATCH = 20;
    private static final int PULL = 32;
    private static final int RETRIES = 40;
    private static final int RETRY_MS = 250;
    private static final long AWAIT_LISTENER_MS = 10_000;

    private final Clients clients = new Clients();
    private final Map<String, DefaultMQPushConsumer> pushed = new HashMap<>();
    private final Map<String, Messages.Received> received = new HashMap<>();

    static Map<String, Lines.Verb> verbs() {
        Driver driver = new Driver();
        Map<String, Lines.Verb> verbs = new HashMap<>();
        verbs.put("send", driver::send);
        verbs.put("pull", driver::pull);
        verbs.put("poll", driver::poll);
        verbs.put("subscribe", driver::subscribe);
        verbs.put("received", driver::received);
        verbs.put("unsubscribe", driver::unsubscribe);
        verbs.put("topic", driver::topic);
        verbs.put("admin", driver::admin);
        verbs.put("forget", driver::forget);
        Loads.verbs(driver.clients, verbs);
        Pushes.verbs(driver.clients, verbs);
        return verbs;
    }

    /** Messages first to first + count - 1, one after another, by futures, without answers, or in batches. */
    private Map<String, ?> send(Lines.Arguments given) throws Exception {
        DefaultMQProducer producer = clients.producer(given.text("ns"));
        long first = given.number("first");
        List<Message> messages = new ArrayList<>();
        for (long number = first; number < first + given.count("count"); number++) {
            Message message = Messages.message(given.text("topic"), given.number("seed"), number, given.count("size"));
            message.setWaitStoreMsgOK("yes".equals(given.text("wait", "yes")));
            messages.add(message);
        }
        List<SendResult> results = switch (given.text("how", "sync")) {
            case "sync" -> oneByOne(producer, messages);
            case "async" -> together(producer, messages);
            case "oneway" -> unanswered(producer, messages);
            case "batch" -> batches(producer, messages);
            default -> throw new IllegalArgumentException("no such way to send");
        };
        Map<String, Integer> statuses = new TreeMap<>();
        results.forEach(result -> statuses.merge(result.getSendStatus().name(), 1, Integer::sum));
        Map<String, Object> shown = new LinkedHashMap<>(statuses);
        if (!results.isEmpty()) {
            shown.put("id", results.get(0).getOffsetMsgId());
            shown.put("key", results.get(0).getMsgId());
        }
        return shown;
    }

    private static List<SendResult> oneByOne(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (Message message : messages) {
            results.add(producer.send(message));
        }
        return results;
    }

    private static List<SendResult> together(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<SendResult> results = new ArrayList<>();
        List<Throwable> failures = new ArrayList<>();
        CountDownLatch open = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (results) {
                        results.add(result);
                    }
                    open.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    synchronized (results) {
                        failures.add(failure);
                    }
                    open.countDown();
                }
            });
        }
        open.await();
        if (!failures.isEmpty()) {
            throw new IllegalStateException(failures.size() + " failed", failures.get(0));
        }
        return results;
    }

    private static List<SendResult> unanswered(DefaultMQProducer producer, List<Message> messages) throws Exception {
        for (Message message : messages) {
            producer.sendOneway(message);
        }
        return List.of();
    }

    private static List<SendResult> batches(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (int at = 0; at < messages.size(); at += BATCH) {
            results.add(producer.send(new ArrayList<>(messages.subList(at, Math.min(at + BATCH, messages.size())))));
        }
        return results;
    }

    /** All of a topic with the plain pull consumer: from each queue's first offset to its last. */
    private Map<String, ?> pull(Lines.Arguments given) throws Exception {
        DefaultMQPullConsumer puller = clients.puller(given.text("ns"));
        Messages.Received found = new Messages.Received();
        Set<MessageQueue> queues = puller.fetchSubscribeMessageQueues(given.text("topic"));
        for (MessageQueue queue : queues) {
            long offset = Math.max(0, given.count("from"));
            while (true) {
                PullResult result = pull(puller, queue, given.text("tags", "*"), offset);
                if (result.getPullStatus() == PullStatus.NO_NEW_MSG && result.getNextBeginOffset() == offset) {
                    break;
                }
                if (result.getPullStatus() == PullStatus.FOUND) {
                    found.add(result.getMsgFoundList());
                }
                offset = result.getNextBeginOffset();
            }
        }
        return found.shown();
    }

    /** The pull consumer leaves it to its user to ask again when a broker went away under it. */
    private static PullResult pull(DefaultMQPullConsumer puller, MessageQueue queue, String tags, long offset)
            throws Exception {
        for (int left = RETRIES;; left--) {
            try {
                return puller.pull(queue, tags, offset, PULL);
            } catch (RemotingException error) {
                if (left == 0) {
                    throw error;
                }
                Thread.sleep(RETRY_MS);
            }
        }
    }

    /** All of a topic with the lite pull consumer of a group, which commits what it had. */
    private Map<String, ?> poll(Lines.Arguments given) throws Exception {
        DefaultLitePullConsumer poller = new DefaultLitePullConsumer(given.text("group"));
        clients.configure(poller, given.text("ns"));
        poller.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        poller.setAutoCommit(false);
        poller.subscribe(given.text("topic"), given.text("tags", "*"));
        clients.betweenHeartbeats(poller, given.text("ns"), poller::start);
        try {
            Messages.Received found = new Messages.Received();
            int missing = given.count("count");
            long end = System.nanoTime() + (long) (given.seconds("seconds") * 1e9);
            while (missing > 0 && System.nanoTime() < end) {
                List<MessageExt> messages = poller.poll(200);
                found.add(messages);
                missing -= messages.size();
            }
            poller.commit();
            return found.shown();
        } finally {
            clients.betweenHeartbeats(poller, given.text("ns"), poller::shutdown);
        }
    }

    /** A push consumer that runs until it is taken away. */
    private Map<String, ?> subscribe(Lines.Arguments given) throws Exception {
        String group = given.text("group");
        Messages.Received found = new Messages.Received();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        clients.configure(consumer, given.text("ns"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // By default it leaves without waiting for the listener's last return, and that batch stays uncommitted.
        consumer.setAwaitTerminationMillisWhenShutdown(AWAIT_LISTENER_MS);
        consumer.subscribe(given.text("topic"), given.text("tags", "*"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            found.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        received.put(group, found);
        pushed.put(group, consumer);
        clients.betweenHeartbeats(consumer, given.text("ns"), consumer::start);
        return Map.of();
    }

    private Map<String, ?> received(Lines.Arguments given) throws Exception {
        Messages.Received found = received.get(given.text("group"));
        found.await(given.count("count"), given.seconds("seconds"));
        return found.shown();
    }

    /** Leaves in order: what was consumed is committed. */
    private Map<String, ?> unsubscribe(Lines.Arguments given) throws Exception {
        DefaultMQPushConsumer consumer = pushed.remove(given.text("group"));
        clients.betweenHeartbeats(consumer, consumer.getNamesrvAddr(), consumer::shutdown);
        received.remove(given.text("group"));
        return Map.of();
    }

    /** A topic on all masters of a cluster. */
    private Map<String, ?> topic(Lines.Arguments given) throws Exception {
        DefaultMQAdminExt admin = clients.admin(given.text("ns"));
        TopicConfig topic = new TopicConfig(given.text("topic"), given.count("queues"), given.count("queues"));
        for (String master : CommandUtil.fetchMasterAddrByClusterName(admin, given.text("cluster"))) {
            admin.createAndUpdateTopicConfig(master, topic);
        }
        return Map.of();
    }

    /** One admin command as from the command line; what it printed. */
    private Map<String, ?> admin(Lines.Arguments given) throws IllegalAccessException {
        forgetCommands();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(given.text("line").split(" "), null);
        } finally {
            System.out.flush();
            System.setOut(before);
        }
        return Map.of("printed", printed.toString(StandardCharsets.UTF_8));
    }

    /** Some commands keep their client, which cannot be started again: each line is run by commands of its own. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private Map<String, ?> forget(Lines.Arguments given) {
        clients.forget(given.text("ns"));
        return Map.of();
    }

    static int code(Throwable error) {
        if (error instanceof MQBrokerException refused) {
            return refused.getResponseCode();
        }
        return error instanceof MQClientException failed ? failed.getResponseCode() : 0;
    }

    public static void main(String[] arguments) throws Exception {
        // A new consumer gets its queues at once, not in the second after the last division.
        System.setProperty("rocketmq.client.rebalance.minInterval", "20");
        PrintStream out = System.out;
        System.setOut(System.err); // Admin clients print what they do.
        Lines.serve(verbs(), Driver::code, out);
    }
}
