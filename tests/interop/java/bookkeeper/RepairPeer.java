import java.io.File;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AuditorElector;
import org.apache.bookkeeper.replication.ReplicationWorker;

/** One half of the original's AutoRecovery, unchanged: "auditor" or "worker" of the configuration file. */
final class RepairPeer {
    private RepairPeer() {}

    public static void main(String[] arguments) throws Exception {
        Leash.wear();
        ServerConfiguration configuration = new ServerConfiguration();
        configuration.loadConf(new File(arguments[1]).toURI().toURL());
        if (arguments[0].equals("auditor")) {
            new AuditorElector("127.0.0.1:1", configuration).start().get();
        } else {
            new ReplicationWorker(configuration).start();
        }
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
