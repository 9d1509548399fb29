import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** Payloads that any side can compute again: the SHA-256 of "seed:entry", repeated up to the size. */
final class Payloads {
    private Payloads() {}

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static byte[] payload(long seed, long entry, int size) {
        byte[] block = sha256().digest((seed + ":" + entry).getBytes(StandardCharsets.US_ASCII));
        byte[] payload = new byte[size];
        for (int at = 0; at < size; at += block.length) {
            System.arraycopy(block, 0, payload, at, Math.min(block.length, size - at));
        }
        return payload;
    }

    /** What a read delivered, in one number: the SHA-256 over each entry's id (8 bytes) and payload. */
    static final class Content {
        private final MessageDigest digest = sha256();
        private long count;

        void add(long entry, byte[] payload) {
            digest.update(ByteBuffer.allocate(8).putLong(entry).array());
            digest.update(payload);
            count++;
        }

        long count() {
            return count;
        }

        String hash() {
            return Hex.encode(digest.digest());
        }
    }
}
