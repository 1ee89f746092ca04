import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import java.io.Serializable;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.specific.SpecificRecordBase;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.PatternStream;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.async.AsyncFunction;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.types.Either;
import org.apache.flink.util.Collector;

/**
 * Operators of many kinds whose state Flink 1 leaves to Kryo in part: what `test_upgraded_types.py`
 * upgrades, in place of the job of this name. Values are compared by their classes and `equals`.
 */
public class PojoJobs {
    /** What states hold: a POJO, most of whose fields are Kryo's. */
    public static class Held {
        public long id;
        public UUID uid;
        public String name;
        public List<String> tags;
        public Set<Long> seen;
        public Map<String, Integer> scores;
        public OptionalInt count;
        public OptionalDouble share;
        public ZonedDateTime at;
        public Locale locale;
        public Own own;
        public Object any;
        public ArrayList<Reading> readings;
        public Animal pet;
        public Either<UUID, String> either;
        public Tuple2<UUID, List<String>> pair;

        static Held of(long k, int n) {
            Random r = new Random(k * 1000003 + n * 31);
            Held held = new Held();
            held.id = k;
            held.uid = new UUID(r.nextLong(), n);
            held.name = "größe " + k;
            held.tags = new ArrayList<>(Arrays.asList("a" + k, "b" + n, null));
            held.seen = new HashSet<>(Arrays.asList(k, r.nextLong()));
            held.scores = new HashMap<>(Collections.singletonMap("s" + k, n));
            held.count = r.nextBoolean() ? OptionalInt.of(r.nextInt()) : OptionalInt.empty();
            held.share = OptionalDouble.of(r.nextDouble());
            held.at = ZonedDateTime.of(2024, 6, 1, 12, 30, n, (int) k,
                    ZoneId.of(r.nextBoolean() ? "Europe/Berlin" : "+02:00"));
            held.locale = r.nextBoolean() ? Locale.GERMANY : Locale.FRENCH;
            held.own = r.nextInt(5) == 0 ? null : new Own(n, r.nextInt());
            // Flink 1 copies the others, and reads them back, which it can't with the last kinds
            held.any = any(r.nextInt(n > 0 && n < 6 ? 8 : 6), r, k);
            held.readings = new ArrayList<>(Arrays.asList(Reading.of(k, r), Reading.of(n, r)));
            held.pet = r.nextBoolean() ? new Dog(k) : new Animal("cat " + k);
            held.either = r.nextBoolean() ? Either.Left(new UUID(k, n)) : Either.Right("e" + k);
            held.pair = Tuple2.of(new UUID(n, k), new ArrayList<>(Arrays.asList("x", "y" + k)));
            return held;
        }

        private static Object any(int kind, Random r, long k) {
            Own own = new Own(1, r.nextInt());
            switch (kind) {
                case 0:
                    return new LinkedList<>(Arrays.asList(own, "text", own, null));
                case 1:
                    return new TreeMap<>(Collections.singletonMap("k" + k, own));
                case 2:
                    return Arrays.asList(own, new java.sql.Timestamp(k), BigDecimal.valueOf(k, 2));
                case 3:
                    return EnumSet.of(TimeUnit.DAYS, TimeUnit.HOURS);
                case 4:
                    return new Object[] {k, "two", new int[] {1, 2}, own};
                case 5:
                    return Tuple2.of(OptionalLong.of(k), new ArrayDeque<>(List.of(1, 2)).peek());
                case 6:
                    return List.of(k, "two", Optional.of(3));
                default:
                    return Map.of("a", new UUID(k, k));
            }
        }
    }

    /** No POJO, so that it is Kryo's; registered, as are its parts. */
    public static final class Own {
        private final int x;
        private final BigDecimal price;
        private final List<Point> points;

        Own(int x, int y) {
            this.x = x;
            price = BigDecimal.valueOf(y, 3);
            points = new ArrayList<>(Arrays.asList(new Point(x, y), null, new Point(y, 0.5)));
        }
    }

    public static final class Point {
        private final int x;
        private final double y;

        Point(int x, double y) {
            this.x = x;
            this.y = y;
        }
    }

    public static class Animal {
        public String name;

        public Animal() {
        }

        Animal(String name) {
            this.name = name;
        }
    }

    /** A subclass that is registered as a POJO, with a field of Kryo's. */
    public static class Dog extends Animal {
        public UUID chip;

        public Dog() {
        }

        Dog(long k) {
            super("dog " + k);
            chip = new UUID(k, k);
        }
    }

    /** Another one, which only the new job registers. */
    public static class Cat extends Animal {
        public int lives;
    }

    /** A record as Avro's compiler makes it, which Kryo writes field by field; its list is Avro's. */
    public static class Reading extends SpecificRecordBase {
        public static final Schema SCHEMA$ = new Schema.Parser().parse(
                "{\"type\":\"record\",\"namespace\":\"PojoJobs$\",\"name\":\"Reading\",\"fields\":["
                + "{\"name\":\"at\",\"type\":\"long\"},{\"name\":\"place\",\"type\":{\"type\":"
                + "\"string\",\"avro.java.string\":\"String\"}},{\"name\":\"values\",\"type\":"
                + "{\"type\":\"array\",\"items\":\"double\"}}]}");
        public long at;
        public String place;
        public List<Double> values;

        static Reading of(long k, Random r) {
            Reading made = new Reading();
            made.at = r.nextLong();
            made.place = "place " + k;
            made.values = new GenericData.Array<>(
                    SCHEMA$.getField("values").schema(), Arrays.asList(r.nextDouble(), 0.5));
            return made;
        }

        @Override
        public Schema getSchema() {
            return SCHEMA$;
        }

        @Override
        public Object get(int field) {
            return field == 0 ? (Object) at : field == 1 ? place : values;
        }

        @Override
        @SuppressWarnings("unchecked")
        public void put(int field, Object value) {
            if (field == 0) {
                at = (Long) value;
            } else if (field == 1) {
                place = value.toString();
            } else {
                values = (List<Double>) value;
            }
        }
    }

    interface Dated {
    }

    /** What a serializer of the job's own writes. */
    public static final class Day {
        final int number;

        Day(int number) {
            this.number = number;
        }
    }

    @SuppressWarnings({"rawtypes", "unchecked"}) // the type of `read` is not the same in both
    public static class DaySerializer extends Serializer implements Serializable {
        private static final long serialVersionUID = 1;

        @Override
        public void write(Kryo kryo, Output out, Object day) {
            out.writeInt(((Day) day).number);
        }

        @Override
        public Object read(Kryo kryo, Input in, Class type) {
            return new Day(in.readInt());
        }
    }

    /** The new job registers in another order, and more. */
    static void register(SerializerConfigImpl config, boolean restoring) {
        List<Class<?>> classes = new ArrayList<>(List.of(Own.class, TreeMap.class, Point.class));
        if (restoring) {
            Collections.reverse(classes);
            classes.add(0, UUID.class);
            classes.add(1, LinkedList.class);
            config.registerPojoType(Cat.class);
        }
        config.registerPojoType(Dog.class);
        classes.forEach(config::registerKryoType);
        config.registerTypeWithKryoSerializer(Day.class, new DaySerializer());
        config.addDefaultKryoSerializer(Dated.class, new DaySerializer());
    }

    /** How a value differs from what was written; null if it does not. */
    static String differs(Object expected, Object value) throws Exception {
        if (expected == null || value == null) {
            return expected == value ? null : expected + " became " + value;
        }
        Class<?> type = expected instanceof GenericData.Array ? ArrayList.class : expected.getClass();
        if (value.getClass() != type) {
            return type + " became " + value.getClass();
        }
        if (expected instanceof Object[]) {
            return differs(Arrays.asList((Object[]) expected), Arrays.asList((Object[]) value));
        }
        if (expected instanceof List || expected instanceof Deque) {
            List<Object> all = new ArrayList<>((Collection<?>) expected);
            List<Object> others = new ArrayList<>((Collection<?>) value);
            String found = all.size() == others.size() ? null : all + " became " + others;
            for (int i = 0; i < all.size() && found == null; i++) {
                found = differs(all.get(i), others.get(i));
            }
            return found;
        }
        if (expected instanceof Map && ((Map<?, ?>) expected).keySet().equals(((Map<?, ?>) value).keySet())) {
            String found = null;
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) expected).entrySet()) {
                found = found == null
                        ? differs(entry.getValue(), ((Map<?, ?>) value).get(entry.getKey())) : found;
            }
            return found;
        }
        if (expected instanceof Tuple2) {
            return differs(Arrays.asList(((Tuple2<?, ?>) expected).f0, ((Tuple2<?, ?>) expected).f1),
                    Arrays.asList(((Tuple2<?, ?>) value).f0, ((Tuple2<?, ?>) value).f1));
        }
        if (type.getName().startsWith("PojoJobs$") && type != Reading.class) {
            return differsInFields(type, expected, value);
        }
        return Objects.deepEquals(expected, value) ? null : expected + " became " + value;
    }

    private static String differsInFields(Class<?> type, Object expected, Object value)
            throws Exception {
        for (Class<?> part = type; part != Object.class; part = part.getSuperclass()) {
            for (Field field : part.getDeclaredFields()) {
                field.setAccessible(true);
                String found = Modifier.isStatic(field.getModifiers())
                        ? null : differs(field.get(expected), field.get(value));
                if (found != null) {
                    return field.getName() + ": " + found;
                }
            }
        }
        return null;
    }

    static void check(List<Object> found, String what, Object expected, Object value)
            throws Exception {
        String why = differs(expected, value);
        if (why != null) {
            found.add(what + ": " + why);
        }
    }

    static String line(String of, long k, List<Object> found) {
        Map<String, Object> line = new TreeMap<>();
        line.put("of", of);
        line.put("key", k);
        line.put("wrong", found);
        return Json.of(line);
    }

    static String line(String of, long k, Object expected, Object value) throws Exception {
        List<Object> found = new ArrayList<>();
        check(found, of, expected, value);
        return line(of, k, found);
    }

    static void pojos(DataStream<Long> numbers, boolean restoring) {
        register((SerializerConfigImpl) numbers.getExecutionEnvironment().getConfig()
                .getSerializerConfig(), restoring);
        KeyedStream<Long, Long> keyed = numbers.keyBy(k -> k);
        Jobs.finish(keyed.process(new States(restoring)).uid("states"));
        Jobs.finish(numbers.filter(k -> !restoring).keyBy(k -> k)
                .connect(numbers.filter(k -> !restoring).keyBy(k -> k))
                .process(new Both()).uid("both"));
        Jobs.finish(keyed.connect(numbers.filter(k -> !restoring).broadcast(RULES))
                .process(new Ruled(restoring)).uid("ruled"));
        Jobs.finish(AsyncDataStream.orderedWait(
                events(numbers.filter(k -> !restoring), 0), new Waiting(restoring), 1, TimeUnit.DAYS, 1000)
                .uid("waiting"));
        patterns(numbers, restoring);
        DataStream<Tuple2<Integer, Held>> stamped = stamped(events(numbers.filter(k -> !restoring), 0));
        DataStream<String> joined = stamped.join(stamped)
                .where(one -> one.f1.id, Types.LONG).equalTo(one -> one.f1.id, Types.LONG)
                .window(TumblingEventTimeWindows.of(Duration.ofHours(1)))
                .apply((one, other) -> line("joined", one.f1.id,
                        Arrays.asList(Held.of(one.f1.id, 0), Held.of(one.f1.id, 0)),
                        Arrays.asList(one.f1, other.f1)), Types.STRING);
        Jobs.finish(((SingleOutputStreamOperator<String>) joined).uid("joined"));
        if (Jobs.suffix.equals("refused")) {
            Jobs.finish(keyed.process(new Refused(restoring)).uid("refused"));
            Jobs.finish(numbers.keyBy(k -> new UUID(k, k), TypeInformation.of(UUID.class))
                    .process(new ByToken()).uid("tokens"));
        }
    }

    static SingleOutputStreamOperator<Tuple2<Integer, Held>> events(DataStream<Long> numbers, int n) {
        return numbers.map(k -> Tuple2.of(n, Held.of(k, n)))
                .returns(new TypeHint<Tuple2<Integer, Held>>() {});
    }

    static DataStream<Tuple2<Integer, Held>> stamped(DataStream<Tuple2<Integer, Held>> events) {
        return events.assignTimestampsAndWatermarks(
                WatermarkStrategy.<Tuple2<Integer, Held>>noWatermarks()
                        .withTimestampAssigner((one, before) -> one.f0 * 1000));
    }

    /** A first event of each key before the savepoint, and a second one behind it. */
    static void patterns(DataStream<Long> numbers, boolean restoring) {
        DataStream<Tuple2<Integer, Held>> events = stamped(events(numbers, restoring ? 1 : 0));
        KeyedStream<Tuple2<Integer, Held>, Long> keyed = events.keyBy(one -> one.f1.id, Types.LONG);
        Pattern<Tuple2<Integer, Held>, ?> pattern = Pattern.<Tuple2<Integer, Held>>begin("first")
                .where(new Numbered(0)).followedBy("second").where(new Numbered(1));
        PatternStream<Tuple2<Integer, Held>> matches = CEP.pattern(keyed, pattern);
        Jobs.finish(matches.inProcessingTime().process(new Matched("matched")).uid("matched"));
        Jobs.finish(matches.inEventTime().process(new Matched("queued")).uid("queued"));
    }

    static class Numbered extends SimpleCondition<Tuple2<Integer, Held>> {
        private final int number;

        Numbered(int number) {
            this.number = number;
        }

        @Override
        public boolean filter(Tuple2<Integer, Held> one) {
            return one.f0 == number;
        }
    }

    static class Matched extends PatternProcessFunction<Tuple2<Integer, Held>, String> {
        private final String of;

        Matched(String of) {
            this.of = of;
        }

        @Override
        public void processMatch(Map<String, List<Tuple2<Integer, Held>>> match, Context context,
                Collector<String> out) throws Exception {
            Held first = match.get("first").get(0).f1;
            out.collect(line(of, first.id, Held.of(first.id, 0), first));
        }
    }

    /** Answers nothing before the savepoint, and everything behind it. */
    static class Waiting implements AsyncFunction<Tuple2<Integer, Held>, String> {
        private final boolean restoring;

        Waiting(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void asyncInvoke(Tuple2<Integer, Held> one, ResultFuture<String> answer)
                throws Exception {
            if (restoring) {
                answer.complete(Collections.singleton(
                        line("waiting", one.f1.id, Held.of(one.f1.id, 0), one.f1)));
            }
        }
    }

    static final MapStateDescriptor<UUID, Held> RULES = new MapStateDescriptor<>(
            "rules", TypeInformation.of(UUID.class), TypeInformation.of(Held.class));

    static class Ruled extends KeyedBroadcastProcessFunction<Long, Long, Long, String> {
        private final boolean restoring;

        Ruled(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void processElement(Long k, ReadOnlyContext context, Collector<String> out)
                throws Exception {
            if (restoring) {
                Held rule = context.getBroadcastState(RULES).get(new UUID(k, -k));
                out.collect(line("ruled", k, Held.of(k, 7), rule));
            }
        }

        @Override
        public void processBroadcastElement(Long k, Context context, Collector<String> out)
                throws Exception {
            context.getBroadcastState(RULES).put(new UUID(k, -k), Held.of(k, 7));
        }
    }

    /** Both inputs keep one, and a timer that fires at the end says what they are. */
    static class Both extends KeyedCoProcessFunction<Long, Long, Long, String> {
        private transient ValueState<Held> left;
        private transient ListState<Held> right;

        @Override
        public void open(OpenContext context) {
            left = getRuntimeContext().getState(new ValueStateDescriptor<>("left", Held.class));
            right = getRuntimeContext().getListState(new ListStateDescriptor<>("right", Held.class));
        }

        @Override
        public void processElement1(Long k, Context context, Collector<String> out)
                throws Exception {
            left.update(Held.of(k, 1));
            context.timerService().registerEventTimeTimer(k);
        }

        @Override
        public void processElement2(Long k, Context context, Collector<String> out)
                throws Exception {
            right.add(Held.of(k, 2));
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<String> out)
                throws Exception {
            List<Object> all = new ArrayList<>();
            all.add(left.value());
            right.get().forEach(all::add);
            long k = context.getCurrentKey();
            out.collect(line("both", k,
                    new ArrayList<>(Arrays.asList(Held.of(k, 1), Held.of(k, 2))), all));
        }
    }

    static class Adding implements AggregateFunction<Held, ArrayList<Object>, Object> {
        @Override
        public ArrayList<Object> createAccumulator() {
            return new ArrayList<>();
        }

        @Override
        public ArrayList<Object> add(Held held, ArrayList<Object> all) {
            all.add(held.any);
            all.add(held.uid);
            return all;
        }

        @Override
        public Object getResult(ArrayList<Object> all) {
            return all;
        }

        @Override
        public ArrayList<Object> merge(ArrayList<Object> one, ArrayList<Object> other) {
            one.addAll(other);
            return one;
        }
    }

    /** Keyed state of each kind, with time to live and without, and operator state. */
    static class States extends KeyedProcessFunction<Long, Long, String>
            implements CheckpointedFunction {
        private final boolean restoring;
        private transient ValueState<Held> value;
        private transient ListState<Held> list;
        private transient MapState<UUID, Held> map;
        private transient AggregatingState<Held, Object> sum;
        private transient ReducingState<Held> last;
        private transient ValueState<Animal> animal;
        private transient ListState<Held> split;
        private transient ListState<Held> union;
        private transient boolean seen;

        States(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            split = context.getOperatorStateStore().getListState(
                    new ListStateDescriptor<>("split", Held.class));
            union = context.getOperatorStateStore().getUnionListState(
                    new ListStateDescriptor<>("union", Held.class));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
        }

        @Override
        public void open(OpenContext context) {
            ValueStateDescriptor<Held> one = new ValueStateDescriptor<>("value", Held.class);
            one.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(1000)).build());
            value = getRuntimeContext().getState(one);
            list = getRuntimeContext().getListState(new ListStateDescriptor<>("list", Held.class));
            map = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("map", UUID.class, Held.class));
            sum = getRuntimeContext().getAggregatingState(new AggregatingStateDescriptor<>(
                    "sum", new Adding(), TypeInformation.of(new TypeHint<ArrayList<Object>>() {})));
            last = getRuntimeContext().getReducingState(
                    new ReducingStateDescriptor<>("last", (a, b) -> b, Held.class));
            animal = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("animal", Animal.class));
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out)
                throws Exception {
            if (!restoring) {
                value.update(Held.of(k, 0));
                list.add(Held.of(k, 1));
                list.add(Held.of(k, 2));
                map.put(new UUID(k, 0), Held.of(k, 3));
                map.put(new UUID(k, 1), Held.of(k, 4));
                sum.add(Held.of(k, 5));
                last.add(Held.of(k, 6));
                last.add(Held.of(k, 7));
                animal.update(new Dog(k));
                split.add(Held.of(k, 8));
                union.add(Held.of(k, 9));
                Jobs.SEEN.addAndGet(2);
                return;
            }
            List<Object> found = new ArrayList<>();
            check(found, "value", Held.of(k, 0), value.value());
            List<Object> all = new ArrayList<>();
            list.get().forEach(all::add);
            check(found, "list", new ArrayList<>(Arrays.asList(Held.of(k, 1), Held.of(k, 2))), all);
            check(found, "map", Held.of(k, 3), map.get(new UUID(k, 0)));
            check(found, "map", Held.of(k, 4), map.get(new UUID(k, 1)));
            Held added = Held.of(k, 5);
            check(found, "sum", new ArrayList<>(Arrays.asList(added.any, added.uid)), sum.get());
            check(found, "last", Held.of(k, 7), last.get());
            check(found, "animal", new Dog(k), animal.value());
            if (!seen) {
                seen = true;
                for (Held one : split.get()) {
                    check(found, "split", Held.of(one.id, 8), one);
                }
                Set<Long> ids = new TreeSet<>();
                for (Held one : union.get()) {
                    check(found, "union", Held.of(one.id, 9), one);
                    ids.add(one.id);
                }
                if (!ids.contains(k)) {
                    found.add("union: no " + k);
                }
            }
            out.collect(line("states", k, found));
        }
    }

    /** What is left with the reason, beside a state that Flink 2 could restore. */
    static class Refused extends KeyedProcessFunction<Long, Long, String> {
        private final boolean restoring;
        private transient ValueState<Long> plain;
        private transient ValueState<Day> day;
        private transient ValueState<ArrayList<Object>> fixed;

        Refused(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            plain = getRuntimeContext().getState(new ValueStateDescriptor<>("plain", Types.LONG));
            if (!restoring) {
                day = getRuntimeContext().getState(new ValueStateDescriptor<>("day", Day.class));
                fixed = getRuntimeContext().getState(new ValueStateDescriptor<>(
                        "fixed", TypeInformation.of(new TypeHint<ArrayList<Object>>() {})));
            }
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out)
                throws Exception {
            if (restoring) {
                out.collect(line("refused", k, k, plain.value()));
                return;
            }
            plain.update(k);
            day.update(new Day(5));
            fixed.update(new ArrayList<>(List.of(Collections.unmodifiableList(List.of("a")))));
        }
    }

    /** A stream that is keyed by what Kryo writes, with timers. */
    static class ByToken extends KeyedProcessFunction<UUID, Long, String> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out)
                throws Exception {
            count.update(k);
            context.timerService().registerEventTimeTimer(k);
        }
    }
}
