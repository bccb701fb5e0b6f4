import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What the real Kafka Streams makes of cases: topologies and inputs in the form of the golden files.
 *
 * <p>{@code Cases DIRECTORY} reads a case from each line of its input until that ends, and writes an answer in a line:
 * {@code output}, {@code stores} and, if something was thrown, {@code error}.
 */
public final class Cases {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Cases() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line), config(args[0], number++))));
            out.flush();
        }
    }

    private static Properties config(String directory, int number) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "case-" + number);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        // Results that wait come out as soon as stream time lets them, whatever the wall clock says.
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        return config;
    }

    private static JsonNode answer(JsonNode theCase, Properties config) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode output = answer.putArray("output");
        if (theCase.path("config").path("default_store").asText().equals("in_memory")) {
            config.put(
                    StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                    BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        if (theCase.path("config").has("optimization")) {
            config.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        }
        CaseTopology built;
        List<Topology> parts;
        try {
            built = new CaseTopology(theCase.get("topology"));
            parts = built.build(config);
        } catch (RuntimeException error) {
            return failed(answer, "build", error);
        }
        List<TopologyTestDriver> drivers = new ArrayList<>();
        try {
            for (Topology part : parts) {
                drivers.add(started(part, config, drivers.size()));
            }
        } catch (RuntimeException error) {
            drivers.forEach(TopologyTestDriver::close);
            return failed(answer, "start", error);
        }
        int index = 0;
        try {
            for (JsonNode record : theCase.get("input")) {
                pipe(drivers, built, record);
                passOn(drivers, built);
                collect(drivers, built, index++, output);
            }
            ObjectNode stores = answer.putObject("stores");
            for (Map.Entry<String, String> store : built.stores().entrySet()) {
                String name = store.getKey();
                stores.set(name, content(drivers.get(built.holds(name)), name, store.getValue(), theCase));
            }
        } catch (RuntimeException error) {
            return failed(answer, "run", error).put("after", index);
        } finally {
            drivers.forEach(TopologyTestDriver::close);
        }
        return answer;
    }

    private static TopologyTestDriver started(Topology part, Properties config, int number) {
        Properties own = new Properties();
        own.putAll(config);
        own.put(StreamsConfig.APPLICATION_ID_CONFIG, config.get(StreamsConfig.APPLICATION_ID_CONFIG) + "-" + number);
        return new TopologyTestDriver(part, own, Instant.EPOCH);
    }

    /** What parts have written for those that come after them. */
    private static void passOn(List<TopologyTestDriver> drivers, CaseTopology built) {
        for (Map.Entry<String, List<Serde<Object>>> topic : built.between().entrySet()) {
            String name = topic.getKey();
            Serde<Object> key = topic.getValue().get(0);
            Serde<Object> value = topic.getValue().get(1);
            TestOutputTopic<Object, Object> written = drivers.get(built.writes(name))
                    .createOutputTopic(name, key.deserializer(), value.deserializer());
            TestInputTopic<Object, Object> read = drivers.get(built.reads(name))
                    .createInputTopic(name, key.serializer(), value.serializer());
            while (!written.isEmpty()) {
                read.pipeInput(written.readRecord());
            }
        }
    }

    private static ObjectNode failed(ObjectNode answer, String at, RuntimeException error) {
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return answer.put("failed_at", at).put("error", error + " / " + root);
    }

    private static void pipe(List<TopologyTestDriver> drivers, CaseTopology built, JsonNode record) {
        if (record.has("advance_wall_clock_ms")) {
            Duration step = Duration.ofMillis(record.get("advance_wall_clock_ms").asLong());
            drivers.forEach(driver -> driver.advanceWallClockTime(step));
            return;
        }
        String topic = record.get("topic").asText();
        Serde<Object> serde = built.sources().get(topic);
        if (serde == null) {
            return;
        }
        RecordHeaders headers = new RecordHeaders();
        record.path("headers").fields().forEachRemaining(header ->
                headers.add(header.getKey(), header.getValue().asText().getBytes(StandardCharsets.UTF_8)));
        JsonNode value = record.get("value");
        Object given = value.isNull() ? null : value.isNumber() ? (Object) value.asLong() : value.asText();
        String key = record.get("key").isNull() ? null : record.get("key").asText();
        drivers.get(built.reads(topic))
                .createInputTopic(topic, Serdes.String().serializer(), serde.serializer())
                .pipeInput(new TestRecord<>(key, given, headers, record.get("ts").asLong()));
    }

    private static void collect(
            List<TopologyTestDriver> drivers, CaseTopology built, int after, ArrayNode output) {
        for (Map.Entry<String, Serde<Object>> sink : built.sinkKeys().entrySet()) {
            String topic = sink.getKey();
            TestOutputTopic<Object, Object> results = drivers.get(built.writes(topic))
                    .createOutputTopic(
                            topic, sink.getValue().deserializer(), built.sinkValue(topic).deserializer());
            while (!results.isEmpty()) {
                TestRecord<Object, Object> record = results.readRecord();
                ObjectNode row = output.addObject().put("topic", topic);
                row.set("key", key(record.key()));
                row.set("value", JSON.valueToTree(record.value()));
                row.put("ts", record.timestamp()).put("after", after);
                ObjectNode headers = row.putObject("headers");
                for (Header header : record.headers()) {
                    headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8));
                }
            }
        }
    }

    private static JsonNode key(Object key) {
        return key instanceof Windowed ? windowed((Windowed<?>) key) : JSON.valueToTree(key);
    }

    private static ObjectNode windowed(Windowed<?> key) {
        ObjectNode written = JSON.createObjectNode().put("key", key.key().toString());
        return written.put("start", key.window().start()).put("end", key.window().end());
    }

    /** What a store holds; of versioned stores, which cannot be listed, the latest values of the records' own keys. */
    private static JsonNode content(TopologyTestDriver driver, String name, String kind, JsonNode theCase) {
        ArrayNode entries = JSON.createArrayNode();
        if (kind.equals("versioned")) {
            VersionedKeyValueStore<Object, Object> store = driver.getVersionedKeyValueStore(name);
            Set<String> keys = new TreeSet<>();
            theCase.get("input").forEach(record -> keys.add(record.path("key").asText()));
            for (String key : keys) {
                VersionedRecord<Object> found = store.get(key);
                if (found != null) {
                    ObjectNode entry = entries.addObject().put("key", key);
                    entry.set("value", JSON.valueToTree(found.value()));
                    entry.put("ts", found.timestamp());
                }
            }
        } else if (kind.equals("kv")) {
            KeyValueStore<Object, ValueAndTimestamp<Object>> store = driver.getTimestampedKeyValueStore(name);
            try (KeyValueIterator<Object, ValueAndTimestamp<Object>> all = store.all()) {
                all.forEachRemaining(entry ->
                        entries.add(stamped(JSON.createObjectNode().put("key", entry.key.toString()), entry.value)));
            }
        } else if (kind.equals("window")) {
            WindowStore<Object, ValueAndTimestamp<Object>> store = driver.getTimestampedWindowStore(name);
            try (KeyValueIterator<Windowed<Object>, ValueAndTimestamp<Object>> all = store.all()) {
                all.forEachRemaining(entry -> entries.add(stamped(windowed(entry.key), entry.value)));
            }
        } else if (kind.equals("session")) {
            SessionStore<Object, Object> store = driver.getSessionStore(name);
            try (KeyValueIterator<Windowed<Object>, Object> all = store.fetch(null, null)) {
                all.forEachRemaining(entry -> entries.add(
                        windowed(entry.key).set("value", JSON.valueToTree(entry.value))));
            }
        }
        return entries;
    }

    private static ObjectNode stamped(ObjectNode entry, ValueAndTimestamp<Object> value) {
        entry.set("value", JSON.valueToTree(value.value()));
        return entry.put("ts", value.timestamp());
    }
}
