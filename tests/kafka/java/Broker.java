import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A Kafka broker that is its own controller: {@code Broker CONFIG STORAGE}. It ends when its standard input does. */
public final class Broker {
    private Broker() {}

    public static void main(String[] args) throws Exception {
        dieWithParent();
        if (!Files.exists(Path.of(args[1], "meta.properties"))) {
            String cluster = org.apache.kafka.common.Uuid.randomUuid().toString();
            List<String> format = new ArrayList<>(List.of("format", "-t", cluster, "-c", args[0]));
            int code = kafka.tools.StorageTool.execute(format.toArray(String[]::new), System.err);
            if (code != 0) {
                System.exit(code);
            }
        }
        kafka.Kafka.main(new String[] {args[0]});
    }

    /** Whoever started this process holds the other end of its input, and lets go of it even when it is killed. */
    static void dieWithParent() {
        Thread thread = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException ended) {
                System.err.println(ended);
            }
            Runtime.getRuntime().halt(0);
        });
        thread.setDaemon(true);
        thread.start();
    }
}
