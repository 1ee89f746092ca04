import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import java.io.IOException;
import java.io.Serializable;
import java.lang.reflect.Constructor;
import java.math.BigInteger;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.UUID;
import java.util.stream.Collectors;
import javax.tools.ToolProvider;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.api.common.typeutils.base.array.*;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.runtime.EitherSerializer;
import org.apache.flink.api.java.typeutils.runtime.NullableSerializer;
import org.apache.flink.api.java.typeutils.runtime.RowSerializer;
import org.apache.flink.api.java.typeutils.runtime.Tuple0Serializer;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.formats.avro.typeutils.AvroSerializer;
import org.apache.flink.runtime.state.ArrayListSerializer;
import org.apache.flink.runtime.state.JavaSerializer;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;
import org.apache.flink.streaming.api.datastream.CoGroupedStreams;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.apache.flink.streaming.api.operators.co.IntervalJoinOperator;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.table.runtime.typeutils.SortedMapSerializer;
import org.apache.flink.types.Value;

/**
 * The serializers that {@link CompatibilityVectors} makes pairs of, each with a name. A class that
 * changes is compiled here, every version of it in a class loader of its own.
 */
class CompatibilityTypes {
    static final ClassLoader OURS = CompatibilityVectors.class.getClassLoader();
    static final Map<String, ClassLoader> LOADERS = new HashMap<>();

    /** A serializer with its name, and the loader of the job that it is of. */
    record Typed(String name, TypeSerializer<?> serializer, ClassLoader loader) {}

    // leaves
    static final Typed BOOLEAN = of("Boolean", BooleanSerializer.INSTANCE);
    static final Typed BYTE = of("Byte", ByteSerializer.INSTANCE);
    static final Typed SHORT = of("Short", ShortSerializer.INSTANCE);
    static final Typed INT = of("Int", IntSerializer.INSTANCE);
    static final Typed LONG = of("Long", LongSerializer.INSTANCE);
    static final Typed FLOAT = of("Float", FloatSerializer.INSTANCE);
    static final Typed DOUBLE = of("Double", DoubleSerializer.INSTANCE);
    static final Typed CHAR = of("Char", CharSerializer.INSTANCE);
    static final Typed STRING = of("String", StringSerializer.INSTANCE);
    static final Typed DATE = of("Date", DateSerializer.INSTANCE);
    static final Typed INSTANT = of("Instant", InstantSerializer.INSTANCE);
    static final Typed SQL_TIMESTAMP = of("SqlTimestamp", SqlTimestampSerializer.INSTANCE);
    static final Typed LONG_VALUE = of("LongValue", LongValueSerializer.INSTANCE);
    static final Typed STRING_VALUE = of("StringValue", StringValueSerializer.INSTANCE);
    static final Typed BYTES = of("byte[]", BytePrimitiveArraySerializer.INSTANCE);
    static final Typed LONGS = of("long[]", LongPrimitiveArraySerializer.INSTANCE);
    static final Typed STRINGS = of("String[]", StringArraySerializer.INSTANCE);
    static final Typed NOTHING = of("VoidNamespace", VoidNamespaceSerializer.INSTANCE);
    static final Typed TIME_WINDOW = of("TimeWindow", new TimeWindow.Serializer());
    static final Typed GLOBAL_WINDOW = of("GlobalWindow", new GlobalWindow.Serializer());
    static final Typed JAVA = of("Java object", new JavaSerializer<>());
    static final Typed UUIDS = kryo(UUID.class);

    static final Typed[] LEAVES = {
        BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, CHAR, STRING,
        of("BooleanValue", BooleanValueSerializer.INSTANCE), of("ByteValue", ByteValueSerializer.INSTANCE),
        of("ShortValue", ShortValueSerializer.INSTANCE), of("IntValue", IntValueSerializer.INSTANCE),
        LONG_VALUE, of("FloatValue", FloatValueSerializer.INSTANCE),
        of("DoubleValue", DoubleValueSerializer.INSTANCE), of("CharValue", CharValueSerializer.INSTANCE),
        STRING_VALUE, of("NullValue", NullValueSerializer.INSTANCE), of("Void", VoidSerializer.INSTANCE),
        of("Tuple0", Tuple0Serializer.INSTANCE), of("BigInteger", BigIntSerializer.INSTANCE),
        of("BigDecimal", BigDecSerializer.INSTANCE), DATE, of("SqlDate", SqlDateSerializer.INSTANCE),
        of("SqlTime", SqlTimeSerializer.INSTANCE), SQL_TIMESTAMP, INSTANT,
        of("LocalDate", LocalDateSerializer.INSTANCE), of("LocalTime", LocalTimeSerializer.INSTANCE),
        of("LocalDateTime", LocalDateTimeSerializer.INSTANCE), of("Variant", VariantSerializer.INSTANCE),
        of("Bitmap", BitmapSerializer.INSTANCE), BYTES, LONGS, STRINGS,
        of("boolean[]", BooleanPrimitiveArraySerializer.INSTANCE),
        of("short[]", ShortPrimitiveArraySerializer.INSTANCE), of("int[]", IntPrimitiveArraySerializer.INSTANCE),
        of("float[]", FloatPrimitiveArraySerializer.INSTANCE),
        of("double[]", DoublePrimitiveArraySerializer.INSTANCE),
        of("char[]", CharPrimitiveArraySerializer.INSTANCE), NOTHING, TIME_WINDOW, GLOBAL_WINDOW, JAVA,
    };

    static Typed of(String name, TypeSerializer<?> serializer) {
        return new Typed(name, serializer, OURS);
    }

    static Typed leaf(String name) {
        return Arrays.stream(LEAVES).filter(one -> one.name().equals(name)).findFirst().orElseThrow();
    }

    // ----------------------------------------------------------------------------- composites

    private static Typed around(String name, TypeSerializer<?> serializer, Typed... parts) {
        StringJoiner names = new StringJoiner(", ", name + "(", ")");
        ClassLoader loader = OURS;
        for (Typed part : parts) {
            names.add(part.name());
            loader = part.loader() == OURS ? loader : part.loader();
        }
        return new Typed(names.toString(), serializer, loader);
    }

    @SuppressWarnings("unchecked")
    private static <T> TypeSerializer<T> raw(Typed one) {
        return (TypeSerializer<T>) one.serializer();
    }

    private static TypeSerializer<?>[] all(Typed... parts) {
        return Arrays.stream(parts).map(one -> one.serializer()).toArray(TypeSerializer<?>[]::new);
    }

    static Typed list(Typed element) {
        return around("List", new ListSerializer<>(raw(element)), element);
    }

    static Typed arrayList(Typed element) {
        return around("ArrayList", new ArrayListSerializer<>(raw(element)), element);
    }

    static Typed set(Typed element) {
        return around("Set", new SetSerializer<>(raw(element)), element);
    }

    static Typed map(Typed key, Typed value) {
        return around("Map", new MapSerializer<>(raw(key), raw(value)), key, value);
    }

    static Typed sorted(Comparator<?> order, Typed key, Typed value) {
        @SuppressWarnings("unchecked")
        Comparator<Object> comparator = (Comparator<Object>) order;
        return around("SortedMap by " + order, new SortedMapSerializer<>(comparator, raw(key), raw(value)), key, value);
    }

    static Typed tuple(Typed... fields) {
        return tuple(Tuple.getTupleClass(fields.length), fields);
    }

    static Typed tuple(Class<? extends Tuple> type, Typed... fields) {
        return around(type.getSimpleName(), new TupleSerializer<>(type, all(fields)), fields);
    }

    /** A row, whose names no snapshot holds; "a,b" for named fields. */
    static Typed row(boolean withKind, String names, Typed... fields) {
        LinkedHashMap<String, Integer> positions = names == null ? null : new LinkedHashMap<>();
        for (int i = 0; names != null && i < fields.length; i++) {
            positions.put(names.split(",")[i], i);
        }
        String label = (withKind ? "Row" : "Row without kind") + (names == null ? "" : " of " + names);
        return around(label, new RowSerializer(all(fields), positions, withKind), fields);
    }

    static Typed array(Class<?> component, Typed element) {
        @SuppressWarnings("unchecked")
        Class<Object> type = (Class<Object>) component;
        return around(component.getSimpleName() + "[]", new GenericArraySerializer<>(type, raw(element)), element);
    }

    static Typed nullable(boolean padded, Typed value) {
        return around(padded ? "Padded" : "Nullable", NullableSerializer.wrap(raw(value), padded), value);
    }

    static Typed either(Typed left, Typed right) {
        return around("Either", new EitherSerializer<>(raw(left), raw(right)), left, right);
    }

    static Typed ttl(Typed value) {
        return around("Ttl", new TtlStateFactory.TtlSerializer<>(LongSerializer.INSTANCE, raw(value)), value);
    }

    static Typed timer(Typed key, Typed namespace) {
        return around("Timer", new TimerSerializer<>(raw(key), raw(namespace)), key, namespace);
    }

    static Typed union(Typed one, Typed two) throws Exception {
        return around("TaggedUnion", hidden(CoGroupedStreams.class, "UnionSerializer", all(one, two)), one, two);
    }

    static Typed buffered(Typed element) throws Exception {
        return around("BufferEntry", hidden(IntervalJoinOperator.class, "BufferEntrySerializer", all(element)), element);
    }

    /** A serializer whose class is not public. */
    private static TypeSerializer<?> hidden(Class<?> outer, String name, TypeSerializer<?>[] parts) throws Exception {
        Class<?> type = Class.forName(outer.getName() + "$" + name);
        Class<?>[] types = new Class<?>[parts.length];
        Arrays.fill(types, TypeSerializer.class);
        Constructor<?> constructor = type.getDeclaredConstructor(types);
        constructor.setAccessible(true);
        return (TypeSerializer<?>) constructor.newInstance((Object[]) parts);
    }

    // -------------------------------------------------------------------------------- classes

    /** The loader of one version of the classes nested in `Model`. */
    private static ClassLoader compiled(String body) throws Exception {
        if (!LOADERS.containsKey(body)) {
            Path directory = Files.createTempDirectory("model");
            Path source = directory.resolve("Model.java");
            Files.writeString(source, "public class Model {" + body + "}");
            int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null,
                    "-nowarn", "-d", directory.toString(), source.toString());
            if (failed != 0) {
                throw new IOException(body);
            }
            LOADERS.put(body, new URLClassLoader(new URL[] {directory.toUri().toURL()}, OURS));
        }
        return LOADERS.get(body);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Typed enumeration(String name, String constants) throws Exception {
        ClassLoader loader = compiled("public enum " + name + " {" + constants + "}");
        Class type = loader.loadClass("Model$" + name);
        return new Typed(name + " {" + constants + "}", new EnumSerializer(type), loader);
    }

    static Typed reflected(String name, String body) throws Exception {
        ClassLoader loader = compiled(body);
        Thread.currentThread().setContextClassLoader(loader);
        AvroSerializer<?> serializer = new AvroSerializer<>(loader.loadClass("Model$A"));
        serializer.snapshotConfiguration();
        return new Typed("Avro class " + name, serializer, loader);
    }

    static Typed kryo(Class<?> type, Class<?>... registered) {
        SerializerConfigImpl config = new SerializerConfigImpl();
        Arrays.stream(registered).forEach(config::registerKryoType);
        String more = Arrays.stream(registered).map(Class::getSimpleName).collect(Collectors.joining(", "));
        return of("Kryo(" + type.getSimpleName() + ")" + (more.isEmpty() ? "" : " with " + more),
                new KryoSerializer<>(type, config));
    }

    static Typed kryoWith(Class<?> type, Class<? extends Serializer<?>> serializer) {
        SerializerConfigImpl config = new SerializerConfigImpl();
        config.registerTypeWithKryoSerializer(type, serializer);
        return of("Kryo(" + type.getSimpleName() + ") by " + serializer.getSimpleName(),
                new KryoSerializer<>(type, config));
    }

    // ----------------------------------------------------------------------------------- Avro

    static Typed generic(String name, String schema) {
        Schema parsed = new Schema.Parser().parse(schema.replace('\'', '"'));
        return of("Avro " + name, new AvroSerializer<>(GenericRecord.class, parsed));
    }

    /** A record `acme.R`. */
    static Typed record(String fields) {
        return generic("{" + fields.replace("'", "") + "}", String.format(RECORD, fields));
    }

    /** A record `acme.R` of an `id`, and of a field of some type. */
    static Typed field(String type) {
        String fields = ID + ",{'name':'v','type':" + type + "}";
        return generic("{id, " + type.replace("'", "") + "}", String.format(RECORD, fields));
    }

    static String symbols(String name, String symbols) {
        return "{'type':'enum','name':'" + name + "','symbols':[" + symbols + "]}";
    }

    static String fixed(int size) {
        return "{'type':'fixed','name':'F','size':" + size + "}";
    }

    static String inner(String name, String fields) {
        return "{'type':'record','name':'" + name + "','fields':[" + fields + "]}";
    }

    static final String RECORD = "{'type':'record','name':'R','namespace':'acme','fields':[%s]}";
    static final String ID = "{'name':'id','type':'long'}";

    // ------------------------------------------------------------------- classes of the tests

    /** A tuple of a user's. */
    public static class Pair extends Tuple2<String, Long> {}

    /** Sorts upwards; equal to those of the same number. */
    static class Ascending implements Comparator<Long>, Serializable {
        private final int number;

        Ascending(int number) {
            this.number = number;
        }

        @Override
        public int compare(Long one, Long two) {
            return one.compareTo(two);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Ascending && ((Ascending) other).number == number;
        }

        @Override
        public int hashCode() {
            return number;
        }

        @Override
        public String toString() {
            return "Ascending " + number;
        }
    }

    /** Sorts downwards. */
    static class Descending implements Comparator<Long>, Serializable {
        @Override
        public int compare(Long one, Long two) {
            return two.compareTo(one);
        }

        @Override
        public String toString() {
            return "Descending";
        }
    }

    /** Writes itself. */
    public static class Ours implements Value {
        @Override
        public void write(DataOutputView out) {}

        @Override
        public void read(DataInputView in) {}
    }

    /** Writes itself, too. */
    public static class Theirs extends Ours {}

    /** A serializer of Kryo's. */
    public static class Plain extends Serializer<UUID> {
        @Override
        public void write(Kryo kryo, Output output, UUID value) {
            output.writeString(value.toString());
        }

        @Override
        public UUID read(Kryo kryo, Input input, Class<? extends UUID> type) {
            return UUID.fromString(input.readString());
        }
    }

    /** Another one. */
    public static class Other extends Plain {}
}
