import java.io.IOException;
import org.apache.bookkeeper.server.Main;

/** The original's bookie, unchanged, in a process that ends when its standard input does. */
final class BookiePeer {
    private BookiePeer() {}

    public static void main(String[] arguments) {
        Thread leash = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException closed) {
                // As good as its end.
            }
            Runtime.getRuntime().halt(0);
        });
        leash.setDaemon(true);
        leash.start();
        Main.main(new String[] {"--conf", arguments[0]});
    }
}
