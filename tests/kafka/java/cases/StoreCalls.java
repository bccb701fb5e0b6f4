import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Calls of stores, named and answered as {@code tests/golden/storeops.py} does; strings are their keys and values. */
@SuppressWarnings("unchecked")
final class StoreCalls {
    private static final ObjectMapper JSON = new ObjectMapper();

    private StoreCalls() {}

    static JsonNode call(String kind, StateStore store, String name, JsonNode args) {
        switch (kind) {
            case "kv":
                return keyValue((KeyValueStore<String, String>) store, name, args);
            case "timestamped_kv":
                return timestamped((TimestampedKeyValueStore<String, String>) store, name, args);
            case "versioned":
                return versioned((VersionedKeyValueStore<String, String>) store, name, args);
            case "window":
                return window((WindowStore<String, String>) store, name, args);
            case "session":
                return session((SessionStore<String, String>) store, name, args);
            default:
                throw new IllegalArgumentException("no kind of store " + kind);
        }
    }

    private static String text(JsonNode args, int index) {
        return args.get(index).isNull() ? null : args.get(index).asText();
    }

    private static long time(JsonNode args, int index) {
        return args.get(index).asLong();
    }

    private static Instant instant(JsonNode args, int index) {
        return Instant.ofEpochMilli(time(args, index));
    }

    private static JsonNode json(Object value) {
        return JSON.valueToTree(value);
    }

    private static JsonNode keyValue(KeyValueStore<String, String> store, String name, JsonNode args) {
        switch (name) {
            case "put":
                store.put(text(args, 0), text(args, 1));
                return json(null);
            case "putIfAbsent":
                return json(store.putIfAbsent(text(args, 0), text(args, 1)));
            case "delete":
                return json(store.delete(text(args, 0)));
            case "get":
                return json(store.get(text(args, 0)));
            case "range":
                return pairs(store.range(text(args, 0), text(args, 1)));
            case "reverseRange":
                return pairs(store.reverseRange(text(args, 0), text(args, 1)));
            case "all":
                return pairs(store.all());
            case "reverseAll":
                return pairs(store.reverseAll());
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    private static JsonNode timestamped(TimestampedKeyValueStore<String, String> store, String name, JsonNode args) {
        switch (name) {
            case "put":
                store.put(text(args, 0), ValueAndTimestamp.make(text(args, 1), time(args, 2)));
                return json(null);
            case "putIfAbsent":
                return stamped(store.putIfAbsent(text(args, 0), ValueAndTimestamp.make(text(args, 1), time(args, 2))));
            case "delete":
                return stamped(store.delete(text(args, 0)));
            case "get":
                return stamped(store.get(text(args, 0)));
            case "range":
                return pairs(store.range(text(args, 0), text(args, 1)));
            case "reverseRange":
                return pairs(store.reverseRange(text(args, 0), text(args, 1)));
            case "all":
                return pairs(store.all());
            case "reverseAll":
                return pairs(store.reverseAll());
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    private static JsonNode versioned(VersionedKeyValueStore<String, String> store, String name, JsonNode args) {
        switch (name) {
            case "put":
                return json(store.put(text(args, 0), text(args, 1), time(args, 2)));
            case "delete":
                return version(store.delete(text(args, 0), time(args, 1)));
            case "get":
                return version(store.get(text(args, 0)));
            case "getAsOf":
                return version(store.get(text(args, 0), time(args, 1)));
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    private static JsonNode window(WindowStore<String, String> store, String name, JsonNode args) {
        switch (name) {
            case "put":
                store.put(text(args, 0), text(args, 1), time(args, 2));
                return json(null);
            case "fetch":
                return json(store.fetch(text(args, 0), time(args, 1)));
            case "fetchRange":
                return starts(store.fetch(text(args, 0), instant(args, 1), instant(args, 2)));
            case "backwardFetchRange":
                return starts(store.backwardFetch(text(args, 0), instant(args, 1), instant(args, 2)));
            case "fetchKeys":
                return spans(store.fetch(text(args, 0), text(args, 1), instant(args, 2), instant(args, 3)));
            case "fetchAll":
                return spans(store.fetchAll(instant(args, 0), instant(args, 1)));
            case "all":
                return spans(store.all());
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    private static JsonNode session(SessionStore<String, String> store, String name, JsonNode args) {
        switch (name) {
            case "put":
                store.put(span(args), text(args, 3));
                return json(null);
            case "remove":
                store.remove(span(args));
                return json(null);
            case "fetchSession":
                return json(store.fetchSession(text(args, 0), time(args, 1), time(args, 2)));
            case "fetch":
                return spans(store.fetch(text(args, 0)));
            case "fetchKeys":
                return spans(store.fetch(text(args, 0), text(args, 1)));
            case "findSessions":
                return spans(store.findSessions(text(args, 0), time(args, 1), time(args, 2)));
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    private static Windowed<String> span(JsonNode args) {
        return new Windowed<>(text(args, 0), new SessionWindow(time(args, 1), time(args, 2)));
    }

    private static JsonNode stamped(Object found) {
        if (found == null) {
            return json(null);
        }
        ValueAndTimestamp<String> entry = (ValueAndTimestamp<String>) found;
        return JSON.createObjectNode().put("value", entry.value()).put("ts", entry.timestamp());
    }

    private static JsonNode plain(Object value) {
        return value instanceof ValueAndTimestamp ? stamped(value) : json(value);
    }

    private static JsonNode version(VersionedRecord<String> found) {
        if (found == null) {
            return json(null);
        }
        ObjectNode written = JSON.createObjectNode().put("value", found.value()).put("ts", found.timestamp());
        return written.put("validTo", found.validTo().orElse(null));
    }

    private static JsonNode pairs(KeyValueIterator<String, ?> entries) {
        ArrayNode all = JSON.createArrayNode();
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<String, ?> entry = entries.next();
                all.add(JSON.createArrayNode().add(entry.key).add(plain(entry.value)));
            }
        }
        return all;
    }

    private static JsonNode starts(WindowStoreIterator<String> entries) {
        ArrayNode all = JSON.createArrayNode();
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<Long, String> entry = entries.next();
                all.add(JSON.createArrayNode().add(entry.key).add(json(entry.value)));
            }
        }
        return all;
    }

    private static JsonNode spans(KeyValueIterator<Windowed<String>, String> entries) {
        ArrayNode all = JSON.createArrayNode();
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<Windowed<String>, String> entry = entries.next();
                ArrayNode span = JSON.createArrayNode().add(entry.key.key());
                span.add(entry.key.window().start()).add(entry.key.window().end());
                all.add(span.add(json(entry.value)));
            }
        }
        return all;
    }
}
