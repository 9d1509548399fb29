import org.apache.rocketmq.namesrv.NamesrvStartup;

/** The original's name server, unchanged, in a process that ends when its standard input does. */
final class NameServerPeer {
    private NameServerPeer() {}

    public static void main(String[] arguments) {
        Leash.wear();
        NamesrvStartup.main(new String[] {"-c", arguments[0]});
    }
}
