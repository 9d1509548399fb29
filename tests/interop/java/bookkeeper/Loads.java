import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;

/** Benchmark loads: one thread, a bounded number of requests in flight, a callback for each. */
final class Loads {
    private static final int PAYLOADS = 64;
    private static final int READ_RUN = 1000;
    private static final long READ_BYTES = 4 << 20;

    private final BookKeeper client;
    private final Map<Long, LedgerHandle> writers;
    private final Map<Long, LedgerHandle> readers = new HashMap<>();

    private Loads(BookKeeper client, Map<Long, LedgerHandle> writers) {
        this.client = client;
        this.writers = writers;
    }

    static void verbs(BookKeeper client, Map<Long, LedgerHandle> writers, Map<String, Lines.Verb> verbs) {
        Loads loads = new Loads(client, writers);
        verbs.put("load-adds", loads::adds);
        verbs.put("load-reads", loads::reads);
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

    /** Read a closed ledger from its start, again and again, in runs; digests are checked, payloads are not copied. */
    private Map<String, ?> reads(Lines.Arguments given) throws Exception {
        long ledger = given.number("ledger");
        LedgerHandle reader = readers.get(ledger);
        if (reader == null) {
            reader = client.openLedgerNoRecovery(ledger, BookKeeper.DigestType.CRC32C, new byte[0]);
            readers.put(ledger, reader);
        }
        boolean batch = "yes".equals(given.text("batch", "yes"));
        int window = given.count("window");
        Semaphore free = new Semaphore(window);
        AtomicLong entries = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicInteger failures = new AtomicInteger();
        long last = reader.getLastAddConfirmed();
        long started = System.nanoTime();
        long end = started + (long) (given.seconds("seconds") * 1e9);
        for (long first = 0; System.nanoTime() < end && failures.get() == 0; first = first + READ_RUN > last ? 0 : first + READ_RUN) {
            free.acquire();
            long runLast = Math.min(first + READ_RUN - 1, last);
            (batch ? reader.batchReadAsync(first, (int) (runLast - first + 1), READ_BYTES) : reader.readAsync(first, runLast))
                    .whenComplete((found, failure) -> {
                        if (failure != null) {
                            failures.incrementAndGet();
                        } else {
                            count(found, entries, bytes);
                        }
                        free.release();
                    });
        }
        free.acquire(window);
        double seconds = (System.nanoTime() - started) / 1e9;
        if (failures.get() > 0) {
            throw new IllegalStateException(failures + " reads failed");
        }
        return Map.of("count", entries.get(), "bytes", bytes.get(), "seconds", seconds);
    }

    private static void count(LedgerEntries found, AtomicLong entries, AtomicLong bytes) {
        found.forEach(entry -> {
            entries.incrementAndGet();
            bytes.addAndGet(entry.getEntryBuffer().readableBytes());
        });
        found.close();
    }
}
