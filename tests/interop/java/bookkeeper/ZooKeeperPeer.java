import java.io.File;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** A ZooKeeper server on a free loopback port; {@code format} makes a new cluster in it, as the original's command does. */
final class ZooKeeperPeer {
    private ZooKeeperPeer() {}

    static int start(String folder, int tickMs) throws Exception {
        ZooKeeperServer server = new ZooKeeperServer(new File(folder), new File(folder), tickMs);
        ServerCnxnFactory doors = ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", 0), 1000);
        doors.startup(server);
        return doors.getLocalPort();
    }

    static void format(String uri) throws Exception {
        ServerConfiguration settings = new ServerConfiguration();
        settings.setMetadataServiceUri(uri);
        if (!BookKeeperAdmin.initNewCluster(settings)) {
            throw new IllegalStateException("a cluster exists at " + uri);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        int port = start(arguments[0], Integer.parseInt(arguments[1]));
        Lines.serve(Map.of(
                "port", given -> Map.of("port", port),
                "format", given -> {
                    format(given.text("uri"));
                    return Map.of();
                }), Driver::code, out);
    }
}
