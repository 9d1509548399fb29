import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;

/** Benchmark loads of one who follows an open ledger, and of syncs that are forced. */
final class Follows {
    private static final int POLL_MS = 5000;
    private static final long PATIENCE_S = 60;

    private final BookKeeper client;
    private final Map<Long, LedgerHandle> writers;

    private Follows(BookKeeper client, Map<Long, LedgerHandle> writers) {
        this.client = client;
        this.writers = writers;
    }

    static void verbs(BookKeeper client, Map<Long, LedgerHandle> writers, Map<String, Lines.Verb> verbs) {
        Follows follows = new Follows(client, writers);
        verbs.put("load-follow", follows::follow);
        verbs.put("load-force", follows::force);
    }

    /** Append an entry each {@code pause} milliseconds, and follow: how long after its append each one came. */
    private Map<String, ?> follow(Lines.Arguments given) throws Exception {
        LedgerHandle writer = writers.get(given.number("ledger"));
        LedgerHandle reader = client.openLedgerNoRecovery(writer.getId(), BookKeeper.DigestType.CRC32C, new byte[0]);
        Map<Long, Long> sentAt = new ConcurrentHashMap<>();
        Latencies latencies = new Latencies();

        CompletableFuture<Void> all = new CompletableFuture<>();
        long count = (long) (given.seconds("seconds") * 1000 / given.number("pause"));
        byte[] payload = Payloads.payload(1, 0, given.count("size"));
        long first = writer.addEntry(payload) + 1;  // a bookie refuses polls of a ledger of which it has nothing
        poll(reader, first, first + count, sentAt, latencies, all);
        long started = System.nanoTime();
        for (long entry = first; entry < first + count; entry++) {
            sentAt.put(entry, System.nanoTime());
            writer.addEntry(payload);
            Thread.sleep(given.number("pause"));
        }
        all.get(PATIENCE_S, TimeUnit.SECONDS);
        double seconds = (System.nanoTime() - started) / 1e9;
        reader.close();
        return Map.of("count", count, "seconds", seconds, "p50", latencies.at(0.5), "p99", latencies.at(0.99));
    }

    private void poll(LedgerHandle reader, long entry, long end, Map<Long, Long> sentAt, Latencies latencies,
            CompletableFuture<Void> all) {
        if (entry == end) {
            all.complete(null);
            return;
        }
        reader.asyncReadLastConfirmedAndEntry(entry, POLL_MS, true, (code, lac, found, context) -> {
            if (code != BKException.Code.OK) {
                all.completeExceptionally(BKException.create(code));
                return;
            }
            long next = entry;
            if (found != null) {
                latencies.add(System.nanoTime() - sentAt.get(found.getEntryId()));
                next = found.getEntryId() + 1;
            }
            poll(reader, next, end, sentAt, latencies, all);
        }, null);
    }

    /** Add entries without a sync and force them, again and again: how long one such round takes. */
    private Map<String, ?> force(Lines.Arguments given) throws Exception {
        LedgerHandle writer = writers.get(given.number("ledger"));
        byte[] payload = Payloads.payload(1, 0, given.count("size"));
        Latencies latencies = new Latencies();
        int window = given.count("window");
        long count = 0;
        long started = System.nanoTime();
        long end = started + (long) (given.seconds("seconds") * 1e9);
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            CompletableFuture<?>[] added = new CompletableFuture<?>[window];
            for (int i = 0; i < window; i++) {
                added[i] = writer.appendAsync(payload);
            }
            CompletableFuture.allOf(added).get(PATIENCE_S, TimeUnit.SECONDS);
            writer.force().get(PATIENCE_S, TimeUnit.SECONDS);
            latencies.add(System.nanoTime() - began);
            count += window;
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        return Map.of("count", count, "seconds", seconds, "p50", latencies.at(0.5), "p99", latencies.at(0.99));
    }
}
