import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import org.apache.distributedlog.DLSN;
import org.apache.distributedlog.DistributedLogConfiguration;
import org.apache.distributedlog.LogRecord;
import org.apache.distributedlog.LogRecordWithDLSN;
import org.apache.distributedlog.api.DistributedLogManager;
import org.apache.distributedlog.api.LogReader;
import org.apache.distributedlog.api.LogWriter;
import org.apache.distributedlog.api.namespace.Namespace;
import org.apache.distributedlog.api.namespace.NamespaceBuilder;
import org.apache.distributedlog.impl.metadata.BKDLConfig;
import org.apache.distributedlog.metadata.DLMetadata;

/** DistributedLog over ledgers, driven by lines on standard input (see Lines): logs of records with ascending numbers. */
final class LogPeer {
    private final Namespace namespace;
    private final Map<String, LogWriter> writers = new HashMap<>();

    private LogPeer(Namespace namespace) {
        this.namespace = namespace;
    }

    /** {@code arguments}: ZooKeeper's address, the root of the ledgers in it, "first" where no other peer uses them. */
    public static void main(String[] arguments) throws Exception {
        URI uri = URI.create("distributedlog://" + arguments[0] + "/logs" + arguments[1]);
        if ("first".equals(arguments[2])) {
            DLMetadata.create(new BKDLConfig(arguments[0], arguments[1])).create(uri);
        }
        DistributedLogConfiguration configuration = new DistributedLogConfiguration();
        configuration.setEnsembleSize(3).setWriteQuorumSize(3).setAckQuorumSize(2);
        configuration.setOutputBufferSize(0).setImmediateFlushEnabled(true).setCreateStreamIfNotExists(true);
        LogPeer peer = new LogPeer(
                NamespaceBuilder.newBuilder().conf(configuration).uri(uri).clientId("peer").build());
        Map<String, Lines.Verb> verbs = new HashMap<>();
        verbs.put("write", peer::write);
        verbs.put("close", peer::close);
        verbs.put("read", peer::read);
        Lines.serve(verbs, error -> 0, System.out);
    }

    private Map<String, ?> write(Lines.Arguments given) throws Exception {
        String name = given.text("log");
        LogWriter writer = writers.get(name);
        if (writer == null) {
            writer = namespace.openLog(name).openLogWriter();
            writers.put(name, writer);
        }
        long first = given.number("first");
        long end = first + given.count("count");
        for (long number = first; number < end; number++) {
            writer.write(new LogRecord(number, Payloads.payload(given.number("seed"), number, given.count("size"))));
        }
        writer.flush();
        return Map.of("committed", writer.commit());
    }

    private Map<String, ?> close(Lines.Arguments given) throws Exception {
        writers.remove(given.text("log")).close();
        return Map.of();
    }

    /** Read a log from its beginning, until {@code count} records have come. */
    private Map<String, ?> read(Lines.Arguments given) throws Exception {
        Payloads.Content content = new Payloads.Content();
        try (DistributedLogManager log = namespace.openLog(given.text("log"));
                LogReader reader = log.openLogReader(DLSN.InitialDLSN)) {
            long end = System.nanoTime() + 30_000_000_000L;
            while (content.count() < given.count("count") && System.nanoTime() < end) {
                LogRecordWithDLSN record = reader.readNext(false);
                if (record != null) {
                    content.add(record.getTransactionId(), record.getPayload());
                }
            }
        }
        return Map.of("count", content.count(), "sha256", content.hash());
    }
}
