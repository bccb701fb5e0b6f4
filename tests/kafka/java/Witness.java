import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What the real Kafka Streams answers to the topologies of {@code tests/kafka/topologies.py}, which have these names.
 *
 * <p>{@code Witness DIRECTORY} answers questions until its input ends. A question is a line with the name of a topology
 * and a number, and so many lines, each a record that goes through a TopologyTestDriver. The answer is a line for each
 * record that comes out, and an empty line. {@code Witness DIRECTORY TOPOLOGY BROKER} runs on a broker until its input
 * ends. Fields of a line are separated by tabs: topic, key, value, timestamp and headers. All but the timestamp are
 * base64 of UTF-8, and a null is {@code -}.
 */
public final class Witness {
    private static final ValueJoiner<String, String, String> CONCAT = (left, right) -> left + "-" + right;

    private static final Grouped<String, String> TEXT = Grouped.with(Serdes.String(), Serdes.String());

    private Witness() {}

    public static void main(String[] args) throws Exception {
        if (args.length == 1) {
            answer(args[0]);
        } else {
            Properties config = config(args[0], args[1], args[2]);
            config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
            KafkaStreams streams = new KafkaStreams(topology(args[1]), config);
            streams.start();
            Broker.dieWithParent();
        }
    }

    private static Properties config(String directory, String name, String broker) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "witness-" + name);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        // Records without a partner come out as soon as stream time lets them, whatever the wall clock says.
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        return config;
    }

    private static void answer(String directory) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String question = in.readLine(); question != null; question = in.readLine()) {
            String[] nameAndNumber = question.split("\t");
            List<String> lines = new ArrayList<>();
            while (lines.size() < Integer.parseInt(nameAndNumber[1])) {
                lines.add(in.readLine());
            }
            drive(topology(nameAndNumber[0]), config(directory, nameAndNumber[0], "nowhere:1"), lines, out);
            out.println();
            out.flush();
        }
    }

    private static void drive(Topology topology, Properties config, List<String> lines, PrintStream out) {
        StringSerializer writer = new StringSerializer();
        StringDeserializer reader = new StringDeserializer();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config)) {
            TestOutputTopic<String, String> results = driver.createOutputTopic("out", reader, reader);
            for (String line : lines) {
                String[] fields = line.split("\t", -1);
                RecordHeaders headers = new RecordHeaders();
                for (String header : fields[4].isEmpty() ? new String[0] : fields[4].split(",")) {
                    String[] pair = header.split(":", -1);
                    headers.add(text(pair[0]), bytes(pair[1]));
                }
                driver.createInputTopic(text(fields[0]), writer, writer)
                        .pipeInput(new TestRecord<>(
                                text(fields[1]), text(fields[2]), headers, Long.valueOf(fields[3])));
                while (!results.isEmpty()) {
                    TestRecord<String, String> record = results.readRecord();
                    out.println(String.join(
                            "\t",
                            code("out"),
                            code(record.key()),
                            code(record.value()),
                            String.valueOf(record.timestamp()),
                            code(record.headers())));
                }
            }
        }
    }

    private static byte[] bytes(String field) {
        return field.equals("-") ? null : Base64.getDecoder().decode(field);
    }

    private static String code(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static String text(String field) {
        byte[] bytes = bytes(field);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static String code(String text) {
        return code(text == null ? null : text.getBytes(StandardCharsets.UTF_8));
    }

    private static String code(Headers headers) {
        return StreamSupport.stream(headers.spliterator(), false)
                .map(header -> code(header.key()) + ":" + code(header.value()))
                .collect(Collectors.joining(","));
    }

    private static Topology topology(String name) {
        StreamsBuilder builder = new StreamsBuilder();
        results(builder, name).to("out");
        return builder.build();
    }

    private static KStream<String, String> results(StreamsBuilder builder, String name) {
        TimeWindows minute = TimeWindows.ofSizeAndGrace(Duration.ofMillis(60), Duration.ofMillis(20));
        switch (name) {
            case "count":
                return written(builder.<String, String>stream("left").groupByKey(TEXT).count().toStream());
            case "windowed-count":
                return flat(builder.<String, String>stream("left").groupByKey(TEXT).windowedBy(minute).count());
            case "suppress":
                return flat(builder.<String, String>stream("left")
                        .groupByKey(TEXT)
                        .windowedBy(minute)
                        .count()
                        .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())));
            case "session":
                return flat(builder.<String, String>stream("left")
                        .groupByKey(TEXT)
                        .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(15), Duration.ofMillis(30)))
                        .count());
            case "stream-stream":
                JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(12), Duration.ofMillis(6));
                return builder.<String, String>stream("left").leftJoin(builder.stream("right"), CONCAT, near);
            case "stream-table":
                return builder.<String, String>stream("left").join(builder.table("right"), CONCAT);
            case "table-table":
                KTable<String, String> right = builder.table("right");
                return builder.<String, String>table("left").outerJoin(right, CONCAT).toStream();
            case "foreign-key":
                KTable<String, String> foreign = builder.table("right");
                return builder.<String, String>table("left")
                        .join(foreign, value -> value.substring(0, 1), CONCAT)
                        .toStream();
            default:
                throw new IllegalArgumentException("no topology " + name);
        }
    }

    private static KStream<String, String> flat(KTable<Windowed<String>, Long> counts) {
        return written(counts.toStream((key, count) -> key.key() + "@" + key.window().start() + "/" + key.window().end()));
    }

    private static KStream<String, String> written(KStream<String, Long> counts) {
        return counts.mapValues(count -> count == null ? null : count.toString());
    }
}
