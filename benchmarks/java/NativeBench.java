import java.io.File;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A job that runs until its state is full and a checkpoint has it: what a backend itself writes, and
 * the State Processor API can't write.
 *
 * <pre>
 * write    backend= incremental= entries= to=      retained checkpoints, the last one whole
 * </pre>
 *
 * Prints the seconds until the checkpoint was there.
 */
public class NativeBench {
    private static final AtomicLong SEEN = new AtomicLong();
    private static final long INTERVAL_MILLIS = 2000;

    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            args.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.managed.size", "1024m");
        conf.setString("rest.port", "0");
        conf.setString("state.backend.type", args.get("backend"));
        conf.setString("execution.checkpointing.incremental", args.getOrDefault("incremental", "false"));
        conf.setString("execution.checkpointing.dir", args.get("to"));
        conf.setString("execution.checkpointing.interval", INTERVAL_MILLIS + "ms");
        conf.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.setMaxParallelism(128);
        long entries = Long.parseLong(args.get("entries"));
        env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1)
                .flatMap((FlatMapFunction<Long, Long>) (number, out) -> {
                    if (number < entries) {
                        out.collect(number);
                    } else {
                        Thread.sleep(5);
                    }
                })
                .returns(Types.LONG).setParallelism(1)
                .keyBy(number -> "key-" + number, Types.STRING)
                .process(new Counter()).uid("counter")
                .sinkTo(new DiscardingSink<>());
        long start = System.nanoTime();
        JobClient job = env.executeAsync("write");
        File directory = new File(URI.create(args.get("to")).getPath(), job.getJobID().toString());
        long wanted = Long.MAX_VALUE;
        while (last(directory) < wanted) {
            if (job.getJobStatus().get().isGloballyTerminalState()) {
                job.getJobExecutionResult().get();
            }
            if (wanted == Long.MAX_VALUE && SEEN.get() >= entries) {
                // the checkpoint that is being taken may not have all; the one after it does
                wanted = last(directory) + 2;
            }
            Thread.sleep(20);
        }
        double took = (System.nanoTime() - start) / 1e9;
        job.cancel().get(1, TimeUnit.MINUTES);
        System.out.println(took);
        System.exit(0);
    }

    /** The number of the last checkpoint that is whole. */
    private static long last(File directory) {
        long found = 0;
        File[] checkpoints = directory.listFiles((parent, name) -> name.startsWith("chk-"));
        for (File one : checkpoints == null ? new File[0] : checkpoints) {
            if (new File(one, "_metadata").exists()) {
                found = Math.max(found, Long.parseLong(one.getName().substring("chk-".length())));
            }
        }
        return found;
    }

    static class Counter extends KeyedProcessFunction<String, Long, Long> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
            count.update(number * 7);
            SEEN.incrementAndGet();
        }
    }
}
