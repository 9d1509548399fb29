import java.util.HexFormat;

/** Bytes as hexadecimal text. */
final class Hex {
    private Hex() {}

    static String encode(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static byte[] decode(String text) {
        return HexFormat.of().parseHex(text);
    }
}
