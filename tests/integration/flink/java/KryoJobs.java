import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** A job whose values are Kryo's: of the JDK, with fields, registered, an enum; in every kind of state. */
class KryoJobs {
    /** An option that both versions have; Point is registered, and so has an id. */
    static final String REGISTERED = "[\"KryoJobs$Point\": {type: kryo}]";

    enum Tier {
        GOLD,
        SILVER
    }

    static final class Point {
        int x;
        double y;

        private Point() {}

        Point(int x, double y) {
            this.x = x;
            this.y = y;
        }

        @Override
        public String toString() {
            return x + "/" + y;
        }
    }

    /** No POJO, since its fields are private and have no getters. */
    static class Basket {
        private long id;
        private String owner;
        private Tier tier;
        private List<String> items;
        private Map<String, BigDecimal> prices;
        private Point at;
        private List<Object> anything;
        private Date since;
        private int[] counts;
        private String again;

        private Basket() {}

        static Basket of(long k) {
            Basket made = new Basket();
            made.id = k;
            made.owner = "größe" + k;
            made.again = k % 2 == 0 ? made.owner : null;
            made.tier = Tier.values()[(int) (k % 2)];
            made.items = k % 3 == 0 ? new LinkedList<>() : new ArrayList<>();
            made.prices = new HashMap<>();
            for (long i = 0; i < k % 4; i++) {
                made.items.add("item " + i);
                made.prices.put("p" + i, BigDecimal.valueOf(k * 100 + i, 2));
            }
            made.at = k % 5 == 0 ? null : new Point((int) k, k / 8.0);
            made.anything = Arrays.asList(k, "text", null, made.at, Collections.emptyList());
            made.since = new Date(1700000000000L + k);
            made.counts = new int[] {(int) k, (int) -k};
            return made;
        }

        @Override
        public String toString() {
            return id + " " + owner + " " + tier + " " + items + items.getClass().getSimpleName()
                    + new TreeMap<>(prices) + at + anything + since.getTime() + Arrays.toString(counts)
                    + (again == owner) + (at == null || anything.get(3) == at);
        }
    }

    static DataStream<String> kryo(DataStream<Long> numbers, boolean restoring) {
        return numbers.keyBy(k -> k * 31 - 7).process(new Held(restoring)).uid("kryo").name("kryo");
    }

    static class Held extends KeyedProcessFunction<Long, Long, String> implements CheckpointedFunction {
        private final boolean restoring;
        private final List<Basket> seen = new ArrayList<>();
        private transient ListState<Basket> listed;
        private transient ValueState<Basket> basket;
        private transient ValueState<ArrayList> mixed;
        private transient ListState<UUID> ids;
        private transient MapState<String, Instant> moments;
        private transient ValueState<Tier> tier;
        private transient ValueState<Point> point;
        private transient ListState<Point> path;
        private transient ValueState<Long> count;

        Held(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            basket = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("basket", Types.GENERIC(Basket.class)));
            mixed = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("mixed", Types.GENERIC(ArrayList.class)));
            ids = getRuntimeContext().getListState(
                    new ListStateDescriptor<>("ids", Types.GENERIC(UUID.class)));
            moments = getRuntimeContext().getMapState(new MapStateDescriptor<>(
                    "moments", Types.STRING, Types.GENERIC(Instant.class)));
            tier = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("tier", Types.GENERIC(Tier.class)));
            ValueStateDescriptor<Point> expiring =
                    new ValueStateDescriptor<>("point", Types.GENERIC(Point.class));
            expiring.enableTimeToLive(StateTtlConfig.newBuilder(java.time.Duration.ofDays(36500)).build());
            point = getRuntimeContext().getState(expiring);
            ListStateDescriptor<Point> steps =
                    new ListStateDescriptor<>("path", Types.GENERIC(Point.class));
            steps.enableTimeToLive(StateTtlConfig.newBuilder(java.time.Duration.ofDays(36500)).build());
            path = getRuntimeContext().getListState(steps);
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            listed = context.getOperatorStateStore().getUnionListState(
                    new ListStateDescriptor<>("seen", Types.GENERIC(Basket.class)));
            listed.get().forEach(seen::add);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            listed.update(seen);
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public void processElement(Long k, Context context, Collector<String> out) throws Exception {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            basket.update(Basket.of(k));
            mixed.update(new ArrayList(Arrays.asList(k, "same", k % 2 == 0 ? "same" : 1.5, null,
                    new TreeMap<>(Map.of("k", k)))));
            tier.update(Tier.values()[(int) (k % 2)]);
            point.update(new Point((int) -k, k));
            for (long i = 0; i < k % 4; i++) {
                ids.add(new UUID(k, -i));
                path.add(new Point((int) i, k));
                moments.put("m" + i, Instant.ofEpochSecond(k * 1_000_000, i));
            }
            count.update(k);
            if (k % 10 == 0) {
                seen.add(Basket.of(k));
            }
            Jobs.SEEN.incrementAndGet();
        }

        private Map<String, Object> everything(Long key) throws Exception {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("basket", basket.value().toString());
            line.put("mixed", mixed.value().toString());
            line.put("tier", tier.value().toString());
            line.put("point", point.value().toString());
            List<Object> listed = new ArrayList<>();
            ids.get().forEach(one -> listed.add(one.toString()));
            line.put("ids", listed);
            List<Object> steps = new ArrayList<>();
            path.get().forEach(one -> steps.add(one.toString()));
            line.put("path", steps);
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<String, Instant> one : moments.entries()) {
                entries.put(one.getKey(), one.getValue().toString());
            }
            line.put("moments", entries);
            line.put("count", count.value());
            List<Object> texts = new ArrayList<>();
            seen.stream().map(Basket::toString).sorted().forEach(texts::add);
            line.put("seen", texts);
            return line;
        }
    }

    /** Kryo where an entry's key is: of maps, of the stream, its timers, and in lists. */
    static void keys(DataStream<Long> numbers, boolean restoring) {
        Jobs.finish(numbers.keyBy(k -> k).process(new Mapped(restoring)).uid("mapped").name("mapped"));
        Jobs.finish(numbers.keyBy(KryoJobs::id, Types.GENERIC(UUID.class))
                .process(new Counted(restoring)).uid("counted").name("counted"));
    }

    static UUID id(long k) {
        return new UUID(k * 0x9E3779B97F4A7C15L, k % 3 - 1);
    }

    static class Mapped extends KeyedProcessFunction<Long, Long, String> {
        private final boolean restoring;
        private transient MapState<UUID, Long> counts;
        private transient MapState<UUID, UUID> pairs;
        private transient MapState<ArrayList, String> lists;
        private transient ListState<UUID> ids;

        Mapped(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            counts = getRuntimeContext().getMapState(new MapStateDescriptor<>(
                    "counts", Types.GENERIC(UUID.class), Types.LONG));
            pairs = getRuntimeContext().getMapState(new MapStateDescriptor<>(
                    "pairs", Types.GENERIC(UUID.class), Types.GENERIC(UUID.class)));
            lists = getRuntimeContext().getMapState(new MapStateDescriptor<>(
                    "lists", Types.GENERIC(ArrayList.class), Types.STRING));
            ids = getRuntimeContext().getListState(
                    new ListStateDescriptor<>("ids", Types.GENERIC(UUID.class)));
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public void processElement(Long k, Context context, Collector<String> out) throws Exception {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            for (long i = 0; i < k % 4; i++) {
                counts.put(id(k + i), k - i);
                pairs.put(id(k + i), i == 2 ? null : id(-k));
                lists.put(new ArrayList(Arrays.asList(k, "größe " + i, null)), i == 1 ? null : "list " + i);
                ids.add(id(i));
            }
            context.timerService().registerEventTimeTimer(Long.MAX_VALUE - k);
            Jobs.SEEN.incrementAndGet();
        }

        private Map<String, Object> everything(Long key) throws Exception {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("counts", shown(counts));
            line.put("pairs", shown(pairs));
            line.put("lists", shown(lists));
            List<Object> listed = new ArrayList<>();
            ids.get().forEach(one -> listed.add(one.toString()));
            line.put("ids", listed);
            return line;
        }

        private static Map<String, Object> shown(MapState<?, ?> state) throws Exception {
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<?, ?> one : state.entries()) {
                entries.put(one.getKey().toString(), String.valueOf(one.getValue()));
            }
            return entries;
        }
    }

    static class Counted extends KeyedProcessFunction<UUID, Long, String> {
        private final boolean restoring;
        private transient ValueState<Long> number;

        Counted(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            number = getRuntimeContext().getState(new ValueStateDescriptor<>("number", Types.LONG));
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out) throws Exception {
            if (restoring) {
                Map<String, Object> line = new TreeMap<>();
                line.put("id", context.getCurrentKey().toString());
                line.put("number", number.value());
                out.collect(Json.of(line));
                return;
            }
            number.update(k);
            context.timerService().registerEventTimeTimer(Long.MAX_VALUE - k);
            Jobs.SEEN.incrementAndGet();
        }
    }
}
