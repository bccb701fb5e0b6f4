import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Builds the topology of a case, operator by operator, as {@code tests/golden/interpreter.py} does with Millpond. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class CaseTopology {
    private static final Serde<Object> TEXT = (Serde<Object>) (Serde) Serdes.String();

    private static final Serde<Object> LONG = (Serde<Object>) (Serde) Serdes.Long();

    /** The kind of a store that processors use without naming it. */
    private static final String GLOBAL = "global";

    /** What an operator made, and how its keys and values are written. */
    private record Made(Object node, Serde<Object> key, Serde<Object> value) {
        KStream<Object, Object> stream() {
            return (KStream<Object, Object>) node;
        }

        KTable<Object, Object> table() {
            return (KTable<Object, Object>) node;
        }

        boolean isTable() {
            return node instanceof KTable;
        }

        Made with(Object other) {
            return new Made(other, key, value);
        }
    }

    private record Grouping(Object grouped, JsonNode window) {}

    /** A topology for each part that has tasks of its own; the test driver has one task, and so one stream time. */
    private final List<StreamsBuilder> builders = new ArrayList<>();

    /** Topics between these parts, and the serdes of their keys and values. */
    private final Map<String, List<Serde<Object>>> between = new LinkedHashMap<>();

    /** In which part topics are read, and stores are. */
    private final Map<String, Integer> places = new HashMap<>();

    /** In which part topics are written. */
    private final Map<String, Integer> writers = new HashMap<>();

    private StreamsBuilder builder;

    /** The topology of cases that are built node by node; null for all others. */
    private final Topology nodes;

    private final Map<String, Made> made = new HashMap<>();

    private final Map<String, Serde<Object>> sinkKeys = new LinkedHashMap<>();

    private final Map<String, Serde<Object>> sinkValues = new HashMap<>();

    private final Map<String, Serde<Object>> sources = new HashMap<>();

    private final Map<String, String> stores = new LinkedHashMap<>();

    private final Map<String, String> storesOfProcessors = new HashMap<>();

    CaseTopology(JsonNode operators) {
        boolean nodeByNode = false;
        for (JsonNode operator : operators) {
            nodeByNode |= text(operator, "op").equals("addSource");
        }
        nodes = nodeByNode ? new Topology() : null;
        beginPart();
        for (JsonNode operator : operators) {
            Made result = operator(operator);
            if (operator.has("id")) {
                made.put(operator.get("id").asText(), result);
            }
        }
    }

    private void beginPart() {
        builder = new StreamsBuilder();
        builders.add(builder);
    }

    private int place() {
        return builders.size() - 1;
    }

    List<Topology> build(Properties config) {
        if (nodes != null) {
            return List.of(nodes);
        }
        List<Topology> parts = new ArrayList<>();
        builders.forEach(part -> parts.add(part.build(config)));
        return parts;
    }

    Map<String, List<Serde<Object>>> between() {
        return between;
    }

    int reads(String topic) {
        return places.get(topic);
    }

    int writes(String topic) {
        return writers.get(topic);
    }

    int holds(String store) {
        return places.get(store);
    }

    /** Topics that are written, in the order of the operators, and the serdes of their keys. */
    Map<String, Serde<Object>> sinkKeys() {
        return sinkKeys;
    }

    Serde<Object> sinkValue(String topic) {
        return sinkValues.get(topic);
    }

    /** Topics that are read, and the serdes of their values. */
    Map<String, Serde<Object>> sources() {
        return sources;
    }

    /** Stores that operators name, and their kinds. */
    Map<String, String> stores() {
        return stores;
    }

    private Made operator(JsonNode o) {
        switch (o.get("op").asText()) {
            case "stream":
                return source(o, valueOf(o), serde -> builder.stream(topic(o), Consumed.with(TEXT, serde)));
            case "table":
                return source(o, valueOf(o), serde -> table(o, serde));
            case "globalTable":
                return source(o, TEXT, serde -> builder.globalTable(topic(o), Consumed.with(TEXT, serde)));
            case "to":
                return to(o);
            case "filter":
            case "filterNot":
                return filter(o, input(o), o.get("op").asText().equals("filterNot"));
            case "mapValues":
                return mapValues(o, input(o));
            case "transformValues":
                return transformValues(o, input(o));
            case "flatMapValues":
                return new Made(
                        input(o).stream().flatMapValues(value -> copies(value, o.get("copies").asInt())),
                        input(o).key(),
                        TEXT);
            case "map":
                return map(o, input(o));
            case "selectKey":
                return input(o).with(input(o).stream().selectKey(Functions.selector(text(o, "selector"))));
            case "branch":
                return branch(o, input(o));
            case "repartition":
                return o.path("apart").asBoolean() ? apart(o, input(o)) : repartitioned(input(o));
            case "merge":
                return named(o, "this")
                        .with(named(o, "this").stream().merge(named(o, "other").stream()));
            case "toTable":
                return input(o).with(input(o).stream().toTable(stored(o, input(o).value())));
            case "toStream":
                return input(o).with(input(o).table().toStream());
            case "unwindow":
                return unwindow(input(o));
            case "join":
                return join(o, named(o, "this"), named(o, "other"));
            case "fkJoin":
                return foreignKeyJoin(o, named(o, "this"), named(o, "other"));
            case "globalJoin":
                return globalJoin(o, named(o, "this"), named(o, "other"));
            case "groupByKey":
                return input(o)
                        .with(input(o).stream().groupByKey(Grouped.with(input(o).key(), input(o).value())));
            case "groupBy":
                return groupBy(o, input(o));
            case "cogroup":
                return cogroup(o);
            case "windowedBy":
                return input(o).with(windowedBy(o, input(o)));
            case "count":
            case "reduce":
            case "aggregate":
                return aggregation(o, input(o));
            case "suppress":
                return input(o).with(input(o).table().suppress((Suppressed) suppressed(o)));
            case "store":
                return store(o);
            case "process":
                return process(o, input(o));
            case "addGlobalStore":
                return addGlobalStore(o);
            case "addSource":
                return addSource(o);
            case "addProcessor":
                return addProcessor(o);
            case "addRepartition":
                return addRepartition(o);
            case "addSink":
                return addSink(o);
            default:
                throw new IllegalArgumentException("no operator " + o);
        }
    }

    private static String text(JsonNode operator, String field) {
        return operator.get(field).asText();
    }

    private static String topic(JsonNode operator) {
        return text(operator, "topic");
    }

    private Made named(JsonNode operator, String field) {
        return made.get(text(operator, field));
    }

    private Made input(JsonNode operator) {
        return named(operator, "input");
    }

    private static Serde<Object> valueOf(JsonNode operator) {
        return operator.path("value_type").asText().equals("long") ? LONG : TEXT;
    }

    private static Duration millis(JsonNode node, String field) {
        return Duration.ofMillis(node.get(field).asLong());
    }

    // Stores

    /** What an operator says of its store; null if it says nothing. */
    private Materialized materialized(JsonNode operator, Serde<Object> value) {
        JsonNode given = operator.path("materialized");
        if (given.isMissingNode()) {
            return null;
        }
        String kind = text(given, "kind");
        if (kind.equals("serde_only")) {
            return Materialized.with(TEXT, value);
        }
        String name = text(given, "name");
        stores.put(name, kind);
        places.put(name, place());
        if (kind.equals("versioned")) {
            Duration retention = millis(given, "history_retention_ms");
            return Materialized.as(Stores.persistentVersionedKeyValueStore(name, retention))
                    .withKeySerde((Serde) TEXT)
                    .withValueSerde((Serde) value);
        }
        Materialized described = Materialized.as(name);
        described.withKeySerde(TEXT).withValueSerde(value);
        return given.has("retention_ms") ? described.withRetention(millis(given, "retention_ms")) : described;
    }

    /** The same where Kafka Streams would else take the default serdes. */
    private Materialized stored(JsonNode operator, Serde<Object> value) {
        Materialized given = materialized(operator, value);
        return given == null ? Materialized.with(TEXT, value) : given;
    }

    private Made store(JsonNode o) {
        String name = text(o, "name");
        storesOfProcessors.put(name, text(o, "kind"));
        if (nodes == null) {
            builder.addStateStore(storeBuilder(o, name));
        } else {
            nodes.addStateStore(storeBuilder(o, name));
        }
        return null;
    }

    private Made addGlobalStore(JsonNode o) {
        String name = text(o, "name");
        storesOfProcessors.put(name, GLOBAL);
        sources.put(topic(o), TEXT);
        places.put(topic(o), place());
        StoreBuilder<KeyValueStore<Object, Object>> store = Stores.keyValueStoreBuilder(
                        Stores.persistentKeyValueStore(name), TEXT, TEXT)
                .withLoggingDisabled();
        if (nodes == null) {
            builder.addGlobalStore(store, topic(o), Consumed.with(TEXT, TEXT), Processors.filler(name));
        } else {
            nodes.addGlobalStore(
                    store,
                    name + "-source",
                    TEXT.deserializer(),
                    TEXT.deserializer(),
                    topic(o),
                    name + "-filler",
                    Processors.filler(name));
        }
        return null;
    }

    // Node by node

    private Made addSource(JsonNode o) {
        sources.put(topic(o), TEXT);
        places.put(topic(o), place());
        nodes.addSource(text(o, "id"), TEXT.deserializer(), TEXT.deserializer(), topic(o));
        return null;
    }

    private static String[] parents(JsonNode o) {
        List<String> names = new ArrayList<>();
        o.get("parents").forEach(name -> names.add(name.asText()));
        return names.toArray(new String[0]);
    }

    private Made addProcessor(JsonNode o) {
        JsonNode description = o.get("processor");
        String store = description.path("store").asText();
        nodes.addProcessor(
                text(o, "id"), Processors.supplier(description, storesOfProcessors.get(store)), parents(o));
        if (!store.isEmpty() && !GLOBAL.equals(storesOfProcessors.get(store))) {
            nodes.connectProcessorAndStateStores(text(o, "id"), store);
        }
        return null;
    }

    /** A topic of one's own, which is written and read. */
    private Made addRepartition(JsonNode o) {
        String id = text(o, "id");
        nodes.addSink(id + "-sink", id + "-topic", TEXT.serializer(), TEXT.serializer(), parents(o));
        nodes.addSource(id, TEXT.deserializer(), TEXT.deserializer(), id + "-topic");
        return null;
    }

    private Made addSink(JsonNode o) {
        if (o.has("extractor")) {
            nodes.addSink(text(o, "name"), extractor(o), TEXT.serializer(), TEXT.serializer(), parents(o));
        } else {
            nodes.addSink(text(o, "name"), topic(o), TEXT.serializer(), TEXT.serializer(), parents(o));
        }
        written(o, TEXT, TEXT);
        return null;
    }

    /** Chooses among an operator's topics. */
    private static TopicNameExtractor<Object, Object> extractor(JsonNode o) {
        JsonNode topics = o.get("topics");
        boolean byKey = text(o, "extractor").equals("by_key");
        return (key, value, context) ->
                topics.get(Functions.text(byKey ? key : value).length() % topics.size()).asText();
    }

    private void written(JsonNode o, Serde<Object> key, Serde<Object> value) {
        Iterable<JsonNode> topics = o.has("topics") ? o.get("topics") : List.of(o.get("topic"));
        for (JsonNode topic : topics) {
            writers.put(topic.asText(), place());
            sinkKeys.put(topic.asText(), key);
            sinkValues.put(topic.asText(), value);
        }
    }

    private static StoreBuilder<?> storeBuilder(JsonNode o, String name) {
        switch (text(o, "kind")) {
            case "kv":
                return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), TEXT, TEXT);
            case "timestamped_kv":
                return Stores.timestampedKeyValueStoreBuilder(
                        Stores.persistentTimestampedKeyValueStore(name), TEXT, TEXT);
            case "versioned":
                return Stores.versionedKeyValueStoreBuilder(
                        Stores.persistentVersionedKeyValueStore(name, millis(o, "history_retention_ms")), TEXT, TEXT);
            case "window":
                return Stores.windowStoreBuilder(
                        Stores.persistentWindowStore(
                                name, millis(o, "retention_ms"), millis(o, "window_size_ms"), false),
                        TEXT,
                        TEXT);
            case "session":
                return Stores.sessionStoreBuilder(
                        Stores.persistentSessionStore(name, millis(o, "retention_ms")), TEXT, TEXT);
            default:
                throw new IllegalArgumentException("no kind of store " + o);
        }
    }

    private Made process(JsonNode o, Made input) {
        JsonNode description = o.get("processor");
        String store = description.path("store").asText();
        boolean unnamed = store.isEmpty() || GLOBAL.equals(storesOfProcessors.get(store));
        String[] names = unnamed ? new String[0] : new String[] {store};
        return new Made(
                input.stream()
                        .process(Processors.supplier(description, storesOfProcessors.get(store)), names),
                input.key(),
                TEXT);
    }

    private static Made repartitioned(Made input) {
        return input.with(input.stream().repartition(Repartitioned.with(input.key(), input.value())));
    }

    /** What follows is in a part of its own, and reads a topic that this one writes. */
    private Made apart(JsonNode o, Made input) {
        String topic = text(o, "id") + "-between";
        input.stream().filter((key, value) -> key != null).to(topic, Produced.with(input.key(), input.value()));
        writers.put(topic, place());
        between.put(topic, List.of(input.key(), input.value()));
        beginPart();
        places.put(topic, place());
        return input.with(builder.stream(topic, Consumed.with(input.key(), input.value())));
    }

    // Sources, sinks, and what takes one record

    private interface Source {
        Object of(Serde<Object> serde);
    }

    private Made source(JsonNode o, Serde<Object> value, Source source) {
        sources.put(topic(o), value);
        places.put(topic(o), place());
        return new Made(source.of(value), TEXT, value);
    }

    private KTable<Object, Object> table(JsonNode o, Serde<Object> serde) {
        Materialized materialized = materialized(o, serde);
        Consumed<Object, Object> consumed = Consumed.with(TEXT, serde);
        return materialized == null
                ? builder.table(topic(o), consumed)
                : builder.table(topic(o), consumed, materialized);
    }

    private Made to(JsonNode o) {
        Made input = input(o);
        KStream<Object, Object> stream = input.isTable() ? input.table().toStream() : input.stream();
        if (o.has("extractor")) {
            stream.to(extractor(o), Produced.with(input.key(), input.value()));
        } else {
            stream.to(topic(o), Produced.with(input.key(), input.value()));
        }
        written(o, input.key(), input.value());
        return null;
    }

    private Made filter(JsonNode o, Made input, boolean not) {
        var predicate = Functions.predicate(text(o, "predicate"));
        if (!input.isTable()) {
            return input.with(not ? input.stream().filterNot(predicate) : input.stream().filter(predicate));
        }
        KTable<Object, Object> table = input.table();
        Materialized store = materialized(o, input.value());
        if (store == null) {
            return input.with(not ? table.filterNot(predicate) : table.filter(predicate));
        }
        return input.with(not ? table.filterNot(predicate, store) : table.filter(predicate, store));
    }

    private static Serde<Object> mapped(String mapper, Serde<Object> before) {
        String name = mapper.split(":", 2)[0];
        return name.equals("number") ? LONG : name.equals("identity") || name.equals("default") ? before : TEXT;
    }

    private Made mapValues(JsonNode o, Made input) {
        ValueMapper<Object, Object> mapper = Functions.mapper(text(o, "mapper"));
        Serde<Object> value = mapped(text(o, "mapper"), input.value());
        if (!input.isTable()) {
            return new Made(input.stream().mapValues(mapper), input.key(), value);
        }
        Materialized store = materialized(o, value);
        // On a table the mapper of a null value is not called.
        KTable<Object, Object> table =
                store == null ? input.table().mapValues(mapper) : input.table().mapValues(mapper, store);
        return new Made(table, input.key(), value);
    }

    private Made transformValues(JsonNode o, Made input) {
        ValueMapper<Object, Object> mapper = Functions.mapper(text(o, "mapper"));
        Serde<Object> value = mapped(text(o, "mapper"), input.value());
        Materialized store = materialized(o, value);
        KTable<Object, Object> table = store == null
                ? input.table().transformValues(() -> transformer(mapper))
                : input.table().transformValues(() -> transformer(mapper), store);
        return new Made(table, input.key(), value);
    }

    private static ValueTransformerWithKey<Object, Object, Object> transformer(ValueMapper<Object, Object> mapper) {
        return new ValueTransformerWithKey<>() {
            @Override
            public void init(ProcessorContext context) {}

            @Override
            public Object transform(Object key, Object value) {
                return mapper.apply(value);
            }

            @Override
            public void close() {}
        };
    }

    private static List<Object> copies(Object value, int copies) {
        List<Object> all = new ArrayList<>();
        for (int copy = 0; copy < copies && value != null; copy++) {
            all.add(value + "'".repeat(copy));
        }
        return all;
    }

    private Made map(JsonNode o, Made input) {
        var selector = Functions.selector(text(o, "selector"));
        var mapper = Functions.mapper(text(o, "mapper"));
        Serde<Object> serde = mapped(text(o, "mapper"), input.value());
        return new Made(
                input.stream()
                        .map((key, value) -> KeyValue.pair(selector.apply(key, value), mapper.apply(value))),
                TEXT,
                serde);
    }

    private Made branch(JsonNode o, Made input) {
        var split = input.stream().split(Named.as(text(o, "name") + "-"));
        int number = 0;
        for (JsonNode predicate : o.get("predicates")) {
            split = split.branch(Functions.predicate(predicate.asText()), Branched.as(String.valueOf(number++)));
        }
        Map<String, KStream<Object, Object>> parts = split.defaultBranch(Branched.as(String.valueOf(number)));
        number = 0;
        for (JsonNode id : o.get("ids")) {
            made.put(id.asText(), input.with(parts.get(text(o, "name") + "-" + number++)));
        }
        return null;
    }

    private static Made unwindow(Made input) {
        KStream<Object, Object> stream = input.stream().selectKey((key, value) -> {
            Windowed<Object> windowed = (Windowed<Object>) key;
            return windowed.key() + "@" + windowed.window().start() + "/"
                    + windowed.window().end();
        });
        return new Made(stream, TEXT, input.value());
    }

    // Joins

    private Made join(JsonNode o, Made left, Made right) {
        ValueJoinerWithKey<Object, Object, Object, Object> joiner = Functions.joiner(text(o, "joiner"));
        ValueJoiner<Object, Object, Object> keyless = (one, other) -> joiner.apply(null, one, other);
        String type = text(o, "type");
        if (left.isTable()) {
            Materialized store = materialized(o, TEXT);
            return new Made(tables(left.table(), right.table(), type, keyless, store), left.key(), TEXT);
        }
        if (right.isTable()) {
            Joined<Object, Object, Object> joined = Joined.with(left.key(), left.value(), right.value());
            joined = o.has("grace_ms") ? joined.withGracePeriod(millis(o, "grace_ms")) : joined;
            KStream<Object, Object> result = type.equals("inner")
                    ? left.stream().join(right.table(), joiner, joined)
                    : left.stream().leftJoin(right.table(), joiner, joined);
            return new Made(result, left.key(), TEXT);
        }
        JoinWindows windows = joinWindows(o.get("window"));
        StreamJoined<Object, Object, Object> joined = StreamJoined.with(left.key(), left.value(), right.value());
        KStream<Object, Object> result = type.equals("inner")
                ? left.stream().join(right.stream(), joiner, windows, joined)
                : type.equals("left")
                        ? left.stream().leftJoin(right.stream(), joiner, windows, joined)
                        : left.stream().outerJoin(right.stream(), joiner, windows, joined);
        return new Made(result, left.key(), TEXT);
    }

    private static KTable<Object, Object> tables(
            KTable<Object, Object> left,
            KTable<Object, Object> right,
            String type,
            ValueJoiner<Object, Object, Object> joiner,
            Materialized store) {
        if (store == null) {
            return type.equals("inner")
                    ? left.join(right, joiner)
                    : type.equals("left") ? left.leftJoin(right, joiner) : left.outerJoin(right, joiner);
        }
        return type.equals("inner")
                ? left.join(right, joiner, store)
                : type.equals("left") ? left.leftJoin(right, joiner, store) : left.outerJoin(right, joiner, store);
    }

    private static JoinWindows joinWindows(JsonNode window) {
        Duration before = millis(window, "before_ms");
        Duration after = millis(window, "after_ms");
        if (window.path("eager").asBoolean()) {
            JoinWindows windows = eager(before).before(before).after(after);
            return window.has("grace_ms") ? windows.grace(millis(window, "grace_ms")) : windows;
        }
        return JoinWindows.ofTimeDifferenceAndGrace(before, millis(window, "grace_ms")).before(before).after(after);
    }

    /** {@code JoinWindows.of}, which releases from 4.0 on do not have. */
    private static JoinWindows eager(Duration difference) {
        try {
            return (JoinWindows) JoinWindows.class.getMethod("of", Duration.class).invoke(null, difference);
        } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException error) {
            throw new IllegalStateException(error);
        }
    }

    private Made foreignKeyJoin(JsonNode o, Made left, Made right) {
        var selector = Functions.selector(text(o, "extractor"));
        var joiner = Functions.joiner(text(o, "joiner"));
        ValueJoiner<Object, Object, Object> keyless = (one, other) -> joiner.apply(null, one, other);
        Materialized store = materialized(o, TEXT);
        boolean inner = text(o, "type").equals("inner");
        KTable<Object, Object> joined;
        if (store == null) {
            joined = inner
                    ? left.table().join(right.table(), value -> selector.apply(null, value), keyless)
                    : left.table().leftJoin(right.table(), value -> selector.apply(null, value), keyless);
        } else {
            joined = inner
                    ? left.table().join(right.table(), value -> selector.apply(null, value), keyless, store)
                    : left.table().leftJoin(right.table(), value -> selector.apply(null, value), keyless, store);
        }
        return new Made(joined, left.key(), TEXT);
    }

    private Made globalJoin(JsonNode o, Made left, Made right) {
        var selector = Functions.selector(text(o, "selector"));
        var joiner = Functions.joiner(text(o, "joiner"));
        GlobalKTable<Object, Object> table = (GlobalKTable<Object, Object>) right.node();
        KStream<Object, Object> result = text(o, "type").equals("inner")
                ? left.stream().join(table, selector, joiner)
                : left.stream().leftJoin(table, selector, joiner);
        return new Made(result, left.key(), TEXT);
    }

    // Aggregations

    private Made groupBy(JsonNode o, Made input) {
        var selector = Functions.selector(text(o, "selector"));
        if (!input.isTable()) {
            return new Made(
                    input.stream().groupBy(selector, Grouped.with(TEXT, input.value())), TEXT, input.value());
        }
        String name = o.path("value_mapper").asText("identity");
        var mapper = Functions.mapper(name);
        Serde<Object> value = mapped(name, input.value());
        return new Made(
                input.table()
                        .groupBy(
                                (key, row) -> KeyValue.pair(selector.apply(key, row), mapper.apply(row)),
                                Grouped.with(TEXT, value)),
                TEXT,
                value);
    }

    private Made cogroup(JsonNode o) {
        CogroupedKStream<Object, Object> all = null;
        for (JsonNode part : o.get("inputs")) {
            KGroupedStream<Object, Object> grouped = (KGroupedStream<Object, Object>) input(part).node();
            var aggregator = Functions.aggregator(text(part, "aggregator"));
            all = all == null ? grouped.cogroup(aggregator) : all.cogroup(grouped, aggregator);
        }
        return new Made(all, TEXT, TEXT);
    }

    private static Grouping windowedBy(JsonNode o, Made input) {
        JsonNode window = o.get("window");
        Duration grace = millis(window, "grace_ms");
        boolean closing = o.path("emit").asText().equals("window_close");
        boolean cogrouped = input.node() instanceof CogroupedKStream;
        switch (text(window, "kind")) {
            case "session": {
                SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(millis(window, "gap_ms"), grace);
                if (cogrouped) {
                    return new Grouping(((CogroupedKStream) input.node()).windowedBy(windows), window);
                }
                SessionWindowedKStream windowed = ((KGroupedStream) input.node()).windowedBy(windows);
                return new Grouping(
                        closing ? windowed.emitStrategy(EmitStrategy.onWindowClose()) : windowed, window);
            }
            case "sliding": {
                SlidingWindows windows =
                        SlidingWindows.ofTimeDifferenceAndGrace(millis(window, "difference_ms"), grace);
                if (cogrouped) {
                    return new Grouping(((CogroupedKStream) input.node()).windowedBy(windows), window);
                }
                return new Grouping(
                        emitting(((KGroupedStream) input.node()).windowedBy(windows), closing), window);
            }
            default: {
                TimeWindows windows = TimeWindows.ofSizeAndGrace(millis(window, "size_ms"), grace);
                windows = window.has("advance_ms") ? windows.advanceBy(millis(window, "advance_ms")) : windows;
                if (cogrouped) {
                    return new Grouping(((CogroupedKStream) input.node()).windowedBy(windows), window);
                }
                return new Grouping(
                        emitting(((KGroupedStream) input.node()).windowedBy(windows), closing), window);
            }
        }
    }

    private static TimeWindowedKStream emitting(TimeWindowedKStream windowed, boolean closing) {
        return closing ? windowed.emitStrategy(EmitStrategy.onWindowClose()) : windowed;
    }

    private static Serde<Object> windowedKeys(JsonNode window) {
        if (text(window, "kind").equals("session")) {
            return (Serde<Object>) (Serde) WindowedSerdes.sessionWindowedSerdeFrom(String.class);
        }
        long size = window.path("size_ms").asLong(window.path("difference_ms").asLong());
        return (Serde<Object>) (Serde) WindowedSerdes.timeWindowedSerdeFrom(String.class, size);
    }

    private Made aggregation(JsonNode o, Made input) {
        Object grouped = input.node();
        Serde<Object> key = TEXT;
        if (grouped instanceof Grouping) {
            key = windowedKeys(((Grouping) grouped).window());
            grouped = ((Grouping) grouped).grouped();
        }
        switch (text(o, "op")) {
            case "count":
                return new Made(count(grouped, stored(o, LONG)), key, LONG);
            case "reduce":
                return new Made(reduce(o, grouped, stored(o, input.value())), key, input.value());
            default:
                Serde<Object> value = text(o, "initializer").equals("zero") ? LONG : TEXT;
                return new Made(aggregate(o, grouped, stored(o, value)), key, value);
        }
    }

    private static Object count(Object grouped, Materialized store) {
        if (grouped instanceof KGroupedTable) {
            return ((KGroupedTable) grouped).count(store);
        }
        if (grouped instanceof KGroupedStream) {
            return ((KGroupedStream) grouped).count(store);
        }
        if (grouped instanceof SessionWindowedKStream) {
            return ((SessionWindowedKStream) grouped).count(store);
        }
        return ((TimeWindowedKStream) grouped).count(store);
    }

    private static Object reduce(JsonNode o, Object grouped, Materialized store) {
        var adder = Functions.reducer(text(o, "adder"));
        if (grouped instanceof KGroupedTable) {
            return ((KGroupedTable) grouped).reduce(adder, Functions.reducer(text(o, "subtractor")), store);
        }
        if (grouped instanceof KGroupedStream) {
            return ((KGroupedStream) grouped).reduce(adder, store);
        }
        if (grouped instanceof SessionWindowedKStream) {
            return ((SessionWindowedKStream) grouped).reduce(adder, store);
        }
        return ((TimeWindowedKStream) grouped).reduce(adder, store);
    }

    private static Object aggregate(JsonNode o, Object grouped, Materialized store) {
        var initializer = Functions.initializer(text(o, "initializer"));
        if (grouped instanceof CogroupedKStream) {
            return ((CogroupedKStream) grouped).aggregate(initializer, store);
        }
        if (grouped instanceof TimeWindowedCogroupedKStream) {
            return ((TimeWindowedCogroupedKStream) grouped).aggregate(initializer, store);
        }
        if (grouped instanceof SessionWindowedCogroupedKStream) {
            var merger = Functions.merger(text(o, "merger"));
            return ((SessionWindowedCogroupedKStream) grouped).aggregate(initializer, merger, store);
        }
        var adder = Functions.aggregator(text(o, "adder"));
        if (grouped instanceof KGroupedTable) {
            var subtractor = Functions.aggregator(text(o, "subtractor"));
            return ((KGroupedTable) grouped).aggregate(initializer, adder, subtractor, store);
        }
        if (grouped instanceof KGroupedStream) {
            return ((KGroupedStream) grouped).aggregate(initializer, adder, store);
        }
        if (grouped instanceof SessionWindowedKStream) {
            var merger = Functions.merger(text(o, "merger"));
            return ((SessionWindowedKStream) grouped).aggregate(initializer, adder, merger, store);
        }
        return ((TimeWindowedKStream) grouped).aggregate(initializer, adder, store);
    }

    private static Suppressed<?> suppressed(JsonNode o) {
        boolean shutDown = o.path("when_full").asText().equals("shut_down");
        if (text(o, "until").equals("window_closes")) {
            Suppressed.StrictBufferConfig buffer = o.has("max_records")
                    ? Suppressed.BufferConfig.maxRecords(o.get("max_records").asLong()).shutDownWhenFull()
                    : Suppressed.BufferConfig.unbounded();
            return Suppressed.untilWindowCloses(buffer);
        }
        Suppressed.BufferConfig buffer = Suppressed.BufferConfig.unbounded();
        if (o.has("max_records")) {
            Suppressed.EagerBufferConfig bounded =
                    Suppressed.BufferConfig.maxRecords(o.get("max_records").asLong());
            buffer = shutDown ? bounded.shutDownWhenFull() : bounded.emitEarlyWhenFull();
        }
        return Suppressed.untilTimeLimit(millis(o, "wait_ms"), buffer);
    }
}
