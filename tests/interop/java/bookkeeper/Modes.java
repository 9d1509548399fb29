import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.LedgerHandleAdv;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

/** What only version 3 of the protocol has: deferred adds and force, explicit LACs, long polls, lists of entries. */
final class Modes {
    private static final long PATIENCE_S = 60;

    private final BookKeeper client;
    private final Map<Long, LedgerHandle> writers;
    private final Map<Long, LedgerHandle> readers;

    private Modes(BookKeeper client, Map<Long, LedgerHandle> writers, Map<Long, LedgerHandle> readers) {
        this.client = client;
        this.writers = writers;
        this.readers = readers;
    }

    static void verbs(BookKeeper client, Map<Long, LedgerHandle> writers, Map<Long, LedgerHandle> readers,
            Map<String, Lines.Verb> verbs) {
        Modes modes = new Modes(client, writers, readers);
        verbs.put("create-mode", modes::create);
        verbs.put("add-given", modes::addGiven);
        verbs.put("force", modes::force);
        verbs.put("lac", modes::lac);
        verbs.put("poll", modes::poll);
        verbs.put("stored", modes::stored);
        verbs.put("space", modes::space);
    }

    /** A ledger with {@code deferred=yes}, or whose ids are given: of entries with {@code given=yes}, its own with {@code id}. */
    private Map<String, ?> create(Lines.Arguments given) throws Exception {
        CreateBuilder builder = client.newCreateLedgerOp().withEnsembleSize(given.count("e"))
                .withWriteQuorumSize(given.count("qw")).withAckQuorumSize(given.count("qa"))
                .withDigestType(DigestType.CRC32C).withPassword(given.bytes("password"));
        if ("yes".equals(given.text("deferred", "no"))) {
            builder = builder.withWriteFlags(WriteFlag.DEFERRED_SYNC);
        }
        String id = given.text("id", "");
        CompletableFuture<?> made;
        if ("yes".equals(given.text("given", "no")) || !id.isEmpty()) {
            made = (id.isEmpty() ? builder.makeAdv() : builder.makeAdv().withLedgerId(Long.parseLong(id))).execute();
        } else {
            made = builder.execute();
        }
        LedgerHandle writer = (LedgerHandle) result(made);
        writers.put(writer.getId(), writer);
        return Map.of("ledger", writer.getId());
    }

    /** Add entries with these ids, in this order, and wait for all of them. */
    private Map<String, ?> addGiven(Lines.Arguments given) throws Exception {
        LedgerHandleAdv writer = (LedgerHandleAdv) writers.get(given.number("ledger"));
        List<CompletableFuture<Long>> waiting = new ArrayList<>();
        for (String id : given.text("entries").split(",")) {
            long entry = Long.parseLong(id);
            CompletableFuture<Long> added = new CompletableFuture<>();
            writer.asyncAddEntry(entry, Payloads.payload(given.number("seed"), entry, given.count("size")),
                    (code, handle, added_id, context) -> {
                        if (code == BKException.Code.OK) {
                            added.complete(added_id);
                        } else {
                            added.completeExceptionally(BKException.create(code));
                        }
                    }, null);
            waiting.add(added);
        }
        for (CompletableFuture<Long> added : waiting) {
            result(added);
        }
        return Map.of("last", writer.getLastAddConfirmed());
    }

    private Map<String, ?> force(Lines.Arguments given) throws Exception {
        LedgerHandle writer = writers.get(given.number("ledger"));
        result(writer.force());
        return Map.of("last", writer.getLastAddConfirmed());
    }

    /** The LAC as a reader is told it now; {@code explicit=yes}: the one that the writer has sent by itself. */
    private Map<String, ?> lac(Lines.Arguments given) throws Exception {
        LedgerHandle reader = readers.get(given.number("ledger"));
        boolean explicit = "yes".equals(given.text("explicit", "no"));
        return Map.of("last", explicit ? reader.readExplicitLastConfirmed() : reader.readLastConfirmed());
    }

    /** Wait for an entry of an open ledger: by long poll where the protocol has it. */
    private Map<String, ?> poll(Lines.Arguments given) throws Exception {
        LedgerHandle reader = readers.get(given.number("ledger"));
        CompletableFuture<Map<String, ?>> polled = new CompletableFuture<>();
        reader.asyncReadLastConfirmedAndEntry(given.number("entry"), given.number("milliseconds"), false,
                (code, lac, entry, context) -> {
                    if (code != BKException.Code.OK) {
                        polled.completeExceptionally(BKException.create(code));
                        return;
                    }
                    Payloads.Content content = new Payloads.Content();
                    if (entry != null) {
                        content.add(entry.getEntryId(), entry.getEntry());
                    }
                    Map<String, Object> told = new LinkedHashMap<>();
                    told.put("last", lac);
                    told.put("count", content.count());
                    told.put("sha256", content.hash());
                    polled.complete(told);
                }, null);
        return result(polled);
    }

    /** Which entries a bookie has of a ledger, as ranges. */
    private Map<String, ?> stored(Lines.Arguments given) throws Exception {
        BookKeeperAdmin admin = new BookKeeperAdmin(client, new ClientConfiguration());
        AvailabilityOfEntriesOfLedger held = result(admin.asyncGetListOfEntriesOfLedger(
                BookieId.parse(given.text("bookie")), given.number("ledger")));
        StringJoiner ranges = new StringJoiner(",");
        long first = -1;
        for (long entry = 0; entry <= given.number("most") + 1; entry++) {
            boolean is = entry <= given.number("most") && held.isEntryAvailable(entry);
            if (is && first < 0) {
                first = entry;
            } else if (!is && first >= 0) {
                ranges.add(first + "-" + (entry - 1));
                first = -1;
            }
        }
        return Map.of("ranges", ranges, "count", held.getTotalNumOfAvailableEntries());
    }

    /** Free and total bytes of the bookies' disks. */
    private Map<String, ?> space(Lines.Arguments given) throws Exception {
        Map<String, Object> bytes = new TreeMap<>();
        new HashMap<>(client.getBookieInfo()).forEach((bookie, info) ->
                bytes.put(bookie.toString(), info.getFreeDiskSpace() + "/" + info.getTotalDiskSpace()));
        return bytes;
    }

    @SuppressWarnings("unchecked")
    private static <T> T result(CompletableFuture<?> future) throws Exception {
        try {
            return (T) future.get(PATIENCE_S, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException failure) {
            throw failure.getCause() instanceof Exception known ? known : failure;
        }
    }
}
