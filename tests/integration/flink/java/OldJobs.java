import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.restartstrategy.RestartStrategies;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.SourceFunction;
import org.apache.flink.util.Collector;

/**
 * A job for Flink 1.8 to 1.17, whose APIs it has in common: keyed state of three kinds, timers, and
 * operator state. Arguments: backend (hashmap or rocksdb), directory, keys. Prints the savepoint.
 */
public class OldJobs {
    static final AtomicLong SEEN = new AtomicLong();
    private static final long FAR = 4_000_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        long keys = Long.parseLong(arguments[2]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(2);
        env.setMaxParallelism(128);
        env.enableCheckpointing(1_000_000);
        env.setRestartStrategy(RestartStrategies.noRestart());
        env.addSource(new Numbers(keys)).setParallelism(1).uid("numbers").returns(Types.LONG)
                .map(new Lists()).returns(Types.LONG).uid("lists")
                .keyBy(number -> "word-" + number % keys)
                .process(new Keyed()).returns(Types.LONG).uid("keyed")
                .addSink(new DiscardingSink<>()).uid("sink");
        JobGraph graph = env.getStreamGraph().getJobGraph();
        Configuration conf = new Configuration();
        conf.setString("state.backend", backend(arguments[0]));
        conf.setString("state.checkpoints.dir", arguments[1] + "/checkpoints");
        conf.setString("rest.port", "0");
        conf.setString("rest.bind-port", "0");
        conf.setString("taskmanager.numberOfTaskSlots", "2");
        MiniClusterConfiguration.Builder builder = new MiniClusterConfiguration.Builder()
                .setConfiguration(conf).setNumTaskManagers(1).setNumSlotsPerTaskManager(2);
        try (MiniCluster cluster = new MiniCluster(builder.build())) {
            cluster.start();
            submit(cluster, graph);
            while (SEEN.get() < 2 * keys) {
                if (cluster.getJobStatus(graph.getJobID()).get().isGloballyTerminalState()) {
                    cluster.requestJobResult(graph.getJobID()).get()
                            .toJobExecutionResult(OldJobs.class.getClassLoader());
                }
                Thread.sleep(20);
            }
            System.out.println("savepoint " + savepoint(cluster, graph.getJobID(), arguments[1]));
            cluster.cancelJob(graph.getJobID()).get(1, TimeUnit.MINUTES);
        }
        System.exit(0);
    }

    /** What the heap backend is called there: by its class before 1.13. */
    private static String backend(String name) {
        return name.equals("rocksdb") ? "rocksdb" : "filesystem";
    }

    private static void submit(MiniCluster cluster, JobGraph graph) throws Exception {
        ((CompletableFuture<?>) MiniCluster.class.getMethod("submitJob", JobGraph.class)
                .invoke(cluster, graph)).get(1, TimeUnit.MINUTES);
    }

    /** `triggerSavepoint`, which got an argument for the format in 1.15. */
    private static String savepoint(MiniCluster cluster, JobID job, String to) throws Exception {
        for (Method method : MiniCluster.class.getMethods()) {
            if (!method.getName().equals("triggerSavepoint")) {
                continue;
            }
            List<Object> values = new ArrayList<>(List.of(job, to, false));
            Class<?>[] types = method.getParameterTypes();
            if (types.length == 4) {
                values.add(types[3].getField("CANONICAL").get(null));
            }
            for (int attempt = 0; ; attempt++) {
                try {
                    return (String) ((CompletableFuture<?>) method.invoke(cluster, values.toArray()))
                            .get(1, TimeUnit.MINUTES);
                } catch (Exception tooEarly) {
                    if (attempt > 100) {
                        throw tooEarly;
                    }
                    Thread.sleep(50);
                }
            }
        }
        throw new IllegalStateException("this MiniCluster takes no savepoints");
    }

    static class Numbers implements SourceFunction<Long> {
        private final long keys;
        private volatile boolean running = true;

        Numbers(long keys) {
            this.keys = keys;
        }

        @Override
        public void run(SourceContext<Long> context) throws Exception {
            for (long number = 0; number < keys; number++) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(number);
                }
            }
            while (running) {
                Thread.sleep(10);
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    static class Lists extends org.apache.flink.api.common.functions.RichMapFunction<Long, Long>
            implements CheckpointedFunction {
        private final List<Long> seen = new ArrayList<>();
        private transient ListState<Long> split;
        private transient ListState<String> union;

        @Override
        public Long map(Long number) {
            seen.add(number);
            SEEN.incrementAndGet();
            return number;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            split = context.getOperatorStateStore()
                    .getListState(new ListStateDescriptor<>("split", Types.LONG));
            union = context.getOperatorStateStore()
                    .getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            split.update(seen);
            int subtask = getRuntimeContext().getIndexOfThisSubtask();
            union.clear();
            for (int i = 0; i < 2 * subtask + 1; i++) {
                union.add("subtask-" + subtask + "-" + i);
            }
        }
    }

    static class Keyed extends KeyedProcessFunction<String, Long, Long> {
        private transient ValueState<Long> count;
        private transient ListState<Integer> items;
        private transient MapState<String, Double> scores;

        @Override
        public void open(Configuration parameters) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            items = getRuntimeContext().getListState(new ListStateDescriptor<>("items", Types.INT));
            scores = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("scores", Types.STRING, Types.DOUBLE));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out)
                throws Exception {
            count.update(number * 31 - 7);
            for (int i = 0; i < number % 4; i++) {
                items.add((int) (number * 10 + i));
                scores.put("s" + i, number / 8.0 + i);
            }
            context.timerService().registerEventTimeTimer(FAR + number);
            SEEN.incrementAndGet();
        }
    }
}
