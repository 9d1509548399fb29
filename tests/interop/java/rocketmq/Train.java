import java.io.PrintStream;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/** All roles once in one process, with a short round trip: what it loads is the class-data archive of every later start. */
final class Train {
    private Train() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        NamesrvStartup.main0(new String[] {"-c", arguments[0]});
        BrokerStartup.start(BrokerStartup.createBrokerController(new String[] {"-c", arguments[1]}));
        String nameServer = arguments[2];
        Map<String, Lines.Verb> verbs = Driver.verbs();
        verbs.get("admin").run(new Lines.Arguments(Map.of("line", "updateTopic -n " + nameServer + " -c interop -t Train -w 4")));
        for (String how : new String[] {"sync", "async", "batch", "oneway"}) {
            verbs.get("send").run(new Lines.Arguments(Map.of("ns", nameServer, "topic", "Train", "seed", "1", "first", "0",
                    "count", "50", "size", "100", "how", how)));
        }
        verbs.get("pull").run(new Lines.Arguments(Map.of("ns", nameServer, "topic", "Train", "from", "0")));
        out.println("trained");
        // An orderly exit would take many seconds; this one skips the original's own end, and the archive is still written.
        Runtime.getRuntime().halt(0);
    }
}
