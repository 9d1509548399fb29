import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The original's clients, one of a kind for each name server and made when first asked for. */
final class Clients {
    private static final int TIMEOUT_MS = 30_000;

    /** What starts or ends a consumer. */
    interface Step {
        void run() throws MQClientException;
    }

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullers = new HashMap<>();
    private final Map<String, DefaultMQAdminExt> admins = new HashMap<>();
    private final Map<String, Integer> lives = new HashMap<>();

    DefaultMQProducer producer(String nameServer) throws MQClientException {
        DefaultMQProducer producer = producers.get(nameServer);
        if (producer == null) {
            producer = new DefaultMQProducer("interop_producer");
            configure(producer, nameServer);
            producer.setSendMsgTimeout(TIMEOUT_MS);
            // A retry may store a message twice; a test wants to see the failure instead.
            producer.setRetryTimesWhenSendFailed(0);
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.setCompressMsgBodyOverHowmuch(8 << 20);
            producer.setMaxMessageSize(8 << 20);
            producer.start();
            producers.put(nameServer, producer);
        }
        return producer;
    }

    DefaultMQPullConsumer puller(String nameServer) throws MQClientException {
        DefaultMQPullConsumer puller = pullers.get(nameServer);
        if (puller == null) {
            puller = new DefaultMQPullConsumer("interop_puller");
            configure(puller, nameServer);
            puller.start();
            pullers.put(nameServer, puller);
        }
        return puller;
    }

    DefaultMQAdminExt admin(String nameServer) throws MQClientException {
        DefaultMQAdminExt admin = admins.get(nameServer);
        if (admin == null) {
            admin = new DefaultMQAdminExt();
            configure(admin, nameServer);
            admin.start();
            admins.put(nameServer, admin);
        }
        return admin;
    }

    /**
     * Starts or ends a consumer while no heartbeat of its client is on its way. A broker that handles one after the
     * farewell, as a newly started original may, counts a member that nobody is for two minutes. A started one is
     * made known at once: the lite pull consumer leaves that to the next heartbeat.
     */
    void betweenHeartbeats(ClientConfig consumer, String nameServer, Step step) throws Exception {
        producer(nameServer); // It keeps the shared client, and so its connections, alive between two consumers.
        Field field = MQClientInstance.class.getDeclaredField("lockHeartbeat");
        field.setAccessible(true);
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(consumer);
        Lock heartbeats = (Lock) field.get(client);
        heartbeats.lock();
        try {
            step.run();
            client.sendHeartbeatToAllBrokerWithLock();
            client.rebalanceImmediately();
        } finally {
            heartbeats.unlock();
        }
    }

    /** Clients of one name in a process share connections and routes: so each name server has a name of its own. */
    void configure(ClientConfig client, String nameServer) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("interop-" + nameServer.replace(':', '-') + "-" + lives.getOrDefault(nameServer, 0));
        // Else the lite pull consumer's name is another than the producer's.
        client.setEnableStreamRequestType(false);
        // The default of 30 s is how long a client takes to learn that a master is gone or back.
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
    }

    /**
     * All that were made for one name server: it may be gone, and its clients would ask it for ever. Their end may take
     * three seconds, so nobody waits for it, and those that come after it have another name.
     */
    void forget(String nameServer) {
        List<Runnable> ends = new ArrayList<>();
        DefaultMQProducer producer = producers.remove(nameServer);
        DefaultMQPullConsumer puller = pullers.remove(nameServer);
        DefaultMQAdminExt admin = admins.remove(nameServer);
        if (producer != null) {
            ends.add(producer::shutdown);
        }
        if (puller != null) {
            ends.add(puller::shutdown);
        }
        if (admin != null) {
            ends.add(admin::shutdown);
        }
        lives.merge(nameServer, 1, Integer::sum);
        Thread end = new Thread(() -> ends.forEach(Runnable::run));
        end.setDaemon(true);
        end.start();
    }
}
