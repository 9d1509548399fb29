import org.apache.bookkeeper.server.Main;

/** The original's bookie, unchanged, in a process that ends when its standard input does. */
final class BookiePeer {
    private BookiePeer() {}

    public static void main(String[] arguments) {
        Leash.wear();
        Main.main(new String[] {"--conf", arguments[0]});
    }
}
