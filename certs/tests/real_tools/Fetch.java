import java.net.URI;

/** Prints a page, or fails with why not: trust comes from the JVM's options. */
public final class Fetch {
    public static void main(String[] args) throws Exception {
        var connection = URI.create(args[0]).toURL().openConnection();
        try (var body = connection.getInputStream()) {
            System.out.write(body.readAllBytes());
        }
        System.out.flush();
    }
}
