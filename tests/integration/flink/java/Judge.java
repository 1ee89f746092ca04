import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.EitherTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.types.Either;
import org.apache.flink.util.Collector;

/**
 * The jobs of the golden cases `types` and `pojo`, as far as restoring goes: their classes under the
 * names that the savepoints have, the same states, and a line for what every key holds.
 */
public class Judge {
    public enum Color { RED, GREEN, BLUE }

    public static class Address {
        public String street;
        public Integer zip;
    }

    public static class Customer {
        public Long id;
        public String name;
        public Double balance;
        public List<String> tags;
        public Map<String, Integer> scores;
        public Address address;
        public Color color;
    }

    private static final long STEP = 40503;
    private static final long BASE = -500;

    /** The values of the case `types`, a state each. */
    static Map<String, TypeInformation<?>> types() {
        Map<String, TypeInformation<?>> types = new LinkedHashMap<>();
        types.put("boolean", Types.BOOLEAN);
        types.put("byte", Types.BYTE);
        types.put("short", Types.SHORT);
        types.put("int", Types.INT);
        types.put("long", Types.LONG);
        types.put("float", Types.FLOAT);
        types.put("double", Types.DOUBLE);
        types.put("char", Types.CHAR);
        types.put("string", Types.STRING);
        types.put("bigint", Types.BIG_INT);
        types.put("bigdec", Types.BIG_DEC);
        types.put("date", Types.SQL_DATE);
        types.put("time", Types.SQL_TIME);
        types.put("timestamp", Types.SQL_TIMESTAMP);
        types.put("localdate", Types.LOCAL_DATE);
        types.put("localtime", Types.LOCAL_TIME);
        types.put("localdatetime", Types.LOCAL_DATE_TIME);
        types.put("instant", Types.INSTANT);
        types.put("bytes", Types.PRIMITIVE_ARRAY(Types.BYTE));
        types.put("ints", Types.PRIMITIVE_ARRAY(Types.INT));
        types.put("longs", Types.PRIMITIVE_ARRAY(Types.LONG));
        types.put("doubles", Types.PRIMITIVE_ARRAY(Types.DOUBLE));
        // the array of strings has a serializer of its own, which Types.OBJECT_ARRAY does not give
        types.put("strings", TypeInformation.of(String[].class));
        types.put("objarray", Types.OBJECT_ARRAY(Types.TUPLE(Types.INT, Types.STRING)));
        types.put("list", Types.LIST(Types.LONG));
        types.put("map", Types.MAP(Types.STRING, Types.LONG));
        types.put("nested", Types.MAP(Types.INT, Types.LIST(Types.TUPLE(Types.STRING, Types.LONG))));
        types.put("tuple2", Types.TUPLE(Types.STRING, Types.DOUBLE));
        types.put("either", new EitherTypeInfo<>(Types.STRING, Types.LONG));
        types.put("enum", Types.ENUM(Color.class));
        return types;
    }

    static TypeInformation<Address> address() {
        return Types.POJO(Address.class, Map.of("street", Types.STRING, "zip", Types.INT));
    }

    /** Lists and maps have types here that Flink 1.20 would not find by itself. */
    static TypeInformation<Customer> customer() {
        Map<String, TypeInformation<?>> fields = new LinkedHashMap<>();
        fields.put("id", Types.LONG);
        fields.put("name", Types.STRING);
        fields.put("balance", Types.DOUBLE);
        fields.put("tags", Types.LIST(Types.STRING));
        fields.put("scores", Types.MAP(Types.STRING, Types.INT));
        fields.put("address", address());
        fields.put("color", Types.ENUM(Color.class));
        return Types.POJO(Customer.class, fields);
    }

    static DataStream<String> typesJob(DataStream<Long> numbers) {
        return numbers.map(k -> (int) (k * STEP + BASE)).returns(Types.INT).keyBy(key -> key)
                .process(new EveryType()).uid("types").name("types");
    }

    static DataStream<String> pojoJob(DataStream<Long> numbers) {
        return numbers.map(Jobs::word).returns(Types.STRING).keyBy(word -> word)
                .process(new Customers()).uid("customers").name("customers");
    }

    static class EveryType extends KeyedProcessFunction<Integer, Integer, String> {
        private transient Map<String, ValueState<?>> states;

        @Override
        public void open(OpenContext context) {
            states = new LinkedHashMap<>();
            types().forEach((name, type) -> states.put(
                    name, getRuntimeContext().getState(new ValueStateDescriptor<>(name, type))));
        }

        @Override
        public void processElement(Integer key, Context context, Collector<String> out)
                throws Exception {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            for (Map.Entry<String, ValueState<?>> state : states.entrySet()) {
                line.put(state.getKey(), plain(state.getValue().value()));
            }
            out.collect(Json.of(line));
        }
    }

    static class Customers extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Customer> customer;
        private transient ListState<Address> past;

        @Override
        public void open(OpenContext context) {
            customer = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("customer", customer()));
            past = getRuntimeContext().getListState(new ListStateDescriptor<>("past", address()));
        }

        @Override
        public void processElement(String key, Context context, Collector<String> out)
                throws Exception {
            List<Object> addresses = new ArrayList<>();
            for (Address one : past.get()) {
                addresses.add(plain(one));
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("customer", plain(customer.value()));
            line.put("past", addresses);
            out.collect(Json.of(line));
        }
    }

    /** A value as what JSON has: as the golden cases print it. */
    static Object plain(Object value) throws ReflectiveOperationException {
        if (value instanceof Number && !Double.isFinite(((Number) value).doubleValue())) {
            return value.toString();
        }
        if (value == null || value instanceof Boolean || value instanceof String
                || value instanceof Character || value instanceof Double || value instanceof Float
                || value instanceof Long || value instanceof Integer || value instanceof Short
                || value instanceof Byte) {
            return value;
        }
        if (value instanceof byte[]) {
            return Base64.getEncoder().encodeToString((byte[]) value);
        }
        if (value instanceof BigDecimal) {
            return ((BigDecimal) value).toPlainString();
        }
        if (value instanceof Either) {
            Either<?, ?> either = (Either<?, ?>) value;
            Map<String, Object> side = new TreeMap<>();
            side.put(either.isLeft() ? "left" : "right",
                    plain(either.isLeft() ? either.left() : either.right()));
            return side;
        }
        if (value instanceof Map) {
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                entries.put(entry.getKey().toString(), plain(entry.getValue()));
            }
            return entries;
        }
        List<Object> items = new ArrayList<>();
        if (value.getClass().isArray()) {
            for (int i = 0; i < Array.getLength(value); i++) {
                items.add(plain(Array.get(value, i)));
            }
            return items;
        }
        if (value instanceof List) {
            for (Object item : (List<?>) value) {
                items.add(plain(item));
            }
            return items;
        }
        if (value instanceof Tuple) {
            for (int i = 0; i < ((Tuple) value).getArity(); i++) {
                items.add(plain(((Tuple) value).getField(i)));
            }
            return items;
        }
        if (value.getClass().getName().contains("$") && !(value instanceof Enum)) {
            return fields(value);
        }
        return value.toString();
    }

    /** What a POJO of ours holds. */
    private static Map<String, Object> fields(Object pojo) throws ReflectiveOperationException {
        Map<String, Object> found = new TreeMap<>();
        for (java.lang.reflect.Field field : pojo.getClass().getFields()) {
            found.put(field.getName(), plain(field.get(pojo)));
        }
        return found;
    }
}
