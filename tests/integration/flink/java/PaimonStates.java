import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryRowWriter;
import org.apache.paimon.flink.sink.Committer;
import org.apache.paimon.flink.sink.RestoreAndFailCommittableStateManager;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.FileSource;
import org.apache.paimon.manifest.ManifestCommittable;
import org.apache.paimon.manifest.ManifestCommittableSerializer;
import org.apache.paimon.stats.SimpleStats;
import org.apache.paimon.table.sink.CommitMessageImpl;

/** A savepoint with the state of Paimon's committer, by its own classes: committer DIRECTORY. */
public class PaimonStates {
    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> HeldSink.savepoint(new Pending(), words[1]));
    }

    private static class Pending implements HeldSink.State {
        private final RestoreAndFailCommittableStateManager<ManifestCommittable> manager =
                new RestoreAndFailCommittableStateManager<>(ManifestCommittableSerializer::new);

        @Override
        @SuppressWarnings("unchecked")
        public void initialize(StateInitializationContext context) throws Exception {
            Committer<?, ManifestCommittable> nothing = (Committer<?, ManifestCommittable>)
                    Proxy.newProxyInstance(PaimonStates.class.getClassLoader(),
                            new Class<?>[] {Committer.class}, (proxy, method, words) -> 0);
            manager.initializeState(context, nothing);
        }

        @Override
        public void snapshot(StateSnapshotContext context) throws Exception {
            manager.snapshotState(context, new ArrayList<>(Arrays.asList(
                    committable(4, 1767225600000L, "data-a-0.parquet", "a.parquet"),
                    committable(5, null, "data-b-0.parquet"))));
        }
    }

    private static ManifestCommittable committable(long identifier, Long watermark, String... names) {
        ManifestCommittable made = new ManifestCommittable(identifier, watermark);
        List<DataFileMeta> files = new ArrayList<>();
        for (String name : names) {
            files.add(DataFileMeta.forAppend(name, 1000 + name.length(), 10, SimpleStats.EMPTY_STATS,
                    0, 9, 0, Collections.emptyList(), null, FileSource.APPEND, null, null));
        }
        BinaryRow partition = new BinaryRow(1);
        BinaryRowWriter writer = new BinaryRowWriter(partition);
        writer.writeInt(0, 2026);
        writer.complete();
        made.addFileCommittable(new CommitMessageImpl(partition, 3,
                new DataIncrement(files, Collections.emptyList(), Collections.emptyList()),
                CompactIncrement.emptyIncrement()));
        return made;
    }
}
