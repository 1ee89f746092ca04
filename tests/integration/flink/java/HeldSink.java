import java.util.Collection;
import java.util.Collections;
import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** A sink that writes nothing, and has committables of a real connector to commit: see HeldSource. */
public class HeldSink<T> implements Sink<Long>, SupportsCommitter<T> {
    private static SimpleVersionedSerializer<?> serializer;
    private static List<?> held;

    /** The savepoint of a job with such a sink; its first subtask has all committables. */
    static <C> String savepoint(
            SimpleVersionedSerializer<C> ofCommittables, List<C> committables, String directory)
            throws Exception {
        serializer = ofCommittables;
        held = committables;
        StreamExecutionEnvironment env = HeldSource.environment();
        env.fromSequence(0, Long.MAX_VALUE - 1).filter(number -> number < 0)
                .sinkTo(new HeldSink<C>()).uid("table");
        return HeldSource.savepoint(env, directory);
    }

    /** State of an operator, written by a connector's own code. */
    interface State {
        void initialize(StateInitializationContext context) throws Exception;

        void snapshot(StateSnapshotContext context) throws Exception;
    }

    /** The savepoint of a job whose only other operator, of one subtask, has some state. */
    static String savepoint(State state, String directory) throws Exception {
        Operator.state = state;
        StreamExecutionEnvironment env = HeldSource.environment();
        DataStream<Long> none = env.fromSequence(0, Long.MAX_VALUE - 1).filter(number -> number < 0);
        none.transform("committer", Types.LONG, new Operator()).uid("table").setParallelism(1)
                .sinkTo(new DiscardingSink<>()).uid("nowhere");
        return HeldSource.savepoint(env, directory);
    }

    private static class Operator extends AbstractStreamOperator<Long>
            implements OneInputStreamOperator<Long, Long> {
        private static State state;

        @Override
        public void initializeState(StateInitializationContext context) throws Exception {
            super.initializeState(context);
            state.initialize(context);
        }

        @Override
        public void snapshotState(StateSnapshotContext context) throws Exception {
            super.snapshotState(context);
            state.snapshot(context);
        }

        @Override
        public void processElement(StreamRecord<Long> record) {}
    }

    @Override
    @Deprecated
    public SinkWriter<Long> createWriter(Sink.InitContext context) {
        throw new UnsupportedOperationException();
    }

    @Override
    public SinkWriter<Long> createWriter(WriterInitContext context) {
        return new Writer<T>(context.getTaskInfo().getIndexOfThisSubtask() == 0);
    }

    @Override
    public Committer<T> createCommitter(CommitterInitContext context) {
        return new Committer<T>() {
            @Override
            public void commit(Collection<CommitRequest<T>> requests) {}

            @Override
            public void close() {}
        };
    }

    @Override
    @SuppressWarnings("unchecked")
    public SimpleVersionedSerializer<T> getCommittableSerializer() {
        return (SimpleVersionedSerializer<T>) serializer;
    }

    private static class Writer<T> implements CommittingSinkWriter<Long, T> {
        private final boolean first;

        Writer(boolean first) {
            this.first = first;
        }

        @Override
        public void write(Long element, Context context) {}

        @Override
        public void flush(boolean end) {}

        @Override
        @SuppressWarnings("unchecked")
        public Collection<T> prepareCommit() {
            return first ? (List<T>) held : Collections.emptyList();
        }

        @Override
        public void close() {}
    }
}
