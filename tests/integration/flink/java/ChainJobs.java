import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job that changes its state between checkpoints, all of which are kept: keys come, are written
 * over, grow, shrink, go, and come back.
 */
class ChainJobs {
    /** What the source is yet to send; the oracle fills it, one generation after another. */
    static final ConcurrentLinkedQueue<Long> INPUT = new ConcurrentLinkedQueue<>();

    static final long GENERATION = 1_000_000L;
    private static final long FAR = 4_000_000_000_000L;
    private static final int NEW_KEYS = 10;

    static DataStream<String> chain(
            StreamExecutionEnvironment env, long keys, boolean restoring) {
        return numbers(env, keys, restoring).keyBy(number -> "key-" + number % GENERATION)
                .process(new Chain(restoring)).uid("chain").name("chain");
    }

    /** What INPUT has, or when restoring, the numbers below n. */
    static DataStream<Long> numbers(
            StreamExecutionEnvironment env, long keys, boolean restoring) {
        return restoring
                ? env.fromSequence(0, keys - 1).setParallelism(1).uid("restoring-source")
                : env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source")
                        .flatMap((FlatMapFunction<Long, Long>) (number, out) -> {
                            Long next = INPUT.poll();
                            if (next == null) {
                                Thread.sleep(2);
                            } else {
                                out.collect(next);
                            }
                        }).returns(Types.LONG).setParallelism(1);
    }

    /**
     * Run a job, take a checkpoint after each generation, and savepoints of both formats at last.
     *
     * <p>Only `chain`, `changes` and `async-changes` have generations; of other jobs each checkpoint holds the
     * same. Behind each checkpoint it waits for `pause` milliseconds; `each` is the format of a
     * savepoint before each, `first` the number of the first generation, if it is not 0.
     *
     * @return where they are, one word each: the checkpoints, then a native savepoint, a canonical
     */
    static String checkpoints(Configuration conf, StreamExecutionEnvironment env,
            Map<String, String> args) throws Exception {
        long keys = Long.parseLong(args.get("keys"));
        int generations = Integer.parseInt(args.get("generations"));
        boolean chain = List.of("chain", "changes", "async-changes").contains(args.get("case"));
        INPUT.clear();
        Jobs.SEEN.set(0);
        long expected = Jobs.build(env, args.get("case"), chain ? 0 : keys, false);
        List<String> places = new ArrayList<>();
        MiniClusterConfiguration configuration = new MiniClusterConfiguration.Builder()
                .setConfiguration(conf).setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(Integer.parseInt(args.get("parallelism"))).build();
        try (MiniCluster cluster = new MiniCluster(configuration)) {
            cluster.start();
            JobID job = Cluster.submit(cluster, env);
            int first = Integer.parseInt(args.getOrDefault("first", "0"));
            for (int generation = first; generation < first + generations; generation++) {
                if (chain) {
                    long held = keys + (long) NEW_KEYS * generation;
                    expected += held;
                    for (long k = 0; k < held; k++) {
                        INPUT.add(generation * GENERATION + k);
                    }
                }
                Oracle.waitFor(
                        () -> cluster.getJobStatus(job).get(),
                        () -> cluster.requestJobResult(job).get()
                                .toJobExecutionResult(ChainJobs.class.getClassLoader()),
                        expected);
                if (args.containsKey("each")) {
                    places.add(Oracle.patiently(() -> cluster.triggerSavepoint(
                            job, args.get("to"), false,
                            SavepointFormatType.valueOf(args.get("each")))));
                }
                places.add(Oracle.patiently(() -> cluster.triggerCheckpoint(job)));
                Thread.sleep(Long.parseLong(args.getOrDefault("pause", "0")));
            }
            for (String format : args.get("savepoints").split(" ")) {
                if (format.isEmpty()) {
                    continue;
                }
                places.add(Oracle.patiently(() -> cluster.triggerSavepoint(
                        job, args.get("to"), false, SavepointFormatType.valueOf(format))));
            }
            cluster.cancelJob(job).get(1, TimeUnit.MINUTES);
            cluster.requestJobResult(job).get(1, TimeUnit.MINUTES);
        }
        return String.join(" ", places);
    }

    static class Chain extends KeyedProcessFunction<String, Long, String> {
        private final boolean restoring;
        private transient ValueState<Long> count;
        private transient ValueState<Long> due;
        private transient ListState<String> log;
        private transient MapState<Integer, String> notes;

        Chain(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            due = getRuntimeContext().getState(new ValueStateDescriptor<>("due", Types.LONG));
            log = getRuntimeContext().getListState(new ListStateDescriptor<>("log", Types.STRING));
            notes = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("notes", Types.INT, Types.STRING));
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> out)
                throws Exception {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            change((int) (number / GENERATION), number % GENERATION, context);
            Jobs.SEEN.incrementAndGet();
        }

        private void change(int generation, long k, Context context) throws Exception {
            if (generation > 1 && k % 10 == 9) {
                clear(context);  // for good
                return;
            }
            switch (generation == 0 ? 4 : (int) ((k + generation) % 6)) {
                case 0:
                    return;
                case 1:
                    count.update(k * 31 + generation);
                    notes.put(generation, "note " + generation + " of " + k);
                    return;
                case 2:
                    log.add(generation + "-a-" + k);
                    log.add(generation + "-b-" + k);
                    return;
                case 3:
                    clear(context);
                    return;
                case 4:
                    count.update(k * 17 - generation);
                    for (int i = 0; i <= k % 3; i++) {
                        log.add(generation + "-" + i);
                    }
                    for (int i = 0; i < k % 4; i++) {
                        notes.put(-i, "generation " + generation);
                    }
                    remind(FAR + k * 7 + generation, context);
                    return;
                default:
                    notes.remove(-1);
                    notes.remove(generation - 1);
                    log.update(List.of("only " + generation));
                    remind(FAR - k, context);
            }
        }

        private void remind(long at, Context context) throws Exception {
            if (due.value() != null) {
                context.timerService().deleteEventTimeTimer(due.value());
            }
            due.update(at);
            context.timerService().registerEventTimeTimer(at);
        }

        private void clear(Context context) throws Exception {
            if (due.value() != null) {
                context.timerService().deleteEventTimeTimer(due.value());
            }
            count.clear();
            due.clear();
            log.clear();
            notes.clear();
        }

        private Map<String, Object> everything(String key) throws Exception {
            List<Object> elements = new ArrayList<>();
            log.get().forEach(elements::add);
            Map<String, Object> map = new TreeMap<>();
            for (Map.Entry<Integer, String> entry : notes.entries()) {
                map.put(entry.getKey().toString(), entry.getValue());
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("count", count.value());
            line.put("due", due.value());
            line.put("log", elements);
            line.put("notes", map);
            return line;
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", context.getCurrentKey());
            line.put("timer", timestamp);
            out.collect(Json.of(line));
        }
    }
}
