import java.io.IOException;

/** Ends this process when its standard input does, so that no server outlives the test that started it. */
final class Leash {
    private Leash() {}

    static void wear() {
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
    }
}
