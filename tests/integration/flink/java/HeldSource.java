import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * A source that reads nothing: its readers hold splits of a real connector, and its enumerator holds
 * that connector's state. Flink writes both into a savepoint by the connector's own serializers.
 *
 * <p>What it holds is static, since splits need not be serializable: its job runs in this process.
 */
public class HeldSource implements Source<Long, SourceSplit, Object> {
    private static SimpleVersionedSerializer<?> splitSerializer;
    private static SimpleVersionedSerializer<?> stateSerializer;
    private static List<? extends SourceSplit> held;
    private static Object state;

    /** A stream from that source; split N is held by subtask N, modulo the parallelism. */
    static <S extends SourceSplit, E> DataStream<Long> stream(
            StreamExecutionEnvironment env, SimpleVersionedSerializer<S> ofSplits,
            SimpleVersionedSerializer<E> ofState, List<? extends S> splits, E enumerator) {
        splitSerializer = ofSplits;
        stateSerializer = ofState;
        held = splits;
        state = enumerator;
        return env.fromSource(
                new HeldSource(), WatermarkStrategy.noWatermarks(), "held", Types.LONG).uid("records");
    }

    static StreamExecutionEnvironment environment() {
        Configuration conf = new Configuration();
        conf.setString("restart-strategy.type", "none");
        conf.setString("execution.checkpointing.data-inline-threshold", "1mb");
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.setMaxParallelism(128);
        return env;
    }

    /** Run a job until all its tasks have what they hold, and write a savepoint. */
    static String savepoint(StreamExecutionEnvironment env, String directory) throws Exception {
        MiniCluster cluster = Cluster.of(2);
        JobID job = Cluster.submit(cluster, env);
        String place = null;
        for (int attempt = 0; place == null; attempt++) {
            Thread.sleep(1500);
            try {
                place = cluster.triggerSavepoint(
                        job, directory, false, SavepointFormatType.CANONICAL).get();
            } catch (Exception early) {
                if (attempt == 20) {
                    throw early;
                }
            }
        }
        cluster.cancelJob(job).get();
        cluster.requestJobResult(job).get();
        return place;
    }

    /** The savepoint of a job of that source alone. */
    static <S extends SourceSplit, E> String savepoint(
            SimpleVersionedSerializer<S> ofSplits, SimpleVersionedSerializer<E> ofState,
            List<? extends S> splits, E enumerator, String directory) throws Exception {
        StreamExecutionEnvironment env = environment();
        stream(env, ofSplits, ofState, splits, enumerator)
                .sinkTo(new DiscardingSink<>()).uid("nowhere");
        return savepoint(env, directory);
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<Long, SourceSplit> createReader(SourceReaderContext context) {
        return new Reader(context.getIndexOfSubtask());
    }

    @Override
    public SplitEnumerator<SourceSplit, Object> createEnumerator(
            SplitEnumeratorContext<SourceSplit> context) {
        return new Enumerator();
    }

    @Override
    public SplitEnumerator<SourceSplit, Object> restoreEnumerator(
            SplitEnumeratorContext<SourceSplit> context, Object checkpoint) {
        return new Enumerator();
    }

    @Override
    @SuppressWarnings("unchecked")
    public SimpleVersionedSerializer<SourceSplit> getSplitSerializer() {
        return (SimpleVersionedSerializer<SourceSplit>) splitSerializer;
    }

    @Override
    @SuppressWarnings("unchecked")
    public SimpleVersionedSerializer<Object> getEnumeratorCheckpointSerializer() {
        return (SimpleVersionedSerializer<Object>) stateSerializer;
    }

    private static class Reader implements SourceReader<Long, SourceSplit> {
        private final int subtask;
        private boolean sent;

        Reader(int subtask) {
            this.subtask = subtask;
        }

        @Override
        public void start() {}

        @Override
        public InputStatus pollNext(ReaderOutput<Long> output) {
            if (!sent) { // a record for whatever comes behind
                sent = true;
                output.collect((long) subtask);
            }
            return InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        public List<SourceSplit> snapshotState(long checkpoint) {
            List<SourceSplit> splits = new ArrayList<>();
            for (int index = subtask; index < held.size(); index += 2) {
                splits.add(held.get(index));
            }
            return splits;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return sent ? new CompletableFuture<>() : CompletableFuture.completedFuture(null);
        }

        @Override
        public void addSplits(List<SourceSplit> splits) {}

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }

    private static class Enumerator implements SplitEnumerator<SourceSplit, Object> {
        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<SourceSplit> splits, int subtask) {}

        @Override
        public void addReader(int subtask) {}

        @Override
        public Object snapshotState(long checkpoint) {
            return state;
        }

        @Override
        public void close() {}
    }
}
