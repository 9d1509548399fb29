import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.Main;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/** All roles once in one process, with a short round trip: what it loads is the class-data archive of every later start. */
final class Train {
    private Train() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        Path folder = Path.of(arguments[0]);
        int zooKeeper = ZooKeeperPeer.start(Files.createDirectories(folder.resolve("zookeeper")).toString(), 200);
        String uri = "zk+hierarchical://127.0.0.1:" + zooKeeper + "/ledgers";
        ZooKeeperPeer.format(uri);
        ServerConfiguration settings = new ServerConfiguration();
        settings.loadConf(Path.of(arguments[1]).toUri().toURL());
        settings.setMetadataServiceUri(uri);
        LifecycleComponentStack bookie = Main.buildBookieServer(new BookieConfiguration(settings));
        bookie.start();
        BookKeeper client = Driver.connect(uri, new String[] {"useV2WireProtocol=true"});
        Map<String, Lines.Verb> verbs = Driver.verbs(client);
        Object ledger = verbs.get("create").run(new Lines.Arguments(Map.of("e", "1", "qw", "1", "qa", "1"))).get("ledger");
        String id = ledger.toString();
        verbs.get("append").run(new Lines.Arguments(Map.of("ledger", id, "count", "100", "size", "100", "seed", "1")));
        verbs.get("open").run(new Lines.Arguments(Map.of("ledger", id, "recover", "yes")));
        verbs.get("read").run(new Lines.Arguments(Map.of("ledger", id, "first", "0", "last", "99")));
        verbs.get("batch").run(new Lines.Arguments(Map.of("ledger", id, "first", "0", "count", "9", "bytes", "9999")));
        verbs.get("metadata").run(new Lines.Arguments(Map.of("ledger", id)));
        out.println("trained");
        // A plain exit, not a halt: the archive is written on the way out.
        System.exit(0);
    }
}
