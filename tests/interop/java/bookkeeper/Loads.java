import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.LedgerHandle;

/** Benchmark loads that append: one thread, a callback for each entry. */
final class Loads {
    private static final int PAYLOADS = 64;

    private final Map<Long, LedgerHandle> writers;

    private Loads(Map<Long, LedgerHandle> writers) {
        this.writers = writers;
    }

    static void verbs(Map<Long, LedgerHandle> writers, Map<String, Lines.Verb> verbs) {
        Loads loads = new Loads(writers);
        verbs.put("load-adds", loads::adds);
        verbs.put("load-steady", loads::steady);
    }

    /** Append to the open ledger for some seconds (and at most {@code most} entries) and wait for the last answer. */
    private Map<String, ?> adds(Lines.Arguments given) throws Exception {
        LedgerHandle writer = writers.get(given.number("ledger"));
        int window = given.count("window");
        long most = Long.parseLong(given.text("most", "20000000"));
        ByteBuf[] payloads = new ByteBuf[PAYLOADS];
        for (int i = 0; i < PAYLOADS; i++) {
            byte[] payload = Payloads.payload(0, i, given.count("size"));
            payloads[i] = PooledByteBufAllocator.DEFAULT.directBuffer(payload.length).writeBytes(payload);
        }
        Semaphore free = new Semaphore(window);
        AtomicInteger failure = new AtomicInteger();
        Latencies latencies = new Latencies();
        long started = System.nanoTime();
        long end = started + (long) (given.seconds("seconds") * 1e9);
        long count = 0;
        for (long now = started; now < end && count < most && failure.get() == 0; now = System.nanoTime()) {
            free.acquire();
            long sent = System.nanoTime();
            writer.asyncAddEntry(payloads[(int) (count++ % PAYLOADS)].retainedDuplicate(), (code, handle, id, context) -> {
                latencies.add(System.nanoTime() - sent);
                if (code != BKException.Code.OK) {
                    failure.compareAndSet(0, code);
                }
                free.release();
            }, null);
        }
        free.acquire(window);
        double seconds = (System.nanoTime() - started) / 1e9;
        Arrays.stream(payloads).forEach(ByteBuf::release);
        if (failure.get() != 0) {
            throw BKException.create(failure.get());
        }
        return Map.of("count", count, "seconds", seconds, "p50", latencies.at(0.5), "p99", latencies.at(0.99));
    }

    /** Append at a steady rate; each append is timed from when it was due. */
    private Map<String, ?> steady(Lines.Arguments given) throws Exception {
        LedgerHandle writer = writers.get(given.number("ledger"));
        byte[] payload = Payloads.payload(0, 0, given.count("size"));
        ByteBuf data = PooledByteBufAllocator.DEFAULT.directBuffer(payload.length).writeBytes(payload);
        long gap = 1_000_000_000L / given.count("rate");
        int total = (int) (given.count("rate") * given.seconds("seconds"));
        Semaphore answered = new Semaphore(0);
        AtomicInteger failure = new AtomicInteger();
        Latencies latencies = new Latencies();
        long started = System.nanoTime();
        for (int number = 0; number < total; number++) {
            long due = started + number * gap;
            for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            writer.asyncAddEntry(data.retainedDuplicate(), (code, handle, id, context) -> {
                latencies.add(System.nanoTime() - due);
                if (code != BKException.Code.OK) {
                    failure.compareAndSet(0, code);
                }
                answered.release();
            }, null);
        }
        answered.acquire(total);
        double seconds = (System.nanoTime() - started) / 1e9;
        data.release();
        if (failure.get() != 0) {
            throw BKException.create(failure.get());
        }
        return Map.of("count", total, "seconds", seconds, "p50", latencies.at(0.5), "p99", latencies.at(0.99));
    }
}
