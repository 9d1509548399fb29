import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Clients of the original that sign, of any version: run from its source, with that version's jars. */
public final class Keyed {
    private static RPCHook hook(String accessKey, String secret) {
        return new AclClientRPCHook(new SessionCredentials(accessKey, secret));
    }

    /** Runs the admin commands of standard input, one a line; behind each comes a line of dashes. */
    private static void admin(String accessKey, String secret, PrintStream out) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            for (Field field : MQAdminStartup.class.getDeclaredFields()) {
                if (List.class.isAssignableFrom(field.getType())) {
                    field.setAccessible(true);
                    ((List<?>) field.get(null)).clear();
                }
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, "UTF-8"));
            System.setErr(System.out);
            MQAdminStartup.main0(line.split(" "), hook(accessKey, secret));
            out.print(printed.toString("UTF-8"));
            out.println("-----");
        }
    }

    /** Sends messages and has a consumer of a new group get them; prints how many came of how many. */
    private static void run(String[] given, PrintStream out) throws Exception {
        String nameServer = given[3];
        String topic = given[4];
        int count = Integer.parseInt(given[5]);
        RPCHook hook = hook(given[1], given[2]);
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        CountDownLatch all = new CountDownLatch(count);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(topic + "-group", hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (bodies.add(new String(message.getBody(), StandardCharsets.UTF_8))) {
                    all.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = new DefaultMQProducer("keyed_producer", hook);
        producer.setNamesrvAddr(nameServer);
        producer.start();
        int sent = 0;
        try {
            for (int number = 0; number < count; number++) {
                producer.send(new Message(topic, "tag", ("m" + number).getBytes(StandardCharsets.UTF_8)));
                sent++;
            }
            consumer.start();
            all.await(60, TimeUnit.SECONDS);
            out.println("sent " + sent + " came " + bodies.size());
        } catch (Exception refused) {
            out.println("sent " + sent + " refused " + refused.getMessage().replace('\n', ' '));
        }
        producer.shutdown();
        consumer.shutdown();
    }

    public static void main(String[] given) throws Exception {
        PrintStream out = System.out;
        if (given[0].equals("admin")) {
            admin(given[1], given[2], out);
        } else {
            run(given, out);
        }
        System.exit(0);
    }
}
