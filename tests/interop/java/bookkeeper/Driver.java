import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SortedMap;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;

/**
 * The original client, driven by lines on standard input (see Lines). One process is one client; a ledger's handles are
 * named by its id: one to write, one to read.
 */
final class Driver {
    private final BookKeeper client;
    private final Map<Long, LedgerHandle> writers = new HashMap<>();
    private final Map<Long, LedgerHandle> readers = new HashMap<>();
    private final Map<Long, List<CompletableFuture<Long>>> sent = new HashMap<>();

    private Driver(BookKeeper client) {
        this.client = client;
    }

    static BookKeeper connect(String uri, String[] settings) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(uri);
        configuration.setThrottleValue(0);
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            configuration.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
        }
        return new BookKeeper(configuration);
    }

    static Map<String, Lines.Verb> verbs(BookKeeper client) {
        Driver driver = new Driver(client);
        Map<String, Lines.Verb> verbs = new HashMap<>();
        verbs.put("create", driver::create);
        verbs.put("append", driver::append);
        verbs.put("send", driver::send);
        verbs.put("settle", driver::settle);
        verbs.put("close", driver::close);
        verbs.put("open", driver::open);
        verbs.put("read", driver::read);
        verbs.put("batch", driver::batch);
        verbs.put("metadata", driver::metadata);
        verbs.put("delete", driver::delete);
        verbs.put("ledgers", driver::ledgers);
        verbs.put("bookies", driver::bookies);
        Loads.verbs(driver.writers, verbs);
        Reads.verbs(client, verbs);
        Modes.verbs(client, driver.writers, driver.readers, verbs);
        Follows.verbs(client, driver.writers, verbs);
        return verbs;
    }

    static BookKeeper.DigestType digest(String name) {
        return BookKeeper.DigestType.valueOf("hmac".equals(name) ? "MAC" : name.toUpperCase(Locale.ROOT));
    }

    private Map<String, ?> create(Lines.Arguments given) throws Exception {
        Map<String, byte[]> custom = new TreeMap<>();
        for (String pair : given.text("custom", "").split(",")) {
            if (!pair.isEmpty()) {
                String[] sides = pair.split(":", 2);
                custom.put(new String(Hex.decode(sides[0]), StandardCharsets.UTF_8), Hex.decode(sides[1]));
            }
        }
        LedgerHandle writer = client.createLedger(given.count("e"), given.count("qw"), given.count("qa"),
                digest(given.text("digest", "crc32c")), given.bytes("password"), custom);
        writers.put(writer.getId(), writer);
        return Map.of("ledger", writer.getId());
    }

    private static LedgerHandle known(Map<Long, LedgerHandle> handles, long ledger) {
        LedgerHandle handle = handles.get(ledger);
        if (handle == null) {
            throw new IllegalArgumentException("no handle for ledger " + ledger);
        }
        return handle;
    }

    private Map<String, ?> append(Lines.Arguments given) throws Exception {
        send(given);
        return settle(given);
    }

    /** Hand entries to the client without waiting for any answer. */
    private Map<String, ?> send(Lines.Arguments given) throws Exception {
        long ledger = given.number("ledger");
        LedgerHandle writer = known(writers, ledger);
        List<CompletableFuture<Long>> waiting = sent.computeIfAbsent(ledger, key -> new ArrayList<>());
        for (int i = 0; i < given.count("count"); i++) {
            long entry = writer.getLastAddPushed() + 1;
            CompletableFuture<Long> confirmed = new CompletableFuture<>();
            writer.asyncAddEntry(Payloads.payload(given.number("seed"), entry, given.count("size")),
                    (code, handle, id, context) -> {
                        if (code == BKException.Code.OK) {
                            confirmed.complete(id);
                        } else {
                            confirmed.completeExceptionally(BKException.create(code));
                        }
                    }, null);
            waiting.add(confirmed);
        }
        return Map.of();
    }

    /** Wait for all that was sent: the last entry id, or the first failure. */
    private Map<String, ?> settle(Lines.Arguments given) throws Exception {
        long ledger = given.number("ledger");
        List<CompletableFuture<Long>> waiting = sent.remove(ledger);
        long last = known(writers, ledger).getLastAddConfirmed();
        if (waiting != null) {
            for (CompletableFuture<Long> confirmed : waiting) {
                try {
                    last = confirmed.get();
                } catch (ExecutionException failure) {
                    throw (BKException) failure.getCause();
                }
            }
        }
        return Map.of("last", last);
    }

    private Map<String, ?> close(Lines.Arguments given) throws Exception {
        LedgerHandle writer = known(writers, given.number("ledger"));
        writer.close();
        return Map.of("last", writer.getLastAddConfirmed(), "length", writer.getLength());
    }

    private Map<String, ?> open(Lines.Arguments given) throws Exception {
        long ledger = given.number("ledger");
        byte[] password = given.bytes("password");
        BookKeeper.DigestType digest = digest(given.text("digest", "crc32c"));
        boolean recover = "yes".equals(given.text("recover", "no"));
        long started = System.nanoTime();
        LedgerHandle reader = recover
                ? client.openLedger(ledger, digest, password)
                : client.openLedgerNoRecovery(ledger, digest, password);
        double seconds = (System.nanoTime() - started) / 1e9;
        readers.put(ledger, reader);
        Map<String, Object> opened = new LinkedHashMap<>();
        opened.put("last", reader.getLastAddConfirmed());
        opened.put("closed", reader.isClosed() ? "yes" : "no");
        opened.put("seconds", seconds);
        return opened;
    }

    /** From the handle that opened the ledger, or with {@code by=writer} from the one that writes it. */
    private Map<String, ?> read(Lines.Arguments given) throws Exception {
        boolean own = "writer".equals(given.text("by", "reader"));
        LedgerHandle handle = known(own ? writers : readers, given.number("ledger"));
        return content(handle.readEntries(given.number("first"), given.number("last")));
    }

    private Map<String, ?> batch(Lines.Arguments given) throws Exception {
        LedgerHandle handle = known(readers, given.number("ledger"));
        return content(handle.batchReadEntries(given.number("first"), given.count("count"), given.number("bytes")));
    }

    private static Map<String, ?> content(Enumeration<LedgerEntry> entries) {
        Payloads.Content content = new Payloads.Content();
        while (entries.hasMoreElements()) {
            LedgerEntry entry = entries.nextElement();
            content.add(entry.getEntryId(), entry.getEntry());
        }
        return Map.of("count", content.count(), "sha256", content.hash());
    }

    private Map<String, ?> metadata(Lines.Arguments given) throws Exception {
        LedgerMetadata found = client.getLedgerManager().readLedgerMetadata(given.number("ledger")).get().getValue();
        StringJoiner fragments = new StringJoiner(";");
        SortedMap<Long, ? extends List<BookieId>> ensembles = found.getAllEnsembles();
        ensembles.forEach((first, bookies) -> {
            StringJoiner members = new StringJoiner(",");
            bookies.forEach(bookie -> members.add(bookie.toString()));
            fragments.add(first + "=" + members);
        });
        StringJoiner custom = new StringJoiner(",");
        new TreeMap<>(found.getCustomMetadata()).forEach((key, value) ->
                custom.add(Hex.encode(key.getBytes(StandardCharsets.UTF_8)) + ":" + Hex.encode(value)));
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("e", found.getEnsembleSize());
        shown.put("qw", found.getWriteQuorumSize());
        shown.put("qa", found.getAckQuorumSize());
        shown.put("state", found.getState());
        shown.put("last", found.getLastEntryId());
        shown.put("length", found.getLength());
        String digest = found.getDigestType().toString();
        shown.put("digest", "MAC".equals(digest) ? "hmac" : digest.toLowerCase(Locale.ROOT));
        shown.put("password", Hex.encode(found.getPassword()));
        shown.put("custom", custom);
        shown.put("fragments", fragments);
        shown.put("format", found.getMetadataFormatVersion());
        shown.put("ctoken", found.getCToken());
        shown.put("ctime", found.getCtime());
        return shown;
    }

    private Map<String, ?> delete(Lines.Arguments given) throws Exception {
        client.deleteLedger(given.number("ledger"));
        return Map.of();
    }

    private Map<String, ?> ledgers(Lines.Arguments given) throws Exception {
        StringJoiner ids = new StringJoiner(",");
        // The admin object is a view of this client: closing it would close nothing but itself.
        for (long ledger : new BookKeeperAdmin(client, new ClientConfiguration()).listLedgers()) {
            ids.add(Long.toString(ledger));
        }
        return Map.of("ledgers", ids);
    }

    private Map<String, ?> bookies(Lines.Arguments given) throws Exception {
        StringJoiner ids = new StringJoiner(",");
        new BookKeeperAdmin(client, new ClientConfiguration()).getAvailableBookies().stream()
                .map(BookieId::toString).sorted().forEach(ids::add);
        return Map.of("bookies", ids);
    }

    static int code(Throwable error) {
        return error instanceof BKException known ? known.getCode() : 0;
    }

    public static void main(String[] arguments) throws Exception {
        String[] settings = Arrays.copyOfRange(arguments, 1, arguments.length);
        Lines.serve(verbs(connect(arguments[0], settings)), Driver::code, System.out);
    }
}
