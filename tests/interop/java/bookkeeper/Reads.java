import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;

/** Benchmark loads that read closed ledgers: digests are checked, payloads are not copied. */
final class Reads {
    private static final int RUN = 1000;
    private static final long RUN_BYTES = 4 << 20;

    private final BookKeeper client;
    private final Map<Long, LedgerHandle> readers = new HashMap<>();

    private Reads(BookKeeper client) {
        this.client = client;
    }

    static void verbs(BookKeeper client, Map<String, Lines.Verb> verbs) {
        Reads reads = new Reads(client);
        verbs.put("load-reads", reads::sequential);
        verbs.put("load-random", reads::random);
        verbs.put("load-readers", reads::eachItsOwn);
    }

    /** What came back, of many reads at once. */
    private static final class Outcome {
        private final AtomicLong entries = new AtomicLong();
        private final AtomicLong bytes = new AtomicLong();
        private final AtomicInteger failures = new AtomicInteger();
        private final Latencies latencies = new Latencies();
        private final long started = System.nanoTime();

        void add(LedgerEntries found, Throwable failure) {
            if (failure != null) {
                failures.incrementAndGet();
                return;
            }
            found.forEach(entry -> {
                entries.incrementAndGet();
                bytes.addAndGet(entry.getEntryBuffer().readableBytes());
            });
            found.close();
        }

        boolean goesOn(long end) {
            return System.nanoTime() < end && failures.get() == 0;
        }

        Map<String, ?> shown() {
            double seconds = (System.nanoTime() - started) / 1e9;
            if (failures.get() > 0) {
                throw new IllegalStateException(failures + " reads failed");
            }
            return Map.of("count", entries.get(), "bytes", bytes.get(), "seconds", seconds,
                    "p50", latencies.at(0.5), "p99", latencies.at(0.99));
        }
    }

    private LedgerHandle reader(long ledger) throws InterruptedException, BKException {
        LedgerHandle reader = readers.get(ledger);
        if (reader == null) {
            reader = client.openLedgerNoRecovery(ledger, BookKeeper.DigestType.CRC32C, new byte[0]);
            readers.put(ledger, reader);
        }
        return reader;
    }

    private static CompletableFuture<LedgerEntries> run(LedgerHandle reader, long first, boolean batch) {
        long last = Math.min(first + RUN - 1, reader.getLastAddConfirmed());
        return batch ? reader.batchReadAsync(first, (int) (last - first + 1), RUN_BYTES) : reader.readAsync(first, last);
    }

    /** A ledger from its start, in runs, {@code window} of them in flight; once, or again and again for some seconds. */
    private Map<String, ?> sequential(Lines.Arguments given) throws Exception {
        LedgerHandle reader = reader(given.number("ledger"));
        boolean batch = "yes".equals(given.text("batch", "yes"));
        boolean once = "yes".equals(given.text("once", "no"));
        int window = given.count("window");
        Semaphore free = new Semaphore(window);
        Outcome outcome = new Outcome();
        long last = reader.getLastAddConfirmed();
        long end = outcome.started + (long) (given.seconds("seconds") * 1e9);
        for (long first = 0; outcome.goesOn(end) && !(once && first > last); first += RUN) {
            first = first > last ? 0 : first;
            free.acquire();
            run(reader, first, batch).whenComplete((found, failure) -> {
                outcome.add(found, failure);
                free.release();
            });
        }
        free.acquire(window);
        return outcome.shown();
    }

    /** Single entries of a ledger, {@code window} of them in flight. */
    private Map<String, ?> random(Lines.Arguments given) throws Exception {
        LedgerHandle reader = reader(given.number("ledger"));
        Random chance = new Random(given.number("seed"));
        int window = given.count("window");
        Semaphore free = new Semaphore(window);
        Outcome outcome = new Outcome();
        long end = outcome.started + (long) (given.seconds("seconds") * 1e9);
        while (outcome.goesOn(end)) {
            free.acquire();
            long began = System.nanoTime();
            long entry = (long) (chance.nextDouble() * (reader.getLastAddConfirmed() + 1));
            reader.readAsync(entry, entry).whenComplete((found, failure) -> {
                outcome.latencies.add(System.nanoTime() - began);
                outcome.add(found, failure);
                free.release();
            });
        }
        free.acquire(window);
        return outcome.shown();
    }

    /** Many ledgers at the same time, each from its start, again and again, with one run in flight. */
    private Map<String, ?> eachItsOwn(Lines.Arguments given) throws Exception {
        List<LedgerHandle> handles = new ArrayList<>();
        for (String ledger : given.text("ledger").split(",")) {
            handles.add(reader(Long.parseLong(ledger)));
        }
        CountDownLatch open = new CountDownLatch(handles.size());
        Outcome outcome = new Outcome();
        long end = outcome.started + (long) (given.seconds("seconds") * 1e9);
        handles.forEach(handle -> next(handle, 0, end, outcome, open));
        open.await();
        return outcome.shown();
    }

    private static void next(LedgerHandle reader, long first, long end, Outcome outcome, CountDownLatch open) {
        if (!outcome.goesOn(end)) {
            open.countDown();
            return;
        }
        long after = first + RUN > reader.getLastAddConfirmed() ? 0 : first + RUN;
        run(reader, first, true).whenComplete((found, failure) -> {
            outcome.add(found, failure);
            next(reader, after, end, outcome, open);
        });
    }
}
