import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** The original's clients, one of a kind for each name server and made when first asked for. */
final class Clients {
    private static final int TIMEOUT_MS = 30_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullers = new HashMap<>();

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

    /** Clients of one name in a process share connections and routes: so each name server has a name of its own. */
    static void configure(ClientConfig client, String nameServer) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("interop-" + nameServer.replace(':', '-'));
        // The default of 30 s is how long a client takes to learn that a master is gone or back.
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
    }

    /** All that were made for one name server: it may be gone, and its clients would ask it for ever. */
    void forget(String nameServer) {
        List<Runnable> ends = new ArrayList<>();
        DefaultMQProducer producer = producers.remove(nameServer);
        DefaultMQPullConsumer puller = pullers.remove(nameServer);
        if (producer != null) {
            ends.add(producer::shutdown);
        }
        if (puller != null) {
            ends.add(puller::shutdown);
        }
        ends.forEach(Runnable::run);
    }
}
