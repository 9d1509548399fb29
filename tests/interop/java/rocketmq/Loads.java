import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.consumer.PullAPIWrapper;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Benchmark loads: sends by threads, by callbacks or in batches, and pulls over a whole topic. */
final class Loads {
    private static final int PAYLOADS = 64;
    private static final int PULL = 32;

    private final Clients clients;

    private Loads(Clients clients) {
        this.clients = clients;
    }

    static void verbs(Clients clients, Map<String, Lines.Verb> verbs) {
        Loads loads = new Loads(clients);
        verbs.put("load-sends", loads::sends);
        verbs.put("load-pulls", loads::pulls);
    }

    /** Send for some seconds: {@code window} threads one by one, or as many callbacks open, or batches of {@code batch}. */
    private Map<String, ?> sends(Lines.Arguments given) throws Exception {
        DefaultMQProducer producer = clients.producer(given.text("ns"));
        String topic = given.text("topic");
        byte[][] payloads = new byte[PAYLOADS][];
        for (int i = 0; i < PAYLOADS; i++) {
            payloads[i] = Payloads.payload(0, i, given.count("size"));
        }
        Latencies latencies = new Latencies();
        AtomicLong count = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long most = Long.parseLong(given.text("most", "100000000"));
        long started = System.nanoTime();
        long end = started + (long) (given.seconds("seconds") * 1e9);
        int window = given.count("window");
        int batch = Integer.parseInt(given.text("batch", "1"));
        if ("async".equals(given.text("how"))) {
            Semaphore free = new Semaphore(window);
            while (System.nanoTime() < end && count.get() < most && failure.get() == null) {
                free.acquire();
                byte[] body = payloads[(int) (count.getAndIncrement() % PAYLOADS)];
                producer.send(new Message(topic, body), new Answer(free, latencies, failure));
            }
            free.acquire(window);
        } else {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < window; i++) {
                threads.add(new Thread(() -> {
                    try {
                        while (System.nanoTime() < end && count.get() < most && failure.get() == null) {
                            long sent = System.nanoTime();
                            check(batch > 1 ? producer.send(batch(topic, payloads, batch))
                                    : producer.send(new Message(topic, payloads[(int) (count.get() % PAYLOADS)])));
                            latencies.add(System.nanoTime() - sent);
                            count.addAndGet(batch);
                        }
                    } catch (Exception error) {
                        failure.compareAndSet(null, error);
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return Map.of("count", count.get(), "seconds", seconds, "p50", latencies.at(0.5), "p99", latencies.at(0.99));
    }

    private static List<Message> batch(String topic, byte[][] payloads, int count) {
        List<Message> messages = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            messages.add(new Message(topic, payloads[i % PAYLOADS]));
        }
        return messages;
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.getSendStatus().name());
        }
    }

    private static final class Answer implements SendCallback {
        private final Semaphore free;
        private final Latencies latencies;
        private final AtomicReference<Throwable> failure;
        private final long sent = System.nanoTime();

        Answer(Semaphore free, Latencies latencies, AtomicReference<Throwable> failure) {
            this.free = free;
            this.latencies = latencies;
            this.failure = failure;
        }

        @Override
        public void onSuccess(SendResult result) {
            latencies.add(System.nanoTime() - sent);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                onException(new IllegalStateException(result.getSendStatus().name()));
            } else {
                free.release();
            }
        }

        @Override
        public void onException(Throwable error) {
            failure.compareAndSet(null, error);
            free.release();
        }
    }

    /** One thread reads all queues in turn from their first offsets, again and again, for some seconds; at the master or a slave. */
    private Map<String, ?> pulls(Lines.Arguments given) throws Exception {
        DefaultMQPullConsumer puller = clients.puller(given.text("ns"));
        Set<MessageQueue> queues = puller.fetchSubscribeMessageQueues(given.text("topic"));
        PullAPIWrapper choice = puller.getDefaultMQPullConsumerImpl().getPullAPIWrapper();
        choice.setConnectBrokerByUser(true);
        choice.setDefaultBrokerId("slave".equals(given.text("role")) ? 1 : 0);
        long count = 0;
        long bytes = 0;
        long started = System.nanoTime();
        long end = started + (long) (given.seconds("seconds") * 1e9);
        while (System.nanoTime() < end) {
            for (MessageQueue queue : queues) {
                long offset = 0;
                while (System.nanoTime() < end) {
                    PullResult result = puller.pull(queue, "*", offset, PULL);
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        break;
                    }
                    for (var message : result.getMsgFoundList()) {
                        count++;
                        bytes += message.getBody().length;
                    }
                    offset = result.getNextBeginOffset();
                }
            }
        }
        return Map.of("count", count, "bytes", bytes, "seconds", (System.nanoTime() - started) / 1e9);
    }
}
