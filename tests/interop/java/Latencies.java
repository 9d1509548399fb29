import java.util.Arrays;

/** The newest latencies: enough for percentiles, and no memory that grows with the run. */
final class Latencies {
    private final long[] kept = new long[1 << 18];
    private long seen;

    synchronized void add(long nanoseconds) {
        // Overwrites from the start once full: the last quarter million answers count.
        kept[(int) (seen++ % kept.length)] = nanoseconds;
    }

    /** In milliseconds. */
    synchronized double at(double share) {
        long[] sorted = Arrays.copyOf(kept, (int) Math.min(seen, kept.length));
        Arrays.sort(sorted);
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, share * sorted.length)] / 1e6;
    }
}
