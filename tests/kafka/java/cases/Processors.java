import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** The processors that cases name, as {@code tests/golden/processors.py} has them. */
final class Processors {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Processors() {}

    static ProcessorSupplier<Object, Object, Object, Object> supplier(JsonNode description, String storeKind) {
        String store = description.path("store").asText();
        switch (description.get("kind").asText()) {
            case "last_seen":
                return () -> new LastSeen(store);
            case "look_up":
                return () -> new LookUp(store);
            case "peek":
                return () -> new Peek(store);
            case "rekey":
                return () -> new Rekey();
            case "route":
                return () -> new Route(description);
            case "collect":
                return () -> new Collect(store, description);
            case "tick":
                return () -> new Tick(description);
            case "call":
                return () -> new Call(store, storeKind);
            default:
                throw new IllegalArgumentException("no processor " + description);
        }
    }

    /** The processor of a global store, which forwards to nobody. */
    static ProcessorSupplier<Object, Object, Void, Void> filler(String store) {
        return () -> new Processor<>() {
            private KeyValueStore<Object, Object> filled;

            @Override
            public void init(ProcessorContext<Void, Void> context) {
                filled = context.getStateStore(store);
            }

            @Override
            public void process(Record<Object, Object> record) {
                if (record.key() != null) {
                    filled.put(record.key(), record.value() == null ? null : "=" + record.value());
                }
            }
        };
    }

    private abstract static class Base implements Processor<Object, Object, Object, Object> {
        ProcessorContext<Object, Object> context;

        @Override
        public void init(ProcessorContext<Object, Object> given) {
            context = given;
            open();
        }

        void open() {}

        Cancellable schedule(JsonNode description) {
            Duration interval = Duration.ofMillis(description.get("interval_ms").asLong());
            boolean wall = description.get("clock").asText().equals("wall");
            PunctuationType type = wall ? PunctuationType.WALL_CLOCK_TIME : PunctuationType.STREAM_TIME;
            return context.schedule(interval, type, this::fire);
        }

        void fire(long now) {}
    }

    private static final class LastSeen extends Base {
        private final String name;
        private KeyValueStore<Object, Object> store;

        LastSeen(String name) {
            this.name = name;
        }

        @Override
        void open() {
            store = context.getStateStore(name);
        }

        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() != null) {
                Object last = store.get(record.key());
                store.put(record.key(), record.value());
                context.forward(record.withValue(Functions.text(last) + "/" + Functions.text(record.value())));
            }
        }
    }

    private static final class Peek extends Base {
        private final String name;
        private KeyValueStore<Object, Object> store;

        Peek(String name) {
            this.name = name;
        }

        @Override
        void open() {
            store = context.getStateStore(name);
        }

        @Override
        public void process(Record<Object, Object> record) {
            Object found = record.key() == null ? null : store.get(record.key());
            context.forward(record.withValue(Functions.text(record.value()) + "/" + Functions.text(found)));
        }
    }

    private static final class Rekey extends Base {
        @Override
        public void process(Record<Object, Object> record) {
            context.forward(record.withKey(Functions.text(record.value()).substring(0, 1)));
        }
    }

    private static final class Route extends Base {
        private final JsonNode children;

        Route(JsonNode description) {
            children = description.get("children");
        }

        @Override
        public void process(Record<Object, Object> record) {
            int place = Functions.text(record.value()).length() % (children.size() + 1);
            if (place < children.size()) {
                context.forward(record, children.get(place).asText());
            } else {
                context.forward(record);
            }
        }
    }

    private static final class LookUp extends Base {
        private final String name;
        private TimestampedKeyValueStore<Object, Object> store;

        LookUp(String name) {
            this.name = name;
        }

        @Override
        void open() {
            store = context.getStateStore(name);
        }

        @Override
        public void process(Record<Object, Object> record) {
            ValueAndTimestamp<Object> found = record.key() == null ? null : store.get(record.key());
            String answer = found == null ? "null" : found.value() + "@" + found.timestamp();
            context.forward(record.withValue(Functions.text(record.value()) + "/" + answer));
        }
    }

    private static final class Collect extends Base {
        private final String name;
        private final JsonNode description;
        private KeyValueStore<Object, Object> store;

        Collect(String name, JsonNode description) {
            this.name = name;
            this.description = description;
        }

        @Override
        void open() {
            store = context.getStateStore(name);
            schedule(description);
        }

        @Override
        public void process(Record<Object, Object> record) {
            if (record.key() != null) {
                Object before = store.get(record.key());
                store.put(record.key(), Functions.last24((before == null ? "" : before) + "+" + record.value()));
            }
        }

        @Override
        void fire(long now) {
            List<KeyValue<Object, Object>> entries = new ArrayList<>();
            try (KeyValueIterator<Object, Object> all = store.all()) {
                all.forEachRemaining(entries::add);
            }
            for (KeyValue<Object, Object> entry : entries) {
                store.delete(entry.key);
                context.forward(new Record<>(entry.key, entry.value, now));
            }
        }
    }

    private static final class Tick extends Base {
        private final JsonNode description;
        private Cancellable schedule;
        private int left;

        Tick(JsonNode description) {
            this.description = description;
            left = description.path("times").asInt(Integer.MAX_VALUE);
        }

        @Override
        void open() {
            schedule = schedule(description);
        }

        @Override
        public void process(Record<Object, Object> record) {
            context.forward(record);
        }

        @Override
        void fire(long now) {
            context.forward(new Record<>("tick", String.valueOf(now), now));
            left--;
            if (left == 0) {
                schedule.cancel();
            }
        }
    }

    private static final class Call extends Base {
        private final String name;
        private final String kind;
        private StateStore store;

        Call(String name, String kind) {
            this.name = name;
            this.kind = kind;
        }

        @Override
        void open() {
            store = context.getStateStore(name);
        }

        @Override
        public void process(Record<Object, Object> record) {
            try {
                JsonNode call = JSON.readTree(record.value().toString());
                JsonNode answer = StoreCalls.call(kind, store, call.get("op").asText(), call.get("args"));
                context.forward(record.withValue(JSON.writeValueAsString(answer)));
            } catch (JsonProcessingException error) {
                throw new IllegalArgumentException(error);
            }
        }
    }
}
