import org.apache.rocketmq.broker.BrokerStartup;

/** The original's broker, unchanged, in a process that ends when its standard input does. */
final class BrokerPeer {
    private BrokerPeer() {}

    public static void main(String[] arguments) {
        Leash.wear();
        BrokerStartup.main(new String[] {"-c", arguments[0]});
    }
}
