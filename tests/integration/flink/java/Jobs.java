import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/** The jobs: each fills its state for the keys 0 to n, or prints what the restored state holds. */
public class Jobs {
    static final AtomicLong SEEN = new AtomicLong();
    static final ConcurrentLinkedQueue<String> LINES = new ConcurrentLinkedQueue<>();

    /** What the uids of `counter` and `kinds` end in. */
    static String suffix = "";

    /** The time to live of states of `kinds`: their names, and milliseconds or `off`. */
    static String ttl = "";

    private static final long STEP = 2654435761L;
    private static final long BASE = -(1L << 40);
    private static final long FAR = 4_000_000_000_000L;

    /** Build a job into env; returns how many records it will have SEEN when its state is full. */
    static long build(StreamExecutionEnvironment env, String name, long keys, boolean restoring) {
        if (name.equals("chain")) {
            finish(ChainJobs.chain(env, keys, restoring));
            return 0;
        }
        if (name.equals("changes")) {
            ChangeJobs.changes(env, keys, restoring).forEach(Jobs::finish);
            return 0;
        }
        if (name.equals("backlog")) {
            finish(BacklogJobs.backlog(env, keys, restoring));
            return BacklogJobs.BEFORE;
        }
        Class<?>[] types = {StreamExecutionEnvironment.class, long.class, boolean.class};
        if (name.equals("async-changes")) { // not there in Flink 1
            Jobs.<List<DataStream<String>>>optional(
                    "AsyncChangeJobs", "changes", types, env, keys, restoring).forEach(Jobs::finish);
            return 0;
        }
        if (name.equals("declared")) { // needs flink-datastream
            return Jobs.<Long>optional("DeclaredJobs", "declared", types, env, keys, restoring);
        }
        DataStream<Long> numbers = numbers(env, keys, restoring);
        switch (name) {
            case "wordcount":
                wordCount(numbers, keys, restoring);
                return keys;
            case "kinds":
                kinds(numbers, restoring);
                return keys;
            case "both":
                wordCount(numbers, keys, restoring);
                kinds(numbers, restoring);
                return 2 * keys;
            case "windows":
                return windows(numbers, keys, restoring);
            case "profiles":
                finish(numbers.map(Jobs::word).returns(Types.STRING).keyBy(word -> word)
                        .process(new ProfileJobs.Profiles(restoring)).uid("profiles"));
                return keys;
            case "operator":
                return OperatorJobs.operator(numbers, others(env, restoring), keys, restoring);
            case "old":
                return OperatorJobs.old(numbers, keys, restoring);
            case "mixed":
                return OperatorJobs.mixed(numbers, others(env, restoring), keys, restoring);
            case "types":
                finish(Judge.typesJob(numbers));
                return keys;
            case "async": // not there in Flink 1
                finish(optional("AsyncJobs", "async",
                        new Class<?>[] {DataStream.class, boolean.class}, numbers, restoring));
                return keys;
            case "own":
                finish(OwnTypeJobs.own(numbers, 4, restoring));
                return keys;
            case "own-few":
                finish(OwnTypeJobs.own(numbers, 2, restoring));
                return keys;
            case "kryo":
                finish(KryoJobs.kryo(numbers, restoring));
                return keys;
            case "kryo-keys":
                KryoJobs.keys(numbers, restoring);
                return 2 * keys;
            case "pojos":
                PojoJobs.pojos(numbers, restoring);
                return 2 * keys;
            case "pojo":
                finish(Judge.pojoJob(numbers));
                return keys;
            default:
                throw new IllegalArgumentException("unknown case " + name);
        }
    }

    /** What a class makes that is not there in every version of Flink. */
    @SuppressWarnings("unchecked")
    private static <T> T optional(String name, String method, Class<?>[] types, Object... arguments) {
        try {
            return (T) Class.forName(name).getDeclaredMethod(method, types).invoke(null, arguments);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** The numbers below n; while generating, the source then idles so that a savepoint can be taken. */
    private static DataStream<Long> numbers(
            StreamExecutionEnvironment env, long keys, boolean restoring) {
        long end = restoring ? keys - 1 : Long.MAX_VALUE - 1;
        // a source of another uid when restoring: it must not go on where the generating one was
        return env.fromSequence(0, end).setParallelism(1)
                .uid(restoring ? "restoring-source" : "source").name("source")
                .flatMap((FlatMapFunction<Long, Long>) (number, out) -> {
                    if (number < keys) {
                        out.collect(number);
                    } else {
                        Thread.sleep(5);
                    }
                })
                .returns(Types.LONG).setParallelism(1)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Long>noWatermarks()).setParallelism(1);
    }

    private static void wordCount(DataStream<Long> numbers, long keys, boolean restoring) {
        finish(numbers.map(Jobs::word).returns(Types.STRING).keyBy(word -> word)
                .process(new WordCount(keys, restoring)).uid("counter" + suffix).name("counter"));
    }

    private static void kinds(DataStream<Long> numbers, boolean restoring) {
        finish(numbers.keyBy(k -> BASE + k * STEP)
                .process(new Kinds(restoring)).uid("kinds" + suffix).name("kinds"));
    }

    /** A second input, with a source of its own. */
    private static DataStream<Long> others(StreamExecutionEnvironment env, boolean restoring) {
        return env.fromSequence(0, restoring ? 0 : Long.MAX_VALUE - 1).setParallelism(1)
                .uid(restoring ? "restoring-others" : "others").name("others")
                .map(number -> {
                    if (number > 1000) {
                        Thread.sleep(5);
                    }
                    return number;
                }).returns(Types.LONG).setParallelism(1);
    }

    static void finish(DataStream<String> lines) {
        lines.map(line -> {
            LINES.add(line);
            return line;
        }).returns(Types.STRING).sinkTo(new DiscardingSink<>());
    }

    static String word(long k) {
        return k % 7 == 0 ? "größe-" + k : k % 11 == 0 ? "键😀-" + k : "word-" + k;
    }

    static class WordCount extends KeyedProcessFunction<String, String, String> {
        private final boolean restoring;
        private transient ValueState<Long> count;

        WordCount(long keys, boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String word, Context context, Collector<String> out)
                throws Exception {
            if (restoring) {
                Map<String, Object> line = new TreeMap<>();
                line.put("key", word);
                line.put("count", count.value());
                out.collect(Json.of(line));
                return;
            }
            count.update(Long.parseLong(word.substring(word.indexOf('-') + 1)) * 31 - 7);
            SEEN.incrementAndGet();
        }
    }

    static class Kinds extends KeyedProcessFunction<Long, Long, String> {
        private final boolean restoring;
        private transient ValueState<String> name;
        private transient ListState<Integer> items;
        private transient MapState<String, Double> scores;
        private transient ReducingState<Long> total;
        private transient AggregatingState<Long, Double> avg;
        private transient ValueState<Tuple3<Integer, String, Boolean>> triple;
        private transient ValueState<Row> row;
        private transient ValueState<String> session;

        Kinds(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            name = getRuntimeContext().getState(living(new ValueStateDescriptor<>("name", Types.STRING)));
            items = getRuntimeContext().getListState(living(new ListStateDescriptor<>("items", Types.INT)));
            scores = getRuntimeContext().getMapState(
                    living(new MapStateDescriptor<>("scores", Types.STRING, Types.DOUBLE)));
            total = getRuntimeContext().getReducingState(
                    living(new ReducingStateDescriptor<>("total", Long::sum, Types.LONG)));
            avg = getRuntimeContext().getAggregatingState(living(new AggregatingStateDescriptor<>(
                    "avg", new Average(), Types.TUPLE(Types.LONG, Types.LONG))));
            triple = getRuntimeContext().getState(living(new ValueStateDescriptor<>(
                    "triple", Types.TUPLE(Types.INT, Types.STRING, Types.BOOLEAN))));
            row = getRuntimeContext().getState(living(new ValueStateDescriptor<>(
                    "row", Types.ROW(Types.LONG, Types.STRING, Types.DOUBLE))));
            session = getRuntimeContext().getState(
                    living(new ValueStateDescriptor<>("session", Types.STRING)));
        }

        /** The descriptor with its time to live: ten years of `session`, if nothing else is asked for. */
        private static <D extends StateDescriptor<?, ?>> D living(D descriptor) {
            String lives = descriptor.getName().equals("session") ? "315360000000" : "off";
            for (String asked : ttl.split(",")) {
                if (asked.startsWith(descriptor.getName() + ":")) {
                    lives = asked.substring(asked.indexOf(':') + 1);
                }
            }
            if (!lives.equals("off")) {
                Duration time = Duration.ofMillis(Long.parseLong(lives));
                descriptor.enableTimeToLive(StateTtlConfig.newBuilder(time).build());
            }
            return descriptor;
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out)
                throws Exception {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            name.update("name of " + word(k));
            for (int i = 0; i < k % 5; i++) {
                items.add((int) (i * k - 3));
            }
            for (int i = 0; i < k % 4; i++) {
                scores.put("s" + i, (double) k / (i + 3));
            }
            total.add(k * k);
            total.add(k);
            avg.add(k);
            avg.add(3L);
            triple.update(Tuple3.of(k.intValue(), "t" + k, k % 2 == 0));
            row.update(Row.of(k, k % 3 == 0 ? null : "r" + k, k / 2.0));
            session.update("session-" + k);
            context.timerService().registerEventTimeTimer(FAR + k * 7);
            if (k % 9 == 0) {
                context.timerService().registerEventTimeTimer(FAR - k);
            }
            if (k % 3 == 0) {
                context.timerService().registerProcessingTimeTimer(FAR + k);
            }
            SEEN.incrementAndGet();
        }

        private Map<String, Object> everything(Long key) throws Exception {
            List<Object> elements = new ArrayList<>();
            items.get().forEach(elements::add);
            Map<String, Object> map = new TreeMap<>();
            for (Map.Entry<String, Double> entry : scores.entries()) {
                map.put(entry.getKey(), entry.getValue());
            }
            Tuple3<Integer, String, Boolean> three = triple.value();
            Row fields = row.value();
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("name", name.value());
            line.put("items", elements);
            line.put("scores", map);
            line.put("total", total.get());
            line.put("avg", avg.get());
            line.put("triple", three == null ? null : List.of(three.f0, three.f1, three.f2));
            line.put("row", fields == null ? null : Json.listOf(
                    fields.getField(0), fields.getField(1), fields.getField(2)));
            line.put("session", session.value());
            return line;
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", context.getCurrentKey());
            line.put("timer", context.timeDomain().name());
            line.put("ts", timestamp);
            out.collect(Json.of(line));
        }
    }

    static class Average implements AggregateFunction<Long, Tuple2<Long, Long>, Double> {
        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Long value, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + value, sum.f1 + 1);
        }

        @Override
        public Double getResult(Tuple2<Long, Long> sum) {
            return (double) sum.f0 / sum.f1;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
            return Tuple2.of(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    private static long windows(DataStream<Long> numbers, long keys, boolean restoring) {
        DataStream<Long> stamped = numbers
                .filter(k -> !restoring).returns(Types.LONG)
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Long>noWatermarks()
                        .withTimestampAssigner((k, before) -> k * 1000));
        finish(stamped.keyBy(k -> "k" + k % 40)
                .window(TumblingEventTimeWindows.of(Duration.ofMinutes(1)))
                .aggregate(new Sum(), new Show("tumbling"), Types.LONG, Types.LONG, Types.STRING)
                .uid("tumbling"));
        finish(stamped.keyBy(k -> "k" + k % 40)
                .window(SlidingEventTimeWindows.of(Duration.ofSeconds(90), Duration.ofSeconds(30)))
                .process(new Show("sliding"), Types.STRING).uid("sliding"));
        stamped.keyBy(k -> "k" + k % 40).map(k -> SEEN.incrementAndGet())
                .sinkTo(new DiscardingSink<>());
        return keys;
    }

    static class Sum implements AggregateFunction<Long, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long value, Long sum) {
            return sum + value;
        }

        @Override
        public Long getResult(Long sum) {
            return sum;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    static class Show extends ProcessWindowFunction<Long, String, String, TimeWindow> {
        private final String kind;

        Show(String kind) {
            this.kind = kind;
        }

        @Override
        public void process(
                String key, Context context, Iterable<Long> values, Collector<String> out) {
            long sum = 0;
            for (Long value : values) {
                sum += value;
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("start", context.window().getStart());
            line.put("end", context.window().getEnd());
            line.put("sum", sum);
            out.collect(Json.of(line));
        }
    }
}
