import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The line protocol between a test and a peer: one request a line ({@code verb key=value …}), one answer a line
 * ({@code ok key=value …} or {@code error code=… message=…}), values percent-encoded. Our own client's driver program
 * speaks the same, so a test need not know which kind it talks to.
 */
final class Lines {
    /** The original's number for the reason of a failure; 0 where it has none. */
    interface Codes {
        int of(Throwable error);
    }

    /** What one verb does. */
    interface Verb {
        Map<String, ?> run(Arguments arguments) throws Exception;
    }

    /** The arguments of one request. */
    static final class Arguments {
        private final Map<String, String> values;

        Arguments(Map<String, String> values) {
            this.values = values;
        }

        String text(String name) {
            String value = values.get(name);
            if (value == null) {
                throw new IllegalArgumentException("missing argument " + name);
            }
            return value;
        }

        String text(String name, String otherwise) {
            return values.getOrDefault(name, otherwise);
        }

        long number(String name) {
            return Long.parseLong(text(name));
        }

        int count(String name) {
            return Integer.parseInt(text(name));
        }

        double seconds(String name) {
            return Double.parseDouble(text(name));
        }

        byte[] bytes(String name) {
            return Hex.decode(text(name, ""));
        }
    }

    private Lines() {}

    /** Answer requests from standard input until it ends; then the process ends, so no peer outlives its test. */
    static void serve(Map<String, Verb> verbs, Codes codes, PrintStream out) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(verbs, codes, line.strip().split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(Map<String, Verb> verbs, Codes codes, String[] words) {
        try {
            Verb verb = verbs.get(words[0]);
            if (verb == null) {
                throw new IllegalArgumentException("unknown verb " + words[0]);
            }
            return line("ok", verb.run(arguments(words)));
        } catch (Exception error) {
            Throwable cause = error.getCause();
            return cause != null && codes.of(cause) != 0 ? failure(codes, cause) : failure(codes, error);
        }
    }

    private static String failure(Codes codes, Throwable error) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("code", codes.of(error));
        shown.put("message", error.toString());
        return line("error", shown);
    }

    private static Arguments arguments(String[] words) {
        Map<String, String> values = new LinkedHashMap<>();
        for (int i = 1; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            values.put(words[i].substring(0, equals), URLDecoder.decode(words[i].substring(equals + 1), StandardCharsets.UTF_8));
        }
        return new Arguments(values);
    }

    private static String line(String status, Map<String, ?> values) {
        StringBuilder line = new StringBuilder(status);
        values.forEach((key, value) -> line.append(' ').append(key).append('=')
                .append(URLEncoder.encode(String.valueOf(value), StandardCharsets.UTF_8)));
        return line.toString();
    }
}
