import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.IndexedRecord;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.formats.avro.typeutils.AvroSerializer;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedBackendSerializationProxy;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.state.api.runtime.SavepointLoader;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A job whose types evolve: it is compiled with one `evolving/.../Shop.java` or another, whose classes
 * have the same names. Its commands:
 *
 * <pre>
 * write    BACKEND DIRECTORY                take a canonical savepoint of these keys
 * restore  BACKEND SAVEPOINT STATES FILE    write what these states hold (or all of them: -)
 * verdicts SAVEPOINT FILE                   write Flink's verdict on the types of each state
 * write-operators   DIRECTORY               the same for operator state: see EvolvingOperators.java
 * restore-operators SAVEPOINT STATES FILE
 * operator-verdicts SAVEPOINT FILE
 * </pre>
 */
public class EvolvingJobs {
    static final long KEYS = 24;
    static final AtomicLong SEEN = new AtomicLong();
    static final ConcurrentLinkedQueue<String> LINES = new ConcurrentLinkedQueue<>();

    public static void main(String[] arguments) throws Exception {
        Answers.to(EvolvingJobs::run);
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "write":
                return write(words[1], words[2]);
            case "restore":
                return restore(words[1], words[2], words[3], Path.of(words[4]));
            case "verdicts":
                return verdicts(words[1], Path.of(words[2]));
            case "write-operators":
                return EvolvingOperators.write(words[1]);
            case "restore-operators":
                return EvolvingOperators.restore(words[1], words[2], Path.of(words[3]));
            case "operator-verdicts":
                return EvolvingOperators.verdicts(words[1], Path.of(words[2]));
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    static StreamExecutionEnvironment environment(String backend, String savepoint) {
        Configuration conf = new Configuration();
        conf.setString("state.backend.type", backend);
        conf.setString("restart-strategy.type", "none");
        conf.setString("execution.checkpointing.data-inline-threshold", "0");
        if (savepoint != null) {
            conf.setString("execution.state-recovery.path", savepoint);
            conf.setString("execution.state-recovery.ignore-unclaimed-state", "true"); // the source's
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.setMaxParallelism(128);
        register((SerializerConfigImpl) env.getConfig().getSerializerConfig());
        return env;
    }

    static void register(SerializerConfigImpl config) {
        for (Class<?> one : Shop.REGISTERED) {
            config.registerPojoType(one);
        }
    }

    private static String write(String backend, String directory) throws Exception {
        StreamExecutionEnvironment env = environment(backend, null);
        build(endless(env), new Evolving("-", false));
        return savepoint(env, directory);
    }

    /** The keys' numbers; the source then idles, so that a savepoint can be taken. */
    static DataStream<Long> endless(StreamExecutionEnvironment env) {
        return env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source")
                .flatMap((FlatMapFunction<Long, Long>) (number, out) -> {
                    if (number < KEYS) {
                        out.collect(number);
                    } else {
                        Thread.sleep(5);
                    }
                }).returns(Types.LONG).setParallelism(1);
    }

    /** A canonical savepoint of a job that has seen all keys. */
    static String savepoint(StreamExecutionEnvironment env, String directory) throws Exception {
        SEEN.set(0);
        MiniCluster cluster = Cluster.of(env.getParallelism());
        JobID job = Cluster.submit(cluster, env);
        CompletableFuture<JobResult> result = cluster.requestJobResult(job);
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        while (SEEN.get() < KEYS) {
            if (result.isDone() || System.nanoTime() > deadline) {
                result.get(1, TimeUnit.SECONDS);
                Cluster.result(cluster, job);
            }
            Thread.sleep(20);
        }
        while (true) {
            try {
                String savepoint = cluster
                        .triggerSavepoint(job, directory, false, SavepointFormatType.CANONICAL)
                        .get(2, TimeUnit.MINUTES);
                cluster.cancelJob(job).get(1, TimeUnit.MINUTES);
                result.get(1, TimeUnit.MINUTES);
                return savepoint;
            } catch (ExecutionException notYet) { // some task is still starting
                if (System.nanoTime() > deadline || result.isDone()) {
                    throw notYet;
                }
                Thread.sleep(50);
            }
        }
    }

    private static String restore(String backend, String savepoint, String states, Path file)
            throws Exception {
        StreamExecutionEnvironment env = environment(backend, savepoint);
        build(ending(env), new Evolving(states, true));
        return lines(env, file);
    }

    /** The keys' numbers, from a source that does not go on where the other one was. */
    static DataStream<Long> ending(StreamExecutionEnvironment env) {
        return env.fromSequence(0, KEYS - 1).setParallelism(1).uid("restoring-source");
    }

    /** Run a job to its end, and write its lines; how many they are. */
    static String lines(StreamExecutionEnvironment env, Path file) throws Exception {
        LINES.clear();
        Cluster.run(env);
        List<String> lines = new ArrayList<>(LINES);
        lines.sort(null);
        Files.write(file, lines, StandardCharsets.UTF_8);
        return Integer.toString(lines.size());
    }

    private static void build(DataStream<Long> numbers, Evolving evolving) {
        numbers.keyBy(number -> "key-" + number).process(evolving).uid("evolving").name("evolving")
                .sinkTo(new DiscardingSink<>()).uid("sink");
    }

    // ---------------------------------------------------------------------------- the states

    private static Map<String, StateDescriptor<?, ?>> descriptors() {
        TypeInformation<Shop.Order> order = TypeInformation.of(Shop.Order.class);
        TypeSerializer<Event> event = new AvroSerializer<>(Event.class);
        List<StateDescriptor<?, ?>> all = List.of(
                new ValueStateDescriptor<>("order", order),
                new ListStateDescriptor<>("orders", order),
                new MapStateDescriptor<>("ordered", Types.STRING, order),
                new ValueStateDescriptor<>("contact", TypeInformation.of(Shop.Contact.class)),
                new ListStateDescriptor<>("labels", TypeInformation.of(Shop.Label.class)),
                new MapStateDescriptor<>("tiers", Types.STRING, TypeInformation.of(Shop.Tier.class)),
                new ValueStateDescriptor<>("event", event),
                new ListStateDescriptor<>("events", event),
                new MapStateDescriptor<>("happened", IntSerializer.INSTANCE, event),
                new ValueStateDescriptor<>("generic", new GenericRecordAvroTypeInfo(Event.SCHEMA$)));
        Map<String, StateDescriptor<?, ?>> found = new LinkedHashMap<>();
        all.forEach(one -> found.put(one.getName(), one));
        return found;
    }

    /** What Flink would do with each state of a savepoint, were it restored with these classes. */
    private static String verdicts(String savepoint, Path file) throws Exception {
        ExecutionConfig config = new ExecutionConfig();
        register((SerializerConfigImpl) config.getSerializerConfig());
        Map<String, StateDescriptor<?, ?>> descriptors = descriptors();
        Map<String, Object> found = new TreeMap<>();
        for (OperatorState operator : SavepointLoader.loadSavepointMetadata(savepoint).getOperatorStates()) {
            for (OperatorSubtaskState subtask : operator.getStates()) {
                for (KeyedStateHandle handle : subtask.getManagedKeyedState()) {
                    for (StateMetaInfoSnapshot state : states((KeyGroupsStateHandle) handle)) {
                        StateDescriptor<?, ?> descriptor = descriptors.get(state.getName());
                        if (descriptor == null) {
                            continue; // timers
                        }
                        descriptor.initializeSerializerUnlessSet(config);
                        found.put(state.getName(), verdict(
                                descriptor.getSerializer().snapshotConfiguration(),
                                state.getTypeSerializerSnapshot(
                                        StateMetaInfoSnapshot.CommonSerializerKeys.VALUE_SERIALIZER)));
                    }
                }
            }
        }
        Files.writeString(file, Json.of(found) + "\n");
        return Integer.toString(found.size());
    }

    private static List<StateMetaInfoSnapshot> states(KeyGroupsStateHandle handle) throws Exception {
        try (FSDataInputStream stream = handle.openInputStream()) {
            KeyedBackendSerializationProxy<?> proxy =
                    new KeyedBackendSerializationProxy<>(EvolvingJobs.class.getClassLoader());
            proxy.read(new DataInputViewStreamWrapper(stream));
            return proxy.getStateMetaInfoSnapshots();
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static String verdict(TypeSerializerSnapshot now, TypeSerializerSnapshot before) {
        TypeSerializerSchemaCompatibility<?> found = now.resolveSchemaCompatibility(before);
        return found.isCompatibleAsIs() ? "compatible_as_is"
                : found.isCompatibleAfterMigration() ? "compatible_after_migration"
                : found.isCompatibleWithReconfiguredSerializer()
                        ? "compatible_with_reconfigured_serializer" : "incompatible";
    }

    static class Evolving extends KeyedProcessFunction<String, Long, String> {
        private final List<String> chosen;
        private final boolean restoring;
        private transient Map<String, State> states;

        Evolving(String chosen, boolean restoring) {
            this.chosen = chosen.equals("-") ? List.of() : Arrays.asList(chosen.split(","));
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            states = new LinkedHashMap<>();
            descriptors().forEach((name, one) -> {
                if (chosen.isEmpty() || chosen.contains(name)) {
                    states.put(name, state(one));
                }
            });
        }

        private State state(StateDescriptor<?, ?> one) {
            if (one instanceof ListStateDescriptor) {
                return getRuntimeContext().getListState((ListStateDescriptor<?>) one);
            }
            if (one instanceof MapStateDescriptor) {
                return getRuntimeContext().getMapState((MapStateDescriptor<?, ?>) one);
            }
            return getRuntimeContext().getState((ValueStateDescriptor<?>) one);
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> out) throws Exception {
            if (!restoring) {
                fill(number);
                SEEN.incrementAndGet();
                return;
            }
            Map<String, Object> line = new TreeMap<>();
            for (Map.Entry<String, State> state : states.entrySet()) {
                line.put(state.getKey(), held(state.getValue()));
            }
            line.put("key", context.getCurrentKey());
            LINES.add(Json.of(line));
        }

        private static Object held(State state) throws Exception {
            if (state instanceof ValueState) {
                return plain(((ValueState<?>) state).value());
            }
            if (state instanceof ListState) {
                List<Object> items = new ArrayList<>();
                for (Object one : ((ListState<?>) state).get()) {
                    items.add(plain(one));
                }
                return items;
            }
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<?, ?> one : ((MapState<?, ?>) state).entries()) {
                entries.put(one.getKey().toString(), plain(one.getValue()));
            }
            return entries;
        }

        @SuppressWarnings("unchecked")
        private void fill(long k) throws Exception {
            if (k % 8 == 7) {
                return;
            }
            ValueState<Object> order = (ValueState<Object>) states.get("order");
            ListState<Object> orders = (ListState<Object>) states.get("orders");
            MapState<String, Object> ordered = (MapState<String, Object>) states.get("ordered");
            MapState<String, Object> tiers = (MapState<String, Object>) states.get("tiers");
            ListState<Object> labels = (ListState<Object>) states.get("labels");
            ListState<Object> events = (ListState<Object>) states.get("events");
            MapState<Integer, Object> happened = (MapState<Integer, Object>) states.get("happened");
            order.update(order(k));
            ((ValueState<Object>) states.get("contact")).update(contact(k));
            ((ValueState<Object>) states.get("event")).update(event(k, true));
            ((ValueState<Object>) states.get("generic")).update(event(k, false));
            for (int i = 0; i < k % 3; i++) {
                orders.add(order(k + 5 * i));
                labels.add(label(k + i));
                events.add(event(k + 7 * i, true));
                ordered.put("n" + i, i == 1 ? null : order(k + 3 * i));
                tiers.put("t" + i, tier(k + i));
                happened.put(i, event(k + i, true));
            }
        }
    }

    // ---------------------------------------------------------------------------- the values

    private static Object tier(long k) {
        return Shop.Tier.valueOf(k % 3 == 0 ? "SILVER" : k % 3 == 1 ? "GOLD" : "BRONZE");
    }

    static Shop.Address address(long k) throws Exception {
        return k % 4 == 3 ? null : with(new Shop.Address(), Map.of(
                "street", "straße " + k, "zip", k * 7, "city", "city-" + k));
    }

    private static Shop.Contact contact(long k) throws Exception {
        Shop.Contact made;
        switch ((int) (k % 5)) {
            case 0:
                return null;
            case 1:
                made = new Shop.Contact();
                break;
            case 2:
                made = with(new Shop.Email(), Map.of("email", k + "@例え.jp"));
                break;
            case 3:
                made = with(new Shop.Phone(), Map.of("number", "+" + k, "extension", k));
                break;
            default:
                made = with(new Shop.Letter(), Map.of("box", "box-" + k, "weight", k * k));
        }
        made.name = k % 2 == 0 ? null : "name-" + k;
        made.since = (int) k;
        if (made instanceof Shop.Email) {
            ((Shop.Email) made).address = address(k + 1);
        }
        return made;
    }

    private static Shop.Order order(long k) throws Exception {
        Map<String, Shop.Tier> tiers = new TreeMap<>();
        List<Shop.Address> past = new ArrayList<>();
        for (long i = 0; i < k % 3; i++) {
            tiers.put("t" + i, (Shop.Tier) tier(k + i));
            past.add(address(4 * k + i));
        }
        Shop.Order made = with(new Shop.Order(), Map.of("id", k * 1_000_003, "name", "order-" + k));
        made.price = k % 6 == 0 ? null : k / 8.0;
        made.tier = k % 5 == 0 ? null : (Shop.Tier) tier(k);
        made.address = address(k);
        made.contact = contact(k);
        made.past = past;
        made.tiers = tiers;
        return made;
    }

    static Shop.Label label(long k) throws Exception {
        Map<String, Object> values = new HashMap<>(Map.of("tier", tier(k)));
        values.put("text", k % 4 == 0 ? null : "label-" + k);
        return with(new Shop.Label(), values);
    }

    private static IndexedRecord event(long k, boolean specific) {
        Schema schema = Event.SCHEMA$;
        Map<String, Long> counts = new HashMap<>();
        for (long i = 0; i < k % 4; i++) {
            counts.put("c" + i, k * i);
        }
        Map<String, Object> values = new HashMap<>();
        values.put("id", k);
        values.put("name", "event-" + k);
        values.put("note", k % 3 == 0 ? null : "note-" + k);
        values.put("tier", new GenericData.EnumSymbol(schema.getField("tier").schema(), tier(k).toString()));
        values.put("tags", k % 2 == 0 ? List.of() : List.of("größe-" + k, ""));
        values.put("place", k % 4 == 2 ? null : filled(
                new GenericData.Record(schema.getField("place").schema().getTypes().get(1)),
                Map.of("street", "straße " + k, "zip", k * 3)));
        values.put("counts", counts);
        return filled(specific ? new Event() : new GenericData.Record(schema), values);
    }

    /** A record of those fields that the schema has, and else of its defaults. */
    private static IndexedRecord filled(IndexedRecord made, Map<String, Object> values) {
        for (Schema.Field field : made.getSchema().getFields()) {
            Object value = values.get(field.name());
            if (value instanceof Long && field.schema().getType() == Schema.Type.INT) {
                value = ((Long) value).intValue();
            } else if (!values.containsKey(field.name())) {
                value = GenericData.get().getDefaultValue(field);
            }
            made.put(field.pos(), value);
        }
        return made;
    }

    /** Set those fields that the class has, in whatever version it is. */
    private static <T> T with(T object, Map<String, Object> values) throws Exception {
        for (Field field : object.getClass().getFields()) {
            Object value = values.get(field.getName());
            if (value instanceof Long && field.getType() != long.class) {
                value = ((Long) value).intValue();
            }
            if (value != null) {
                field.set(object, value);
            }
        }
        return object;
    }

    /** A value as what JSON has; a subclass says which. */
    static Object plain(Object value) throws ReflectiveOperationException {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return value;
        }
        if (value instanceof IndexedRecord) {
            Map<String, Object> fields = new TreeMap<>();
            for (Schema.Field field : ((IndexedRecord) value).getSchema().getFields()) {
                fields.put(field.name(), plain(((IndexedRecord) value).get(field.pos())));
            }
            return fields;
        }
        if (value instanceof Map) {
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                entries.put(entry.getKey().toString(), plain(entry.getValue()));
            }
            return entries;
        }
        if (value instanceof List) {
            List<Object> items = new ArrayList<>();
            for (Object item : (List<?>) value) {
                items.add(plain(item));
            }
            return items;
        }
        if (!value.getClass().getName().startsWith("Shop$") || value instanceof Enum) {
            return value.toString();
        }
        Map<String, Object> fields = new TreeMap<>();
        for (Field field : value.getClass().getFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                fields.put(field.getName(), plain(field.get(value)));
            }
        }
        if (value.getClass().getSuperclass() != Object.class) {
            fields.put("class", value.getClass().getName());
        }
        return fields;
    }
}
