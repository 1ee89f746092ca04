import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** A source that never ends, and has nothing. */
final class Silent<T> implements Source<T, Silent.NoSplit, Integer> {
    private static final long serialVersionUID = 1;

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<T, NoSplit> createReader(SourceReaderContext context) {
        return new Reader<>();
    }

    @Override
    public SplitEnumerator<NoSplit, Integer> createEnumerator(SplitEnumeratorContext<NoSplit> context) {
        return new Enumerator();
    }

    @Override
    public SplitEnumerator<NoSplit, Integer> restoreEnumerator(
            SplitEnumeratorContext<NoSplit> context, Integer state) {
        return new Enumerator();
    }

    @Override
    public SimpleVersionedSerializer<NoSplit> getSplitSerializer() {
        return new Nothing<>();
    }

    @Override
    public SimpleVersionedSerializer<Integer> getEnumeratorCheckpointSerializer() {
        return new Nothing<>();
    }

    static final class NoSplit implements SourceSplit {
        @Override
        public String splitId() {
            return "none";
        }
    }

    static final class Nothing<V> implements SimpleVersionedSerializer<V> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(V value) {
            return new byte[0];
        }

        @Override
        public V deserialize(int version, byte[] data) {
            return null;
        }
    }

    static final class Reader<R> implements SourceReader<R, NoSplit> {
        private final CompletableFuture<Void> never = new CompletableFuture<>();

        @Override
        public void start() {}

        @Override
        public InputStatus pollNext(ReaderOutput<R> output) {
            return InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        public List<NoSplit> snapshotState(long checkpoint) {
            return new ArrayList<>();
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return never;
        }

        @Override
        public void addSplits(List<NoSplit> splits) {}

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }

    static final class Enumerator implements SplitEnumerator<NoSplit, Integer> {
        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<NoSplit> splits, int subtask) {}

        @Override
        public void addReader(int subtask) {}

        @Override
        public Integer snapshotState(long checkpoint) {
            return 0;
        }

        @Override
        public void close() {}
    }
}
