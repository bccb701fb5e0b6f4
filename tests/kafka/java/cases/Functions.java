import java.util.Arrays;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.ValueMapper;

/** The functions that cases name, as {@code tests/golden/functions.py} has them; values are strings or longs. */
final class Functions {
    private Functions() {}

    static String text(Object value) {
        return value == null ? "null" : value.toString();
    }

    static long number(Object value) {
        if (value == null) {
            return 0;
        }
        if (value instanceof Long) {
            return (Long) value;
        }
        String digits = value.toString().replaceAll("[^0-9]", "");
        return digits.isEmpty() ? 0 : Long.parseLong(digits);
    }

    static String last24(String value) {
        return value.length() <= 24 ? value : value.substring(value.length() - 24);
    }

    private static String name(String function) {
        return function.split(":", 2)[0];
    }

    private static String argument(String function) {
        return function.contains(":") ? function.split(":", 2)[1] : "";
    }

    static ValueJoinerWithKey<Object, Object, Object, Object> joiner(String function) {
        if (function.equals("concat")) {
            return (key, left, right) -> text(left) + "-" + text(right);
        }
        return (key, left, right) -> text(key) + "=" + text(left) + "-" + text(right);
    }

    static Predicate<Object, Object> predicate(String function) {
        String x = argument(function);
        switch (name(function)) {
            case "always":
                return (key, value) -> true;
            case "never":
                return (key, value) -> false;
            case "not_null":
                return (key, value) -> value != null;
            case "key_ne":
                return (key, value) -> value != null && !x.equals(key);
            case "value_len_even":
                return (key, value) -> value != null && value.toString().length() % 2 == 0;
            case "value_lt":
                return (key, value) -> value != null && value.toString().compareTo(x) < 0;
            case "value_ge":
                return (key, value) -> value != null && value.toString().compareTo(x) >= 0;
            case "value_contains":
                return (key, value) -> value != null && value.toString().contains(x);
            case "number_even":
                return (key, value) -> value != null && number(value) % 2 == 0;
            case "number_gt":
                return (key, value) -> value != null && number(value) > Long.parseLong(x);
            default:
                throw new IllegalArgumentException("no predicate " + function);
        }
    }

    static ValueMapper<Object, Object> mapper(String function) {
        String x = argument(function);
        if (name(function).equals("default")) {
            return value -> value == null ? x : value;
        }
        ValueMapper<String, Object> mapper = textMapper(name(function), x);
        if (mapper == null) {
            return value -> value;
        }
        if (name(function).equals("number")) {
            return value -> value == null ? null : (Object) number(value);
        }
        return value -> value == null ? null : mapper.apply(value.toString());
    }

    /** Null for the identity, which also takes longs. */
    private static ValueMapper<String, Object> textMapper(String name, String x) {
        switch (name) {
            case "identity":
                return null;
            case "number":
                return Functions::number;
            case "str":
                return value -> value;
            case "upper":
                return String::toUpperCase;
            case "prefix":
                return value -> x + value;
            case "suffix":
                return value -> value + x;
            case "first_char":
                return value -> value.isEmpty() ? "" : value.substring(0, 1);
            case "to_null_if_len_odd":
                return value -> value.length() % 2 == 1 ? null : value;
            case "to_null_if_contains":
                return value -> value.contains(x) ? null : value;
            case "after_colon":
                return value -> value.contains(":") ? value.split(":", 2)[1] : value;
            default:
                throw new IllegalArgumentException("no mapper " + name);
        }
    }

    static KeyValueMapper<Object, Object, Object> selector(String function) {
        String x = argument(function);
        switch (name(function)) {
            case "key":
                return (key, value) -> key;
            case "const":
                return (key, value) -> x;
            case "value":
                return (key, value) -> value == null ? null : value.toString();
            case "value_first_char":
                return (key, value) -> value == null ? null : start(value);
            case "value_first_char_or_null":
                return (key, value) -> value == null || value.toString().startsWith(x) ? null : start(value);
            case "value_prefix_before_colon":
                return (key, value) ->
                        value == null || !value.toString().contains(":") ? null : value.toString().split(":", 2)[0];
            case "number_mod":
                return (key, value) -> value == null ? null : String.valueOf(number(value) % Long.parseLong(x));
            default:
                throw new IllegalArgumentException("no selector " + function);
        }
    }

    private static String start(Object value) {
        return value.toString().isEmpty() ? "" : value.toString().substring(0, 1);
    }

    static Initializer<Object> initializer(String function) {
        return () -> function.equals("zero") ? (Object) 0L : "";
    }

    static Aggregator<Object, Object, Object> aggregator(String function) {
        switch (function) {
            case "concat_add":
                return (key, value, aggregate) -> last24(aggregate + "+" + text(value));
            case "concat_sub":
                return (key, value, aggregate) -> last24(aggregate + "-" + text(value));
            case "concat_key_add":
                return (key, value, aggregate) -> last24(aggregate + "+" + text(key) + text(value));
            case "sum":
                return (key, value, aggregate) -> (Long) aggregate + number(value);
            case "sub":
                return (key, value, aggregate) -> (Long) aggregate - number(value);
            case "set_add":
                return (key, value, aggregate) -> {
                    TreeSet<String> items = items(aggregate);
                    items.add(text(value));
                    return joined(items);
                };
            case "set_remove":
                return (key, value, aggregate) -> removed(value, aggregate);
            case "set_remove_null":
                return (key, value, aggregate) -> {
                    String left = removed(value, aggregate);
                    return left.isEmpty() ? null : left;
                };
            default:
                throw new IllegalArgumentException("no aggregator " + function);
        }
    }

    private static TreeSet<String> items(Object aggregate) {
        return Arrays.stream(aggregate.toString().split(","))
                .filter(item -> !item.isEmpty())
                .collect(Collectors.toCollection(TreeSet::new));
    }

    private static String joined(TreeSet<String> items) {
        return String.join(",", items);
    }

    private static String removed(Object value, Object aggregate) {
        TreeSet<String> items = items(aggregate);
        items.remove(text(value));
        return joined(items);
    }

    static Reducer<Object> reducer(String function) {
        switch (function) {
            case "reduce_concat":
                return (aggregate, value) -> last24(aggregate + "+" + text(value));
            case "reduce_concat_sub":
                return (aggregate, value) -> last24(aggregate + "-" + text(value));
            case "reduce_last":
                return (aggregate, value) -> value;
            case "reduce_first":
                return (aggregate, value) -> aggregate;
            case "reduce_max":
                return (aggregate, value) -> value.toString().compareTo(aggregate.toString()) > 0 ? value : aggregate;
            case "reduce_min":
                return (aggregate, value) -> value.toString().compareTo(aggregate.toString()) < 0 ? value : aggregate;
            default:
                throw new IllegalArgumentException("no reducer " + function);
        }
    }

    static Merger<Object, Object> merger(String function) {
        switch (function) {
            case "concat_merge":
                return (key, one, other) -> last24(text(one) + "|" + text(other));
            case "sum_merge":
                return (key, one, other) -> (Long) one + (Long) other;
            case "set_merge":
                return (key, one, other) -> {
                    TreeSet<String> items = items(one);
                    items.addAll(items(other));
                    return joined(items);
                };
            default:
                throw new IllegalArgumentException("no merger " + function);
        }
    }
}
