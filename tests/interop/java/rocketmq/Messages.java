import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that any side can make and check again: number i of a seed has a body, a tag and a key of its own. */
final class Messages {
    static final String NUMBER = "number";
    private static final String[] TAGS = {"red", "green", "blue"};

    private Messages() {}

    static Message message(String topic, long seed, long number, int size) {
        Message message = new Message(topic, TAGS[(int) (number % TAGS.length)], "k" + seed + "-" + number,
                Payloads.payload(seed, number, size));
        message.putUserProperty(NUMBER, Long.toString(number));
        return message;
    }

    /** What came, in one hash, whatever the order between queues; and whether each queue kept the order of sending. */
    static final class Received {
        private final List<MessageExt> messages = new ArrayList<>();

        synchronized void add(List<MessageExt> found) {
            messages.addAll(found);
            notifyAll();
        }

        /** Wait until so many are there, or the time is up. */
        synchronized void await(int count, double seconds) throws InterruptedException {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            for (long left = end - System.nanoTime(); messages.size() < count && left > 0; left = end - System.nanoTime()) {
                wait(Math.max(1, left / 1_000_000));
            }
        }

        synchronized Map<String, ?> shown() {
            boolean ordered = true;
            Map<String, Long> last = new HashMap<>();
            List<MessageExt> inPlace = new ArrayList<>(messages);
            inPlace.sort(Comparator.comparingLong(MessageExt::getQueueOffset));
            for (MessageExt message : inPlace) {
                Long before = last.put(message.getBrokerName() + message.getQueueId(), number(message));
                ordered &= before == null || before < number(message);
            }
            messages.sort(Comparator.comparingLong(Received::number));
            Payloads.Content content = new Payloads.Content();
            for (MessageExt message : messages) {
                content.add(number(message), record(message));
            }
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("count", content.count());
            shown.put("sha256", content.hash());
            shown.put("ordered", ordered ? "yes" : "no");
            return shown;
        }

        private static long number(MessageExt message) {
            return Long.parseLong(message.getUserProperty(NUMBER));
        }

        private static byte[] record(MessageExt message) {
            byte[] words = (message.getTags() + " " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
            byte[] record = new byte[message.getBody().length + words.length];
            System.arraycopy(message.getBody(), 0, record, 0, message.getBody().length);
            System.arraycopy(words, 0, record, message.getBody().length, words.length);
            return record;
        }
    }
}
